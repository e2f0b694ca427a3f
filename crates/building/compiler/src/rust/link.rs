//! The linker step of Rust builds: rustc runs it under the name of the project's linker, and it
//! runs that linker with the runtime, and with the wrappers of functions that leave frames.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use everycall_io::say;

use super::tasks_object;
use crate::args::Invocation;
use crate::compiler;
use crate::exit_code::{EXIT_NOT_FOUND, EXIT_NOT_RUN};
use crate::kit_files::Kit;
use crate::toolbox::{LINKERS_FOLDER, Toolbox};
use crate::{prefix, wrap};

/// The variable with the linker that the project would use.
pub(super) const REAL_VARIABLE: &str = "EVERYCALL_RUST_LINKER";
/// The variable by which programs start with tracing off.
pub const START_VARIABLE: &str = "EVERYCALL_RUST_START";
/// rustc's own choice.
pub(super) const DEFAULT: &str = "cc";

/// The path of the step, for rustc: its file is named as the project's linker, since rustc infers
/// from the name whether it is a compiler or a linker.
///
/// # Errors
/// Those of the file system.
pub(super) fn linker_for(linker: Option<&OsStr>, toolbox: &Toolbox) -> io::Result<PathBuf> {
    let name = Path::new(linker.unwrap_or(OsStr::new(DEFAULT))).file_name().unwrap_or(OsStr::new(DEFAULT));
    toolbox.linker(name)
}

/// Whether this program was called as a linker by rustc.
pub fn is_linker_path(called_as: &OsStr) -> bool {
    let folder = Path::new(called_as).parent().and_then(Path::file_name);
    folder.is_some_and(|name| name == LINKERS_FOLDER) && std::env::var_os(REAL_VARIABLE).is_some()
}

/// A call by rustc: returns only if the linker couldn't be run.
pub fn linker_main(args: Vec<OsString>, kit: Kit<'_>) -> ExitCode {
    let real = std::env::var_os(REAL_VARIABLE).unwrap_or_else(|| DEFAULT.into());
    let Some(path) = compiler::find_program(&real) else {
        say!("everycall: the linker `{}` was not found; install it (a C compiler has one)", real.display());
        return ExitCode::from(EXIT_NOT_FOUND);
    };
    let (before, behind) = match options(&path, &args, kit) {
        Ok(options) => options,
        Err(error) => {
            say!("everycall: {error}");
            return ExitCode::from(EXIT_NOT_RUN);
        }
    };
    let (flavor, args) = args.split_at(flavor_length(&args));
    let mut command = Command::new(&path);
    let error = command.arg0(&real).args(flavor).args(before).args(args).args(behind).exec();
    say!("everycall: `{}` couldn't be run: {error}", path.display());
    ExitCode::from(EXIT_NOT_RUN)
}

/// The options before and behind rustc's arguments.
fn options(linker: &Path, args: &[OsString], kit: Kit<'_>) -> io::Result<(Vec<OsString>, Vec<OsString>)> {
    let is_plain = is_plain_linker(linker);
    let mut invocation = Invocation::read(&if is_plain { for_compiler(args) } else { args.to_vec() });
    if !invocation.links() {
        return Ok((Vec::new(), Vec::new()));
    }
    // rustc names the libraries itself, and turns off the compiler's own.
    let is_bare = args.iter().any(|arg| arg == "-nostartfiles" || arg == "-nostdlib");
    invocation.without_libraries = is_bare;
    let kit = kit()?;
    let start = std::env::var(START_VARIABLE).ok().and_then(|word| word.parse().ok()).unwrap_or_default();
    let mut before = prefix::link_options(&invocation, start, &kit);
    before.extend(wrap::options(&invocation, linker, &kit, false));
    if !is_bare || has_start_of_rustc(args) {
        before.extend(wrap::rust(&invocation, &kit));
        if let Some(names) = std::env::var_os(tasks_object::TASKS_VARIABLE) {
            before.extend(wrap::tokio(&invocation, &kit));
            before.extend(["-Xlinker".into(), names]);
        }
    }
    let behind = wrap::archives(&invocation, linker, &kit);
    let fit = |options: Vec<OsString>| if is_plain { for_linker(options) } else { options };
    Ok((fit(before), fit(behind)))
}

/// Whether rustc links a C library of its own, as for musl, and nothing of the compiler's.
fn has_start_of_rustc(args: &[OsString]) -> bool {
    let is_start = |name: &OsStr| name == "crt1.o" || name == "rcrt1.o";
    args.iter().any(|arg| Path::new(arg).file_name().is_some_and(is_start))
}

/// How many of the arguments say which linker `rust-lld` is to be: it takes that from the first
/// ones only.
fn flavor_length(args: &[OsString]) -> usize {
    if args.first().is_some_and(|arg| arg == "-flavor") { args.len().min(2) } else { 0 }
}

/// Whether it is a linker itself and not a compiler that runs one; rustc infers it from these
/// names, too.
fn is_plain_linker(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    name == "ld"
        || name.ends_with("-ld")
        || name.starts_with("ld.")
        || matches!(name, "rust-lld" | "lld" | "mold" | "wild")
}

/// A linker's arguments as a compiler would be given them.
fn for_compiler(args: &[OsString]) -> Vec<OsString> {
    args.iter().flat_map(|arg| [OsString::from("-Xlinker"), arg.clone()]).collect()
}

/// A compiler's options as its linker gets them.
fn for_linker(options: Vec<OsString>) -> Vec<OsString> {
    let parts = |option: OsString| -> Vec<OsString> {
        match option.as_bytes().strip_prefix(b"-Wl,") {
            Some(list) => {
                list.split(|byte| *byte == b',').map(|part| OsString::from_vec(part.to_vec())).collect()
            }
            None if option == "-Xlinker" => Vec::new(),
            None => vec![option],
        }
    };
    options.into_iter().flat_map(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_linkers() {
        for name in ["/usr/bin/ld", "ld.lld-19", "rust-lld", "mold", "x86_64-linux-gnu-ld", "ld.bfd"] {
            assert!(is_plain_linker(Path::new(name)), "{name}");
        }
        for name in ["cc", "clang-19", "x86_64-linux-gnu-gcc", "musl-gcc", "/usr/bin/c++"] {
            assert!(!is_plain_linker(Path::new(name)), "{name}");
        }
        let args = ["-flavor", "gnu", "a.o"].map(OsString::from);
        assert_eq!((flavor_length(&args), flavor_length(&args[..1]), flavor_length(&args[1..])), (2, 1, 0));
        let options = ["-Wl,-z,start-stop-gc", "-Xlinker", "/kit/rt.o"].map(OsString::from).into();
        assert_eq!(for_linker(options), ["-z", "start-stop-gc", "/kit/rt.o"]);
    }
}
