//! Sampled stacks within own times: a line below each function of the table, and a list
//! in JSON.

use everycall_analysis::{Key, OwnSamples, Profile, Row, SamplesIn};
use everycall_units::{Count, Several};
use serde_json::{Value, json};

use crate::output::clean;

/// Most places in a line of text.
const SHOWN: usize = 5;

/// The samples in a row's own time, most first.
fn of<'s>(samples: &'s OwnSamples, profile: &Profile, row: &Row<'_>) -> Vec<(&'s SamplesIn, u64)> {
    let Key::Function(number) = row.key else { return Vec::new() };
    profile.functions().get(*number).map_or_else(Vec::new, |function| samples.of(&function.identity))
}

/// A row's line: `62 % memcpy, 20 % page faults (of 812 samples)`; `None` without samples.
pub fn line(samples: &OwnSamples, profile: &Profile, row: &Row<'_>) -> Option<String> {
    let Key::Function(number) = row.key else { return None };
    let module = &profile.functions().get(*number)?.identity.module;
    // By name: how the place was reached isn't shown here.
    let mut places: Vec<(String, u64)> = Vec::new();
    let mut all = 0;
    for (place, count) in of(samples, profile, row) {
        let shown = shown(place, module);
        all += count;
        match places.iter_mut().find(|(known, _)| *known == shown) {
            Some((_, sum)) => *sum += count,
            None => places.push((shown, count)),
        }
    }
    if all == 0 {
        return None;
    }
    places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let share = |count: u64| match 100.0 * count as f64 / all as f64 {
        share if share < 0.95 => "<1 %".to_owned(),
        share => format!("{share:.0} %"),
    };
    let mut parts: Vec<String> =
        places.iter().take(SHOWN).map(|(shown, count)| format!("{} {shown}", share(*count))).collect();
    if let Some(others) = places.len().checked_sub(SHOWN).filter(|others| *others > 0) {
        parts.push(format!("{} more", Count(others as u64)));
    }
    Some(format!("{} (of {})", parts.join(", "), Several(all, "sample", "samples")))
}

/// A place as a line shows it, in a function of this module.
fn shown(place: &SamplesIn, module: &str) -> String {
    let name = clean(&place.name);
    match place {
        SamplesIn { is_itself: true, .. } => "itself".to_owned(),
        SamplesIn { is_inlined: true, .. } => format!("{name} (inlined)"),
        SamplesIn { module: other, .. } if other.is_empty() || other == module || other == "kernel" => name,
        SamplesIn { module: other, .. } => format!("{name} ({})", clean(other)),
    }
}

/// Adds the samples to the objects of rows.
pub fn add(objects: &mut [Value], samples: &OwnSamples, profile: &Profile, rows: &[Row<'_>]) {
    for (object, row) in objects.iter_mut().zip(rows) {
        let places = of(samples, profile, row);
        let list = places.iter().map(|(place, count)| {
            json!({
                "samples": count,
                "name": place.name,
                "module": place.module,
                "called": place.called,
                "itself": place.is_itself,
                "inlined": place.is_inlined,
            })
        });
        object["own_samples"] = list.collect();
    }
}
