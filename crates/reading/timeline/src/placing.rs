//! Where events without a stamp are placed: see [`everycall_format::stamp`].
//!
//! Such an event has the ticks of the last stamp of its thread, and happened before the next one.
//! Several in a row are placed behind the first stamp at equal distances, which are small: what
//! stops the thread does so in front of a stamp, so a long time before it belongs to the call that
//! is open then, and isn't spread over the calls before it.

use crate::slots::{Step, StepKind};

/// Events are placed no further apart than this, in nanoseconds.
pub(crate) const STEP_NS: u64 = 250;

/// In a run of so many events, or more, they are placed no further apart than [`PACES`] times as far
/// as in the densest other such run beside it: a stop would be spread over all of them otherwise.
const LONG_RUN: usize = 256;
const PACES: u64 = 2;

/// Steps that share the stamp of a step before them, without that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Number of the first of them among the steps.
    pub first: usize,
    pub count: usize,
    /// They happened before this, ticks.
    pub until: u64,
    /// Steps before `first` that have the same stamp: 0 if it isn't known to be that of the first.
    pub before: usize,
    /// Its events are placed no further apart than this, ticks.
    pub step_max: u64,
    /// Whether the next stamp isn't known yet. Then nothing is placed behind this one, because the
    /// next may be as early.
    pub is_open: bool,
}

impl Run {
    /// Where a step of the run is placed, as so many of so many parts of the time from the stamp to
    /// [`Run::until`].
    pub fn part(&self, step: usize) -> (u64, u64) {
        if self.is_open {
            return (0, 1);
        }
        ((step - self.first + self.before) as u64, (self.count + self.before) as u64)
    }
}

/// Finds the runs of steps, which are in the order of time. `begins`: the first one may have the
/// stamp of a step that isn't there. `next` is when what follows them happened, ticks.
pub(crate) fn find_runs(steps: &[Step], begins: bool, next: Option<u64>, runs: &mut Vec<Run>) {
    runs.clear();
    let (mut first, mut pace) = (0, u64::MAX);
    for same in steps.chunk_by(|one, other| one.ticks == other.ticks) {
        let behind = first + same.len();
        let stamp = same.first().map_or(0, |step| step.ticks);
        let until = steps.get(behind).map(begin).or(next).unwrap_or(stamp).max(stamp);
        // Values come before their entry or exit, which has a stamp of its own.
        let before = match same.iter().take_while(|step| matches!(step.kind, StepKind::Values(..))).count() {
            0 => usize::from(!begins || first > 0),
            values => values + 1,
        };
        if same.len() > before {
            runs.push(Run {
                first: first + before,
                count: same.len() - before,
                until,
                before,
                step_max: u64::MAX,
                is_open: false,
            });
            if same.len() >= LONG_RUN {
                pace = pace.min((until - stamp) / same.len() as u64);
            }
        }
        first = behind;
    }
    if pace < u64::MAX {
        let long = runs.iter_mut().filter(|run| run.count + run.before >= LONG_RUN);
        long.for_each(|run| run.step_max = PACES * pace.max(1));
    }
}

/// When a step begins, ticks: recording was off before some.
pub(crate) fn begin(step: &Step) -> u64 {
    match step.kind {
        StepKind::Gap(from, ..) | StepKind::Resumed(from, ..) => from.min(step.ticks),
        _ => step.ticks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(ticks: &[u64]) -> Vec<Step> {
        ticks.iter().map(|ticks| Step { ticks: *ticks, kind: StepKind::Entry(8) }).collect()
    }

    fn runs(ticks: &[u64], begins: bool, next: Option<u64>) -> Vec<(usize, usize, u64, usize)> {
        let mut runs = Vec::new();
        find_runs(&steps(ticks), begins, next, &mut runs);
        runs.iter().map(|run| (run.first, run.count, run.until, run.before)).collect()
    }

    #[test]
    fn a_run_ends_at_the_next_stamp() {
        assert_eq!(runs(&[], false, Some(5)), []);
        assert_eq!(runs(&[1, 2, 3], false, Some(5)), []);
        assert_eq!(runs(&[1, 1, 1, 7, 8, 8], false, Some(20)), [(1, 2, 7, 1), (5, 1, 20, 1)]);
        // The next stamp isn't known.
        assert_eq!(runs(&[1, 8, 8], false, None), [(2, 1, 8, 1)]);
        // The next step has an earlier time: a damaged file.
        assert_eq!(runs(&[8, 8], false, Some(3)), [(1, 1, 8, 1)]);
    }

    #[test]
    fn the_first_step_may_have_a_stamp_of_before() {
        assert_eq!(runs(&[4, 9], true, Some(20)), [(0, 1, 9, 0)]);
        assert_eq!(runs(&[4, 4, 9], true, Some(20)), [(0, 2, 9, 0)]);
        let run = Run { first: 0, count: 2, until: 9, before: 0, step_max: u64::MAX, is_open: false };
        assert_eq!([run.part(0), run.part(1)], [(0, 2), (1, 2)]);
        let run = Run { first: 5, count: 2, until: 9, before: 1, step_max: u64::MAX, is_open: false };
        assert_eq!([run.part(5), run.part(6)], [(1, 3), (2, 3)]);
    }

    #[test]
    fn a_long_run_beside_a_dense_one_is_as_dense() {
        // 300 events in 3,000 ticks, then 400 in a million.
        let ticks = [[10; 300].as_slice(), &[3010; 400]].concat();
        let mut runs = Vec::new();
        find_runs(&steps(&ticks), false, Some(1_003_010), &mut runs);
        assert_eq!(runs.iter().map(|run| run.step_max).collect::<Vec<_>>(), [20, 20]);
        find_runs(&steps(&[10; 100]), false, Some(1_003_010), &mut runs);
        assert_eq!(runs.iter().map(|run| run.step_max).collect::<Vec<_>>(), [u64::MAX]);
    }

    #[test]
    fn a_run_ends_where_recording_goes_off() {
        let mut steps = steps(&[4, 4, 90]);
        steps[2].kind = StepKind::Gap(30, 0, 0);
        let mut runs = Vec::new();
        find_runs(&steps, false, None, &mut runs);
        assert_eq!(
            runs,
            [Run { first: 1, count: 1, until: 30, before: 1, step_max: u64::MAX, is_open: false }]
        );
    }
}
