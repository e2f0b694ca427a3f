//! Lines of source files in allowed folders.

use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

/// Most bytes of a file that are read.
const FILE_MAX: u64 = 4 << 20;

/// Lines around one, with their numbers.
pub(crate) fn lines(path: &Path, line: u64, count: u64) -> Result<Value, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(FILE_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    // A function's own line, and what follows it.
    let first = line.saturating_sub(3).max(1);
    let lines = text.lines().zip(1_u64..).skip_while(|(_, number)| *number < first);
    let shown: Vec<Value> = lines
        .take(usize::try_from(count).unwrap_or(usize::MAX))
        .map(|(text, number)| json!({ "line": number, "text": text.chars().take(400).collect::<String>() }))
        .collect();
    Ok(json!(shown))
}
