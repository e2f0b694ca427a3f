//! Exceptions that triggers wait for: calls are kept when something is thrown in them, caught or
//! not, because the exception may end the program.
//!
//! Throws of traced objects are reported by the kit's wrappers of `__cxa_throw` and similar
//! functions. Those of other libraries are detected when the unwinder first asks a function of a
//! traced object whether it catches the exception. Nothing has been unwound then.

use crate::state::arena::Arena;
use crate::state::trigger_table::Triggers;
use crate::threads::armed_calls;
use crate::threads::open_calls::OpenCallFacts;
use crate::threads::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::trigger::RULES;

/// Whether a trigger waits for exceptions.
pub(crate) fn are_wanted(arena: &Arena) -> bool {
    Triggers::all(arena).any(|triggers| triggers.waits_for_throws())
}

impl Thread<'_> {
    /// Whether the throw of the present exception was already handled.
    pub(crate) fn is_raised(&self) -> bool {
        self.control.raised.load(Relaxed) == self.raise()
    }

    /// Makes the next exception count as another one, even if no event comes in between.
    pub(crate) fn end_raise(&self) {
        self.control.raised.store(0, Relaxed);
    }

    /// The number by which an exception is recognised: the number of events. While the unwinder
    /// searches for a handler, nothing is recorded.
    fn raise(&self) -> u32 {
        (self.ring.events() as u32).max(1)
    }

    /// An exception of the type with this hash was thrown. Posts the innermost call of each trigger
    /// that waits for it.
    pub(crate) fn judge_throw(&self, ticks: u64, hash: Option<u64>) {
        self.control.raised.store(self.raise(), Relaxed);
        for triggers in Triggers::all(self.process.arena()) {
            let rules = triggers.rules_for_throw(hash);
            let anywhere = rules & triggers.rules_for_throws_anywhere();
            let mut innermost = None;
            let mut calls: [Option<OpenCallFacts>; RULES as usize] = [None; RULES as usize];
            if rules != 0 {
                self.open.each_from(0, |_, call| {
                    innermost = Some(call);
                    if rules != anywhere {
                        let is_meant = |rule: u32| rules & !anywhere & 1 << rule != 0;
                        for site in triggers.sites_at(call.code).filter(|site| site.is_for_throws) {
                            if is_meant(site.rule)
                                && site.is_met(call.met)
                                && (site.counts_tails || call.jump.is_none())
                                && let Some(place) = calls.get_mut(site.rule as usize)
                            {
                                *place = Some(call);
                            }
                        }
                    }
                });
            }
            for (rule, call) in (0..RULES).zip(calls) {
                if anywhere & 1 << rule != 0 {
                    armed_calls::post_throw(&triggers, self, rule, innermost, ticks);
                } else if call.is_some() {
                    armed_calls::post_throw(&triggers, self, rule, call, ticks);
                }
            }
        }
    }
}
