//! Fibers: each stack is a track of its own, and no call is attributed to another one.

use std::process::Command;
use std::time::Instant;

use everycall_format::arena::counter;
use everycall_tests::{Mode, Place, ThreadTrace, TraceView, programs};

/// The calls of each fiber of `contexts.c`.
const FIBER: &str =
    "run(step(leaf yield(leaf leaf) leaf) step(leaf yield(leaf leaf) leaf) step(leaf yield(leaf leaf) leaf))";
const TURN: &str = "let_all_run(resume resume resume resume)";

fn text(thread: &ThreadTrace) -> String {
    thread.calls.iter().map(everycall_tests::Call::text).collect::<Vec<_>>().join(" ")
}

fn check(place: &Place, mode: Mode, arguments: [&str; 3]) {
    let options = ["-O1", "-g", "-fno-optimize-sibling-calls", "contexts.c", "-pthread"];
    let program = place.build(mode, &options, &format!("contexts-{}", mode.label()));
    let recording = place.record(&[], &program, &arguments);
    let trace = recording.trace();
    let what = format!("{mode:?} {arguments:?}: {recording:?}");
    assert_eq!(String::from_utf8_lossy(&recording.output.stdout).split(',').next(), Some("4 of 4"), "{what}");
    assert_eq!((trace.losses(), &trace.warnings), (0, &Vec::new()), "{what}");
    let is_fiber = |thread: &&ThreadTrace| thread.info.fiber.is_some();
    let fibers: Vec<_> = trace.threads.iter().filter(is_fiber).collect();
    let numbers: Vec<_> = fibers.iter().filter_map(|fiber| fiber.info.fiber).collect();
    let others: Vec<String> = trace.threads.iter().filter(|thread| !is_fiber(thread)).map(text).collect();
    for fiber in &fibers {
        assert_eq!(text(fiber), FIBER, "{what}: {} {:?} {others:?}", fiber.info.name, fiber.info);
        assert_eq!(fiber.info.suspended, 3, "{what}");
        assert!(fiber.info.name.starts_with("fiber "), "{what}");
    }
    assert_eq!(numbers, [1, 2, 3, 4], "{what}");
    let alone = arguments[2] == "1";
    let main =
        format!("main(all{})", if alone { format!("({})", [TURN; 4].join(" ")) } else { String::new() });
    assert_eq!(others.iter().filter(|text| **text == main).count(), 1, "{what}: {others:?}");
    let turns = others.iter().filter(|text| *text == TURN).count();
    assert_eq!(turns, if alone { 0 } else { 4 }, "{what}: {others:?}");
    assert_eq!(trace.threads.iter().map(|thread| thread.orphans).sum::<u64>(), 0, "{what}");
}

#[test]
fn each_stack_is_a_track() {
    let place = Place::new("contexts");
    for switches in ["ucontext", "assembly", "jumps"] {
        for memory in ["static", "heap", "mapped", "local"] {
            // A stack within another one can't be detected unless it is registered.
            if (switches, memory) != ("assembly", "local") {
                check(&place, Mode::GCC_NOPS, [switches, memory, "1"]);
            }
        }
    }
}

#[test]
fn in_every_mode() {
    let place = Place::new("contexts-modes");
    for mode in Mode::ALL {
        check(&place, mode, ["assembly", "static", "1"]);
        check(&place, mode, ["ucontext", "local", "2"]);
    }
}

#[test]
fn fibers_go_from_thread_to_thread() {
    let place = Place::new("contexts-threads");
    for (switches, memory) in
        [("ucontext", "heap"), ("assembly", "mapped"), ("assembly", "heap"), ("jumps", "static")]
    {
        check(&place, Mode::GCC_NOPS, [switches, memory, "2"]);
    }
}

#[test]
fn a_scheduler_registers_its_fibers() {
    let place = Place::new("contexts-api");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT] {
        let options = ["-O1", "-g", "-fno-optimize-sibling-calls", "fiber_api.c"];
        let program = place.build(mode, &options, &format!("fiber-api-{}", mode.label()));
        let recording = place.record(&[], &program, &[]);
        let told = "thread -2, empty -2, null -2, unnamed -2\nown -2\nheap 0\nagain 0\nname 0\nforget 0 -2\nlocal 0\nagain 0\nname 0\nforget 0 -2\n";
        assert_eq!(String::from_utf8_lossy(&recording.output.stdout), told, "{mode:?}: {recording:?}");
        let trace = recording.trace();
        let tracks: Vec<_> = trace.threads.iter().map(|thread| (&*thread.info.name, text(thread))).collect();
        let of_stack = "stacks_of(leaf leaf)";
        let of_fiber = "first!(large_frame(leaf) left_open!(leaf)) second!(leaf left_open!(leaf))";
        assert!(tracks.iter().any(|(_, text)| *text == format!("main({of_stack} {of_stack})")), "{tracks:?}");
        let fibers: Vec<_> = tracks.iter().filter(|(_, text)| text.starts_with("first")).collect();
        assert_eq!(fibers.len(), 2, "{mode:?}: {tracks:?}");
        for (name, text) in fibers {
            assert_eq!((*name, &**text), ("second one has ", of_fiber), "{mode:?}");
        }
    }
}

