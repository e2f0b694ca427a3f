//! `everycall count`: every call is counted once, as the program itself counts them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use everycall_reader::{Source as _, TraceFile};
use everycall_tests::{Mode, Place, Standing, everycall, successful};
use serde_json::Value;

mod memory;

mod viewed;

/// Calls by function.
type Calls = BTreeMap<String, u64>;

struct Counted {
    place: Place,
    program: PathBuf,
    library: PathBuf,
}

impl Counted {
    fn built(name: &str, mode: Mode) -> Counted {
        let place = Place::new(&format!("{name}-{}", mode.label()));
        let library =
            place.build(mode, &["-O2", "-shared", "-fPIC", "counted_library.cpp"], "counted_library.so");
        let program = place.build(mode, &["-O1", "counted.cpp", "-pthread", "-ldl"], "counted");
        Counted { place, program, library }
    }

    fn counting(&self, options: &[&str], arguments: &[&str]) -> Output {
        let mut command = self.place.command(everycall());
        command.arg("count").args(options).arg("--").arg(&self.program).arg(&self.library).args(arguments);
        command.output().expect("it starts")
    }

    fn report(&self, arguments: &[&str]) -> Calls {
        table(&successful(self.place.command(everycall()).args(arguments)))
    }

    fn standing(&self) -> Standing {
        self.standing_with("calls")
    }

    fn standing_with(&self, what: &str) -> Standing {
        let mut command = self.place.command(&self.program);
        command.env("EVERYCALL_COUNT", what).arg(&self.library).arg("wait");
        Standing::start(&mut command)
    }
}

/// Functions that don't count themselves: not every compiler leaves them out.
const UNCOUNTED: [&str; 4] = ["main", "_ZL11before_mainv", "_ZL3usePKc", "count_of_library"];

/// Calls of each row of a table in JSON.
fn table(text: &str) -> Calls {
    column(text, "calls")
}

/// A number of each row of a table in JSON.
fn column(text: &str, name: &str) -> Calls {
    let table: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let rows = table["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        let symbols = row["symbols"].as_array().expect("symbols");
        (symbols[0].as_str().expect("a name").to_owned(), row[name].as_u64().expect("calls"))
    })
    .filter(|(name, _)| !UNCOUNTED.contains(&name.as_str()))
    .collect()
}

/// The lines in which the program says what it has counted.
fn own(printed: &str) -> Calls {
    let pair = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    printed.lines().filter_map(pair).collect()
}

/// Has gdb's command write a trace of a process or core.
fn snapshot_in_gdb(place: &Place, of: &[&str], output: &str) {
    let script = successful(place.command(everycall()).arg("gdb-script"));
    let script = place.write("everycall.py", &script);
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex", &format!("source {}", script.display()), "-ex"]);
    let output = place.file(output);
    successful(gdb.arg(format!("everycall snapshot {}", output.display())).args(of));
    assert!(output.exists(), "{output:?}");
}

/// All but JSON behind the program's own output.
fn split(output: &Output) -> (String, String) {
    let text = String::from_utf8_lossy(&output.stdout);
    let at = text.find("\n{").map_or(text.len(), |at| at + 1);
    (text[..at].to_owned(), text[at..].to_owned())
}

