//! `record --trigger`: the kept calls are those that took too long by the program's own clock, with
//! all that they called.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use everycall_reader::event::{EventKind, Events};
use everycall_reader::{KeptCall, Reason, Source, ThreadKey, TraceFile, Trigger};
use everycall_tests::slow::{KEEP_ALL, OwnCall, SLOW, SlowWays, own_calls};
use everycall_tests::{Mode, Place, Recording, TraceView, everycall, successful, wait};

const MODES: [Mode; 4] = [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY];
fn kept(file: &Path) -> (Vec<Trigger>, Vec<KeptCall>) {
    let file = TraceFile::open(File::open(file).unwrap()).unwrap();
    let recording = file.recording();
    assert_eq!(recording.warnings, []);
    let moments = recording.snapshots.iter().filter(|snapshot| snapshot.reason == Reason::Trigger);
    assert_eq!(moments.count(), recording.kept.len(), "each has a snapshot of its own");
    (recording.triggers.clone(), recording.kept.clone())
}

/// Entries and exits of its thread from a kept call's entry to its exit, in its snapshot.
fn events_of(file: &Path, call: &KeptCall) -> u64 {
    let file = TraceFile::open(File::open(file).unwrap()).unwrap();
    let snapshot = file.recording().snapshots.iter().position(|snapshot| snapshot.number == call.snapshot);
    let key = ThreadKey { snapshot: snapshot.unwrap(), thread: call.thread.unwrap() };
    let mut cursor = file.segments(key);
    let (mut words, mut count) = (Vec::new(), 0);
    while let Some(segment) = cursor.next_segment(&mut words) {
        segment.unwrap();
        let events = Events::new(&words)
            .filter(|event| matches!(event.kind, EventKind::Entry { .. } | EventKind::Exit { .. }));
        count +=
            events.filter(|event| (call.start_ticks..=call.end_ticks).contains(&event.ticks)).count() as u64;
    }
    count
}

fn is_same((tid, own): &(u32, OwnCall), kept: &KeptCall) -> bool {
    *tid == kept.tid && own.is(kept)
}

/// The kept calls are exactly those over the threshold. The program's clock and the trace's differ
/// by delays in between: a call that took longer by the program's lower bound is kept, and one that
/// took less by its upper bound isn't.
fn check(recording: &Recording, threshold_us: u64, label: &str) -> (u64, Vec<KeptCall>) {
    let (rate, own) = own_calls(&recording.stdout());
    let (triggers, kept) = kept(&recording.file);
    let [trigger] = &triggers[..] else { panic!("{label}: {triggers:?}") };
    assert_eq!((trigger.functions, trigger.kept), (1, kept.len() as u64), "{label}");
    let threshold = rate / 1_000_000 * threshold_us;
    let micro = rate / 1_000_000;
    for call in &kept {
        let took = call.end_ticks - call.start_ticks;
        assert!(
            took > call.threshold_ticks && call.threshold_ticks.abs_diff(threshold) <= micro,
            "{label}: {call:?}"
        );
        let matching = own.iter().filter(|own| is_same(own, call)).count();
        assert_eq!(matching, 1, "{label}: {call:?} is none of the program's");
    }
    let surely = own.iter().filter(|(_, own)| own.last - own.first > threshold + micro);
    let perhaps = own.iter().filter(|(_, own)| own.end - own.begin > threshold - micro).count() as u64;
    let surely: Vec<&(u32, OwnCall)> = surely.collect();
    assert!(
        (surely.len() as u64..=perhaps).contains(&trigger.fired),
        "{label}: {trigger:?}, {} to {perhaps}",
        surely.len()
    );
    let missed = surely.iter().filter(|own| !kept.iter().any(|call| is_same(own, call))).count() as u64;
    assert!(missed <= trigger.missed, "{label}: {missed} calls weren't kept, {trigger:?}");
    (trigger.missed, kept)
}

