//! `everycall merge`: the profiles of several runs in one file.

use std::io::Write;
use std::process::ExitCode;

use everycall_analysis::stored::{self, StoredRun};
use everycall_analysis::{Grouping, Profile};
use everycall_io::outfile::MODE_PRIVATE;
use everycall_io::say;
use everycall_units::Several;
use serde_json::json;

use crate::arguments::MergeArguments;
use crate::failure::Failure;
use crate::output::Destination;
use crate::verbs::report::{Load, mixed};

/// Runs the verb.
pub fn run(arguments: &MergeArguments) -> Result<ExitCode, Failure> {
    let destination = Destination::new(Some(&arguments.output), arguments.force, || arguments.output.clone());
    for trace in &arguments.traces {
        destination.is_not(trace)?;
    }
    let load = Load::with(arguments.filter.clone(), &arguments.symbols, false)?;
    let load = load.with_tails(arguments.tails);
    let runs = load.runs(&arguments.traces)?;
    let about: Vec<_> = runs.iter().map(|(_, run)| run.clone()).collect();
    mixed(&about);
    let mut stored_runs: Vec<StoredRun> = runs
        .into_iter()
        .map(|(profile, run)| StoredRun {
            about: run.json().as_object().cloned().unwrap_or_default(),
            profile,
        })
        .collect();
    let count = stored_runs.len() as u64;
    if arguments.sum {
        let mut sum = Profile::by(Grouping::Function).with_own_times();
        stored_runs.iter().for_each(|run| sum.add(&run.profile));
        let mut about = stored_runs.first().map(|run| run.about.clone()).unwrap_or_default();
        about.insert("file".to_owned(), json!(arguments.output.to_string_lossy()));
        about.insert("runs_added_up".to_owned(), json!(count));
        stored_runs = vec![StoredRun { about, profile: sum }];
    }
    let mut out = destination.open(MODE_PRIVATE)?;
    out.write_all(stored::write(&stored_runs).as_bytes())
        .map_err(|error| Failure::writing(&arguments.output, error))?;
    out.finish()?;
    if !arguments.quiet {
        say!(
            "everycall: {} in {}; `everycall report {}` shows them",
            Several(count, "run", "runs"),
            arguments.output.display(),
            arguments.output.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}