#[test]
fn counts_are_the_programs_own_in_every_mode() {
    for mode in Mode::in_turn(1) {
        let counted = Counted::built("counts", mode);
        // Whether or not the calls are timed.
        let output = counted.counting(&["--time", "-f", "json"], &[]);
        assert_eq!(output.status.code(), Some(7), "{mode:?}: {output:?}");
        let (printed, json) = split(&output);
        assert_eq!(table(&json), own(&printed), "{mode:?}");

        let output = counted.counting(&["-f", "json", "-o", "counts.ect"], &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{mode:?}: {said}");
        let (printed, json) = split(&output);
        let expected = own(&printed);
        assert!(expected["handler"] > 0 && expected["throws"] == 180_000, "{expected:?}");
        assert_eq!(table(&json), expected, "{mode:?}");
        assert!(said.is_empty(), "{said}");
        assert_eq!(counted.report(&["report", "-f", "json", "counts.ect"]), expected, "{mode:?}");
        // Two runs together.
        successful(counted.place.command(everycall()).args([
            "merge",
            "-o",
            "merged",
            "counts.ect",
            "counts.ect",
        ]));
        let twice: Calls = expected.iter().map(|(name, calls)| (name.clone(), 2 * calls)).collect();
        assert_eq!(counted.report(&["report", "-f", "json", "merged"]), twice, "{mode:?}");
    }
}

#[test]
fn by_thread_and_process_they_add_up() {
    let counted = Counted::built("counts-by", Mode::GCC_NOPS);
    let (printed, _) = split(&counted.counting(&["-o", "counts.ect"], &[]));
    let all: u64 = own(&printed).values().sum();
    for by in ["thread", "process", "module"] {
        let arguments = ["report", "-f", "json", "--by", by, "counts.ect"];
        let table = successful(counted.place.command(everycall()).args(arguments));
        let table: Value = serde_json::from_str(&table).expect("JSON");
        let rows = table["rows"].as_array().expect("rows");
        let least = if by == "thread" { 5 } else { 2 };
        assert!(rows.len() >= least, "{by}: {table:#}");
        assert_eq!(rows.iter().map(|row| row["calls"].as_u64().expect("calls")).sum::<u64>(), all, "{by}");
    }
    // Times aren't known, and nothing is said of them.
    let shown = successful(counted.place.command(everycall()).args(["report", "counts.ect"]));
    let heading = shown.lines().next().expect("a heading");
    assert_eq!(heading.split_whitespace().collect::<Vec<_>>(), ["calls", "function"], "{shown}");
}

#[test]
fn killed_and_in_a_core_dump_they_are_there() {
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT] {
        let counted = Counted::built("counts-killed", mode);
        let output = counted.counting(&["-o", "counts.ect"], &["kill"]);
        let expected = own(&split(&output).0);
        assert_eq!(expected["late"], 1, "{output:?}");
        assert_eq!(counted.report(&["report", "-f", "json", "counts.ect"]), expected, "{mode:?}");

        let output = counted.counting(&["--time", "-o", "times.ect"], &["kill"]);
        let expected = own(&split(&output).0);
        assert_eq!(counted.report(&["report", "-f", "json", "times.ect"]), expected, "{mode:?}");
    }
    for (mode, what) in
        [(Mode::GCC_NOPS, "calls"), (Mode::GCC_FINSTRUMENT, "calls"), (Mode::GCC_NOPS, "time")]
    {
        let counted = Counted::built("counts-dumped", mode);
        let standing = counted.standing_with(what);
        snapshot_in_gdb(&counted.place, &["-p", &standing.pid.to_string()], "gdb.ect");
        let core = counted.place.file("core");
        let mut gdb = Command::new("gdb");
        gdb.args(["-p", &standing.pid.to_string(), "-batch", "-ex"]);
        successful(gdb.arg(format!("gcore {}", core.display())));
        successful(counted.place.command(everycall()).args(["core", "-o", "core.ect"]).arg(&core));
        let in_core = ["-c", core.to_str().expect("text"), counted.program.to_str().expect("text")];
        snapshot_in_gdb(&counted.place, &in_core, "gdb-core.ect");
        let mut expected = own(&standing.end().1);
        expected.remove("late");
        // The child had counts of its own.
        let in_core = counted.report(&["report", "-f", "json", "core.ect"]);
        let shown = successful(counted.place.command(everycall()).args(["report", "core.ect"]));
        assert_eq!(shown.lines().next().expect("a heading").contains("total"), what == "time", "{shown}");
        expected.remove("in_child");
        *expected.get_mut("leaf").expect("it was called") -= 1000;
        assert_eq!(in_core, expected, "{mode:?}");
        for trace in ["gdb.ect", "gdb-core.ect"] {
            assert_eq!(counted.report(&["report", "-f", "json", trace]), expected, "{mode:?} {trace}");
        }
    }
}

