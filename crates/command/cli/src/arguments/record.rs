//! `record`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use everycall_format::dropped;
use everycall_format::env::{RING_SIZE_ALLOWED, parse_ring_size};
use everycall_recorder::Counting;
use everycall_units::parse_time;

use super::common::{Force, large_size};
use super::embed::EmbedChoice;
use super::recorded::{EventTimes, ValueArguments};
use super::selection::OnlyArguments;
use super::triggers::TriggerArguments;

/// Programs as they are.
#[derive(Clone, Debug, Default, Args)]
pub struct AsIsArguments {
    /// Record a program as it is, built without everycall: hooks are written into its code when it
    /// starts
    ///
    /// x86-64 programs with a dynamic linker, also stripped ones. docs/reference/untouched.md says
    /// more.
    #[arg(long)]
    pub untouched: bool,
    /// As --untouched, and record the program and libraries that match, also those that are loaded
    /// later, such as 'libssl*,libcrypto*' [default: those in the program's folder]
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub modules: Vec<String>,
    /// As --untouched, and record also small functions, which are left out otherwise
    #[arg(long)]
    pub all: bool,
    /// Whether --untouched was given itself.
    #[arg(skip)]
    pub is_given: bool,
}

/// The verb `record`.
#[derive(Debug, Args)]
pub struct RecordVerb {
    #[command(flatten)]
    as_is: AsIsArguments,
    #[command(flatten)]
    record: RecordArguments,
}

impl RecordVerb {
    /// All options.
    pub fn arguments(self) -> RecordArguments {
        RecordArguments { as_is: self.as_is, ..self.record }
    }
}

