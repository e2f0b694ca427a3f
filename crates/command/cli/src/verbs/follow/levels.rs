//! How much is shown of each function.

use std::collections::HashMap;

use everycall_control::{Module, resolve};
use everycall_patterns::{FunctionTable, Selection};
use everycall_timeline::{Location, Trace};

use crate::arguments::LevelRule;
use crate::exit_code;
use crate::failure::Failure;
use crate::rules::{add, all_match};

/// Rules in their order; the last one that matches a function counts. A function's attribute
/// (`EVERYCALL_LEVEL_0` and so on in everycall.h) precedes rules without a named level.
#[derive(Debug)]
pub struct Levels {
    rules: Vec<LevelRule>,
    /// By rule: what it matches.
    matched: Vec<Vec<Module>>,
    /// By level: the functions with its attribute.
    attributed: Vec<Vec<Module>>,
    known: HashMap<Location, u8>,
    /// How many functions are recorded.
    pub functions: u64,
}

impl Levels {
    /// Evaluates these rules. The functions that must be recorded for them become a site set.
    /// `names_frames`: frames by id are named later, so that any rule may match some.
    pub fn new(
        rules: Vec<LevelRule>,
        tables: &mut [FunctionTable],
        names_frames: bool,
    ) -> Result<(Levels, Vec<u8>), Failure> {
        let mut matched = Vec::new();
        for rule in &rules {
            let mut selection = Selection::all_or_none(false);
            let added = add(&mut selection, std::slice::from_ref(&rule.pattern), true)?;
            let (set, outcome) = resolve(&selection, tables);
            if !names_frames {
                all_match(&selection, &added, &outcome, tables)?;
            }
            matched.push(set.modules);
        }
        let attributed = attributed(tables)?;
        let mut levels = Levels { rules, matched, attributed, known: HashMap::new(), functions: 0 };
        let set = levels.recorded(tables)?;
        Ok((levels, set))
    }

    /// Evaluates the rules in more modules. Rules without matches stay as they are.
    pub fn look_again(&mut self, tables: &mut [FunctionTable]) -> Result<Vec<u8>, Failure> {
        self.known.clear();
        for (rule, matched) in self.rules.iter().zip(&mut self.matched) {
            let mut selection = Selection::all_or_none(false);
            add(&mut selection, std::slice::from_ref(&rule.pattern), true)?;
            *matched = resolve(&selection, tables).0.modules;
        }
        self.attributed = attributed(tables)?;
        self.recorded(tables)
    }

    /// The rules with one more.
    pub fn with(&self, rule: LevelRule) -> Vec<LevelRule> {
        // It replaces an earlier rule with the same pattern.
        let others = self.rules.iter().filter(|other| other.pattern != rule.pattern).cloned();
        others.chain([rule.clone()]).collect()
    }

    fn recorded(&mut self, tables: &mut [FunctionTable]) -> Result<Vec<u8>, Failure> {
        let mut selection = Selection::all_or_none(false);
        let (named, plain): (Vec<_>, Vec<_>) = self.rules.iter().partition(|rule| rule.is_named);
        for rule in plain {
            add(&mut selection, std::slice::from_ref(&rule.pattern), true)?;
        }
        let hidden = self.attributed.first().into_iter().flatten();
        if hidden.into_iter().any(|module| !module.ranges.is_empty()) {
            add(&mut selection, &[section(0)], false)?;
        }
        for rule in named {
            add(&mut selection, std::slice::from_ref(&rule.pattern), rule.level > 0)?;
        }
        let (set, outcome) = resolve(&selection, tables);
        self.functions = outcome.on.functions;
        set.bytes().map_err(|error| Failure::new(exit_code::USAGE, error))
    }

    /// The level of the function at a location; 0 if no rule matches it.
    pub fn level(&mut self, trace: &Trace<'_>, location: Location) -> u8 {
        if let Some(level) = self.known.get(&location) {
            return *level;
        }
        let build_id = location.module_index().and_then(|index| trace.modules().get(index));
        let build_id = build_id.map(everycall_reader::Module::build_id_in_sets).unwrap_or_default();
        let at = location.image_address;
        let has = |module: &Module| {
            module.build_id == build_id && {
                let behind = module.ranges.partition_point(|(start, _)| *start <= at);
                behind
                    .checked_sub(1)
                    .and_then(|index| module.ranges.get(index))
                    .is_some_and(|(_, end)| at < *end)
            }
        };
        let matches = |modules: &[Module]| modules.iter().any(has);
        let rules = self.rules.iter().zip(&self.matched).rev();
        let rule = |is_named: bool| {
            rules.clone().find(|(rule, modules)| rule.is_named == is_named && matches(modules))
        };
        let by_attribute = || {
            let levels = (0..).zip(&self.attributed);
            levels.into_iter().find(|(_, modules)| matches(modules)).map(|(level, _)| level)
        };
        let level = match (rule(true), rule(false)) {
            (Some((rule, _)), _) => rule.level,
            (None, Some((rule, _))) => by_attribute().unwrap_or(rule.level),
            (None, None) => 0,
        };
        self.known.insert(location, level);
        level
    }
}

/// The pattern of functions with a level's attribute.
fn section(level: u8) -> String {
    format!("section:everycall_level_{level}")
}

/// By level: the functions with its attribute.
fn attributed(tables: &mut [FunctionTable]) -> Result<Vec<Vec<Module>>, Failure> {
    let of = |level| {
        let mut selection = Selection::all_or_none(false);
        add(&mut selection, &[section(level)], true)?;
        Ok(resolve(&selection, tables).0.modules)
    };
    (0..=LevelRule::MAX).map(of).collect()
}
