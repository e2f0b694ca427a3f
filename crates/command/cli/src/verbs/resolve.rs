//! `everycall resolve`: finds the functions that triggers name, and writes them to a file for
//! programs that are started without `record`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use everycall_format::env;
use everycall_format::site_set::{ENDING, SITES_MAX};
use everycall_io::outfile::MODE_PRIVATE;
use everycall_io::say;
use everycall_patterns::FunctionTable;
use everycall_symbols::site_report;
use everycall_triggers::{SetBuilder, SetError, Trigger};
use everycall_units::{Count, Several};

use crate::arguments::ResolveArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::Destination;
use crate::recording::captures::LiveValues;
use crate::recording::kept_calls::{memory, nothing_found, policy, say_unknown_types, triggers_of};
use crate::recording::only;
use crate::recording::program;

/// Runs the verb.
pub fn run(arguments: &ResolveArguments) -> Result<ExitCode, Failure> {
    let is_selection = !arguments.functions.only.is_empty() || !arguments.functions.not.is_empty();
    let named = triggers_of(&arguments.triggers)?;
    if let Some(values) = LiveValues::of(&arguments.values, arguments.quiet)? {
        if is_selection || named.is_some() {
            return Err(Failure::new(
                exit_code::USAGE,
                "--args, --results and --call-sites can't be combined with --trigger, --only or --not, because they are separate files; run resolve once \
                 for each",
            ));
        }
        return write_values(arguments, &values);
    }
    let triggers = match (named, is_selection) {
        (Some(triggers), false) => triggers,
        (None, true) => return select(arguments),
        (Some(_), true) => {
            return Err(Failure::new(
                exit_code::USAGE,
                "--trigger can't be combined with --only or --not, because triggers and selections are separate files; run resolve once for \
                 each",
            ));
        }
        (None, false) => {
            return Err(Failure::new(
                exit_code::USAGE,
                "no functions are named; add --trigger 'handle_request > 20ms' (keep slow calls), --only 'handle_*' (record only these), \
                 --not 'parse_*' (record all but these) or --args 'handle_*' (record arguments)",
            ));
        }
    };
    let refused = |error: SetError| Failure::new(exit_code::USAGE, error.to_string());
    let mut set =
        SetBuilder::new(&triggers, policy(&arguments.triggers.keep), memory(&arguments.triggers.keep))
            .map_err(refused)?;
    let objects = objects(&arguments.files)?;
    let mut counts = vec![0; triggers.len()];
    for object in &objects.traced {
        for (sum, count) in counts.iter_mut().zip(set.add(object).map_err(refused)?) {
            *sum += count;
        }
    }
    let names_none = |(trigger, count): &(&Trigger, &usize)| trigger.pattern().is_some() && **count == 0;
    if let Some((trigger, _)) = triggers.iter().zip(&counts).find(names_none)
        && !objects.names_frames
    {
        let mut sentence = nothing_found(trigger, &objects.traced);
        if objects.loads {
            sentence.push_str("; if it is in a library that the program loads, name that file, too");
        }
        return Err(Failure::new(exit_code::FAILED, sentence));
    }
    say_unknown_types(&triggers, &objects.traced);
    let output = Destination::new(arguments.output.as_deref(), arguments.force, || {
        default_output(&arguments.files[0])
    });
    arguments.files.iter().chain(&objects.traced).try_for_each(|file| output.is_not(file))?;
    let mut out = output.open(MODE_PRIVATE)?;
    let output = output.path;
    out.write_all(&set.bytes()).map_err(|error| Failure::writing(&output, error))?;
    out.finish()?;
    if !arguments.quiet {
        let of_functions = |((trigger, _), _): &((&Trigger, usize), &usize)| trigger.pattern().is_some();
        for ((trigger, count), left_out) in
            triggers.iter().zip(counts).zip(set.left_out()).filter(of_functions)
        {
            say!(
                "everycall: `{trigger}` names {}{}",
                Several((count - left_out) as u64, "function", "functions"),
                if objects.names_frames { ", and frames by id as they are named" } else { "" }
            );
        }
    }
    for (trigger, left_out) in triggers.iter().zip(set.left_out()).filter(|(_, left_out)| **left_out > 0) {
        say!(
            "everycall: `{trigger}` names {} more, which can't be armed, as a process has room for {}; use a narrower pattern",
            Several(*left_out as u64, "function", "functions"),
            Count(SITES_MAX.into())
        );
    }
    if !arguments.quiet {
        let path = output.canonicalize().unwrap_or(output);
        say!(
            "everycall: start the program with {}={}; kept calls are written to its working folder, or to the folder in {}",
            env::TRIGGERS,
            path.display(),
            env::SNAPSHOT_FOLDER
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a selection.
fn select(arguments: &ResolveArguments) -> Result<ExitCode, Failure> {
    let objects = objects(&arguments.files)?;
    let selection =
        only::resolved(&arguments.functions, &objects.traced, objects.loads, objects.names_frames)?;
    let output = Destination::new(arguments.output.as_deref(), arguments.force, || {
        default_output(&arguments.files[0])
    });
    arguments.files.iter().chain(&objects.traced).try_for_each(|file| output.is_not(file))?;
    write_set(arguments, output, &selection, env::ONLY)
}

/// Writes whose values are recorded.
fn write_values(arguments: &ResolveArguments, values: &LiveValues) -> Result<ExitCode, Failure> {
    let objects = objects(&arguments.files)?;
    let open =
        |file: &PathBuf| FunctionTable::open(file).map_err(|error| Failure::new(exit_code::FAILED, error));
    let mut tables = objects.traced.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let set = values.set(&mut tables, false)?;
    let output = Destination::new(arguments.output.as_deref(), arguments.force, || {
        default_output(&arguments.files[0])
    });
    arguments.files.iter().chain(&objects.traced).try_for_each(|file| output.is_not(file))?;
    write_set(arguments, output, &set, env::ARGS)
}

fn write_set(
    arguments: &ResolveArguments,
    output: Destination,
    set: &[u8],
    variable: &str,
) -> Result<ExitCode, Failure> {
    let mut out = output.open(MODE_PRIVATE)?;
    let output = output.path;
    out.write_all(set).map_err(|error| Failure::writing(&output, error))?;
    out.finish()?;
    if !arguments.quiet {
        let path = output.canonicalize().unwrap_or(output);
        say!("everycall: start the program with {variable}={}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The files that are searched.
struct Objects {
    traced: Vec<PathBuf>,
    /// Whether one of them loads libraries.
    loads: bool,
    /// Whether one of them names frames by id.
    names_frames: bool,
}

/// The named files with traced functions, and their own libraries.
fn objects(files: &[PathBuf]) -> Result<Objects, Failure> {
    let mut objects = Objects { traced: Vec::new(), loads: false, names_frames: false };
    for file in files {
        // A program to be started would be looked up in PATH; this is a file.
        let file = if file.components().count() == 1 && file.is_file() {
            Path::new(".").join(file)
        } else {
            file.clone()
        };
        let failed = |reason: String| Failure::new(exit_code::FAILED, reason);
        let Some(found) = program::traced_objects(file.as_os_str()) else {
            return Err(failed(match site_report(&file) {
                Err(error) => error.to_string(),
                Ok(_) => format!(
                    "{} has no traced functions; build it through the prefix: everycall cc -- g++ -O2 -g app.cpp -o app",
                    file.display()
                ),
            }));
        };
        objects.loads |= found.loads();
        objects.names_frames |= found.names_frames();
        for object in found.traced {
            let object = object.canonicalize().unwrap_or(object);
            if !objects.traced.contains(&object) {
                objects.traced.push(object);
            }
        }
    }
    Ok(objects)
}

fn default_output(program: &Path) -> PathBuf {
    let mut name: OsString = program.file_name().unwrap_or(program.as_os_str()).to_owned();
    name.push(ENDING);
    name.into()
}
