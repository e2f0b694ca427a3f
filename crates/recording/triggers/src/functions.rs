//! The functions of a module that triggers name, as the runtime receives them: ranges of code
//! offsets with thresholds.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use everycall_format::arena::{ModuleEntry, module_flags};
use everycall_format::trigger::{FrameRule, NEVER, TriggerSite};
use everycall_recorder::FindSites;
use everycall_recorder::triggers::Thrown;
use everycall_symbols::{FunctionEntry, ModuleIdentity, ModuleSymbols, SymbolOptions};

use crate::conditions::{Numbers, numbers};
use crate::frames::{self, frame_pattern};
use crate::keeper::Outcome;
use crate::rate::Rate;
use crate::thrown::Types;
use crate::trigger::{Condition, Trigger};
use everycall_patterns::Names;

/// A function of a module, by image addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub start: u64,
    pub end: u64,
    pub rule: u32,
}

/// The identity of a module: path and build id.
type Key = (Vec<u8>, Vec<u8>);

/// Code offsets that hooks in trampolines report for functions that were built without hooks, from
/// the module's region on: the first one, and the one behind the last. By the number of the
/// module's trampolines and the function's image address. Whoever puts trampolines into a process
/// adds them before.
#[derive(Clone, Debug, Default)]
pub struct Trampolines(Arc<Mutex<HashMap<u32, ByFunction>>>);

/// First code offset and the one behind the last, by a function's image address.
type ByFunction = HashMap<u64, (u32, u32)>;

impl Trampolines {
    /// Adds a module's.
    pub fn add(&self, number: u32, functions: ByFunction) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, functions);
    }

    fn of(&self, number: u32, function: u64) -> Option<(u32, u32)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&number)?.get(&function).copied()
    }
}

/// Finds functions by their names.
#[derive(Debug)]
pub struct Functions {
    triggers: Arc<[Trigger]>,
    /// By trigger, the numbers of its conditions.
    numbers: Vec<Numbers>,
    rate: Arc<Rate>,
    outcome: Arc<Outcome>,
    known: HashMap<Key, Vec<Range>>,
    types: Types,
    trampolines: Trampolines,
    /// By trigger, the pattern for names of frames by id.
    frames: Vec<String>,
}

impl Functions {
    /// Finds the functions of `triggers`, of which there are at most
    /// [`everycall_format::trigger::RULES`].
    #[must_use]
    pub fn new(
        triggers: Arc<[Trigger]>,
        rate: Arc<Rate>,
        outcome: Arc<Outcome>,
        trampolines: Trampolines,
    ) -> Functions {
        let types = Types::new(&triggers);
        let frames = triggers.iter().map(frame_pattern).collect();
        // Whoever prepares triggers has refused too many conditions.
        let numbers = numbers(&triggers).unwrap_or_default();
        Functions { triggers, numbers, rate, outcome, known: HashMap::new(), types, trampolines, frames }
    }

    /// Searches a file before it runs. Returns how many of its functions each trigger names.
    pub fn look_at(&mut self, path: &Path) -> Vec<usize> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let build_id = everycall_machine::build_id_of(&path).unwrap_or_default();
        let count = self.triggers.len() as u32;
        let ranges = self.ranges(path.as_os_str().as_bytes(), &build_id, &path);
        (0..count).map(|rule| ranges.iter().filter(|range| range.rule == rule).count()).collect()
    }

    /// For a trigger that matches nothing in `paths`: the names in them that are most similar to
    /// its pattern.
    #[must_use]
    pub fn near(trigger: &Trigger, paths: &[PathBuf]) -> Vec<String> {
        let mut names = Vec::new();
        for path in paths.iter().filter_map(|path| path.canonicalize().ok()) {
            let path = path.as_path();
            let build_id = everycall_machine::build_id_of(path).unwrap_or_default();
            let symbols =
                ModuleSymbols::open(&ModuleIdentity::new(path, &build_id), &SymbolOptions::default());
            let own = symbols.functions().filter(FunctionEntry::is_programs);
            names
                .extend(own.map(|function| Names::of(&String::from_utf8_lossy(function.linkage_name)).plain));
        }
        trigger.pattern().map(|pattern| pattern.near(names.iter().map(String::as_str))).unwrap_or_default()
    }

    fn ranges(&mut self, path: &[u8], build_id: &[u8], file: &Path) -> &[Range] {
        let key = (path.to_vec(), build_id.to_vec());
        let triggers = &self.triggers;
        let types = &mut self.types;
        self.known.entry(key).or_insert_with(|| {
            types.add_file(triggers, file);
            find(triggers, file, build_id)
        })
    }
}

