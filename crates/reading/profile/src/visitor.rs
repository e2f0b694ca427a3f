//! The interface by which profiles receive the calls of a walk.

use everycall_calls::StateTimes;
use everycall_calls::{Call, Thread};

use crate::bounds::CallBounds;
use crate::functions::{FunctionNumber, Functions, Place};
use crate::hooks::{HookTime, Prices};

/// A call that ends and passes the filter's conditions on function, label and depth.
pub(crate) type EndedCall = Call<Counted>;

/// How a call counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) place: Place,
    /// Duration of the thunk that jumped to it and counts as the same call.
    pub(crate) thunk_ns: u64,
    /// Cost of hooks in it, if the visitor requested that.
    pub(crate) hooks: HookTime,
    /// Whether it counts as a call, rather than as the second half of a thunk.
    pub(crate) counts: bool,
    /// Whether it continues in a tail call: [`Visitor::tail_ended`] follows.
    pub(crate) goes_on: bool,
}

impl Counted {
    /// A call of its own.
    #[inline]
    pub(crate) fn at(place: Place) -> Counted {
        Counted { place, thunk_ns: 0, hooks: HookTime::default(), counts: true, goes_on: false }
    }

    /// Its function.
    #[inline]
    pub(crate) fn function(&self) -> FunctionNumber {
        self.place.function
    }
}

/// The duration of a call including its tail calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WithTail {
    pub(crate) duration_ns: u64,
    /// Whether the duration is an upper bound, because the jump's target isn't traced or not known.
    pub(crate) is_at_most: bool,
    /// Whether the end of the jump's target is unknown.
    pub(crate) is_truncated: bool,
    pub(crate) is_shown: bool,
    /// Its thread states; `None` without any.
    pub(crate) states: Option<StateTimes>,
}

/// The thread states of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallStates {
    /// From its begin to its end.
    pub(crate) total: StateTimes,
    /// Without its callees.
    pub(crate) own: StateTimes,
}

/// Receives the calls. Begins and ends nest within each thread.
pub(crate) trait Visitor {
    /// The calls of a thread follow.
    fn thread(&mut self, thread: &Thread) {
        let _ = thread;
    }

    /// A call begins. `from` is the function whose call jumped to it.
    fn begin(&mut self, function: FunctionNumber, from: Option<FunctionNumber>, functions: &Functions);

    /// The thread states of the innermost call, which ends next. Not called without thread states.
    fn states(&mut self, states: &CallStates, call: &EndedCall) {
        let _ = (states, call);
    }

    /// Bounds of the times of the innermost call, which ends next. Not called where
    /// all events have times of their own.
    fn bounds(&mut self, bounds: &CallBounds, call: &EndedCall) {
        let _ = (bounds, call);
    }

    /// The innermost call ends.
    fn end(&mut self, call: &EndedCall);

    /// If a label was requested, called before each begin: its value at the innermost call that has
    /// it, including the one that begins.
    fn label(&mut self, in_force: Option<Option<u64>>) {
        let _ = in_force;
    }

    /// Whether each linker name is a function of its own.
    fn is_by_symbol(&self) -> bool {
        false
    }

    /// Whether the duration of calls includes their tail calls.
    fn follows_tails(&self) -> bool {
        false
    }

    /// Whether it needs all callees of the calls in a range, also those that lie outside of it.
    fn needs_all_callees(&self) -> bool {
        false
    }

    /// Prices of hooks, if calls must carry their cost.
    fn prices(&self) -> Option<&Prices> {
        None
    }

    /// The value that [`Visitor::tail_ended`] receives for the call that ended last.
    fn token(&self) -> u32 {
        0
    }

    /// The tail call of a call has ended.
    fn tail_ended(&mut self, token: u32, call: &WithTail) {
        let _ = (token, call);
    }

    /// The call of this function that ended last jumped to untraced code, where it spent at most
    /// this time.
    fn untraced(&mut self, function: FunctionNumber, at_most_ns: u64) {
        let _ = (function, at_most_ns);
    }
}
