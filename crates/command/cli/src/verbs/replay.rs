//! `everycall replay`: prints the filtered trace as a tree.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use everycall_analysis::{NameOptions, SymbolNames, TraceView};
use everycall_export::{Calendar, NameLength, ReplayStyle};
use everycall_io::terminal;
use rustix::termios::tcgetwinsize;

use crate::arguments::{Colour, ReplayArguments, TextFormat};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::BUFFER;
use crate::traces;

/// Runs the verb.
pub fn run(arguments: ReplayArguments) -> Result<ExitCode, Failure> {
    let kept = arguments.filter.kept;
    let mut filter = arguments.filter.filter().map_err(|error| Failure::new(exit_code::USAGE, error))?;
    let mut file = traces::open(&arguments.trace)?;
    traces::select(&mut file, kept, &arguments.trace)?;
    let mut trace = traces::trace_by(&file, &arguments.trace, arguments.clock)?;
    let options = traces::name_options(&arguments.symbols);
    let full_names = options.full_names || arguments.format == TextFormat::Json;
    let options = NameOptions { inlines: arguments.inlines, full_names, ..options };
    traces::begin_at_kept(&trace, kept, &mut filter);
    let names = SymbolNames::new(&file, &trace, options);
    names.name_tasks(&mut trace);
    let calendar = Calendar::local();
    let times = traces::times(&trace, &arguments.trace, arguments.clock, &calendar)?;
    traces::check_filter(&trace, &arguments.trace, &filter)?;
    let mut view = TraceView::new(&trace, &names).with_times(times);
    if arguments.corrected {
        view = view.without_hooks().map_err(|why| traces::not_corrected(&arguments.trace, why))?;
    }
    traces::warn(&trace, &arguments.trace);
    let mut out = BufWriter::with_capacity(BUFFER, terminal::stdout(arguments.format.escapes()));
    let written = match arguments.format {
        TextFormat::Text => everycall_export::replay(
            &view,
            &names,
            &filter,
            style(arguments.color, arguments.numbers, arguments.symbols.name_length()),
            &mut out,
        ),
        TextFormat::Json => everycall_export::replay_json(&view, &names, &filter, &mut out),
    };
    let summary =
        written.and_then(|summary| out.flush().map(|()| summary)).map_err(Failure::writing_to_stdout)?;
    traces::explain_emptiness(&summary, &filter, &view, &arguments.trace);
    traces::warn_of_names(&names);
    Ok(ExitCode::SUCCESS)
}

fn style(colour: Colour, numbers: bool, names: NameLength) -> ReplayStyle {
    let stdout = io::stdout();
    let is_terminal = stdout.is_terminal();
    let wanted = || std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    ReplayStyle {
        numbers,
        names,
        colour: match colour {
            Colour::Auto => is_terminal && wanted(),
            Colour::Always => true,
            Colour::Never => false,
        },
        width: if is_terminal { tcgetwinsize(&stdout).ok().map(|size| size.ws_col.into()) } else { None }
            .filter(|width| *width > 0),
    }
}
