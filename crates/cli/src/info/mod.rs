//! `everycall info`: what a trace holds, and what it lost.
//!
//! - `profile`: calls and time per function.
//! - `page`: for people; `json`: for programs.

mod json;
mod kept;
mod page;
mod profile;

use std::path::Path;
use std::process::ExitCode;

use everycall_timeline::Trace;

use crate::arguments::{InfoArguments, TextFormat};
use crate::failure::Failure;
use crate::output::print;
use crate::symbol_names::SymbolNames;
use crate::trace_view::{self, TraceView};
use kept::Kept;
pub use page::signal_name;
use profile::Profile;

/// All that is told about a trace.
struct Report<'a> {
    path: &'a Path,
    trace: &'a Trace<'a>,
    profile: Profile,
    kept: Vec<Kept>,
    /// Sentences about damage and about names, in this order.
    warnings: Vec<String>,
}

/// Runs the verb.
pub fn run(arguments: InfoArguments) -> Result<ExitCode, Failure> {
    let path = &arguments.trace;
    let mut file = trace_view::open(path)?;
    trace_view::select(&mut file, None, path)?;
    let trace = trace_view::trace(&file, path)?;
    let names = SymbolNames::new(&file, &trace, &arguments.symbols)
        .with_full_names(matches!(arguments.format, TextFormat::Json));
    let view = TraceView::new(&trace, &names);
    let profile = Profile::of(&trace, &view, &names);
    let mut warnings: Vec<String> = trace.warnings().iter().map(ToString::to_string).collect();
    warnings.extend(names.warnings());
    let kept = kept::all(&trace, &names);
    let report = Report { path, trace: &trace, profile, kept, warnings };
    print(&match arguments.format {
        TextFormat::Text => page::page(&report),
        TextFormat::Json => json::json(&report),
    })?;
    Ok(ExitCode::SUCCESS)
}
