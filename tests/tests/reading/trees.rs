//! The library of expected trees: each program of `tests/trees` says in its head which calls have
//! to be seen, and every mode has to show exactly these.
//!
//! The head is a comment of `//` lines. `//| ` lines are the expected outline, see
//! [`everycall_tests::outline`]; `//gcc| ` and `//clang| ` are those of programs that do different
//! things by compiler (or mode). The others of these forms say how it comes about; whatever else
//! the comment says is for its readers.
//!
//! | line | meaning |
//! |---|---|
//! | `// flags: -pthread` | for the compiler |
//! | `// behind: -lm` | for the compiler, behind the program's name; where there are several of these lines, each is a case |
//! | `// levels: -O2 -O3` | of optimisation, instead of all of [`LEVELS`] |
//! | `// not in: gcc-finstrument` | modes that can't show it, by [`Mode::label`], or `untouched` |
//! | `// hidden: PARTS` | functions whose names hold one of these are left out, too |
//! | `// library: NAME` | another file of the folder, made into a shared object that the program is linked with |
//! | `// run: ARGUMENTS` | the program's arguments; the outline that follows is this run's |
//! | `// ends: signal 6` | how the run ends, instead of with status 0; or `status N` |
//!
//! A number that depends on the machine is written `*`.
//!
//! Functions of the standard library's templates are left out.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use everycall_tests::outline::outline;
use everycall_tests::{Mode, Place, found, is_full};

/// Functions that compilers add to each file.
const COMPILERS_OWN: [&str; 4] =
    ["frame_dummy", "register_tm_clones", "deregister_tm_clones", "__do_global_dtors_aux"];
const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];
/// Ways to link that change how the functions are found which leave frames.
const LINKS: [&[&str]; 8] = [
    &["-static"],
    &["-static-pie"],
    &["-no-pie", "-Wl,-z,now"],
    &["-flto"],
    &["-flto", "-static"],
    &["-Wl,--as-needed,--gc-sections", "-ffunction-sections", "-fno-plt"],
    &["-static-libstdc++", "-static-libgcc"],
    &["-fuse-ld=lld", "-Wl,--gc-sections"],
];
/// Links with LLVM's C++ library.
const LIBCXX: [&[&str]; 3] =
    [&["-stdlib=libc++"], &["-stdlib=libc++", "-static-libstdc++"], &["-stdlib=libc++", "-static"]];
/// The library that they need. It can't be installed beside another package (libunwind-dev).
const LIBCXX_ARCHIVE: &str = "/usr/lib/llvm-19/lib/libc++.a";
/// Trees may be deep.
const STACK: usize = 1 << 28;

#[derive(Debug, Default)]
struct Run {
    arguments: Vec<String>,
    /// Exit status and signal.
    ends: (Option<i32>, Option<i32>),
    outline: Vec<String>,
}

