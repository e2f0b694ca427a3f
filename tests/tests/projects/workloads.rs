//! Real programs in every mode of their compiler: their output stays the same, their traces contain
//! the calls that other tools count, and all exports work.
//!
//! By default at one level of optimisation, and one of them in each mode (zstd in none); with
//! `EVERYCALL_FULL=1` at all levels, and with the flags that change what a linker does. cargo
//! downloads the sources, and objects stay in the target folder. The page check needs chromium,
//! node, npm and python3; `EVERYCALL_SKIP_BROWSER=1` leaves it out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use everycall_tests::workloads::{Build, FunctionTable, Linkage, TraceCounts, Workload, of_oracle, of_trace};
use everycall_tests::{Mode, Place, Standing, everycall, found, is_full, successful};
use serde_json::{Value, json};

#[path = "../../../crates/building/compiler/tests/support/image.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of the prefix")]
mod image;

/// One level; the others with `EVERYCALL_FULL`.
const FLAGS: &[&[&str]] = &[&["-O1"]];
const FLAGS_FULL: &[&[&str]] = &[
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-O3"],
    &["-Os"],
    &["-O2", "-fno-pie", "-no-pie"],
    &["-O2", "-fPIE", "-static-pie"],
    &["-O2", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"],
];

/// Modes in which a workload is tried. They take the most time of all tests: without
/// `EVERYCALL_FULL`, each mode has one of the workloads, mostly the smallest; zstd has none.
fn modes(workload: &Workload) -> impl Iterator<Item = Mode> {
    let of_modes = [
        Workload::SQLITE,
        Workload::LUA,
        Workload::LUA,
        Workload::LEVELDB,
        Workload::LUA,
        Workload::LUA,
        Workload::LUA,
    ];
    let name = workload.name;
    let tried = Mode::ALL.into_iter().zip(of_modes).filter(move |(_, one)| is_full() || one.name == name);
    tried.map(|(mode, _)| mode)
}

/// A ring that can hold every small run.
const RING: &str = "256M";

/// Options for a run that overwrites its ring: a small ring, as debug builds take long for more
/// events; with `EVERYCALL_FULL` the default one.
fn overwritten_ring() -> &'static [&'static str] {
    if is_full() { &[] } else { &["--ring-size", "1M"] }
}

/// Runs a program; returns its standard output.
fn stdout_of(command: &mut Command) -> Vec<u8> {
    let output = ended_well(command);
    assert!(!output.stdout.is_empty(), "{command:?} prints nothing");
    output.stdout
}

fn ended_well(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

/// Arguments of a run: Lua's begin with its script.
fn arguments(workload: Workload, run: &[&str]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/drivers/work.lua");
    let script = (workload.name == "lua").then(|| script.to_str().expect("a path in UTF-8").to_owned());
    script.into_iter().chain(run.iter().map(ToString::to_string)).collect()
}

/// A workload's tests in one mode with one set of flags.
struct Case<'a> {
    build: Build,
    mode: Mode,
    place: &'a Place,
    /// The program's output, compiled by gcc alone: small run and large run.
    small: &'a [u8],
    large: &'a [u8],
}

/// Runs a workload's whole test.
fn check(workload: Workload) {
    if modes(&workload).next().is_none() {
        println!("skipped: {} takes minutes; EVERYCALL_FULL=1 runs it", workload.name);
        return;
    }
    let place = Place::new(workload.name);
    let plain = Build { workload, mode: None, flags: &["-O1"] };
    let program = place.file("plain");
    plain.link(Linkage::Plain, &program);
    let small = stdout_of(Command::new(&program).args(arguments(workload, workload.small)));
    let large = stdout_of(Command::new(&program).args(arguments(workload, workload.large)));
    let mut failed = Vec::new();
    for flags in if is_full() { FLAGS_FULL } else { FLAGS } {
        for mode in modes(&workload) {
            let start = Instant::now();
            let build = Build { workload, mode: Some(mode), flags };
            let label = build.label();
            let case = Case { build, mode, place: &place, small: &small, large: &large };
            // An error in one mode doesn't hide errors in another.
            match catch_unwind(AssertUnwindSafe(|| case.check())) {
                Ok(found) => println!("{label}: {found}, {:.1} s", start.elapsed().as_secs_f64()),
                Err(_) => failed.push(label),
            }
        }
    }
    assert!(failed.is_empty(), "{}: see above", failed.join(", "));
}

