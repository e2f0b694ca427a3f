//! A trace as call trees and counts by function name.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use everycall_reader::{KeptCall, Process, TraceFile};
use everycall_symbols::{ModuleIdentity, ModuleSymbols, SymbolOptions};
use everycall_timeline::{Code, EndKind, Location, ThreadInfo, TimelineEvent, Trace};

/// A call with the calls inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Demangled name.
    pub name: String,
    /// How it ended.
    pub how: EndKind,
    /// Whether its entry is missing.
    pub start_cut: bool,
    /// Whether its caller is uncertain.
    pub caller_unsure: bool,
    /// From, in nanoseconds since the trace's origin.
    pub start_ns: u64,
    /// To, likewise.
    pub end_ns: u64,
    /// In the order of time.
    pub inside: Vec<Call>,
}

impl Call {
    /// The tree in one line: `main(f(g) f)`.
    #[must_use]
    pub fn text(&self) -> String {
        let inside: Vec<String> = self.inside.iter().map(Call::text).collect();
        let mark = match self.how {
            EndKind::Returned | EndKind::Jumped | EndKind::ReturnedAfterGap => "",
            EndKind::Unwound | EndKind::UnwoundLate => "!",
            EndKind::TruncatedAtEnd => "~",
            EndKind::TruncatedAtLoss | EndKind::TruncatedAtGap | EndKind::ExitLost => "?",
        };
        if inside.is_empty() {
            format!("{}{mark}", self.name)
        } else {
            format!("{}{mark}({})", self.name, inside.join(" "))
        }
    }
}

/// Calls, one beside the other: `f(g) f`.
#[must_use]
pub fn text(calls: &[Call]) -> String {
    calls.iter().map(Call::text).collect::<Vec<_>>().join(" ")
}

/// All calls, outer ones first.
#[must_use]
pub fn all(calls: &[Call]) -> Vec<&Call> {
    calls.iter().flat_map(|call| [vec![call], all(&call.inside)].concat()).collect()
}

/// Names of the calls that may not be called by the ones around them.
#[must_use]
pub fn unsure(calls: &[Call]) -> Vec<&str> {
    all(calls).iter().filter(|call| call.caller_unsure).map(|call| call.name.as_str()).collect()
}

/// Counts of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries that are in the trace.
    pub entries: u64,
    /// Calls that ended by their exit.
    pub exits: u64,
}

/// One thread of a trace.
#[derive(Clone, Debug)]
pub struct ThreadTrace {
    /// As stored in the trace.
    pub info: ThreadInfo,
    /// Its outermost calls.
    pub calls: Vec<Call>,
    /// By function.
    pub tallies: BTreeMap<String, Tally>,
    /// Events known to be missing.
    pub losses: u64,
    /// Orphan exits.
    pub orphans: u64,
    /// The threads that resumed the stack after it had been suspended.
    pub resumed_by: Vec<u32>,
}

/// A decoded trace.
#[derive(Clone, Debug)]
pub struct TraceView {
    /// Its threads.
    pub threads: Vec<ThreadTrace>,
    /// The reader's warnings.
    pub warnings: Vec<String>,
    /// The runtime's counts.
    pub counters: Vec<u64>,
    /// Children that were listed.
    pub children: usize,
    /// Its processes.
    pub processes: Vec<Process>,
}

impl ThreadTrace {
    /// The call that began at `start_ns`, wherever it is.
    #[must_use]
    pub fn call_at(&self, name: &str, start_ns: u64) -> Option<&Call> {
        fn find<'c>(calls: &'c [Call], name: &str, start_ns: u64) -> Option<&'c Call> {
            calls.iter().find_map(|call| {
                let is_it = call.name == name && call.start_ns == start_ns;
                if is_it { Some(call) } else { find(&call.inside, name, start_ns) }
            })
        }
        find(&self.calls, name, start_ns)
    }
}

impl TraceView {
    /// Decodes a whole trace. It stores trees, so this is for small traces; see
    /// [`TraceView::tallies_only`].
    ///
    /// # Panics
    /// Where the file can't be read.
    #[must_use]
    pub fn open(path: &Path) -> TraceView {
        Self::decode(path, true)
    }

    /// Decodes a trace without keeping its trees.
    ///
    /// # Panics
    /// Where the file can't be read.
    #[must_use]
    pub fn tallies_only(path: &Path) -> TraceView {
        Self::decode(path, false)
    }

