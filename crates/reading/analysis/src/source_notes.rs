//! Source files that couldn't be shown as they were compiled.

use std::time::{Duration, SystemTime};

use everycall_symbols::{SourceRefusal, SourceText};

/// On some file systems, copying a program rounds times to seconds.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Why a source file is not shown, or may not be what was compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceProblem {
    /// It doesn't exist, or can't be read as text.
    Missing,
    /// It lies outside of the allowed folders, or is not the file that was compiled.
    Withheld,
    /// It was changed after the program was built.
    Newer,
    /// It is not UTF-8; invalid bytes are replaced by U+FFFD.
    NotUtf8,
}

/// Source files with one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNote {
    /// Their problem.
    pub problem: SourceProblem,
    /// How many there are.
    pub count: u64,
    /// Path of the first one.
    pub first: String,
    /// Why the first one was refused, if it was.
    pub refusal: Option<SourceRefusal>,
}

/// The problems found so far.
#[derive(Debug, Default)]
pub(crate) struct SourceNotes(Vec<SourceNote>);

impl SourceNotes {
    /// Adds a file that is shown as `name`. `built` is the latest time by which the file built from
    /// it existed, if known.
    pub(crate) fn add(
        &mut self,
        name: &str,
        found: &Result<SourceText, SourceRefusal>,
        built: Option<SystemTime>,
    ) {
        match found {
            Ok(source) => {
                self.add_embedded(name, is_newer(source, built), source.is_lossy);
            }
            Err(
                refusal @ (SourceRefusal::Outside(_)
                | SourceRefusal::NotCompiled(_)
                | SourceRefusal::NotSource(_)),
            ) => {
                self.count(SourceProblem::Withheld, name, Some(refusal));
            }
            Err(refusal) => self.count(SourceProblem::Missing, name, Some(refusal)),
        }
    }

    /// Adds a file that the trace holds.
    pub(crate) fn add_embedded(&mut self, name: &str, is_newer: bool, is_lossy: bool) {
        if is_newer {
            self.count(SourceProblem::Newer, name, None);
        }
        if is_lossy {
            self.count(SourceProblem::NotUtf8, name, None);
        }
    }

    /// One note for each kind of problem found.
    pub(crate) fn all(&self) -> Vec<SourceNote> {
        let mut notes = self.0.clone();
        notes.sort_by_key(|note| note.problem as u8);
        notes
    }

    fn count(&mut self, problem: SourceProblem, name: &str, refusal: Option<&SourceRefusal>) {
        match self.0.iter_mut().find(|note| note.problem == problem) {
            Some(note) => note.count += 1,
            None => self.0.push(SourceNote {
                problem,
                count: 1,
                first: name.to_owned(),
                refusal: refusal.cloned(),
            }),
        }
    }
}

/// Whether a source was changed after `built`.
pub(crate) fn is_newer(source: &SourceText, built: Option<SystemTime>) -> bool {
    source
        .modified
        .zip(built)
        .is_some_and(|(modified, built)| modified.duration_since(built).is_ok_and(|later| later > TOLERANCE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn problems_are_counted_with_their_first_file() {
        let mut notes = SourceNotes::default();
        assert!(notes.all().is_empty());
        notes.add("/x.c", &Err(SourceRefusal::Outside("/x.c".into())), None);
        let refusal = SourceRefusal::Unreadable(PathBuf::from("a.c"), "No such file".to_owned());
        for name in ["a.c", "b.c"] {
            notes.add(name, &Err(refusal.clone()), None);
        }
        notes.add("c.c", &Err(SourceRefusal::NotText("c.c".into())), None);
        let found = notes.all();
        let [missing, withheld] = &found[..] else { panic!("{found:?}") };
        assert_eq!((missing.problem, missing.count), (SourceProblem::Missing, 3));
        assert_eq!((&*missing.first, missing.refusal.as_ref()), ("a.c", Some(&refusal)));
        assert_eq!((withheld.problem, withheld.count), (SourceProblem::Withheld, 1));
    }
}
