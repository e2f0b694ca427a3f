//! `--args` and `--results`: which values of calls are recorded, from the start or of running
//! programs.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everycall_arguments::{
    ArgumentError, CaptureOptions, CapturedFile, Met, Moment, Secrets, Wanted, capture_file, set_of,
};
use everycall_format::arena::ModuleEntry;
use everycall_format::control_socket::Reply;
use everycall_io::say;
use everycall_live::Control;
use everycall_patterns::FunctionTable;
use everycall_recorder::SelectFunctions;
use everycall_triggers::{Condition, Numbers, Trigger};
use everycall_units::{Count, Several};

use crate::arguments::{RecordArguments, ValueArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::grown::{self, OpenSet};
use crate::recording::preload;
use crate::recording::program::Objects;
use crate::running::Program;

/// Names a file with patterns of names whose values are never recorded.
const SECRETS: &str = "EVERYCALL_SECRETS";

/// A capture set that programs read. Functions of libraries and programs that are loaded later are
/// added to it.
#[derive(Clone)]
pub struct Growing(Arc<Mutex<State>>);

struct State {
    open: OpenSet,
    captures: Captures,
    /// Build ids of the files that were looked at.
    known: HashSet<Vec<u8>>,
    is_failure_told: bool,
}

impl Growing {
    /// The path at which the program opens it.
    pub fn path(&self) -> OsString {
        self.state().open.path()
    }

    /// Says which options have met nothing until now, at the recording's end.
    pub fn say_unmet(&self) {
        for sentence in self.state().captures.unmet() {
            say!("everycall: {sentence}");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The options, and what they have met so far.
struct Captures {
    wanted: Vec<Wanted>,
    options: CaptureOptions,
    files: Vec<CapturedFile>,
    /// By option.
    met: Vec<Met>,
}

impl Captures {
    /// `conditions`: those of triggers.
    fn parse(arguments: &ValueArguments, conditions: &[Wanted]) -> Result<Captures, Failure> {
        let args = arguments.args.iter().map(|text| (text, Moment::Entry));
        let results = arguments.results.iter().map(|text| (text, Moment::Exit));
        let mut wanted: Vec<Wanted> = args
            .chain(results)
            .map(|(text, moment)| Wanted::parse(text, moment))
            .chain(arguments.call_sites.iter().map(|pattern| Wanted::call_sites(pattern)))
            .collect::<Result<_, _>>()
            .map_err(|error| Failure::new(exit_code::USAGE, error))?;
        wanted.extend(conditions.iter().cloned());
        let secrets = match std::env::var_os(SECRETS) {
            None => Secrets::default(),
            Some(path) => {
                let text = everycall_io::infile::read_text(Path::new(&path), 1 << 20);
                Secrets::from_lines(&text.map_err(|error| {
                    let path = PathBuf::from(&path);
                    Failure::new(exit_code::USAGE, format!("{SECRETS}: {}: {error}", path.display()))
                })?)
            }
        };
        let options =
            CaptureOptions { text_max: arguments.args_text as usize, secrets, ..CaptureOptions::default() };
        let met = vec![Met::default(); wanted.len()];
        Ok(Captures { wanted, options, files: Vec::new(), met })
    }

    /// Adds the functions of a file. Returns whether it has any.
    fn add(&mut self, table: &mut FunctionTable, path: &Path) -> bool {
        let (file, met) = capture_file(&self.wanted, table, path, &self.options);
        for (all, met) in self.met.iter_mut().zip(met) {
            all.matched += met.matched;
            all.failed += met.failed;
            all.error = all.error.take().or(met.error);
        }
        let has_any = !file.is_empty();
        if has_any {
            self.files.push(file);
        }
        has_any
    }

    /// The first option that failed for each function that it matched.
    fn failed(&self) -> Option<(&str, &ArgumentError)> {
        let failed = self.met.iter().filter(|met| met.matched > 0 && met.failed == met.matched);
        failed.filter_map(|met| met.error.as_ref()).map(|(name, error)| (name.as_str(), error)).next()
    }

    /// A sentence for each option that some functions don't have what it asks for, or that has
    /// matched none.
    fn unmet(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        for (wanted, met) in self.wanted.iter().zip(&self.met) {
            match &met.error {
                // The trigger's own report says so.
                _ if met.matched == 0 && wanted.is_condition() => {}
                _ if met.matched == 0 => {
                    sentences.push(format!("`{}` matched no function", wanted.function()));
                }
                Some((name, error)) if met.failed > 0 => sentences.push(format!(
                    "{} of {} that `{}` matches have no such values; {name}: {}",
                    Count(met.failed),
                    Several(met.matched, "function", "functions"),
                    wanted.function(),
                    error.message
                )),
                _ => {}
            }
        }
        sentences
    }

    /// Fails if an option means nothing in functions with these names. `may_come`: it may in those
    /// that are loaded later.
    fn check(&self, names: &[String], may_come: bool) -> Result<(), Failure> {
        if let Some((name, error)) = self.failed() {
            return Err(Failure::new(exit_code::USAGE, format!("{name}: {error}")));
        }
        let is_unmet = |(wanted, met): &(&Wanted, &Met)| met.matched == 0 && !wanted.is_condition();
        for (wanted, _) in self.wanted.iter().zip(&self.met).filter(is_unmet) {
            let near = match &wanted.near(names)[..] {
                [] => String::new(),
                near => format!("; similar names: {}", near.join(", ")),
            };
            let sentence = format!("`{}` matches no function of the program{near}", wanted.function());
            if !may_come {
                return Err(Failure::new(exit_code::USAGE, sentence));
            }
            say!("everycall: {sentence}; functions that are loaded later are looked through, too");
        }
        Ok(())
    }

    /// Functions whose values are recorded.
    fn count(&self) -> usize {
        self.files.iter().map(CapturedFile::count).sum()
    }

    fn say_recorded(&self) {
        let functions = self.count();
        say!(
            "everycall: recording values of {}",
            Several(functions as u64, "function's calls", "functions' calls")
        );
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        set_of(&self.files).map_err(|error| error.to_string())
    }
}

/// The conditions of triggers on arguments and results.
fn conditions_of(triggers: &[Trigger], numbers: &[Numbers]) -> Result<Vec<Wanted>, Failure> {
    let usage = |error: &dyn Display| Failure::new(exit_code::USAGE, error.to_string());
    let mut wanted = Vec::new();
    for (trigger, numbers) in triggers.iter().zip(numbers) {
        let Some(pattern) = trigger.pattern().map(ToString::to_string) else { continue };
        let mut add = |condition: &str, moment, number| {
            let condition = Wanted::condition(&pattern, condition, moment, number);
            condition.map(|condition| wanted.push(condition)).map_err(|error| usage(&error))
        };
        if let (Some(when), Some(number)) = (&trigger.when, numbers.entry) {
            add(when, Moment::Entry, number)?;
        }
        if let (Condition::Returned(_, result), Some(number)) = (&trigger.condition, numbers.result) {
            add(result, Moment::Exit, number)?;
        }
    }
    Ok(wanted)
}

/// The functions of a file: those with hooks, or all if it has none.
fn table(path: &Path) -> Option<FunctionTable> {
    FunctionTable::open(path).or_else(|_| FunctionTable::of_all(path)).ok()
}

/// The capture set that the program reads at its start; `None` if no values are wanted, and no
/// trigger has conditions on them.
pub fn prepare(arguments: &RecordArguments) -> Result<Option<Growing>, Failure> {
    let triggers = &arguments.triggers.trigger;
    if arguments.values.are_none() && !triggers.iter().any(Trigger::has_conditions) {
        return Ok(None);
    }
    let not_recorded = |error: String| Failure::new(exit_code::NOT_RECORDED, error);
    let numbers = everycall_triggers::numbers(triggers)
        .map_err(|error| Failure::new(exit_code::USAGE, error.to_string()))?;
    let mut captures = Captures::parse(&arguments.values, &conditions_of(triggers, &numbers)?)?;
    let objects = preload::traced_objects(arguments)?;
    let brings_more = objects.as_ref().is_none_or(|objects| objects.may_bring_more(!arguments.no_follow));
    let files = match objects {
        Some(Objects { traced, .. }) if !traced.is_empty() => traced,
        _ => everycall_recorder::find_program(&arguments.command[0]).into_iter().collect(),
    };
    let mut known = HashSet::new();
    let mut names = Vec::new();
    for path in files.iter().filter_map(|file| file.canonicalize().ok()) {
        if let Some(mut table) = table(&path) {
            known.insert(table.build_id().to_vec());
            names.extend(table.plain_names());
            captures.add(&mut table, &path);
        }
    }
    captures.check(&names, brings_more)?;
    if !arguments.quiet && captures.count() > 0 {
        captures.say_recorded();
    }
    let bytes = captures.bytes().map_err(not_recorded)?;
    let open = OpenSet::new(&bytes)?;
    Ok(Some(Growing(Arc::new(Mutex::new(State { open, captures, known, is_failure_told: false })))))
}

impl SelectFunctions for Growing {
    fn look(&mut self, module: &ModuleEntry, path: &[u8], file: Option<&File>) {
        let mut state = self.state();
        let Some((named, mut table)) = grown::new_table(&mut state.known, (module, path, file), table) else {
            return;
        };
        if !state.captures.add(&mut table, &named) {
            return;
        }
        let bytes = state.captures.bytes();
        let put = |bytes: Vec<u8>| state.open.replace(&bytes).map_err(|error| error.to_string());
        if let Err(error) = bytes.and_then(put) {
            state.captures.files.pop();
            if !std::mem::replace(&mut state.is_failure_told, true) {
                say!("everycall: --args and --results aren't applied to {}: {error}", named.display());
            }
        }
    }

    fn look_at_frames(&mut self, _: &[u8]) {}
}

/// Values of a running program's calls.
pub struct LiveValues {
    arguments: ValueArguments,
    /// The functions' patterns.
    patterns: Vec<String>,
    /// Conditions of triggers.
    conditions: Vec<Wanted>,
    is_quiet: bool,
}

impl LiveValues {
    /// `None` if no values are wanted.
    pub fn of(arguments: &ValueArguments, quiet: bool) -> Result<Option<LiveValues>, Failure> {
        LiveValues::with_triggers(arguments, quiet, &[], &[])
    }

    /// As [`LiveValues::of`], with the values that triggers have conditions on. `numbers`: those of
    /// each trigger's conditions.
    pub fn with_triggers(
        arguments: &ValueArguments,
        quiet: bool,
        triggers: &[Trigger],
        numbers: &[Numbers],
    ) -> Result<Option<LiveValues>, Failure> {
        let conditions = conditions_of(triggers, numbers)?;
        if arguments.are_none() && conditions.is_empty() {
            return Ok(None);
        }
        let mut patterns: Vec<String> = Vec::new();
        // Where functions are called from doesn't say which of them are recorded.
        let named = ValueArguments { call_sites: Vec::new(), ..arguments.clone() };
        for wanted in Captures::parse(&named, &[])?.wanted {
            if !patterns.iter().any(|pattern| pattern == wanted.function()) {
                patterns.push(wanted.function().to_owned());
            }
        }
        Ok(Some(LiveValues { arguments: arguments.clone(), patterns, conditions, is_quiet: quiet }))
    }

    /// Patterns of functions that are to be recorded: these, and those whose values are wanted.
    pub fn patterns(values: Option<&LiveValues>, given: &[String]) -> Vec<String> {
        let more = values.into_iter().flat_map(|values| &values.patterns);
        given.iter().chain(more.filter(|pattern| !given.contains(pattern))).cloned().collect()
    }

    /// Sends the process which values are wanted with what the connection chooses next. It is an
    /// error if an option means nothing there, but for `later`.
    pub fn send(
        values: Option<&LiveValues>,
        program: &Program,
        control: &mut Control,
        tables: &mut [FunctionTable],
        later: bool,
    ) -> Result<(), Failure> {
        match values {
            None => Ok(()),
            Some(values) => {
                let set = values.set(tables, later)?;
                control.capture(&set).map_err(|error| program.failed(&error))
            }
        }
    }

    /// The set for these functions.
    pub fn set(&self, tables: &mut [FunctionTable], later: bool) -> Result<Vec<u8>, Failure> {
        let mut captures = Captures::parse(&self.arguments, &self.conditions)?;
        let mut names = Vec::new();
        for table in tables.iter_mut().filter(|table| table.frames_named("").is_none()) {
            names.extend(table.plain_names());
            let path = table.path().to_owned();
            captures.add(table, &path);
        }
        if !later {
            captures.check(&names, false)?;
            if !self.is_quiet {
                if captures.count() > 0 {
                    captures.say_recorded();
                }
                for sentence in captures.unmet() {
                    say!("everycall: {sentence}");
                }
            }
        }
        captures.bytes().map_err(|error| Failure::new(exit_code::USAGE, error))
    }

    /// Says of which functions the process doesn't record what is wanted.
    pub fn say_missing(values: Option<&LiveValues>, program: &Program, reply: &Reply) {
        let Some(values) = values else { return };
        if reply.left_out > 0 {
            let what = match values.conditions.is_empty() {
                true => "recorded",
                false => "recorded, and conditions on them aren't met",
            };
            say!(
                "everycall: values of {} of {program} can't be {what}: modes `finstrument` and `after-inlining` have no hook where arguments are known, and \
                 in mode `xray` arguments are only recorded from the start (`everycall record --args`)",
                Several(reply.left_out.into(), "function", "functions")
            );
        }
        if reply.area > 0 {
            say!(
                "everycall: of {} others record other values already, which you get, too; `everycall sessions {}` lists sessions",
                Several(reply.area.into(), "function", "functions"),
                program.pid()
            );
        }
    }
}
