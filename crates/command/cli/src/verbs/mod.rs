//! The verbs, one module for each, or for a pair that undoes each other.

mod agents;
mod attach;
mod cargo;
mod core;
mod count;
mod cull;
mod embed;
mod enable;
mod export;
mod follow;
mod functions;
mod gdb_script;
mod import;
mod info;
mod integrate;
mod manual;
mod merge;
mod ps;
mod record;
mod replay;
mod report;
mod resolve;
mod sessions;
mod setup_tracefs;
mod snapshot;
#[cfg(feature = "sql")]
mod sql;
mod trace;
mod trigger;
mod tui;
mod view;
mod why;

use std::process::ExitCode;

use crate::arguments::{ValueArguments, Verb};
#[cfg(not(feature = "sql"))]
use crate::exit_code;
use crate::failure::Failure;
use crate::kit::kit;

/// Runs a verb.
pub fn run(verb: Verb) -> Result<ExitCode, Failure> {
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
        Verb::Attach(arguments) => attach::attach(&arguments),
        Verb::Detach(arguments) => attach::detach(&arguments),
        Verb::Import(arguments) => import::run(&arguments),
        Verb::GdbScript => gdb_script::print_script(),
        Verb::Info(arguments) => info::run(arguments),
        Verb::Count(arguments) => count::run(*arguments),
        Verb::Cull(arguments) => cull::run(&arguments),
        Verb::View(arguments) => view::run(*arguments),
        Verb::Tui(arguments) => tui::run(*arguments),
        Verb::Replay(arguments) => replay::run(arguments),
        Verb::Report(arguments) => report::run(*arguments),
        Verb::Why(arguments) => why::run(&arguments),
        #[cfg(feature = "sql")]
        Verb::Sql(arguments) => sql::run(&arguments),
        #[cfg(not(feature = "sql"))]
        Verb::Sql(_) => Err(Failure::new(
            exit_code::FAILED,
            "this everycall was built without SQL; build one with it (`cargo install --path crates/command/cli`), or query the file of `everycall \
             export -f parquet` with DuckDB",
        )),
        Verb::Mcp(arguments) => agents::mcp(&arguments),
        Verb::Guide => agents::guide(),
        Verb::Merge(arguments) => merge::run(&arguments),
        Verb::Embed(arguments) => embed::run(&arguments),
        Verb::Export(arguments) => export::run(arguments),
        Verb::SetupTracefs(arguments) => setup_tracefs::run(&arguments),
        Verb::Man(arguments) => manual::man(&arguments),
        Verb::Completions(arguments) => manual::completions(&arguments),
        Verb::Integrate { folder, start } => integrate::run(&folder, start),
    }
}
