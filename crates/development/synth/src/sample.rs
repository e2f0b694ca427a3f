//! Small recordings with one of everything.

use crate::{Member, Module, Process, Reading, Ring, Scheduling, Thread};

/// A recording of three threads and two modules, the second of which is replaced by another one in
/// the same address range:
/// - a thread with calls, unwinding, an epoch change, an interrupting signal handler, losses and
///   open calls;
/// - a thread whose ring has wrapped;
/// - a thread without events.
#[must_use]
pub fn basic() -> Process {
    const T0: u64 = 0xffff_f000;
    let module = |path: &str, start: u64, code_start, loaded_ticks, unloaded_ticks| Module {
        path: path.into(),
        base: start - 0x1000,
        start,
        end: start + 0x2000,
        code_start,
        loaded_ticks,
        unloaded_ticks,
        build_id: path.as_bytes().iter().copied().cycle().take(20).collect(),
    };
    let mut main = Ring::new(512, 16, T0);
    main.enter(T0 + 10, 0x1010);
    main.enter(T0 + 20, 0x1100);
    main.exit(T0 + 35, 0x1108);
    main.enter_unknown(T0 + 40, 0x7777_0000_1234);
    main.exit_unknown(T0 + 50, 0x7777_0000_1234);
    // A handler ran between the clock read at 60 and its slot.
    main.enter(T0 + 70, 0x3000);
    main.exit(T0 + 80, 0x3004);
    main.enter(T0 + 60, 0x1200);
    // Another handler, in which an exception was thrown and caught. Its hook's epoch had ended by
    // then.
    main.enter(T0 + 0x1100, 0x1300);
    main.enter(T0 + 0x1110, 0x1400);
    main.unwind(T0 + 0x1200, 3);
    main.exit(T0 + 0x1200, 0x1308);
    main.enter(T0 + 0x900, 0x1500);
    main.exit(T0 + 0x1300, 0x1508);
    main.exit(T0 + 0x1310, 0x1208);
    main.orphan_exit(T0 + 0x1400, 0x1600);
    main.busy(T0 + 0x1410, 3);
    main.hole(T0 + 0x1420);
    main.enter(T0 + 0x2000, 0x3100);
    main.exit(T0 + 0x2010, 0x3104);
    main.enter(T0 + 0x2020, 0x1700);

    let mut worker = Ring::new(512, 2, T0 + 100);
    worker.enter(T0 + 110, 0x1800);
    worker.enter(T0 + 120, 0x1900);
    for call in 0..600 {
        worker.enter(T0 + 200 + 20 * call, 0x1a00);
        worker.exit(T0 + 210 + 20 * call, 0x1a04);
    }
    worker.exit(T0 + 30_000, 0x1908);

    let idle = Ring::new(512, 16, T0 + 50);
    let thread = |tid, name: &str, start_ticks, ring| Thread { tid, name: name.into(), start_ticks, ring };
    Process {
        pid: 100,
        arguments: vec!["./app".into(), "--fast".into(), "a b".into()],
        clock: vec![
            Reading { ticks: T0, raw_ns: 5_000_000_000, bracket: 40 },
            Reading { ticks: T0 + 25_000_000, raw_ns: 5_010_000_000, bracket: 50 },
            Reading { ticks: T0 + 50_000_000, raw_ns: 5_020_000_100, bracket: 40 },
        ],
        modules: vec![
            module("/usr/bin/app", 0x5555_0000_0000, 0x1000, T0, 0),
            module("/usr/lib/one.so", 0x7f00_0000_0000, 0x3000, T0, T0 + 0x1e00),
            module("/usr/lib/two.so", 0x7e00_0000_0000, 0x3000, T0 + 0x1f00, 0),
        ],
        threads: vec![
            thread(100, "app", T0, main),
            thread(101, "worker", T0 + 100, worker),
            thread(102, "idle", T0 + 50, idle),
        ],
        end_ticks: T0 + 50_000,
    }
}

