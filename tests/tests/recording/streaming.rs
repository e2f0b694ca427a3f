//! `record --stream`: all events that threads write are in the file or counted as lost, whichever
//! process is slow, stopped or killed.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use everycall_tests::workloads::{
    Build, FunctionCounts, Linkage, ThreadCounts, Workload, of_oracle, of_trace,
};
use everycall_tests::{Mode, Place, TraceView, everycall, is_full};
use everycall_timeline::ThreadInfo;

/// So little memory that threads have to wait, or lose events.
const SCARCE: [&str; 4] = ["--ring-size", "64K", "--stream-memory", "64K"];
const MODES: [Mode; 4] = [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY];
/// How long a program without a recorder may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn record(place: &Place, options: &[&str], program: &Path, arguments: &[&str], file: &Path) -> Output {
    let mut command = place.command(everycall());
    command.args(["record", "--stream"]).args(options).arg("-o").arg(file).arg("--");
    command.arg(program).args(arguments).output().expect("everycall runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Events in a trace, and events that it reports as missing.
fn events(trace: &TraceView) -> (u64, u64) {
    let infos = || trace.threads.iter().map(|thread| &thread.info);
    let missing = infos().map(|info| info.losses + info.missing + info.lost_busy).sum();
    (infos().map(|info| info.events).sum(), missing)
}

/// Events of the program `stream`: `main` and the threads.
fn events_of(threads: u64, calls: u64) -> u64 {
    2 + threads * (2 + 4 * calls)
}

/// Every call that an independent library counts is in the stream of the same objects, or is
/// counted as lost there. By default in the mode in which other tests compile the workload, too.
fn check(workload: Workload, mode: Mode) {
    let place = Place::new("streaming");
    for mode in if is_full() { MODES.to_vec() } else { vec![mode] } {
        let build = Build { workload, mode: Some(mode), flags: &["-O1"] };
        let (traced, with_oracle) = (place.file("traced"), place.file("oracle"));
        build.link(Linkage::Traced, &traced);
        build.link(Linkage::Oracle, &with_oracle);
        let counted = place.file("counts");
        let mut command = Command::new(&with_oracle);
        let output = command.args(workload.small).env("ORACLE_OUT", &counted).output().expect("it runs");
        let expected = of_oracle(&counted, &with_oracle);
        let label = build.label();

        let file = place.file("stalled.ect");
        let stalled = record(&place, &[&SCARCE[..], &["--stall"]].concat(), &traced, workload.small, &file);
        assert_eq!((stalled.status.code(), &stalled.stdout), (Some(0), &output.stdout), "{label}");
        let trace = of_trace(&file, &traced);
        assert_eq!(trace.warnings, [""; 0], "{label}");
        assert_eq!(trace.threads.len(), expected.len(), "{label}");
        // By what they did: thread ids start over when they reach their limit.
        let mut wanted: Vec<_> = expected.iter().map(ThreadCounts::calls).collect();
        let mut found: Vec<_> = trace.threads.iter().map(ThreadCounts::calls).collect();
        wanted.sort();
        found.sort();
        assert!(
            wanted == found,
            "{label}: {} differ",
            wanted.iter().zip(&found).filter(|(a, b)| a != b).count()
        );
        for info in &trace.infos {
            assert!(info.is_complete && info.losses + info.missing == 0, "{label}: {info:?}");
        }

        let file = place.file("lossy.ect");
        let lossy = record(&place, &SCARCE, &traced, workload.small, &file);
        assert_eq!((lossy.status.code(), &lossy.stdout), (Some(0), &output.stdout), "{label}");
        let trace = of_trace(&file, &traced);
        let total = |counts: FunctionCounts| counts.entries + counts.exits;
        let wanted: u64 = expected.iter().map(|thread| total(thread.total())).sum();
        let missing = |info: &ThreadInfo| info.losses + info.missing + info.lost_busy;
        let found: u64 = trace.infos.iter().map(|info| info.events + missing(info)).sum();
        assert_eq!(found, wanted, "{label}: {:?}", trace.infos);
        let size = std::fs::metadata(&file).expect("a trace").len();
        let stored: u64 = trace.infos.iter().map(|info| info.events).sum();
        println!("{label}: {stored} events of the lossy one, {:.2} bytes each", size as f64 / stored as f64);
    }
}

#[test]
fn sqlite_as_counted() {
    check(Workload::SQLITE, Mode::GCC_NOPS);
}

#[test]
fn leveldb_as_counted() {
    check(Workload::LEVELDB, Mode::CLANG19_XRAY);
}

/// The recorder is stopped for a while: events overwritten then are counted, and shown where they
/// are missing.
#[test]
fn losses_are_counted_exactly() {
    let place = Place::new("stream-losses");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "stream.c", "-lpthread"], "stream");
    let file = place.file("trace.ect");
    let output = record(&place, &SCARCE, &program, &["2", "200000", "5000"], &file);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{}", said(&output));
    let trace = TraceView::tallies_only(&file);
    assert_eq!(trace.warnings, [""; 0]);
    let (stored, lost) = events(&trace);
    assert!(lost > 1_000_000 && stored > 1_000, "{stored} stored, {lost} lost");
    assert_eq!(stored + lost, events_of(2, 200_000));
    assert!(said(&output).contains(" were overwritten; --stall makes the program wait"), "{}", said(&output));
    let replay =
        place.command(everycall()).args(["replay", "--depth", "2"]).arg(&file).output().expect("it runs");
    let text = String::from_utf8_lossy(&replay.stdout).into_owned();
    assert!(text.contains("a part of the ring is missing or damaged"), "where they are missing");
}

