//! gcc and g++ for build scripts (`CC`, `CXX`): what a traced package compiles is traced, what
//! others compile isn't.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, io};

use super::rustc::{CRATES_VARIABLE, RustCrates};
use crate::compiler::{self, Family};
use crate::kit_files::Kit;
use crate::prefix;
use crate::toolbox::{COMPILERS_FOLDER, Toolbox};

/// The variables that name a compiler to build scripts, and the programs. None if the
/// system's compiler isn't gcc: a program of another family may not take the scripts' options.
///
/// # Errors
/// Those of the file system.
pub fn compilers(toolbox: &Toolbox) -> io::Result<Vec<(&'static str, PathBuf)>> {
    let is_gcc = |name: &str| {
        compiler::find_program(OsStr::new(name))
            .is_some_and(|path| compiler::family_of(&path) == Some(Family::Gcc))
    };
    let mut found = Vec::new();
    for (variable, default, name) in [("CC", "cc", "gcc"), ("CXX", "c++", "g++")] {
        if is_gcc(default) && is_gcc(name) {
            found.push((variable, toolbox.compiler(OsStr::new(name))?));
        }
    }
    Ok(found)
}

/// Whether this program was called as such a compiler.
pub fn is_build_compiler_path(called_as: &OsStr) -> bool {
    let folder = Path::new(called_as).parent().and_then(Path::file_name);
    folder.is_some_and(|name| name == COMPILERS_FOLDER)
}

/// A call by a build script: returns only if the compiler couldn't be run.
pub fn build_compiler_main(called_as: &OsStr, args: Vec<OsString>, kit: Kit<'_>) -> ExitCode {
    let crates = RustCrates::of_text(&env::var(CRATES_VARIABLE).unwrap_or_default());
    let name = Path::new(called_as).file_name().unwrap_or(called_as).to_owned();
    prefix::build_compiler(name, args, crates.has_package(|variable| env::var_os(variable)), kit)
}
