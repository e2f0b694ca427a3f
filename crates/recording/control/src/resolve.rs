//! Applies a selection to files.

use everycall_patterns::{FunctionTable, Matched, Rule, Selection};

use crate::set::{Module, SelectionSet};

/// The result of a selection, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Counts of what is recorded.
    pub on: Matched,
    /// Counts of all functions and sites.
    pub all: Matched,
    /// Counts of each rule's matches.
    pub matched: Vec<Matched>,
}

/// Finds what a selection selects in these files.
#[must_use]
pub fn resolve(selection: &Selection, tables: &mut [FunctionTable]) -> (SelectionSet, Outcome) {
    let rules = selection.rules();
    let mut outcome = Outcome { matched: vec![Matched::default(); rules.len()], ..Outcome::default() };
    let mut modules = Vec::new();
    for table in tables {
        let resolved = selection.resolve(table);
        outcome.on += resolved.on;
        outcome.all += resolved.all;
        outcome.matched.iter_mut().zip(resolved.matched).for_each(|(sum, matched)| *sum += matched);
        modules.push(Module {
            path: table.path().to_owned(),
            build_id: table.build_id().to_vec(),
            ranges: resolved.ranges,
        });
    }
    let rules = rules.iter().map(ToString::to_string).collect();
    (SelectionSet { rules, others: selection.others(), modules }, outcome)
}

/// The selection that a set was made by. Rules that aren't understood are left out: another version
/// may have written them.
#[must_use]
pub fn selection_of(set: &SelectionSet) -> Selection {
    let mut selection = Selection::all_or_none(set.others);
    for rule in set.rules.iter().filter_map(|rule| Rule::parse(rule, true).ok()) {
        selection.push(rule);
    }
    selection
}

/// The selection of a process now, as it told: whether it records at all, and its base selection. A set
/// of functions without rules counts as all functions.
#[must_use]
pub fn selection_now(is_on: bool, base: &[u8]) -> Selection {
    match SelectionSet::rules_of(base) {
        _ if !is_on => Selection::all_or_none(false),
        Some(set) => selection_of(&set),
        None => Selection::all_or_none(true),
    }
}