#[derive(Debug, Default)]
struct Expected {
    flags: Vec<String>,
    behind: Vec<Vec<String>>,
    levels: Vec<String>,
    not_in: Vec<String>,
    hidden: Vec<String>,
    library: Option<String>,
    runs: Vec<Run>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Whether a row's `gcc` or `clang-19-xray`, or nothing, names the mode.
fn is_in(name: &str, mode: Mode) -> bool {
    mode.label().starts_with(name)
}

impl Expected {
    fn of(path: &Path, mode: Mode) -> Expected {
        let text = std::fs::read_to_string(path).expect("a program of the library");
        let mut expected = Expected::default();
        let new_run = || Run { ends: (Some(0), None), ..Run::default() };
        for line in text.lines().take_while(|line| line.starts_with("//")) {
            if let Some((_, row)) = line
                .strip_prefix("//")
                .and_then(|line| line.split_once('|'))
                .filter(|(modes, _)| is_in(modes, mode))
            {
                if expected.runs.is_empty() {
                    expected.runs.push(new_run());
                }
                let run = expected.runs.last_mut().expect("there is one");
                run.outline.push(row.strip_prefix(' ').unwrap_or(row).to_owned());
            }
            let Some((key, value)) = line.strip_prefix("// ").and_then(|line| line.split_once(':')) else {
                continue;
            };
            match key {
                "flags" => expected.flags = words(value),
                "behind" => expected.behind.push(words(value)),
                "levels" => expected.levels = words(value),
                "not in" => expected.not_in = words(value),
                "hidden" => expected.hidden = words(value),
                "library" => expected.library = Some(value.trim().to_owned()),
                "run" => expected.runs.push(Run { arguments: words(value), ..new_run() }),
                "ends" => {
                    let ends = match words(value).as_slice() {
                        [how, number] if how == "signal" => (None, number.parse().ok()),
                        [how, number] if how == "status" => (number.parse().ok(), None),
                        other => panic!("{}: ends: {other:?}", path.display()),
                    };
                    expected.runs.last_mut().expect("`ends:` stands behind `run:`").ends = ends;
                }
                _ => {}
            }
        }
        assert!(!expected.runs.is_empty(), "{} expects nothing", path.display());
        if expected.behind.is_empty() {
            expected.behind.push(Vec::new());
        }
        if expected.levels.is_empty() {
            expected.levels = LEVELS.map(str::to_owned).to_vec();
        }
        expected
    }
}

/// One program in one mode at one level.
struct Case {
    source: PathBuf,
    mode: Mode,
    level: String,
    link: &'static [&'static str],
    behind: Vec<String>,
}

impl Case {
    fn name(&self) -> String {
        let stem = self.source.file_stem().expect("a name").to_string_lossy();
        let link: String = self.link.iter().map(|option| option.replace(['/', ','], "_")).collect();
        format!("{stem}-{}{}{link}{}", self.mode.label(), self.level, self.behind.concat())
    }

    /// The differences between expected and seen trees.
    fn differences(&self, place: &Place, expected: &Expected) -> Option<String> {
        let flags = || {
            let flags = expected.flags.iter().map(String::as_str);
            [self.level.as_str()].into_iter().chain(flags).chain(self.link.iter().copied())
        };
        let library = expected.library.as_ref().map(|library| {
            let source = self.source.with_file_name(library);
            let arguments: Vec<&str> = flags().chain(["-shared", "-fPIC"]).collect();
            let name = format!("lib{}.so", self.name());
            place.build(self.mode, &[&arguments[..], &[&source.to_string_lossy()]].concat(), &name)
        });
        let source = self.source.to_string_lossy().into_owned();
        let library = library.map(|path| path.to_string_lossy().into_owned());
        let mut arguments: Vec<&str> = flags().collect();
        arguments.push(&source);
        arguments.extend(library.as_deref());
        arguments.extend(self.behind.iter().map(String::as_str));
        let program = place.build(self.mode, &arguments, &self.name());
        let mut report = String::new();
        for run in &expected.runs {
            let words: Vec<&str> = run.arguments.iter().map(String::as_str).collect();
            let options: &[&str] = if self.mode.is_untouched() { &["--untouched", "--all"] } else { &[] };
            let options = [&["--ring-size", "16M"], options].concat();
            let recording = place.record(&options, &program, &words);
            let status = recording.output.status;
            // As a shell has it: `record` ends as the program did.
            let seen = (status.code(), status.signal());
            let rows = outline(&recording.file, |name| {
                ["?", "std::", "__gnu_cxx::", "operator new", "operator delete", "_fini", "_init"]
                    .iter()
                    .any(|hidden| name.starts_with(hidden) || name.contains(&format!(" {hidden}")))
                    || self.mode.is_untouched() && COMPILERS_OWN.contains(&name)
                    || expected.hidden.iter().any(|part| name.contains(part.as_str()))
            });
            let _ = std::fs::remove_file(&recording.file);
            let (expected, rows) = match self.mode.is_untouched() {
                true => common(&run.outline, &rows),
                false => (run.outline.clone(), rows),
            };
            if !agree(&expected, &rows) || seen != run.ends {
                let lines = compared(&expected, &rows);
                report += &format!("== {} {words:?}: {seen:?}\n{lines}", self.name());
                if seen != run.ends {
                    report += &String::from_utf8_lossy(&recording.output.stderr);
                }
            }
        }
        (!report.is_empty()).then_some(report)
    }
}

