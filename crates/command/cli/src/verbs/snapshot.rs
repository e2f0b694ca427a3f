//! `everycall snapshot`: the trace of a running program.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use everycall_io::say;
use everycall_units::Duration;

use crate::arguments::SnapshotArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Destination, Output, clean};
use crate::recording::written::{self, Moment};
use crate::running::{default_output, not_attached};

/// Runs the verb.
pub fn run(arguments: &SnapshotArguments) -> Result<ExitCode, Failure> {
    let names_one = |path: &Path| !path.as_os_str().as_bytes().windows(2).any(|two| two == b"%p");
    if arguments.pids.len() > 1 && arguments.output.as_deref().is_some_and(names_one) {
        return Err(Failure::new(
            exit_code::USAGE,
            "-o names one file, but several processes were named; write %p for their ids, as in -o app-%p.ect, or \
             leave out -o: each gets a file PROGRAM-PID.ect",
        ));
    }
    everycall_recorder::outlive_size_limit();
    let mut result = ExitCode::SUCCESS;
    let mut pids = arguments.pids.iter().peekable();
    while let Some(pid) = pids.next() {
        match snapshot(*pid, arguments) {
            Ok(()) => {}
            // A failure for one process doesn't stop the others.
            Err(failure) if pids.peek().is_some() => result = failure.report(),
            Err(failure) => return Err(failure),
        }
    }
    Ok(result)
}

fn snapshot(pid: u32, arguments: &SnapshotArguments) -> Result<(), Failure> {
    let failed =
        |reason: &dyn std::fmt::Display| Failure::new(exit_code::FAILED, format!("process {pid}: {reason}"));
    let arena = everycall_live::attach(pid).map_err(|error| not_attached(pid, "snapshot", &error))?;
    let default = || default_output(arena.process());
    let output = Destination::of_process(pid, arguments.output.as_deref(), arguments.force, default);
    let output = output.keeping_old();
    // Created before segments are pinned, because they stay pinned while we wait for the disk.
    let file = Output::create(&output)?;
    let snapshot = everycall_live::take(&arena, arguments.last).map_err(|error| failed(&error))?;
    let [pinned_in, cpu] = [snapshot.nanoseconds_to_pin(), snapshot.cpu_nanoseconds_to_pin()];
    let (begin, cpu_before) = (Instant::now(), everycall_live::cpu_nanoseconds());
    let summary = file.write(|file| snapshot.write(file, env!("CARGO_PKG_VERSION")))?;
    if !arguments.quiet {
        let written_in = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let cpu_of_that = everycall_live::cpu_nanoseconds().saturating_sub(cpu_before);
        let [pinned_in, cpu, written_in, cpu_of_that] =
            [pinned_in, cpu, written_in, cpu_of_that].map(|ns| Duration { ns });
        let program = arena.process().program();
        let program = clean(&program);
        say!(
            "everycall: snapshot of {program} ({pid}), pinned within {pinned_in}, {cpu} of CPU time; written within {written_in}, \
             {cpu_of_that} of CPU time"
        );
        written::print(&summary, &output.path, Moment::Snapshot(arguments.last));
    }
    Ok(())
}
