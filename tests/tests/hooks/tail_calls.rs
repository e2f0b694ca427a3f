//! `record --trigger` on calls that end in tail calls: by the program's own clock, none that took
//! too long is missing, and every call kept in excess is marked as an upper limit.

use std::fs::File;
use std::path::Path;

use everycall_reader::{KeptCall, Source, TraceFile};
use everycall_tests::slow::{KEEP_ALL, OwnCall};
use everycall_tests::{Mode, Place, TraceView, everycall, is_full};

/// A call of `tails.cpp`.
struct Own {
    tid: u32,
    call: OwnCall,
    name: String,
}

impl Own {
    /// The functions that it calls, one by the other, of those that the trigger names.
    fn names(&self) -> &[&str] {
        match &*self.name {
            "handle_long_chain" => &["handle_long_chain", "handle_chain", "handle_traced"],
            "handle_chain" => &["handle_chain", "handle_traced"],
            "handle_itself" => &["handle_itself"],
            _ => &[],
        }
    }
}

struct Kept {
    call: KeptCall,
    name: String,
}

impl Kept {
    fn is_at_most(&self) -> bool {
        self.call.tail.is_some_and(|tail| tail.is_at_most)
    }

    fn is(&self, own: &Own) -> bool {
        own.tid == self.call.tid && own.name == self.name && own.call.is(&self.call)
    }

    /// Whether it is one of those that this call made.
    fn is_within(&self, own: &Own) -> bool {
        let (kept, call) = (&self.call, &own.call);
        own.tid == kept.tid
            && own.names().contains(&&*self.name)
            && (call.begin..=call.end).contains(&kept.start_ticks)
            && (self.is_at_most() || kept.end_ticks <= call.end)
    }
}

fn own_calls(printed: &str) -> (u64, Vec<Own>) {
    let mut lines = printed.lines();
    let rate = lines.next().and_then(|line| line.strip_prefix("rate ")).expect("a rate");
    let calls = lines.map(|line| {
        let (tid, rest) = line.split_once(' ').expect("a thread's id");
        let (call, name) = rest.rsplit_once(' ').expect("a name");
        Own { tid: tid.parse().expect("a thread's id"), call: OwnCall::of(call), name: name.to_owned() }
    });
    (rate.parse().expect("a rate"), calls.collect())
}

/// Calls that met the condition and couldn't be kept, because the machine was too busy; and those
/// that were kept.
fn kept(file: &Path) -> (u64, Vec<Kept>) {
    let trace = TraceFile::open(File::open(file).unwrap()).unwrap();
    let recording = trace.recording();
    assert_eq!(recording.warnings, []);
    let [trigger] = &recording.triggers[..] else { panic!("{:?}", recording.triggers) };
    assert_eq!(trigger.kept, recording.kept.len() as u64);
    let names = TraceView::kept_functions(file);
    let kept = recording.kept.iter().cloned().zip(names).map(|(call, name)| Kept { call, name });
    assert_eq!(trigger.fired, trigger.kept + trigger.missed);
    (trigger.missed, kept.collect())
}

fn build(place: &Place, mode: Mode, level: &str) -> std::path::PathBuf {
    let library = place.build(mode, &[level, "-shared", "-fPIC", "tails_library.cpp"], "libtails.so");
    place.build(mode, &[level, "-pthread", "tails.cpp", library.to_str().unwrap()], "tails")
}

