//! A file that isn't the one that was traced is never used for names.

use crate::common;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Workshop, build_id, functions, open};
use everycall_symbols::{ModuleIdentity, ModuleSymbols, PathMap, SymbolOptions, SymbolWarning};

fn two_builds(flag: &str) -> Workshop {
    let workshop = Workshop::new();
    workshop.compile("g++", &["-O0", "-g", flag], "shapes.cpp", "old");
    workshop.compile("g++", &["-O2", "-g", flag], "shapes.cpp", "new");
    workshop
}

fn is_nameless(symbols: &mut ModuleSymbols) -> bool {
    let id = symbols.function_at(0x1234);
    symbols.functions().len() == 0 && symbols.function(id).name == "new+0x1234"
}

#[test]
fn another_build_id_is_refused() {
    let workshop = two_builds("-Wl,--build-id");
    let (old, new) = (workshop.path("old"), workshop.path("new"));
    let mut symbols =
        ModuleSymbols::open(&ModuleIdentity::new(&new, &build_id(&old)), &SymbolOptions::bare());
    assert!(is_nameless(&mut symbols));
    let sentence = symbols.warnings()[0].to_string();
    for id in [build_id(&old), build_id(&new)] {
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(sentence.contains(&hex), "{sentence}");
    }
    assert!(sentence.contains("map its path"), "{sentence}");

    // The path map that the message asks for.
    let maps = vec![PathMap::new(&*new, &*old)];
    let options = SymbolOptions { binary_maps: maps, ..SymbolOptions::bare() };
    let mut symbols = ModuleSymbols::open(&ModuleIdentity::new(&new, &build_id(&old)), &options);
    assert!(symbols.warnings().is_empty());
    assert!(functions(&mut symbols).iter().any(|function| function.name == "main"));
}

#[test]
fn a_missing_or_surplus_build_id_is_refused() {
    let workshop = two_builds("-Wl,--build-id=none");
    let new = workshop.path("new");
    let mut symbols = ModuleSymbols::open(&ModuleIdentity::new(&new, &[1, 2, 3]), &SymbolOptions::bare());
    assert!(is_nameless(&mut symbols));
    assert!(symbols.warnings()[0].to_string().contains("010203 was expected, none was found"));

    let workshop = two_builds("-Wl,--build-id");
    let new = workshop.path("new");
    assert!(is_nameless(&mut ModuleSymbols::open(&ModuleIdentity::new(&new, &[]), &SymbolOptions::bare())));
}

#[test]
fn size_and_time_stand_in_for_a_build_id() {
    use std::os::unix::fs::MetadataExt;
    let workshop = two_builds("-Wl,--build-id=none");
    let new = workshop.path("new");
    let metadata = std::fs::metadata(&new).unwrap();
    let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    let same = ModuleIdentity {
        file_size: Some(metadata.len()),
        modified_ns: Some(modified_ns),
        ..ModuleIdentity::new(&new, &[])
    };
    let symbols = ModuleSymbols::open(&same, &SymbolOptions::bare());
    assert!(symbols.warnings().is_empty() && symbols.functions().len() > 10);

    for other in [
        ModuleIdentity { file_size: Some(metadata.len() + 1), ..same.clone() },
        ModuleIdentity { modified_ns: Some(modified_ns - 1), ..same.clone() },
    ] {
        let mut symbols = ModuleSymbols::open(&other, &SymbolOptions::bare());
        assert!(is_nameless(&mut symbols));
        assert_eq!(symbols.warnings(), [SymbolWarning::ChangedFile { path: new.clone() }]);
    }

    let unknown = ModuleSymbols::open(&ModuleIdentity::new(&new, &[]), &SymbolOptions::bare());
    assert_eq!(unknown.warnings(), [SymbolWarning::Unverified { path: new.clone() }]);
    assert!(unknown.functions().len() > 10);
}

#[test]
fn an_image_needs_no_file() {
    let workshop = two_builds("-Wl,--build-id");
    let new = workshop.path("new");
    let (id, image) = (build_id(&new), Arc::<[u8]>::from(std::fs::read(&new).unwrap()));
    std::fs::remove_file(&new).unwrap();
    let kept = ModuleIdentity { image: Some(image), ..ModuleIdentity::new(&new, &id) };
    let mut symbols = ModuleSymbols::open(&kept, &SymbolOptions::bare());
    common::check_marked(&mut symbols, "shapes.cpp", "image");

    let other = ModuleIdentity { build_id: &[9; 20], ..kept };
    assert!(is_nameless(&mut ModuleSymbols::open(&other, &SymbolOptions::bare())));
}

#[test]
fn files_that_cannot_be_used_are_named_in_a_sentence() {
    let workshop = Workshop::new();
    std::fs::write(workshop.path("script"), "#!/bin/sh\n").unwrap();
    std::fs::write(workshop.path("short"), b"\x7fELF\x02\x01\x01").unwrap();
    std::fs::write(workshop.path("small"), b"\x7fELF\x01\x01\x01").unwrap();
    for (path, expected) in [
        (workshop.path("missing"), "No such file"),
        (workshop.path(""), "not a regular file"),
        (workshop.path("script"), "not an ELF file"),
        (workshop.path("short"), "damaged"),
        (workshop.path("small"), "another class"),
        ("linux-vdso.so.1".into(), "not the absolute path"),
    ] {
        let mut symbols = ModuleSymbols::open(&ModuleIdentity::new(&path, &[]), &SymbolOptions::bare());
        let sentence = symbols.warnings()[0].to_string();
        assert!(sentence.contains(expected), "{sentence}");
        let id = symbols.function_at(16);
        assert!(symbols.function(id).name.ends_with("+0x10"));
        assert_eq!(symbols.function_at(16), id);
        assert_ne!(symbols.function_at(17), id);
    }
}

#[test]
fn a_deleted_mark_is_no_part_of_the_name() {
    let path = Path::new("/nowhere/app (deleted)");
    let mut symbols = ModuleSymbols::open(&ModuleIdentity::new(path, &[]), &SymbolOptions::bare());
    let id = symbols.function_at(1);
    assert_eq!(symbols.function(id).name, "app+0x1");
}

#[test]
fn names_that_are_not_utf8() {
    let workshop = Workshop::new();
    let source = b"int odd(void) __asm__(\"caf\\351\"); int odd(void) { return 1; }\n";
    std::fs::write(workshop.path("a.c"), source).unwrap();
    workshop.run(&["gcc", "-g", "-shared", "-fPIC", "-Wl,--build-id", "a.c", "-o", "a.so"]);
    let mut symbols = open(&workshop.path("a.so"), &SymbolOptions::bare());
    let functions = functions(&mut symbols);
    assert!(
        functions.iter().any(|function| function.name == "caf\u{fffd}" && function.line == Some(1)),
        "{functions:?}"
    );
}
