//! Tables of the documents have what the command has, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use everycall_tests::{everycall, successful};

fn text_of(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// The cells of a column in the tables of a document, without their heads.
fn column(text: &str, column: usize) -> Vec<String> {
    let mut cells = Vec::new();
    let mut is_body = false;
    for line in text.lines() {
        if line.starts_with("|---") {
            is_body = true;
        } else if !line.starts_with('|') {
            is_body = false;
        } else if is_body {
            cells.extend(line.split(" | ").nth(column).map(|cell| cell.trim_matches(['|', ' ']).to_owned()));
        }
    }
    cells
}

/// Words between backquotes.
fn names(cells: &[String]) -> BTreeSet<String> {
    cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The lines of a help text that begin with a name: verbs, or values of an option.
fn listed(help: &str, between: [&str; 2], mark: &str) -> BTreeSet<String> {
    let (_, behind) = help.split_once(between[0]).expect("the beginning of the list");
    let (list, _) = behind.split_once(between[1]).expect("its end");
    let name = |line: &str| {
        let rest = line.trim_start_matches(' ').strip_prefix(mark)?;
        let is_continued = line.len() - line.trim_start().len() > 12;
        let name = rest.split([' ', ':']).next().unwrap_or_default();
        (!is_continued && !name.is_empty()).then(|| name.to_owned())
    };
    list.lines().filter_map(name).collect()
}

#[test]
fn each_exit_code_is_documented() {
    let source = text_of("crates/command/cli/src/exit_code.rs");
    let constants = source.lines().filter_map(|line| line.split_once(": u8 = "));
    let mut codes: BTreeSet<String> =
        constants.map(|(_, value)| value.trim_end_matches(';').to_owned()).collect();
    assert!(codes.len() > 5, "{codes:?}");
    codes.insert("0".to_owned());
    let text = text_of("docs/reference/exit-codes.md");
    let documented: BTreeSet<String> =
        column(&text, 0).into_iter().filter(|cell| cell.parse::<u8>().is_ok()).collect();
    assert_eq!(documented, codes);
}

#[test]
fn each_format_of_export_is_documented() {
    let help = successful(Command::new(everycall()).args(["export", "--help"]));
    let formats = listed(&help, ["Possible values:", "[default"], "- ");
    assert!(formats.len() > 10, "{formats:?}");
    assert_eq!(names(&column(&text_of("docs/reference/exports.md"), 0)), formats);
}

#[test]
fn stable_verbs_are_verbs() {
    let help = successful(Command::new(everycall()).arg("--help"));
    let verbs = listed(&help, ["Commands:", "Options:"], "");
    assert!(verbs.len() > 30, "{verbs:?}");
    let text = text_of("docs/reference/stability.md");
    let stable = column(&text, 0).into_iter().filter(|cell| cell.starts_with("verbs and options of "));
    let stable = names(&stable.collect::<Vec<_>>());
    assert!(stable.len() > 5, "{stable:?}");
    let gone: Vec<&String> = stable.difference(&verbs).collect();
    assert!(gone.is_empty(), "{gone:?}");
}
