//! The sums of the calls of a function, a thread, a path or another group.

use everycall_calls::{Bars, EndKind, StateTimes};

use crate::allocations::Allocations;
use crate::bounds::{SumBounds, with_bounds};
use crate::hooks::HookTime;
use crate::numbers::named_numbers;
use crate::sketch::Sketch;
use crate::visitor::{CallStates, EndedCall, WithTail};

/// The sums of some calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of calls, including truncated ones. A thunk and the function that it continues in are
    /// one call.
    pub calls: u64,
    /// Of these, calls that were unwound: by an exception, `longjmp` or the end of their thread.
    pub unwound: u64,
    /// Of these, truncated calls, and calls that may be several because recording was off
    /// meanwhile. Their times are included as far as they were recorded.
    pub truncated: u64,
    /// Of these, calls that were unwound at an unknown time: their time is an upper bound.
    pub ended_earlier: u64,
    /// Of these, calls that ended in a tail call. Their times exclude the tail call unless it was
    /// requested, see [`Profile::with_tails`](crate::Profile::with_tails).
    pub tail_calls: u64,
    /// Of these, calls whose time is an upper bound, because their tail calls' targets aren't
    /// traced or not known.
    pub at_most: u64,
    /// Of these, calls that were counted, but not recorded: nothing else is known about them.
    pub untimed: u64,
    /// Of these, calls whose times were added up while they were counted: of each only the power
    /// of two is known, so percentiles are approximate.
    pub in_octaves: u64,
    /// All calls that the processes made, as they counted them while they recorded: also those
    /// whose events were overwritten, and those that were dropped. Its calls if they were counted
    /// and not recorded; 0 if nothing was counted.
    pub all_calls: u64,
    /// Nanoseconds in the calls and their callees. Calls within another call of the same group add
    /// nothing.
    pub total_ns: u64,
    /// Nanoseconds in the calls without their callees.
    pub own_ns: u64,
    /// Upper bound of the time after tail calls into untraced code: until each thread's next event.
    /// Not part of the other times.
    pub untraced_at_most_ns: u64,
    /// Parts of `total_ns` in which the kernel ran the thread, and did not. All zero without thread
    /// states.
    pub total_states: StateTimes,
    /// Parts of `own_ns` in which the kernel ran the thread, and did not.
    pub own_states: StateTimes,
    /// Memory that the calls and their callees have allocated and freed. Calls within another call
    /// of the same group add nothing. All zero where it wasn't counted.
    pub memory: Allocations,
    /// Memory that the calls themselves have allocated and freed.
    pub own_memory: Allocations,
    /// Bounds of the times, where events had no times of their own: [`Sums::total`] and
    /// [`Sums::own`].
    pub bounds: SumBounds,
    /// Cost of hooks in these times; zero unless requested, see
    /// [`Profile::with_hook_times`](crate::Profile::with_hook_times).
    pub hooks: HookTime,
    /// The durations of the calls whose duration is known: those that aren't truncated and whose
    /// end is known.
    pub times: Sketch,
    /// The own times of these calls, without the time in which their thread is known to have waited
    /// for a CPU; empty unless requested, see
    /// [`Profile::with_own_times`](crate::Profile::with_own_times).
    pub own_times: Sketch,
}

impl Sums {
    /// Adds a call. `is_outermost`: it isn't within another call of the same group. `waited_ns`: if
    /// own times are requested, how much of its own the thread waited for a CPU.
    #[inline]
    pub(crate) fn add_call(&mut self, call: &EndedCall, is_outermost: bool, waited_ns: Option<u64>) {
        let duration = call.duration_ns();
        if is_outermost && !call.of.goes_on {
            self.total_ns = self.total_ns.saturating_add(duration);
        }
        self.own_ns = self.own_ns.saturating_add(call.own_ns);
        if call.of.hooks.total_ps > 0 {
            let is_in_total = is_outermost && !call.of.goes_on;
            self.hooks.add(call.of.hooks.own_ps, if is_in_total { call.of.hooks.total_ps } else { 0 });
        }
        if !call.of.counts {
            return;
        }
        self.calls += 1;
        match call.how {
            _ if call.of.goes_on => {
                self.tail_calls += 1;
                if !call.start_cut {
                    self.add_own_time(call, waited_ns);
                }
                return;
            }
            _ if call.start_cut => self.add_truncated(call.how),
            EndKind::Returned => {}
            EndKind::Jumped => self.tail_calls += 1,
            EndKind::Unwound => self.unwound += 1,
            how => return self.add_truncated(how),
        }
        if !call.start_cut {
            self.times.record(duration.saturating_add(call.of.thunk_ns));
            self.add_own_time(call, waited_ns);
        }
    }

    #[inline]
    fn add_own_time(&mut self, call: &EndedCall, waited_ns: Option<u64>) {
        if let Some(waited_ns) = waited_ns {
            self.own_times.record(call.own_ns.saturating_add(call.of.thunk_ns).saturating_sub(waited_ns));
        }
    }

