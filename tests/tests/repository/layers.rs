//! Modules import downwards only, and not in circles.

use std::path::PathBuf;

use everycall_tests::imports::Imports;

/// Imports between the modules of a crate of the workspace.
fn imports_of(name: &str) -> Imports {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates").join(name).join("src/lib.rs");
    Imports::of(&root).expect("the crate's sources")
}

/// The runtime's layers, the lowest one first.
const RUNTIME: [&str; 5] = ["sys", "state", "threads", "features", "entry"];

#[test]
fn the_runtimes_layers_import_downwards() {
    let imports = imports_of("runtime");
    let upward: Vec<String> = imports.upward(&RUNTIME).iter().map(ToString::to_string).collect();
    assert!(upward.is_empty(), "{upward:#?}");
    // If it was read wrongly, nothing would be found.
    assert!(
        imports.modules() > 50 && imports.all().len() > 150,
        "{}: {}",
        imports.modules(),
        imports.all().len()
    );
}

/// The recorder's layers, the lowest one first.
const RECORDER: [&str; 6] = ["sys", "memory", "process", "tree", "output", "session"];

#[test]
fn the_recorders_layers_import_downwards() {
    let imports = imports_of("recorder");
    let upward: Vec<String> = imports.upward(&RECORDER).iter().map(ToString::to_string).collect();
    assert!(upward.is_empty(), "{upward:#?}");
    assert!(
        imports.modules() > 35 && imports.all().len() > 70,
        "{}: {}",
        imports.modules(),
        imports.all().len()
    );
}

#[test]
fn modules_dont_import_each_other_in_circles() {
    let crates = std::fs::read_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates")).unwrap();
    let mut names: Vec<String> = crates
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join("src/lib.rs").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() > 20, "{names:?}");
    let circles: Vec<_> = names
        .iter()
        .map(|name| (name, imports_of(name).circles()))
        .filter(|(_, circles)| !circles.is_empty())
        .collect();
    assert!(circles.is_empty(), "{circles:#?}");
}