#[test]
fn running_processes_are_read_while_they_go_on() {
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY] {
        let counted = Counted::built("counts-live", mode);
        let standing = counted.standing();
        let pid = standing.pid.to_string();
        let first = counted.report(&["count", "-f", "json", &pid]);
        assert_eq!(first["in_thread"], 9, "{mode:?}: {first:?}");
        assert!(!first.contains_key("late"), "{first:?}");
        // Off and on again: what it does meanwhile isn't counted, and nothing else changes.
        successful(counted.place.command(everycall()).args(["disable", &pid, "leaf"]));
        assert_eq!(counted.report(&["count", "-f", "json", &pid]), first, "{mode:?}");
        successful(counted.place.command(everycall()).args(["enable", &pid]));
        let (status, printed) = standing.end();
        assert_eq!(status.code(), Some(7), "{printed}");
        let snapshot = counted.place.file("none.ect");
        assert!(!snapshot.exists());
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let counted = Counted::built("counts-refused", Mode::GCC_NOPS);
    let place = &counted.place;
    let refused = |arguments: &[&str]| {
        let output = place.command(everycall()).args(arguments).output().expect("it starts");
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["count", "./counted"]).contains("everycall count -- ./counted"));
    assert!(refused(&["count", "--by", "path", "--", "./counted"]).contains("no paths"));
    assert!(refused(&["count", "1"]).contains("process 1"));
    assert!(refused(&["count", "--every", "1s", "--", "./counted"]).contains("everycall count PID --every"));
    assert!(refused(&["count", "--not", "*nothing_like_it*", "--", "./counted"]).contains("matches"));
    // One that records has no times of all calls.
    let mut command = place.command(&counted.program);
    let standing = Standing::start(command.arg(&counted.library).arg("wait"));
    let said = refused(&["count", "--time", &standing.pid.to_string()]);
    assert!(said.contains("EVERYCALL_COUNT=time"), "{said}");
    let _ = standing.end();
    // Verbs that need recorded calls say that there are none.
    let standing = counted.standing();
    let pid = &standing.pid.to_string();
    for verb in [
        &["trace", "-o", "none.ect", "--for", "1s", pid, "leaf"][..],
        &["trigger", "-o", "none.ect", pid, "leaf > 1ms"],
        &["follow", pid, "leaf"],
    ] {
        let said = refused(verb);
        assert!(said.contains("everycall count") && !place.file("none.ect").exists(), "{verb:?}: {said}");
    }
    let _ = standing.end();
    // A variable with an invalid value causes a message, and has no effect.
    let mut command = place.command(&counted.program);
    let output = command.env("EVERYCALL_COUNT", "times").arg(&counted.library).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(7) && said.contains("EVERYCALL_COUNT=times"), "{said}");
}

/// Rows of a table in JSON, by their names.
fn rows(text: &str) -> BTreeMap<String, Value> {
    let table: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let rows = table["rows"].as_array().expect("rows").iter();
    rows.map(|row| (row["symbols"][0].as_str().expect("a name").to_owned(), row.clone())).collect()
}

fn number(rows: &BTreeMap<String, Value>, function: &str, name: &str) -> u64 {
    rows[function][name].as_u64().unwrap_or_else(|| panic!("{name} of {function}: {rows:#?}"))
}

/// Compares times with those that the program has measured. Both have clocks of their own.
fn compare_times(printed: &str, rows: &BTreeMap<String, Value>, what: &str) {
    let mut compared = 0;
    for line in printed.lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        let [function, calls, inside, outside] = parts[..] else { continue };
        let [calls, inside, outside] =
            [calls, inside, outside].map(|part| part.parse::<u64>().expect("a number"));
        assert_eq!(number(rows, function, "calls"), calls, "{what}: {line}");
        assert_eq!(number(rows, function, "timed_calls"), calls, "{what}: {line}");
        let total = number(rows, function, "total_ns");
        assert!(total >= inside - inside / 50, "{what}: {line}: {total}");
        // Some calls have only been timed from within.
        let is_around = !["spins"].contains(&function);
        assert!(!is_around || total <= outside + outside / 50, "{what}: {line}: {total}");
        compared += 1;
    }
    assert_eq!(compared, 8, "{printed}");
    // The times of callees aren't in own times, except those of calls of the function itself.
    let own = |function: &str| number(rows, function, "own_ns");
    let total = |function: &str| number(rows, function, "total_ns");
    assert_eq!(own("recursive"), total("recursive"), "{what}");
    assert!(own("interrupted") + total("handler") <= total("interrupted") + 2, "{what}: {rows:#?}");
    assert!(own("calls_spins") + total("spins") <= total("calls_spins") + 2, "{what}: {rows:#?}");
    assert!(total("catches") <= own("catches") + total("throws") + 2, "{what}: {rows:#?}");
    assert!(number(rows, "spins", "min_ns") >= 1_960, "{what}: {rows:#?}");
    let [middle, most] = ["p50_ns", "max_ns"].map(|name| number(rows, "spins", name));
    // Half of the calls took 2 us and hardly more, on whatever machine: 1 to 4 us is their bucket.
    assert!(most >= middle && middle >= 1_000, "{what}: {rows:#?}");
}

