//! `--only` and `--not`: which functions are recorded from the start.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everycall_control::{Module, Outcome, SelectionSet, resolve};
use everycall_format::arena::ModuleEntry;
use everycall_io::say;
use everycall_kit::WAITS_LIBRARY;
use everycall_patterns::{FunctionTable, Selection};
use everycall_recorder::SelectFunctions;
use everycall_units::{Count, Several};

use crate::arguments::{OnlyArguments, RecordArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::grown::{self, OpenSet};
use crate::recording::preload;
use crate::recording::program::Objects;
use crate::rules::{add, all_match, without_match};

/// A selection that programs read, and to which functions of libraries and programs are added that
/// are loaded later.
#[derive(Clone)]
pub struct Growing(Arc<Mutex<State>>);

struct State {
    open: OpenSet,
    selection: Selection,
    set: SelectionSet,
    /// Rules of the options, and how many functions each of the selection's rules has matched.
    named: Vec<String>,
    matched: Vec<u64>,
    /// Build ids of the modules in the set.
    known: HashSet<Vec<u8>>,
    /// Modules that were added.
    added: u64,
    is_failure_told: bool,
}

impl Growing {
    /// The path at which the program opens it.
    pub fn path(&self) -> OsString {
        self.state().open.path()
    }

    /// Says which options have matched nothing until now, at the recording's end.
    pub fn say_without_match(&self) {
        let state = self.state();
        for (rule, matched) in state.selection.rules().iter().zip(&state.matched) {
            if *matched == 0 && state.named.contains(&rule.to_string()) {
                match state.added {
                    0 => say!("everycall: `{}` matched no function", rule.pattern),
                    added => say!(
                        "everycall: `{}` matched no function, also not in {} that {} loaded later",
                        rule.pattern,
                        Several(added, "library or program", "libraries and programs"),
                        if added == 1 { "was" } else { "were" }
                    ),
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SelectFunctions for Growing {
    fn look(&mut self, module: &ModuleEntry, path: &[u8], file: Option<&File>) {
        let mut state = self.state();
        let open = |path: &Path| FunctionTable::open(path).ok();
        let Some((named, mut table)) = grown::new_table(&mut state.known, (module, path, file), open) else {
            return;
        };
        state.added += 1;
        let resolved = state.selection.resolve(&mut table);
        state.matched.iter_mut().zip(&resolved.matched).for_each(|(sum, more)| *sum += more.functions);
        state.set.modules.push(Module {
            path: named.clone(),
            build_id: table.build_id().to_vec(),
            ranges: resolved.ranges,
        });
        let bytes = state.set.bytes().map_err(|error| error.to_string());
        let put = |bytes: Vec<u8>| state.open.replace(&bytes).map_err(|error| error.to_string());
        if let Err(error) = bytes.and_then(put) {
            state.set.modules.pop();
            if !std::mem::replace(&mut state.is_failure_told, true) {
                say!("everycall: --only and --not aren't applied to {}: {error}", named.display());
            }
        }
    }

    fn look_at_frames(&mut self, records: &[u8]) {
        let mut state = self.state();
        let Some(mut table) = FunctionTable::of_frames(records) else { return };
        let resolved = state.selection.resolve(&mut table);
        state.matched.iter_mut().zip(&resolved.matched).for_each(|(sum, more)| *sum += more.functions);
    }
}

/// The selection that the program reads at its start, and whether functions may be added to it.
/// `None` if it records everything.
pub fn prepare(arguments: &RecordArguments) -> Result<Option<(Growing, bool)>, Failure> {
    if arguments.functions.only.is_empty() && arguments.functions.not.is_empty() {
        return Ok(None);
    }
    let not_recorded = |failure: Failure| failure.with_code(exit_code::NOT_RECORDED);
    let objects = preload::traced_objects(arguments)?;
    let names_frames = objects.as_ref().is_some_and(Objects::names_frames);
    let grows = objects.as_ref().is_none_or(|objects| objects.may_bring_more(!arguments.no_follow));
    let mut functions = arguments.functions.clone();
    if arguments.waits && !functions.only.is_empty() {
        functions.only.push(format!("module:{WAITS_LIBRARY}"));
    }
    let files = objects.map_or_else(Vec::new, |objects| objects.traced);
    let mut tables = tables(&files).map_err(not_recorded)?;
    let (selection, named) = selection_of(&functions).map_err(not_recorded)?;
    let (set, outcome) = resolve(&selection, &mut tables);
    if grows {
        // At the end, what has matched nothing is named.
        let now = if tables.is_empty() && arguments.preload { &[][..] } else { &named[..] };
        for sentence in without_match(&selection, now, &outcome, &tables) {
            let too = match names_frames {
                true => "functions that are loaded later and frames by id",
                false => "functions that are loaded later",
            };
            say!("everycall: {sentence}; {too} are looked through, too");
        }
    } else {
        all_match(&selection, &named, &outcome, &tables).map_err(not_recorded)?;
    }
    if !tables.is_empty() {
        say_recorded(&outcome, names_frames);
    }
    let bytes = set.bytes().map_err(|error| Failure::new(exit_code::NOT_RECORDED, error))?;
    let state = State {
        open: OpenSet::new(&bytes)?,
        known: set.modules.iter().map(|module| module.build_id.clone()).collect(),
        matched: outcome.matched.iter().map(|matched| matched.functions).collect(),
        selection,
        set,
        named,
        added: 0,
        is_failure_told: false,
    };
    Ok(Some((Growing(Arc::new(Mutex::new(state))), grows)))
}

/// The functions that the options select in these files, as a site set. `brings_more`: other files
/// may be loaded later; `names_frames`: the program has frames by id.
pub fn resolved(
    arguments: &OnlyArguments,
    files: &[PathBuf],
    brings_more: bool,
    names_frames: bool,
) -> Result<Vec<u8>, Failure> {
    let mut tables = tables(files)?;
    let (selection, added) = selection_of(arguments)?;
    let (set, outcome) = resolve(&selection, &mut tables);
    all_match(&selection, &added, &outcome, &tables)?;
    if brings_more && !selection.others() {
        say!(
            "everycall: nothing is recorded of libraries and programs that are loaded later; name them in \
            `everycall resolve --only`, or use `everycall record`"
        );
    }
    say_recorded(&outcome, names_frames);
    set.bytes().map_err(|error| Failure::new(exit_code::USAGE, error))
}

fn tables(files: &[PathBuf]) -> Result<Vec<FunctionTable>, Failure> {
    let mut tables = Vec::new();
    for file in files {
        let file = file.canonicalize().unwrap_or_else(|_| file.clone());
        let table = FunctionTable::open(&file).map_err(|error| Failure::new(exit_code::FAILED, error))?;
        if table.build_id().is_empty() {
            return Err(Failure::of(
                &file,
                "has no build id, by which the running program recognizes it; link it with -Wl,--build-id",
            ));
        }
        tables.push(table);
    }
    Ok(tables)
}

/// The options' selection, and the texts of their rules.
pub fn selection_of(arguments: &OnlyArguments) -> Result<(Selection, Vec<String>), Failure> {
    let mut selection = Selection::all_or_none(arguments.only.is_empty());
    let mut named = add(&mut selection, &arguments.only, true)?;
    named.extend(add(&mut selection, &arguments.not, false)?);
    Ok((selection, named))
}

fn say_recorded(outcome: &Outcome, names_frames: bool) {
    say!(
        "everycall: recording {} of {}{}",
        Count(outcome.on.functions),
        Several(outcome.all.functions, "function", "functions"),
        if names_frames { ", and frames by id as they are named" } else { "" }
    );
}
