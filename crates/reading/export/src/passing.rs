//! Events that pass a filter, for callers that make an output of their own.

use std::io;

use everycall_timeline::{EndKind, Gap, Location, Mark, ValuesNumber};

use crate::driver::{Export, Sink, run};
use crate::filter::Filter;
use crate::filtered::{Event, PointKind};
use crate::names::Names;
use crate::portions::Portions;
use crate::source::Source;
use crate::summary::Summary;
use everycall_calls::Thread;

/// Receives what passes a filter, thread by thread, in the order of time. Calls nest.
pub trait Receiver {
    /// A thread whose events follow, by its position in [`Source::threads`].
    fn thread(&mut self, index: usize);

    /// A call begins.
    fn begin(&mut self, call: &Beginning);

    /// The result of the innermost call, which ends next.
    fn returned(&mut self, result: ValuesNumber) {
        let _ = result;
    }

    /// The innermost call ends.
    fn end(&mut self, end_ns: u64, how: EndKind);

    /// Time behind the call that ended last, in code that isn't traced; at most so much. `name` is
    /// that code's.
    fn untraced(&mut self, name: &str, at_ns: u64, until_ns: u64) {
        let _ = (name, at_ns, until_ns);
    }

    /// The program said something.
    fn mark(&mut self, mark: &Mark) {
        let _ = mark;
    }

    /// Events were lost: how many, if they were counted.
    fn lost(&mut self, at_ns: u64, count: Option<u64>) {
        let _ = (at_ns, count);
    }

    /// Nothing was recorded.
    fn gap(&mut self, gap: &Gap) {
        let _ = gap;
    }
}

/// The begin of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// An address of its function.
    pub location: Location,
    /// When, in the times of the source.
    pub start_ns: u64,
    /// It began before the recorded range.
    pub cut: bool,
    /// The call around it may not have made it.
    pub caller_unsure: bool,
    /// Its arguments, if they were recorded.
    pub arguments: Option<ValuesNumber>,
    /// The call that ended right before it made it by a tail call, or may have.
    pub by_tail: bool,
}

/// Passes what `filter` shows to `receiver`.
///
/// # Errors
///
/// None at present; the type allows for outputs that fail.
pub fn pass(
    source: &impl Source,
    names: &dyn Names,
    filter: &Filter,
    receiver: &mut dyn Receiver,
) -> io::Result<Summary> {
    let mut nowhere = io::sink();
    run(source, names, filter, &mut |_| {}, &mut Passing { receiver, portions: Portions::new(&mut nowhere) })
}

struct Passing<'r, 'o> {
    receiver: &'r mut dyn Receiver,
    /// Stays empty.
    portions: Portions<'o>,
}

impl<'o, S: Source> Sink<'o, S> for Passing<'_, 'o> {
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn thread(&mut self, _: &mut Export<'_, S>, index: usize, _: &Thread) {
        self.receiver.thread(index);
    }

    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        export.summary.event(event);
        let receiver = &mut *self.receiver;
        match *event {
            Event::Begin { function, start_ns, start } => receiver.begin(&Beginning {
                location: export.functions.get(function).location,
                start_ns,
                cut: start.cut,
                caller_unsure: start.caller_unsure,
                arguments: start.values.arguments,
                by_tail: start.tail.is_some(),
            }),
            Event::End { end_ns, how, start, .. } => {
                if let Some(result) = start.values.result {
                    receiver.returned(result);
                }
                receiver.end(end_ns, how);
            }
            Event::Untraced(slice) => {
                let name = &export.functions.get(slice.function).name;
                receiver.untraced(name, slice.at_ns, slice.until_ns);
            }
            Event::Mark(mark) => receiver.mark(&mark),
            Event::Gap(gap) => receiver.gap(&gap),
            Event::Point(point) => {
                if let PointKind::Lost(_) = point.kind {
                    receiver.lost(point.at_ns, point.count);
                }
            }
            Event::OffCpu(_) | Event::ShortSuspension(_) => {}
        }
    }
}
