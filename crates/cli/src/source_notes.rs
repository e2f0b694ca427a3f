//! What `export` says of source files that it couldn't show as the program was built from them.

use std::time::{Duration, SystemTime};

use everycall_symbols::{SourceRefusal, SourceText};
use everycall_units::Several;

/// Copying a program keeps times to the second on some file systems.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Files of one kind: how many, and the first one.
#[derive(Debug, Default)]
struct Kind {
    count: u64,
    first: String,
}

impl Kind {
    fn add(&mut self, first: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = first();
        }
        self.count += 1;
    }

    /// `2 source files`, and which one is the first.
    fn named(&self) -> String {
        let files = Several(self.count, "source file", "source files");
        let which = if self.count == 1 { "" } else { "the first is " };
        format!("{files} ({which}{})", self.first)
    }
}

/// What was noticed.
#[derive(Debug, Default)]
pub struct SourceNotes {
    missing: Kind,
    /// Not what was compiled, or elsewhere.
    withheld: Kind,
    newer: Kind,
    lossy: Kind,
}

impl SourceNotes {
    /// A file that is shown as `name`; `built`: when what was built from it was there at the latest, where that is known.
    pub fn add(&mut self, name: &str, found: &Result<SourceText, SourceRefusal>, built: Option<SystemTime>) {
        match found {
            Ok(source) => {
                let is_newer = source.modified.zip(built).is_some_and(|(modified, built)| {
                    modified.duration_since(built).is_ok_and(|later| later > TOLERANCE)
                });
                if is_newer {
                    self.newer.add(|| name.to_owned());
                }
                if source.is_lossy {
                    self.lossy.add(|| name.to_owned());
                }
            }
            Err(refusal @ (SourceRefusal::Outside(_) | SourceRefusal::NotCompiled(_))) => {
                self.withheld.add(|| format!("{name}: {}", reason(refusal)));
            }
            Err(refusal) => self.missing.add(|| format!("{name}: {}", reason(refusal))),
        }
    }

    /// A sentence for each kind that there is.
    pub fn sentences(&self) -> Vec<String> {
        let SourceNotes { missing, withheld, newer, lossy } = self;
        let is = |kind: &Kind| if kind.count == 1 { "is" } else { "are" };
        let kinds = [
            (missing, format!("{} not shown; --map-source OLD=NEW says where sources lie", is(missing))),
            (
                withheld,
                format!(
                    "{} left out; --source-folder FOLDER allows those of a folder, --any-source all",
                    is(withheld)
                ),
            ),
            (
                newer,
                format!(
                    "{} newer than the program that was traced; what is shown may not be what it was built from",
                    is(newer)
                ),
            ),
            (lossy, format!("{} no UTF-8; what isn't is shown as \u{fffd}", is(lossy))),
        ];
        let there = kinds.iter().filter(|(kind, _)| kind.count > 0);
        there.map(|(kind, what)| format!("{} {what}", kind.named())).collect()
    }
}

fn reason(refusal: &SourceRefusal) -> String {
    match refusal {
        SourceRefusal::Unreadable(_, reason) => reason.clone(),
        SourceRefusal::Relative(_) => "its path is relative".to_owned(),
        SourceRefusal::Forbidden(_) => "it lies in a file system of the kernel's".to_owned(),
        SourceRefusal::Outside(_) => "it lies outside of the folders that sources are taken from".to_owned(),
        SourceRefusal::NotCompiled(_) => {
            "it isn't the file that was compiled, as far as can be told".to_owned()
        }
        SourceRefusal::TooLarge(_, size) => format!("it has {size} bytes"),
        SourceRefusal::NotText(_) => "it holds NUL bytes, so it is no text that can be shown".to_owned(),
        SourceRefusal::LimitReached(_) => "there is too much text before it".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn kinds_are_told_with_their_first_file() {
        let mut notes = SourceNotes::default();
        assert!(notes.sentences().is_empty());
        for name in ["a.c", "b.c"] {
            let refusal = SourceRefusal::Unreadable(PathBuf::from(name), "No such file".to_owned());
            notes.add(name, &Err(refusal), None);
        }
        notes.add("c.c", &Err(SourceRefusal::NotText("c.c".into())), None);
        let sentences = notes.sentences();
        assert_eq!(
            sentences,
            [
                "3 source files (the first is a.c: No such file) are not shown; --map-source OLD=NEW says where sources lie"
            ]
        );
    }
}
