//! `tui`: a trace in the terminal.

use std::process::ExitCode;

use everycall_export::Filter;
use everycall_units::Duration;
use everycall_view::Input;

use crate::arguments::TuiArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::traces;

/// Runs the verb.
pub fn run(arguments: TuiArguments) -> Result<ExitCode, Failure> {
    let TuiArguments { trace, filter, symbols } = arguments;
    let kept = filter.kept;
    let filter = filter.filter().map_err(|error| Failure::new(exit_code::USAGE, error))?;
    if !everycall_tui::screen::is_there() {
        let kept = kept.map(|number| format!("--kept {number} ")).unwrap_or_default();
        let trace = format!("{kept}{}", trace.display());
        return Err(Failure::new(
            exit_code::FAILED,
            format!(
                "this is no terminal that can be drawn on; `everycall report {trace}` prints the table, \
                 `everycall replay {trace}` the calls"
            ),
        ));
    }
    let mut file = traces::open(&trace)?;
    traces::select(&mut file, kept, &trace)?;
    let path = trace.display().to_string();
    let input = Input { path, file, names: traces::name_options(&symbols) };
    let only = only(&filter, kept);
    everycall_tui::run(input, filter, only, kept)
        .map_err(|error| Failure::new(exit_code::FAILED, format!("the terminal: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Describes the filter in words.
fn only(filter: &Filter, kept: Option<usize>) -> String {
    let list = |name: &str, ids: &[u32]| {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        (!ids.is_empty()).then(|| format!("{name} {}", ids.join(",")))
    };
    let has_window = filter.since_ns.is_some()
        || filter.since_wall.is_some()
        || filter.until_ns.is_some()
        || filter.until_wall.is_some()
        || filter.last_ns.is_some();
    let parts = [
        kept.map(|number| format!("kept call {number}")),
        list("process", &filter.pids),
        list("thread", &filter.tids),
        has_window.then(|| "a part of the time".to_owned()),
        filter.function.as_ref().map(|function| format!("below {function}")),
        filter.label.as_ref().map(|label| format!("label {}", label.name)),
        filter.values.is_some().then(|| "calls with some values".to_owned()),
        Some(filter.min_duration_ns).filter(|ns| *ns > 0).map(|ns| format!("at least {}", Duration { ns })),
        filter.depth.map(|depth| format!("{depth} levels")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!("only: {}", parts.join(", ")) }
}
