//! Profiles for tests.

use everycall_profile::{Function, FunctionIdentity, Notes, Profile, Sums};

/// Functions with the durations of their calls, which make no calls.
pub(crate) fn made_up(functions: impl IntoIterator<Item = (FunctionIdentity, Vec<u64>)>) -> Profile {
    let functions = functions.into_iter().map(|(identity, times)| {
        let mut sums = Sums { calls: times.len() as u64, ..Sums::default() };
        for time in times {
            sums.times.record(time);
            sums.own_times.record(time);
        }
        (sums.total_ns, sums.own_ns) = (sums.times.sum(), sums.times.sum());
        (Function::of(identity), sums)
    });
    Profile::of_functions(functions, Notes::default())
}
