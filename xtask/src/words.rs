//! One word for one thing: words that the glossary replaced don't come back.
//!
//! If this test fails, use the word of the glossary in ARCHITECTURE.md that the message names. If
//! the word is another standard term at that place, such as XRay's "sled", add the place to
//! [`Replaced::allowed`] with the reason.
//!
//! The test reads what people read: comments, texts and public names of sources, and documents
//! without their code. The changelogs are left out, because they name what was renamed.
//!
//! Comments stand by themselves, too: none begins with "The same", because rustdoc shows an item
//! without its neighbour.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A word, in all of its forms, and what to write instead.
struct Replaced {
    /// Whole words in lower case; a space stands for any white space.
    forms: &'static [&'static str],
    instead: &'static str,
    /// Parts of paths at which it is another term, and lines with these parts, too.
    allowed: &'static [&'static str],
}

const REPLACED: &[Replaced] = &[
    Replaced { forms: &["stray", "strays", "unmatched"], instead: "orphan exit", allowed: &[] },
    Replaced {
        forms: &["exits without a call", "exit without a call"],
        instead: "orphan exit",
        allowed: &[],
    },
    Replaced { forms: &["cut-off", "cut off"], instead: "truncated", allowed: &[] },
    Replaced { forms: &["noticed late"], instead: "unwound earlier, exact time unknown", allowed: &[] },
    Replaced { forms: &["passed over"], instead: "lost, dropped", allowed: &[] },
    // XRay's own term, as in its interface and its section.
    Replaced {
        forms: &["sled", "sleds"],
        instead: "site",
        allowed: &[
            "xray",
            "XRay",
            "clang",
            "/sites",
            "format/src/site.rs",
            "format/src/aarch64.rs",
            "format/src/arch.rs",
            "format/src/x86_64.rs",
            "architectures.md",
            "crates/traced/patch/",
            "crates/building/compiler/",
            "hooks/src/descriptor.rs",
            "compiler-modes.md",
        ],
    },
    Replaced { forms: &["bell", "bells"], instead: "doorbell", allowed: &[] },
    // Compilers come in families, and so do addresses and processors.
    Replaced {
        forms: &["family", "families"],
        instead: "process tree",
        allowed: &[
            "crates/building/compiler/",
            "socket.rs",
            "cpu family",
            "family {} model",
            "family 25 model",
        ],
    },
    Replaced { forms: &["watched"], instead: "armed", allowed: &[] },
    Replaced { forms: &["graveyard"], instead: "retired", allowed: &[] },
    Replaced { forms: &["told of"], instead: "registered", allowed: &[] },
    Replaced { forms: &["tell the name", "tells the name"], instead: "symbolize, demangle", allowed: &[] },
    Replaced { forms: &["nobody tells", "nobody told"], instead: "not notified", allowed: &[] },
    Replaced { forms: &["nonsense"], instead: "invalid", allowed: &[] },
];

/// A piece of a file that people read, with its line number.
struct Piece {
    line: usize,
    text: String,
}

/// The comments, texts and public names of a source in Rust or C.
fn pieces_of_source(source: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = source;
    let mut line = 1;
    let mut code = String::new();
    while let Some(first) = rest.chars().next() {
        let (length, is_text) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), true)
        } else if rest.starts_with("/*") {
            (rest.find("*/").map_or(rest.len(), |end| end + 2), true)
        } else if let Some(hashes) = raw_text(rest, &code) {
            let end = format!("\"{}", "#".repeat(hashes));
            let begin = hashes + 2;
            (rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len()), true)
        } else if first == '"' {
            (text_length(rest), true)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            (rest[2..].find('\'').map_or(rest.len(), |end| end + 3), false)
        } else {
            code.push(first);
            (first.len_utf8(), false)
        };
        let piece = &rest[..length];
        if is_text {
            let text = if first == '/' { prose(piece) } else { piece.to_owned() };
            pieces.push(Piece { line, text });
        }
        if piece.contains('\n') {
            pieces.extend(public_name(&code).map(|text| Piece { line, text }));
            code.clear();
        }
        line += piece.matches('\n').count();
        rest = &rest[length..];
    }
    pieces
}

/// The number of `#` of the raw text that begins here, if one does.
fn raw_text(rest: &str, code: &str) -> Option<usize> {
    if code.ends_with(|last: char| last.is_alphanumeric() && last != 'b' && last != 'c' || last == '_') {
        return None;
    }
    let hashes = rest.strip_prefix('r')?;
    let count = hashes.len() - hashes.trim_start_matches('#').len();
    hashes[count..].starts_with('"').then_some(count)
}

