//! For programs. `docs/reference/why.md` lists the keys; a kept output guards them.

use everycall_analysis::CallPlace;
use everycall_timeline::StateTimes;
use serde_json::{Value, json};

use crate::answer::{Named, OneCall, PartOfCall, RowNumbers, Step, Waits, Why};

/// The version of the JSON: it is raised where a key is removed or means something else. New keys
/// may come without that.
pub const SCHEMA: u64 = 1;

impl Why {
    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "schema": SCHEMA,
            "file": self.file.display().to_string(),
            "chosen": self.chosen.name(),
            "kept_calls": self.kept_calls,
            "with_tails": self.follows_tails,
            "call": call(&self.call),
            "steps": self.steps.iter().map(step).collect::<Vec<_>>(),
            "functions": self.functions.iter().map(|row| {
                let mut object = named(&row.function);
                object["call"] = numbers(&row.call);
                object["median_call"] = row.median.as_ref().map_or(Value::Null, numbers);
                object["cause"] = row.cause.name().into();
                object
            }).collect::<Vec<_>>(),
            "further_functions": self.further_functions,
            "waits": waits(&self.waits),
            "samples": self.samples.iter().map(|sampled| with(named(&sampled.function), [(
                "places",
                sampled.places.iter().map(|(place, count)| json!({ "place": place, "samples": count })).collect(),
            )])).collect::<Vec<_>>(),
            "values": self.values.iter().map(|value| json!({
                "name": value.name,
                "value": value.value,
                "calls": value.calls,
                "min_ns": value.min_ns,
                "p50_ns": value.p50_ns,
                "values": value.values,
                "largest": value.is_largest,
            })).collect::<Vec<_>>(),
            "missing": self.missing.iter().map(|missing| json!({
                "what": missing.what,
                "count": missing.count,
                "sentence": missing.sentence,
                "concerns": missing.concern.name(),
                "doubt": missing.is_doubt,
            })).collect::<Vec<_>>(),
            "claims": self.claims.iter().map(|claim| json!({
                "kind": claim.kind,
                "text": claim.text,
                "doubts": claim.doubts,
                "next": claim.next,
            })).collect::<Vec<_>>(),
        })
    }
}

fn named(function: &Named) -> Value {
    json!({
        "name": function.full_name,
        "module": function.module,
        "file": function.file,
        "line": function.line,
    })
}

fn labels(all: &[(String, Option<u64>)]) -> Vec<Value> {
    all.iter()
        .map(|(name, value)| {
            // JSON numbers above 2^53 lose digits.
            let value =
                value.map(|value| if value > 1 << 53 { json!(value.to_string()) } else { json!(value) });
            json!({ "name": name, "value": value })
        })
        .collect()
}

fn at(place: CallPlace, end_ns: u64) -> [(&'static str, Value); 5] {
    [
        ("pid", json!(place.pid)),
        ("tid", json!(place.tid)),
        ("depth", json!(place.depth)),
        ("start_ns", json!(place.start_ns)),
        ("end_ns", json!(end_ns)),
    ]
}

fn with(mut object: Value, more: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    for (name, value) in more {
        object[name] = value;
    }
    object
}

fn call(call: &OneCall) -> Value {
    let parsed = |texts: &Option<(String, String)>| {
        texts.as_ref().and_then(|(_, json)| serde_json::from_str::<Value>(json).ok()).unwrap_or(Value::Null)
    };
    let more = [
        ("thread", json!(call.thread)),
        ("dur_ns", json!(call.duration_ns())),
        ("dur_low_ns", json!(call.bounds.map(|(low, _)| low))),
        ("dur_high_ns", json!(call.bounds.map(|(_, high)| high))),
        ("own_ns", json!(call.own_ns)),
        ("uncertain", json!(call.is_uncertain)),
        ("at_most", json!(call.is_at_most)),
        ("unwound", json!(call.is_unwound)),
        ("before_tail_call", json!(call.is_before_tail)),
        ("kept_call", json!(call.kept)),
        ("arguments", parsed(&call.arguments)),
        ("result", parsed(&call.result)),
        ("labels", json!(labels(&call.labels))),
    ];
    with(with(named(&call.function), at(call.place, call.end_ns)), more)
}

fn step(step: &Step) -> Value {
    let median = step.median.as_ref().map(|median| {
        json!({
            "p50_ns": median.p50_ns,
            "calls": median.calls,
            "average_ns": median.average_ns,
            "nearest": median.nearest.map(|(place, end_ns)| with(json!({}), at(place, end_ns))),
        })
    });
    let more = [
        ("dur_ns", json!(step.duration_ns)),
        ("timed_calls", json!(step.timed_calls)),
        ("median", json!(median)),
        ("parts", step.parts.iter().map(part).collect()),
        ("further_parts", json!(step.further_parts)),
    ];
    with(with(named(&step.function), at(step.place, step.end_ns)), more)
}

fn part(part: &PartOfCall) -> Value {
    json!({
        "part": part.kind,
        "function": part.function.as_ref().map(named),
        "call_ns": part.call_ns,
        "median_ns_per_call": part.median_ns,
        "call_calls": part.call_calls,
        "median_calls_per_call": part.median_calls,
        "difference_ns": part.more_ns(),
        "cause": part.cause.name(),
    })
}

fn states(states: &StateTimes) -> Value {
    json!({
        "running_ns": states.running,
        "runnable_ns": states.runnable,
        "blocked_ns": states.blocked,
        "unknown_ns": states.unknown,
    })
}

fn numbers(row: &RowNumbers) -> Value {
    json!({
        "calls": row.calls,
        "total_ns": row.total_ns,
        "own_ns": row.own_ns,
        "own_states": row.own_states.as_ref().map(states),
    })
}

fn waits(waits: &Waits) -> Value {
    json!({
        "states": waits.states.as_ref().map(states),
        "median_call_states": waits.median_states.as_ref().map(states),
        "blocked_in": waits.blocked_in.iter().map(|(call, ns)| json!({ "call": call, "ns": ns })).collect::<Vec<_>>(),
        "woken_by": waits.woken_by.as_ref().map(|(tid, thread)| json!({ "tid": tid, "thread": thread })),
        "calls": waits.calls.iter().map(|call| with(named(&call.function), [
            ("start_ns", json!(call.start_ns)),
            ("dur_ns", json!(call.duration_ns)),
            ("labels", json!(labels(&call.labels))),
            ("holder", json!(call.holder.as_ref().map(|holder| json!({ "tid": holder.tid, "thread": holder.thread })))),
        ])).collect::<Vec<_>>(),
        "further_calls": waits.further_calls,
    })
}
