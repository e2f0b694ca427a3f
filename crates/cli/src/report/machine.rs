//! All numbers in machine-readable form: CSV and JSON. docs/report.md defines them.

pub use everycall_analysis::machine::{key, notes, numbers, object};
use everycall_analysis::{Correction, Profile, Row};
use serde_json::{Value, json};

use super::{Run, corrected};

/// One object.
pub fn json(profile: &Profile, rows: &[Row<'_>], runs: &[Run], correction: Option<&Correction>) -> String {
    let objects = rows.iter().map(|row| object_of(profile, row, correction));
    let mut value = json!({
        "files": runs.iter().map(Run::json).collect::<Vec<_>>(),
        "by": super::heading(profile.grouping()),
        "calls": profile.calls,
        "unwound_calls": profile.unwound,
        "not_in_the_numbers": notes(&profile.notes),
        "rows": objects.collect::<Vec<_>>(),
    });
    if let Some(correction) = correction {
        for (name, cost) in corrected::hooks_json(correction, profile, runs) {
            value[name] = cost;
        }
    }
    format!("{value:#}\n")
}

/// A line of names, then a line for each group.
pub fn csv(profile: &Profile, rows: &[Row<'_>], correction: Option<&Correction>) -> String {
    let objects: Vec<Value> = rows.iter().map(|row| object_of(profile, row, correction)).collect();
    csv_of(&objects)
}

/// The object of a row, with its corrected times.
fn object_of(profile: &Profile, row: &Row<'_>, correction: Option<&Correction>) -> Value {
    let mut value = object(key(profile, row.key), row.sums);
    if let (Value::Object(object), Some(correction)) = (&mut value, correction) {
        corrected::add_numbers(object, correction, row.sums);
    }
    value
}

/// A line of names, then a line for each object; histograms are left out.
pub fn csv_of(objects: &[Value]) -> String {
    let mut text = String::new();
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    for (number, object) in objects.iter().filter_map(Value::as_object).enumerate() {
        let cells = || object.iter().filter(|(name, _)| *name != "histogram");
        if number == 0 {
            text.push_str(&line(cells().map(|(name, _)| name.clone()).collect()));
        }
        text.push_str(&line(cells().map(|(_, value)| field(value)).collect()));
    }
    text
}

/// A value as a field: lists with `;` between their parts.
fn field(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().map(|part| part.as_str().unwrap_or_default()).collect::<Vec<_>>().join(";")
        }
        other => other.to_string(),
    };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}