    /// Decodes the snapshot of a kept call: the view, and when the call began and ended, in
    /// nanoseconds since the origin.
    ///
    /// # Panics
    /// Where the file can't be read.
    #[must_use]
    pub fn moment(path: &Path, kept: &KeptCall) -> (TraceView, u64, u64) {
        let mut file = TraceFile::open(File::open(path).expect("the trace opens")).expect("the trace is one");
        file.select_snapshots(|snapshot| snapshot.number == kept.snapshot);
        let trace = Trace::open(&file).expect("the trace is readable");
        let (begin, end) = (trace.clock().ns(kept.start_ticks), trace.clock().ns(kept.end_ticks));
        drop(trace);
        (Self::of_file(file, true), begin, end)
    }

    /// The names of the functions of all kept calls, without parameters.
    ///
    /// # Panics
    /// Where the file can't be read.
    #[must_use]
    pub fn kept_functions(path: &Path) -> Vec<String> {
        let file = TraceFile::open(File::open(path).expect("the trace opens")).expect("the trace is one");
        let trace = Trace::open(&file).expect("the trace is readable");
        let mut names = Names::of(&trace);
        let name_of = |call: &KeptCall| {
            let location = trace.locate(call.process, call.offset?, call.start_ticks);
            let name = names.of_location(location);
            Some(name.split('(').next().unwrap_or(&name).to_owned())
        };
        trace.kept_calls().iter().map(name_of).map(Option::unwrap_or_default).collect()
    }

    fn decode(path: &Path, trees: bool) -> TraceView {
        let file = TraceFile::open(File::open(path).expect("the trace opens")).expect("the trace is one");
        Self::of_file(file, trees)
    }

    fn of_file(file: TraceFile<'_>, trees: bool) -> TraceView {
        let trace = Trace::open(file).expect("the trace is readable");
        let names = RefCell::new(Names::of(&trace));
        let name_of = |location| names.borrow_mut().of_location(location);
        let certain = Certain(&names);
        let code: Option<&dyn Code> = if trees { Some(&certain) } else { None };
        let mut threads = Vec::new();
        for info in trace.threads() {
            let mut thread = ThreadTrace {
                info: info.clone(),
                calls: Vec::new(),
                tallies: BTreeMap::new(),
                losses: info.losses,
                orphans: 0,
                resumed_by: Vec::new(),
            };
            // The calls that are open, each with those inside it that have ended.
            let mut open: Vec<(Vec<Call>, bool)> = vec![(Vec::new(), false)];
            for event in trace.thread_events_checked(info.index, code) {
                match event {
                    TimelineEvent::Begin(begin) => {
                        if !begin.cut {
                            thread.tallies.entry(name_of(begin.location)).or_default().entries += 1;
                        }
                        open.push((Vec::new(), begin.caller_unsure));
                    }
                    TimelineEvent::End(end) => {
                        let name = name_of(end.location);
                        if end.how == EndKind::Returned {
                            thread.tallies.entry(name.clone()).or_default().exits += 1;
                        }
                        let (inside, caller_unsure) = open.pop().expect("ends follow begins");
                        let (around, _) = open.last_mut().expect("ends follow begins");
                        if trees {
                            let (start_ns, end_ns) = (end.start_ns, end.end_ns);
                            around.push(Call {
                                name,
                                how: end.how,
                                start_cut: end.start_cut,
                                caller_unsure,
                                start_ns,
                                end_ns,
                                inside,
                            });
                        }
                    }
                    TimelineEvent::Loss(_)
                    | TimelineEvent::Mark(_)
                    | TimelineEvent::Returned(_)
                    | TimelineEvent::Untraced(_)
                    | TimelineEvent::Unstamped(_) => {}
                    TimelineEvent::Gap(gap) => thread.resumed_by.extend(gap.resumed_by),
                    TimelineEvent::Instant(_) => thread.orphans += 1,
                }
            }
            assert_eq!(open.len(), 1, "every begin has an end");
            thread.calls = open.remove(0).0;
            threads.push(thread);
        }
        TraceView {
            threads,
            warnings: trace.warnings().iter().map(ToString::to_string).collect(),
            counters: trace
                .snapshots()
                .first()
                .map(|snapshot| snapshot.counters.to_vec())
                .unwrap_or_default(),
            children: trace.children().len(),
            processes: trace.processes().to_vec(),
        }
    }