/// One call in ten thousand is slow, at random.
#[test]
fn exactly_the_slow_calls_are_kept() {
    for mode in MODES {
        let place = Place::new("triggers");
        let program = place.build(mode, &SLOW, "slow");
        let options = [&["--trigger", "handle > 2ms"][..], &KEEP_ALL].concat();
        let recording = place.record(&options, &program, &["100000", "10000", "4000", "7", "2"]);
        let label = mode.label();
        let (_, kept) = check(&recording, 2000, &label);
        assert!(kept.len() > 10, "{label}: {} kept", kept.len());
        assert!(kept.iter().all(|call| !call.is_unwound), "{label}");
        // Where many come at once and the machine is busy, the newest events of a thread may be all
        // that is left of one.
        let whole: Vec<&KeptCall> = kept.iter().filter(|call| call.missing == 0).collect();
        assert!(whole.len() > 2, "{label}: {} of {}", whole.len(), kept.len());
        for call in whole.into_iter().take(2) {
            let (trace, begin, end) = TraceView::moment(&recording.file, call);
            let thread = trace.threads.iter().find(|thread| thread.info.tid == call.tid).unwrap();
            let found =
                thread.call_at("handle", begin).unwrap_or_else(|| panic!("{label}: {call:?} isn't there"));
            assert_eq!(found.text(), "handle(work(leaf leaf) work(leaf leaf))", "{label}");
            assert_eq!(found.end_ns, end, "{label}");
        }
    }
}

/// While a call is open that may be kept, its thread's ring takes the memory it needs, up to the
/// limit; beyond that, missing events are counted.
#[test]
fn long_calls_are_whole_as_far_as_memory_allows() {
    const WORKS: u64 = 50_000;
    // Its own entry and exit, 52,000 of `work`, each with two of `leaf`.
    const EVENTS: u64 = 2 + (WORKS + 2) * 6;
    let place = Place::new("triggers-memory");
    let program = place.build(Mode::GCC_NOPS, &SLOW, "slow");
    let works = WORKS.to_string();
    for (memory, is_whole) in [("16M", true), ("1M", false)] {
        let options =
            [&["--trigger", "handle > 2ms", "--ring-size", "64K", "--trigger-memory", memory][..], &KEEP_ALL]
                .concat();
        let recording = place.record(&options, &program, &["40", "10", "3000", "9", "1", &works]);
        let (_, kept) = check(&recording, 2000, memory);
        assert!(!kept.is_empty(), "{memory}");
        assert!(is_whole || kept[0].missing > 0, "{memory}: {:?}", kept[0]);
        for call in &kept {
            assert!(call.missing == 0 || !is_whole, "{memory}: {call:?}");
            // Kept and missing events of the call add up to all of it.
            assert_eq!(events_of(&recording.file, call) + call.missing, EVENTS, "{memory}: {call:?}");
            if is_whole {
                let (trace, begin, _) = TraceView::moment(&recording.file, call);
                let thread = trace.threads.iter().find(|thread| thread.info.tid == call.tid).unwrap();
                let found = thread.call_at("handle", begin).expect("the call");
                assert_eq!(found.inside.len() as u64, WORKS + 2, "{memory}");
            }
        }
    }
}

/// How many entries the threads of a file have, and how many of its snapshots' segments differ.
fn entries_of(file: &TraceFile<'_>) -> BTreeMap<(usize, u32, u32, u64), u64> {
    let mut all = BTreeMap::new();
    for (snapshot, facts) in file.recording().snapshots.iter().enumerate() {
        for (thread, of) in facts.threads.iter().enumerate() {
            let mut cursor = file.segments(ThreadKey { snapshot, thread });
            let mut words = Vec::new();
            while let Some(segment) = cursor.next_segment(&mut words) {
                let entries =
                    |event: &everycall_reader::event::Event| matches!(event.kind, EventKind::Entry { .. });
                let key = (facts.process, of.slot, of.generation, segment.unwrap());
                let count = Events::new(&words).filter(entries).count() as u64;
                let most: &mut u64 = all.entry(key).or_default();
                *most = count.max(*most);
            }
        }
    }
    all
}

