//! Differences that other threads' turns on the CPUs explain. A thread that is preempted waits for
//! milliseconds, so a call that takes a good part of a time slice itself is often several times as
//! long. On a machine that is busier on one side, most calls of such a function may be: the middle
//! of its calls then differs between the sides, although the function doesn't.

use everycall_profile::{Sketch, Sums};

/// A thread runs for about that long at least before another one gets its CPU: time slices of
/// Linux' schedulers are 0.75 to 3 ms, depending on the number of CPUs.
const SLICE_NS: f64 = 1e6;

/// Whether the difference between both sides, of which `common` is that of all functions as a
/// logarithm, may be nothing but preemptions. Preemptions make calls longer, never shorter, and
/// touch at most as large a part of the calls as a call takes of a time slice. So at the side where
/// calls are longer, the middle of the others lies between the middle of all calls and that of the
/// shortest ones.
pub(super) fn explains(old: &Sums, new: &Sums, common: f64) -> bool {
    // Own times are without the time that threads waited for a CPU.
    if old.own_states.running > 0 && new.own_states.running > 0 {
        return false;
    }
    let middle = |sums: &Sums| sums.own_times.middle_mean().unwrap_or(0.0);
    let (of_old, of_new) = (middle(old) * common.exp(), middle(new));
    let (longer, shorter, times) = match of_old < of_new {
        true => (of_new, of_old, &new.own_times),
        false => (of_old, of_new, &old.own_times),
    };
    longer * part_of_the_others(times, shorter) <= shorter
}

/// The least part of the middle of all calls that the middle of those may be that weren't
/// preempted, where calls take `own` nanoseconds.
fn part_of_the_others(times: &Sketch, own: f64) -> f64 {
    const MIDDLE: u32 = 5_000;
    let at = |place: u32| times.percentile(place).unwrap_or(0) as f64;
    let others = 1.0 - (own / SLICE_NS).min(1.0);
    at((f64::from(MIDDLE) * others) as u32) / at(MIDDLE).max(1.0)
}
