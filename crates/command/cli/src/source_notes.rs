//! Messages of `export` about source files that it couldn't show as they were compiled.

use everycall_analysis::{SourceNote, SourceProblem};
use everycall_symbols::SourceRefusal;
use everycall_units::Several;

/// One sentence, with the option that helps.
pub fn sentence(note: &SourceNote) -> String {
    let files = Several(note.count, "source file", "source files");
    let which = if note.count == 1 { "" } else { "the first is " };
    let why = note.refusal.as_ref().map(|refusal| format!(": {}", reason(refusal))).unwrap_or_default();
    let is = if note.count == 1 { "is" } else { "are" };
    let what = match note.problem {
        SourceProblem::Missing => "not shown; use --map-source OLD=NEW to say where they are",
        SourceProblem::Withheld => {
            "left out; --source-folder FOLDER allows those of a folder, --any-source all"
        }
        SourceProblem::Newer => {
            "newer than the traced program; the text shown may differ from what was compiled"
        }
        SourceProblem::NotUtf8 => "not valid UTF-8; invalid bytes are shown as \u{fffd}",
    };
    format!("{files} ({which}{}{why}) {is} {what}", note.first)
}

fn reason(refusal: &SourceRefusal) -> String {
    match refusal {
        SourceRefusal::Unreadable(_, reason) => reason.clone(),
        SourceRefusal::Relative(_) => "its path is relative".to_owned(),
        SourceRefusal::Forbidden(_) => "it is in a kernel file system".to_owned(),
        SourceRefusal::Outside(_) => {
            "it is outside the folders of the compiler and the recorded program".to_owned()
        }
        SourceRefusal::NotCompiled(_) => "it is probably not the file that was compiled".to_owned(),
        SourceRefusal::NotSource(_) => {
            "it isn't called like a source file, or is in a hidden folder".to_owned()
        }
        SourceRefusal::TooLarge(_, size) => format!("it has {size} bytes"),
        SourceRefusal::NotText(_) => "it contains NUL bytes".to_owned(),
        SourceRefusal::LimitReached(_) => "the limit for all sources together is reached".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_names_its_first_file() {
        let note = |count| SourceNote {
            problem: SourceProblem::Missing,
            count,
            first: "a.c".to_owned(),
            refusal: Some(SourceRefusal::Unreadable("a.c".into(), "No such file".to_owned())),
        };
        assert_eq!(
            sentence(&note(3)),
            "3 source files (the first is a.c: No such file) are not shown; use --map-source OLD=NEW to say \
            where they are"
        );
        assert!(sentence(&note(1)).starts_with("1 source file (a.c: No such file) is not shown;"));
    }
}
