//! A kept trace of `data/requests.c`, explained: the outputs are kept, too. `EVERYCALL_BLESS=1`
//! writes them anew. The trace was made with
//!
//! ```text
//! everycall record --waits --states --args 'handle(id, items)' --args 'sort_items(count)' \
//!     --trigger 'handle > 5ms' -o requests.ect -- ./requests
//! everycall embed --no-sources requests.ect
//! ```

use std::path::{Path, PathBuf};

use everycall_analysis::{Function, NameOptions, Opened, Selection, SymbolNames, TraceView, open, select};
use everycall_export::NameLength;
use everycall_timeline::Trace;
use everycall_why::{Cause, Chosen, Question, Style, Why, why};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn with_view<T>(path: &Path, with: impl FnOnce(&TraceView<'_>) -> T) -> T {
    let Opened { mut file, .. } = open(path).unwrap();
    select(&mut file, Selection::Recording).unwrap();
    let mut trace = Trace::open(&file).unwrap();
    let names = SymbolNames::new(&file, &trace, NameOptions::default());
    names.name_tasks(&mut trace);
    with(&TraceView::new(&trace, &names))
}

fn asked(question: &Question<'_>) -> Result<Why, String> {
    with_view(&data("requests.ect"), |view| why(view, Path::new("requests.ect"), question))
}

fn is_kept(name: &str, text: &str) {
    let path = data(name);
    if std::env::var_os("EVERYCALL_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, kept, "{name}: EVERYCALL_BLESS=1 writes it; docs/reference/why.md lists the keys");
}

const STYLE: Style = Style { width: Some(100), names: NameLength::Fitting };

#[test]
fn outputs_stay_as_they_are() {
    let slowest = asked(&Question::default()).unwrap();
    is_kept("waiting.txt", &slowest.text(&STYLE));
    is_kept("waiting.json", &format!("{:#}\n", slowest.json()));
    let is_sort = |function: &Function| function.name == "sort_items";
    let sorted = asked(&Question { function: Some(&is_sort), ..Question::default() }).unwrap();
    is_kept("quadratic.txt", &sorted.text(&STYLE));
    is_kept("quadratic.json", &format!("{:#}\n", sorted.json()));
}

#[test]
fn planted_causes_are_found() {
    let slowest = asked(&Question::default()).unwrap();
    assert_eq!((slowest.chosen, slowest.call.kept), (Chosen::SlowestKept, Some(1)));
    assert_eq!(slowest.steps.last().unwrap().parts[0].cause, Cause::Waiting);
    let holder = slowest.waits.calls[0].holder.as_ref().unwrap();
    assert_ne!(holder.tid, slowest.call.place.tid);
    let labels: Vec<&str> = slowest.waits.calls[0].labels.iter().map(|(name, _)| name.as_str()).collect();
    assert!(labels.contains(&"lock: cache_lock"), "{labels:?}");
    assert!(labels.iter().any(|label| label.ends_with("called by refill")), "{labels:?}");

    let is_sort = |function: &Function| function.name == "sort_items";
    let sorted = asked(&Question { function: Some(&is_sort), ..Question::default() }).unwrap();
    let part = &sorted.steps[0].parts[0];
    assert_eq!((part.cause, part.call_calls), (Cause::MoreCalls, 60 * 59 / 2));
    assert_eq!((sorted.steps.len(), part.median_calls), (1, Some(28.0)));
    let value = sorted.claims.iter().find(|claim| claim.kind == "value").unwrap();
    assert!(value.text.starts_with("with count = 60, the largest value of 2: 2 calls"), "{}", value.text);
}

#[test]
fn calls_are_chosen_by_number_moment_and_name() {
    let by_number = asked(&Question { kept: Some(1), ..Question::default() }).unwrap();
    let start_ns = by_number.call.place.start_ns;
    let by_moment = asked(&Question { start_ns: Some(start_ns), ..Question::default() }).unwrap();
    assert_eq!(by_number.call, by_moment.call);
    for (question, words) in [
        (Question { kept: Some(2), ..Question::default() }, "have numbers from 1 to 1"),
        (Question { start_ns: Some(1), ..Question::default() }, "no such call began then"),
        (Question { function: Some(&|_| false), ..Question::default() }, "none of its calls"),
    ] {
        let error = asked(&question).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

/// Traces of every version, also those with losses, give an answer or a sentence.
#[test]
fn losses_are_said() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../reading/timeline/tests/golden");
    let mut explained = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "ect") {
            continue;
        }
        with_view(&path, |view| match why(view, &path, &Question::default()) {
            Ok(why) => {
                explained += 1;
                let lost = view.trace().threads().iter().any(|thread| thread.is_cut);
                let is_said = |what: &str| why.missing.iter().any(|missing| missing.what == what);
                assert_eq!(lost, is_said("threads_beginning_overwritten"), "{}", path.display());
                assert_eq!(why.call.is_before_tail, is_said("tail_call"), "{}", path.display());
                let duration = why.claims.iter().find(|claim| claim.kind == "duration").unwrap();
                assert!(!lost || !duration.doubts.is_empty(), "{}", path.display());
                assert!(!why.text(&STYLE).is_empty() && why.json().is_object());
            }
            Err(sentence) => assert!(!sentence.is_empty()),
        });
    }
    assert!(explained >= 10, "{explained}");
}
