//! Modules import downwards only, and not in circles.

use std::path::{Path, PathBuf};

use everycall_tests::imports::{Import, Imports};

use crate::rooms::{Room, rooms};

/// Imports between the modules of a crate of the workspace.
fn imports_of(name: &str) -> Imports {
    let room = rooms().into_iter().find(|room| room.name == name).expect("a crate of the workspace");
    imports_in(&room)
}

fn imports_in(room: &Room) -> Imports {
    Imports::of(&root_of(&room.folder)).expect("the crate's sources")
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
    let rooms = rooms();
    assert!(rooms.len() > 40, "{}", rooms.len());
    let mut circles = Vec::new();
    for room in &rooms {
        let imports = imports_in(room);
        for circle in imports.circles() {
            let inside = |import: &&Import| circle.contains(&import.from) && circle.contains(&import.to);
            circles.push(format!(
                "{}: {:#?}",
                room.name,
                imports.all().iter().filter(inside).map(ToString::to_string).collect::<Vec<_>>()
            ));
        }
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// Groups of crates, the lowest one first: each uses groups above it in this list alone.
const GROUPS: [&str; 13] = [
    "shared",
    "traced",
    "files",
    "programs",
    "building",
    "patching",
    "processes",
    "recording",
    "importing",
    "reading",
    "showing",
    "command",
    "development",
];

fn place_of(group: &str) -> usize {
    GROUPS.iter().position(|name| *name == group).unwrap_or_else(|| panic!("{group} is in no list of groups"))
}

#[test]
fn groups_of_crates_use_those_below() {
    let rooms = rooms();
    assert!(rooms.len() > 40, "{}", rooms.len());
    let upward: Vec<String> = rooms
        .iter()
        .flat_map(|room| room.uses.iter().map(move |used| (room, used)))
        .filter(|(room, used)| place_of(used) > place_of(&room.group))
        .map(|(room, used)| format!("{} of {} uses {used}", room.name, room.group))
        .collect();
    assert!(upward.is_empty(), "{upward:#?}");
}

/// The list of a group's rooms, and what the group uses, as Markdown.
fn listed(group: &str, rooms: &[Room]) -> String {
    let mut text = String::new();
    let inside = || rooms.iter().filter(|room| room.group == group);
    for room in inside() {
        text += &format!("- `{}`: {}.\n", room.name, room.description);
    }
    let uses = GROUPS.iter().filter(|name| **name != group);
    let uses = uses.filter(|name| inside().any(|room| room.uses.iter().any(|used| used == *name)));
    let uses: Vec<String> = uses.map(|name| format!("`{name}`")).collect();
    if !uses.is_empty() {
        text += &format!("\nUses {}.\n", uses.join(", "));
    }
    text
}

#[test]
fn the_architecture_lists_the_crates_that_there_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let rooms = rooms();
    let mut expected = text.clone();
    for group in GROUPS {
        let begin = format!("<!-- rooms: {group} -->\n");
        let start = expected.find(&begin).unwrap_or_else(|| panic!("no list of {group}")) + begin.len();
        let end = start + expected[start..].find("<!-- end -->").unwrap();
        expected.replace_range(start..end, &listed(group, &rooms));
    }
    if std::env::var_os("EVERYCALL_BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    } else {
        assert_eq!(text, expected, "EVERYCALL_BLESS=1 writes the lists");
    }
}
