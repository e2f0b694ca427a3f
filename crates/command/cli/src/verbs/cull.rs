//! `everycall cull`: finds the functions of a trace to leave out of the build, and writes the list.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use everycall_analysis::{Cull, NameOptions, Order, Profile, SymbolNames, TraceView, budget, cull};
use everycall_format::budget::WHOLE;
use everycall_io::outfile::MODE_SHARED;
use everycall_io::say;
use everycall_units::{Count, Duration, Several};

use crate::arguments::CullArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Destination, clean, print};
use crate::traces;

/// The cost of an event if neither the trace nor an option gives it:
/// `docs/reference/benchmarks.md`.
const EVENT_NS: f64 = 10.0;
/// Functions that are shown; the list has all.
const LISTED: usize = 30;

/// Runs the verb.
pub fn run(arguments: &CullArguments) -> Result<ExitCode, Failure> {
    let path = &arguments.trace;
    let mut file = traces::open(path)?;
    traces::select(&mut file, None, path)?;
    let trace = traces::trace(&file, path)?;
    let options = traces::name_options(&arguments.symbols);
    let names = SymbolNames::new(&file, &trace, NameOptions { full_names: true, ..options });
    let profile = Profile::of(&TraceView::new(&trace, &names));
    let kept = budget(&trace, &names);
    let measured = kept.as_ref().map(|kept| kept.event_ps as f64 / 1000.0).filter(|cost| *cost > 0.0);
    let event_ns = arguments.event_cost.map(|cost| cost as f64).or(measured).unwrap_or(EVENT_NS);
    let share = f64::from(arguments.budget) / f64::from(WHOLE);
    let rows = profile.top(Order::Calls, usize::MAX);
    if rows.is_empty() {
        return Err(Failure::new(
            exit_code::FAILED,
            format!("{} has no calls; record a run that does what counts", path.display()),
        ));
    }
    let culled = cull(rows, kept.as_ref(), event_ns, share);
    print(&page(&culled, event_ns, share))?;
    if let Some(output) = &arguments.output {
        let destination = Destination::new(Some(output), arguments.force, || output.clone());
        destination.is_not(path)?;
        let mut out = destination.open(MODE_SHARED)?;
        out.write_all(list(&culled, share).as_bytes()).map_err(|error| Failure::writing(output, error))?;
        out.finish()?;
        say!("everycall: {} has the list; use it as: everycall cc --not @{0}", output.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn page(culled: &Cull, event_ns: f64, budget: f64) -> String {
    let mut text = format!(
        "tracing costs {} of the program's time without it ({event_ns:.1} ns an event)\n",
        percent(culled.before)
    );
    // Writing to a string doesn't fail.
    let _ = if culled.functions.is_empty() {
        writeln!(text, "that is within the budget of {}: nothing has to be left out", percent(budget))
    } else {
        let calls = culled.functions.iter().map(|function| function.row.calls).fold(0, u64::saturating_add);
        let own = culled.functions.iter().map(|function| function.row.own_ns).fold(0, u64::saturating_add);
        writeln!(
            text,
            "without {}: {}\nlost: {} of {} calls in the trace, and {} of {} become their callers' own time\n",
            Several(culled.functions.len() as u64, "function", "functions"),
            percent(culled.after),
            Count(calls),
            Count(culled.calls),
            Duration { ns: own },
            Duration { ns: culled.own_ns },
        )
    };
    if culled.functions.is_empty() {
        return text;
    }
    let _ = writeln!(text, "{:>12} {:>15} {:>10}  function", "saves", "calls", "own");
    for function in culled.functions.iter().take(LISTED) {
        let own = Duration { ns: function.row.own_ns }.to_string();
        let calls = Count(function.row.calls).to_string();
        let _ = writeln!(
            text,
            "{:>12} {calls:>15} {own:>10}  {}",
            percent(function.share),
            clean(&function.row.name)
        );
    }
    let more = culled.functions.len().saturating_sub(LISTED);
    if more > 0 {
        let _ = writeln!(text, "and {more} more");
    }
    text
}

/// The list for the compiler: linker names, as two functions may have the same name otherwise.
fn list(culled: &Cull, budget: f64) -> String {
    let mut text = format!(
        "# everycall cull --budget {}%: without these, tracing costs {}, with them {}\n",
        100.0 * budget,
        percent(culled.after),
        percent(culled.before)
    );
    for function in &culled.functions {
        let row = &function.row;
        // A name with a line break would become two lines.
        let name = row.name.replace(['\n', '\r'], " ");
        let _ = writeln!(
            text,
            "# {} saved, {}: {name}",
            percent(function.share),
            Several(row.calls, "call", "calls")
        );
        for symbol in row.symbols.iter().filter(|symbol| is_plain(symbol)) {
            let _ = writeln!(text, "- {symbol}");
        }
    }
    text
}

/// Whether a linker name, used as a pattern, matches only itself.
fn is_plain(symbol: &str) -> bool {
    !symbol.is_empty() && symbol.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte))
}
