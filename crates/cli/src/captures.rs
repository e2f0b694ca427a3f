//! `--args` and `--results`: which values of calls are recorded from the start.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everycall_arguments::{
    ArgumentError, CaptureOptions, CapturedFile, Met, Moment, Secrets, Wanted, capture_file, set_of,
};
use everycall_format::arena::ModuleEntry;
use everycall_io::say;
use everycall_patterns::FunctionTable;
use everycall_recorder::SelectFunctions;
use everycall_units::{Count, Several};

use crate::arguments::{RecordArguments, ValueArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::grown::{self, OpenSet};
use crate::preload;
use crate::program::Objects;

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
    fn parse(arguments: &ValueArguments) -> Result<Captures, Failure> {
        let args = arguments.args.iter().map(|text| (text, Moment::Entry));
        let results = arguments.results.iter().map(|text| (text, Moment::Exit));
        let wanted: Vec<Wanted> = args
            .chain(results)
            .map(|(text, moment)| Wanted::parse(text, moment))
            .collect::<Result<_, _>>()
            .map_err(|error| Failure::new(exit_code::USAGE, error))?;
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
        let options = CaptureOptions { text_max: arguments.args_text as usize, secrets };
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
        let has_any = file.count() > 0;
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

    fn bytes(&self) -> Result<Vec<u8>, String> {
        set_of(&self.files).map_err(|error| error.to_string())
    }
}

/// The functions of a file: those with hooks, or all if it has none.
fn table(path: &Path) -> Option<FunctionTable> {
    FunctionTable::open(path).or_else(|_| FunctionTable::of_all(path)).ok()
}

/// The capture set that the program reads at its start; `None` if no values are wanted.
pub fn prepare(arguments: &RecordArguments) -> Result<Option<Growing>, Failure> {
    if arguments.values.args.is_empty() && arguments.values.results.is_empty() {
        return Ok(None);
    }
    let not_recorded = |error: String| Failure::new(exit_code::NOT_RECORDED, error);
    let mut captures = Captures::parse(&arguments.values)?;
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
    if let Some((name, error)) = captures.failed() {
        return Err(Failure::new(exit_code::USAGE, format!("{name}: {error}")));
    }
    for (wanted, _) in captures.wanted.iter().zip(&captures.met).filter(|(_, met)| met.matched == 0) {
        let near = match &wanted.near(&names)[..] {
            [] => String::new(),
            near => format!("; similar names: {}", near.join(", ")),
        };
        let sentence = format!("`{}` matches no function of the program{near}", wanted.function());
        if !brings_more {
            return Err(Failure::new(exit_code::USAGE, sentence));
        }
        say!("everycall: {sentence}; functions that are loaded later are looked through, too");
    }
    let functions: usize = captures.files.iter().map(CapturedFile::count).sum();
    if !arguments.quiet && functions > 0 {
        say!(
            "everycall: recording values of {}",
            Several(functions as u64, "function's calls", "functions' calls")
        );
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
