//! The numbers of groups in machine-readable form: as `report` prints them, and the viewer gets
//! them. docs/reference/report.md defines them.

use everycall_calls::StateTimes;
use serde_json::{Map, Value, json};

use crate::group::Key;
use crate::notes::Notes;
use crate::profile::{Profile, Row};
use crate::sums::Sums;

/// Percentiles: name and ten thousandths.
pub const PERCENTILES: [(&str, u32); 4] =
    [("p50_ns", 5_000), ("p90_ns", 9_000), ("p99_ns", 9_900), ("p99_9_ns", 9_990)];

/// All numbers of a group by name; `None` where nothing is known.
pub fn numbers(sums: &Sums) -> Vec<(&'static str, Option<u64>)> {
    let (times, (total, own)) = (&sums.times, (sums.total_states, sums.own_states));
    let numbers = sums.numbers();
    let number = |name: &str| Sums::NAMES.iter().position(|known| *known == name).map(|at| numbers[at]);
    let mut all = Vec::new();
    let named = |all: &mut Vec<_>, is_known: bool, names: &[&'static str]| {
        all.extend(names.iter().map(|name| (*name, number(name).filter(|_| is_known))));
    };
    let counts = ["calls", "unwound", "truncated", "ended_earlier", "tail_calls", "at_most", "untimed"];
    named(&mut all, true, &counts);
    named(&mut all, sums.all_calls > 0, &["all_calls"]);
    named(&mut all, true, &["total_ns", "own_ns", "untraced_at_most_ns"]);
    all.extend([
        ("timed_calls", Some(times.count())),
        ("timed_in_octaves", Some(sums.in_octaves)),
        ("average_ns", times.average()),
        ("min_ns", times.min()),
    ]);
    all.extend(PERCENTILES.map(|(name, of)| (name, times.percentile(of))));
    all.push(("max_ns", times.max()));
    // Without thread states, nothing is known.
    let has_states = total != StateTimes::default();
    named(&mut all, has_states, &["running_ns", "runnable_ns", "blocked_ns"]);
    named(&mut all, has_states, &["own_running_ns", "own_runnable_ns", "own_blocked_ns"]);
    all.extend([
        ("off_cpu_at_most_ns", has_states.then(|| total.off_at_most())),
        ("own_off_cpu_at_most_ns", has_states.then(|| own.off_at_most())),
    ]);
    let are_known = |states: StateTimes| has_states && states.switches().is_some();
    named(&mut all, are_known(total), &["voluntary_switches", "involuntary_switches"]);
    named(&mut all, are_known(own), &["own_voluntary_switches", "own_involuntary_switches"]);
    let memory = ["allocated_bytes", "allocated_blocks", "freed_bytes", "freed_blocks"];
    named(&mut all, sums.has_memory(), &memory);
    let memory = ["own_allocated_bytes", "own_allocated_blocks", "own_freed_bytes", "own_freed_blocks"];
    named(&mut all, sums.has_memory(), &memory);
    all
}

/// The identity of a group, by name.
#[must_use]
pub fn key(profile: &Profile, key: &Key) -> Vec<(&'static str, Value)> {
    let function = |number: u32| profile.functions().get(number).cloned().unwrap_or_default();
    match key {
        Key::Function(number) => {
            let function = function(*number);
            let identity = function.identity;
            vec![
                ("name", json!(identity.name)),
                ("symbols", json!(function.symbols)),
                ("module", json!(identity.module)),
                ("file", json!(identity.file)),
                ("line", json!(identity.line)),
            ]
        }
        Key::Thread { trace, pid, tid, name } => {
            vec![("trace", json!(trace)), ("pid", json!(pid)), ("tid", json!(tid)), ("thread", json!(name))]
        }
        Key::Process { trace, pid, name } => {
            vec![("trace", json!(trace)), ("pid", json!(pid)), ("process", json!(name))]
        }
        Key::Module(module) => vec![("module", json!(module))],
        Key::File(file) => vec![("file", json!(file))],
        Key::Label { is_set, value } => {
            // JSON numbers above 2^53 lose digits.
            let value =
                value.map(|value| if value > 1 << 53 { json!(value.to_string()) } else { json!(value) });
            vec![("has_label", json!(is_set)), ("value", json!(value))]
        }
        Key::Value(text) => vec![("value", json!(text))],
        Key::Path(path) => {
            let names: Vec<String> = path.iter().map(|number| function(*number).identity.name).collect();
            vec![("path", json!(names))]
        }
    }
}

/// An object of a group.
pub fn object(of: Vec<(&'static str, Value)>, sums: &Sums) -> Value {
    let mut object: Map<String, Value> =
        of.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    object.extend(numbers(sums).into_iter().map(|(name, number)| (name.to_owned(), json!(number))));
    let histogram = sums.times.octaves();
    let histogram = histogram.iter().map(|(from_ns, calls)| json!({ "from_ns": from_ns, "calls": calls }));
    object.insert("histogram".to_owned(), histogram.collect());
    Value::Object(object)
}

/// An object of each group. Where times have bounds, each has those as well.
#[must_use]
pub fn objects(profile: &Profile, rows: &[Row<'_>]) -> Vec<Value> {
    let has_bounds = rows.iter().any(|row| row.sums.has_bounds());
    let object = |row: &Row<'_>| {
        let mut object = object(key(profile, row.key), row.sums);
        if has_bounds {
            let (total, own) = (row.sums.total(), row.sums.own());
            object["total_low_ns"] = total.low.into();
            object["total_high_ns"] = total.high.into();
            object["own_low_ns"] = own.low.into();
            object["own_high_ns"] = own.high.into();
        }
        object
    };
    rows.iter().map(object).collect()
}

/// The notes as a JSON object: numbers by name.
pub fn notes(notes: &Notes) -> Value {
    let numbers = Notes::NAMES.iter().zip(notes.numbers());
    Value::Object(numbers.map(|(name, number)| ((*name).to_owned(), json!(number))).collect())
}
