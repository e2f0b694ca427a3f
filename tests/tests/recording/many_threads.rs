//! A hundred thousand threads, one after the other and together: later threads reuse the memory of
//! earlier ones, and memory use stays constant.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use everycall_tests::{Mode, Place, Standing, TraceView};

/// One test at a time: how many threads are there together is a matter of CPUs that are free.
static ALONE: Mutex<()> = Mutex::new(());
/// Threads of each half.
const HALF: &str = "50000";

/// Resources of a process once some of its threads have ended.
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

/// Ended threads are retained for the configured time if another thread makes calls and no new
/// threads begin.
#[test]
fn ended_threads_are_kept_for_their_time() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new("kept-for-a-time");
    place.write(
        "ended.c",
        "#include <pthread.h>\n#include <stdio.h>\n#include <time.h>\n\
         __attribute__((noinline)) void leaf(void) { __asm__ volatile(\"\"); }\n\
         __attribute__((noinline)) void *brief(void *unused) { leaf(); return unused; }\n\
         static void busy(double seconds) {\n\
             struct timespec begin, now;\n\
             clock_gettime(CLOCK_MONOTONIC, &begin);\n\
             do { for (int i = 0; i < 10000; i++) leaf(); clock_gettime(CLOCK_MONOTONIC, &now); }\n\
             while ((double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec) < seconds);\n\
         }\n\
         int main(void) {\n\
             for (int i = 0; i < 100; i++) { pthread_t t; pthread_create(&t, 0, brief, 0); pthread_join(t, 0); }\n\
             busy(0.1);\n\
             for (int i = 0; i < 2; i++) { printf(\"ready\\n\"); fflush(stdout); getchar(); busy(3); }\n\
         }\n",
    );
    let program = place.build(Mode::GCC_NOPS, &["-O1", "ended.c", "-pthread"], "ended");
    let kept = |setting: &str| {
        let mut command = Command::new(&program);
        let mut standing = Standing::start(command.env("EVERYCALL_KEEP_ENDED", setting));
        let ended = |standing: &Standing| {
            let trace = TraceView::open(&standing.snapshot(&place, &[]).0);
            trace.threads.iter().filter(|thread| thread.tallies.contains_key("brief")).count()
        };
        let early = ended(&standing);
        standing.go_on();
        (early, ended(&standing))
    };
    let (early, late) = kept("64M,1");
    assert!(early >= 98 && late == 0, "{early}, then {late}");
    let (early, late) = kept("64M");
    assert!(early >= 98 && late >= 98, "{early}, then {late}");
}

#[test]
fn memory_is_back_where_it_was() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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
        // Retained are 1 MiB of 8 KiB each, the living ones, and those whose end hasn't been
        // noticed yet. How many of these there were at most depends on who got a CPU; fifty
        // thousand threads that left something behind each would be far above.
        let more = late.slots.saturating_sub(early.slots);
        assert!(late.slots <= 1024 && more <= 256, "{together}: {early:?}, {late:?}");
        assert!(late.segments <= early.segments + 64 + 2 * more, "{together}: {early:?}, {late:?}");
        // Core dumps contain parts of each slot: its counts and its open calls. Each is a mapping
        // of its own, and so is what lies between two of them.
        let mappings = early.mappings + 64 + 4 * more as usize;
        assert!(late.mappings <= mappings, "{together}: {early:?}, {late:?}");
        let resident = early.resident_kib + 512 + 32 * u64::from(more);
        assert!(late.resident_kib <= resident, "{together}: {early:?}, {late:?}");
    }
}