/// A line of an outline, and the lines inside it.
#[derive(Clone)]
struct Node {
    text: String,
    inside: Vec<Node>,
}

impl Node {
    /// Reads lines of this depth, with a node for each call.
    fn read(lines: &mut std::iter::Peekable<std::slice::Iter<'_, String>>, depth: usize) -> Vec<Node> {
        let mut nodes = Vec::new();
        let depth_of = |line: &str| (line.len() - line.trim_start().len()) / 2;
        while let Some(line) = lines.next_if(|line| depth_of(line) == depth) {
            let inside = Node::read(lines, depth + 1);
            let text = line.trim_start();
            let number = |mark: char| {
                text.rsplit_once(mark).and_then(|(text, number)| Some((text, number.parse::<usize>().ok()?)))
            };
            if let Some((text, times)) = number('×') {
                let node = Node { text: text.trim_end().to_owned(), inside };
                nodes.extend(std::iter::repeat_n(node, times));
            } else if let Some((text, deep)) = number('↓') {
                let text = text.trim_end();
                let inner = Node { text: text.to_owned(), inside };
                let around = |node, _| Node { text: text.to_owned(), inside: vec![node] };
                nodes.push((1..deep).fold(inner, around));
            } else {
                nodes.push(Node { text: text.to_owned(), inside });
            }
        }
        nodes
    }

    /// The function of a call; `None` for other lines.
    fn name(&self) -> Option<&str> {
        let is_other = self.text.starts_with(['*', '<', '-']);
        let name = self.text.trim_end_matches("=>").trim_end_matches(['!', '~', '?', '^']);
        (!is_other).then_some(name)
    }

    fn names(&self, all: &mut HashSet<String>) {
        all.extend(self.name().map(str::to_owned));
        self.inside.iter().for_each(|node| node.names(all));
    }

    /// Lines of calls of these functions, with their depth. What a function calls that is left out
    /// takes its place.
    fn write(&self, names: &HashSet<String>, depth: usize, lines: &mut Vec<String>) {
        let is_in = self.name().map_or(self.text == "--", |name| names.contains(name));
        if is_in {
            // Some are a hundred thousand calls deep.
            lines.push(format!("{depth:3} {}", self.text));
        }
        self.inside.iter().for_each(|node| node.write(names, depth + usize::from(is_in), lines));
    }
}

/// The calls of both outlines of functions that both have: in programs as they are, some can't get
/// hooks, and those get some, too, that a source tells the prefix to leave out. Throws and catches
/// are marked in libraries, too, and `throw;` isn't.
fn common(expected: &[String], seen: &[String]) -> (Vec<String>, Vec<String>) {
    let [expected, seen] = [expected, seen].map(|lines| Node::read(&mut lines.iter().peekable(), 0));
    let [in_expected, in_seen] = [&expected, &seen].map(|nodes| {
        let mut names = HashSet::new();
        nodes.iter().for_each(|node| node.names(&mut names));
        names
    });
    let both: HashSet<String> = in_expected.intersection(&in_seen).cloned().collect();
    let [expected, seen] = [&expected, &seen].map(|nodes| {
        let mut lines = Vec::new();
        nodes.iter().for_each(|node| node.write(&both, 0, &mut lines));
        lines
    });
    (expected, seen)
}

/// Whether they are the same, but for numbers behind `*`.
fn agree(expected: &[String], seen: &[String]) -> bool {
    expected.len() == seen.len() && expected.iter().zip(seen).all(|(left, right)| same(left, right))
}

