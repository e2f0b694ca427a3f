//! The `everycall` command: arguments, orchestration, messages and exit codes. Rules of decoding
//! live in the libraries.
//!
//! ```text
//! main      by the name it was called: as, everycall-gcc, ... -> compiler (before anything costly)
//! verbs     cc, integrate: compiler;  every other verb: the module of its name
//! record    program: a look at what is to be started;  only, captures, triggers: its options;
//!           log_files, log_format: files whose lines it records;  rotation: its files;
//!           progress: the line while it runs;  untouched: programs built without everycall
//! running   programs that run: their arenas, the connection to them;  rules: of selections, and
//!           what they match;  signals that end a wait
//! traces    opening them, and what is said of them;  source_notes: what is said of sources;
//!           written: what is said of a new trace
//! words     arguments;  manual: man pages and completions of them;  other_verbs: hints for those
//!           who know other tools;  failure, exit_code
//! output    where outputs may stand;  memory: where there is none left;  this_program: where that is
//! ```

// Messages go through `everycall_io::messages`: these macros panic if standard error is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod arguments;
mod captures;
mod cargo;
mod core;
mod count;
mod cull;
mod embed;
mod enable;
mod exit_code;
mod export;
mod failure;
mod follow;
mod functions;
mod gdb;
mod grown;
mod import;
mod info;
mod log_files;
mod log_format;
mod manual;
mod memory;
mod merge;
mod only;
mod other_verbs;
mod output;
mod preload;
mod program;
mod progress;
mod ps;
mod record;
mod refused_calls;
mod replay;
mod report;
mod resolve;
mod rotation;
mod rules;
mod running;
mod sessions;
mod setup_tracefs;
mod signals;
mod snapshot;
mod source_notes;
#[cfg(feature = "sql")]
mod sql;
mod this_program;
mod trace;
mod traces;
mod trigger;
mod triggers;
mod tui;
mod untouched;
mod view;
mod written;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use everycall_io::{messages::say_text, say};

use crate::arguments::{Arguments, ValueArguments, Verb};
use crate::failure::Failure;
use crate::this_program::this_program;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let called_as = words.next().unwrap_or_default();
    let words = words.collect::<Vec<_>>();
    let is_record = words.first().is_some_and(|verb| verb == "record");
    refused_calls::explain(is_record);
    memory::exit_where_none_is_left(if is_record { exit_code::NOT_RECORDED } else { exit_code::FAILED });
    if let Some(code) = compiler_call(&called_as, words) {
        return code;
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            if error.use_stderr() {
                say_text(&error.to_string());
                if let Some(hint) = verb_hint(&error) {
                    say!("everycall: {hint}");
                }
                return ExitCode::from(exit_code::USAGE);
            }
            // Help goes to standard output and is not a failure; a pager may close early.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
    };
    match run(arguments.verb) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// The command to use instead of another tool's verb.
fn verb_hint(error: &clap::Error) -> Option<&'static str> {
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(verb) => other_verbs::hint(verb),
        _ => None,
    }
}

/// Handles compiler calls first, because a build makes thousands of them.
fn compiler_call(called_as: &OsString, mut words: Vec<OsString>) -> Option<ExitCode> {
    let name = Path::new(called_as).file_name()?;
    if everycall_compiler::is_assembler_name(name) {
        return Some(everycall_compiler::as_main(called_as, words));
    }
    if everycall_compiler::is_rustc_name(name) {
        return Some(everycall_compiler::rustc_main(words));
    }
    if everycall_compiler::is_linker_path(called_as) {
        return Some(everycall_compiler::linker_main(words, &kit));
    }
    if everycall_compiler::is_build_compiler_path(called_as) {
        return Some(everycall_compiler::build_compiler_main(called_as, words, &kit));
    }
    if everycall_compiler::is_compiler_name(name) {
        return Some(everycall_compiler::named_compiler_main(called_as, words, &kit));
    }
    if words.first().is_some_and(|verb| verb == "cc") {
        return Some(everycall_compiler::cc_main(words.split_off(1), &kit));
    }
    None
}

