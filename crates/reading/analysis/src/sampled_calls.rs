//! Samples of a thread in its calls: a sample belongs to the innermost call that is open at its
//! time.

use everycall_timeline::{Location, TimelineEvent};

/// The samples of a thread while its calls pass.
#[derive(Clone, Debug, Default)]
pub struct SampledCalls {
    /// Times and numbers, in the order of time.
    samples: Vec<(u64, usize)>,
    next: usize,
    open: Vec<Location>,
}

impl SampledCalls {
    /// The samples of a thread: nanoseconds since the origin, and a number, in the order of time.
    #[must_use]
    pub fn new(samples: Vec<(u64, usize)>) -> SampledCalls {
        SampledCalls { samples, ..SampledCalls::default() }
    }

    /// Whether there are none left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next >= self.samples.len()
    }

    /// Follows an event of the thread, and passes the samples before it: when, which, and the calls
    /// that were open then, outermost first. Those behind the last event are not passed.
    #[inline]
    pub fn event(&mut self, event: &TimelineEvent, each: &mut impl FnMut(u64, usize, &[Location])) {
        if self.is_empty() {
            return;
        }
        // A call has the time of its begin, not that of its end.
        while let Some((at_ns, sample)) =
            self.samples.get(self.next).copied().filter(|(at_ns, _)| *at_ns < event.at_ns())
        {
            self.next += 1;
            each(at_ns, sample, &self.open);
        }
        match event {
            TimelineEvent::Begin(begin) => self.open.push(begin.location),
            TimelineEvent::End(_) => {
                self.open.pop();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use everycall_timeline::{Begin, EndKind};

    use super::*;

    #[test]
    fn a_sample_belongs_to_the_innermost_call() {
        let samples = (0..10).map(|at| (at * 10, at as usize)).collect();
        let mut calls = SampledCalls::new(samples);
        let call = |module, start_ns| Begin {
            location: Location { module, image_address: 0 },
            start_ns,
            ..Begin::default()
        };
        let (outer, inner, short) = (call(1, 10), call(2, 20), call(3, 50));
        let mut taken = Vec::new();
        for event in [
            TimelineEvent::Begin(outer),
            TimelineEvent::Begin(inner),
            TimelineEvent::End(inner.ended(40, EndKind::Returned)),
            TimelineEvent::Begin(short),
            TimelineEvent::End(short.ended(50, EndKind::Returned)),
            TimelineEvent::End(outer.ended(75, EndKind::Returned)),
        ] {
            calls.event(&event, &mut |at_ns, sample, open| {
                taken.push((at_ns, sample, open.iter().map(|call| call.module).collect::<Vec<_>>()));
            });
        }
        let places: Vec<_> = taken.iter().map(|(_, sample, open)| (*sample, open.last().copied())).collect();
        let (outer, inner) = (Some(1), Some(2));
        assert_eq!(
            places,
            [(0, None), (1, outer), (2, inner), (3, inner), (4, outer), (5, outer), (6, outer), (7, outer)]
        );
        assert_eq!(taken[2], (20, 2, vec![1, 2]), "with the calls around it");
        assert!(!calls.is_empty(), "the last two are behind all events");
    }
}
