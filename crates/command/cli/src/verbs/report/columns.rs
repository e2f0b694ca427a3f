//! The columns of the text table.

use everycall_analysis::{Corrected, Correction, Order, Sums};
use everycall_timeline::Bars;
use everycall_units::{Count, Duration, Size};

use super::corrected;

/// Columns of a histogram.
pub const BARS: usize = 10;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// A number that rows can be sorted by.
    Number(Order),
    /// A corrected time, total or own, with its error bar.
    Corrected(Order),
    /// A measured time, total or own, that isn't corrected.
    Measured(Order),
    /// Corrected own time as a share of all of it.
    CorrectedPercent,
    /// Own time as a share of all own time.
    Percent,
    /// Calls as a share of all calls, where these were counted by values.
    CallsPercent,
    /// Distribution of durations.
    Histogram,
    /// Upper bound of the own time off the CPU, where some of it is unknown.
    OffAtMost,
    /// Truncated calls.
    Truncated,
    /// Upper bound of the time after tail calls.
    TailAtMost,
}

/// Thread states within own time.
const STATES: [Order; 3] = [Order::Running, Order::Runnable, Order::Blocked];
/// How often it left the CPU in it.
const SWITCHES: [Order; 2] = [Order::Voluntary, Order::Involuntary];

/// All columns in display order, each with its rank: if there isn't enough room, those of the
/// highest rank are removed first.
pub const ALL: [(Column, u8); 31] = [
    (Column::Number(Order::Calls), 0),
    (Column::CallsPercent, 0),
    (Column::Number(Order::AllCalls), 1),
    (Column::Number(Order::TotalTime), 0),
    (Column::Number(Order::OwnTime), 0),
    (Column::Percent, 3),
    (Column::Number(Order::Running), 2),
    (Column::Number(Order::Runnable), 2),
    (Column::Number(Order::Blocked), 2),
    (Column::OffAtMost, 2),
    (Column::Number(Order::Voluntary), 4),
    (Column::Number(Order::Involuntary), 4),
    (Column::Number(Order::Average), 1),
    (Column::Number(Order::Min), 7),
    (Column::Number(Order::Percentile(5_000)), 4),
    (Column::Number(Order::Percentile(9_000)), 8),
    (Column::Number(Order::Percentile(9_900)), 2),
    (Column::Number(Order::Percentile(9_990)), 9),
    (Column::Number(Order::Max), 5),
    (Column::Histogram, 6),
    (Column::Number(Order::Unwound), 4),
    (Column::Truncated, 4),
    (Column::TailAtMost, 4),
    (Column::Number(Order::Allocated), 0),
    (Column::Number(Order::OwnAllocated), 0),
    (Column::Number(Order::Blocks), 2),
    (Column::Number(Order::OwnBlocks), 1),
    (Column::Number(Order::Freed), 2),
    (Column::Number(Order::OwnFreed), 1),
    (Column::Number(Order::FreedBlocks), 4),
    (Column::Number(Order::OwnFreedBlocks), 3),
];

/// The columns of a table with corrected times. Durations of single calls aren't corrected.
pub const CORRECTED: [(Column, u8); 8] = [
    (Column::Number(Order::Calls), 0),
    (Column::Number(Order::AllCalls), 3),
    (Column::Corrected(Order::TotalTime), 0),
    (Column::Corrected(Order::OwnTime), 0),
    (Column::CorrectedPercent, 1),
    (Column::Measured(Order::TotalTime), 2),
    (Column::Measured(Order::OwnTime), 2),
    (Column::Truncated, 4),
];

