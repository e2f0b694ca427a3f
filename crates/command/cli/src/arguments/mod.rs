//! The command line.

mod cargo;
mod common;
mod embed;
mod follow;
mod import;
mod mcp;
mod numbers;
mod output;
mod processes;
mod record;
mod recorded;
mod selection;
mod setup;
mod sql;
mod triggers;
mod tui;
mod view;
mod why;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub use cargo::CargoArguments;
pub use common::{Clock, FilterArguments, Force, SymbolArguments, TextFormat, moment};
pub use embed::{EmbedArguments, EmbedChoice};
pub use follow::{FollowArguments, LevelRule};
pub use import::ImportArguments;
pub use mcp::McpArguments;
pub use numbers::{CountArguments, CountedBy, CullArguments, MergeArguments, ReportArguments, TableFormat};
pub use output::{Colour, ExportArguments, InfoArguments, ReplayArguments};
pub use processes::{AttachArguments, CoreArguments, DetachArguments, PsArguments, SnapshotArguments};
pub use record::{AsIsArguments, LogChoice, RecordArguments, RecordVerb};
pub use recorded::{EventTimes, ValueArguments};
pub use selection::{
    EnableArguments, FunctionsArguments, OnlyArguments, SelectArguments, SessionsArguments, ThreadChoice,
    TraceArguments,
};
pub use setup::{CompletionsArguments, ManArguments, SetupTracefsArguments};
pub use sql::{ResultFormat, SqlArguments};
pub use triggers::{KeepArguments, KeepBy, LiveTriggerArguments, ResolveArguments, TriggerArguments};
pub use tui::TuiArguments;
pub use view::ViewArguments;
pub use why::WhyArguments;

/// The command's purpose, in one line.
pub const SUMMARY: &str = "Records every function call of a program, and shows what happened";

/// The beginning of `--help`.
pub const EXAMPLES: &str = "\
Records every function call of a program, and shows what happened.

  everycall cc -- g++ -O2 -g app.cpp -o app           builds it for tracing
  everycall record -o app.ect -- ./app args           runs it and writes a trace
  everycall view app.ect                              shows it in the browser
  everycall tui app.ect                               shows it in the terminal
  everycall replay app.ect                            the calls as a tree
  everycall export -f vizviewer -o app.json app.ect   for vizviewer";

