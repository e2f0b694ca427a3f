//! Profiles in files, as `everycall merge` writes them. docs/reference/report.md describes the
//! format.

use std::fmt;

use everycall_profile::{
    Function, FunctionIdentity, Key, Notes, Order, Profile, Sketch, SketchParts, SumBounds, Sums,
};
use everycall_symbols::short_name;
use serde_json::{Map, Value, json};

/// The beginning of such a file.
pub const BEGIN: &[u8] = b"{\"everycall_profile\":";
/// Version of the format; readers refuse newer ones.
pub const VERSION: u64 = 1;

/// How many numbers a function has in the files of each version: those of thread states came later,
/// then those of all calls and of memory.
const NUMBERS: [usize; 4] = [10, 18, 25, Sums::NAMES.len()];

/// A run in such a file, with its profile by function.
#[derive(Clone, Debug, Default)]
pub struct StoredRun {
    /// Facts about the run, for users and programs; they are copied unchanged.
    pub about: Map<String, Value>,
    /// Its calls.
    pub profile: Profile,
}

/// Why a file can't be read as profiles. `Display` describes the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredError {
    /// It has a newer version.
    Newer(u64),
    /// It is damaged at this place.
    Damaged(String),
}

impl fmt::Display for StoredError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoredError::Newer(version) => write!(
                out,
                "was written by a newer everycall (version {version} of the form, this one reads up to {VERSION})"
            ),
            StoredError::Damaged(at) => write!(out, "is cut or damaged: {at}"),
        }
    }
}

impl std::error::Error for StoredError {}

/// The text of the file: one line.
#[must_use]
pub fn write(runs: &[StoredRun]) -> String {
    // Not serialized as one object, because members would be sorted by name and the version must
    // come first.
    let runs: Vec<String> = runs.iter().map(|run| stored(run).to_string()).collect();
    format!("{}{VERSION},\"runs\":[{}]}}\n", String::from_utf8_lossy(BEGIN), runs.join(","))
}

/// Parses the text of a file.
///
/// # Errors
///
/// See [`StoredError`].
pub fn read(text: &[u8]) -> Result<Vec<StoredRun>, StoredError> {
    let damaged = |at: &str| StoredError::Damaged(at.to_owned());
    let value: Value = serde_json::from_slice(text).map_err(|error| damaged(&error.to_string()))?;
    let version = value["everycall_profile"].as_u64().ok_or_else(|| damaged("there is no version"))?;
    if version > VERSION {
        return Err(StoredError::Newer(version));
    }
    let runs = value["runs"].as_array().ok_or_else(|| damaged("there are no runs"))?;
    let read = |(number, run): (usize, &Value)| {
        run_of(run).ok_or_else(|| damaged(&format!("run {} makes no sense", number + 1)))
    };
    runs.iter().enumerate().map(read).collect()
}

fn stored(run: &StoredRun) -> Value {
    let mut functions = Vec::new();
    for row in run.profile.rows_of_all_calls(Order::Calls) {
        let Key::Function(number) = row.key else { continue };
        let Some(function) = run.profile.functions().get(*number) else { continue };
        let identity = &function.identity;
        let mut stored = json!({
            "name": identity.name,
            "module": identity.module,
            "file": identity.file,
            "line": identity.line,
            "part": identity.part,
            "symbols": function.symbols,
            "numbers": row.sums.numbers().to_vec(),
            "times": sketch(&row.sums.times),
            "own_times": sketch(&row.sums.own_times),
        });
        if !row.sums.bounds.is_none() {
            stored["bounds"] = row.sums.bounds.numbers().to_vec().into();
        }
        functions.push(stored);
    }
    json!({ "about": run.about, "notes": run.profile.notes.numbers(), "functions": functions })
}

fn sketch(sketch: &Sketch) -> Value {
    let SketchParts { sum, min, max, few, buckets } = sketch.parts();
    json!({ "sum": sum, "min": min, "max": max, "few": few, "buckets": buckets })
}