fn same(expected: &str, seen: &str) -> bool {
    match expected.strip_suffix('*') {
        Some(start) => seen.strip_prefix(start).is_some_and(|rest| rest.parse::<u32>().is_ok()),
        None => expected == seen,
    }
}

/// Expected and seen lines, side by side.
fn compared(expected: &[String], seen: &[String]) -> String {
    let width = expected.iter().map(|line| line.chars().count()).max().unwrap_or(0).max(8);
    let rows = expected.len().max(seen.len());
    let row = |index: usize| {
        let [left, right] =
            [expected, seen].map(|lines| lines.get(index).map(String::as_str).unwrap_or_default());
        let mark = if same(left, right) { ' ' } else { '#' };
        format!("{mark} {left:width$} | {right}\n")
    };
    format!("  {:width$} | seen\n", "expected") + &(0..rows).map(row).collect::<String>()
}

fn programs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("trees");
    let mut programs: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the library")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            path.extension().is_some_and(|kind| kind == "c" || kind == "cpp") && !name.ends_with("_library")
        })
        .collect();
    programs.sort();
    programs
}

/// `EVERYCALL_TREES` names a part of the cases' names; `EVERYCALL_FULL` takes all levels and, for
/// each program, all modes.
#[test]
fn every_program_shows_its_tree_in_every_mode() {
    let place = Place::new("trees");
    let all_levels = is_full();
    let wanted = std::env::var("EVERYCALL_TREES").unwrap_or_default();
    let mut cases = Vec::new();
    for (number, source) in programs().into_iter().enumerate() {
        for (index, mode) in Mode::all().into_iter().enumerate() {
            // Who asks for a mode gets it.
            if wanted.is_empty() && !Mode::in_turn(number).any(|tried| tried == mode) {
                continue;
            }
            let expected = Expected::of(&source, mode);
            if expected.not_in.contains(&mode.label()) {
                continue;
            }
            // Else one level, another one for each.
            let one = (number + index) % expected.levels.len();
            for (place, level) in expected.levels.iter().enumerate() {
                if all_levels || place == one || wanted.contains("-O") {
                    cases.extend(expected.behind.iter().cloned().map(|behind| {
                        let (source, level) = (source.clone(), level.clone());
                        Case { source, mode, level, link: &[], behind }
                    }));
                }
            }
        }
    }
    all_agree(&place, cases);
}

/// By an emulator: programs that are left by exceptions, jumps, signals and the ends of threads.
/// `cargo xtask test --target aarch64` takes more.
#[test]
fn programs_of_64_bit_arm_show_the_same_trees() {
    let has_runtime = everycall_kit::FILES.iter().any(|(name, _)| *name == "aarch64/everycall-rt.o");
    if !has_runtime || found("qemu-aarch64").is_none() {
        println!("skipped: no runtime for 64-bit Arm was built here, or there is no qemu-aarch64");
        return;
    }
    let place = Place::new("trees-arm");
    let mut cases = Vec::new();
    for (number, name) in
        ["exceptions.cpp", "forced.cpp", "jumps.c", "signals.c", "handlers_left.c"].into_iter().enumerate()
    {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("trees").join(name);
        for (index, mode) in [Mode::ARM_NOPS, Mode::ARM_FINSTRUMENT].into_iter().enumerate() {
            let expected = Expected::of(&source, mode);
            let level = expected.levels[(number + index) % expected.levels.len()].clone();
            cases.push(Case { source: source.clone(), mode, level, link: &[], behind: Vec::new() });
        }
    }
    all_agree(&place, cases);
}