impl Case<'_> {
    fn check(&self) -> String {
        let start = Instant::now();
        let (objects, label) = (self.build.objects(), self.build.label());
        let compiled = start.elapsed().as_secs_f64();
        let traced = self.place.file(&format!("{label}-traced"));
        self.build.link(Linkage::Traced, &traced);
        if matches!(self.mode.name, "nops" | "xray") {
            self.check_without_us(&label);
        }
        let hooks = hooks::check(self.mode, &traced, &objects);
        let events = self.check_counts(&label, &traced);
        // Readers treat a ring alike, whichever mode wrote it.
        let is_looked_at = is_full() || [Mode::GCC_NOPS, Mode::CLANG19_XRAY].contains(&self.mode);
        let slices = if is_looked_at { self.check_overwritten_ring(&label, &traced) } else { 0 };
        for entry in std::fs::read_dir(self.place.path()).expect("the temporary folder") {
            let path = entry.expect("a readable folder").path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&label)) {
                std::fs::remove_file(path).expect("a file in the temporary folder");
            }
        }
        format!(
            "{hooks}, {events} events as counted, {slices} slices of overwritten rings, compiled in {compiled:.1} s"
        )
    }

    fn run(&self, program: &Path, run: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments(self.build.workload, run));
        command
    }

    fn record(&self, options: &[&str], program: &Path, run: &[&str], file: &Path) -> Output {
        let mut command = Command::new(everycall());
        command.arg("record").args(options).arg("-o").arg(file).arg("--").arg(program);
        ended_well(command.args(arguments(self.build.workload, run)))
    }

    /// Objects with sites link and run without anything of ours.
    fn check_without_us(&self, label: &str) {
        let program = self.place.file(&format!("{label}-plain"));
        self.build.link(Linkage::Plain, &program);
        assert_eq!(stdout_of(&mut self.run(&program, self.build.workload.small)), self.small, "{label}");
    }

    /// A run that fits into the rings, against the oracle.
    fn check_counts(&self, label: &str, traced: &Path) -> u64 {
        let workload = self.build.workload;
        let with_oracle = self.place.file(&format!("{label}-oracle"));
        self.build.link(Linkage::Oracle, &with_oracle);
        let counted = self.place.file(&format!("{label}-counts"));
        let mut command = self.run(&with_oracle, workload.small);
        assert_eq!(stdout_of(command.env("ORACLE_OUT", &counted)), self.small, "{label}");
        let expected = of_oracle(&counted, &with_oracle);

        assert_eq!(stdout_of(&mut self.run(traced, workload.small)), self.small, "{label} without record");
        let file = self.place.file(&format!("{label}-small.ect"));
        let output = self.record(&["--ring-size", RING], traced, workload.small, &file);
        assert_eq!(output.stdout, self.small, "{label} under record");
        let trace = of_trace(&file, traced);

        check_whole(label, &trace);
        assert_eq!((expected.len(), trace.threads.len()), (workload.threads, workload.threads), "{label}");
        for (index, (expected, thread)) in expected.iter().zip(&trace.threads).enumerate() {
            let (expected, found) = (expected.calls(), thread.calls());
            let names: BTreeSet<&&str> = expected.keys().chain(found.keys()).collect();
            let mut differences = String::new();
            for name in names {
                let (expected, found) = (expected.get(*name), found.get(*name));
                if expected != found {
                    let _ =
                        writeln!(differences, "{name}: {expected:?} by the oracle, {found:?} in the trace");
                }
            }
            assert!(differences.is_empty(), "{label}, thread {index} ({}):\n{differences}", thread.name);
        }
        self.check_ends(label, &trace);
        trace.infos.iter().map(|info| info.events).sum()
    }

    /// Every call of a whole trace ended in one of the ways that the program has.
    fn check_ends(&self, label: &str, trace: &TraceCounts) {
        for (thread, info) in trace.threads.iter().zip(&trace.infos) {
            for (name, counts) in &thread.functions {
                let ended = counts.exits - counts.orphans + counts.unwound + counts.open;
                assert_eq!(counts.entries, ended, "{label}: {name} {counts:?}");
                // gcc calls only the exit hook in thunks; mode nops drops those calls.
                assert!(
                    counts.orphans == 0 || (self.mode.name == "fentry" && name.starts_with("_ZTh")),
                    "{name}"
                );
            }
            let total = thread.total();
            assert_eq!((total.open, info.open_calls), (0, 0), "{label}: all calls return before the end");
            assert_eq!(total.unwound, info.unwound, "{label}");
            if self.build.workload.name != "lua" {
                assert_eq!(total.unwound, 0, "{label}: nothing is left without an exit");
                continue;
            }
            // Errors and yields leave by luaD_throw, which never returns; the calls between it and
            // the protected call are unwound.
            let throws = thread.functions["luaD_throw"];
            assert!(throws.entries > 100, "{label}: {throws:?}");
            assert_eq!((throws.exits, throws.unwound), (0, throws.entries), "{label}");
            if let Some(protected) = thread.functions.get("luaD_rawrunprotected") {
                assert_eq!((protected.exits, protected.unwound), (protected.entries, 0), "{label}");
                assert!(protected.entries > throws.entries, "{label}");
            }
        }
    }

    /// A run that overwrites its ring: the rest can be exported in all formats.
    fn check_overwritten_ring(&self, label: &str, traced: &Path) -> u64 {
        let file = self.place.file(&format!("{label}-large.ect"));
        let output = self.record(overwritten_ring(), traced, self.build.workload.large, &file);
        assert_eq!(output.stdout, self.large, "{label} under record");
        let trace = of_trace(&file, traced);
        assert_eq!(trace.warnings, [""; 0], "{label}");
        assert_eq!(trace.threads.len(), self.build.workload.threads, "{label}");
        let overwritten: u64 = trace.infos.iter().map(|info| info.segments_overwritten).sum();
        assert!(overwritten > 0, "{label}: the large run is too small");
        for info in &trace.infos {
            let (first, last) = info.reach.expect("events");
            assert!(first < last && info.losses == 0 && info.malformed_words == 0, "{label}: {info:?}");
        }
        let info = shown(&["info", "--format", "json"], &file);
        assert!(info.contains("\"most_calls\"") && shown(&["info"], &file).contains("Most calls"), "{label}");
        assert!(shown(&["replay", "--depth", "1"], &file).lines().count() > 1, "{label}");
        let lines = shown(&["replay", "--format", "json"], &file);
        let calls = lines.lines().filter(|line| line.contains("\"dur_ns\"")).count() as u64;
        assert_eq!(calls, trace.slices, "{label}: replay shows each call");
        for format in ["vizviewer", "chrome", "perfetto"] {
            let output = self.place.file(&format!("{label}-{format}"));
            export(format, &file, &output);
        }
        calls
    }
}

