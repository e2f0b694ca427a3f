//! Reads the counts of a running process, and prints counts.

use std::io::BufWriter;

use everycall_analysis::Profile;
use everycall_io::outfile::MODE_PRIVATE;
use everycall_io::say;

use crate::arguments::CountArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::Destination;
use crate::verbs::report::{Run, print_table};

/// Prints a table of counts.
pub fn show(profile: &Profile, arguments: &CountArguments, runs: &[Run]) -> Result<(), Failure> {
    if profile.calls == 0 {
        say!(
            "everycall: no traced function was called; `everycall functions PROGRAM` lists those that could be"
        );
    }
    print_table(profile, runs, arguments.format, arguments.limit, arguments.symbols.name_length())
}

/// Reads the counts of a process into a file. `values`: those by values are wanted.
pub fn read(pid: u32, destination: &Destination, values: bool) -> Result<(), Failure> {
    let failed =
        |reason: &dyn std::fmt::Display| Failure::new(exit_code::FAILED, format!("process {pid}: {reason}"));
    let arena = everycall_live::attach(pid).map_err(|error| failed(&error))?;
    if values && !arena.counts_values() {
        return Err(failed(
            &"it doesn't count calls by values; start it by: everycall count --by 'FUNCTION(ARGUMENT)' -- PROGRAM",
        ));
    }
    let path = &destination.path;
    let create = || destination.open(MODE_PRIVATE).map(BufWriter::new);
    let version = env!("CARGO_PKG_VERSION");
    let mut file;
    let written = if arena.is_counting() || arena.counts_values() {
        let snapshot = everycall_live::take(&arena, None).map_err(|error| failed(&error))?;
        file = create()?;
        snapshot.write(&mut file, version)
    } else {
        // It has counts beside its rings.
        file = create()?;
        everycall_live::write_counts(&arena, None, |_| true, &mut file, version)
    };
    written.map_err(|error| Failure::writing(path, error))?;
    file.into_inner().map_err(|error| Failure::writing(path, error.into_error()))?.finish()?;
    Ok(())
}
