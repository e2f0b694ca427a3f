//! The functions that a crate gets code for, and the list that makes LLVM put hook calls into them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use super::tokio::{self, Types};

/// The functions of a crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Functions {
    /// Their linker names, each once.
    pub names: Vec<String>,
    /// Facts about those that are tokio's.
    pub types: Types,
    /// Whether they are compiled for musl.
    pub are_for_musl: bool,
}

impl Functions {
    /// The functions that are defined in LLVM's text files of a folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn in_folder(folder: &Path) -> io::Result<Functions> {
        let mut functions = Functions::default();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension() == Some(OsStr::new("ll")) {
                functions.add(&mut BufReader::with_capacity(1 << 20, File::open(path)?))?;
            }
        }
        functions.names.sort_unstable();
        functions.names.dedup();
        Ok(functions)
    }

    fn add(&mut self, text: &mut dyn BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        while text.read_until(b'\n', &mut line)? > 0 {
            self.names.extend(defined_in(&line).filter(|name| can_be_listed(name)));
            self.types.read(&line);
            self.are_for_musl |= line.starts_with(b"target triple") && line.ends_with(b"-musl\"\n");
            line.clear();
        }
        Ok(())
    }
}

/// The name in `define TYPE @name(...)`, or `@"name"` with unusual characters.
fn defined_in(line: &[u8]) -> Option<String> {
    let rest = line.strip_prefix(b"define ")?;
    let at = memchr::memchr(b'@', rest)?;
    let rest = &rest[at + 1..];
    let name = match rest.strip_prefix(b"\"") {
        Some(quoted) => quoted.split(|byte| *byte == b'"').next()?,
        None => rest.split(|byte| *byte == b'(').next()?,
    };
    String::from_utf8(name.to_vec()).ok()
}

/// Whether a line of the list can name it: what it separates by may not be in the name (nor LLVM's
/// escapes). Names of compilers never are like that, only those of `#[export_name]` may be.
fn can_be_listed(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('#') && !name.contains(['\\', ',', '\n'])
}

/// Writes the list: attributes of functions.
///
/// `keep_apart`: identical functions would be merged, and calls of one be shown as calls of
/// another.
///
/// # Errors
/// Those of the file system.
pub(super) fn write_list(functions: &Functions, keep_apart: bool, out: &mut dyn Write) -> io::Result<()> {
    for (number, name) in functions.names.iter().enumerate() {
        writeln!(out, "{name},instrument-function-entry-inlined=__cyg_profile_func_enter")?;
        writeln!(out, "{name},instrument-function-exit-inlined=__cyg_profile_func_exit")?;
        if keep_apart {
            writeln!(out, "{name},everycall={number}")?;
        }
    }
    tokio::write_list(&functions.names, &functions.types, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions() {
        let text = "target triple = \"x86_64-unknown-linux-musl\"\n\
            declare void @no()\n\
            define internal void @_ZN1a1bE(ptr %x) unnamed_addr #0 {\n\
            define i32 @\"_ZN4core3ops8function6FnOnce40call_once$u7b$$u7b$vtable.shim\"(ptr %0) {\n\
            define void @\"od,d\"() {\n  call void @_ZN1a1cE()\n}\n";
        let mut functions = Functions::default();
        functions.add(&mut text.as_bytes()).unwrap();
        assert!(functions.are_for_musl);
        assert_eq!(
            functions.names,
            ["_ZN1a1bE", "_ZN4core3ops8function6FnOnce40call_once$u7b$$u7b$vtable.shim"]
        );
    }
}
