//! A trace file, opened, as the outputs want it: the timeline with pairings checked by symbols.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use everycall_export::{self as export, Source as _, TraceSource};
use everycall_messages::say;
use everycall_reader::{KeptCall, Reason, Source as _, TraceFile};
use everycall_timeline::{
    Location, Mark, MarkKind, MarkName, ThreadEvents, ThreadInfo, TimelineEvent, Trace,
};
use rustix::fs::OFlags;

use crate::crash_file;
use crate::failure::Failure;
use crate::symbol_names::SymbolNames;

/// Opens a trace file or a crash file.
pub fn open(path: &Path) -> Result<TraceFile<'static>, Failure> {
    let unreadable = |error: io::Error| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "ask its owner for it: traces are private unless their owner shares them"
            }
            _ => "name a trace file that is there",
        };
        Failure::of(path, format!("can't be read: {error}; {advice}"))
    };
    // Whoever reads a trace writes something next.
    everycall_recorder::outlive_size_limit();
    let mut file = open_at_once(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(Failure::of(path, "is not a regular file; name a trace file made by `everycall record`"));
    }
    let file = crash_file::trace_of(&mut file, path)?.unwrap_or(file);
    TraceFile::open(file).map_err(|error| Failure::of(path, error))
}

/// Opens a file for reading; a FIFO that nobody writes to doesn't keep us waiting.
pub fn open_at_once(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// Leaves the moment of kept call `number` in a file, counted from 1; without a number, everything but such moments, unless there is nothing else
/// than one.
pub fn select(file: &mut TraceFile<'static>, number: Option<usize>, path: &Path) -> Result<(), Failure> {
    let kept = &file.recording().kept;
    let Some(number) = number else {
        let is_moment = matches!(&file.recording().snapshots[..], [only] if only.reason == Reason::Trigger);
        file.select_snapshots(|snapshot| is_moment || snapshot.reason != Reason::Trigger);
        return Ok(());
    };
    let Some(wanted) = number.checked_sub(1).and_then(|index| kept.get(index)).map(|kept| kept.snapshot)
    else {
        let there = match kept.len() {
            0 => "no calls were kept; `everycall record --trigger` keeps them".to_owned(),
            count => format!("its kept calls have numbers from 1 to {count}; `everycall info` lists them"),
        };
        return Err(Failure::of(path, there));
    };
    file.select_snapshots(|snapshot| snapshot.number == wanted);
    Ok(())
}

/// The timeline of an opened file.
pub fn trace<'a>(file: &'a TraceFile<'static>, path: &Path) -> Result<Trace<'a>, Failure> {
    Trace::open(file).map_err(|error| Failure::of(path, error))
}

/// Says what is damaged or missing in a trace.
pub fn warn(trace: &Trace<'_>, path: &Path) {
    for warning in trace.warnings() {
        say!("everycall: {}: {warning}", path.display());
    }
}

/// Says why an output is empty: people wonder.
pub fn explain_emptiness(
    summary: &export::Summary,
    filter: &export::Filter,
    view: &TraceView<'_>,
    trace: &Path,
) {
    if summary.slices > 0 {
        return;
    }
    let trace = trace.display();
    if let Some(label) = &filter.label
        && !view.has_label(&label.name)
    {
        say!("everycall: no label in {trace} is called {}; `everycall info {trace}` lists them", label.name);
    } else if (0..view.threads().len()).any(|thread| view.timeline(thread).next().is_some()) {
        say!("everycall: no call in {trace} passes the filter; leave out some of its options");
    } else {
        say!("everycall: {trace} holds no calls; `everycall info {trace}` tells what was recorded");
    }
}

/// The timeline, whose pairings the symbols may veto, with the jumps that the code tells. Calls that triggers kept have a label that says
/// so, with the number that `--kept` takes.
pub struct TraceView<'t> {
    trace: &'t Trace<'t>,
    source: TraceSource<'t>,
    names: &'t SymbolNames<'t>,
    /// By index of a thread in the trace.
    kept: Vec<Vec<KeptAt>>,
}