impl Column {
    pub fn heading(self) -> &'static str {
        match self {
            Column::Number(order) => order.name(),
            Column::Corrected(order) => order.name(),
            Column::Measured(Order::TotalTime) => "measured total",
            Column::Measured(_) => "measured own",
            Column::CorrectedPercent | Column::Percent => "own %",
            Column::CallsPercent => "calls %",
            Column::Histogram => "histogram",
            Column::OffAtMost => "off CPU <=",
            Column::Truncated => "truncated",
            Column::TailAtMost => "tail <=",
        }
    }

    /// Whether it belongs into a table that is sorted by this number.
    pub fn is_about(self, sort: Order) -> bool {
        match self {
            Column::Number(Order::Calls) => true,
            Column::Number(order) => order.is_memory() == sort.is_memory(),
            _ => !sort.is_memory(),
        }
    }

    /// Whether it is removed if all of its cells are empty.
    pub fn is_optional(self) -> bool {
        match self {
            Column::Number(order) => {
                STATES.contains(&order)
                    || SWITCHES.contains(&order)
                    || matches!(order, Order::Unwound | Order::AllCalls)
            }
            Column::CallsPercent | Column::OffAtMost | Column::Truncated | Column::TailAtMost => true,
            Column::Corrected(_) | Column::Measured(_) | Column::CorrectedPercent => false,
            Column::Percent | Column::Histogram => false,
        }
    }

    /// The text of a row's cell; empty if there is no value.
    pub fn cell(self, sums: &Sums, scale: &Scale) -> String {
        let none = String::new();
        match self {
            Column::Number(Order::Calls) => Count(sums.calls).to_string(),
            Column::Number(Order::AllCalls) if sums.all_calls == 0 || !scale.has_more_calls => none,
            Column::Number(Order::AllCalls) => Count(sums.all_calls).to_string(),
            Column::Number(order) if order.is_memory() && order.number(sums) == 0 => none,
            Column::Number(order) if order.is_bytes() => Size(order.number(sums)).to_string(),
            Column::Number(order) if order.is_memory() => Count(order.number(sums)).to_string(),
            Column::Number(Order::Unwound) if sums.unwound == 0 => none,
            Column::Number(Order::Unwound) => Count(sums.unwound).to_string(),
            Column::Number(Order::TotalTime | Order::OwnTime) | Column::Percent
                if sums.calls > 0 && sums.untimed == sums.calls =>
            {
                none
            }
            Column::Number(order) if STATES.contains(&order) => match order.number(sums) {
                0 => none,
                ns => Duration { ns }.to_string(),
            },
            Column::Number(order) if SWITCHES.contains(&order) => match order.number(sums) {
                0 => none,
                count => Count(count).to_string(),
            },
            Column::OffAtMost if sums.own_states.perhaps_off == 0 => none,
            Column::OffAtMost => Duration { ns: sums.own_states.off_at_most() }.to_string(),
            Column::Number(Order::TotalTime) => with_error(sums.total()),
            Column::Number(Order::OwnTime) => with_error(sums.own()),
            Column::Number(_) if sums.times.count() == 0 => none,
            Column::Number(order @ Order::Percentile(_)) if sums.in_octaves > 0 => {
                format!("~{}", Duration { ns: order.number(sums) })
            }
            Column::Number(order) => Duration { ns: order.number(sums) }.to_string(),
            Column::Corrected(order) => corrected::shown(&scale.corrected(sums, order)),
            Column::Measured(order) => Duration { ns: order.number(sums) }.to_string(),
            Column::CorrectedPercent => {
                let own = scale.corrected(sums, Order::OwnTime).time.value;
                format!("{:.1}", 100.0 * own as f64 / scale.own_ns.max(1) as f64)
            }
            Column::Percent => format!("{:.1}", 100.0 * sums.own_ns as f64 / (scale.own_ns.max(1)) as f64),
            Column::CallsPercent if scale.counted_by_value == 0 => none,
            Column::CallsPercent => {
                format!("{:.1}", 100.0 * sums.calls as f64 / scale.counted_by_value as f64)
            }
            Column::Histogram if sums.times.count() == 0 => none,
            Column::Histogram => scale.histogram(sums),
            Column::Truncated if sums.truncated == 0 => none,
            Column::Truncated => Count(sums.truncated).to_string(),
            Column::TailAtMost if sums.untraced_at_most_ns == 0 => none,
            Column::TailAtMost => Duration { ns: sums.untraced_at_most_ns }.to_string(),
        }
    }
}

/// A time, and how far it may be from that.
pub fn with_error(bars: Bars) -> String {
    let shown = Duration { ns: bars.value };
    if bars.is_exact() {
        shown.to_string()
    } else {
        format!("{shown} \u{b1}{}", Duration { ns: bars.error() })
    }
}

/// Facts that all cells of a table share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scale {
    /// Own time of all rows.
    pub own_ns: u64,
    /// Calls of all rows, if these were counted by values; else 0.
    pub counted_by_value: u64,
    /// Whether a row has more calls in all than in the trace.
    pub has_more_calls: bool,
    /// The shortest and the longest call of all rows.
    pub reach: Option<(u64, u64)>,
    /// How times are corrected.
    pub correction: Correction,
}

impl Scale {
    pub fn of<'s>(all: impl Iterator<Item = &'s Sums> + Clone) -> Scale {
        let min = all.clone().filter_map(|sums| sums.times.min()).min();
        let max = all.clone().filter_map(|sums| sums.times.max()).max();
        let has_more_calls = all.clone().any(|sums| sums.all_calls > sums.calls);
        let own_ns = all.map(|sums| sums.own_ns).fold(0, u64::saturating_add);
        Scale { own_ns, has_more_calls, reach: min.zip(max), ..Scale::default() }
    }

    /// A corrected time of a row.
    pub fn corrected(&self, sums: &Sums, order: Order) -> Corrected {
        corrected::of(&self.correction, sums, order)
    }

    /// Durations of a row as bars, from the shortest call of all rows to the longest, in equal steps of their logarithms.
    fn histogram(&self, sums: &Sums) -> String {
        let Some((min, max)) = self.reach else { return String::new() };
        let low = (min.max(1) as f64).ln();
        let span = ((max.max(1) as f64).ln() - low).max(f64::EPSILON);
        let mut bars = [0_u64; BARS];
        for (value, count) in sums.times.values() {
            let place = ((value.max(1) as f64).ln() - low) / span * BARS as f64;
            bars[(place as usize).min(BARS - 1)] += count;
        }
        let most = bars.iter().copied().max().unwrap_or(0).max(1);
        let bar = |count: u64| {
            const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
            let height = (count as f64 / most as f64 * 8.0).ceil() as usize;
            BLOCKS[height.min(8)]
        };
        bars.into_iter().map(bar).collect()
    }
}