/// Stretches that rings have overwritten and kept calls contain are on the timeline, each once:
/// calls are found without `--kept`, and `--kept` begins with its call.
#[test]
fn kept_calls_are_on_the_timeline_once() {
    let place = Place::new("triggers-timeline");
    let program = place.build(Mode::GCC_NOPS, &SLOW, "slow");
    // After the first two, rings have their usual size.
    let keep = ["--keep", "2", "--keep-by", "first", "--keep-every", "0"];
    let options = [&["--trigger", "handle > 2ms", "--ring-size", "64K"][..], &keep].concat();
    let recording = place.record(&options, &program, &["300000", "10000", "4000", "7", "1"]);
    let (_, kept) = kept(&recording.file);
    assert_eq!(kept.len(), 2);
    let open = || TraceFile::open(File::open(&recording.file).unwrap()).unwrap();
    let mut file = open();
    let wanted = entries_of(&file);
    let mut ring_alone = open();
    ring_alone.select_snapshots(|snapshot| snapshot.reason != Reason::Trigger);
    assert!(entries_of(&ring_alone).len() < wanted.len(), "kept calls have more than the rings");
    file.merge_kept();
    assert_eq!(file.recording().snapshots.len(), 1);
    assert_eq!(entries_of(&file), wanted, "each segment once, as far as any snapshot has it");
    let trace = everycall_timeline::Trace::open(&file).unwrap();
    let entries: u64 = trace.threads().iter().map(|thread| thread.entries).sum();
    assert_eq!(entries, wanted.values().sum::<u64>());
    drop(trace);
    let replay = |options: &[&str]| {
        let mut command = place.command(everycall());
        successful(command.arg("replay").args(options).arg(&recording.file))
    };
    let whole: Vec<(usize, &KeptCall)> = (1..).zip(&kept).filter(|(_, call)| call.missing == 0).collect();
    assert!(!whole.is_empty());
    for (number, _) in whole.into_iter().take(3) {
        let label = format!("kept call={number}");
        let found = replay(&["--label", &label, "--depth", "1"]);
        assert!(found.contains("handle") && !found.contains("truncated"), "{number}: {found}");
        // The first call that ends is one that was open when the kept call began, or began later.
        let from = replay(&["-f", "json", "--kept", &number.to_string()]);
        let whole = replay(&["-f", "json", "--kept", &number.to_string(), "--since", "0"]);
        assert!(from.lines().count() < whole.lines().count(), "{number}");
        assert!(from.contains(&format!("\"kept call\":{number}")), "{number}: {from}");
    }
}

#[test]
fn the_slowest_calls_stay() {
    let place = Place::new("triggers-slowest");
    let program = place.build(Mode::GCC_NOPS, &SLOW, "slow");
    let options = ["--trigger", "handle > 500us", "--keep", "3", "--keep-every", "0"];
    let recording = place.record(&options, &program, &["3000", "100", "1000", "3"]);
    let (_, own) = own_calls(&recording.stdout());
    let (triggers, kept) = kept(&recording.file);
    assert_eq!((kept.len(), triggers[0].kept), (3, 3));
    assert!(triggers[0].fired > 3, "{triggers:?}");
    // No call that was announced in time and was clearly slower is missing.
    let least = kept.iter().map(|call| call.end_ticks - call.start_ticks).min().unwrap();
    let slower = own.iter().filter(|(_, own)| own.last - own.first > least).count() as u64;
    assert!(slower <= 3 + triggers[0].missed, "{slower} {triggers:?}");
    let arguments = ["3000", "100", "1000", "3"];
    let once = place.record(&["--trigger", "handle > 500us", "--keep-every", "1h"], &program, &arguments);
    let (triggers, kept) = self::kept(&once.file);
    assert_eq!(kept.len(), 1, "one in an hour");
    let said = String::from_utf8_lossy(&once.output.stderr).into_owned();
    assert!(said.contains("left out by --keep-every 3600s (--keep-every 0 keeps more)"), "{said}");
    assert!(triggers[0].fired > 1, "{triggers:?}");
    // By default, all are.
    let all = place.record(&["--trigger", "handle > 500us"], &program, &arguments);
    let (triggers, kept) = self::kept(&all.file);
    assert!(kept.len() > 3 && triggers[0].kept + triggers[0].missed == triggers[0].fired, "{triggers:?}");
}

