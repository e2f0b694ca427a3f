//! Which options are everycall's: they stand before cargo's verb.

use clap::{Args, Command};

use crate::arguments::{CargoArguments, RecordArguments};

/// An option by its long name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// With its dashes.
    pub name: String,
    /// Whether a value follows it.
    pub takes_value: bool,
}

/// Options of this name are passed on to cargo, whose verbs have them, too.
const CARGO_TOO: [&str; 3] = ["--all", "--quiet", "--help"];

/// All that may stand before cargo's verb, and not behind it.
pub fn ours() -> Vec<Named> {
    let mut ours = of(CargoArguments::augment_args(Command::new("cargo")));
    ours.retain(|option| !CARGO_TOO.contains(&option.name.as_str()));
    ours
}

/// The options of this verb that `record` doesn't have.
pub fn own() -> Vec<Named> {
    let of_record = of(RecordArguments::augment_args(Command::new("record")));
    let mut own = of(CargoArguments::augment_args(Command::new("cargo")));
    own.retain(|option| !of_record.contains(option));
    own
}

fn of(command: Command) -> Vec<Named> {
    let named = command.get_arguments().filter_map(|argument| {
        let takes_value = argument.get_action().takes_values();
        Some(Named { name: format!("--{}", argument.get_long()?), takes_value })
    });
    named.collect()
}
