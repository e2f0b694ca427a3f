//! The clock, which events have times of their own, and what an event cost.

use std::fmt::{self, Write};

use everycall_analysis::{EventPrice, Sketch};
use everycall_reader::{EventClock, Stamps};
use everycall_timeline::{ClockQuality, HookPrices, ProcessCalibration, Trace};
use everycall_units::{Count, Duration, Several};
use serde_json::{Value, json};

use super::facts::Report;
use super::layout::{WIDTH, heading};
use crate::output::clean;
use crate::recording::written;

/// The clock, as text.
pub fn text(report: &Report<'_>) -> String {
    let meta = report.trace.meta();
    let invariant = match meta.invariant_counter {
        Some(true) => "constant rate",
        Some(false) => "rate not guaranteed constant by the CPU",
        None => "constancy unknown",
    };
    match report.trace.clock_quality() {
        ClockQuality::Measured { error_ns, ticks_per_second, readings, readings_refused } => {
            let refused =
                if readings_refused > 0 { format!(", {readings_refused} refused") } else { String::new() };
            format!(
                "{:.6} GHz, {invariant}, exact to {} ({}{refused})",
                ticks_per_second as f64 / 1e9,
                Duration { ns: error_ns },
                Several(readings.into(), "reading", "readings"),
            )
        }
        ClockQuality::AssumedRate { .. } => "rate unknown: times are ticks, shown as nanoseconds".to_owned(),
    }
}

/// The clock, as JSON.
pub fn json(report: &Report<'_>) -> Value {
    let meta = report.trace.meta();
    let mut clock = match report.trace.clock_quality() {
        ClockQuality::Measured { error_ns, ticks_per_second, readings, readings_refused } => json!({
            "ticks_per_second": ticks_per_second,
            "error_ns": error_ns,
            "readings": readings,
            "readings_refused": readings_refused,
        }),
        ClockQuality::AssumedRate { readings_refused } => json!({
            "ticks_per_second": Value::Null,
            "readings_refused": readings_refused,
        }),
    };
    clock["origin_ticks"] = json!(report.trace.clock().origin_ticks());
    if let Some(wall) = report.trace.clock().wall() {
        clock["realtime"] = json!({
            "error_ns": wall.error_ns(),
            "drift_ns": wall.drift_ns(),
            "set_by_ns": wall.set_by_ns(),
        });
    }
    clock["invariant_counter"] = json!(meta.invariant_counter);
    clock["source"] = json!(String::from_utf8_lossy(&meta.clock_source));
    clock
}

/// Which events have times of their own, if not all have, or not all should.
pub fn times_text(report: &Report<'_>) -> Option<String> {
    let mut parts = Vec::new();
    let clocks = clocks(report.trace);
    for (stamps, count) in &clocks {
        let of = match clocks.len() {
            1 => String::new(),
            _ => format!(" in {}", Several(*count, "process", "processes")),
        };
        let (name, wanted) = (stamps.clock.name(), stamps.wanted.name());
        parts.push(match stamps.clock {
            _ if stamps.clock == stamps.wanted => format!("{name}{of}"),
            EventClock::Exact => format!("{name}{of}, although {wanted} was wanted: {}", written::WHY_EXACT),
            _ if stamps.wanted == EventClock::Exact => format!("{name}{of}, chosen while it ran"),
            _ => format!("{name}{of}, although {wanted} was wanted"),
        });
    }
    if clocks.iter().all(|(stamps, _)| *stamps == Stamps::default()) {
        return None;
    }
    if let Some(intervals) = &report.intervals {
        let without = intervals.without.count();
        let stamped = intervals.events.saturating_sub(without) as f64 / intervals.events.max(1) as f64;
        let mut text = match without {
            // Such as two that a slow path wrote at the same tick.
            1.. if stamped > 0.9995 => format!("all but {} events have times of their own", Count(without)),
            _ => format!("{:.1} % of the events have times of their own", 100.0 * stamped),
        };
        let percentile = |of| intervals.without.percentile(of).map(|ns| Duration { ns });
        if let (Some(median), Some(p99)) = (percentile(5_000), percentile(9_900)) {
            text += &format!(", the others are known within {median} (median), {p99} (99th percentile)");
        }
        parts.push(text);
    }
    Some(parts.join("; "))
}