    /// Adds the duration of a call including its tail calls.
    pub(crate) fn add_tail(&mut self, call: &WithTail, is_outermost: bool) {
        if is_outermost {
            self.total_ns = self.total_ns.saturating_add(call.duration_ns);
            self.total_states.add_all(&call.states.unwrap_or_default());
        }
        self.at_most += u64::from(call.is_at_most);
        if call.is_truncated {
            self.truncated += 1;
        } else {
            self.times.record(call.duration_ns);
        }
    }

    /// Adds a call of unknown duration.
    #[cold]
    fn add_truncated(&mut self, how: EndKind) {
        match how {
            EndKind::UnwoundLate => {
                self.unwound += 1;
                self.ended_earlier += 1;
            }
            EndKind::Unwound => {
                self.unwound += 1;
                self.truncated += 1;
            }
            EndKind::Jumped => {
                self.tail_calls += 1;
                self.truncated += 1;
            }
            _ => self.truncated += 1,
        }
    }

    /// Adds the thread states of a call. `is_outermost` as in [`Sums::add_call`].
    pub(crate) fn add_states(&mut self, states: &CallStates, is_outermost: bool) {
        if is_outermost {
            self.total_states.add_all(&states.total);
        }
        self.own_states.add_all(&states.own);
    }

    /// Adds the sums of another run.
    pub fn add(&mut self, other: &Sums) {
        for (sum, more) in self.numbers_mut().into_iter().zip(other.numbers()) {
            *sum = sum.saturating_add(more);
        }
        self.bounds.add(&other.bounds);
        self.hooks.add(other.hooks.own_ps, other.hooks.total_ps);
        self.times.add(&other.times);
        self.own_times.add(&other.own_times);
    }

    /// [`Sums::total_ns`], and what it is at least and at most.
    #[must_use]
    pub fn total(&self) -> Bars {
        with_bounds(self.total_ns, self.bounds.total)
    }

    /// [`Sums::own_ns`], and what it is at least and at most.
    #[must_use]
    pub fn own(&self) -> Bars {
        let own = with_bounds(self.own_ns, self.bounds.own);
        // It is a part of the whole, which is known better where calls are within each other.
        let whole = if self.bounds.is_none() { own.high } else { self.total().high };
        Bars { high: own.high.min(whole).max(own.value), ..own }
    }

    /// Whether times aren't known exactly, because events had no times of their own.
    #[must_use]
    pub fn has_bounds(&self) -> bool {
        !self.total().is_exact() || !self.own().is_exact()
    }

    /// Whether anything was allocated or freed in the calls, as far as it was counted.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        !self.memory.is_none() || !self.own_memory.is_none()
    }

    /// The increase since an earlier reading of these counts.
    pub(crate) fn since(&self, before: &Sums) -> Sums {
        let times = self.times.since(&before.times);
        let calls = self.calls.saturating_sub(before.calls);
        Sums {
            calls,
            untimed: calls.saturating_sub(times.count()),
            all_calls: self.all_calls.saturating_sub(before.all_calls),
            in_octaves: times.count(),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            own_ns: self.own_ns.saturating_sub(before.own_ns),
            memory: self.memory.since(before.memory),
            own_memory: self.own_memory.since(before.own_memory),
            times,
            ..Sums::default()
        }
    }
}

// All numbers except the sketches. Profiles in files have them in this order: new ones are last.
named_numbers!(Sums {
    "calls": calls,
    "unwound": unwound,
    "truncated": truncated,
    "ended_earlier": ended_earlier,
    "tail_calls": tail_calls,
    "at_most": at_most,
    "total_ns": total_ns,
    "own_ns": own_ns,
    "untraced_at_most_ns": untraced_at_most_ns,
    "untimed": untimed,
    "running_ns": total_states.running,
    "runnable_ns": total_states.runnable,
    "blocked_ns": total_states.blocked,
    "unknown_ns": total_states.unknown,
    "own_running_ns": own_states.running,
    "own_runnable_ns": own_states.runnable,
    "own_blocked_ns": own_states.blocked,
    "own_unknown_ns": own_states.unknown,
    "perhaps_off_ns": total_states.perhaps_off,
    "voluntary_switches": total_states.voluntary,
    "involuntary_switches": total_states.involuntary,
    "own_perhaps_off_ns": own_states.perhaps_off,
    "own_voluntary_switches": own_states.voluntary,
    "own_involuntary_switches": own_states.involuntary,
    "in_octaves": in_octaves,
    "all_calls": all_calls,
    "allocated_bytes": memory.allocated,
    "allocated_blocks": memory.blocks,
    "freed_bytes": memory.freed,
    "freed_blocks": memory.freed_blocks,
    "own_allocated_bytes": own_memory.allocated,
    "own_allocated_blocks": own_memory.blocks,
    "own_freed_bytes": own_memory.freed,
    "own_freed_blocks": own_memory.freed_blocks,
});
