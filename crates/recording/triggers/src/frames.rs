//! Frames by id that triggers name. The traced process compares their names itself; here they are
//! compared for the report, and for triggers that scan events.

use std::collections::HashMap;

use everycall_format::frame::{FIRST, NamedFrame, Records, STEP, is_frame};
use everycall_format::frame_pattern::{PATTERN_MAX, matches};
use everycall_format::trigger::{FrameRule, NEVER};
use everycall_recorder::TriggeredProcess;

use crate::rate::Rate;
use crate::trigger::{Condition, Trigger};

/// The pattern for names of frames; empty if the trigger isn't about functions.
pub(crate) fn frame_pattern(trigger: &Trigger) -> String {
    // Frames by id have no arguments that could be read.
    let pattern = trigger.pattern().filter(|_| !trigger.has_conditions());
    let text = pattern.map(ToString::to_string).unwrap_or_default();
    if text.len() <= PATTERN_MAX { text } else { String::new() }
}

/// The rules for frames of these triggers, whose patterns are `patterns`.
pub(crate) fn rules<'p>(triggers: &[Trigger], patterns: &'p [String], rate: &Rate) -> Vec<FrameRule<'p>> {
    let rule = |(trigger, pattern): (&Trigger, &'p String)| FrameRule {
        pattern: pattern.as_bytes(),
        threshold: match trigger.condition {
            Condition::Longer(_, ns) => rate.ticks(ns).min(NEVER - 1),
            _ => NEVER,
        },
        flags: trigger.site_flags(),
    };
    triggers.iter().zip(patterns).map(rule).collect()
}

/// The frames of one process that triggers name.
#[derive(Debug, Default)]
pub(crate) struct NamedFrames {
    /// Bytes of names that were read.
    read: u64,
    /// By id, a bit for each trigger.
    rules: HashMap<u32, u32>,
}

impl NamedFrames {
    /// Compares the names that the process has added since the last look. Calls `found` with the
    /// trigger, and name and file, of each match.
    pub fn look(
        &mut self,
        process: &TriggeredProcess,
        patterns: &[String],
        mut found: impl FnMut(usize, &[u8], &[u8]),
    ) {
        let records = process.arena.frame_names_since(self.read);
        let mut records = Records::of(&records);
        for NamedFrame { id, name, file, .. } in &mut records {
            let mut rules = 0_u32;
            for (rule, pattern) in patterns.iter().enumerate() {
                if matches(pattern.as_bytes(), name, file) {
                    rules |= 1 << rule;
                    found(rule, name, file);
                }
            }
            match rules {
                0 => drop(self.rules.remove(&id)),
                rules => drop(self.rules.insert(id, rules)),
            }
        }
        self.read += records.read() as u64;
    }

    /// The triggers that name the frame with this code offset.
    pub fn rules_at(&self, code: u32) -> impl Iterator<Item = u32> + use<> {
        let id = is_frame(code).then(|| (code - FIRST) / STEP);
        let rules = id.and_then(|id| self.rules.get(&id)).copied().unwrap_or(0);
        (0..u32::BITS).filter(move |rule| rules & 1 << rule != 0)
    }

    /// Whether any is named.
    pub fn are_any(&self) -> bool {
        !self.rules.is_empty()
    }
}
