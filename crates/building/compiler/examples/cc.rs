//! The prefix as a program: dispatches by name and first argument just as the `everycall` binary does.
//!
//! The kit's folder is named by its first argument's option, `cc --kit FOLDER ...`, or lies beside the program as
//! `kit`. For this crate's tests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let argv0 = args.next().unwrap_or_default();
    let name = Path::new(&argv0).file_name().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    let kit = || -> std::io::Result<PathBuf> { std::env::current_exe().map(|exe| exe.with_file_name("kit")) };
    if everycall_compiler::is_assembler_name(name) {
        return everycall_compiler::as_main(&argv0, args);
    }
    if everycall_compiler::is_compiler_name(name) {
        return everycall_compiler::named_compiler_main(&argv0, args, &kit);
    }
    match args.split_first() {
        Some((verb, rest)) if verb == "cc" => everycall_compiler::cc_main(rest.to_vec(), &kit),
        Some((verb, [folder])) if verb == "integrate" => {
            let result = std::env::current_exe().and_then(|exe| {
                everycall_compiler::write_integration(
                    Path::new(folder),
                    &exe,
                    everycall_compiler::Start::On,
                    &kit,
                )
            });
            match result {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("integrate: {error}");
                    ExitCode::FAILURE
                }
            }
        }
        _ => {
            eprintln!("usage: cc cc [--mode MODE] -- COMPILER ARGUMENTS... | cc integrate FOLDER");
            ExitCode::from(2)
        }
    }
}
