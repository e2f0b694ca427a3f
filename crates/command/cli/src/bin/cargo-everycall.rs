//! `cargo everycall ...`: cargo runs this program, which becomes `everycall cargo ...`.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use everycall_io::say;

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1).peekable();
    // cargo passes the name of the subcommand.
    words.next_if(|word| word == "everycall");
    let program = beside_this().unwrap_or_else(|| PathBuf::from("everycall"));
    let error = Command::new(&program).arg("cargo").args(words).exec();
    say!("cargo-everycall: `{}` couldn't be run: {error}; install everycall", program.display());
    ExitCode::from(127)
}

/// The `everycall` that this program was installed with.
fn beside_this() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let beside = program.parent().unwrap_or(Path::new("/")).join("everycall");
    beside.exists().then_some(beside)
}
