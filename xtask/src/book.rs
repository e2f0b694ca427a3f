//! `cargo xtask book`: the documents as a book, in `target/book`.

use crate::packages::found;
use crate::step::{Step, workspace};

/// Builds the book; installs mdBook where it is missing.
///
/// # Errors
/// The failure, as a sentence.
pub fn run() -> Result<(), String> {
    if found("mdbook").is_none() {
        let install = ["install", "--locked", "--no-default-features", "mdbook"];
        Step::new(&workspace(), "cargo").args(install).run()?;
    }
    Step::new(&workspace(), "mdbook").args(["build", "docs"]).run()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Component, Path, PathBuf};

    use super::*;

    /// Documents below a folder.
    fn documents(folder: &Path, all: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                documents(&path, all);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                all.push(path);
            }
        }
    }

    /// The text without blocks of code and code in lines.
    fn prose(text: &str) -> String {
        let outside: Vec<&str> = text.split("```").step_by(2).collect();
        outside.join("\n").split('`').step_by(2).collect()
    }

    /// Targets of links.
    fn links(text: &str) -> Vec<String> {
        let prose = prose(text);
        let ends = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        ends.map(|(target, _)| target.to_owned()).filter(|target| !target.is_empty()).collect()
    }

    /// The anchors of a document's headings, as GitHub and mdBook make them.
    fn anchors(text: &str) -> BTreeSet<String> {
        let outside: Vec<&str> = text.split("```").step_by(2).collect();
        let headings = outside.iter().flat_map(|part| part.lines()).filter(|line| line.starts_with('#'));
        let mut anchors = BTreeSet::new();
        for heading in headings {
            let name = heading.trim_start_matches('#').trim();
            let kept = name.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
            let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
            // Further headings of the same words are numbered.
            let mut numbered = (1..).map(|number| format!("{anchor}-{number}"));
            let mut name = anchor.clone();
            while !anchors.insert(name) {
                name = numbered.next().unwrap_or_default();
            }
        }
        anchors
    }

    /// A path without `.` and `..`.
    fn plain(path: &Path) -> PathBuf {
        let mut plain = PathBuf::new();
        for part in path.components() {
            match part {
                Component::ParentDir => drop(plain.pop()),
                Component::CurDir => {}
                part => plain.push(part),
            }
        }
        plain
    }

    #[test]
    fn each_document_is_in_the_book_once() {
        let docs = workspace().join("docs");
        let mut all = Vec::new();
        documents(&docs, &mut all);
        let files: BTreeSet<PathBuf> = all.into_iter().filter(|path| !path.ends_with("SUMMARY.md")).collect();
        let chapters = links(&fs::read_to_string(docs.join("SUMMARY.md")).unwrap());
        let named: BTreeSet<PathBuf> = chapters.iter().map(|name| docs.join(name)).collect();
        assert_eq!(named.len(), chapters.len(), "a chapter is named twice");
        assert_eq!(files, named);
    }

    #[test]
    fn links_lead_somewhere() {
        let root = workspace();
        let mut all: Vec<PathBuf> = Vec::new();
        for folder in ["docs", "examples"] {
            documents(&root.join(folder), &mut all);
        }
        let entries = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
        all.extend(entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
        let (mut broken, mut count) = (Vec::new(), 0);
        for document in &all {
            let text = fs::read_to_string(document).unwrap();
            for target in links(&text) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                count += 1;
                let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
                let path = if path.is_empty() {
                    document.clone()
                } else {
                    plain(&document.with_file_name("").join(path))
                };
                let is_there = path.exists();
                let is_named = anchor.is_empty()
                    || is_there && anchors(&fs::read_to_string(&path).unwrap()).contains(anchor);
                if !is_there || !is_named {
                    broken.push(format!("{}: {target}", document.strip_prefix(&root).unwrap().display()));
                }
            }
        }
        assert!(count > 300, "{count} links");
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }

    #[test]
    fn links_and_anchors_are_found() {
        let text =
            "# A *b*: c-d\n[x](y.md#z) `[no](a)`\n```\n# no\n[no](b)\n```\n![p](q.png)\n## E, `f`\n# E, f\n";
        assert_eq!(links(text), ["y.md#z", "q.png"]);
        assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), ["a-b-c-d", "e-f", "e-f-1"]);
        assert_eq!(plain(Path::new("/a/b/../c/./d")), Path::new("/a/c/d"));
    }
}