/// `record`.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// Trace file to write [default: PROGRAM.ect in the current folder]
    ///
    /// %p stands for this command's process id, %t for the local time, %% for a percent sign, as in
    /// app-%t.ect. An older recording of this name becomes NAME.old.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
    /// Memory for each thread's newest events: a power of two from 64K to 1G; an event takes 8
    /// bytes [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub ring_size: Option<u64>,
    /// Write all events to the file while the program runs, instead of the newest ones at its end
    ///
    /// If the disk is too slow, events are lost; the file says where and how many.
    #[arg(long)]
    pub stream: bool,
    /// If the disk is too slow, make the program wait, so that no event is lost
    #[arg(long, requires = "stream")]
    pub stall: bool,
    /// Memory for events that wait to be written, in addition to each thread's ring, such as 64M
    /// [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = large_size, requires = "stream")]
    pub stream_memory: Option<u64>,
    /// Start a new file after this many bytes: app.0001.ect, app.0002.ect, ... [default with
    /// --keep-files: 1G]
    #[arg(long, value_name = "SIZE", value_parser = large_size, requires = "stream")]
    pub file_size: Option<u64>,
    /// Start a new file after this time, such as 10s
    #[arg(long, value_name = "TIME", value_parser = file_age, requires = "stream")]
    pub file_age: Option<u64>,
    /// Keep only this many newest files, including those of earlier runs with this name
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), requires = "stream")]
    pub keep_files: Option<u32>,
    /// How a program is recorded that was built without everycall: of the verb alone.
    #[arg(skip)]
    pub as_is: AsIsArguments,
    #[command(flatten)]
    pub functions: OnlyArguments,
    #[command(flatten)]
    pub values: ValueArguments,
    #[command(flatten)]
    pub triggers: TriggerArguments,
    /// Drop calls that are shorter than this and contain no recorded call, such as 500ns; up to
    /// 100ms
    ///
    /// The rings then cover a longer time. Dropped calls are counted for each function; `everycall
    /// info` shows the counts.
    #[arg(long, value_name = "TIME", value_parser = min_duration)]
    pub min_duration: Option<u64>,
    /// Which events get a time of their own; the others are cheaper, and their times have bounds
    ///
    /// Reading the clock is most of what an event costs. The order of events, their number and how
    /// calls nest are exact in any case. `report`, `replay` and exports say how far durations may
    /// be from what they show.
    #[arg(long, value_enum, value_name = "TIMES")]
    pub clock: Option<EventTimes>,
    /// Keep the cost of tracing below this share of the program's CPU time, such as 3%
    ///
    /// The runtime measures what an event costs and switches off the functions that are called
    /// most, while the program runs, until the rest fits, and on again when the load falls.
    /// `everycall info` and the timeline show what was off, and when.
    #[arg(long, value_name = "SHARE", value_parser = budget, allow_hyphen_values = true)]
    pub budget: Option<String>,
    /// Record when the kernel ran each thread, when it was preempted and when it waited
    ///
    /// As root, with who woke it. Others need no privileges where `sysctl
    /// kernel.perf_event_paranoid` is at most 2. Costs nothing while no thread is switched.
    /// `everycall info` says what was recorded, and why if nothing was.
    #[arg(long, value_enum, value_name = "SOURCE", num_args = 0..=1, require_equals = true, default_missing_value = "best")]
    pub states: Option<StateSource>,
    /// Record counters of each process: memory, page faults, context switches, CPU time
    ///
    /// They are read every 10 ms, or as often as INTERVAL says, by the recorder and not by the
    /// program, and need no privileges. Viewers draw a curve for each.
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true, default_missing_value = "10ms",
        value_parser = counters)]
    pub counters: Option<u64>,
    /// Sample the threads' stacks, so that time between traced calls has names, too: of libraries
    /// without hooks, inlined functions, page faults and system calls
    ///
    /// RATE samples in each second in which a thread runs, from 10 to 10000 [default: 1000], by
    /// perf_event_open. Needs no privileges where `sysctl kernel.perf_event_paranoid` is at most 2;
    /// the kernel's code is sampled for root, or where it is at most 1. `everycall report` shows
    /// the samples below each function's own time, `everycall info` how many there are.
    #[arg(long, value_name = "RATE", num_args = 0..=1, require_equals = true, default_missing_value = "1000",
        value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub samples: Option<u32>,
    /// Record calls that wait, and what they wait for
    ///
    /// Locks that another thread holds, with its id; condition variables, semaphores, joins; reads,
    /// writes, polls, accepts, connects, sleeps, with their descriptors. They appear as calls of
    /// the C library's functions. A library is loaded into the program for it (LD_PRELOAD), so the
    /// program must not be linked statically.
    #[arg(long)]
    pub waits: bool,
    /// Record what the program writes to its standard output and error, with its text
    ///
    /// The lines appear where they were written. The streams stay what they are. A library is
    /// loaded into the program for it (LD_PRELOAD), so the program must not be linked statically.
    #[arg(long)]
    pub with_output: bool,
    /// Record the lines that the program adds to its log file meanwhile; repeatable
    ///
    /// With a format as for strftime, lines are placed by the times that they begin with: --log
    /// 'app.log:%Y-%m-%d %H:%M:%S%.f'. Without, they are placed when they are found in the file,
    /// some milliseconds after they were written.
    #[arg(long, value_name = "FILE[:TIME FORMAT]", value_parser = log_choice)]
    pub log: Vec<LogChoice>,
    #[command(flatten)]
    pub embed: EmbedChoice,
    /// Counts kept of calls that aren't recorded; set by `count`.
    #[arg(skip)]
    pub only_counts: Option<Counting>,
    /// Load the runtime into an untraced program, for traced plugins that it loads
    #[arg(long)]
    pub preload: bool,
    /// The program has no traced functions itself, but starts a traced program
    #[arg(long)]
    pub launcher: bool,
    /// Record only the program itself; its child processes are listed, but not traced
    #[arg(long)]
    pub no_follow: bool,
    /// Wait for all recorded processes, not only for the program
    #[arg(long, conflicts_with = "no_follow")]
    pub wait: bool,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// A log file whose lines are recorded.
#[derive(Clone, Debug)]
pub struct LogChoice {
    /// The file.
    pub path: PathBuf,
    /// How its lines begin.
    pub format: Option<String>,
}

/// The file, and the format behind the first colon that a percent sign follows.
fn log_choice(text: &str) -> Result<LogChoice, String> {
    let mut colons = text.match_indices(':').map(|(at, _)| at);
    let split = colons.rfind(|at| text[at + 1..].contains('%')).filter(|at| *at > 0);
    // A format contains colons itself: the file ends at the first one before a percent sign.
    let first = text.find('%').and_then(|percent| text[..percent].rfind(':')).filter(|at| *at > 0);
    let Some(at) = split.and(first) else {
        return if text.is_empty() {
            Err("name the file".to_owned())
        } else {
            Ok(LogChoice { path: text.into(), format: None })
        };
    };
    let format = &text[at + 1..];
    crate::recording::log_format::check_format(format)?;
    Ok(LogChoice { path: text[..at].into(), format: Some(format.to_owned()) })
}

