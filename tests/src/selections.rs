//! Selections of functions by a program's symbol table, without our own symbol reader.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use everycall_control::{Module, SelectionSet};
use object::{Object, ObjectSymbol, SymbolKind};

use crate::Place;

/// A site set that selects these functions of a program, and nothing else.
///
/// # Panics
/// Where the program has no such function.
#[must_use]
pub fn only(program: &Path, functions: &[&str]) -> Vec<u8> {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let named = |name: &&str| {
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
        (symbol.address(), symbol.address() + symbol.size())
    };
    let mut ranges: Vec<_> = functions.iter().map(named).collect();
    ranges.sort_unstable();
    ranges.dedup();
    let build_id = file.build_id().unwrap().unwrap().to_vec();
    let modules = vec![Module { path: program.to_owned(), build_id, ranges }];
    let rules = functions.iter().map(|name| format!("+ {name}")).collect();
    SelectionSet { rules, others: false, modules }.bytes().unwrap()
}

/// A site set that selects all functions of a program but those of which `is_left_out` says so by
/// their linker names, and everything in other modules.
///
/// # Panics
/// Where the program can't be read.
#[must_use]
pub fn all_but(program: &Path, is_left_out: impl Fn(&str) -> bool) -> Vec<u8> {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let code = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
    let mut ranges: Vec<_> = code
        .filter(|symbol| !is_left_out(symbol.name().unwrap()))
        .map(|symbol| (symbol.address(), symbol.address() + symbol.size()))
        .collect();
    ranges.sort_unstable();
    ranges.dedup_by_key(|(start, _)| *start);
    let build_id = file.build_id().unwrap().unwrap().to_vec();
    let modules = vec![Module { path: program.to_owned(), build_id, ranges }];
    SelectionSet { rules: vec!["+ some".to_owned()], others: true, modules }.bytes().unwrap()
}

/// Writes the site set of [`only`] to a file, for `EVERYCALL_ONLY`.
///
/// # Panics
/// Where it can't be written.
#[must_use]
pub fn file_with_only(place: &Place, program: &Path, functions: &[&str]) -> PathBuf {
    let file = place.file("only.ecs");
    std::fs::write(&file, only(program, functions)).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file
}