/// Nothing is missing in a trace.
fn check_whole(label: &str, trace: &TraceCounts) {
    assert_eq!(trace.warnings, [""; 0], "{label}");
    assert_eq!(trace.cut_at_start, 0, "{label}");
    let is_body = label.contains("finstrument") || label.contains("after-inlining");
    assert!(is_body || trace.elsewhere == 0, "{label}: {} calls outside the program", trace.elsewhere);
    for info in &trace.infos {
        assert!(info.is_complete && info.segments_overwritten == 0, "{label}: {info:?}");
        let missing = [info.losses, info.malformed_words, info.segments_lost, info.lost_busy, info.deep];
        assert_eq!(missing, [0; 5], "{label}: {info:?}");
    }
}

/// The output of `everycall VERB... FILE`.
fn shown(verb: &[&str], file: &Path) -> String {
    let mut command = Command::new(everycall());
    let output = ended_well(command.args(verb).arg(file));
    assert!(output.stderr.is_empty(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn export(format: &str, file: &Path, output: &Path) {
    successful(Command::new(everycall()).args(["export", "-f", format, "-o"]).arg(output).arg(file));
}

#[test]
fn sqlite() {
    check(Workload::SQLITE);
}

#[test]
fn lua() {
    check(Workload::LUA);
}

#[test]
fn zstd() {
    check(Workload::ZSTD);
}

#[test]
fn leveldb() {
    check(Workload::LEVELDB);
}

#[test]
fn pages() {
    if std::env::var_os("EVERYCALL_SKIP_BROWSER").is_some_and(|value| value == "1") {
        println!("skipped: nothing was loaded into vizviewer, as EVERYCALL_SKIP_BROWSER=1 asks");
        return;
    }
    let place = Place::new("pages");
    let mut list = Vec::new();
    // Traces to look at by `everycall view`, with a part of a function's name that no label has.
    let mut views: Vec<(PathBuf, &str)> = Vec::new();
    // The browser takes long.
    let workloads = [Workload::SQLITE, Workload::LUA, Workload::ZSTD, Workload::LEVELDB];
    for workload in workloads.into_iter().take(if is_full() { 4 } else { 1 }) {
        let looked_at = if is_full() { &[Mode::GCC_NOPS, Mode::CLANG19_XRAY][..] } else { &[Mode::GCC_NOPS] };
        for mode in modes(&workload).filter(|mode| looked_at.contains(mode)) {
            let build = Build { workload, mode: Some(mode), flags: FLAGS[0] };
            let (program, file) = (place.file(&build.label()), place.file(&format!("{}.ect", build.label())));
            build.link(Linkage::Traced, &program);
            let mut record = Command::new(everycall());
            record.arg("record").args(overwritten_ring()).arg("-o").arg(&file).arg("--").arg(&program);
            ended_well(record.args(arguments(workload, workload.large)));
            let (slices, select) = browser::chosen(&shown(&["replay", "--format", "json"], &file));
            match workload.name {
                name if name == Workload::SQLITE.name && mode == Mode::GCC_NOPS => {
                    views.push((file.clone(), "sqlite3Vdbe"))
                }
                name if name == Workload::LEVELDB.name && mode == Mode::CLANG19_XRAY => {
                    views.push((file.clone(), "SkipList"))
                }
                _ => {}
            }
            // One workload in both formats, the others in turn: the browser takes long.
            let formats = [("vizviewer", "json"), ("perfetto", "pftrace")];
            let formats = match (workload.name == Workload::SQLITE.name, mode == Mode::GCC_NOPS) {
                (true, _) => &formats[..],
                (false, is_first) => &formats[usize::from(is_first)..][..1],
            };
            for (format, ending) in formats {
                let output = place.file(&format!("{}.{ending}", build.label()));
                export(format, &file, &output);
                let (select, states) = (select.clone(), json!([]));
                list.push(browser::Page { file: output, slices, select, states, waits: BTreeSet::new() });
            }
        }
    }
    // Lanes of thread states and CPUs. Sources are shown from the program's folder.
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/phases.c")).unwrap();
    place.write("phases.c", &source);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "phases.c", "-pthread"], "phases");
    let recording = place.record(&["--states"], &program, &[]);
    let lines = shown(&["replay", "--format", "json"], &recording.file);
    let (slices, select) = browser::chosen(&lines);
    let states = states_of_functions(&recording.file);
    let waits = browser::waits(&lines);
    let are_told = states.as_array().is_some_and(|rows| !rows.is_empty());
    assert!(!are_told || waits.contains("clock_nanosleep"), "{waits:?}");
    for (format, ending) in [("vizviewer", "json"), ("perfetto", "pftrace")] {
        let output = place.file(&format!("phases.{ending}"));
        export(format, &recording.file, &output);
        let (select, states, waits) = (select.clone(), states.clone(), waits.clone());
        list.push(browser::Page { file: output, slices, select, states, waits });
    }
    let start = Instant::now();
    for line in browser::look(&place, &list) {
        println!("{line}");
    }
    println!("pages: {:.1} s", start.elapsed().as_secs_f64());
    // The viewer's page of large traces takes minutes.
    if std::env::var_os("EVERYCALL_FULL").is_some_and(|value| value == "1") {
        for line in browser::look_at_views(&place, &views) {
            println!("{line}");
        }
    }
}

/// The page of `everycall view`, used as a person does, shows the numbers of `report`.
#[test]
fn views() {
    if std::env::var_os("EVERYCALL_SKIP_BROWSER").is_some_and(|value| value == "1") {
        println!("skipped: the viewer's page was not looked at, as EVERYCALL_SKIP_BROWSER=1 asks");
        return;
    }
    let place = Place::new("views");
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/phases.c")).unwrap();
    place.write("phases.c", &source);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "phases.c", "-pthread"], "phases");
    let recording = place.record(&["--states", "--trigger", "sleeps > 1ms"], &program, &[]);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "early.c", "-pthread"], "early");
    // Of one of its functions, only the number of calls is known.
    let overwritten = place.record(&["--ring-size", "64K"], &program, &[]);
    for (trace, find) in [(&recording, "main"), (&overwritten, "leaf")] {
        for line in browser::look_at_views(&place, &[(trace.file.clone(), find)]) {
            println!("{line}");
        }
    }
}