/// Switches and wake-ups of the two threads of [`basic`], and a loss.
#[must_use]
pub fn switches() -> Vec<Scheduling> {
    let at = |raw_ns: u64, tid, kind, state, other| Scheduling {
        raw_ns: 5_000_000_000 + raw_ns,
        tid,
        other,
        cpu: 1,
        kind,
        state,
    };
    vec![
        at(0, 100, 1, 0, 0),
        at(500, 100, 2, 3, 0),
        at(700, 100, 3, 0, 101),
        at(720, 100, 1, 0, 0),
        at(900, 101, 6, 0, 4),
        at(1000, 101, 1, 0, 0),
        at(2000, 101, 2, 0, 0),
        at(2500, 101, 1, 0, 0),
        at(9000, 101, 4, 0, 0),
    ]
}

/// The events of [`switches`], with the system call in which thread 100 waited.
#[must_use]
pub fn switches_with_calls() -> Vec<Scheduling> {
    let mut all = switches();
    let off = all.iter().find(|event| event.kind == 2 && event.state != 0).copied();
    all.extend(off.map(|off| Scheduling { other: 1, ..off }));
    all
}

/// The events of [`switches_with_calls`], a rename of thread 100, and the last parts of a rename
/// whose first parts are missing.
#[must_use]
pub fn renames() -> Vec<Scheduling> {
    let mut all = switches_with_calls();
    let first = all[0];
    let names = *b"loader\0\0\0\0\0\0\0\0\0\0main\0\0\0\0\0\0\0\0\0\0\0\0";
    let part = |raw_ns: u64, place: usize| Scheduling {
        raw_ns: 5_000_000_000 + raw_ns,
        tid: 100 | 1 << 31,
        other: u32::from_le_bytes([0, 1, 2, 3].map(|byte| names[4 * place + byte])),
        kind: 8,
        state: place as u8,
        ..first
    };
    all.extend((3..8).map(|place| part(700, place)));
    all.extend((0..8).map(|place| part(800, place)));
    all
}

/// Samples of the same: one waits, the other one runs and is switched.
#[must_use]
pub fn samples() -> Vec<Scheduling> {
    let at = |raw_ns: u64, tid, state, other| Scheduling {
        raw_ns: 5_000_000_000 + raw_ns,
        tid,
        other,
        cpu: 1,
        kind: 7,
        state,
    };
    vec![
        at(1_000, 100, 0, 0),
        at(2_000, 101, 0, 0),
        at(4_000, 100, 3, 0),
        at(5_000, 101, 1, 2_500),
        at(8_000, 100, 3, 0),
        at(9_000, 101, 1, 3_000),
        at(12_000, 100, 0, 700),
        at(13_000, 101, 0, 1_000),
    ]
}

/// A process, its forked child, and a program that the child executes: with and without facts, in
/// an order that recordings may have.
#[must_use]
pub fn process_tree() -> Vec<Member> {
    let parent = basic();
    let mut child = basic();
    child.pid += 1;
    child.modules.truncate(1);
    child.threads.truncate(1);
    let mut other = child.clone();
    other.arguments = vec!["/bin/other".to_owned()];
    other.modules[0].path = "/bin/other".to_owned();
    let member = |number, parent, origin, process| Member { number, parent, origin, process };
    // The process that lives longest is written last.
    vec![member(1, 0, 2, child), member(2, 1, 3, other), member(0, u32::MAX, 1, parent)]
}