/// Built without the prefix: one level by one compiler of each, `EVERYCALL_FULL` takes all.
#[test]
fn programs_as_they_are_show_the_same_trees() {
    let place = Place::new("trees-untouched");
    let mut cases = Vec::new();
    for (number, source) in programs().into_iter().enumerate() {
        for (index, mode) in [Mode::GCC_UNTOUCHED, Mode::CLANG19_UNTOUCHED].into_iter().enumerate() {
            let expected = Expected::of(&source, mode);
            let is_in_turn = is_full() || number % 2 == index;
            let is_left_out = expected.not_in.iter().any(|name| *name == mode.label() || name == mode.name);
            if is_left_out || !is_in_turn {
                continue;
            }
            let one = (number + index) % expected.levels.len();
            for (place, level) in expected.levels.iter().enumerate() {
                if is_full() || place == one {
                    cases.extend(expected.behind.iter().cloned().map(|behind| {
                        let (source, level) = (source.clone(), level.clone());
                        Case { source, mode, level, link: &[], behind }
                    }));
                }
            }
        }
    }
    all_agree(&place, cases);
}

#[test]
fn the_same_however_the_program_is_linked() {
    let place = Place::new("links");
    let mut cases = Vec::new();
    for name in ["cleanups.c", "exceptions.cpp", "forced.cpp", "jumps.c"] {
        for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
            for (number, link) in LINKS.into_iter().enumerate() {
                // Without `EVERYCALL_FULL`, the two take turns.
                if !is_full() && number % 2 == usize::from(mode == Mode::GCC_NOPS) {
                    continue;
                }
                // lld is clang's, and with it C's cleanups aren't wrapped.
                let is_others =
                    link.contains(&"-fuse-ld=lld") && (mode == Mode::GCC_NOPS || name == "cleanups.c");
                // Two copies of the unwinder: that ends programs whose threads are cancelled, also
                // without us.
                let ends = link.contains(&"-static-libstdc++") && name != "exceptions.cpp";
                if is_others || ends {
                    continue;
                }
                let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("trees").join(name);
                // The prefix refuses this pair.
                let is_refused = mode.name == "xray" && link.contains(&"-flto");
                let mode = if is_refused { Mode::CLANG19_AFTER_INLINING } else { mode };
                cases.push(Case { source, mode, level: "-O2".to_owned(), link, behind: Vec::new() });
            }
        }
    }
    all_agree(&place, cases);
}

#[test]
fn the_same_with_llvms_library() {
    if !Path::new(LIBCXX_ARCHIVE).exists() {
        println!("skipped: {LIBCXX_ARCHIVE} isn't there (Debian: libc++-19-dev)");
        return;
    }
    let place = Place::new("libcxx");
    let mut cases = Vec::new();
    for name in ["exceptions.cpp", "exceptions_end.cpp", "exceptions_shared.cpp", "fibers.cpp"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("trees").join(name);
        for mode in [Mode::CLANG19_XRAY, Mode::CLANG19_FINSTRUMENT, Mode::CLANG19_AFTER_INLINING] {
            for link in LIBCXX {
                // A library that throws, and one more copy of what catches: not even without us.
                if link.len() == 1 || !name.contains("shared") {
                    let (source, level) = (source.clone(), "-O2".to_owned());
                    cases.push(Case { source, mode, level, link, behind: Vec::new() });
                }
            }
        }
    }
    all_agree(&place, cases);
}

/// Runs the cases whose names are wanted, on all CPUs.
fn all_agree(place: &Place, mut cases: Vec<Case>) {
    let wanted = std::env::var("EVERYCALL_TREES").unwrap_or_default();
    cases.retain(|case| case.name().contains(&wanted));
    let (next, reports) = (Mutex::new(cases.iter()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let Some(case) = next.lock().expect("nobody panics with it").next() else { break };
            let report = case.differences(place, &Expected::of(&case.source, case.mode));
            reports.lock().expect("nobody panics with it").extend(report);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..threads {
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).expect("a thread");
        }
    });
    let mut reports = reports.into_inner().expect("nobody panics with it");
    reports.sort();
    assert!(reports.is_empty(), "{} of {} cases differ:\n{}", reports.len(), cases.len(), reports.concat());
}