#[test]
fn boost_context_registers_its_stacks() {
    let place = Place::new("contexts-boost");
    let run = |command: &mut Command| assert!(command.status().expect("gcc and ar run").success());
    let (object, archive) = (place.file("fcontext.o"), place.file("libboost_context.a"));
    run(Command::new("gcc").arg("-c").arg(programs().join("fcontext.S")).arg("-o").arg(&object));
    run(Command::new("ar").arg("rcs").arg(&archive).arg(&object));
    let shared = place.file("libboost_context.so.1.83.0");
    run(Command::new("gcc").arg("-shared").arg(&object).arg("-o").arg(&shared));
    // As Boost.Coroutine's library uses it.
    let (source, user) = (place.file("user.c"), place.file("libuser.so"));
    std::fs::write(&source, "void make_fcontext(void); void uses(void) { make_fcontext(); }").unwrap();
    run(Command::new("gcc").args(["-shared", "-fPIC"]).arg(&source).arg("-o").arg(&user));
    for library in [archive, shared] {
        let [library, user] = [&library, &user].map(|path| path.to_string_lossy());
        let options = ["-O1", "-g", "-fno-optimize-sibling-calls", "fcontext.c", &user, &library];
        let program = place.build(Mode::GCC_NOPS, &options, "fcontext");
        let recording = place.record(&[], &program, &[]);
        assert_eq!(recording.output.stdout, b"21\n", "{recording:?}");
        let trace = recording.trace();
        let tracks: Vec<String> = trace.threads.iter().map(text).collect();
        let fiber = "entry~(leaf large_frame(leaf) leaf large_frame(leaf) leaf)";
        assert_eq!(tracks, ["main", fiber, fiber, fiber], "{recording:?}");
    }
}

#[test]
fn thousands_of_fibers() {
    let place = Place::new("contexts-many");
    let options = ["-O1", "-g", "-fno-optimize-sibling-calls", "many_fibers.c"];
    let program = place.build(Mode::GCC_NOPS, &options, "many_fibers");
    let record = |kind: &str, count: u64| {
        let begin = Instant::now();
        let recording = place.record(&[], &program, &[kind, &count.to_string()]);
        println!("{count} fibers, {kind}: {:?}", begin.elapsed());
        let trace = recording.trace();
        let of = |text_of: &str| trace.threads.iter().filter(|thread| text(thread) == text_of).count() as u64;
        assert_eq!((of("main"), trace.losses()), (1, 0), "{kind}: {recording:?}");
        let left = of("outer!(leaf)") + of("outer~(leaf)");
        (String::from_utf8_lossy(&recording.output.stdout).into_owned(), of("outer(leaf leaf)"), left, trace)
    };
    let lost = |trace: &TraceView| trace.counters[counter::FIBER_EVENTS];
    let (sum, whole, left, trace) = record("live", 3000);
    assert_eq!((&*sum, whole, left, lost(&trace)), ("9000\n", 3000, 0, 0));
    // More fibers than there are rings: those with a ring are complete, and every event of the
    // others is counted.
    let (sum, whole, left, trace) = record("live", 5000);
    assert_eq!((&*sum, whole, left, lost(&trace)), ("15000\n", 4095, 0, 905 * 6));
    // Any number of fibers, one after the other. Up to 64 MiB of ended ones are retained.
    for (kind, each) in [("gone", 1), ("idle", 3)] {
        let (sum, whole, left, trace) = record(kind, 9000);
        assert_eq!((sum, lost(&trace)), (format!("{}\n", 9000 * each), 0), "{kind}");
        let (there, others) = if kind == "idle" { (whole, left) } else { (left, whole) };
        assert!(there > 3000 && others == 0, "{kind}: {whole} whole, {left} left");
    }
}
