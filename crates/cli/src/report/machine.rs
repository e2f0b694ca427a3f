//! All numbers in machine-readable form: CSV and JSON. docs/report.md defines them.

pub use everycall_analysis::machine::{notes, numbers, object, objects};
use everycall_analysis::{Profile, Row};
use serde_json::{Value, json};

use super::Run;

/// One object.
pub fn json(profile: &Profile, rows: &[Row<'_>], runs: &[Run]) -> String {
    let value = json!({
        "files": runs.iter().map(Run::json).collect::<Vec<_>>(),
        "by": super::heading(profile.grouping()),
        "calls": profile.calls,
        "unwound_calls": profile.unwound,
        "not_in_the_numbers": notes(&profile.notes),
        "rows": objects(profile, rows),
    });
    format!("{value:#}\n")
}

/// A line of names, then a line for each group.
pub fn csv(profile: &Profile, rows: &[Row<'_>]) -> String {
    csv_of(&objects(profile, rows))
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