fn run_of(value: &Value) -> Option<StoredRun> {
    let (mut notes, mut functions) = (Notes::default(), Vec::new());
    for (into, number) in notes.numbers_mut().into_iter().zip(numbers(&value["notes"])?) {
        *into = number;
    }
    for of in value["functions"].as_array()? {
        let text = |name: &str| of[name].as_str().map(str::to_owned);
        let symbols = of["symbols"].as_array()?.iter().map(|symbol| symbol.as_str().map(str::to_owned));
        let identity = FunctionIdentity {
            name: text("name")?,
            module: text("module")?,
            file: text("file"),
            line: of["line"].as_u64().and_then(|line| u32::try_from(line).ok()),
            part: of["part"].as_u64(),
        };
        let mut function = Function::of(identity);
        function.name = short_name(&function.identity.name);
        function.symbols = symbols.collect::<Option<_>>()?;
        let mut sums = Sums {
            times: sketch_of(&of["times"])?,
            own_times: sketch_of(&of["own_times"])?,
            ..Sums::default()
        };
        if let Some(bounds) = of.get("bounds") {
            sums.bounds = SumBounds::of_numbers(numbers(bounds)?.try_into().ok()?);
        }
        let numbers = numbers(&of["numbers"])?;
        if !NUMBERS.contains(&numbers.len()) {
            return None;
        }
        for (into, number) in sums.numbers_mut().into_iter().zip(numbers) {
            *into = number;
        }
        functions.push((function, sums));
    }
    let profile = Profile::of_functions(functions, notes);
    Some(StoredRun { about: value["about"].as_object()?.clone(), profile })
}

fn numbers(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

fn sketch_of(value: &Value) -> Option<Sketch> {
    let buckets = value["buckets"].as_array()?.iter().map(|bucket| match bucket.as_array()?.as_slice() {
        [number, count] => Some((number.as_u64()?, count.as_u64()?)),
        _ => None,
    });
    Sketch::from_parts(&SketchParts {
        sum: value["sum"].as_u64()?,
        min: value["min"].as_u64()?,
        max: value["max"].as_u64()?,
        few: numbers(&value["few"])?,
        buckets: buckets.collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::made_up;

    fn run() -> StoredRun {
        let identity = |name: &str| FunctionIdentity {
            name: name.to_owned(),
            module: "app".to_owned(),
            file: Some("a.cpp".to_owned()),
            line: Some(7),
            part: None,
        };
        let functions = [
            (identity("f(std::vector<int, std::allocator<int> >)"), (0..1_000).collect()),
            (identity("g"), vec![5]),
        ];
        let mut profile = made_up(functions);
        profile.notes.lost = 3;
        let about = Map::from_iter([("file".to_owned(), json!("a.ect"))]);
        StoredRun { about, profile }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = write(&[run(), run()]);
        assert!(text.as_bytes().starts_with(BEGIN));
        let again = read(text.as_bytes()).unwrap();
        assert_eq!(again.len(), 2);
        assert_eq!(write(&again), text);
        assert_eq!((again[0].profile.calls, again[0].profile.notes.lost), (1_001, 3));
        assert_eq!(again[0].profile.functions().all()[0].name, "f(std::vector<int>)");
    }

    #[test]
    fn truncated_newer_and_invalid_files_are_refused() {
        let text = write(&[run()]);
        for length in (0..text.len() - 1).step_by(37) {
            assert!(matches!(read(&text.as_bytes()[..length]), Err(StoredError::Damaged(_))), "{length}");
        }
        let newer = text.replacen(":1,", ":2,", 1);
        assert_eq!(read(newer.as_bytes()).unwrap_err(), StoredError::Newer(2));
        for (right, wrong) in [
            ("\"numbers\":[", "\"numbers\":[1,"),
            ("\"few\":[5]", "\"few\":[-5]"),
            ("\"symbols\":[]", "\"symbols\":0"),
        ] {
            assert!(text.contains(right), "{right}");
            assert!(
                matches!(read(text.replace(right, wrong).as_bytes()), Err(StoredError::Damaged(_))),
                "{wrong}"
            );
        }
    }
}