/// The length of the text in quotes that begins here.
fn text_length(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The words of the public name that a line of code declares.
fn public_name(code: &str) -> Option<String> {
    let code = code.trim_start().strip_prefix("pub ")?;
    let mut words = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let kinds = ["fn", "const", "static", "unsafe", "struct", "enum", "trait", "type", "mod", "union", ""];
    let name = words.find(|word| !kinds.contains(word))?;
    let mut split = String::new();
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && !split.ends_with(|last: char| last.is_uppercase()) {
            split.push(' ');
        }
        if letter != '_' {
            split.push(letter);
        }
    }
    Some(split)
}

/// Text without the code between backticks.
fn prose(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join("_")
}

/// The prose of a document, without blocks of code.
fn pieces_of_document(text: &str) -> Vec<Piece> {
    let mut is_code = false;
    let mut pieces = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            pieces.push(Piece { line: at + 1, text: prose(line) });
        }
    }
    pieces
}

/// Replaced words in a file, one line for each.
fn replaced_words(path: &str, text: &str) -> Vec<String> {
    let is_document = Path::new(path).extension().is_some_and(|ending| ending == "md");
    let pieces = if is_document { pieces_of_document(text) } else { pieces_of_source(text) };
    let mut found = Vec::new();
    for Piece { line, text } in pieces {
        let letters = text.to_lowercase();
        let plain: Vec<&str> = letters
            .split(|letter: char| !letter.is_alphanumeric() && letter != '-' && letter != '_')
            .filter(|word| !word.is_empty())
            .collect();
        let plain = format!(" {} ", plain.join(" "));
        for replaced in REPLACED {
            if replaced.allowed.iter().any(|part| path.contains(part) || text.contains(part)) {
                continue;
            }
            for form in replaced.forms {
                if plain.contains(&format!(" {form} ")) {
                    found.push(format!("{path}:{line}: \"{form}\": write \"{}\"", replaced.instead));
                }
            }
        }
    }
    found
}

/// The lines of a source at which a comment, or a paragraph of it, begins with "The same".
fn comments_of_neighbours(source: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut is_within = false;
    for (at, line) in source.lines().enumerate() {
        let comment = line.trim().strip_prefix("//").unwrap_or_default();
        let text = comment.trim_start_matches(['/', '!']).trim();
        if !is_within && text.starts_with("The same") {
            found.push(at + 1);
        }
        is_within = !text.is_empty();
    }
    found
}

/// The sources and documents below a folder.
fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "corpus" {
                files(&path, all);
            }
        } else if ["rs", "md", "h"].iter().any(|ending| path.extension().is_some_and(|it| it == *ending)) {
            all.push(path);
        }
    }
}

#[test]
fn the_glossarys_words_are_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    files(&root, &mut all);
    assert!(all.len() > 500, "{}", all.len());
    let mut found = String::new();
    for path in all {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        if !name.ends_with("CHANGELOG.md") && name != "xtask/src/words.rs" {
            for sentence in replaced_words(name, &fs::read_to_string(&path).unwrap()) {
                writeln!(found, "{sentence}").unwrap();
            }
        }
    }
    assert!(found.is_empty(), "see the head of xtask/src/words.rs:\n{found}");
}

#[test]
fn comments_stand_by_themselves() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    files(&root, &mut all);
    let mut found = String::new();
    for path in all.iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs")) {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        for line in comments_of_neighbours(&fs::read_to_string(path).unwrap()) {
            writeln!(found, "{name}:{line}: say what it is, not that it is the same").unwrap();
        }
    }
    assert!(found.is_empty(), "see the head of xtask/src/words.rs:\n{found}");
}

#[test]
fn comments_of_neighbours_are_found_where_they_begin() {
    let source = "/// The same.\nfn a() {}\n/// A table.\n/// The same one twice.\n///\n/// The same.\n\
                  let b = 1; // one\n//! The same rule.\n";
    assert_eq!(comments_of_neighbours(source), [1, 6, 8]);
}

#[test]
fn planted_words_are_found_where_people_read_them() {
    let lines = |path: &str, text: &str| -> Vec<String> {
        let found = replaced_words(path, text);
        found.iter().map(|sentence| sentence.split(':').nth(1).unwrap().to_owned()).collect()
    };
    let source = "// A stray exit.\nlet stray = '\"'; say!(\"a\nfamily\");\n/* bell */ let doorbell = r#\"\"bell\"\"#;\n\
                  pub fn ring_bell() {\nfn bell() {}\npub struct PoolBell;\npub(crate) fn bell() {}\n";
    assert_eq!(lines("a.rs", source), ["1", "2", "4", "4", "5", "7"]);
    let document = "An exit\nthat `stray` names.\n```text\nstray\n```\nStrays, told\tof.\n";
    assert_eq!(lines("a.md", document), ["6", "6"]);
    assert_eq!(lines("docs/reference/xray.md", "a sled"), [""; 0]);
    assert_eq!(lines("a.rs", "// XRay's sled"), [""; 0]);
    assert_eq!(lines("a.rs", "// a sled, a bobsled"), ["1"]);
}