#[test]
fn times_are_the_programs_own_in_every_mode() {
    for mode in Mode::in_turn(0) {
        let place = Place::new(&format!("timed-{}", mode.label()));
        let program = place.build(mode, &["-O1", "timed.cpp", "-pthread"], "timed");
        let mut command = place.command(everycall());
        command.args(["count", "--time", "-f", "json", "-o", "times.ect", "--"]).arg(&program);
        let (printed, json) = split(&command.output().expect("it starts"));
        compare_times(&printed, &rows(&json), &format!("{mode:?}"));
        let again = successful(place.command(everycall()).args(["report", "-f", "json", "times.ect"]));
        assert_eq!(rows(&again), rows(&json), "{mode:?}");
        // Everything ended but the program itself: its own times are all the time that it took.
        let by_thread = ["report", "-f", "json", "--by", "thread", "times.ect"];
        let table: Value =
            serde_json::from_str(&successful(place.command(everycall()).args(by_thread))).expect("JSON");
        let of_rows = |rows: &mut dyn Iterator<Item = &Value>| {
            rows.map(|row| row["own_ns"].as_u64().expect("a time")).sum::<u64>()
        };
        let threads = of_rows(&mut table["rows"].as_array().expect("rows").iter());
        let functions = of_rows(&mut rows(&json).values());
        assert!(threads.abs_diff(functions) < 1_000, "{mode:?}: {threads} {functions}");
        // Two runs together, and one compared with itself.
        successful(place.command(everycall()).args(["merge", "-o", "twice", "times.ect", "times.ect"]));
        let twice = successful(place.command(everycall()).args(["report", "-f", "json", "twice"]));
        let total = |text: &str| number(&rows(text), "spins", "total_ns");
        assert_eq!(total(&twice), 2 * total(&json), "{mode:?}");
        successful(place.command(everycall()).args(["report", "--diff", "times.ect", "times.ect"]));
    }
}

/// Hooks add to a bucket that they foresee, so buckets come in runs, in neighbours and at random.
#[test]
fn each_call_is_in_the_bucket_of_its_time() {
    for mode in Mode::in_turn(0) {
        let place = Place::new(&format!("buckets-{}", mode.label()));
        let program = place.build(mode, &["-O1", "buckets.c"], "buckets");
        let mut command = place.command(everycall());
        command.args(["count", "--time", "-f", "json", "-o", "times.ect", "--"]).arg(&program);
        let (printed, _) = split(&command.output().expect("it starts"));
        let trace = TraceFile::open(File::open(place.file("times.ect")).expect("a file")).expect("a trace");
        let spins =
            trace.recording().counts[0].functions.iter().max_by_key(|calls| calls.calls).expect("counts");
        assert_eq!(spins.calls, 12_000, "{mode:?}");
        let mut histogram = spins.times.as_ref().expect("times").histogram;
        let mut compared = 0;
        for line in printed.lines() {
            let parts: Vec<u64> = line.split(' ').filter_map(|part| part.parse().ok()).collect();
            let [power, least, most] = parts[..] else { continue };
            let found = std::mem::take(&mut histogram[power as usize]);
            assert!((least..=most).contains(&found), "{mode:?}: {line}: {found}");
            compared += found;
        }
        assert_eq!((compared, histogram.iter().sum()), (12_000, 0), "{mode:?}");
    }
}

