//! The part of a thread that sums of a range need.

use std::sync::Arc;

use everycall_export::CallAt;
use everycall_profile::{StretchNotes, WholeCall};
use everycall_timeline::Checkpoint;

/// Which part of a thread is read.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    /// Where it begins; `None` for the thread's begin.
    pub checkpoint: Option<Arc<Checkpoint>>,
    /// The calls that are open there, outermost first.
    pub before: Vec<WholeCall>,
    /// How many events it has, and the calls that are open behind them, outermost first; `None` if
    /// it goes on to the thread's end.
    pub end: Option<(u64, Vec<WholeCall>)>,
    /// Whether no event comes later than others that happened after it.
    pub is_in_order: bool,
    /// Of all of the thread.
    pub notes: StretchNotes,
}

/// Knows the stretches that ranges of time need.
pub trait Stretches {
    /// A part of the thread with this index in
    /// [`Source::threads`](everycall_export::Source::threads): all events that lie from
    /// `since_ns` to `until_ns`. `None` if it isn't known.
    fn stretch(&self, thread: usize, since_ns: u64, until_ns: u64) -> Option<Stretch>;

    /// A moment at which a call has ended, as early as it is known.
    fn ended_ns(&self, thread: usize, call: CallAt) -> Option<u64>;
}