/// Records every function call of a program, and shows what happened.
#[derive(Debug, Parser)]
#[command(name = "everycall", version, about = EXAMPLES, arg_required_else_help = true, max_term_width = 100)]
pub struct Arguments {
    /// The chosen verb.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a compiler so that what it builds can be traced
    ///
    /// Works like everycall-gcc, everycall-g++, everycall-clang and everycall-clang++, if this
    /// program is linked under these names. `everycall cc --help` shows its options.
    #[command(disable_help_flag = true)]
    Cc {
        /// [--mode MODE] -- COMPILER ARGUMENTS...
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Build a Rust project so that it can be traced, and run it: what `cargo everycall` does
    ///
    /// `cargo everycall run`, `test` and `bench` build and record, `build` only builds. Options of
    /// `record` stand before the verb, cargo's own behind it. docs/guides/rust.md describes what is
    /// traced.
    #[command(override_usage = "cargo everycall [OPTIONS] run|test|bench|build [ARGUMENTS OF CARGO]...")]
    Cargo(Box<CargoArguments>),
    /// Run a program and write its trace
    ///
    /// The program's input, output and environment are unchanged. This command ends with its exit
    /// status or signal.
    #[command(override_usage = "everycall record [OPTIONS] [--] PROGRAM [ARGUMENTS]...")]
    Record(RecordVerb),
    /// Find the functions of triggers, for programs that run without `record`
    ///
    /// Writes a trigger file; set EVERYCALL_TRIGGERS to its path in the program's environment. Each
    /// kept call becomes a trace file in the program's starting folder, or in
    /// EVERYCALL_SNAPSHOT_FOLDER. The trigger file is valid only for these builds of the program
    /// and its libraries.
    Resolve(ResolveArguments),
    /// Write the trace of a running program, without stopping it
    ///
    /// The program does not need to be started with `record`. It gets no signal and never waits:
    /// the newest events of its threads are protected from being overwritten while they are copied
    /// into the file.
    Snapshot(SnapshotArguments),
    /// Record more functions of a running program, or all of them
    ///
    /// The program is not stopped. Without a pattern, all functions are recorded again.
    Enable(EnableArguments),
    /// Stop recording functions of a running program, or all of them
    ///
    /// Functions that are switched off cost nothing in modes nops and xray. Without a pattern, no
    /// function is recorded any more.
    Disable(SelectArguments),
    /// List the functions that can be recorded and, for a running program, which of them are on
    Functions(FunctionsArguments),
    /// Record some functions of a running program for a while, and write their trace
    ///
    /// Other recordings of the program are not affected. When this command ends, for any reason,
    /// the functions that only it recorded are switched off again.
    Trace(TraceArguments),
    /// Print calls of a running program as an indented tree while they happen
    ///
    /// `everycall follow PID PATTERN...` follows a running program, `everycall follow PATTERN... --
    /// PROGRAM` starts one. The functions are recorded as with `everycall trace`: when this command
    /// ends, for any reason, those that only it recorded are switched off again.
    /// docs/reference/follow.md describes the output.
    #[command(
        override_usage = "everycall follow [OPTIONS] PID PATTERN...\n       everycall follow [OPTIONS] PATTERN... -- PROGRAM [ARGUMENTS]..."
    )]
    Follow(FollowArguments),
    /// Keep calls of a running program that meet a condition, such as 'handle_request > 20ms'
    ///
    /// Like `everycall record --trigger`, for a program that is running, with or without `record`.
    /// When this command ends, for any reason, the program runs as before.
    Trigger(LiveTriggerArguments),
    /// List which processes record functions of a running program with `everycall trace`
    Sessions(SessionsArguments),
    /// List running traced programs, and crash files of programs that have died
    Ps(PsArguments),
    /// Write hooks into a process that runs, built without everycall: from then on it records
    ///
    /// The newest calls of each thread stay in its memory; `everycall snapshot PID` takes them.
    /// `everycall detach PID` makes its code what it was. docs/reference/untouched.md says more.
    Attach(AttachArguments),
    /// Take the hooks of `everycall attach` out of a process
    Detach(DetachArguments),
    /// Extract the trace from a core dump
    ///
    /// The program does not need to have been started with `record`. Reads plain cores, cores
    /// compressed by systemd-coredump (zstd, lz4), and files that `everycall snapshot` writes in
    /// gdb (see gdb-script).
    Core(CoreArguments),
    /// Make a trace file of another tool's trace: XRay, uftrace, funtrace, Chrome JSON, Intel PT
    ///
    /// The file is like one of `record`: replay, report, info and export read it. Functions are
    /// named by the programs' files if these are there, otherwise by the names in the source. What
    /// the source doesn't tell is listed by `everycall info`. docs/reference/import.md describes
    /// each format.
    Import(ImportArguments),
    /// Print a command for gdb that takes a snapshot of a live process or a core
    ///
    /// Save it as a file and load it in gdb with `source`; then run in gdb: everycall snapshot FILE
    GdbScript,
    /// Count the calls of each function, or measure their times, too, and record none
    ///
    /// Counts are exact, per function and thread, and cost about a tenth of recording. `everycall
    /// count -- ./app` prints them at the program's end; `everycall count PID` reads them while a
    /// program runs that was started with EVERYCALL_COUNT=calls or time, or by `count`.
    /// docs/reference/count.md says more.
    Count(Box<CountArguments>),
    /// Show what a trace contains, and what is missing in it
    Info(InfoArguments),
    /// Find the functions to leave out of a build so that tracing costs no more than a budget
    ///
    /// Says from a trace what these functions cost and what is lost without them. The list is for
    /// everycall cc --not @LIST, record --not @LIST and resolve --not @LIST.
    Cull(CullArguments),
    /// Look at traces in the browser: timeline, tables, flame graphs, sources
    ///
    /// The page comes from this program, by an address of this machine with a secret in it; no
    /// other program, no other machine and no network is needed. It ends when its tab is closed, or
    /// with Ctrl-C.
    View(Box<ViewArguments>),
    /// Look at a trace in the terminal: timeline, tree of call paths, table of functions
    ///
    /// Needs no browser and no mouse, and works over ssh. `?` shows the keys, `q` quits.
    Tui(Box<TuiArguments>),
    /// Print the calls as an indented tree, with durations
    Replay(ReplayArguments),
    /// Print calls, times and percentiles of all functions, as a table
    ///
    /// Also by thread, process, module, source file, label and call path; the callers and callees
    /// of a function, the tree of all paths, the slowest calls, and what changed between runs.
    /// docs/reference/report.md says how each number is computed.
    Report(Box<ReportArguments>),
    /// Explain why a call was slow, on one page
    ///
    /// The slowest kept call, or the slowest call of a function, beside the median of its function:
    /// where the time went, what it waited for and who held it, which functions differ, arguments,
    /// and what the trace lacks. With each statement comes the command that shows more.
    /// docs/reference/why.md describes the JSON.
    Why(Box<WhyArguments>),
    /// Query traces with SQL: calls, functions, threads, states, labels and more as tables
    ///
    /// `everycall sql app.ect 'select function, own_ns from functions order by own_ns desc limit
    /// 10'`. The tables are those of `everycall export -f parquet`, read while the query runs.
    /// --schema lists them; docs/reference/sql.md has examples.
    #[command(
        override_usage = "everycall sql [OPTIONS] TRACE... QUERY\n       everycall sql [OPTIONS] TRACE... @FILE\n       everycall sql --schema"
    )]
    Sql(Box<SqlArguments>),
    /// Serve agents: tools to look at traces, by the Model Context Protocol
    ///
    /// Speaks on standard input and output, and ends with its input. Only traces of a folder are
    /// read; nothing is started unless an option allows it. docs/guides/agents.md has more.
    Mcp(McpArguments),
    /// Print a page for agents and people in a hurry: how to find out why a program was slow
    ///
    /// As a file SKILL.md, tools that look for skills find it.
    Guide,
    /// Add up what several runs did, in one file for `report`
    ///
    /// The file holds calls, times and percentiles of each function and run, not the calls
    /// themselves.
    Merge(MergeArguments),
    /// Put symbols and sources into a trace, so that it needs no other file
    ///
    /// The names, lines and inlined calls of the functions in the trace, and their source files, as
    /// far as `export` would include them. Then the trace shows the same on any machine, also when
    /// the program has been rebuilt or deleted.
    Embed(EmbedArguments),
    /// Write a trace for a viewer
    Export(ExportArguments),
    /// As root, let a user record thread states with all details (`record --states`)
    ///
    /// The user gets an instance of tracefs, with the files that `record` needs, until the machine
    /// is restarted. Its events name all threads of the machine. docs/reference/states.md has more.
    SetupTracefs(SetupTracefsArguments),
    /// Print a manual page, or install all of them
    ///
    /// `everycall man --install ~/.local/share/man` writes the pages of all verbs; then `man
    /// everycall` and `man everycall-record` show them.
    Man(ManArguments),
    /// Print a script that completes verbs and options in a shell
    ///
    /// bash: everycall completions bash > ~/.local/share/bash-completion/completions/everycall
    Completions(CompletionsArguments),
    /// Write pkg-config files and a CMake package for builds without a prefix
    Integrate {
        /// Folder to write to; created if it does not exist
        folder: PathBuf,
        /// Whether tracing is on when the programs start; `record` and EVERYCALL_START go before it
        #[arg(long, value_name = "on|off", default_value = "on")]
        start: everycall_compiler::Start,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    /// The document has each verb, and no other.
    #[test]
    fn the_exit_codes_of_all_verbs_are_documented() {
        use clap::CommandFactory;
        let text = include_str!("../../../../../docs/reference/exit-codes.md");
        let column = |line: &str| line.split(" | ").nth(1).unwrap_or_default().to_owned();
        let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
        let named: Vec<String> = rows
            .flat_map(|line| {
                column(line).split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        let verbs: Vec<String> =
            Arguments::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
        for verb in &verbs {
            assert!(named.contains(verb), "docs/reference/exit-codes.md has no {verb}");
        }
        for name in named.iter().filter(|name| !name.starts_with("everycall-")) {
            assert!(verbs.contains(name), "docs/reference/exit-codes.md has {name}, which is no verb");
        }
    }
}
