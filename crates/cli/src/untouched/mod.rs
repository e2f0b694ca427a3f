//! Programs as they are. `everycall functions --untouched`: how many functions of files could get
//! hooks; and pieces that the verbs share.

pub mod attach;
pub mod record;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use everycall_arguments::syntax::Request;
use everycall_control::resolve;
use everycall_inject::{InjectError, Process, on_tracer};
use everycall_io::say;
use everycall_io::terminal::Escapes;
use everycall_patterns::{FunctionTable, NamePattern, Selection};
use everycall_plans::Binary;
use everycall_rewrite::{Coverage, FileKind, HookLayout, Refusal, Tactic};
use everycall_triggers::Trigger;
use everycall_units::{Count, Several};
use everycall_untouched::{Functions, Hooked, Planned, Runtime, watch_leaving};
use serde_json::{Map, Value, json};

use crate::arguments::{OnlyArguments, TextFormat, ValueArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::only::selection_of;
use crate::output::{clean, lines, print, print_as};
use crate::rules::without_match;

/// Runs the verb for these files. A file that can't be analysed doesn't keep others from it.
pub fn run<'a>(files: impl Iterator<Item = &'a Path>, format: TextFormat) -> Result<ExitCode, Failure> {
    let mut code = ExitCode::SUCCESS;
    let mut objects = Vec::new();
    let mut all = Coverage::default();
    let mut count = 0;
    for path in files {
        let found = match Found::of(path) {
            Ok(found) => found,
            Err(failure) => {
                failure.report();
                code = ExitCode::from(exit_code::FAILED);
                continue;
            }
        };
        match format {
            TextFormat::Text => print(&text(&path.display().to_string(), &found.coverage))?,
            TextFormat::Json => objects.push(found.object(path)),
        }
        all.add(&found.coverage);
        count += 1;
    }
    match format {
        TextFormat::Text if count > 1 => print(&text("all files", &all))?,
        TextFormat::Text => {}
        TextFormat::Json => print_as(Escapes::Json, &format!("{:#}\n", json!({ "files": objects })))?,
    }
    if count > 0 && matches!(format, TextFormat::Text) {
        say!(
            "everycall: `everycall record --untouched -- PROGRAM` records programs as they are, `everycall count --untouched -- PROGRAM` counts their calls; see docs/untouched.md"
        );
    }
    Ok(code)
}

/// Findings about a file.
struct Found {
    coverage: Coverage,
    kind: FileKind,
    build_id: String,
    patches: usize,
    trampolines: usize,
}

impl Found {
    fn of(path: &Path) -> Result<Found, Failure> {
        let binary = Binary::read(path).map_err(|error| Failure::of(path, error))?;
        let analysis = binary.analysis().map_err(|error| Failure::of(path, error))?;
        // A function that the plan has is one that the checker accepts.
        let plan = analysis.plan(HookLayout::default(), &|_, _| true);
        let plan = plan.map_err(|error| Failure::of(path, error))?;
        Ok(Found {
            coverage: analysis.coverage(),
            kind: analysis.kind(),
            build_id: hexadecimal(analysis.build_id()),
            patches: plan.patches.len(),
            trampolines: plan.code.len(),
        })
    }

    fn object(&self, path: &Path) -> Value {
        let coverage = &self.coverage;
        let tactics = Tactic::ALL.iter().map(|tactic| {
            (tactic.name().to_owned(), coverage.by_tactic.get(tactic).copied().unwrap_or_default().into())
        });
        let left_out = Refusal::ALL.iter().map(|refusal| {
            (refusal.name().to_owned(), coverage.left_out.get(refusal).copied().unwrap_or_default().into())
        });
        json!({
            "path": path.to_string_lossy(),
            "build_id": self.build_id,
            "kind": match self.kind {
                FileKind::Pie => "pie",
                FileKind::Library => "library",
                FileKind::Fixed => "fixed",
            },
            "functions": coverage.functions,
            "hooked": coverage.hooked(),
            "exits": coverage.exits,
            "tactics": tactics.collect::<Map<_, _>>(),
            "left_out": left_out.collect::<Map<_, _>>(),
            "parts_without_function": coverage.lost_parts,
            "patches": self.patches,
            "trampoline_bytes": self.trampolines,
        })
    }
}

fn text(of: &str, coverage: &Coverage) -> String {
    let hooked = coverage.hooked();
    let mut text = format!(
        "{}: {} of {} could get hooks ({}), at {}\n",
        clean(of),
        Count(hooked),
        Several(coverage.functions, "function", "functions"),
        share(hooked, coverage.functions),
        Several(coverage.exits, "exit", "exits"),
    );
    let row = |count: &u64, what: String| [String::new(), Count(*count).to_string(), what];
    let mut rows: Vec<[String; 3]> =
        coverage.by_tactic.iter().map(|(tactic, count)| row(count, tactic.to_string())).collect();
    rows.extend(coverage.left_out.iter().map(|(refusal, count)| row(count, format!("can't: {refusal}"))));
    text.push_str(&lines(&rows, &[0, 2]));
    text
}

/// How many functions of a file have hooks, and, a line for each reason, why others have none.
pub fn hooks_of(file: &Hooked) -> (String, Vec<String>) {
    let all = Several(file.functions, "function", "functions");
    let not_chosen = (file.not_chosen > 0).then(|| format!("{} not chosen", Count(file.not_chosen)));
    let left_out = file.left_out.iter().map(|(why, count)| format!("{} can't: {why}", Count(*count)));
    (format!("hooks in {} of {all}", Count(file.hooked)), not_chosen.into_iter().chain(left_out).collect())
}

/// Rounded down: 100 % are all of them.
fn share(part: u64, whole: u64) -> String {
    let hundredths = (u128::from(part) * 10_000).checked_div(u128::from(whole)).unwrap_or(0);
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
/// time: measured with Python and SQLite (docs/untouched.md).
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
