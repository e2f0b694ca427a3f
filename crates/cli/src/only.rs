//! `--only` and `--not`: which functions are recorded from the start.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use everycall_control::resolve;
use everycall_io::say;
use everycall_kit::WAITS_LIBRARY;
use everycall_patterns::{FunctionTable, Selection};
use everycall_units::{Count, Several};
use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};

use crate::arguments::{OnlyArguments, RecordArguments};
use crate::control::{add, all_match};
use crate::exit_code;
use crate::failure::Failure;
use crate::preload;

/// A selection in an unnamed file.
pub struct OpenSelection(File);

impl OpenSelection {
    /// A selection with these bytes of a site set.
    pub fn new(bytes: &[u8]) -> Result<OpenSelection, Failure> {
        let keep = || -> std::io::Result<File> {
            let file = memfd_create("everycall-selection", MemfdFlags::CLOEXEC)?;
            fchmod(&file, Mode::RUSR | Mode::WUSR)?;
            let mut file = File::from(file);
            file.write_all(bytes)?;
            Ok(file)
        };
        let failed = |error| {
            Failure::new(exit_code::NOT_RECORDED, format!("no memory for the functions to record: {error}"))
        };
        keep().map(OpenSelection).map_err(failed)
    }

    /// The path at which the program opens it.
    pub fn path(&self) -> OsString {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }
}

/// The selection that the program reads at its start. `None` if it records everything.
pub fn prepare(arguments: &RecordArguments) -> Result<Option<OpenSelection>, Failure> {
    if arguments.functions.only.is_empty() && arguments.functions.not.is_empty() {
        return Ok(None);
    }
    let not_recorded = |failure: Failure| failure.with_code(exit_code::NOT_RECORDED);
    let objects = preload::traced_objects(arguments)?.ok_or_else(|| {
        Failure::new(
            exit_code::NOT_RECORDED,
            "--only and --not look for functions in the program that is started, and this one has none; start the traced program itself, or \
             set EVERYCALL_ONLY for it (`everycall resolve --only`)",
        )
    })?;
    let brings_more = objects.may_bring_more(!arguments.no_follow);
    let mut functions = arguments.functions.clone();
    if arguments.waits && !functions.only.is_empty() {
        functions.only.push(format!("module:{WAITS_LIBRARY}"));
    }
    let bytes = resolved(&functions, &objects.traced, brings_more).map_err(not_recorded)?;
    OpenSelection::new(&bytes).map(Some)
}

/// The functions that the options select in these files, as a site set. `brings_more`: other files
/// may be loaded later.
pub fn resolved(arguments: &OnlyArguments, files: &[PathBuf], brings_more: bool) -> Result<Vec<u8>, Failure> {
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
    let mut selection = Selection::all_or_none(arguments.only.is_empty());
    let mut added = add(&mut selection, &arguments.only, true)?;
    added.extend(add(&mut selection, &arguments.not, false)?);
    let (set, outcome) = resolve(&selection, &mut tables);
    all_match(&selection, &added, &outcome, &tables)?;
    if brings_more && !selection.others() {
        say!(
            "everycall: nothing is recorded of libraries and programs that are loaded later; name them in \
            `everycall resolve --only`"
        );
    }
    say!(
        "everycall: recording {} of {}",
        Count(outcome.on.functions),
        Several(outcome.all.functions, "function", "functions")
    );
    set.bytes().map_err(|error| Failure::new(exit_code::USAGE, error))
}
