//! Things that the trace lacks, and which claims could be wrong because of it.

use everycall_analysis::counters::counted_doubts;
use everycall_analysis::{KeptCall, Notes, TraceView};
use everycall_timeline::StateTimes;
use everycall_units::{Count, Duration, Several};

use crate::answer::{Concern, Missing, OneCall, Step};
use crate::inside::Inside;

/// Everything that is asked.
pub(crate) struct Known<'k> {
    pub(crate) notes: &'k Notes,
    pub(crate) call: &'k OneCall,
    pub(crate) kept: Option<&'k KeptCall>,
    pub(crate) inside: &'k Inside,
    pub(crate) steps: &'k [Step],
    pub(crate) states: Option<StateTimes>,
    /// How many calls of its function triggers kept.
    pub(crate) kept_of_function: u64,
}

/// Lists what is missing.
pub(crate) fn missing(view: &TraceView<'_>, known: &Known<'_>) -> Vec<Missing> {
    let mut all = Vec::new();
    let mut add = |what, count: Option<u64>, concern, sentence: String| {
        if count != Some(0) {
            all.push(Missing { what, count, sentence, concern, is_doubt: true });
        }
    };
    let (notes, inside) = (known.notes, known.inside);
    // First those of the call itself: its time may be another one.
    add(
        "lost_in_call",
        Some(inside.lost),
        Concern::Call,
        format!(
            "{} missing in this call: calls among them aren't shown",
            Several(inside.lost, "event is", "events are")
        ),
    );
    add(
        "losses_in_call",
        Some(inside.losses),
        Concern::Call,
        format!(
            "events are missing at {} in this call; their number is unknown",
            Several(inside.losses, "place", "places")
        ),
    );
    add(
        "gaps_in_call",
        Some(inside.gaps),
        Concern::Call,
        format!("recording was off {} in this call", Several(inside.gaps, "time", "times")),
    );
    let overwritten = known.kept.map_or(0, |kept| kept.missing);
    add(
        "overwritten_in_call",
        Some(overwritten),
        Concern::Call,
        format!(
            "{} since this call's entry were overwritten before it was kept",
            Several(overwritten, "event", "events")
        ),
    );
    if known.call.is_uncertain {
        let sentence =
            "this call's entry or exit wasn't recorded: it may have taken longer, or be several calls";
        add("call_cut", None, Concern::All, sentence.to_owned());
    }
    if known.call.is_at_most {
        let sentence =
            "this call ended in a tail call of what isn't traced: its time is the longest possible";
        add("call_at_most", None, Concern::All, sentence.to_owned());
    }
    if let Some((low, high)) = known.call.bounds {
        let (low, high) = (Duration { ns: low }, Duration { ns: high });
        let sentence = format!(
            "not every event has a time of its own: this call took {low} at least and {high} at most"
        );
        add("call_bounds", None, Concern::All, sentence);
    }
    // Then those of the whole trace: the median may be another one.
    add(
        "lost_events",
        Some(notes.lost),
        Concern::Comparison,
        format!(
            "{} missing in the trace: calls among them aren't counted",
            Several(notes.lost, "event is", "events are")
        ),
    );
    add(
        "losses_not_counted",
        Some(notes.losses_uncounted),
        Concern::Comparison,
        format!(
            "events are missing at {} of the trace; their number is unknown",
            Several(notes.losses_uncounted, "place", "places")
        ),
    );
    add(
        "threads_beginning_overwritten",
        Some(notes.beginning_overwritten),
        Concern::Comparison,
        format!(
            "the beginning of {} was overwritten: only newer calls are compared",
            Several(notes.beginning_overwritten, "thread", "threads")
        ),
    );
    add(
        "gaps",
        Some(notes.gaps),
        Concern::Comparison,
        format!("recording was off {} in the trace", Several(notes.gaps, "time", "times")),
    );
    add(
        "dropped_short_calls",
        Some(notes.dropped_short),
        Concern::Call,
        format!(
            "{} dropped while this was recorded: their time is own time of their callers",
            Several(notes.dropped_short, "short call was", "short calls were")
        ),
    );
    add(
        "calls_too_deep",
        Some(notes.too_deep),
        Concern::Call,
        format!("{} beyond the depth limit", Several(notes.too_deep, "call is", "calls are")),
    );
    for doubt in counted_doubts(view.trace()) {
        add("counted_by_the_runtime", None, Concern::All, doubt);
    }
    for warning in view.trace().warnings() {
        add("damage", None, Concern::All, warning.to_string());
    }
    let first = known.steps.first();
    let timed = first.map_or(0, |step| step.timed_calls);
    if timed > 1 && known.kept_of_function >= timed {
        let sentence = format!(
            "all {} calls of this function in the trace were kept because they were slow: the median is one of slow calls",
            Count(timed)
        );
        add("only_slow_calls", Some(timed), Concern::Comparison, sentence);
    }
    if let Some(unknown) = known.states.map(|states| states.unknown).filter(|unknown| *unknown > 0) {
        let sentence =
            format!("for {} of this call, nothing is known of its thread's state", Duration { ns: unknown });
        add("states_unknown", Some(unknown), Concern::Waiting, sentence);
    }
    // Things that nobody asked for when it was recorded.
    let mut not_recorded = |what, concern, sentence: &str| {
        all.push(Missing { what, count: None, sentence: sentence.to_owned(), concern, is_doubt: false });
    };
    if first.is_some_and(|step| step.median.is_none()) {
        let sentence =
            "no other call of this function has a known duration, so there is nothing to compare with";
        not_recorded("median", Concern::Comparison, sentence);
    }
    if known.call.is_before_tail {
        let sentence = "this call ended in a tail call, and its time counts until that; --tails counts on";
        not_recorded("tail_call", Concern::All, sentence);
    }
    if known.states.is_none() {
        let sentence = "thread states weren't recorded (record --states): own time may be work or waiting";
        not_recorded("states", Concern::Waiting, sentence);
    }
    if view.trace().values().count() == 0 {
        let sentence = "no arguments were recorded (record --args 'FUNCTION(ARGUMENT)')";
        not_recorded("arguments", Concern::Values, sentence);
    }
    all
}