    /// All threads' tallies together.
    #[must_use]
    pub fn tallies(&self) -> BTreeMap<String, Tally> {
        let mut all: BTreeMap<String, Tally> = BTreeMap::new();
        for (name, tally) in self.threads.iter().flat_map(|thread| &thread.tallies) {
            let sum = all.entry(name.clone()).or_default();
            sum.entries += tally.entries;
            sum.exits += tally.exits;
        }
        all
    }

    /// Entries of a function in all threads.
    #[must_use]
    pub fn calls(&self, function: &str) -> u64 {
        self.tallies().get(function).map_or(0, |tally| tally.entries)
    }

    /// Events known to be missing.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.threads.iter().map(|thread| thread.losses).sum()
    }

    /// The thread with the lowest tid: the main thread, as long as tids don't wrap.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn main(&self) -> &ThreadTrace {
        self.threads.iter().min_by_key(|thread| thread.info.tid).expect("a thread")
    }
}

/// Only what is certain about pairs of places; no jumps.
struct Certain<'n>(&'n RefCell<Names>);

impl Code for Certain<'_> {
    fn same_function(&self, entry: Location, exit: Location) -> Option<bool> {
        let mut names = self.0.borrow_mut();
        (names.of_location(entry) == names.of_location(exit)).then_some(true)
    }

    fn is_inlined(&self, code: Location, entry: Location, is_callees: bool) -> Option<bool> {
        let names = &mut *self.0.borrow_mut();
        let module = names.module(code)?;
        let id = module.function_at(entry.image_address);
        module.is_inlined_at(code.image_address, id, is_callees)
    }

    fn reports_exits_in_cleanups(&self, code: Location) -> Option<bool> {
        self.0.borrow_mut().module(code)?.is_by_gcc(code.image_address)
    }
}

/// Function names by location.
pub(crate) struct Names {
    /// Which of `files` each module is: one file may be loaded many times, in many processes.
    modules: Vec<usize>,
    files: Vec<ModuleSymbols>,
    known: BTreeMap<Location, String>,
    /// Names of frames by id.
    frames: BTreeMap<Location, String>,
    /// The modules of these.
    frame_modules: BTreeSet<u32>,
}

impl Names {
    pub(crate) fn of(trace: &Trace<'_>) -> Names {
        let mut names = Names {
            modules: Vec::new(),
            files: Vec::new(),
            known: BTreeMap::new(),
            frames: BTreeMap::new(),
            frame_modules: BTreeSet::new(),
        };
        for (module, index) in trace.modules().iter().zip(0..).filter(|(module, _)| module.is_frames()) {
            names.frame_modules.insert(index);
            for frame in trace.frames_of(module).into_iter().flat_map(|frames| &frames.names) {
                let location = Location { module: index, image_address: u64::from(frame.id) * 8 };
                names.frames.insert(location, String::from_utf8_lossy(&frame.name).into_owned());
            }
        }
        let mut by_identity = BTreeMap::new();
        for module in trace.modules() {
            let path = module.path_lossy().into_owned();
            let file = *by_identity.entry((path.clone(), module.build_id.clone())).or_insert_with(|| {
                let identity = ModuleIdentity::new(Path::new(&path), &module.build_id);
                names.files.push(ModuleSymbols::open(&identity, &SymbolOptions::default()));
                names.files.len() - 1
            });
            names.modules.push(file);
        }
        names
    }

    fn module(&mut self, code: Location) -> Option<&mut ModuleSymbols> {
        self.files.get_mut(*self.modules.get(code.module_index()?)?)
    }

    pub(crate) fn of_location(&mut self, location: Location) -> String {
        if let Some(name) = self.known.get(&location) {
            return name.clone();
        }
        if self.frame_modules.contains(&location.module) {
            let name = self.frames.get(&location).cloned();
            return name.unwrap_or_else(|| format!("frame {}", location.image_address / 8));
        }
        let file = location.module_index().and_then(|index| self.modules.get(index));
        let name = match file.and_then(|file| self.files.get_mut(*file)) {
            Some(module) => {
                let id = module.function_at(location.image_address);
                module.function(id).shown_name()
            }
            None => format!("?{:#x}", location.image_address),
        };
        self.known.insert(location, name.clone());
        name
    }
}
