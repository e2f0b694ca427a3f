//! The files that CONTRIBUTING.md and ARCHITECTURE.md send their readers to are there.

use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Whether a text in backquotes, or a link's target, is a path of the repository that can be looked
/// up.
fn is_path(word: &str) -> bool {
    const ROOMS: [&str; 8] =
        ["crates/", "docs/", "tests/", "xtask/", "fuzz/", "examples/", "benches/", ".ci/"];
    let is_placeholder = ["NAME", "VERB", "GROUP"].iter().any(|name| word.contains(name));
    !word.contains([' ', '*', '<', ':']) && !is_placeholder && ROOMS.iter().any(|room| word.starts_with(room))
}

fn paths(text: &str) -> Vec<String> {
    let code = text.split('`').skip(1).step_by(2);
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    code.chain(links).filter(|word| is_path(word)).map(str::to_owned).collect()
}

#[test]
fn files_that_are_named_are_there() {
    for (document, least) in [("CONTRIBUTING.md", 25), ("ARCHITECTURE.md", 4)] {
        let text = std::fs::read_to_string(workspace().join(document)).unwrap();
        let paths = paths(&text);
        assert!(paths.len() >= least, "{document} names {} files", paths.len());
        let missing: Vec<_> = paths.iter().filter(|path| !workspace().join(path).exists()).collect();
        assert!(missing.is_empty(), "{document}: {missing:?}");
    }
}

/// The test would fail if these were missing.
#[test]
fn names_of_files_are_found() {
    let text = "`crates/shared/format/src/event.rs` and [docs](docs/format.md), `crates/reading/export/src/NAME.rs`, `cargo xtask test`, `a/b`, `tests/gone.rs`";
    assert_eq!(paths(text), ["crates/shared/format/src/event.rs", "tests/gone.rs", "docs/format.md"]);
}

/// The commands are tasks of `cargo xtask`.
#[test]
fn commands_are_tasks() {
    let main = std::fs::read_to_string(workspace().join("xtask/src/main.rs")).unwrap();
    for (document, least) in [("CONTRIBUTING.md", 6), ("README.md", 3)] {
        let text = std::fs::read_to_string(workspace().join(document)).unwrap();
        let tasks = text.split("cargo xtask ").skip(1);
        let mut count = 0;
        for task in tasks.map(|rest| rest.split(|letter: char| !letter.is_ascii_lowercase()).next().unwrap())
        {
            assert!(main.contains(&format!("//! | `{task}`")), "{document}: cargo xtask {task}");
            count += 1;
        }
        assert!(count >= least, "{document}: {count} tasks");
    }
}