/// The functions of a file that triggers name, sorted and without overlaps.
pub(crate) fn find(triggers: &[Trigger], file: &Path, build_id: &[u8]) -> Vec<Range> {
    let symbols = ModuleSymbols::open(&ModuleIdentity::new(file, build_id), &SymbolOptions::default());
    let mut ranges = Vec::new();
    for function in symbols.functions().filter(FunctionEntry::is_programs) {
        let names = Names::of(&String::from_utf8_lossy(function.linkage_name));
        for (rule, trigger) in (0..).zip(triggers) {
            if trigger.pattern().is_some_and(|pattern| pattern.matches_names(&names)) {
                let end = function.start.saturating_add(function.size.max(1));
                ranges.push(Range { start: function.start, end, rule });
            }
        }
    }
    ranges.sort_unstable();
    apart(ranges)
}

/// Removes overlaps, because the runtime looks up one range: a range ends where the next one
/// begins.
fn apart(ranges: Vec<Range>) -> Vec<Range> {
    let mut all: Vec<Range> = Vec::new();
    for range in ranges {
        for earlier in all.iter_mut().rev().take_while(|earlier| earlier.end > range.start) {
            if earlier.start < range.start {
                earlier.end = range.start;
            }
        }
        all.push(range);
    }
    // Ranges with the same start all end where the shortest of them ends.
    for group in all.chunk_by_mut(|a, b| a.start == b.start) {
        let end = group.iter().map(|range| range.end).min().unwrap_or(0);
        group.iter_mut().for_each(|range| range.end = end);
    }
    all
}

impl FindSites for Functions {
    fn sites(&mut self, module: &ModuleEntry, path: &[u8], file: Option<&File>) -> Vec<TriggerSite> {
        // Opened by its descriptor: the path may name another file by now, or a file of another
        // process.
        let opened = file.map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
        let named = PathBuf::from(OsStr::from_bytes(path));
        let build_id = module.build_id.get(..module.build_id_length as usize).unwrap_or_default().to_vec();
        let (rate, triggers) = (Arc::clone(&self.rate), Arc::clone(&self.triggers));
        let trampolines = self.trampolines.clone();
        let numbers = self.numbers.clone();
        let ranges = self.ranges(path, &build_id, opened.as_deref().unwrap_or(&named));
        let code = |address: u64| {
            let offset = address.wrapping_add(module.base).checked_sub(module.start)?;
            let size = module.end.saturating_sub(module.start);
            (offset < size).then(|| u32::try_from(offset).ok()?.checked_add(module.code_start)).flatten()
        };
        let codes = |range: &Range| match module.flags & module_flags::TRAMPOLINES {
            0 => Some((code(range.start)?, code(range.end - 1)?.checked_add(1)?)),
            _ => {
                let (first, end) = trampolines.of(module.trampolines, range.start)?;
                Some((module.code_start.checked_add(first)?, module.code_start.checked_add(end)?))
            }
        };
        let sites: Vec<TriggerSite> = ranges
            .iter()
            .filter_map(|range| {
                let trigger = triggers.get(range.rule as usize)?;
                let (first, end) = codes(range)?;
                let threshold = match trigger.condition {
                    Condition::Longer(_, ns) => rate.ticks(ns).min(NEVER - 1),
                    Condition::Percentile(..)
                    | Condition::Entered(_)
                    | Condition::Returned(..)
                    | Condition::Threw(..)
                    | Condition::Signal(_) => NEVER,
                };
                Some(TriggerSite {
                    first,
                    end,
                    rule: range.rule,
                    flags: trigger.site_flags()
                        | numbers.get(range.rule as usize).copied().unwrap_or_default().flags(),
                    threshold,
                    ..TriggerSite::default()
                })
            })
            .collect();
        self.outcome.found(&sites);
        sites
    }

    fn frames(&self) -> Vec<FrameRule<'_>> {
        frames::rules(&self.triggers, &self.frames, &self.rate)
    }

    fn thrown(&self) -> Option<&Thrown> {
        self.types.thrown()
    }

    fn not_armed(&mut self, sites: &[TriggerSite]) {
        self.outcome.not_armed(sites);
    }

    fn late(&mut self, sites: &[TriggerSite]) {
        self.outcome.late(sites);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_functions_are_taken_apart() {
        let range = |start, end, rule| Range { start, end, rule };
        let found = apart(vec![range(0, 10, 0), range(0, 10, 1), range(4, 20, 0), range(20, 30, 1)]);
        assert_eq!(found, [range(0, 4, 0), range(0, 4, 1), range(4, 20, 0), range(20, 30, 1)]);
        let found = apart(vec![range(0, 10, 0), range(0, 20, 1)]);
        assert_eq!(found, [range(0, 10, 0), range(0, 10, 1)]);
    }
}
