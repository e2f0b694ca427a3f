//! Features of a compiler that its name doesn't show. A trial run finds them out; the toolbox keeps
//! the answer for as long as the compiler's file stays the same.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::toolbox::Toolbox;

/// A feature that not every version of a compiler, or of its assembler, has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// gcc calls hooks at returns: gcc 9 and newer.
    ReturnHooks,
    /// gcc's assembler knows sections that are linked in the order of others: binutils 2.35 and
    /// newer.
    LinkedOrder,
    /// clang makes sleds in interface units of C++20 modules: at least clang 22; 14 to 19 don't.
    SledsInInterfaceUnits,
    /// clang's option against XRay's own runtime has the spelling of clang 17 and newer.
    NoXrayLinkDeps,
}

impl Feature {
    /// Name of the file with the answer.
    fn name(self) -> &'static str {
        match self {
            Feature::ReturnHooks => "return-hooks",
            Feature::LinkedOrder => "linked-order",
            Feature::SledsInInterfaceUnits => "sleds-in-interface-units",
            Feature::NoXrayLinkDeps => "no-xray-link-deps",
        }
    }

    /// Arguments and input that need the feature, and whether its output shows it.
    fn question(self) -> (&'static [&'static str], &'static str, Option<&'static [u8]>) {
        match self {
            Feature::ReturnHooks => {
                (&["-p", "-mfentry", "-minstrument-return=call", "-S", "-x", "c", "-o", "-", "-"], "", None)
            }
            Feature::LinkedOrder => (
                &["-x", "assembler", "-c", "-o", "/dev/null", "-"],
                ".text\n.section everycall,\"ao\",@progbits,.text\n.long 0\n",
                None,
            ),
            Feature::SledsInInterfaceUnits => (
                &[
                    "-std=c++20",
                    "-Xclang",
                    "-fxray-instrument",
                    "-Xclang",
                    "-fxray-instruction-threshold=1",
                    "-x",
                    "c++-module",
                    "-S",
                    "-o",
                    "-",
                    "-",
                ],
                "export module everycall; export int f() { return 1; }\n",
                Some(b"xray_instr_map"),
            ),
            Feature::NoXrayLinkDeps => (&["-fno-xray-link-deps", "-fsyntax-only", "-x", "c", "-"], "", None),
        }
    }

    /// A trial without the feature: if that fails too, something else is wrong.
    fn control(self) -> (&'static [&'static str], &'static str) {
        match self {
            Feature::LinkedOrder => (&["-x", "assembler", "-c", "-o", "/dev/null", "-"], ".text\n.long 0\n"),
            Feature::SledsInInterfaceUnits => (
                &["-std=c++20", "-x", "c++-module", "-S", "-o", "/dev/null", "-"],
                "export module everycall; export int f() { return 1; }\n",
            ),
            _ => (&["-S", "-x", "c", "-o", "/dev/null", "-"], ""),
        }
    }
}

/// Whether a compiler has a feature. `folders`: the user's `-B` options, which may bring another
/// assembler. A compiler that does nothing at all is taken to have it: its own message says more.
pub(crate) fn has(compiler: &Path, folders: &[OsString], feature: Feature) -> io::Result<bool> {
    let toolbox = Toolbox::open()?;
    let key = identity(compiler, folders);
    if let Some(answer) = key.and_then(|key| toolbox.answer(key, feature.name())) {
        return Ok(answer);
    }
    let (args, input, shown) = feature.question();
    let answer = run(compiler, folders, args, input)
        .is_some_and(|output| shown.is_none_or(|text| memchr::memmem::find(&output, text).is_some()));
    if !answer {
        let (args, input) = feature.control();
        if run(compiler, folders, args, input).is_none() {
            return Ok(true);
        }
    }
    if let Some(key) = key {
        toolbox.remember(key, feature.name(), answer)?;
    }
    Ok(answer)
}

/// Differs between compilers, and between versions of one that take each other's place.
fn identity(compiler: &Path, folders: &[OsString]) -> Option<u64> {
    let path = compiler.canonicalize().ok()?;
    let file = path.metadata().ok()?;
    let numbers = [file.dev(), file.ino(), file.size(), file.mtime() as u64, file.mtime_nsec() as u64];
    let texts =
        [path.as_os_str(), compiler.file_name()?].into_iter().chain(folders.iter().map(OsString::as_os_str));
    let texts = texts.flat_map(|text: &OsStr| text.as_bytes().iter().copied().chain([0]));
    let bytes = numbers.into_iter().flat_map(u64::to_ne_bytes).chain(texts);
    Some(
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }),
    )
}

/// The compiler's standard output; `None` if it fails.
fn run(compiler: &Path, folders: &[OsString], args: &[&str], input: &str) -> Option<Vec<u8>> {
    let mut child = Command::new(compiler)
        .args(folders)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // One that refuses its arguments reads nothing.
    let _ = child.stdin.take()?.write_all(input.as_bytes());
    let output = child.wait_with_output().ok()?;
    output.status.success().then_some(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn features_of_a_compiler_are_told_from_its_failures() {
        let folder = std::env::temp_dir().join(format!("everycall-probe-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let make = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let old = make("old", "case \"$*\" in *-minstrument-return*) exit 1;; esac");
        let new = make("new", "exit 0");
        let broken = make("broken", "exit 1");
        for (compiler, has_it) in [(&old, false), (&new, true), (&broken, true), (&old, false)] {
            assert_eq!(has(compiler, &[], Feature::ReturnHooks).unwrap(), has_it, "{}", compiler.display());
        }
        // Another one in its place.
        let other = make("old", "exit 0 # newer");
        assert!(has(&other, &[], Feature::ReturnHooks).unwrap());
        fs::remove_dir_all(&folder).unwrap();
    }
}