/// While it runs, in its crash file, and since the last reading.
#[test]
fn times_are_read_while_the_program_runs_and_when_it_is_killed() {
    let place = Place::new("timed-live");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "timed.cpp", "-pthread"], "timed");
    let crashes = place.file("crashes");
    std::fs::create_dir(&crashes).expect("a folder");
    let mut command = place.command(&program);
    command.env("EVERYCALL_COUNT", "time").env("EVERYCALL_CRASH", &crashes).arg("wait");
    let standing = Standing::start(&mut command);
    let pid = standing.pid.to_string();
    let read = || rows(&successful(place.command(everycall()).args(["count", "--time", "-f", "json", &pid])));
    let live = read();
    assert_eq!(number(&live, "calls_spins", "calls"), 300);
    assert!(number(&live, "recursive", "total_ns") >= 300_000, "{live:#?}");
    // It is still open.
    assert_eq!((number(&live, "main", "calls"), number(&live, "main", "timed_calls")), (1, 0));
    // Only the clock's rate may be known better later.
    let same = |other: &BTreeMap<String, Value>| {
        assert!(live.keys().eq(other.keys()), "{other:#?}");
        for function in live.keys() {
            let [calls, total] = ["calls", "total_ns"].map(|name| number(&live, function, name));
            let [its_calls, its_total] = ["calls", "total_ns"].map(|name| number(other, function, name));
            assert_eq!(its_calls, calls, "{function}");
            assert!(its_total.abs_diff(total) <= total / 50 + 10, "{function}: {its_total} {total}");
        }
    };
    same(&read());
    // Off and on again.
    successful(place.command(everycall()).args(["disable", &pid]));
    successful(place.command(everycall()).args(["enable", &pid]));
    same(&read());
    successful(Command::new("kill").args(["-9", &pid]));
    drop(standing);
    let file = std::fs::read_dir(&crashes).expect("a folder").next().expect("a file").expect("a file").path();
    successful(place.command(everycall()).args(["core", "-q", "-o", "crash.ect"]).arg(file));
    let in_file = rows(&successful(place.command(everycall()).args(["report", "-f", "json", "crash.ect"])));
    same(&in_file);
}

/// The numbers of all calls in a trace, whose rings have the newest ones only.
fn all_calls(counted: &Counted, trace: &str) -> Calls {
    let table = successful(counted.place.command(everycall()).args(["report", "-f", "json", trace]));
    let (all, kept) = (column(&table, "all_calls"), column(&table, "calls"));
    assert!(all["leaf"] > kept["leaf"] && kept.values().sum::<u64>() > 0, "{trace}: {table}");
    all
}

#[test]
fn recorded_calls_are_counted_beside_the_ring_in_every_mode() {
    for mode in Mode::in_turn(1) {
        let counted = Counted::built("counts-beside", mode);
        let record = |options: &[&str], how: &[&str]| {
            let mut command = counted.place.command(everycall());
            command.args(["record", "-q", "-o", "beside.ect"]).args(options);
            command.arg("--").arg(&counted.program).arg(&counted.library).args(how);
            let output = command.output().expect("it starts");
            own(&String::from_utf8_lossy(&output.stdout))
        };
        // The handlers, exceptions, threads and children of this program are in its rings in part.
        let printed = record(&["--ring-size", "64K"], &[]);
        assert!(printed["handler"] > 0 && printed["throws"] == 180_000, "{printed:?}");
        assert_eq!(all_calls(&counted, "beside.ect"), printed, "{mode:?}");
        let printed = record(&["--ring-size", "64K"], &["kill"]);
        assert_eq!(printed["late"], 1, "{printed:?}");
        assert_eq!(all_calls(&counted, "beside.ect"), printed, "{mode:?} killed");
        // Those that are dropped are among all calls.
        let printed = record(&["--ring-size", "64K", "--min-duration", "1us"], &[]);
        assert_eq!(all_calls(&counted, "beside.ect"), printed, "{mode:?} dropped");
        let dropped = counted.place.command(everycall()).args(["info", "-f", "json", "beside.ect"]).output();
        let dropped = String::from_utf8(dropped.expect("it starts").stdout).expect("text");
        assert!(dropped.contains("dropped"), "{dropped}");
        let info: Value = serde_json::from_str(&dropped).expect("JSON");
        let table =
            successful(counted.place.command(everycall()).args(["report", "-f", "json", "beside.ect"]));
        let table: Value = serde_json::from_str(&table).expect("JSON");
        let rows = table["rows"].as_array().expect("rows").iter();
        let all: u64 = rows.filter_map(|row| row["all_calls"].as_u64()).sum();
        assert!(info["all_calls"] == all && all >= printed.values().sum(), "{mode:?}: {all} {info}");
        if matches!(mode, Mode::GCC_NOPS | Mode::GCC_FINSTRUMENT) {
            let printed = record(&["--stream"], &[]);
            let table = ["report", "-f", "json", "beside.ect"];
            let table = successful(counted.place.command(everycall()).args(table));
            assert_eq!(column(&table, "all_calls"), printed, "{mode:?}");
            assert_eq!(column(&table, "calls"), printed, "{mode:?}");
        }
    }
}

