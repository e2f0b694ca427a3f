//! Which functions to leave out of a build so that tracing the rest costs no more than a budget.

use crate::budget::Budget;
use everycall_profile::FunctionRow;

/// The functions to leave out, and the effect. Shares are relative to the program's own time,
/// without hooks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cull {
    /// The cost of tracing everything.
    pub before: f64,
    /// The cost of tracing without the functions below.
    pub after: f64,
    /// Functions to leave out, sorted by cost.
    pub functions: Vec<Culled>,
    /// Number of calls in the trace.
    pub calls: u64,
    /// Own time of all functions, in nanoseconds, with hooks.
    pub own_ns: u64,
    /// The program's own time, without hooks, in nanoseconds.
    pub program_ns: u64,
}

/// A function to leave out.
#[derive(Clone, Debug, PartialEq)]
pub struct Culled {
    /// The function with its sums in the trace.
    pub row: FunctionRow,
    /// Its cost.
    pub share: f64,
}

/// Chooses functions. `rows` are all functions of a trace, `event_ns` is the cost of an event, and
/// `budget` the share that tracing may cost. For functions that were switched off to keep a budget
/// (`off`), the calls while they were off are estimated from the measured rate.
#[must_use]
pub fn cull(rows: Vec<FunctionRow>, off: Option<&Budget>, event_ns: f64, budget: f64) -> Cull {
    let calls = rows.iter().map(|row| row.calls).fold(0, u64::saturating_add);
    let own_ns = rows.iter().map(|row| row.own_ns).fold(0, u64::saturating_add);
    let hooks_ns = calls as f64 * 2.0 * event_ns;
    // In a trace of almost nothing but hooks, the program's own share is unknown.
    let program_ns = (own_ns as f64 - hooks_ns).max(own_ns as f64 / 16.0).max(1.0);
    let share = |row: &FunctionRow| {
        let here = row.calls as f64 * 2.0 * event_ns / program_ns;
        let functions = off.map_or(&[][..], |budget| &budget.functions);
        let same = functions.iter().filter(|function| function.name == row.name && !function.off.is_empty());
        let rate = same.map(|function| function.calls_per_second).max().unwrap_or(0);
        here.max(rate as f64 * 2.0 * event_ns / 1e9)
    };
    let mut all: Vec<Culled> = rows.into_iter().map(|row| Culled { share: share(&row), row }).collect();
    all.sort_by(|one, other| {
        other.share.total_cmp(&one.share).then_with(|| one.row.name.cmp(&other.row.name))
    });
    let before: f64 = all.iter().map(|function| function.share).sum();
    let mut after = before;
    let count = all.iter().take_while(|function| {
        let is_needed = after > budget;
        if is_needed {
            after -= function.share;
        }
        is_needed
    });
    let count = count.count();
    let after = all.iter().skip(count).map(|function| function.share).sum();
    all.truncate(count);
    Cull { before, after, functions: all, calls, own_ns, program_ns: program_ns as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, calls: u64, own_ns: u64) -> FunctionRow {
        FunctionRow {
            name: name.to_owned(),
            symbols: vec![name.to_owned()],
            module: String::new(),
            file: None,
            line: None,
            calls,
            total_ns: own_ns,
            own_ns,
            tail_at_most_ns: 0,
        }
    }

    #[test]
    fn as_few_functions_as_are_needed_go() {
        // 1,000,000 ns, of which hooks take 20 * 10,010 = 200,200.
        let rows =
            || vec![row("rare", 10, 600_000), row("often", 9_000, 300_000), row("some", 1_000, 100_000)];
        let culled = cull(rows(), None, 10.0, 0.03);
        let names: Vec<_> = culled.functions.iter().map(|function| &function.row.name[..]).collect();
        assert_eq!(names, ["often"]);
        assert!((culled.before - 200_200.0 / 799_800.0).abs() < 1e-9);
        assert!((culled.after - 20_200.0 / 799_800.0).abs() < 1e-9 && culled.after <= 0.03);
        assert!(cull(rows(), None, 10.0, 0.5).functions.is_empty());
        assert_eq!(cull(rows(), None, 10.0, 1e-9).functions.len(), 3);
        assert!(cull(Vec::new(), None, 10.0, 0.03).functions.is_empty());
    }
}
