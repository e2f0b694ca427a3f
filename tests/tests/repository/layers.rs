//! Modules import downwards only, and not in circles.

use std::path::{Path, PathBuf};

use everycall_tests::imports::{Import, Imports};

/// Imports between the modules of a crate of the workspace.
fn imports_of(name: &str) -> Imports {
    Imports::of(&root_of(&folder_of_crates().join(name))).expect("the crate's sources")
}

fn folder_of_crates() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates")
}

/// The source that a crate begins in.
fn root_of(folder: &Path) -> PathBuf {
    let library = folder.join("src/lib.rs");
    if library.exists() { library } else { folder.join("src/main.rs") }
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

/// Whether a module of the command is a verb.
fn is_verb(module: &str) -> bool {
    module.split("::").next() == Some("verbs")
}

#[test]
fn what_the_commands_verbs_share_lies_beside_them() {
    let imports = imports_of("cli");
    let upward: Vec<String> = imports
        .all()
        .iter()
        .filter(|import| is_verb(&import.to) && !is_verb(&import.from) && import.from != "crate")
        .map(ToString::to_string)
        .collect();
    assert!(upward.is_empty(), "{upward:#?}");
    assert!(imports.modules() > 90, "{}", imports.modules());
}

#[test]
fn modules_dont_import_each_other_in_circles() {
    let crates = std::fs::read_dir(folder_of_crates()).unwrap();
    let mut names: Vec<String> = crates
        .map(|entry| entry.unwrap())
        .filter(|entry| root_of(&entry.path()).exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() > 40, "{names:?}");
    let mut circles = Vec::new();
    for name in &names {
        let imports = imports_of(name);
        for circle in imports.circles() {
            let inside = |import: &&Import| circle.contains(&import.from) && circle.contains(&import.to);
            circles.push(format!(
                "{name}: {:#?}",
                imports.all().iter().filter(inside).map(ToString::to_string).collect::<Vec<_>>()
            ));
        }
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}
