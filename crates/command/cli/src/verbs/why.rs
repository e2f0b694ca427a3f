//! `everycall why`: one page about one slow call.

use std::path::Path;
use std::process::ExitCode;

use everycall_analysis::{Function, Profile, TraceView};
use everycall_patterns::NamePattern;
use everycall_why::{Question, Style, Why, why};

use super::report::{Load, ONLY_COUNTED, is_meant, pattern};
use crate::arguments::{FilterArguments, TextFormat, WhyArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Room, print_as};
use crate::traces;

/// Runs the verb.
pub fn run(arguments: &WhyArguments) -> Result<ExitCode, Failure> {
    let full_names = arguments.format == TextFormat::Json;
    let load = Load::with(FilterArguments::default(), &arguments.symbols, full_names)?;
    let path = arguments.trace.as_path();
    let wanted = arguments.function.as_deref().map(pattern).transpose()?;
    let meant = |function: &Function| wanted.as_ref().is_none_or(|wanted| is_meant(wanted, function));
    let question = Question {
        function: wanted.is_some().then_some(&meant),
        start_ns: arguments.call,
        tid: arguments.tid,
        kept: arguments.kept,
        tails: arguments.tails,
    };
    let (answer, _) = load.view(path, |view| answer(view, path, &question, wanted.as_ref()))?;
    let why = answer?;
    let text = match arguments.format {
        TextFormat::Json => format!("{:#}\n", why.json()),
        TextFormat::Text => {
            let room = Room::of_terminal(arguments.symbols.name_length());
            why.text(&Style { width: room.width, names: room.names })
        }
    };
    print_as(arguments.format.escapes(), &text)?;
    Ok(ExitCode::SUCCESS)
}

/// The answer, or why there is none.
fn answer(
    view: &TraceView<'_>,
    path: &Path,
    question: &Question<'_>,
    wanted: Option<&NamePattern>,
) -> Result<Why, Failure> {
    if traces::has_only_counts(view) {
        return Err(Failure::of(path, ONLY_COUNTED));
    }
    why(view, path, question).map_err(|reason| {
        let profile = Profile::of(view);
        let functions = profile.functions();
        match wanted.filter(|wanted| !functions.all().iter().any(|function| is_meant(wanted, function))) {
            Some(wanted) => {
                let near = traces::near(wanted, functions);
                let path = path.display();
                Failure::new(
                    exit_code::FAILED,
                    format!("no function that was called in {path} matches `{wanted}`{near}"),
                )
            }
            None => Failure::of(path, reason),
        }
    })
}