/// Records `calls` random calls. Returns how many were kept, and how many of these with an upper
/// limit.
fn check(mode: Mode, level: &str, calls: &str, seed: &str) -> (usize, usize) {
    let label = format!("{} {level}", mode.label());
    let place = Place::new("tail-calls");
    let program = build(&place, mode, level);
    let options = [&["--trigger", "handle_* > 500us", "--ring-size", "64K"][..], &KEEP_ALL].concat();
    let recording = place.record(&options, &program, &[calls, "100", "700", seed, "2"]);
    let (rate, own) = own_calls(&recording.stdout());
    let (mut missed, kept) = kept(&recording.file);
    assert!(kept.len() < 1000, "{label}: not all were kept");
    let (threshold, micro) = (rate / 1_000_000 * 500, rate / 1_000_000);
    let surely = |own: &&Own| own.call.last - own.call.first > threshold + micro;
    for own in own.iter().filter(surely) {
        let count = kept.iter().filter(|kept| kept.is(own)).count();
        let near = || {
            let near = kept.iter().filter(|kept| {
                kept.call.end_ticks >= own.call.begin && kept.call.start_ticks <= own.call.end
            });
            near.map(|kept| format!("{} {:?}", kept.name, kept.call)).collect::<Vec<_>>().join("\n")
        };
        if count == 0 && missed > 0 {
            missed -= 1;
            continue;
        }
        assert_eq!(count, 1, "{label}: {} {:?} took too long; kept near it:\n{}", own.name, own.call, near());
    }
    for kept in &kept {
        let took = kept.call.end_ticks - kept.call.start_ticks;
        assert!(took > kept.call.threshold_ticks, "{label}: {:?}", kept.call);
        assert!(kept.call.threshold_ticks.abs_diff(threshold) <= micro, "{label}: {:?}", kept.call);
        let is = |own: &&Own| kept.is(own) || kept.is_within(own);
        let own = own.iter().find(is);
        let own =
            own.unwrap_or_else(|| panic!("{label}: {} {:?} is none of the program's", kept.name, kept.call));
        assert!(
            kept.is_at_most() || own.call.end - own.call.begin > threshold - micro,
            "{label}: {} {:?} is kept in excess: {:?}",
            kept.name,
            kept.call,
            own.call
        );
        assert!(!kept.call.is_unwound, "{label}: {} {:?}", kept.name, kept.call);
    }
    let at_most = kept.iter().filter(|kept| kept.is_at_most()).count();
    (kept.len(), at_most)
}

const MODES: [Mode; 6] = [
    Mode::GCC_NOPS,
    Mode::GCC_FENTRY,
    Mode::GCC_FINSTRUMENT,
    Mode::CLANG19_XRAY,
    Mode::CLANG19_FINSTRUMENT,
    Mode::CLANG19_AFTER_INLINING,
];

#[test]
fn no_slow_call_escapes_by_a_tail_call() {
    // The two kinds of plain calls by gcc, and clang's last two, have much in common.
    let is_tried = |mode: &Mode| is_full() || ![Mode::GCC_FENTRY, Mode::CLANG19_FINSTRUMENT].contains(mode);
    for (seed, mode) in (1..).zip(MODES.into_iter().filter(is_tried)) {
        // Without optimisation, there are no tail calls: the first mode shows it.
        let levels: &[&str] = if seed == 1 || is_full() { &["-O2", "-O0"] } else { &["-O2"] };
        for level in levels.iter().copied() {
            let (kept, at_most) = check(mode, level, "5000", &seed.to_string());
            assert!(kept > 30, "{} {level}: {kept}", mode.label());
            // Only optimised code has tail calls, and in the last modes the exit hook comes after
            // the callee.
            assert_eq!(at_most > 0, level == "-O2" && !mode.is_body(), "{} {level}: {at_most}", mode.label());
        }
    }
}

