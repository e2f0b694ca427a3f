//! The statements about a call: sentences, each with why it could be wrong, and with the commands
//! that show more.

use everycall_export::without_parameters;
use everycall_io::terminal::line;
use everycall_units::{Count, Duration, Several};

use crate::answer::{Cause, Claim, Concern, Named, PartOfCall, Step, Why};
use crate::commands::{Commands, Span};

/// Most commands that follow holders of locks.
const HOLDERS_MAX: usize = 3;
/// Most claims about the parts of one call.
const PARTS_MAX: usize = 3;

pub(crate) fn time(ns: u64) -> String {
    Duration { ns }.to_string()
}

/// A time that is an average or a difference.
pub(crate) fn time_of(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "" };
    format!("{sign}{}", time(ns.abs().round() as u64))
}

/// How many calls there are on average: a fraction says something of small numbers only.
pub(crate) fn calls(count: f64) -> String {
    if count.fract() == 0.0 || count >= 1000.0 {
        Count(count.round() as u64).to_string()
    } else {
        format!("{count:.1}")
    }
}

/// All of them, the most general first.
pub(crate) fn claims(why: &Why, commands: &Commands) -> Vec<Claim> {
    let doubts = |concerns: &[Concern]| {
        let concerns_it = |of: &Concern| concerns.contains(of) || *of == Concern::All;
        let all = why.missing.iter().filter(|missing| missing.is_doubt && concerns_it(&missing.concern));
        all.map(|missing| missing.sentence.clone()).collect::<Vec<_>>()
    };
    let span = |step: &Step| Span { tid: step.place.tid, start_ns: step.place.start_ns, end_ns: step.end_ns };
    let name = |function: &Named| line(&function.name).into_owned();
    let mut claims = Vec::new();
    let Some(first) = why.steps.first() else { return claims };
    let mut next = vec![commands.slowest(&first.pattern)];
    if first.median.is_some() {
        next.push(commands.explain(&first.pattern));
    }
    if why.call.is_before_tail {
        next.push(commands.why_with_tails(&first.pattern));
    }
    claims.push(Claim {
        kind: "duration",
        text: headline(why),
        doubts: doubts(&[Concern::Comparison]),
        next,
    });
    for (at, step) in why.steps.iter().enumerate() {
        let mut next = vec![commands.callees(&step.pattern, span(step))];
        if at + 1 == why.steps.len() {
            next.push(commands.replay(&step.function.full_name, span(step)));
        }
        // The largest part, and others that are a tenth of it or more.
        let least = step.parts.first().map_or(0.0, |part| part.more_ns() / 10.0);
        let large = |part: &&PartOfCall| part.more_ns() > 0.0 && part.more_ns() >= least;
        for part in step.parts.iter().filter(large).take(PARTS_MAX) {
            claims.push(Claim {
                kind: "difference",
                text: format!("{}: {}", name(&step.function), part_text(step, part)),
                doubts: doubts(&[Concern::Comparison, Concern::Call]),
                next: next.clone(),
            });
        }
    }
    let waited = why.waits.states.is_some_and(|states| states.blocked + states.runnable > 0);
    if waited || !why.waits.calls.is_empty() {
        let mut next = vec![commands.replay(&first.function.full_name, span(first))];
        let mut holders: Vec<u32> = Vec::new();
        for call in &why.waits.calls {
            let Some(holder) = &call.holder else { continue };
            if holder.tid == why.call.place.tid
                || holders.contains(&holder.tid)
                || holders.len() >= HOLDERS_MAX
            {
                continue;
            }
            holders.push(holder.tid);
            let end_ns = call.start_ns.saturating_add(call.duration_ns);
            next.push(commands.meanwhile(Span { tid: holder.tid, start_ns: call.start_ns, end_ns }));
        }
        claims.push(Claim {
            kind: "waiting",
            text: waiting_text(why),
            doubts: doubts(&[Concern::Call, Concern::Waiting]),
            next,
        });
    }
    if let Some(row) = why.functions.first().filter(|row| row.more_ns() > 0 && row.median.is_some()) {
        let median = row.median.unwrap_or_default();
        claims.push(Claim {
            kind: "function",
            text: format!(
                "most of the difference to a median call is own time of {}: {} in {}, there {} in {}; {}",
                name(&row.function),
                time(row.call.own_ns),
                Several(row.call.calls, "call", "calls"),
                time(median.own_ns),
                Several(median.calls, "call", "calls"),
                words(row.cause),
            ),
            doubts: doubts(&[Concern::Comparison, Concern::Call]),
            next: vec![commands.table(&first.function.full_name, span(first))],
        });
    }
    let all_ns = first.median.as_ref().map(|median| median.p50_ns);
    for value in &why.values {
        let (Some(min_ns), Some(all_ns)) = (value.min_ns, all_ns) else { continue };
        // The fastest of several calls with this value is slow; of a single one, only a number that
        // is larger than all others says something.
        let is_slow = min_ns >= all_ns.saturating_mul(2);
        if !is_slow || value.values < 2 || !(value.calls > 1 || value.is_largest) {
            continue;
        }
        let largest = if value.is_largest { ", the largest value" } else { "" };
        claims.push(Claim {
            kind: "value",
            text: format!(
                "with {} = {}{largest} of {}: {}, the fastest took {}; the median of all is {}",
                line(&value.name),
                line(&value.value),
                Count(value.values),
                Several(value.calls, "call", "calls"),
                time(min_ns),
                time(all_ns),
            ),
            doubts: doubts(&[Concern::Comparison, Concern::Values]),
            next: vec![commands.by_value(without_parameters(&why.call.function.name), &value.name)],
        });
    }
    if !why.missing.is_empty() {
        claims.push(Claim {
            kind: "missing",
            text: "what the trace lacks is listed below".to_owned(),
            doubts: Vec::new(),
            next: vec![commands.info()],
        });
    }
    claims
}

