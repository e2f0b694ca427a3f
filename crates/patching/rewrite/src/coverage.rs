//! How many functions can get hooks, and why others can't.

use std::collections::BTreeMap;

use crate::choose::Choice;
use crate::flow::Flow;
use crate::refusal::Refusal;
use crate::tactic::Tactic;

/// Counts of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// All functions; their parts aren't counted.
    pub functions: u64,
    /// Of functions that can be hooked.
    pub exits: u64,
    /// Functions by the tactic of their worst entry or exit.
    pub by_tactic: BTreeMap<Tactic, u64>,
    /// Functions that can't be hooked.
    pub left_out: BTreeMap<Refusal, u64>,
    /// Parts of functions that aren't known.
    pub lost_parts: u64,
}

impl Coverage {
    pub(crate) fn of(flow: &Flow<'_>, choices: &[Choice]) -> Self {
        let mut all = Self {
            functions: flow.units.len() as u64,
            lost_parts: flow.lost_parts as u64,
            ..Self::default()
        };
        for (unit, choice) in flow.units.iter().zip(choices) {
            match choice.outcome {
                Ok(tactic) => {
                    *all.by_tactic.entry(tactic).or_default() += 1;
                    all.exits += unit.exits.len() as u64;
                }
                Err(refusal) => *all.left_out.entry(refusal).or_default() += 1,
            }
        }
        all
    }

    /// Functions that can be hooked.
    pub fn hooked(&self) -> u64 {
        self.by_tactic.values().sum()
    }

    /// Adds the counts of another file.
    pub fn add(&mut self, other: &Self) {
        self.functions += other.functions;
        self.exits += other.exits;
        self.lost_parts += other.lost_parts;
        for (&tactic, count) in &other.by_tactic {
            *self.by_tactic.entry(tactic).or_default() += count;
        }
        for (&refusal, count) in &other.left_out {
            *self.left_out.entry(refusal).or_default() += count;
        }
    }
}
