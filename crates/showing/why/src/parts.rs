//! The parts of slow calls, beside those of calls around the median.

use std::collections::BTreeSet;

use everycall_analysis::{Doings, Explanation, FunctionNumber};

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Their own time, with what isn't traced and waiting.
    Own,
    /// The time in which others ran instead of the fiber.
    Suspended,
    /// The time after tail calls, which led to code that isn't traced.
    Tail,
    /// Calls of this function of [`Explanation::functions`].
    Call(FunctionNumber),
}

impl PartKind {
    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PartKind::Own => "own",
            PartKind::Suspended => "suspended",
            PartKind::Tail => "tail",
            PartKind::Call(_) => "call",
        }
    }
}

/// A part of calls, per call.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its kind.
    pub kind: PartKind,
    /// Nanoseconds in calls around the median.
    pub median_ns: f64,
    /// Nanoseconds in slow calls.
    pub slow_ns: f64,
    /// How many calls of the function calls around the median made.
    pub median_calls: f64,
    /// How many calls of the function slow calls made.
    pub slow_calls: f64,
}

impl Part {
    /// How many nanoseconds slow calls were longer in it.
    #[must_use]
    pub fn more_ns(&self) -> f64 {
        self.slow_ns - self.median_ns
    }
}

/// All parts, the largest difference first.
#[must_use]
pub fn parts(explanation: &Explanation<'_>) -> Vec<Part> {
    let (slow, median) = (&explanation.slow, &explanation.median);
    let part = |kind, of: &dyn Fn(&Doings) -> (u64, u64)| {
        let per_call = |doings: &Doings| {
            let (ns, calls) = of(doings);
            (doings.per_call(ns), doings.per_call(calls))
        };
        let ((median_ns, median_calls), (slow_ns, slow_calls)) = (per_call(median), per_call(slow));
        Part { kind, median_ns, slow_ns, median_calls, slow_calls }
    };
    let mut parts = vec![part(PartKind::Own, &|of| (of.own_ns, 0))];
    if slow.suspended_ns + median.suspended_ns > 0 {
        parts.push(part(PartKind::Suspended, &|of| (of.suspended_ns, 0)));
    }
    if slow.tails_ns + median.tails_ns > 0 {
        parts.push(part(PartKind::Tail, &|of| (of.tails_ns, 0)));
    }
    let called: BTreeSet<FunctionNumber> = slow.called.keys().chain(median.called.keys()).copied().collect();
    for number in called {
        let of = |doings: &Doings| doings.called.get(&number).copied().unwrap_or_default();
        parts.push(part(PartKind::Call(number), &of));
    }
    let name = |part: &Part| match part.kind {
        PartKind::Call(number) => explanation.functions().get(number).map(|function| function.name.as_str()),
        _ => None,
    };
    parts.sort_by(|one, other| {
        other.more_ns().abs().total_cmp(&one.more_ns().abs()).then_with(|| name(one).cmp(&name(other)))
    });
    parts
}
