//! All numbers in machine-readable form: CSV and JSON. docs/reference/report.md defines them.

pub use everycall_analysis::machine::{notes, numbers, object, objects};
use everycall_analysis::{Correction, OwnSamples, Profile, Row};
use serde_json::{Value, json};

use super::corrected;
use super::load::Run;
use super::rows::heading;
use super::samples;

/// One object.
pub fn json(
    profile: &Profile,
    rows: &[Row<'_>],
    runs: &[Run],
    correction: Option<&Correction>,
    own: Option<&OwnSamples>,
) -> String {
    let mut objects = objects_of(profile, rows, correction);
    if let Some(own) = own {
        samples::add(&mut objects, own, profile, rows);
    }
    let mut value = json!({
        "files": runs.iter().map(Run::json).collect::<Vec<_>>(),
        "by": heading(profile.grouping()),
        "calls": profile.calls,
        "unwound_calls": profile.unwound,
        "not_in_the_numbers": notes(&profile.notes),
        "rows": objects,
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
    csv_of(&objects_of(profile, rows, correction))
}

/// The objects of rows, with their corrected times.
fn objects_of(profile: &Profile, rows: &[Row<'_>], correction: Option<&Correction>) -> Vec<Value> {
    let mut values = objects(profile, rows);
    for (value, row) in values.iter_mut().zip(rows) {
        if let (Value::Object(object), Some(correction)) = (value, correction) {
            corrected::add_numbers(object, correction, row.sums);
        }
    }
    values
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