/// The page of a program that runs goes on with it, and is frozen by a key.
#[test]
fn a_running_program_in_a_browser() {
    if std::env::var_os("EVERYCALL_SKIP_BROWSER").is_some_and(|value| value == "1") {
        println!("skipped: no page was opened, as EVERYCALL_SKIP_BROWSER=1 asks");
        return;
    }
    let place = Place::new("view-browser");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "selected.c", "-pthread"], "selected");
    let standing = Standing::alone(&program, &["1"]);
    browser::look_at_running(&place, standing.pid, "work_one");
}

/// The page's files in the repository are those that its sources give.
#[test]
fn the_page_is_built_from_its_sources() {
    if std::env::var_os("EVERYCALL_SKIP_BROWSER").is_some_and(|value| value == "1") {
        println!("skipped: the viewer's page was not built, as EVERYCALL_SKIP_BROWSER=1 asks");
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/showing/view/page");
    let built = browser::built(&page);
    for name in ["alone.html", "app.css", "app.js", "index.html", "worker.js"] {
        let read = |folder: &Path| fs::read(folder.join(name)).expect("a file of the page");
        let advice = "run `npm ci && npm run build` in crates/showing/view/page, and commit dist";
        assert!(read(&page.join("dist")) == read(&built), "{name} isn't what its sources give; {advice}");
    }
}

/// How long each function was in each state, by `report`: the page's tables are to say the same.
/// Empty where the kernel reported none.
fn states_of_functions(file: &Path) -> Value {
    let report: Value = serde_json::from_str(&shown(&["report", "-f", "json"], file)).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 8, "seven phases and main");
    let told = rows.iter().filter(|row| !row["running_ns"].is_null());
    let states = told.map(|row| {
        let name = format!("{} (phases.c:{})", row["name"].as_str().expect("a name"), row["line"]);
        json!({ "name": name, "Running": row["running_ns"], "R": row["runnable_ns"], "S": row["blocked_ns"] })
    });
    states.collect()
}

