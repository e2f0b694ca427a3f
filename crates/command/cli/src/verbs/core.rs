//! `everycall core`: the trace that a core dump holds.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use everycall_analysis::{code_names, crash_files, open_for_reading};
use everycall_coredump::{Core, ProcessFacts, Snapshot};
use everycall_format::arena::ClockReading;
use everycall_io::say;
use everycall_units::{Several, Size};

use crate::arguments::CoreArguments;
use crate::failure::Failure;
use crate::output::signal_name;
use crate::output::{Destination, Output};
use crate::recording::written::{self, Moment};

/// How long the counter's rate is measured, to decide whether it is still the core's counter.
const PAUSE: Duration = Duration::from_millis(20);
/// Largest relative difference of the two rates: a few times the error of such a short measurement.
const RATE_DIFFERENCE: f64 = 1e-4;

/// Runs the verb.
pub fn run(arguments: &CoreArguments) -> Result<ExitCode, Failure> {
    let path = &arguments.core;
    let failed = |reason: &dyn std::fmt::Display| Failure::of(path, reason);
    let output = Destination::new(arguments.output.as_deref(), arguments.force, || default_output(path));
    output.is_not(path)?;
    everycall_recorder::outlive_size_limit();
    let file = open_for_reading(path)
        .map_err(|error| failed(&format!("can't be read: {error}; name a core dump that you may read")))?;
    if !file.metadata().is_ok_and(|data| data.is_file()) {
        return Err(failed(&"is not a regular file; name a core dump"));
    }
    let owner = file.metadata().map_or(0, |data| data.uid());
    let core = Core::open(file, arguments.pid).map_err(|error| failed(&error))?;
    let image = core.arena().map_err(|error| failed(&error))?;
    let crash = core.crash();
    let mut snapshot = match &crash {
        Some(_) => crash_files::read(&core, &image).map(|(snapshot, _)| snapshot),
        None => Snapshot::read(&image, core.process()),
    }
    .map_err(|error| failed(&error))?;
    let cut = core.cut().map_err(|error| failed(&error))?;
    if cut > 0 {
        snapshot.add_missing(format!(
            "the core is truncated: {} of everycall's memory are missing in it; raise the limit of cores \
            (ulimit -c unlimited)",
            Size(cut)
        ));
    }
    if let Some(exe) = &arguments.exe {
        let exe = exe.canonicalize().map_err(|error| {
            Failure::of(exe, format!("can't be read: {error}; name the program's file with --exe"))
        })?;
        snapshot.set_executable(exe.as_os_str().as_bytes());
    }
    // Crash files contain all readings themselves.
    let readings = snapshot.start().filter(|_| crash.is_none()).map_or(vec![], readings_of_this_boot);
    if readings.is_empty() && crash.is_none() && !snapshot.has_rate() {
        snapshot.add_warning(
            "the core is from another machine or from before a reboot, so the clock's rate is unknown: times are \
             ticks, shown as nanoseconds"
                .to_owned(),
        );
    }
    snapshot.add_clock_readings(&readings);
    let user = core.process().and_then(|process| process.user).unwrap_or(owner);
    code_names::add(&mut snapshot, image.header(), user);

    let summary = Output::create(&output)?.write(|file| snapshot.write(file, env!("CARGO_PKG_VERSION")))?;
    if !arguments.quiet {
        if let Some(process) = core.process() {
            say!("everycall: {}", describe(process));
        }
        written::print(&summary, &output.path, Moment::Core);
    }
    Ok(ExitCode::SUCCESS)
}

/// `core.1234.zst` becomes `core.1234.ect`.
fn default_output(core: &Path) -> PathBuf {
    let mut name = PathBuf::from(core.file_name().unwrap_or(core.as_os_str()));
    if name.extension().is_some_and(|ending| ending == "zst" || ending == "lz4") {
        name.set_extension("");
    }
    let mut name = name.into_os_string();
    name.push(".ect");
    name.into()
}

/// The process of the core.
fn describe(process: &ProcessFacts) -> String {
    let state = match process.signal {
        Some(signal) if process.has_ended => format!("ended by signal {signal}{}", signal_name(signal)),
        Some(signal) => format!("stopped by signal {signal}{}", signal_name(signal)),
        None => "still alive".to_owned(),
    };
    let threads = Several(process.threads.into(), "live thread", "live threads");
    format!("core of {}, {state}, with {threads}", process.describe())
}

/// Readings of all clocks now, if they are the clocks of `start`: then they give the exact rate of
/// the counter since. They are if the rate equals the one that is measured now. The counter of
/// another machine or boot began at another time.
fn readings_of_this_boot(start: ClockReading) -> Vec<ClockReading> {
    let first = everycall_machine::clock::read();
    std::thread::sleep(PAUSE);
    let last = everycall_machine::clock::read();
    match (rate(&first, &last), rate(&start, &last)) {
        (Some(now), Some(since)) if (since / now - 1.0).abs() < RATE_DIFFERENCE => vec![last],
        _ => vec![],
    }
}

/// Ticks per nanosecond.
fn rate(from: &ClockReading, to: &ClockReading) -> Option<f64> {
    let ticks = to.ticks.checked_sub(from.ticks).filter(|ticks| *ticks > 0)?;
    let time = to.monotonic_raw_ns.checked_sub(from.monotonic_raw_ns).filter(|time| *time > 0)?;
    Some(ticks as f64 / time as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_named_after_the_core() {
        let name = |core: &str| default_output(Path::new(core)).to_string_lossy().into_owned();
        assert_eq!(name("/var/lib/core.app.77.zst"), "core.app.77.ect");
        assert_eq!(name("core"), "core.ect");
        assert_eq!(name("core.77"), "core.77.ect");
    }

    #[test]
    fn clocks_of_another_boot_are_noticed() {
        let start = everycall_machine::clock::read();
        assert_eq!(readings_of_this_boot(start).len(), 1);
        let other = ClockReading { ticks: start.ticks / 2, ..start };
        assert!(readings_of_this_boot(other).is_empty());
        let later = ClockReading { ticks: u64::MAX, ..start };
        assert!(readings_of_this_boot(later).is_empty());
        let ages_ago = ClockReading { monotonic_raw_ns: 1, ..start };
        assert!(readings_of_this_boot(ages_ago).is_empty());
    }
}
