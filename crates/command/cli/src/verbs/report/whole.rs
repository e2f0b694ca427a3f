//! Totals of the process of a recording.

use everycall_analysis::Profile;
use everycall_timeline::Trace;

/// Totals of the recording of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct WholeProcess {
    /// CPU time that it took, nanoseconds; `None` if it isn't known, or there are several.
    pub cpu_ns: Option<u64>,
    /// Calls that were made in all, as counted.
    pub all_calls: u64,
}

impl WholeProcess {
    /// Reads the totals from a trace.
    pub fn of(trace: &Trace<'_>) -> WholeProcess {
        let cpu_ns = match (trace.processes(), trace.calibrations()) {
            ([_], [calibration]) => calibration.cpu_ns,
            _ => None,
        };
        let all_calls = trace.all_calls().iter().map(|counts| counts.calls).fold(0, u64::saturating_add);
        WholeProcess { cpu_ns, all_calls }
    }

    /// Cost of hooks in all calls, in picoseconds, if each call costs as much as those of a
    /// profile.
    pub fn hooks_ps(&self, profile: &Profile) -> u64 {
        let product = u128::from(profile.hooks_ps()) * u128::from(self.all_calls.max(profile.calls));
        u64::try_from(product / u128::from(profile.calls.max(1))).unwrap_or(u64::MAX)
    }
}
