//! `everycall export`: writes the filtered trace into a file.

use std::io::{BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use everycall_analysis::{NameOptions, SymbolNames, TraceView};
use everycall_export::{Calendar, Format, FormatFacts, Names, Note};
use everycall_io::outfile::{MODE_PRIVATE, MODE_SHARED};
use everycall_io::say;
use everycall_timeline::Trace;
use everycall_units::{Count, Several};

use crate::arguments::{Clock, ExportArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{BUFFER, Destination};
use crate::recording::progress;
use crate::source_notes;
use crate::traces;

/// Up to this number of calls, slices in JSON include inlined calls by default: each slice repeats
/// them.
const JSON_INLINES_MAX: u64 = 1_000_000;

/// Runs the verb.
pub fn run(arguments: ExportArguments) -> Result<ExitCode, Failure> {
    let kept = arguments.filter.kept;
    let filter = arguments.filter.filter().map_err(|error| Failure::new(exit_code::USAGE, error))?;
    let facts = arguments.format.facts();
    if arguments.clock == Clock::Raw && !matches!(arguments.format, Format::Csv | Format::Jsonl) {
        let why = format!(
            "{} has times in nanoseconds only; ticks are in `everycall export -f csv --clock raw` and `everycall export -f jsonl \
             --clock raw`",
            facts.name
        );
        return Err(Failure::new(exit_code::USAGE, why));
    }
    if arguments.against.is_some() && arguments.format != Format::Flamegraph {
        let why = format!("{} shows one trace only; --against needs `-f flamegraph`", facts.name);
        return Err(Failure::new(exit_code::USAGE, why));
    }
    let default = || default_output(&arguments.trace, &facts);
    let destination = Destination::new(arguments.output.as_deref(), arguments.force, default);
    destination.is_not(&arguments.trace)?;
    let mut file = traces::open(&arguments.trace)?;
    traces::select(&mut file, kept, &arguments.trace)?;
    let mut trace = traces::trace_by(&file, &arguments.trace, arguments.clock)?;
    let is_small = !facts.repeats_inlined_calls || calls(&trace) <= JSON_INLINES_MAX;
    let has_inlines = arguments.inlines || is_small && !arguments.no_inlines;
    let options = NameOptions {
        inlines: has_inlines,
        source_folders: arguments.source_folder.clone(),
        any_source: arguments.any_source,
        ..traces::name_options(&arguments.symbols)
    };
    let names = SymbolNames::new(&file, &trace, options);
    names.name_tasks(&mut trace);
    let calendar = Calendar::local();
    let times = traces::times(&trace, &arguments.trace, arguments.clock, &calendar)?;
    traces::check_filter(&trace, &arguments.trace, &filter)?;
    let view = TraceView::new(&trace, &names).with_times(times);
    traces::warn(&trace, &arguments.trace);
    // Source code may be confidential.
    let mode = if facts.has_sources && !arguments.shared { MODE_PRIVATE } else { MODE_SHARED };
    let out = destination.open(mode)?;
    let out = if facts.ending.ends_with("json") || facts.ending == "jsonl" { out.as_json() } else { out };
    let output = &destination.path;
    let shown = out.shown().to_owned();
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let all = calls(&trace) * 2;
    let is_watched = std::io::stderr().is_terminal();
    let mut is_line_shown = false;
    let mut notify = |note: Note| match note {
        Note::Progress { events } => {
            if is_watched {
                is_line_shown = true;
                progress::export(events, all);
            }
        }
        note => {
            progress::clear(!std::mem::take(&mut is_line_shown));
            say!("everycall: {note}");
        }
    };
    let summary = match &arguments.against {
        None => everycall_export::export(arguments.format, &view, &names, &filter, &mut notify, &mut out)
            .map_err(|error| Failure::writing(&shown, error))?,
        Some(old) => {
            let old_file = traces::open(old)?;
            let old_trace = traces::trace(&old_file, old)?;
            traces::check_filter(&old_trace, old, &filter)?;
            let old_names = SymbolNames::new(&old_file, &old_trace, traces::name_options(&arguments.symbols));
            let old_view = TraceView::new(&old_trace, &old_names);
            traces::warn(&old_trace, old);
            let old_name = old.display().to_string();
            let before = (&old_view, &old_names as &dyn Names, old_name.as_str());
            everycall_export::flamegraph_against((&view, &names), before, &filter, &mut notify, &mut out)
                .map_err(|error| Failure::writing(&shown, error))?
        }
    };
    progress::clear(!is_line_shown);
    let written = out.into_inner().map_err(|error| Failure::writing(&shown, error.into_error()))?;
    let is_direct = written.is_direct();
    written.finish()?;
    traces::explain_emptiness(&summary, &filter, &view, &arguments.trace);
    traces::warn_of_names(&names);
    for note in names.source_notes() {
        say!("everycall: {}", source_notes::sentence(&note));
    }
    if !has_inlines && !arguments.no_inlines {
        say!(
            "everycall: inlined calls are left out, because they would make a file with this many calls much larger; --inlines \
             includes them"
        );
    }
    if !is_direct {
        let slices = Several(summary.slices, "call", "calls");
        let threads = Several(summary.threads, "thread", "threads");
        say!(
            "everycall: {slices} of {threads} in {}; {}",
            output.display(),
            facts.viewer.replace("{}", &output.display().to_string())
        );
    }
    if summary.dropped_calls > 0 {
        say!(
            "everycall: {} were dropped while this was recorded; `everycall info {}` has their functions",
            Several(summary.dropped_calls, "short call", "short calls"),
            arguments.trace.display()
        );
    }
    if summary.bounded_calls > 0 {
        let calls = Several(summary.bounded_calls, "call", "calls");
        let shown = match arguments.format {
            Format::Vizviewer | Format::Chrome | Format::Perfetto => {
                "arguments dur_low_ns and dur_high_ns have them"
            }
            Format::Csv | Format::Parquet => "columns duration_low and duration_high have them",
            Format::Jsonl => "dur_low_ns and dur_high_ns have them",
            _ => "this format shows the durations without them",
        };
        say!(
            "everycall: the durations of {calls} have bounds, because not every event had a time of its own; {shown}"
        );
    }
    if summary.lost_events > 0 {
        let marked =
            if facts.marks_losses { "; the gaps are marked" } else { "; this format can't show where" };
        say!("everycall: {} events are missing{marked}", Count(summary.lost_events));
    }
    Ok(ExitCode::SUCCESS)
}

/// Number of calls in a trace.
fn calls(trace: &Trace<'_>) -> u64 {
    trace.threads().iter().map(|thread| thread.entries).sum()
}

fn default_output(trace: &Path, format: &FormatFacts) -> PathBuf {
    Path::new(trace.file_name().unwrap_or(trace.as_os_str())).with_extension(format.ending)
}