/// Two threads. One has labels, instants and spans of every kind, and gaps with every effect on
/// calls. The beginning of the other one was overwritten; it has a span and calls from before.
#[must_use]
pub fn marks() -> Member {
    const T0: u64 = 0xffff_f000;
    let mut main = Ring::new(512, 16, T0);
    main.mark(T0 + 5, 2, "début", None);
    main.mark(T0 + 6, 1, "version", Some(7));
    main.enter(T0 + 10, 0x1010);
    main.enter(T0 + 20, 0x1100);
    main.mark(T0 + 21, 1, "request", Some(4711));
    main.mark(T0 + 22, 3, "request", Some(4711));
    main.mark(T0 + 23, 3, "request", Some(4712));
    main.mark(T0 + 24, 3, "phase", None);
    main.exit(T0 + 35, 0x1108);
    main.mark(T0 + 36, 4, "request", Some(4711));
    main.enter(T0 + 40, 0x1200);
    main.mark(T0 + 41, 3, "phase", None);
    main.mark(T0 + 42, 4, "phase", None);
    main.mark(T0 + 43, 1, "x".repeat(64).as_str(), Some(u64::MAX));
    main.enter(T0 + 50, 0x1300);
    main.enter(T0 + 60, 0x1400);
    // Recording was off while 0x1400 and 0x1300 returned; an epoch changed in between.
    main.gap(T0 + 70, T0 + 0x1070, 2, 2);
    main.mark(T0 + 0x1080, 4, "never begun", Some(1));
    main.enter(T0 + 0x1090, 0x1500);
    main.gap(T0 + 0x10a0, T0 + 0x10b0, 1, 3);
    main.exit(T0 + 0x10c0, 0x1508);
    // 0x1200 was open in both gaps and then unwound, or it returned in one of them.
    main.unwind_counted(T0 + 0x1100, 1);
    main.enter(T0 + 0x1110, 0x1600);
    main.exit(T0 + 0x1120, 0x1608);
    main.mark(T0 + 0x1130, 4, "request", Some(4712));

    let mut worker = Ring::new(512, 2, T0 + 100);
    worker.enter(T0 + 110, 0x1800);
    worker.enter(T0 + 120, 0x1900);
    worker.mark(T0 + 130, 3, "batch", None);
    for call in 0..600 {
        worker.enter(T0 + 200 + 20 * call, 0x1a00);
        worker.exit(T0 + 210 + 20 * call, 0x1a04);
    }
    worker.exit(T0 + 30_000, 0x1908);
    worker.mark(T0 + 30_010, 4, "batch", None);
    worker.mark(T0 + 30_020, 2, "done", None);

    let mut process = basic();
    let thread = |tid, name: &str, start_ticks, ring| Thread { tid, name: name.into(), start_ticks, ring };
    process.threads = vec![thread(100, "app", T0, main), thread(101, "worker", T0 + 100, worker)];
    Member { number: 0, parent: u32::MAX, origin: 1, process }
}

/// A thread with the records of version 2.8: values of counters (a whole number and a double), a
/// log line, XRay's custom and typed events, and counts of dropped short calls.
#[must_use]
pub fn counters() -> Member {
    const T0: u64 = 0xffff_f000;
    const DROPPED: u8 = 18;
    const CUSTOM_EVENT: u8 = 19;
    const TYPED_EVENT: u8 = 20;
    let mut main = Ring::new(512, 4, T0);
    main.record(T0 + 5, DROPPED, 0, &[3, 0]);
    main.enter(T0 + 10, 0x1100);
    main.mark(T0 + 20, 12, "queue", Some(7));
    main.mark(T0 + 25, 12, "queue", Some(-7_i64 as u64));
    main.mark(T0 + 30, 13, "load", Some(0.25_f64.to_bits()));
    // No argument; the format's address is in the second module.
    main.log(T0 + 40, 0, 0x5555_0000_2000, &[]);
    main.record(T0 + 50, CUSTOM_EVENT, 0, &[4, 0x0403_0201]);
    main.record(T0 + 60, TYPED_EVENT, 0, &[9, 2, 0x0605]);
    main.record(T0 + 0x1060, DROPPED, 0, &[12, 0]);
    main.exit(T0 + 0x1070, 0x1108);
    alone(main, T0)
}