#[test]
fn invalid_triggers_are_refused_before_the_program_starts() {
    let place = Place::new("triggers-bad");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "-pthread", "slow.c"], "slow");
    for (options, hint) in [
        (&["--trigger", "handel > 1ms"][..], "there is handle"),
        (&["--trigger", "handle"], "has no condition"),
        (&["--trigger", "handle > 0us"], "above 0"),
        (&["--trigger", "handle > soon"], "instead of a time"),
        (&["--trigger", "signal KILL"], "signal USR1"),
        (&["--keep", "3"], "--trigger"),
        (&["--trigger", "handle > 1ms", "--keep", "0"], "--keep"),
        (&["--trigger", "handle > 1ms", "--stream"], "--stream"),
    ] {
        let mut command = place.command(everycall());
        let output = command
            .arg("record")
            .args(options)
            .arg("--")
            .arg(&program)
            .args(["1", "1", "1", "1"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(hint), "{options:?}: {said}");
        assert!(!output.status.success() && output.stdout.is_empty(), "{options:?}: the program ran");
    }
}

/// A signal to `record` keeps the moment, and isn't passed on to the program.
#[test]
fn signals_to_record_keep_the_moment() {
    let place = Place::new("triggers-signal");
    let program = place.build(Mode::GCC_NOPS, &SLOW, "slow");
    let file = place.file("signal.ect");
    let mut command = place.command(everycall());
    command.args(["record", "--trigger", "signal USR1", "-o"]).arg(&file).arg("--").arg(&program);
    let mut child = command.args(["30000000", "1000000000", "1", "1"]).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let program = wait::until_started(child.id(), &program);
    for _ in 0..2 {
        // The program makes some calls meanwhile.
        wait::until_worked(program, Duration::from_millis(200));
        assert!(Command::new("kill").args(["-USR1", &pid]).status().unwrap().success());
    }
    assert!(child.wait().unwrap().success(), "the program didn't notice");
    let (triggers, kept) = kept(&file);
    assert_eq!((triggers[0].fired, triggers[0].kept, kept.len()), (2, 2, 2));
    for call in &kept {
        assert!(!call.is_call && call.offset.is_none(), "{call:?}");
        let (trace, ..) = TraceView::moment(&file, call);
        assert!(trace.tallies().get("handle").is_some_and(|tally| tally.exits > 1000));
    }
}