/// Where thread states come from.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum StateSource {
    /// The one that tells most
    Best,
    /// An own instance of tracefs: also who woke a thread, and when; for root
    Tracefs,
    /// Both: switches of perf_event_open, wake-ups of tracefs; for kernels whose tracefs lacks
    /// switches
    #[value(name = "perf+tracefs")]
    Joined,
    /// perf_event_open
    Perf,
    /// Samples of /proc: only waiting for longer than a millisecond; for containers and others
    /// where both are closed
    Schedstat,
}

impl From<StateSource> for everycall_recorder::StatesFrom {
    fn from(source: StateSource) -> Self {
        match source {
            StateSource::Best => Self::Best,
            StateSource::Tracefs => Self::Tracefs,
            StateSource::Joined => Self::Joined,
            StateSource::Perf => Self::Perf,
            StateSource::Schedstat => Self::Schedstat,
        }
    }
}

/// Nanoseconds: files of less time are as many as the recorder's looks.
const FILE_AGE_MIN: u64 = 100_000_000;

pub(super) fn ring_size(text: &str) -> Result<u64, String> {
    parse_ring_size(text.as_bytes()).ok_or_else(|| format!("write {RING_SIZE_ALLOWED}"))
}

/// How long a file goes on.
fn file_age(text: &str) -> Result<u64, String> {
    let time = parse_time(text).map_err(|error| error.to_string())?;
    if time < FILE_AGE_MIN {
        return Err("write a time of 100ms at least, such as 10s or 5m".to_owned());
    }
    Ok(time)
}

/// From which duration on calls are recorded.
fn min_duration(text: &str) -> Result<u64, String> {
    dropped::parse(text.as_bytes()).ok_or_else(|| {
        let too_long = parse_time(text).is_ok();
        let why = if too_long { "that is longer than 100ms; " } else { "" };
        format!("{why}write {}, as in: everycall record --min-duration 500ns ./app", dropped::ALLOWED)
    })
}

/// The time between two samples of counters.
fn counters(text: &str) -> Result<u64, String> {
    const ALLOWED: std::ops::RangeInclusive<u64> = 1_000_000..=60_000_000_000;
    if text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err(cpu_counters(Path::new("/sys/bus/event_source/devices")));
    }
    let time = parse_time(text).map_err(|error| error.to_string())?;
    Some(time).filter(|time| ALLOWED.contains(time)).ok_or_else(|| {
        "counters are read every 1ms at most, and every 60s at least, as in: everycall record --counters=10ms ./app".to_owned()
    })
}

/// Why the CPU's counters aren't recorded. `devices` has what the kernel counts with.
fn cpu_counters(devices: &Path) -> String {
    let has_one = ["cpu", "cpu_core"].iter().any(|name| devices.join(name).is_dir());
    let why = if has_one {
        "this version doesn't record the CPU's own counters, such as cycles; `perf stat` counts them for a whole program"
    } else {
        "the CPU's own counters, such as cycles, need a CPU whose counters the kernel can use (/sys/bus/event_source/devices/cpu), \
        and this machine has none, as most virtual machines"
    };
    format!("{why}; `--counters` records memory, page faults, context switches and CPU time")
}

/// Checks the permitted cost of tracing. The program itself parses the text.
pub(super) fn budget(text: &str) -> Result<String, String> {
    match everycall_format::budget::parse(text.as_bytes()) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!(
            "write {}, as in: everycall record --budget 3% ./app",
            everycall_format::budget::ALLOWED
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On machines whose kernel has the CPU's counters, and on those where it hasn't.
    #[test]
    fn the_cpus_own_counters_are_refused_with_the_reason() {
        let devices = std::env::temp_dir().join(format!("everycall-devices-{}", std::process::id()));
        std::fs::create_dir_all(&devices).unwrap();
        let without = cpu_counters(&devices);
        std::fs::create_dir(devices.join("cpu_core")).unwrap();
        let with = cpu_counters(&devices);
        std::fs::remove_dir_all(&devices).unwrap();
        assert!(without.contains("this machine has none") && !without.contains("this version"), "{without}");
        assert!(with.contains("this version doesn't record") && !with.contains("machine"), "{with}");
        for said in [without, with] {
            assert!(
                said.ends_with("`--counters` records memory, page faults, context switches and CPU time")
            );
        }
    }
}