/// Which events have times of their own, if not all have, or not all should.
pub fn times(report: &Report<'_>) -> Option<Value> {
    let clocks = clocks(report.trace);
    if clocks.iter().all(|(stamps, _)| *stamps == Stamps::default()) {
        return None;
    }
    let clocks = clocks.iter().map(|(stamps, processes)| {
        json!({ "clock": stamps.clock.name(), "wanted": stamps.wanted.name(), "processes": processes })
    });
    let intervals = |sketch: &Sketch| {
        json!({
            "events": sketch.count(),
            "median_ns": sketch.percentile(5_000),
            "p99_ns": sketch.percentile(9_900),
            "widest_ns": sketch.max(),
        })
    };
    let known = report.intervals.as_ref().map(|found| {
        let widest = found.widest.iter().map(|function| {
            let mut object = intervals(&function.intervals);
            object["name"] = function.name.clone().into();
            object
        });
        json!({
            "events": found.events,
            "without_time": intervals(&found.without),
            "widest": widest.collect::<Vec<_>>(),
        })
    });
    Some(json!({ "processes": clocks.collect::<Vec<_>>(), "events": known }))
}

/// The functions whose events' times are known least.
pub fn widest_text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let Some(intervals) = report.intervals.as_ref().filter(|intervals| !intervals.widest.is_empty()) else {
        return Ok(());
    };
    heading(out, "Times known least")?;
    writeln!(out, "  {:>12}{:>12}{:>12}  function", "events", "median", "widest")?;
    for function in &intervals.widest {
        let time = |ns: Option<u64>| Duration { ns: ns.unwrap_or(0) }.to_string();
        let (median, widest) = (function.intervals.percentile(5_000), function.intervals.max());
        writeln!(
            out,
            "  {:>12}{:>12}{:>12}  {}",
            Count(function.intervals.count()).to_string(),
            time(median),
            time(widest),
            report.names.shown(&clean(&function.name), Some(WIDTH - 40)),
        )?;
    }
    Ok(())
}

/// The choices of the processes, and how many have each.
fn clocks(trace: &Trace<'_>) -> Vec<(Stamps, u64)> {
    let mut clocks: Vec<(Stamps, u64)> = Vec::new();
    for process in trace.processes() {
        match clocks.iter_mut().find(|(stamps, _)| *stamps == process.stamps) {
            Some((_, count)) => *count += 1,
            None => clocks.push((process.stamps, 1)),
        }
    }
    clocks
}

/// Measured cost of an event; of several processes, the first one's.
pub fn hooks_text(trace: &Trace<'_>) -> Option<String> {
    let known = trace.calibrations().first()?;
    if !known.is_measured {
        return Some("what an event cost could not be measured at the start".to_owned());
    }
    let has_sites = trace.modules().iter().any(everycall_reader::Module::has_sites);
    let prices = if has_sites { &known.sites } else { &known.bodies };
    let [low, value, high] = EventPrice::of(trace, prices).ns();
    Some(format!(
        "{value:.1} ns an event, in programs {low:.1} to {high:.1}, measured at the start; `everycall report \
        --corrected` subtracts it"
    ))
}

/// Cost of an event, by process, for processes that have measured it.
pub fn hooks(report: &Report<'_>) -> Value {
    let trace = report.trace;
    let price = |prices: &HookPrices| {
        let price = EventPrice::of(trace, prices);
        let range = |[low, value, high]: [f64; 3]| json!({ "low": low, "value": value, "high": high });
        json!({ "inside_ns": range(price.inside_ns), "outside_ns": range(price.outside_ns) })
    };
    let process = |known: &ProcessCalibration| {
        let prices = |prices: &HookPrices| if known.is_measured { price(prices) } else { Value::Null };
        json!({
            "process": known.process,
            "sites": prices(&known.sites),
            "bodies": prices(&known.bodies),
            "frames": prices(&known.frames),
            "cpu_ns": known.cpu_ns,
        })
    };
    trace.calibrations().iter().map(process).collect()
}