/// Calls that the clock's upper half changes in, that are left by an exception, of forked children
/// and of libraries that come late.
#[test]
fn slow_calls_of_every_kind() {
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT] {
        let label = mode.label();
        let place = Place::new("triggers-ways");
        let ways = SlowWays::build(&place, mode);
        let recording = place.record(&ways.options(), &ways.program, &[ways.plugin.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
        assert!(said.contains("matches `plugged`") && said.contains("later may have one"), "{label}: {said}");
        let (found, kept) = kept(&recording.file);
        for (rule, name) in SlowWays::FUNCTIONS.iter().enumerate() {
            let own = SlowWays::own_call(&recording.stdout(), name);
            assert_eq!((found[rule].fired, found[rule].kept), (1, 1), "{label}: {name}: {said}");
            let call = kept.iter().find(|call| call.trigger == rule).unwrap();
            assert!(own.is(call), "{label}: {name}: {call:?}, {own:?}");
            // gcc's hooks from within functions are also called where an exception leaves them.
            let is_unwound = *name == "thrown" && !mode.is_body();
            assert_eq!((call.is_unwound, call.missing), (is_unwound, 0), "{label}: {name}");
            assert_eq!(call.process > 0, *name == "in_child", "{label}: {name}");
        }
    }
}

/// Entries are found by `record` in what threads write; a percentile's threshold follows its
/// function.
#[test]
fn entries_and_percentiles() {
    let place = Place::new("triggers-watch");
    let program = place.build(Mode::GCC_NOPS, &SLOW, "slow");
    let options = [&["--trigger", "serve entered", "--ring-size", "8M"][..], &KEEP_ALL].concat();
    let recording = place.record(&options, &program, &["20000", "100000", "100", "7", "4"]);
    let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
    let (triggers, entered) = kept(&recording.file);
    assert_eq!((triggers[0].fired, entered.len()), (4, 4), "{said}");
    let threads: BTreeSet<u32> = entered.iter().map(|call| call.tid).collect();
    assert_eq!(threads.len(), 4, "{entered:?}");
    for call in &entered {
        assert!(call.is_entry && call.is_call && call.offset.is_some(), "{call:?}");
        let (trace, begin, _) = TraceView::moment(&recording.file, call);
        let thread = trace.threads.iter().find(|thread| thread.info.tid == call.tid).unwrap();
        assert!(thread.call_at("serve", begin).is_some(), "{call:?}");
    }

    let recording = place.record(
        &["--trigger", "handle > p99", "--keep", "5", "--keep-by", "newest", "--keep-every", "20ms"],
        &program,
        &["3000000", "1000", "300", "7"],
    );
    let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
    let (rate, own) = own_calls(&recording.stdout());
    let (triggers, kept) = kept(&recording.file);
    assert!(triggers[0].fired > 0 && !kept.is_empty(), "{said}");
    // One in a thousand is slow: kept calls are slower than most, and the threshold is below the
    // slow ones.
    for call in &kept {
        let took = call.end_ticks - call.start_ticks;
        assert!(took > call.threshold_ticks && call.threshold_ticks > 0, "{call:?}");
        assert!(call.threshold_ticks < rate / 1_000_000 * 300, "{call:?}");
    }
    // It is armed some time after the first thousand calls; from then on, no slow call is missed.
    let counted = own.iter().filter(|(_, own)| own.begin > kept[0].start_ticks).count() as u64;
    assert!(triggers[0].fired >= counted / 2, "{counted} {said}");
}

/// Calls that are fast, though long enough for some segments, follow each other without a pause:
/// their thread takes no more than its ring.
#[test]
fn fast_calls_after_each_other_leave_the_memory_to_others() {
    let place = Place::new("triggers-given-back");
    place.write(
        "busy.c",
        "#include <pthread.h>\n#include <unistd.h>\n#include <stdlib.h>\nstatic volatile int over, sink;\n\
         __attribute__((noinline)) void leaf(void) { sink++; }\n\
         __attribute__((noinline)) void handle(int works) { for (int i = 0; i < works; i++) leaf(); }\n\
         __attribute__((noinline)) void slow(int works) { for (int i = 0; i < works; i++) leaf(); usleep(300000); leaf(); }\n\
         static void *busy(void *none) { while (!over) handle(20000); return none; }\n\
         int main(void) { pthread_t thread; pthread_create(&thread, 0, busy, 0); usleep(1000000); slow(400000); over = 1;\n\
         pthread_join(thread, 0); return 0; }\n",
    );
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-pthread", "busy.c"], "busy");
    let options = [
        &["--trigger", "handle > 100s", "--trigger", "slow > 200ms", "--trigger-memory", "8M"][..],
        &KEEP_ALL,
    ]
    .concat();
    let recording = place.record(&options, &program, &[]);
    let (triggers, kept) = kept(&recording.file);
    assert_eq!((triggers[0].fired, triggers[1].fired, kept.len()), (0, 1, 1), "{triggers:?}");
    // 800,000 events are 6.4 MB, which the other thread hasn't taken.
    assert_eq!(kept[0].missing, 0, "{:?}", kept[0]);
    assert_eq!(events_of(&recording.file, &kept[0]), 2 * (400_000 + 2));
}

/// Calls that `pthread_exit` unwinds are kept once: when it is called, or when a cleanup shows that
/// they have ended.
#[test]
fn calls_that_the_end_of_a_thread_leaves() {
    let place = Place::new("triggers-exiting");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY] {
        let program = place.build(mode, &["-O1", "-pthread", "exiting.cpp"], "exiting");
        let functions = ["exiting", "guarded", "late", "quick"];
        let triggers = functions.map(|name| format!("{name} > 80ms"));
        let mut options: Vec<&str> =
            triggers.iter().flat_map(|trigger| ["--trigger", trigger.as_str()]).collect();
        options.extend(KEEP_ALL);
        let recording = place.record(&options, &program, &[]);
        let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
        let (found, kept) = kept(&recording.file);
        let fired: Vec<u64> = found.iter().map(|trigger| trigger.fired).collect();
        assert_eq!(fired, [1, 1, 1, 0], "{}: {said}", mode.label());
        assert!(kept.iter().all(|call| call.is_unwound && call.missing == 0), "{}: {kept:?}", mode.label());
    }
}

