//! The `everycall` command: arguments, orchestration, messages and exit codes. Rules of decoding
//! live in the libraries.
//!
//! ```text
//! main       by the name it was called: as, everycall-gcc, ... -> compiler (before costly work)
//! verbs      one module for each; the compiler prefix is `compiler`'s
//! recording  options of `record` and files that it needs, which other verbs share
//! untouched  programs that were built without hooks: started, or running
//! running    programs that run: their arenas, the connection to them;  rules: of selections, and
//!            what they match;  signals that end a wait
//! traces     opening them, and what is said of them;  source_notes: what is said of sources
//! words      arguments;  other_verbs: hints for those who know other tools;  failure, exit_code
//! output     where outputs may stand;  memory: where there is none left;  kit, this_program: where
//!            they are;  refused_calls: a kernel that refuses what is needed
//! ```
//!
//! Not here: a rule of decoding that a library user couldn't reach.
//!
//! Checked by: the binary, run.

// Messages go through `everycall_io::messages`: these macros panic if standard error is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod arguments;
mod exit_code;
mod failure;
mod kit;
mod memory;
mod other_verbs;
mod output;
mod recording;
mod refused_calls;
mod rules;
mod running;
mod signals;
mod source_notes;
mod this_program;
mod traces;
mod untouched;
mod verbs;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use everycall_io::{messages::say_text, say};

use crate::arguments::Arguments;
use crate::kit::kit;

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
    match verbs::run(arguments.verb) {
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