/// With `--stall`, the program waits for a slow recorder, and nothing is lost.
#[test]
fn threads_wait_for_a_slow_recorder() {
    let place = Place::new("stream-stall");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "stream.c", "-lpthread"], "stream");
    let file = place.file("trace.ect");
    let options = [&SCARCE[..], &["--stall"]].concat();
    let output = record(&place, &options, &program, &["2", "200000", "400"], &file);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{}", said(&output));
    let trace = TraceView::tallies_only(&file);
    assert_eq!(trace.warnings, [""; 0]);
    assert_eq!(events(&trace), (events_of(2, 200_000), 0));
    assert!(trace.threads.iter().all(|thread| thread.info.is_complete), "{trace:?}");
    assert!(said(&output).contains("threads waited ") && said(&output).contains("no event was lost"));
}

/// Threads that end at once leave all that they did, though their places are given to others.
#[test]
fn short_threads_are_all_there() {
    let place = Place::new("stream-threads");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "stream.c", "-lpthread"], "stream");
    let file = place.file("trace.ect");
    let mut command = place.command(everycall());
    command.env("EVERYCALL_KEEP_ENDED", "1M").args(["record", "--stream", "-o"]).arg(&file).arg("--");
    let output = command.arg(&program).args(["3000", "50"]).output().expect("everycall runs");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let trace = TraceView::tallies_only(&file);
    assert_eq!(trace.warnings, [""; 0]);
    assert_eq!(events(&trace), (events_of(3000, 50), 0), "{}", said(&output));
    assert_eq!(trace.threads.len(), 3001);
    let cut = trace.threads.iter().find(|thread| !thread.info.is_complete);
    assert!(cut.is_none(), "{:?}", cut.map(|thread| &thread.info));
}

#[test]
fn a_killed_program_leaves_everything() {
    let place = Place::new("stream-killed");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "stream.c", "-lpthread"], "stream");
    let file = place.file("trace.ect");
    let output = record(&place, &[], &program, &["2", "100000", "die"], &file);
    assert_eq!(output.status.signal(), Some(9), "{}", said(&output));
    let trace = TraceView::tallies_only(&file);
    // `main` has begun and never ends.
    assert_eq!(events(&trace), (events_of(2, 100_000) - 1, 0));
    assert_eq!(trace.main().info.open_calls, 1);
}

/// No thread waits for a recorder that has ended, even while its parent leaves it a zombie; its
/// file can be read.
#[test]
fn the_program_outlives_its_recorder() {
    let place = Place::new("stream-orphan");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "stream.c", "-lpthread"], "stream");
    let (file, printed) = (place.file("trace.ect"), place.file("printed"));
    let mut command = place.command(everycall());
    command.args(["record", "--stream", "--stall"]).args(SCARCE).arg("-o").arg(&file).arg("--");
    command.arg(&program).args(["2", "200000", "kill"]);
    command.stdout(std::fs::File::create(&printed).expect("a file")).stderr(Stdio::null());
    let mut recorder = command.spawn().expect("everycall runs");
    let begin = Instant::now();
    while std::fs::read(&printed).expect("a file") != b"done\n" {
        assert!(begin.elapsed() < PATIENCE, "the program waits for a recorder that is gone");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(recorder.wait().expect("it was started").signal(), Some(9));
    let trace = TraceView::tallies_only(&file);
    assert_eq!(trace.warnings.len(), 1, "that it was cut: {:?}", trace.warnings);
}

/// A disk that is full from the beginning: the program doesn't notice, not even where it would wait
/// for the disk.
#[test]
fn a_full_disk_is_no_matter_of_the_program() {
    let place = Place::new("stream-full");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "stream.c", "-lpthread"], "stream");
    let options = [&SCARCE[..], &["--stall"]].concat();
    let output = record(&place, &options, &program, &["2", "200000"], Path::new("/dev/full"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("can't write /dev/full"), "{}", said(&output));
}

/// A stream in several files: each can be read on its own, together they contain everything once.
#[test]
fn files_follow_each_other() {
    let place = Place::new("stream-files");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "stream.c", "-lpthread"], "stream");
    let size = ["--file-size", "64K", "--stall"];
    let output =
        record(&place, &[&SCARCE[..], &size].concat(), &program, &["2", "200000"], &place.file("all.ect"));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let mut found = 0;
    let mut count = 0;
    while let Some(file) = Some(place.file(&format!("all.{:04}.ect", count + 1))).filter(|file| file.exists())
    {
        let trace = TraceView::tallies_only(&file);
        assert_eq!(trace.warnings, [""; 0], "{file:?}");
        let (events, lost) = events(&trace);
        assert_eq!(lost, 0, "{file:?}");
        assert!(trace.threads.iter().all(|thread| thread.info.tid != 0), "{file:?}");
        assert!(trace.tallies().keys().all(|name| ["main", "work", "pair", "leaf"].contains(&&**name)));
        found += events;
        count += 1;
    }
    assert!(count > 2, "{count} files");
    assert_eq!(found, events_of(2, 200_000));
    assert!(said(&output).contains(&format!("all.{count:04}.ect")), "{}", said(&output));

    let keep = [&SCARCE[..], &size, &["--keep-files", "2"]].concat();
    let output = record(&place, &keep, &program, &["2", "200000"], &place.file("kept.ect"));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let folder = std::fs::read_dir(place.path()).expect("a folder");
    let names = folder.map(|entry| entry.expect("an entry").file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().starts_with("kept.")).count(), 2);
}