/// How long the call took, beside the median.
pub(crate) fn headline(why: &Why) -> String {
    let took = why.steps.first().map_or(why.call.duration_ns(), |step| step.duration_ns);
    let mut text = format!("{} took {}", line(&why.call.function.name), time(took));
    if let Some((step, median)) = why.steps.first().and_then(|step| Some((step, step.median.as_ref()?))) {
        text += &format!(
            "; the median of {} is {}",
            Several(step.timed_calls, "call", "calls"),
            time(median.p50_ns)
        );
    }
    text
}

/// The statement that a part of a step makes.
pub(crate) fn part_text(step: &Step, part: &PartOfCall) -> String {
    let what = match (&part.function, part.kind) {
        (Some(function), _) => format!(
            "{} in {} of {}",
            time(part.call_ns),
            Several(part.call_calls, "call", "calls"),
            line(&function.name)
        ),
        (None, "suspended") => format!("{} in which others ran instead of the fiber", time(part.call_ns)),
        (None, "tail") => format!("{} at most in what its tail call led to", time(part.call_ns)),
        (None, _) => format!("{} in the function itself, with what isn't traced", time(part.call_ns)),
    };
    let (Some(median), Some(median_ns)) = (&step.median, part.median_ns) else { return what };
    let all_ns = step.duration_ns as f64 - median.average_ns;
    let share = if all_ns > 0.0 && part.more_ns() > 0.0 {
        format!(", {:.0} % of what is more", 100.0 * part.more_ns() / all_ns)
    } else {
        String::new()
    };
    let there = match part.median_calls.filter(|_| part.function.is_some()) {
        Some(count) => {
            format!("{} in {} call{}", time_of(median_ns), calls(count), if count == 1.0 { "" } else { "s" })
        }
        None => time_of(median_ns),
    };
    let cause = match words(part.cause) {
        "" => String::new(),
        words => format!("; {words}"),
    };
    format!("{what}, around the median {there}{share}{cause}")
}

/// A cause in words.
pub(crate) fn words(cause: Cause) -> &'static str {
    match cause {
        Cause::OnlyHere => "not called around the median",
        Cause::MoreCalls => "more calls",
        Cause::SlowerCalls => "slower calls",
        Cause::Waiting => "waiting",
        Cause::WaitingForCpu => "waiting for a CPU",
        // It is said already, or there is nothing to say.
        Cause::OwnTime | Cause::NotMore => "",
    }
}

/// The statement about its waits.
fn waiting_text(why: &Why) -> String {
    let mut parts = Vec::new();
    if let Some(states) = why.waits.states {
        let mut text = format!(
            "on a CPU for {}, ready without one for {}, blocked for {}",
            time(states.running),
            time(states.runnable),
            time(states.blocked)
        );
        let longest = why.waits.blocked_in.iter().max_by_key(|(_, ns)| *ns);
        if let Some((call, ns)) = longest.filter(|(_, ns)| *ns > 0) {
            text += &format!(", {} of it in {call}", time(*ns));
        }
        parts.push(text);
    }
    if let Some(call) = why.waits.calls.first() {
        parts.push(format!(
            "{} in {}: {}",
            time(call.duration_ns),
            line(&call.function.name),
            labels(&call.labels).join(", ")
        ));
    }
    parts.join("; ")
}

/// Labels as text: what they name without a number where the name alone says it.
pub(crate) fn labels(all: &[(String, Option<u64>)]) -> Vec<String> {
    let named: Vec<&str> =
        all.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.as_str()).collect();
    let is_named = |name: &str| named.iter().any(|text| text.starts_with(&format!("{name}: ")));
    let mut texts = Vec::new();
    for (name, value) in all {
        match value {
            None => texts.push(line(name).into_owned()),
            // An address says less than the name that follows.
            Some(_) if is_named(name) && name != "held by" => {}
            Some(value) if name == "held by" => texts.push(format!("held by thread {value}")),
            Some(value) => texts.push(format!("{} {value}", line(name))),
        }
    }
    texts
}