/// Whatever happens after the jump, the call is kept, with its whole time.
#[test]
fn calls_after_the_jump_dont_hide_a_slow_call() {
    const ALONE: [&str; 2] = ["handle_thread", "handle_last"];
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY, Mode::CLANG19_AFTER_INLINING] {
        let place = Place::new("tail-ways");
        let program = place.build(mode, &["-O2", "-pthread", "tail_ways.cpp"], "tail_ways");
        let options = [&["--trigger", "handle_* > 10ms"][..], &KEEP_ALL].concat();
        let recording = place.record(&options, &program, &[]);
        assert!(recording.output.status.success(), "{}", mode.label());
        let (missed, kept) = kept(&recording.file);
        assert_eq!(missed, 0, "{}", mode.label());
        let printed = recording.stdout();
        let mut count = 0;
        for line in printed.lines() {
            let (name, times) = line.split_once(' ').expect("a name");
            let label = format!("{} {name}", mode.label());
            let (tid, times) = times.split_once(' ').expect("a thread's id");
            let times: Vec<u64> = times.split(' ').map(|time| time.parse().expect(line)).collect();
            let [begin, first, last] = times[..] else { panic!("{line}") };
            let own = kept.iter().filter(|kept| kept.name == name).collect::<Vec<_>>();
            let [found] = own[..] else { panic!("{label}: {} are kept", own.len()) };
            count += 1;
            assert_eq!(found.call.tid, tid.parse::<u32>().expect("a thread's id"), "{label}");
            assert!(found.call.start_ticks >= begin, "{label}: {:?}", found.call);
            assert!(first == begin || found.call.start_ticks <= first, "{label}: {:?}", found.call);
            assert!(found.call.end_ticks >= last, "{label}: {:?}", found.call);
            let is_alone = found.call.tail.is_some_and(|tail| !tail.has_next);
            assert_eq!(is_alone, !mode.is_body() && ALONE.contains(&name), "{label}: {:?}", found.call);
            assert_eq!(
                found.is_at_most(),
                !mode.is_body() && !found.call.is_unwound,
                "{label}: {:?}",
                found.call
            );
        }
        assert_eq!((count, kept.len()), (11, 11), "{}: {printed}", mode.label());
    }
}

/// An option excludes tail calls.
#[test]
fn tail_calls_count_only_where_they_are_wanted() {
    let place = Place::new("tail-ways-without");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "-pthread", "tail_ways.cpp"], "tail_ways");
    for (trigger, expected) in [("handle_rest-tail > 10ms", 0), ("handle_rest+tail > 10ms", 1)] {
        let options = [&["--trigger", trigger][..], &KEEP_ALL].concat();
        let recording = place.record(&options, &program, &[]);
        assert_eq!(kept(&recording.file).1.len(), expected, "{trigger}");
        if expected == 1 {
            reports_have_the_tail(&place, &recording.file);
        }
    }
}

