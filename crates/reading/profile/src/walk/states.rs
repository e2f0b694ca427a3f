//! The thread states of calls.

use everycall_calls::Call;
use everycall_calls::{StateTimes, ThreadStates};

use crate::visitor::CallStates;

/// The thread states of a thread's open calls.
pub(super) struct States<'s> {
    states: &'s ThreadStates,
    /// By open call: those of its callees.
    inner: Vec<StateTimes>,
}

impl<'s> States<'s> {
    pub(super) fn new(states: &'s ThreadStates) -> States<'s> {
        States { states, inner: Vec::new() }
    }

    /// A call begins.
    pub(super) fn begin(&mut self) {
        self.inner.push(StateTimes::default());
    }

    /// The innermost call ends. `inner` are the states of all of its callees, if not all of them
    /// were read.
    #[cold]
    pub(super) fn end<F>(&mut self, call: &Call<F>, inner: Option<StateTimes>) -> Option<CallStates> {
        let total = self.states.times(call.start_ns, call.end_ns);
        let inner = self.inner.pop().map(|read| inner.unwrap_or(read))?;
        if let Some(around) = self.inner.last_mut() {
            around.add_all(&total);
        }
        Some(CallStates { total, own: total.without(&inner) })
    }
}
