//! A trace file, opened, as the outputs want it: the timeline with pairings checked by symbols.

use std::fs::File;
use std::io;
use std::path::Path;

use everycall_export as export;
use everycall_reader::TraceFile;
use everycall_timeline::{Location, ThreadEvents, Trace};

use crate::exit_code;
use crate::failure::Failure;
use crate::symbol_names::SymbolNames;

/// Opens a trace file, and says what is damaged in it.
pub fn open(path: &Path) -> Result<TraceFile<'static>, Failure> {
    let failed = |reason: String| Failure::new(exit_code::FAILED, format!("{}: {reason}", path.display()));
    let unreadable = |error: io::Error| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "ask its owner for it: traces are private unless their owner shares them"
            }
            _ => "name a trace file that is there",
        };
        failed(format!("can't be read: {error}; {advice}"))
    };
    // Whoever reads a trace writes something next.
    everycall_recorder::outlive_size_limit();
    let file = File::open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(failed("is not a regular file; name a trace file made by `everycall record`".to_owned()));
    }
    TraceFile::open(file).map_err(|error| failed(error.to_string()))
}

/// The timeline of an opened file.
pub fn trace<'a>(file: &'a TraceFile<'static>, path: &Path) -> Result<Trace<'a>, Failure> {
    Trace::open(file).map_err(|error| Failure::new(exit_code::FAILED, format!("{}: {error}", path.display())))
}

/// Says what is damaged or missing in a trace.
pub fn warn(trace: &Trace<'_>, path: &Path) {
    for warning in trace.warnings() {
        eprintln!("everycall: {}: {warning}", path.display());
    }
}

/// The timeline, whose pairings the symbols may veto.
pub struct TraceView<'t> {
    trace: &'t Trace<'t>,
    process_name: String,
    threads: Vec<export::Thread>,
    same_function: Box<dyn Fn(Location, Location) -> Option<bool> + 't>,
}

impl<'t> TraceView<'t> {
    /// A view of `trace` with names from `names`.
    pub fn new(trace: &'t Trace<'t>, names: &'t SymbolNames<'t>) -> TraceView<'t> {
        let threads = trace
            .threads()
            .iter()
            .map(|thread| export::Thread { pid: thread.pid, tid: thread.tid, name: thread.name.clone() })
            .collect();
        TraceView {
            trace,
            process_name: process_name(trace),
            threads,
            same_function: Box::new(|entry, exit| names.same_function(entry, exit)),
        }
    }

    /// The timeline of one thread.
    pub fn timeline(&self, thread: usize) -> ThreadEvents<'_> {
        self.trace.thread_events_checked(thread, Some(&*self.same_function))
    }
}

/// The program's name, without its folder.
fn process_name(trace: &Trace<'_>) -> String {
    let program = trace.meta().arguments.first().map(|word| String::from_utf8_lossy(word).into_owned());
    let program = program.unwrap_or_else(|| "program".to_owned());
    program.rsplit('/').next().unwrap_or(&program).to_owned()
}

impl export::Source for TraceView<'_> {
    fn process_name(&self) -> &str {
        &self.process_name
    }

    fn threads(&self) -> &[export::Thread] {
        &self.threads
    }

    fn end_ns(&self) -> u64 {
        end_ns(self.trace)
    }

    fn origin_realtime_ns(&self) -> Option<u64> {
        self.trace.clock().origin_realtime_ns()
    }

    fn events(&self, thread: usize) -> impl Iterator<Item = export::TimelineEvent> {
        self.timeline(thread).map(convert::event)
    }
}

/// The latest moment that the trace knows of, in nanoseconds since its origin.
pub fn end_ns(trace: &Trace<'_>) -> u64 {
    let clock = trace.clock();
    let taken = trace.snapshots().iter().filter_map(|snapshot| snapshot.ticks).map(|ticks| clock.ns(ticks));
    let reached = trace.threads().iter().filter_map(|thread| thread.reach).map(|(_, last)| last);
    taken.chain(reached).max().unwrap_or(0)
}

/// The exporter's own words for what the timeline says.
mod convert {
    use everycall_export as export;
    use everycall_timeline as timeline;

    pub fn location(location: timeline::Location) -> export::Location {
        export::Location { module: location.module, image_address: location.image_address }
    }

    #[inline]
    pub fn event(event: timeline::TimelineEvent) -> export::TimelineEvent {
        match event {
            timeline::TimelineEvent::Begin(begin) => export::TimelineEvent::Begin(export::Begin {
                depth: begin.depth,
                location: location(begin.location),
                start_ns: begin.start_ns,
                cut: begin.cut,
            }),
            timeline::TimelineEvent::End(end) => export::TimelineEvent::End(export::End {
                depth: end.depth,
                location: location(end.location),
                start_ns: end.start_ns,
                end_ns: end.end_ns,
                how: end_kind(end.how),
                start_cut: end.start_cut,
            }),
            timeline::TimelineEvent::Loss(loss) => export::TimelineEvent::Loss(export::Loss {
                at_ns: loss.at_ns,
                count: loss.count,
                why: loss_kind(loss.why),
            }),
            timeline::TimelineEvent::Instant(instant) => export::TimelineEvent::Instant(export::Instant {
                at_ns: instant.at_ns,
                kind: match instant.kind {
                    timeline::InstantKind::OrphanExit(at) => export::InstantKind::OrphanExit(location(at)),
                    timeline::InstantKind::UnmatchedExit(at) => {
                        export::InstantKind::UnmatchedExit(location(at))
                    }
                },
            }),
        }
    }

    fn end_kind(how: timeline::EndKind) -> export::EndKind {
        match how {
            timeline::EndKind::Returned => export::EndKind::Returned,
            timeline::EndKind::Unwound => export::EndKind::Unwound,
            timeline::EndKind::CutAtEnd => export::EndKind::CutAtEnd,
            timeline::EndKind::CutAtLoss => export::EndKind::CutAtLoss,
            timeline::EndKind::ExitLost => export::EndKind::ExitLost,
        }
    }

    fn loss_kind(why: timeline::LossKind) -> export::LossKind {
        match why {
            timeline::LossKind::Hole => export::LossKind::Hole,
            timeline::LossKind::Busy => export::LossKind::Busy,
            timeline::LossKind::Segments => export::LossKind::Segments,
            timeline::LossKind::Other(number) => export::LossKind::Other(number),
        }
    }
}