/// The name of the label of kept calls.
const KEPT: &str = "kept call";
/// Its number, which no name of the program's has.
const KEPT_NAME: MarkName = MarkName(u32::MAX);

/// Where a kept call begins.
struct KeptAt {
    start_ns: u64,
    location: Location,
    number: u64,
}

fn kept_of(trace: &Trace<'_>, thread: &ThreadInfo) -> Vec<KeptAt> {
    let is_here = |call: &KeptCall| {
        call.process == thread.process && (call.tid == thread.tid || thread.fiber.is_some())
    };
    let kept = trace.kept_calls().iter().zip(1..).filter(|(call, _)| is_here(call));
    kept.filter_map(|(call, number)| {
        let location = trace.locate(call.process, call.offset?, call.start_ticks);
        Some(KeptAt { start_ns: trace.clock().ns(call.start_ticks), location, number })
    })
    .collect()
}

/// A thread's events, with the labels of its kept calls.
struct WithKept<'v, I> {
    events: I,
    kept: &'v [KeptAt],
    label: Option<Mark>,
}

impl<I: Iterator<Item = TimelineEvent>> Iterator for WithKept<'_, I> {
    type Item = TimelineEvent;

    fn next(&mut self) -> Option<TimelineEvent> {
        if let Some(label) = self.label.take() {
            return Some(TimelineEvent::Mark(label));
        }
        let event = self.events.next()?;
        if !self.kept.is_empty()
            && let TimelineEvent::Begin(begin) = &event
        {
            let is_it = |kept: &&KeptAt| (kept.start_ns, kept.location) == (begin.start_ns, begin.location);
            self.label = self.kept.iter().find(is_it).map(|kept| Mark {
                at_ns: begin.start_ns,
                name: KEPT_NAME,
                value: Some(kept.number),
                kind: MarkKind::Label,
            });
        }
        Some(event)
    }
}

impl<'t> TraceView<'t> {
    /// A view of `trace` with names from `names`.
    pub fn new(trace: &'t Trace<'t>, names: &'t SymbolNames<'t>) -> TraceView<'t> {
        let kept = trace.threads().iter().map(|thread| kept_of(trace, thread)).collect();
        TraceView { trace, source: TraceSource::new(trace, None), names, kept }
    }

    /// Whether any label has this name.
    pub fn has_label(&self, name: &str) -> bool {
        name == KEPT && self.kept.iter().any(|kept| !kept.is_empty())
            || self.trace.mark_names().all().iter().any(|named| named.labels > 0 && named.name == name)
    }

    /// The timeline of the thread with this index in the trace.
    pub fn timeline(&self, thread: usize) -> ThreadEvents<'_> {
        self.trace.thread_events_checked(thread, Some(self.names))
    }
}

impl export::Source for TraceView<'_> {
    fn processes(&self) -> &[export::Process] {
        self.source.processes()
    }

    fn threads(&self) -> &[export::Thread] {
        self.source.threads()
    }

    fn end_ns(&self) -> u64 {
        self.source.end_ns()
    }

    fn last_event_ns(&self) -> u64 {
        self.source.last_event_ns()
    }

    fn mark_name(&self, name: export::MarkName) -> &str {
        if name == KEPT_NAME { KEPT } else { self.source.mark_name(name) }
    }

    fn origin_realtime_ns(&self) -> Option<u64> {
        self.source.origin_realtime_ns()
    }

    fn events(&self, thread: usize) -> impl Iterator<Item = export::TimelineEvent> {
        let index = self.source.index(thread).unwrap_or(usize::MAX);
        WithKept {
            events: self.timeline(index),
            kept: self.kept.get(index).map_or(&[], Vec::as_slice),
            label: None,
        }
    }
}