fn kit() -> std::io::Result<PathBuf> {
    everycall_kit::unpack()
}

fn run(verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Cc { arguments } => Ok(everycall_compiler::cc_main(arguments, &kit)),
        Verb::Cargo(arguments) => cargo::run(*arguments),
        Verb::Record(arguments) => record::run(arguments.arguments()),
        Verb::Resolve(arguments) => resolve::run(&arguments),
        Verb::Core(arguments) => core::run(&arguments),
        Verb::Snapshot(arguments) => snapshot::run(&arguments),
        Verb::Enable(arguments) => {
            enable::select(&arguments.select, arguments.clock, &arguments.values, true)
        }
        Verb::Disable(arguments) => enable::select(&arguments, None, &ValueArguments::default(), false),
        Verb::Functions(arguments) => functions::run(&arguments),
        Verb::Trace(arguments) => trace::trace(&arguments),
        Verb::Follow(arguments) => follow::follow(&arguments),
        Verb::Trigger(arguments) => trigger::run(&arguments),
        Verb::Sessions(arguments) => sessions::run(&arguments),
        Verb::Ps(arguments) => ps::run(&arguments),
        Verb::Attach(arguments) => untouched::attach::run(&arguments),
        Verb::Detach(arguments) => untouched::attach::detach(&arguments),
        Verb::Import(arguments) => import::run(&arguments),
        Verb::GdbScript => gdb::print_script(),
        Verb::Info(arguments) => info::run(arguments),
        Verb::Count(arguments) => count::run(*arguments),
        Verb::Cull(arguments) => cull::run(&arguments),
        Verb::View(arguments) => view::run(*arguments),
        Verb::Tui(arguments) => tui::run(*arguments),
        Verb::Replay(arguments) => replay::run(arguments),
        Verb::Report(arguments) => report::run(*arguments),
        #[cfg(feature = "sql")]
        Verb::Sql(arguments) => sql::run(&arguments),
        #[cfg(not(feature = "sql"))]
        Verb::Sql(_) => Err(Failure::new(
            exit_code::FAILED,
            "this everycall was built without SQL; build one with it (`cargo install --path crates/cli`), or query the file of `everycall \
             export -f parquet` with DuckDB",
        )),
        Verb::Merge(arguments) => merge::run(&arguments),
        Verb::Embed(arguments) => embed::run(&arguments),
        Verb::Export(arguments) => export::run(arguments),
        Verb::SetupTracefs(arguments) => setup_tracefs::run(&arguments),
        Verb::Man(arguments) => manual::man(&arguments),
        Verb::Completions(arguments) => manual::completions(&arguments),
        Verb::Integrate { folder, start } => integrate(&folder, start),
    }
}

fn integrate(folder: &Path, start: everycall_compiler::Start) -> Result<ExitCode, Failure> {
    let program = this_program()?;
    everycall_compiler::write_integration(folder, &program, start, &kit).map_err(|error| {
        let folder = folder.display();
        Failure::new(
            exit_code::FAILED,
            format!(
                "can't write the build files into {folder}: {error}; name a folder that you may write to"
            ),
        )
    })?;
    // Build systems read these lines in other folders.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let folder = folder.display();
    say!(
        "\
everycall: build files are in {folder}
  CMake       -DCMAKE_PREFIX_PATH={folder}, find_package(everycall REQUIRED),
              target_link_libraries(app PRIVATE everycall::everycall)
  pkg-config  PKG_CONFIG_PATH={folder}/lib/pkgconfig pkg-config --cflags --libs everycall-nops
              (clang: everycall-xray; for shared objects: everycall-nops-module, everycall-xray-module)"
    );
    Ok(ExitCode::SUCCESS)
}