/// vizviewer's page in a headless browser.
mod browser {
    use super::{BTreeMap, BTreeSet, Command, Path, PathBuf, Place, ended_well, found, successful};
    use everycall_tests::workloads::target_folder;
    use serde_json::{Value, json};
    use std::fs;

    /// A page for `check.js` to open.
    pub struct Page {
        pub file: PathBuf,
        pub slices: u64,
        /// The slice to select.
        pub select: Value,
        /// Slices, and the nanoseconds that their threads are in each state within them.
        pub states: Value,
        /// System calls in which threads waited.
        pub waits: BTreeSet<String>,
    }

    /// From the lines of `replay --format json`: the system calls in which threads waited.
    pub fn waits(lines: &str) -> BTreeSet<String> {
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        lines.filter_map(|line| line["blocked_in"].as_str().map(str::to_owned)).collect()
    }

    /// From the lines of `replay --format json`: how many calls, and the function with most of them
    /// as `check.js` takes it.
    pub fn chosen(lines: &str) -> (u64, Value) {
        let (mut slices, mut counts) = (0, BTreeMap::<(String, String, u64), u64>::new());
        for line in lines.lines() {
            let call: Value = serde_json::from_str(line).expect("a line of JSON");
            // Calls, and what tail calls led to that isn't traced.
            slices += u64::from(call.get("dur_ns").or(call.get("untraced_at_most_ns")).is_some());
            if let (Some(name), Some(file), Some(line)) =
                (call["name"].as_str(), call["file"].as_str(), call["line"].as_u64())
            {
                *counts.entry((name.to_owned(), file.to_owned(), line)).or_default() += 1;
            }
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let ((name, file, line), _) = most.expect("a call of a function with a source");
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        let text = text.lines().nth(line as usize - 1).unwrap_or_else(|| panic!("{file} has no line {line}"));
        let bare = name.split('(').next().and_then(|name| name.rsplit("::").next()).unwrap_or_default();
        assert!(text.contains(bare), "{file}:{line} isn't where {name} begins: {text}");
        let base = Path::new(&file).file_name().and_then(|name| name.to_str()).expect("a file name");
        (slices, json!({ "name": format!("{name} ({base}:{line})"), "line": line, "text": text }))
    }

    /// Opens all pages; a line on each.
    pub fn look(place: &Place, pages: &[Page]) -> Vec<String> {
        let browser = target_folder().join("browser");
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
        install(&own, &browser);
        let shots = browser.join("screenshots");
        fs::create_dir_all(&shots).expect("a folder in the target folder");
        let traces = pages.iter().map(|page| {
            let name = page.file.file_name().and_then(|name| name.to_str()).expect("a file name");
            let screenshot = shots.join(format!("{name}.png"));
            json!({
                "file": page.file, "slices": page.slices, "select": page.select, "states": page.states,
                "waits": page.waits, "screenshot": screenshot
            })
        });
        let traces: Vec<Value> = traces.collect();
        let list =
            json!({ "python": browser.join("venv/bin/python"), "chromium": chromium(), "traces": traces });
        let list = place.write("pages.json", &list.to_string());
        let mut node = Command::new("node");
        node.arg(own.join("check.js")).arg(list).env("NODE_PATH", browser.join("node_modules"));
        let said = String::from_utf8(ended_well(&mut node).stdout).expect("text");
        let lines: Vec<String> = said.lines().map(ToOwned::to_owned).collect();
        assert_eq!(lines.len(), pages.len(), "{said}");
        for line in &lines {
            let page: Value = serde_json::from_str(line).expect("a line of JSON");
            assert_eq!(page["problems"], json!([]), "{line}; see {}", shots.display());
        }
        lines
    }

    /// Looks at traces in the page of `everycall view`, as a user does, and at one page that holds
    /// everything.
    pub fn look_at_views(place: &Place, traces: &[(PathBuf, &str)]) -> Vec<String> {
        let browser = target_folder().join("browser");
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
        install(&own, &browser);
        let shots = browser.join("screenshots");
        fs::create_dir_all(&shots).expect("a folder in the target folder");
        let mut servers = Servers(Vec::new());
        let mut pages = Vec::new();
        for (file, find) in traces {
            let name = file.file_stem().and_then(|name| name.to_str()).expect("a file name");
            let report = place.write(&format!("{name}.report.json"), &report_of(file));
            let address = servers.start(file);
            pages.push(json!({ "name": name, "address": address, "report": report, "find": find }));
        }
        let (file, find) = traces.last().expect("a trace");
        let alone = place.file("alone.html");
        ended_well(Command::new(super::everycall()).arg("view").arg("--html").arg(&alone).arg(file));
        let report = place.write("alone.report.json", &report_of(file));
        let address = format!("file://{}", alone.display());
        pages.push(json!({ "name": "alone", "address": address, "report": report, "find": find }));
        let count = pages.len();
        let list = json!({ "chromium": chromium(), "screenshots": shots, "pages": pages });
        let list = place.write("views.json", &list.to_string());
        let mut node = Command::new("node");
        node.arg(own.join("viewer.js")).arg(list).env("NODE_PATH", browser.join("node_modules"));
        let said = String::from_utf8(ended_well(&mut node).stdout).expect("text");
        let lines: Vec<String> = said.lines().map(ToOwned::to_owned).collect();
        assert_eq!(lines.len(), count, "{said}");
        for line in &lines {
            let page: Value = serde_json::from_str(line).expect("a line of JSON");
            assert_eq!(page["problems"], json!([]), "{line}; see {}", shots.display());
        }
        lines
    }

    /// Looks at the page of a process that runs; `find` is one of its functions.
    pub fn look_at_running(place: &Place, pid: u32, find: &str) {
        let browser = target_folder().join("browser");
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
        install(&own, &browser);
        let shots = browser.join("screenshots");
        fs::create_dir_all(&shots).expect("a folder in the target folder");
        let mut servers = Servers(Vec::new());
        let address = servers.start_with(&["--keep", "256K", &pid.to_string()]);
        let list = json!({ "chromium": chromium(), "screenshots": shots, "address": address, "find": find });
        let list = place.write("live.json", &list.to_string());
        let mut node = Command::new("node");
        node.arg(own.join("live.js")).arg(list).env("NODE_PATH", browser.join("node_modules"));
        let said = String::from_utf8(ended_well(&mut node).stdout).expect("text");
        let page: Value = serde_json::from_str(said.trim()).expect("a line of JSON");
        assert_eq!(page["problems"], json!([]), "see {}", shots.display());
    }

    /// The numbers that the page is to show. What they lack is said on standard error.
    fn report_of(file: &Path) -> String {
        let mut report = Command::new(super::everycall());
        let output = ended_well(report.args(["report", "-f", "json"]).arg(file));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Servers of `everycall view`, which end with the test.
    struct Servers(Vec<std::process::Child>);

    impl Servers {
        /// Starts one; its address.
        fn start(&mut self, file: &Path) -> String {
            self.start_with(&[file.to_str().expect("a path")])
        }

        /// Starts one with these arguments; its address.
        pub fn start_with(&mut self, words: &[&str]) -> String {
            let mut view = Command::new(super::everycall());
            view.args(["view", "--no-browser"]).args(words).stdout(std::process::Stdio::piped());
            let mut child = view.spawn().expect("everycall starts");
            let mut said = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
            self.0.push(child);
            let mut address = String::new();
            std::io::BufRead::read_line(&mut said, &mut address).expect("the address");
            address.trim().to_owned()
        }
    }

    impl Drop for Servers {
        fn drop(&mut self) {
            for server in &mut self.0 {
                let _ = server.kill();
                let _ = server.wait();
            }
        }
    }

    /// vizviewer and what drives the browser, in the target folder; again when the versions change.
    fn install(own: &Path, browser: &Path) {
        // Tests are processes of their own: one installs, the others wait.
        let lock = fs::File::create(browser.with_extension("lock")).expect("a file in the target folder");
        lock.lock().expect("a lock");
        let read = |name: &str| fs::read_to_string(own.join(name)).expect("a file of the page check");
        let versions = read("requirements.txt") + &read("package.json");
        let complete = browser.join(".complete");
        if fs::read_to_string(&complete).is_ok_and(|known| known == versions) {
            return;
        }
        let _ = fs::remove_dir_all(browser);
        fs::create_dir_all(browser).expect("a folder in the target folder");
        let venv = browser.join("venv");
        successful(Command::new("python3").args(["-m", "venv"]).arg(&venv));
        let mut pip = Command::new(venv.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
        successful(pip.arg(own.join("requirements.txt")));
        fs::copy(own.join("package.json"), browser.join("package.json"))
            .expect("a file in the target folder");
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"]);
        successful(npm.current_dir(browser));
        fs::write(complete, versions).expect("a file in the target folder");
    }

    /// Builds the viewer's page in the target folder; returns where its files are.
    pub fn built(page: &Path) -> PathBuf {
        let folder = target_folder().join("page");
        let tools = ["package.json", "package-lock.json"];
        let read = |folder: &Path, name: &str| fs::read(folder.join(name)).ok();
        let is_there = tools.iter().all(|name| read(&folder, name) == read(page, name));
        fs::create_dir_all(&folder).expect("a folder in the target folder");
        if !is_there {
            for name in tools {
                let _ = fs::remove_file(folder.join(name));
            }
            let installing = folder.join("installing");
            let _ = fs::remove_dir_all(&installing);
            fs::create_dir_all(&installing).expect("a folder in the target folder");
            let copy = |name: &str, into: &Path| {
                fs::copy(page.join(name), into.join(name)).expect("a copy");
            };
            tools.iter().for_each(|name| copy(name, &installing));
            let mut npm = Command::new("npm");
            npm.args(["ci", "--silent", "--no-audit", "--no-fund"]);
            successful(npm.current_dir(&installing));
            let _ = fs::remove_dir_all(folder.join("node_modules"));
            fs::rename(installing.join("node_modules"), folder.join("node_modules")).expect("a folder moves");
            tools.iter().for_each(|name| copy(name, &folder));
        }
        let _ = fs::remove_dir_all(folder.join("src"));
        successful(
            Command::new("cp")
                .arg("-r")
                .args(["build.mjs", "tsconfig.json", "src"].map(|name| page.join(name)))
                .arg(&folder),
        );
        let into = folder.join("built");
        successful(Command::new("node").args(["build.mjs", "--into", "built"]).current_dir(&folder));
        into
    }

    fn chromium() -> PathBuf {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        names.into_iter().find_map(found).expect(
            "chromium is needed to look at traces as a user does: install it, or set EVERYCALL_SKIP_BROWSER=1",
        )
    }
}

/// Hooks per function, as the linked file shows them.
mod hooks {
    use super::{BTreeMap, BTreeSet, Command, FunctionTable, Mode, Path, PathBuf, image, successful};

    /// Every function that the compiler emitted has an entry hook, and an exit hook at each of its
    /// returns.
    pub fn check(mode: Mode, program: &Path, objects: &[PathBuf]) -> String {
        let emitted = emitted_functions(objects);
        let image = image::Image::read_functions(program, mode.name, &|_| false);
        let table = FunctionTable::read(program);
        let mut hooks: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for place in &image.places {
            let Some(name) = table.at(place.address) else { continue };
            let counts = hooks.entry(name).or_default();
            *if place.is_exit { &mut counts.1 } else { &mut counts.0 } += 1;
        }
        let exits: BTreeSet<u64> =
            image.places.iter().filter(|place| place.is_exit).map(|place| place.address).collect();
        let returns = returns(program);
        let (mut complaints, mut count) = (Vec::new(), 0);
        for (start, end, name) in table.iter() {
            // The objects come first in the order of addresses, a static library's functions of the
            // same name behind.
            let (symbol, number) = name.split_once('#').unwrap_or((name, "1"));
            let number: usize = number.parse().expect("a number");
            let is_emitted = emitted.get(symbol).is_some_and(|count| number <= *count);
            if !is_emitted || is_left_out(mode, symbol) {
                continue;
            }
            count += 1;
            let (entries, exit_count) = hooks.get(name).copied().unwrap_or_default();
            if entries == 0 {
                complaints.push(format!("{name} has no entry hook"));
            }
            for at in returns.range(start..end) {
                // Behind its hook, or itself the place that becomes one; `__cyg_profile` hooks are
                // called earlier.
                let has_exit = match mode.name {
                    // Or the instruction that the site begins with while it is off.
                    "nops" => exits.contains(&(at - 5)) || exits.contains(at),
                    "fentry" => exits.contains(&(at - 5)),
                    "xray" => exits.contains(at),
                    _ => exit_count > 0,
                };
                if !has_exit {
                    complaints.push(format!("{name} returns at {at:#x} without an exit hook"));
                }
            }
        }
        assert!(count > 100, "{}: {count} functions", program.display());
        assert!(complaints.is_empty(), "{}:\n{}", program.display(), complaints.join("\n"));
        format!("{count} functions hooked")
    }

    /// Functions that compilers generate, without source to trace: thunks (they continue in their
    /// target), initialisers of files, clang's terminate handler, and parts split off a function
    /// that has its `__cyg_profile` hooks already.
    fn is_left_out(mode: Mode, name: &str) -> bool {
        image::is_thunk(name)
            || (mode.is_body() && name.contains(".part."))
            || name.starts_with("_GLOBAL__")
            || name.starts_with("__cxx_global_var_init")
            || name.starts_with("_Z41__static_initialization_and_destruction_0")
            || name == "__clang_call_terminate"
    }

    /// Functions that objects define, and how many of each name are linked.
    fn emitted_functions(objects: &[PathBuf]) -> BTreeMap<String, usize> {
        let listing = successful(Command::new("nm").arg("--defined-only").args(objects));
        let mut emitted: BTreeMap<String, usize> = BTreeMap::new();
        for line in listing.lines() {
            let mut fields = line.split_whitespace().skip(1);
            let (Some(kind), Some(name)) = (fields.next(), fields.next()) else { continue };
            let count = match kind {
                "t" => emitted.get(name).copied().unwrap_or_default() + 1,
                // Those of one name that several objects have are linked once.
                "T" | "w" | "W" => 1,
                _ => continue,
            };
            emitted.insert(name.to_owned(), count);
        }
        emitted
    }

    /// Addresses of all return instructions.
    fn returns(program: &Path) -> BTreeSet<u64> {
        let listing = successful(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(program));
        let address = |line: &str| {
            let (address, instruction) = line.split_once(':')?;
            let instruction = instruction.trim();
            let is_return = instruction == "ret" || instruction == "repz ret";
            is_return.then(|| u64::from_str_radix(address.trim(), 16).ok())?
        };
        listing.lines().filter_map(address).collect()
    }
}