#[test]
fn processes_that_record_are_counted_while_they_run() {
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY] {
        let counted = Counted::built("counts-recording", mode);
        let place = &counted.place;
        let mut command = place.command(&counted.program);
        command.env("EVERYCALL_RING_SIZE", "64K").arg(&counted.library).arg("wait");
        let standing = Standing::start(&mut command);
        let pid = standing.pid.to_string();
        let first = counted.report(&["count", "-f", "json", &pid]);
        assert_eq!(first["in_thread"], 9, "{mode:?}: {first:?}");
        assert_eq!(counted.report(&["count", "-f", "json", &pid]), first, "nothing was called since");
        // A snapshot and a core have them, too.
        successful(place.command(everycall()).args(["snapshot", "-q", "-o", "now.ect", &pid]));
        assert_eq!(all_calls(&counted, "now.ect"), first, "{mode:?}");
        snapshot_in_gdb(place, &["-p", &pid], "gdb.ect");
        assert_eq!(all_calls(&counted, "gdb.ect"), first, "{mode:?} in gdb");
        let core = place.file("core");
        let mut gdb = Command::new("gdb");
        gdb.args(["-p", &pid, "-batch", "-ex"]);
        successful(gdb.arg(format!("gcore {}", core.display())));
        successful(place.command(everycall()).args(["core", "-q", "-o", "core.ect"]).arg(&core));
        assert_eq!(all_calls(&counted, "core.ect"), first, "{mode:?}");
        let mut expected = own(&standing.end().1);
        // The child had counts of its own.
        expected.remove("in_child");
        *expected.get_mut("leaf").expect("it was called") -= 1000;
        expected.remove("late");
        assert_eq!(first, expected, "{mode:?}");
    }
}

#[test]
fn sessions_have_counts_of_their_own() {
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY] {
        let place = Place::new(&format!("counts-sessions-{}", mode.label()));
        let program = place.build(mode, &["-O1", "beating.c", "-pthread"], "beating");
        let mut standing = Standing::start(place.command(&program).env("EVERYCALL_RING_SIZE", "64K"));
        let pid = standing.pid.to_string();
        let begin = |output: &str, more: &[&str], pattern: &str| {
            let mut command = place.command(everycall());
            command.args(["trace", "--for", "100s", "-q", "-o", output, &pid, pattern]).args(more);
            command.spawn().expect("it starts")
        };
        let listed = || successful(place.command(everycall()).args(["sessions", &pid]));
        let sessions = [
            begin("work.ect", &["--counts"], "work"),
            begin("beat.ect", &["--counts", "--thread", "beating"], "beat"),
            begin("elsewhere.ect", &["--counts", "--thread", "1"], "work"),
            begin("events.ect", &[], "work"),
        ];
        everycall_tests::wait::until("the sessions", || {
            let listed = listed();
            // One that is staged has listed itself, and begins a moment later.
            listed.matches("work").count() >= 3 && listed.contains("beat") && !listed.contains("staged")
        });
        standing.go_on();
        let (_, printed) = standing.end();
        for mut session in sessions {
            assert!(session.wait().expect("it ends").success());
        }
        let (own, work) = (own(&printed), 102_000);
        assert_eq!(own["work"], work + 1000);
        let report = |trace: &str, name: &str| {
            let table = successful(place.command(everycall()).args(["report", "-f", "json", trace]));
            column(&table, name)
        };
        let worked = Calls::from([("work".to_owned(), work)]);
        assert_eq!(report("work.ect", "calls"), worked, "{mode:?}");
        assert_eq!(report("elsewhere.ect", "calls"), Calls::new(), "{mode:?}");
        let beats = report("beat.ect", "calls");
        assert!(beats.len() == 1 && (1..=own["beat"]).contains(&beats["beat"]), "{mode:?}: {beats:?}");
        // The rings have the newest ones only.
        assert_eq!(report("events.ect", "all_calls"), worked, "{mode:?}");
        assert!(report("events.ect", "calls")["work"] < work, "{mode:?}");
    }
}

#[test]
fn selections_are_counted_alone() {
    for mode in Mode::in_turn(0) {
        let counted = Counted::built("counts-only", mode);
        for time in [&[][..], &["--time"]] {
            let options = [&["-f", "json", "--only", "recursive", "--only", "leaf"], time].concat();
            let output = counted.counting(&options, &[]);
            let (printed, json) = split(&output);
            let mut expected = own(&printed);
            expected.retain(|name, _| ["recursive", "leaf"].contains(&name.as_str()));
            assert_eq!(table(&json), expected, "{mode:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        assert!(Path::new(&counted.program).exists());
    }
}