/// Of 44,000 functions that match a pattern, the last one is armed like the first. Of more than a
/// million, some aren't, and all outputs with triggers say so.
#[test]
fn patterns_name_many_functions() {
    const FUNCTIONS: usize = 44_000;
    let place = Place::new("triggers-many");
    let mut text = String::from("#include <unistd.h>\nstatic volatile int sink;\n");
    for number in 0..FUNCTIONS {
        let slow = if number == 1 || number == FUNCTIONS - 1 { "usleep(20000);" } else { "" };
        text.push_str(&format!("void fun_{number}(void) {{ sink = {number}; {slow} }}\n"));
    }
    let last = FUNCTIONS - 1;
    // Kept calls are written while the program runs.
    text.push_str(&format!(
        "int main(void) {{ fun_1(); usleep(500000); fun_{last}(); usleep(500000); return 0; }}\n"
    ));
    place.write("many.c", &text);
    let program = place.build(Mode::GCC_NOPS, &["-O0", "many.c"], "many");
    let one = ["--trigger", "fun_* > 10ms"];
    let recording = place.record(&[&one[..], &KEEP_ALL].concat(), &program, &[]);
    let (triggers, calls) = kept(&recording.file);
    assert_eq!((triggers[0].functions, triggers[0].not_armed), (FUNCTIONS as u64, 0));
    assert_eq!((triggers[0].fired, calls.len()), (2, 2));
    // Without `record`.
    let set = place.file("many.ecs");
    let resolve = |triggers: &[&str]| {
        let mut command = place.command(everycall());
        command.arg("resolve").args(triggers).args(KEEP_ALL).arg("-o").arg(&set).arg(&program);
        command.output().unwrap()
    };
    assert!(resolve(&one).status.success());
    let run = place.command(&program).env("EVERYCALL_TRIGGERS", &set).output().unwrap();
    assert!(run.status.success() && run.stderr.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
    let files = std::fs::read_dir(place.path()).unwrap();
    let files = files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().contains("-kept-"));
    assert_eq!(files.count(), 2);

    let all: Vec<&str> = one.iter().copied().cycle().take(2 * 24).collect();
    for file in std::fs::read_dir(place.path()).unwrap().map(|file| file.unwrap().path()) {
        if file.to_string_lossy().contains("-kept-") {
            std::fs::remove_file(file).unwrap();
        }
    }
    let said = resolve(&all);
    let sentence = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{sentence}");
    assert!(sentence.contains("names 43,691 functions\n"), "{sentence}");
    assert!(sentence.contains("names 309 functions more, which can't be armed"), "{sentence}");
    let run = place.command(&program).env("EVERYCALL_TRIGGERS", &set).output().unwrap();
    assert!(run.status.success() && run.stderr.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
    let mut files = std::fs::read_dir(place.path()).unwrap().map(|file| file.unwrap().path());
    let file = files.find(|file| file.to_string_lossy().contains("-kept-")).expect("a call is kept");
    let (triggers, _) = kept(&file);
    let not_armed: u64 = triggers.iter().map(|trigger| trigger.not_armed).sum();
    let watched: u64 = triggers.iter().map(|trigger| trigger.functions).sum();
    assert_eq!((watched, not_armed), (1 << 20, 24 * FUNCTIONS as u64 - (1 << 20)));
    let recording = place.record(&[&all[..], &KEEP_ALL].concat(), &program, &[]);
    let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
    let (triggers, _) = kept(&recording.file);
    let not_armed: u64 = triggers.iter().map(|trigger| trigger.not_armed).sum();
    let watched: u64 = triggers.iter().map(|trigger| trigger.functions).sum();
    assert_eq!((watched, not_armed), (1 << 20, 24 * FUNCTIONS as u64 - (1 << 20)), "{said}");
    assert!(said.contains("were not armed: too many match"), "{said}");
    let info = successful(place.command(everycall()).arg("info").arg(&recording.file));
    assert!(info.contains("functions more were not"), "{info}");
    let info = successful(place.command(everycall()).args(["info", "--format", "json"]).arg(&recording.file));
    assert!(info.contains("\"functions_not_armed\": 30"), "{info}");
}
