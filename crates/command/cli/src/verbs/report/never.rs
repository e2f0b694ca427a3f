//! `--never`: functions that could have been recorded, and were not called.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use everycall_analysis::{Grouping, Profile, SymbolNames, dropped_calls};
use everycall_io::say;
use everycall_patterns::FunctionTable;
use everycall_symbols::PathMap;
use everycall_units::{Count, Several};
use serde_json::json;

use super::load::{Load, Run};
use super::rows::{limit, room};
use super::{machine, notes};
use crate::arguments::{ReportArguments, TableFormat};
use crate::failure::Failure;
use crate::output::{Room, clean, lines, print, print_as};

/// A program or library of the traces.
type ModuleKey = (PathBuf, Vec<u8>);

/// A function that was not called.
struct Never {
    name: String,
    linkage_name: String,
    module: PathBuf,
    source: Option<String>,
}

/// Runs it.
pub fn run(arguments: &ReportArguments, load: &Load) -> Result<ExitCode, Failure> {
    let mut profile = Profile::by(Grouping::Function);
    let mut modules: BTreeSet<ModuleKey> = BTreeSet::new();
    let mut dropped: HashSet<String> = HashSet::new();
    let mut runs: Vec<Run> = Vec::new();
    for path in &arguments.traces {
        let ((), run) = load.view(path, |view| {
            profile.add_trace(view, &load.filter);
            for module in view.trace().modules().iter().filter(|module| !module.is_frames()) {
                let path = PathBuf::from(OsStr::from_bytes(&module.path));
                modules.insert((path, module.build_id.clone()));
            }
            let names: &SymbolNames<'_> = view.names();
            let short = dropped_calls(view.trace(), names);
            dropped.extend(short.into_iter().flat_map(|short| short.functions).map(|function| function.name));
        })?;
        runs.push(run);
    }
    // By linker names and by source names: of a constructor's clones, one call is enough.
    let functions = profile.functions().all().iter();
    let called: HashSet<&str> = functions
        .flat_map(|function| function.symbols.iter().chain([&function.identity.name]))
        .map(String::as_str)
        .collect();
    let mut never: Vec<Never> = Vec::new();
    let mut all = 0_u64;
    for (path, build_id) in &modules {
        let mapped = PathMap::apply_all(&arguments.symbols.map_path, path).unwrap_or_else(|| path.clone());
        let Some(table) = open(&mapped, build_id) else { continue };
        all += table.functions().len() as u64;
        never_called(table, &mapped, &called, &dropped, &mut never);
    }
    let total = never.len();
    let shown = &never[..limit(arguments).min(total)];
    if arguments.format == TableFormat::Text {
        let mut rows = vec![["function", "module", "source"].map(str::to_owned)];
        rows.extend(shown.iter().map(|function| {
            let module = function.module.file_name().unwrap_or_default().to_string_lossy().into_owned();
            [clean(&function.name), clean(&module), clean(function.source.as_deref().unwrap_or(""))]
        }));
        fit(&mut rows, room(arguments));
        print(&lines(&rows, &[0, 1]))?;
    } else {
        let objects: Vec<_> = shown
            .iter()
            .map(|function| {
                json!({
                    "name": function.name,
                    "linkage_name": function.linkage_name,
                    "module": function.module.to_string_lossy(),
                    "source": function.source,
                })
            })
            .collect();
        print_as(
            arguments.format.escapes(),
            &if arguments.format == TableFormat::Csv {
                machine::csv_of(&objects)
            } else {
                let files = runs.iter().map(Run::json).collect::<Vec<_>>();
                format!(
                    "{:#}\n",
                    json!({ "files": files, "functions": all, "never_called": total, "rows": objects })
                )
            },
        )?;
    }
    say!(
        "everycall: {} of {} not called, or were inlined wherever they were",
        Count(total as u64),
        Several(all, "function was", "functions were")
    );
    notes::print_notes(&profile.notes, &arguments.traces);
    if shown.len() < total && arguments.format == TableFormat::Text {
        notes::more_rows(total - shown.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// Shortens names to half of the width, and sources to what is left of it: their ends say most.
fn fit(rows: &mut [[String; 3]], room: Room) {
    for row in rows.iter_mut() {
        row[0] = room.names.shown(&row[0], room.width.map(|width| width / 2));
    }
    let Some(width) = room.width else { return };
    let column = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0) + 2;
    let room = width.saturating_sub(column(0) + column(1)).max(10);
    for row in rows {
        let length = row[2].chars().count();
        if length > room {
            row[2] = std::iter::once('…').chain(row[2].chars().skip(length + 1 - room)).collect();
        }
    }
}

/// The functions of a module's file; reports why they can't be read.
fn open(path: &Path, build_id: &[u8]) -> Option<FunctionTable> {
    match FunctionTable::open(path) {
        Ok(table) if !build_id.is_empty() && table.build_id() != build_id => {
            say!(
                "everycall: {} is not the file that was traced (another build id): its functions are left out; --map-path OLD=NEW names the \
                 right one",
                path.display()
            );
            None
        }
        Ok(table) => Some(table),
        Err(error) => {
            say!("everycall: {error}: its functions are left out");
            None
        }
    }
}

fn never_called(
    mut table: FunctionTable,
    path: &Path,
    called: &HashSet<&str>,
    dropped: &HashSet<String>,
    never: &mut Vec<Never>,
) {
    // Clones and parts of one function, such as its cold part, are one function.
    let mut of_module: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (index, function) in table.functions().iter().enumerate() {
        let (name, linkage_name) = (function.name(), function.linkage_name.clone());
        let whole = linkage_name.split('.').next().unwrap_or(&linkage_name);
        let names = [linkage_name.as_str(), whole, name.as_str()];
        if names.iter().any(|name| called.contains(name)) || dropped.contains(&name) {
            continue;
        }
        of_module.entry(name).or_insert((index, linkage_name));
    }
    for (name, (index, linkage_name)) in of_module {
        let source = table.source(index).map(|(file, line)| match line {
            Some(line) => format!("{}:{line}", file.display()),
            None => file.display().to_string(),
        });
        never.push(Never { name, linkage_name, module: path.to_owned(), source });
    }
}
