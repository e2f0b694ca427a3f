//! Calls per thread and function, of a trace and of the oracle.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use everycall_reader::TraceFile;
use everycall_timeline::{EndKind, InstantKind, Location, ThreadInfo, TimelineEvent, Trace};

use super::compact::words_come_back;
use super::functions::FunctionTable;

/// Counts of one function's events in one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionCounts {
    /// Entries.
    pub entries: u64,
    /// Exits, including orphan exits.
    pub exits: u64,
    /// Calls that were left without an exit. The oracle doesn't know.
    pub unwound: u64,
    /// Calls that hadn't ended. The oracle doesn't know.
    pub open: u64,
    /// Orphan exits. The oracle doesn't know them.
    pub orphans: u64,
}

/// One thread's functions by name.
#[derive(Clone, Debug, Default)]
pub struct ThreadCounts {
    /// Kernel thread id.
    pub tid: u32,
    /// From the trace; empty from the oracle.
    pub name: String,
    /// By name.
    pub functions: BTreeMap<String, FunctionCounts>,
}

impl ThreadCounts {
    /// Entries and exits alone, for comparison.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<&str, (u64, u64)> {
        self.functions.iter().map(|(name, counts)| (&**name, (counts.entries, counts.exits))).collect()
    }

    /// Everything added up.
    #[must_use]
    pub fn total(&self) -> FunctionCounts {
        let mut total = FunctionCounts::default();
        for counts in self.functions.values() {
            total.entries += counts.entries;
            total.exits += counts.exits;
            total.unwound += counts.unwound;
            total.open += counts.open;
            total.orphans += counts.orphans;
        }
        total
    }
}

/// A trace's threads and what there is to say of it.
#[derive(Clone, Debug)]
pub struct TraceCounts {
    /// Threads in the order of their ids.
    pub threads: Vec<ThreadCounts>,
    /// The trace's values, in the same order.
    pub infos: Vec<ThreadInfo>,
    /// The reader's warnings.
    pub warnings: Vec<String>,
    /// Calls that ended or were truncated: lines of `replay`, slices of exports.
    pub slices: u64,
    /// Begun calls whose entry is missing.
    pub cut_at_start: u64,
    /// Entries of functions outside the program.
    pub elsewhere: u64,
}

/// A name for code in an untraced library: `__cyg_profile` hooks of an inlined call get the address
/// of the original function. Libraries are at other pages in every run, and at the same offset in
/// their pages.
fn elsewhere(address: u64) -> String {
    format!("elsewhere at {:#x} of a page", address % 4096)
}

/// Counts a trace's calls by the symbols of `program`, the only module of the trace that is traced.
///
/// # Panics
/// Where the trace can't be read, its slices don't nest, or a call in the program lies in no
/// function.
#[must_use]
pub fn of_trace(file: &Path, program: &Path) -> TraceCounts {
    let table = FunctionTable::read(program);
    let file = TraceFile::open(File::open(file).expect("the trace opens")).expect("the trace is one");
    words_come_back(&file);
    let trace = Trace::open(file).expect("the trace is readable");
    let mut infos = trace.threads().to_vec();
    infos.sort_by_key(|info| info.tid);
    let warnings = trace.warnings().iter().map(ToString::to_string).collect();
    let mut all =
        TraceCounts { threads: Vec::new(), infos, warnings, slices: 0, cut_at_start: 0, elsewhere: 0 };
    for info in all.infos.clone() {
        let mut by_location: BTreeMap<Location, FunctionCounts> = BTreeMap::new();
        let mut open: Vec<(Location, u64)> = Vec::new();
        let mut latest_ns = 0;
        for event in trace.thread_events(info.index) {
            assert!(event.at_ns() >= latest_ns, "time goes back in {info:?}");
            latest_ns = event.at_ns();
            match event {
                TimelineEvent::Begin(begin) => {
                    assert_eq!(begin.depth as usize, open.len());
                    open.push((begin.location, begin.start_ns));
                    let counts = by_location.entry(begin.location).or_default();
                    counts.entries += u64::from(!begin.cut);
                    all.cut_at_start += u64::from(begin.cut);
                }
                TimelineEvent::End(end) => {
                    assert_eq!(open.pop(), Some((end.location, end.start_ns)), "slices nest");
                    all.slices += 1;
                    let counts = by_location.entry(end.location).or_default();
                    match end.how {
                        EndKind::Returned | EndKind::Jumped | EndKind::ReturnedAfterGap => counts.exits += 1,
                        EndKind::Unwound | EndKind::UnwoundLate => counts.unwound += 1,
                        EndKind::TruncatedAtEnd => counts.open += 1,
                        EndKind::TruncatedAtLoss | EndKind::TruncatedAtGap | EndKind::ExitLost => {}
                    }
                }
                TimelineEvent::Instant(instant) => {
                    let (InstantKind::OrphanExit(location) | InstantKind::InferredOrphanExit(location)) =
                        instant.kind;
                    let counts = by_location.entry(location).or_default();
                    counts.exits += 1;
                    counts.orphans += 1;
                }
                TimelineEvent::Loss(_)
                | TimelineEvent::Mark(_)
                | TimelineEvent::Returned(_)
                | TimelineEvent::Gap(_)
                | TimelineEvent::Untraced(_)
                | TimelineEvent::Unstamped(_) => {}
            }
        }
        assert!(open.is_empty(), "every begin has an end");
        let mut thread = ThreadCounts { tid: info.tid, name: info.name.clone(), functions: BTreeMap::new() };
        for (location, counts) in by_location {
            assert_ne!(location.module, Location::LOST_MODULE, "a call at {location:x?}");
            let module = location.module_index().map(|index| &trace.modules()[index]);
            let is_ours = module.is_some_and(|module| Path::new(&*module.path_lossy()) == program);
            let name = if is_ours {
                let name = table.at(location.image_address);
                name.unwrap_or_else(|| panic!("a call at {location:x?}, in no function")).to_owned()
            } else {
                all.elsewhere += counts.entries;
                elsewhere(location.image_address)
            };
            let sum = thread.functions.entry(name).or_default();
            sum.entries += counts.entries;
            sum.exits += counts.exits;
            sum.unwound += counts.unwound;
            sum.open += counts.open;
            sum.orphans += counts.orphans;
        }
        all.threads.push(thread);
    }
    all
}

/// Counts what the oracle, linked into `program`, wrote to `file`; threads in the order of their
/// ids.
///
/// # Panics
/// Where the file isn't the oracle's, or a call lies in no function.
#[must_use]
pub fn of_oracle(file: &Path, program: &Path) -> Vec<ThreadCounts> {
    let table = FunctionTable::read(program);
    let text = std::fs::read_to_string(file).expect("the oracle's counts");
    let mut threads: BTreeMap<u32, ThreadCounts> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [tid, module, address, entries, exits] = fields[..] else { panic!("{line:?}") };
        let tid = tid.parse().expect("a thread id");
        let address = u64::from_str_radix(address, 16).expect("an address");
        let name = match module {
            "?" => elsewhere(address),
            _ => table.at(address).unwrap_or_else(|| panic!("a call in no function: {line}")).to_owned(),
        };
        let thread = threads.entry(tid).or_insert_with(|| ThreadCounts { tid, ..ThreadCounts::default() });
        let sum = thread.functions.entry(name).or_default();
        sum.entries += entries.parse::<u64>().expect("a number");
        sum.exits += exits.parse::<u64>().expect("a number");
    }
    threads.into_values().collect()
}
