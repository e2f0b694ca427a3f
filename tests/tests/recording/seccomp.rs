//! Programs that put themselves under filters of system calls.

use everycall_format::arena::counter;
use everycall_tests::{Mode, Place};

const THREADS: u64 = 4;
const CALLS: u64 = 50_000;

fn program(place: &Place, mode: Mode) -> std::path::PathBuf {
    place.build(mode, &["-O1", "seccomp.c", "-pthread"], &format!("seccomp-{}", mode.label()))
}

/// If a filter refuses the calls that a thread's begin needs, new threads run untraced and are
/// counted; earlier ones stay traced.
#[test]
fn refused() {
    let place = Place::new("refused");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY] {
        let recording = place.record(&["--ring-size", "4M"], &program(&place, mode), &["refuse"]);
        assert_eq!(recording.stdout(), "250000\n", "{mode:?}: {recording:?}");
        let trace = recording.trace();
        assert_eq!(trace.threads.len(), 1, "{mode:?}");
        assert_eq!(trace.main().tallies["leaf"].exits, CALLS + 1, "{mode:?}");
        assert_eq!(trace.counters[counter::THREADS_UNTRACED], THREADS, "{mode:?}");
    }
}

/// The system calls that the documents name are all that threads make.
#[test]
fn only_documented_system_calls_are_made() {
    let place = Place::new("listed");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY] {
        let recording = place.record(&["--ring-size", "256K"], &program(&place, mode), &["list"]);
        assert!(recording.output.status.success(), "{mode:?}: {recording:?}");
        assert_eq!(recording.stdout(), "250000\n", "{mode:?}: {recording:?}");
        assert_eq!(recording.trace().threads.len() as u64, THREADS + 1, "{mode:?}");
    }
}

/// Where a filter traps what a thread's begin needs, the program's own handler answers, as it does
/// for the program's own calls.
#[test]
fn trapped() {
    const GETTID: u32 = 0;
    /// Of the C library, too, which blocks signals around it.
    const MADVISE: u32 = 4;
    let place = Place::new("trapped");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY] {
        let program = program(&place, mode);
        for call in (0..6).filter(|call| *call != MADVISE) {
            let recording = place.record(&["--ring-size", "4M"], &program, &["trap", &call.to_string()]);
            assert_eq!(recording.stdout(), "250000\n", "{mode:?}, {call}: {recording:?}");
            let trace = recording.trace();
            let untraced = if call == GETTID { THREADS } else { 0 };
            assert_eq!(trace.counters[counter::THREADS_UNTRACED], untraced, "{mode:?}, {call}");
            assert_eq!(trace.threads.len() as u64, THREADS + 1 - untraced, "{mode:?}, {call}");
        }
    }
}