/// A thread that runs the steps of two tasks (version 2.12), one of which suspends calls, resumes
/// them, and is left by an exception in the innermost one; the other runs a step within one of the
/// first's. Segments are short, so that steps lie across their borders.
#[must_use]
pub fn tasks() -> Member {
    const T0: u64 = 0xffff_f000;
    const BEGIN: u8 = 14;
    const END: u8 = 15;
    let mut main = Ring::new(40, 16, T0);
    let mut now = T0;
    let mut next = || {
        now += 10;
        now
    };
    main.enter(next(), 0x1100);
    // Suspends three calls.
    main.mark(next(), BEGIN, "fetch (Task-1)", Some(7));
    (0..3).for_each(|call| main.enter(next(), 0x1200 + 0x10 * call));
    (0..3).rev().for_each(|call| main.exit(next(), 0x1200 + 0x10 * call));
    main.mark(next(), END, "", Some(3 << 32 | 7));
    main.enter(next(), 0x1300);
    main.exit(next(), 0x1300);
    // The other one, which ends.
    main.mark(next(), BEGIN, "other", Some(8));
    main.enter(next(), 0x1210);
    main.exit(next(), 0x1210);
    main.mark(next(), END, "", Some(8));
    now += 5_000;
    let mut next = || {
        now += 10;
        now
    };
    // All three go on, and the innermost one ends; a step of the other one is run within the
    // second.
    main.mark(next(), BEGIN, "fetch (renamed)", Some(7));
    (0..3).for_each(|call| main.enter(next(), 0x1200 + 0x10 * call));
    main.exit(next(), 0x1220);
    main.mark(next(), BEGIN, "other", Some(8));
    main.enter(next(), 0x1210);
    main.mark(next(), 2, "within", None);
    main.exit(next(), 0x1210);
    main.mark(next(), END, "", Some(8));
    main.exit(next(), 0x1210);
    main.exit(next(), 0x1200);
    main.mark(next(), END, "", Some(2 << 32 | 7));
    // An exception is thrown into the second, which is left; then into the first, which handles it.
    now += 5_000;
    let mut next = || {
        now += 10;
        now
    };
    main.mark(next(), BEGIN, "fetch (renamed)", Some(7));
    main.enter(next(), 0x1210);
    main.enter(next(), 0x1300);
    main.exit(next(), 0x1300);
    let depth = main.open_calls().len() - 1;
    main.unwind_counted(next(), depth);
    main.mark(next(), END, "", Some(7));
    main.mark(next(), BEGIN, "fetch (renamed)", Some(7));
    main.enter(next(), 0x1200);
    main.enter(next(), 0x1300);
    main.exit(next(), 0x1300);
    main.exit(next(), 0x1200);
    main.mark(next(), END, "", Some(7));
    main.exit(next(), 0x1100);
    alone(main, T0)
}

/// A thread whose frames were unwound without notice, whose stack was suspended and possibly
/// replaced by another one, and that ends with open frames.
#[must_use]
pub fn unsure() -> Member {
    const T0: u64 = 0xffff_f000;
    let mut main = Ring::new(512, 16, T0);
    for (place, offset) in [0x1010, 0x1100, 0x1200, 0x1300, 0x1400].into_iter().enumerate() {
        main.enter(T0 + 10 * (place as u64 + 1), offset);
    }
    main.unwind_noticed(T0 + 60, 4);
    main.unwind_counted(T0 + 70, 3);
    // Over a change of the upper half.
    main.resumed(T0 + 80, T0 + 0x1080, 100);
    main.enter(T0 + 0x1090, 0x1500);
    main.exit(T0 + 0x10a0, 0x1508);
    main.resumed_unsurely(T0 + 0x10b0, T0 + 0x10c0, 101);
    main.unwind_noticed(T0 + 0x10d0, 2);
    main.enter(T0 + 0x10d0, 0x1600);
    main.enter(T0 + 0x10e0, 0x1700);
    main.exit(T0 + 0x10f0, 0x1708);
    main.exit(T0 + 0x1100, 0x1608);
    // The thread ends: 0x1100 cleans up.
    main.mark(T0 + 0x1110, 10, "", None);
    main.mark(T0 + 0x1120, 10, "", Some(1));
    main.enter(T0 + 0x1130, 0x1800);
    main.exit(T0 + 0x1140, 0x1808);
    main.unwind_counted(T0 + 0x1150, 1);
    main.enter(T0 + 0x1160, 0x1900);
    main.exit(T0 + 0x1170, 0x1908);

    alone(main, T0)
}