/// Reports of a kept call have the time that its trigger counted, and so has SQL.
fn reports_have_the_tail(place: &Place, file: &Path) {
    let run = |words: &[&str]| {
        let output = place.command(everycall()).arg(words[0]).arg(file).args(&words[1..]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{words:?}: {said}");
        (String::from_utf8(output.stdout).unwrap(), said)
    };
    let json = |words: &[&str]| {
        let (printed, said) = run(words);
        (serde_json::from_str::<serde_json::Value>(&printed).unwrap(), said)
    };
    let (info, _) = json(&["info", "-f", "json"]);
    let kept = &info["kept_calls"][0];
    let (took, tail) = (kept["took_ns"].as_u64().unwrap(), &kept["tail"]);
    assert_eq!(tail["at_most"], true, "{kept}");
    let (slowest, said) = json(&["report", "--kept", "1", "--slowest", "handle_rest", "-f", "json"]);
    assert!(said.contains("--tails"), "{said}");
    let [row] = &slowest["rows"].as_array().unwrap()[..] else { panic!("{slowest}") };
    // The trigger noticed the end before the next event had its time.
    let dur = row["dur_ns"].as_u64().unwrap();
    assert!(dur + 1 >= took, "{row} {kept}");
    assert_eq!((&row["at_most"], &row["kept_call"]), (&true.into(), &1.into()), "{row}");
    let (text, _) = run(&["report", "--slowest", "handle_rest", "--tails"]);
    assert!(text.contains("at most: with its tail call") && text.contains("kept call 1"), "{text}");
    let (text, _) = run(&["report", "--slowest", "handle_rest"]);
    assert!(text.contains("until its tail call"), "{text}");
    let (explained, _) = json(&["report", "--kept", "1", "--explain", "handle_rest", "-f", "json"]);
    let slow = &explained["slow"];
    assert!((slow["average_ns"].as_f64().unwrap() - dur as f64).abs() <= 1.0, "{explained}");
    let tails = slow["tails_ns_per_call"].as_f64().unwrap();
    assert!(tails + 2.0 >= tail["behind_ns"].as_f64().unwrap(), "{explained}");
    let (bounds, _) = run(&["sql", "-f", "csv", "select least_ns, most_ns from kept_calls"]);
    let least = took - tail["behind_ns"].as_u64().unwrap();
    assert_eq!(bounds.lines().nth(1), Some(&*format!("{least},{took}")), "{bounds}");
    let refused = place.command(everycall()).args(["report", "--tails", "--callees", "x"]).arg(file).output();
    assert_eq!(refused.unwrap().status.code(), Some(2));
}

/// In a loop that makes all its calls by one instruction, calls that are certainly slow are those
/// that the program's own clock finds slow: the short one before a slow one is not among them.
#[test]
fn kept_is_what_is_slow_in_loops() {
    for (mode, level) in [
        (Mode::GCC_NOPS, "-O2"),
        (Mode::GCC_FENTRY, "-O2"),
        (Mode::CLANG19_XRAY, "-O2"),
        (Mode::CLANG19_AFTER_INLINING, "-O2"),
        (Mode::GCC_FINSTRUMENT, "-O2"),
    ] {
        let label = mode.label();
        let place = Place::new("tail-loops");
        place.write("other.c", "int other_library(int value) { return value + 1; }\n");
        let library = place.path().join("libother.so");
        let mut compiler = place.command("gcc");
        compiler.args(["-O2", "-shared", "-fPIC", "other.c", "-o"]).arg(&library);
        assert!(compiler.status().unwrap().success());
        let program = place.build(mode, &[level, "tail_loops.cpp", library.to_str().unwrap()], "tail_loops");
        let options = [&["--trigger", "*handle_* > 4ms"][..], &KEEP_ALL].concat();
        let recording = place.record(&options, &program, &[]);
        let (missed, kept) = kept(&recording.file);
        assert_eq!(missed, 0, "{label}");
        let is_of = |kept: &Kept, name: &str| kept.name.split('(').next().unwrap_or("").ends_with(name);
        let printed = recording.stdout();
        let mut own = Vec::new();
        for line in printed.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [name, begin, end, is_slow] = words[..] else { panic!("{line}") };
            own.push((
                name.to_owned(),
                begin.parse::<u64>().unwrap()..end.parse::<u64>().unwrap(),
                is_slow == "1",
            ));
        }
        let certain = |kept: &&Kept| kept.call.tail.is_none_or(|tail| !tail.is_perhaps_short);
        let slow = || own.iter().filter(|(.., is_slow)| *is_slow);
        // A short call is in doubt only if its thread was preempted in the few instructions between
        // its jump and the next event. Almost every one would be if calls from one place weren't
        // told apart.
        let uncertain = kept.len() - kept.iter().filter(certain).count();
        assert!(uncertain * 3 <= slow().count(), "{label}: {uncertain} of {} are uncertain", kept.len());
        for (name, times, _) in slow() {
            let of_it = |kept: &&Kept| is_of(kept, name) && times.contains(&kept.call.start_ticks);
            assert_eq!(kept.iter().filter(certain).filter(of_it).count(), 1, "{label}: {name} {times:?}");
        }
        for kept in kept.iter().filter(certain) {
            let is_it = |(_, times, _): &&(String, std::ops::Range<u64>, bool)| {
                times.contains(&kept.call.start_ticks) && kept.call.end_ticks <= times.end
            };
            let own = own.iter().find(is_it);
            let (.., times, _) = own.unwrap_or_else(|| panic!("{label}: {} {:?}", kept.name, kept.call));
            let took = times.end - times.start;
            assert!(took > kept.call.threshold_ticks, "{label}: {} {:?} took {took}", kept.name, kept.call);
        }
    }
}
