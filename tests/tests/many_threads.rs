//! A hundred thousand threads, one after the other and together: what they needed goes to those that follow, and memory stays where it is.

use std::process::Command;

use everycall_tests::{Mode, Place, Standing};

/// Threads of each half.
const HALF: &str = "50000";

/// What a process has once some of its threads have ended.
#[derive(Clone, Copy, Debug)]
struct Use {
    resident_kib: u64,
    mappings: usize,
    slots: u32,
    segments: u32,
}

impl Use {
    fn of(standing: &Standing) -> Use {
        let proc = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", standing.pid)).unwrap();
        let status = proc("status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let header = standing.header();
        Use {
            resident_kib: resident.split_whitespace().next().unwrap().parse().unwrap(),
            mappings: proc("maps").lines().count(),
            slots: header.threads,
            segments: header.segments_in_use,
        }
    }
}

#[test]
fn memory_is_back_where_it_was() {
    let place = Place::new("many-threads");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "many_threads.c", "-pthread"], "many_threads");
    for together in ["1", "20"] {
        let mut command = Command::new(&program);
        command.args([HALF, together]).env("EVERYCALL_KEEP_ENDED", "1M");
        let mut standing = Standing::start(&mut command);
        let early = Use::of(&standing);
        standing.go_on();
        let late = Use::of(&standing);
        println!("{together} at a time: {early:?}, then {late:?}");
        // Kept are 1 MiB of 8 KiB each, the living ones, and those whose end nobody has noticed yet.
        assert!(late.slots <= 512 && late.slots <= early.slots + 32, "{together}: {early:?}, {late:?}");
        assert!(late.resident_kib <= early.resident_kib + 512, "{together}: {early:?}, {late:?}");
        assert!(late.mappings <= early.mappings + 64, "{together}: {early:?}, {late:?}");
        assert!(late.segments <= early.segments + 64, "{together}: {early:?}, {late:?}");
    }
}
