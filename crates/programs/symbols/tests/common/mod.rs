//! Programs compiled for a test, and what other tools say of them.
#![allow(dead_code, reason = "each test uses some of it")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_symbols::{Function, FunctionId, ModuleIdentity, ModuleSymbols, SymbolOptions};
use object::Object;
use tempfile::TempDir;

/// A directory with a test's files.
pub struct Workshop {
    dir: TempDir,
}

impl Workshop {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        // Compilers record the resolved directory.
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// Runs a command in the directory; its output.
    pub fn run(&self, command: &[&str]) -> String {
        let output = Command::new(command[0]).args(&command[1..]).current_dir(self.path("")).output();
        let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Compiles one of the test programs to `out`.
    pub fn compile(&self, compiler: &str, flags: &[&str], program: &str, out: &str) -> PathBuf {
        std::fs::copy(program_path(program), self.path(program)).unwrap();
        self.run(&[&[compiler], flags, &[program, "-o", out]].concat());
        self.path(out)
    }
}

pub fn program_path(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(program)
}

pub fn has_tool(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}

pub fn build_id(path: &Path) -> Vec<u8> {
    let data = std::fs::read(path).unwrap();
    object::File::parse(&*data).unwrap().build_id().unwrap().unwrap_or_default().to_vec()
}

/// Opens a module with its own identity.
pub fn open(path: &Path, options: &SymbolOptions) -> ModuleSymbols {
    ModuleSymbols::open(&ModuleIdentity::new(path, &build_id(path)), options)
}

/// Every function of a module, resolved.
pub fn functions(symbols: &mut ModuleSymbols) -> Vec<Function> {
    let ids: Vec<FunctionId> = symbols.functions().map(|entry| entry.id).collect();
    ids.into_iter().map(|id| symbols.function(id).clone()).collect()
}

/// `(name, line)` of the lines marked with `// @ NAME`.
pub fn marked_lines(program: &str) -> Vec<(String, u32)> {
    let text = std::fs::read_to_string(program_path(program)).unwrap();
    let marked = text.lines().zip(1..).filter_map(|(line, number)| {
        let name = line.split_once("// @ ")?.1;
        Some((name.to_owned(), number))
    });
    marked.collect()
}

/// Checks that each marked function is found under its name, file and line.
pub fn check_marked(symbols: &mut ModuleSymbols, program: &str, context: &str) {
    let functions = functions(symbols);
    for (name, line) in marked_lines(program) {
        let found: Vec<_> = functions.iter().filter(|f| f.name == name && f.size > 0).collect();
        assert!(!found.is_empty(), "{context}: no {name}; warnings {:?}", symbols.warnings());
        for function in found {
            let file = function.file.as_deref().and_then(Path::file_name);
            assert_eq!(
                file,
                Some(OsStr::new(program)),
                "{context}: file of {name}; {:?}",
                symbols.warnings()
            );
            assert_eq!(function.line, Some(line), "{context}: line of {name} in {function:?}");
        }
    }
}
