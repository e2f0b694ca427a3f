//! Sampled stacks within own times: a line below each function of the table, and a list
//! in JSON.

use everycall_analysis::{Key, OwnSamples, Profile, Row, SamplesIn, shares};
use serde_json::{Value, json};

use crate::output::clean;

/// The samples in a row's own time, most first.
fn of<'s>(samples: &'s OwnSamples, profile: &Profile, row: &Row<'_>) -> Vec<(&'s SamplesIn, u64)> {
    let Key::Function(number) = row.key else { return Vec::new() };
    profile.functions().get(*number).map_or_else(Vec::new, |function| samples.of(&function.identity))
}

/// A row's line: `62 % memcpy, 20 % page faults (of 812 samples)`; `None` without samples.
pub fn line(samples: &OwnSamples, profile: &Profile, row: &Row<'_>) -> Option<String> {
    let Key::Function(number) = row.key else { return None };
    let mut labels = samples.labels(&profile.functions().get(*number)?.identity);
    labels.iter_mut().for_each(|(label, _)| *label = clean(label));
    shares(&labels)
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