/// A thread whose stack is resumed four times, possibly as another stack. The caller of the next
/// call is unknown, or an open function, or the outer one of two open functions, or another
/// function. Then an exception may have unwound inlined calls. Then the thread ends, and a function
/// that cleans up makes one call.
#[must_use]
pub fn callers() -> Member {
    const T0: u64 = 0xffff_f000;
    let mut main = Ring::new(512, 16, T0);
    main.enter(T0 + 10, 0x1010);
    main.enter(T0 + 20, 0x1100);
    for (at, caller) in
        [(0x1000, None), (0x1100, Some(0x1100)), (0x1200, Some(0x1010)), (0x1300, Some(0x1900))]
    {
        main.resumed_unsurely(T0 + at, T0 + at + 16, 100);
        if caller.is_some() {
            main.caller(T0 + at + 16, caller);
        }
        main.enter(T0 + at + 32, 0x1200);
        main.exit(T0 + at + 48, 0x1208);
    }
    // An exception is handled in a frame that two inlined calls share: it is unknown which of them
    // continues.
    main.enter(T0 + 0x13a0, 0x1500);
    main.enter(T0 + 0x13a8, 0x1600);
    main.caller(T0 + 0x13b0, Some(0x1120));
    main.unwind_inlined(T0 + 0x13b0, 2);
    main.enter(T0 + 0x13c0, 0x1700);
    main.exit(T0 + 0x13c8, 0x1708);
    main.orphan_exit(T0 + 0x13d0, 0x1500);
    // The thread ends: 0x1100 cleans up.
    main.mark(T0 + 0x1400, 10, "", None);
    main.mark(T0 + 0x1410, 10, "", Some(1));
    for (at, caller) in [(0x1420, Some(0x1100)), (0x1440, None), (0x1460, Some(0x1900))] {
        main.caller(T0 + at, caller);
        main.enter(T0 + at, 0x1300);
        main.enter(T0 + at + 8, 0x1400);
        main.exit(T0 + at + 16, 0x1408);
        main.exit(T0 + at + 24, 0x1308);
    }

    alone(main, T0)
}

/// A thread in which an exception reaches a frame that two inlined calls share. The frame cleans up
/// and makes two calls, one of them of a function that was also inlined. Then the outer one of the
/// two handles the exception, and another exception unwinds everything.
#[must_use]
pub fn cleanups() -> Member {
    const T0: u64 = 0xffff_f000;
    let mut main = Ring::new(512, 16, T0);
    for (place, offset) in [0x1010, 0x1100, 0x1200, 0x1300].into_iter().enumerate() {
        main.enter(T0 + 10 * (place as u64 + 1), offset);
    }
    main.mark(T0 + 100, 8, "i", None);
    main.mark(T0 + 100, 9, "", Some(2));
    main.caller(T0 + 110, Some(0x1120));
    main.unwind_inlined_in_cleanup(T0 + 110, 2);
    main.enter(T0 + 110, 0x1400);
    main.exit(T0 + 120, 0x1408);
    main.caller_inlined(T0 + 130, 0x1128);
    main.unwind_inlined_in_cleanup(T0 + 130, 2);
    main.enter(T0 + 130, 0x1500);
    main.exit(T0 + 140, 0x1508);
    main.mark(T0 + 150, 11, "", Some(0));
    main.orphan_exit(T0 + 160, 0x1200);
    main.enter(T0 + 170, 0x1600);
    main.exit(T0 + 180, 0x1608);
    main.unwind_counted(T0 + 190, 0);

    alone(main, T0)
}

/// A process with only this thread.
fn alone(ring: Ring, start_ticks: u64) -> Member {
    let mut process = basic();
    process.threads = vec![Thread { tid: 100, name: "app".into(), start_ticks, ring }];
    Member { number: 0, parent: u32::MAX, origin: 1, process }
}
