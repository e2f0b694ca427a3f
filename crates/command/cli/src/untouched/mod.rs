//! Programs that were built without hooks: which functions get some, and where.

pub mod process;
pub mod record;
pub mod staying;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use everycall_arguments::syntax::Request;
use everycall_control::resolve;
use everycall_inject::{InjectError, Process, on_tracer};
use everycall_io::say;
use everycall_patterns::{FunctionTable, NamePattern, Selection};
use everycall_triggers::Trigger;
use everycall_units::{Count, Several};
use everycall_untouched::{Functions, Hooked, Planned, Runtime, watch_leaving};

use crate::arguments::{OnlyArguments, ValueArguments};
use crate::failure::Failure;
use crate::output::clean;
use crate::recording::only::selection_of;
use crate::rules::without_match;

/// How many functions of a file have hooks, and, a line for each reason, why others have none.
pub fn hooks_of(file: &Hooked) -> (String, Vec<String>) {
    let all = Several(file.functions, "function", "functions");
    let not_chosen = (file.not_chosen > 0).then(|| format!("{} not chosen", Count(file.not_chosen)));
    let left_out = file.left_out.iter().map(|(why, count)| format!("{} can't: {why}", Count(*count)));
    (format!("hooks in {} of {all}", Count(file.hooked)), not_chosen.into_iter().chain(left_out).collect())
}

/// For a program to get to its entry point, and for each step there. Libraries initialise
/// themselves meanwhile.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a program under ptrace, and lets `change` change it at its entry point. The second result
/// is an error if it runs without.
pub fn start<T: Send>(
    command: Command,
    change: impl FnOnce(&mut Process) -> Result<T, InjectError> + Send,
) -> io::Result<(Child, Result<T, InjectError>)> {
    let result = on_tracer(|| {
        let started = everycall_inject::start(command, PATIENCE)?;
        let changed = started.process.and_then(|mut process| change(&mut process));
        Ok((started.child, changed))
    });
    result.map_err(|error| match error {
        InjectError::System { error, .. } => error,
        error => io::Error::other(error.to_string()),
    })
}

/// Has functions by which calls are left tell the runtime of it: before calls are recorded, which
/// may be left. Says where they can't.
pub fn watch(process: &mut Process, runtime: &Runtime) -> Result<(), InjectError> {
    for (path, why) in watch_leaving(process, runtime, PATIENCE)? {
        say!("everycall: {}", not_watched(&path, &why));
    }
    Ok(())
}

/// Says that [`watch_leaving`] failed for a library.
fn not_watched(path: &Path, why: &str) -> String {
    format!("{}: calls that exceptions or longjmp leave may end late: {why}", path.display())
}

/// Says which functions that options name can't get hooks.
pub fn say_refused(file: &Planned) {
    for (name, reason) in file.refused.iter().take(NAMED_AT_MOST) {
        say!("everycall: {}: `{}` gets no hooks, as those that {reason}", file.path.display(), clean(name));
    }
}

/// Whether a file is a script.
pub fn is_script(path: &Path) -> bool {
    let mut begin = [0; 2];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == *b"#!"
}

/// Functions of fewer bytes are left out by default, so that programs take less than twice their
/// time: measured with Python and SQLite (docs/reference/untouched.md).
const LEAST_SIZE: u64 = 512;

/// Functions without hooks that are named.
const NAMED_AT_MOST: usize = 10;

/// Functions that get hooks, as options say.
pub struct Choice {
    selection: Option<Selection>,
    /// The texts of the options' rules.
    named: Vec<String>,
    always: Vec<NamePattern>,
    are_others_kept: bool,
    /// Bytes.
    pub least_size: u64,
}

impl Choice {
    /// `is_all`: small ones, too. `triggers`: what they name gets hooks in any case.
    pub fn of(given: &OnlyArguments, is_all: bool, triggers: &[Trigger]) -> Result<Choice, Failure> {
        let (selection, named) = selection_of(given)?;
        // Who names functions means those.
        let least_size = if is_all || !given.only.is_empty() { 0 } else { LEAST_SIZE };
        Ok(Choice {
            selection: (!named.is_empty()).then_some(selection),
            named,
            always: triggers.iter().filter_map(Trigger::pattern).cloned().collect(),
            are_others_kept: false,
            least_size,
        })
    }

    /// Functions whose values are recorded get hooks in any case, too.
    pub fn with_values(mut self, values: &ValueArguments) -> Choice {
        let requests = values.args.iter().chain(&values.results);
        let functions = requests.filter_map(|text| Some(Request::parse(text).ok()?.function));
        self.always.extend(functions.filter_map(|function| NamePattern::new(&function).ok()));
        self
    }

    /// All functions, as clients choose among them later. Each of these patterns has to match one.
    pub fn of_clients(patterns: &[String]) -> Result<Choice, Failure> {
        let given = OnlyArguments { only: patterns.to_vec(), not: Vec::new() };
        Ok(Choice { are_others_kept: true, ..Choice::of(&given, true, &[])? })
    }

    /// Sentences about options that match no function in any of these files.
    pub fn without_match(&self, files: &[&Planned]) -> Vec<String> {
        let Some(selection) = &self.selection else { return Vec::new() };
        let is_matched = |rule: usize| files.iter().any(|file| file.matched.get(rule) == Some(&true));
        if (0..selection.rules().len()).all(is_matched) {
            return Vec::new();
        }
        let mut tables: Vec<FunctionTable> = files.iter().filter_map(|file| file.table().ok()).collect();
        let (_, outcome) = resolve(selection, &mut tables);
        without_match(selection, &self.named, &outcome, &tables).collect()
    }

    /// The first of the names of functions that get hooks in any case that matches none of these
    /// files.
    pub fn name_without_match(&self, files: &[&Planned]) -> Option<&NamePattern> {
        let is_there = |name: usize| files.iter().any(|file| file.always.get(name) == Some(&true));
        self.always.iter().enumerate().find(|(name, _)| !is_there(*name)).map(|(_, name)| name)
    }

    /// For plans.
    pub fn functions(&self) -> Functions<'_> {
        Functions {
            least_size: self.least_size,
            selection: self.selection.as_ref(),
            always: &self.always,
            are_others_kept: self.are_others_kept,
        }
    }
}
