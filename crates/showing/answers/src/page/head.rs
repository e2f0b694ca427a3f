//! The part of a page's data that is JSON, as far as calls are concerned.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;

use crate::{Answered, LabelValue};

/// The first bytes of the data.
pub const BEGIN: &[u8; 4] = b"EVL2";

/// The JSON.
#[derive(Deserialize)]
pub(super) struct Head {
    pub trace: TraceHead,
    pub functions: Vec<FunctionHead>,
    /// Functions and kinds, by place.
    pub places: Vec<(u32, u8)>,
    /// Tracks with calls, and how many each has.
    pub order: Vec<u32>,
    pub counts: Vec<u64>,
    /// Function, track and calls, as counted beside the events.
    #[serde(default)]
    pub all_calls: Vec<(u32, Option<u32>, u64)>,
    /// Track, begin, depth, name and value.
    #[serde(default)]
    labels: Vec<(u32, u64, u32, String, Value)>,
    /// By track: begin, end, state, the thread that woke it, and the system call in which it waited.
    #[serde(default)]
    pub states: BTreeMap<u32, Vec<Vec<Value>>>,
    #[serde(default)]
    samples: Vec<SamplesHead>,
}

/// Sampled stacks in one call, at one place.
#[derive(Deserialize)]
struct SamplesHead {
    track: u32,
    at: u64,
    /// Calls around it.
    depth: u64,
    text: String,
    count: u64,
}

#[derive(Deserialize)]
pub(super) struct TraceHead {
    pub processes: Vec<ProcessHead>,
}

#[derive(Deserialize)]
pub(super) struct ProcessHead {
    pub name: Option<String>,
    pub tracks: Vec<TrackHead>,
}

#[derive(Deserialize)]
pub(super) struct TrackHead {
    pub id: u32,
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    pub kind: String,
}

#[derive(Deserialize)]
pub(super) struct FunctionHead {
    pub name: String,
    pub full: String,
    pub module: String,
    pub file: Option<String>,
    pub line: Option<u32>,
}

impl Head {
    /// The function at a place.
    pub fn function_at(&self, place: u64) -> Option<u32> {
        self.places.get(usize::try_from(place).ok()?).map(|(function, _)| *function)
    }

    /// The samples in the own time of a call: how many at each place, most first.
    pub fn samples_of(&self, track: u32, depth: u32, (from, to): (u64, u64)) -> Vec<(String, u64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for run in &self.samples {
            if run.track == track && run.depth == u64::from(depth) + 1 && (from..to).contains(&run.at) {
                *sums.entry(&run.text).or_default() += run.count;
            }
        }
        let mut sums: Vec<_> = sums.into_iter().map(|(text, count)| (text.to_owned(), count)).collect();
        sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        sums
    }

    /// The labels and values of a call.
    pub fn labels_of(&self, track: u32, from: u64, depth: u32) -> Vec<(String, LabelValue)> {
        let its = self.labels.iter().filter(|label| (label.0, label.1, label.2) == (track, from, depth));
        let value = |value: &Value| match value {
            Value::String(text) => LabelValue::Text(text.clone()),
            value => LabelValue::Number(value.as_u64()),
        };
        its.map(|(.., name, of)| (name.clone(), value(of))).collect()
    }
}

/// The JSON, and where the columns are.
pub(super) fn read(bytes: &[u8]) -> Answered<(Head, Vec<Range<usize>>)> {
    let truncated = || "the page's data is truncated".to_owned();
    if bytes.get(..BEGIN.len()) != Some(BEGIN) {
        return Err("the page has no data of a trace".to_owned());
    }
    let mut pieces = Vec::new();
    let mut at = BEGIN.len();
    while at < bytes.len() {
        let start = at + size_of::<u32>();
        let length = bytes.get(at..start).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
        at = start.saturating_add(length.ok_or_else(truncated)? as usize);
        if at > bytes.len() {
            return Err(truncated());
        }
        pieces.push(start..at);
    }
    let head = pieces.first().and_then(|head| bytes.get(head.clone())).ok_or_else(truncated)?;
    let head =
        serde_json::from_slice(head).map_err(|error| format!("the page's data is damaged: {error}"))?;
    pieces.remove(0);
    Ok((head, pieces))
}
