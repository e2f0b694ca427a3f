//! `everycall replay` and `everycall export`: the trace goes through the filter into a page, or a file.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use everycall_export::{self as export, Count, Filter, Format, ReplayStyle, Source, Summary};
use everycall_messages::say;
use everycall_outfile::MODE_SHARED;
use everycall_timeline::Trace;
use rustix::termios::tcgetwinsize;

use crate::arguments::{Colour, ExportArguments, ReplayArguments, TextFormat};
use crate::exit_code;
use crate::failure::Failure;
use crate::report::Several;
use crate::symbol_names::SymbolNames;
use crate::trace_view::{self, TraceView};
use crate::written::{BUFFER, Destination};

/// Up to so many calls, slices in JSON tell what was inlined unless they are told otherwise: each one repeats it.
const JSON_INLINES_MAX: u64 = 1_000_000;

/// Runs `replay`.
pub fn replay(arguments: ReplayArguments) -> Result<ExitCode, Failure> {
    let kept = arguments.filter.kept;
    let filter = arguments.filter.filter().map_err(|error| Failure::new(exit_code::USAGE, error))?;
    let mut file = trace_view::open(&arguments.trace)?;
    trace_view::select(&mut file, kept, &arguments.trace)?;
    let trace = trace_view::trace(&file, &arguments.trace)?;
    let names = SymbolNames::new(&file, &trace, &arguments.symbols).with_inlines(arguments.inlines);
    let view = TraceView::new(&trace, &names);
    trace_view::warn(&trace, &arguments.trace);
    let stdout = io::stdout();
    let mut out = BufWriter::with_capacity(BUFFER, stdout.lock());
    let written = match arguments.format {
        TextFormat::Text => export::replay(&view, &names, &filter, style(arguments.color), &mut out),
        TextFormat::Json => export::replay_json(&view, &names, &filter, &mut out),
    };
    let summary = written
        .and_then(|summary| out.flush().map(|()| summary))
        .map_err(|error| Failure::writing(Path::new("standard output"), error))?;
    explain_emptiness(&summary, &filter, &view, &arguments.trace);
    names.warn();
    Ok(ExitCode::SUCCESS)
}

/// Runs `export`.
pub fn export(arguments: ExportArguments) -> Result<ExitCode, Failure> {
    let kept = arguments.filter.kept;
    let filter = arguments.filter.filter().map_err(|error| Failure::new(exit_code::USAGE, error))?;
    let default = || default_output(&arguments.trace, arguments.format);
    let destination = Destination::new(arguments.output.as_deref(), default);
    destination.is_not(&arguments.trace)?;
    let mut file = trace_view::open(&arguments.trace)?;
    trace_view::select(&mut file, kept, &arguments.trace)?;
    let trace = trace_view::trace(&file, &arguments.trace)?;
    let is_small = arguments.format == Format::Perfetto || calls(&trace) <= JSON_INLINES_MAX;
    let has_inlines = arguments.inlines || is_small && !arguments.no_inlines;
    let names = SymbolNames::new(&file, &trace, &arguments.symbols).with_inlines(has_inlines);
    let view = TraceView::new(&trace, &names);
    trace_view::warn(&trace, &arguments.trace);
    let out = destination.open(MODE_SHARED)?;
    let output = &destination.path;
    let shown = out.shown().to_owned();
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let mut notify = |note: export::Note| say!("everycall: {note}");
    let summary = export::export(arguments.format, &view, &names, &filter, &mut notify, &mut out)
        .map_err(|error| Failure::writing(&shown, error))?;
    let written = out.into_inner().map_err(|error| Failure::writing(&shown, error.into_error()))?;
    let is_direct = written.is_direct();
    written.finish()?;
    explain_emptiness(&summary, &filter, &view, &arguments.trace);
    names.warn();
    names.warn_of_sources();
    if !has_inlines && !arguments.no_inlines {
        say!(
            "everycall: which calls were inlined is left out, as it would make a file of so many calls much larger; --inlines \
             includes it"
        );
    }
    if !is_direct {
        let slices = Several(summary.slices, "call", "calls");
        let threads = Several(summary.threads, "thread", "threads");
        say!(
            "everycall: {slices} of {threads} in {}; {}",
            output.display(),
            viewer(arguments.format, output)
        );
    }
    if summary.lost_events > 0 {
        say!("everycall: {} events are missing between them; they are marked", Count(summary.lost_events));
    }
    Ok(ExitCode::SUCCESS)
}

/// Calls that a trace holds.
fn calls(trace: &Trace<'_>) -> u64 {
    trace.threads().iter().map(|thread| thread.entries).sum()
}

/// How to look at an output.
fn viewer(format: Format, output: &Path) -> String {
    match format {
        Format::Vizviewer => format!("open it with `vizviewer {}`", output.display()),
        Format::Chrome | Format::Perfetto => "open it at https://ui.perfetto.dev".to_owned(),
    }
}

fn default_output(trace: &Path, format: Format) -> PathBuf {
    let ending = match format {
        Format::Vizviewer | Format::Chrome => "json",
        Format::Perfetto => "perfetto-trace",
    };
    Path::new(trace.file_name().unwrap_or(trace.as_os_str())).with_extension(ending)
}

/// An empty page makes people wonder.
fn explain_emptiness(summary: &Summary, filter: &Filter, view: &TraceView<'_>, trace: &Path) {
    if summary.slices > 0 {
        return;
    }
    let trace = trace.display();
    if let Some(label) = &filter.label
        && !view.has_label(&label.name)
    {
        say!("everycall: no label in {trace} is called {}; `everycall info {trace}` lists them", label.name);
    } else if (0..view.threads().len()).any(|thread| view.timeline(thread).next().is_some()) {
        say!("everycall: no call in {trace} passes the filter; leave out some of its options");
    } else {
        say!("everycall: {trace} holds no calls; `everycall info {trace}` tells what was recorded");
    }
}

fn style(colour: Colour) -> ReplayStyle {
    let stdout = io::stdout();
    let is_terminal = stdout.is_terminal();
    let wanted = || std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    ReplayStyle {
        colour: match colour {
            Colour::Auto => is_terminal && wanted(),
            Colour::Always => true,
            Colour::Never => false,
        },
        width: if is_terminal { tcgetwinsize(&stdout).ok().map(|size| size.ws_col.into()) } else { None }
            .filter(|width| *width > 0),
    }
}
