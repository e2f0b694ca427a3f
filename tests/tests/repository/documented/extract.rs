//! The commands in the documents: in fenced blocks, and in the text as code.

use std::fs;
use std::path::{Path, PathBuf};

/// Verbs whose `everycall` the documents leave out: `record --stream`.
const VERBS: [&str; 16] = [
    "record",
    "replay",
    "info",
    "report",
    "merge",
    "export",
    "resolve",
    "snapshot",
    "ps",
    "core",
    "enable",
    "disable",
    "functions",
    "trace",
    "sessions",
    "trigger",
];

/// A command as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documented {
    pub text: String,
    /// Where, for people.
    pub place: String,
}

/// README.md and all of docs, but for the changes of versions that are gone.
pub fn documents(workspace: &Path) -> Vec<PathBuf> {
    let mut all = vec![workspace.join("README.md")];
    let mut folders = vec![workspace.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") && !path.ends_with("CHANGELOG.md")
            {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

/// The commands of a document.
pub fn commands(name: &str, text: &str) -> Vec<Documented> {
    let mut found = Vec::new();
    let mut add = |number: usize, text: &str| {
        found.push(Documented { text: text.to_owned(), place: format!("{name}:{number}") });
    };
    let mut number = 1;
    for (part, is_block) in text.split("```").zip([false, true].into_iter().cycle()) {
        let lines = (number..).zip(part.lines());
        if is_block {
            // Behind the language. All of a block is commands where one is ours: what comes before
            // and behind is to be right, too.
            let lines = lines.skip(1).map(|(number, line)| (number, without_comment(line)));
            let lines: Vec<(usize, &str)> = lines.filter(|(_, line)| !line.is_empty()).collect();
            let is_source = part.starts_with("c\n") || part.starts_with("cpp\n");
            if !is_source && lines.iter().any(|(_, line)| is_ours(line)) {
                lines.iter().for_each(|(number, line)| add(*number, line));
            }
        } else {
            let mut number = number;
            for (code, is_code) in part.split('`').zip([false, true].into_iter().cycle()) {
                // In tables, a bar is written with a backslash; a line may end within code.
                let command = code.replace("\\|", "|").replace('\n', " ");
                if is_code && is_command(&command) {
                    add(number, &command);
                }
                number += code.matches('\n').count();
            }
        }
        number += part.matches('\n').count();
    }
    found
}

fn without_comment(line: &str) -> &str {
    line.split_once(" #").map_or(line, |(command, _)| command).trim_end()
}

fn is_ours(line: &str) -> bool {
    ["everycall ", "sudo everycall ", "cargo ", "EVERYCALL_", "python3 -m "]
        .iter()
        .any(|begin| line.starts_with(begin))
}

/// Whether code in the text is a command, a setting, or a part of one that people type.
fn is_command(code: &str) -> bool {
    let begins_with_verb = || {
        let mut words = code.split(' ');
        words.next().is_some_and(|word| VERBS.contains(&word)) && words.next().is_some()
    };
    is_ours(code)
        || code.contains("everycall ")
        || code.contains("everycall;")
        || code.contains(" everycall-")
        || begins_with_verb()
        || code.starts_with("--") && code.contains(' ')
}

#[test]
fn commands_are_found() {
    let text = "Run `everycall ps`, or `record --stream`; `record` alone is a name, and `info` too. `--file-age 1m` is one.\n\
                | a | `everycall replay app.ect \\| head` |\n\
                ```\nmake  # first\neverycall info x.ect\n\n```\n```c\nint x;\n```\n`EVERYCALL_START=off`\n";
    let found: Vec<String> = commands("x", text).into_iter().map(|found| found.text).collect();
    let wanted = [
        "everycall ps",
        "record --stream",
        "--file-age 1m",
        "everycall replay app.ect | head",
        "make",
        "everycall info x.ect",
        "EVERYCALL_START=off",
    ];
    assert_eq!(found, wanted);
}
