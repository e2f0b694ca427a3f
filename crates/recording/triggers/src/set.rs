//! The file that gives a program without `record` the functions that triggers name
//! ([`everycall_format::site_set`]).

use std::fmt;
use std::path::{Path, PathBuf};

use everycall_control::SetWriter;
use everycall_format::site_set::{
    MODULES_MAX, SITES_MAX, SetHeader, SetRule, SetSite, keep_by, purpose, throws,
};
use everycall_format::trigger::NEVER;

use crate::conditions::Numbers;
use crate::frames::frame_pattern;
use crate::functions::{Range, find};
use crate::policy::{KeepBy, Policy};
use crate::rate::Rate;
use crate::thrown::Types;
use crate::trigger::{Condition, Trigger};

/// Why such a file can't be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// A trigger needs a recorder that scans events.
    NeedsRecord(String),
    /// A trigger waits for a signal.
    Signal(String),
    /// A file has no build id.
    NoBuildId(PathBuf),
    /// There are more files than fit.
    Modules,
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetError::NeedsRecord(trigger) => write!(
                f,
                "`{trigger}` needs `everycall record`, which looks through what the program's threads write, and \
                 reads arguments; without it, write a time, as in 'handle_request > 20ms'"
            ),
            SetError::Signal(trigger) => write!(
                f,
                "`{trigger}` is for `everycall record`; a program that is started without it writes a snapshot at a signal where \
                 EVERYCALL_SNAPSHOT_SIGNAL names one, such as USR1"
            ),
            SetError::NoBuildId(path) => write!(
                f,
                "{} has no build id, which is needed to recognize it at run time; link it with -Wl,--build-id",
                path.display()
            ),
            SetError::Modules => {
                write!(f, "more than {MODULES_MAX} files are too many; name those with functions to keep")
            }
        }
    }
}

impl std::error::Error for SetError {}

/// Builds a set.
#[derive(Debug)]
pub struct SetBuilder<'t> {
    triggers: &'t [Trigger],
    /// By trigger, the numbers of its conditions; none if no trigger has any.
    numbers: &'t [Numbers],
    policy: Policy,
    memory: u64,
    /// For a running process: its ticks per nanosecond.
    rate: Option<&'t Rate>,
    modules: Vec<Module>,
    types: Types,
    /// By trigger, the functions that had no room.
    left_out: Vec<usize>,
}

#[derive(Debug)]
struct Module {
    path: PathBuf,
    build_id: Vec<u8>,
    functions: Vec<Range>,
}

impl<'t> SetBuilder<'t> {
    /// An empty set for `triggers`, of which there are at most
    /// [`everycall_format::trigger::RULES`]. Threads may take `memory` bytes in addition to their
    /// rings.
    ///
    /// # Errors
    ///
    /// One of the triggers needs `record`.
    pub fn new(triggers: &'t [Trigger], policy: Policy, memory: u64) -> Result<SetBuilder<'t>, SetError> {
        for trigger in triggers {
            if trigger.has_conditions() {
                return Err(SetError::NeedsRecord(trigger.to_string()));
            }
            match trigger.condition {
                Condition::Longer(..) | Condition::Threw(..) => {}
                Condition::Percentile(..) | Condition::Entered(_) | Condition::Returned(..) => {
                    return Err(SetError::NeedsRecord(trigger.to_string()));
                }
                Condition::Signal(_) => return Err(SetError::Signal(trigger.to_string())),
            }
        }
        Ok(SetBuilder { policy, ..SetBuilder::of(triggers, None, memory) })
    }

    /// A set for a running process, where a recorder that knows the clock keeps the calls.
    /// `numbers`: those of each trigger's conditions.
    #[must_use]
    pub fn live(
        triggers: &'t [Trigger],
        numbers: &'t [Numbers],
        rate: &'t Rate,
        memory: u64,
    ) -> SetBuilder<'t> {
        SetBuilder { numbers, ..SetBuilder::of(triggers, Some(rate), memory) }
    }

    fn of(triggers: &'t [Trigger], rate: Option<&'t Rate>, memory: u64) -> SetBuilder<'t> {
        let policy = Policy { keep: 1, keep_perhaps: 1, bytes: 0, by: KeepBy::First, every_ns: 0 };
        let left_out = vec![0; triggers.len()];
        let types = Types::new(triggers);
        SetBuilder { triggers, numbers: &[], policy, memory, rate, modules: Vec::new(), types, left_out }
    }

    /// Searches a file. Returns how many of its functions each trigger names. If there are more
    /// than fit, the first ones are taken.
    ///
    /// # Errors
    ///
    /// The file has such functions and no build id, or there are too many files.
    pub fn add(&mut self, path: &Path) -> Result<Vec<usize>, SetError> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let build_id = everycall_machine::build_id_of(&path).unwrap_or_default();
        self.add_file(&path, &build_id)
    }

    /// Searches a file as [`SetBuilder::add`] does, by its path as it is and a known build id.
    ///
    /// # Errors
    ///
    /// As for [`SetBuilder::add`].
    pub fn add_file(&mut self, path: &Path, build_id: &[u8]) -> Result<Vec<usize>, SetError> {
        self.types.add_file(self.triggers, path);
        let mut functions = find(self.triggers, path, build_id);
        let count = self.triggers.len() as u32;
        let counts =
            (0..count).map(|rule| functions.iter().filter(|range| range.rule == rule).count()).collect();
        if !functions.is_empty() && !self.modules.iter().any(|module| module.build_id == build_id) {
            if build_id.is_empty() || build_id.len() > 32 {
                return Err(SetError::NoBuildId(path.to_owned()));
            }
            let sites = self.modules.iter().map(|module| module.functions.len()).sum::<usize>();
            let room = (SITES_MAX as usize).saturating_sub(sites).min(functions.len());
            for range in functions.drain(room..) {
                if let Some(count) = self.left_out.get_mut(range.rule as usize) {
                    *count += 1;
                }
            }
            self.modules.push(Module { path: path.to_owned(), build_id: build_id.to_vec(), functions });
            if self.modules.len() > MODULES_MAX as usize {
                return Err(SetError::Modules);
            }
        }
        Ok(counts)
    }

    /// How many of the functions that each trigger names had no room.
    #[must_use]
    pub fn left_out(&self) -> &[usize] {
        &self.left_out
    }

    /// The functions by file: path, build id, and the functions' addresses, sorted and without
    /// overlaps.
    pub fn selected(&self) -> impl Iterator<Item = (&Path, &[u8], Vec<(u64, u64)>)> {
        self.modules.iter().map(|module| {
            let mut ranges: Vec<_> = module.functions.iter().map(|range| (range.start, range.end)).collect();
            ranges.dedup();
            (module.path.as_path(), module.build_id.as_slice(), ranges)
        })
    }

    fn site_flags(&self, rule: usize) -> u32 {
        let numbers = self.numbers.get(rule).copied().unwrap_or_default();
        self.triggers.get(rule).map_or(0, Trigger::site_flags) | numbers.flags()
    }

    /// The bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut writer = SetWriter::default();
        for ((rule, trigger), left_out) in (0..).zip(self.triggers).zip(&self.left_out) {
            let threshold_ns = match (&trigger.condition, self.rate) {
                (Condition::Longer(_, ns), None) => *ns,
                (Condition::Longer(_, ns), Some(rate)) => rate.ticks(*ns).clamp(1, NEVER - 1),
                _ => NEVER,
            };
            let throws = match &trigger.condition {
                Condition::Threw(function, of) => {
                    let types = if of.is_none() { throws::ANY } else { throws::TYPES };
                    types | if function.is_none() { throws::ANYWHERE } else { 0 }
                }
                _ => 0,
            };
            let share = self.policy.bytes / self.triggers.len().max(1) as u64;
            let keep_kib = u32::try_from(share / 1024).unwrap_or(u32::MAX);
            let (text_offset, text_length) = writer.text(trigger.to_string().as_bytes());
            let (pattern_offset, pattern_length) = writer.text(frame_pattern(trigger).as_bytes());
            let functions = self.modules.iter().flat_map(|module| &module.functions);
            writer.rule(&SetRule {
                threshold_ns,
                every_ns: self.policy.every_ns,
                keep: self.policy.keep as u32,
                by: match self.policy.by {
                    // Throws have no duration by which they could be ordered.
                    KeepBy::Slowest if throws != 0 => keep_by::FIRST,
                    KeepBy::Slowest => keep_by::SLOWEST,
                    KeepBy::First => keep_by::FIRST,
                    KeepBy::Newest => keep_by::NEWEST,
                },
                functions: functions.filter(|range| range.rule == rule).count() as u64,
                text_offset,
                text_length,
                left_out: *left_out as u64,
                keep_kib,
                throws,
                pattern_offset,
                pattern_length,
            });
        }
        for module in &self.modules {
            let sites = module.functions.iter().map(|range| SetSite {
                start: range.start,
                end: range.end,
                rule: range.rule,
                flags: self.site_flags(range.rule as usize),
            });
            writer.module(&module.path, &module.build_id, sites);
        }
        let types = self.types.thrown().map_or(&[][..], |thrown| &thrown.types);
        types.iter().for_each(|thrown| writer.thrown(thrown));
        writer.finish(SetHeader {
            memory: self.memory,
            others: types.len() as u32,
            purpose: if self.rate.is_some() { purpose::LIVE } else { purpose::TRIGGERS },
            ..SetHeader::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use everycall_format::Wire;
    use everycall_format::site_set::{self, SetModule, SiteSet};

    use super::*;

    const POLICY: Policy =
        Policy { keep: 7, keep_perhaps: 7, bytes: 9 << 20, by: KeepBy::Newest, every_ns: 5 };

    fn triggers() -> Vec<Trigger> {
        ["handle > 20ms", "w?rk > 1us"].iter().map(|text| text.parse().unwrap()).collect()
    }

    fn set() -> Vec<u8> {
        let triggers = triggers();
        let mut builder = SetBuilder::new(&triggers, POLICY, 1 << 20).unwrap();
        let range = |start, end, rule| Range { start, end, rule };
        builder.modules.push(Module {
            path: "/app/server".into(),
            build_id: vec![7; 20],
            functions: vec![range(0x1000, 0x1010, 0), range(0x1020, 0x1030, 0), range(0x1020, 0x1030, 1)],
        });
        builder.modules.push(Module {
            path: "/app/lib.so".into(),
            build_id: vec![9; 16],
            functions: vec![range(0x10, 0x20, 1)],
        });
        builder.bytes()
    }

    fn parse(bytes: &[u8]) -> Result<SiteSet<'_>, site_set::SetError> {
        SiteSet::parse(bytes, crc32fast::hash)
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = set();
        let set = parse(&bytes).unwrap();
        assert_eq!((set.header().memory, set.rule_count()), (1 << 20, 2));
        let rule = set.rule(1).unwrap();
        assert_eq!((rule.threshold_ns, rule.keep, rule.by, rule.every_ns), (1000, 7, keep_by::NEWEST, 5));
        assert_eq!(set.text(rule.text_offset, rule.text_length), b"w?rk > 1us");
        assert_eq!((set.rule(0).unwrap().functions, rule.functions), (2, 2));
        assert_eq!(set.rule(2).map(|rule| rule.threshold_ns), None);
        let modules: Vec<SetModule> = set.modules().collect();
        assert_eq!(modules.len(), 2);
        assert_eq!(set.text(modules[1].path_offset, modules[1].path_length), b"/app/lib.so");
        let sites: Vec<(u64, u32)> = set.sites_of(&modules[0]).map(|site| (site.start, site.rule)).collect();
        assert_eq!(sites, [(0x1000, 0), (0x1020, 0), (0x1020, 1)]);
        assert_eq!(set.sites_of(&modules[1]).count(), 1);
    }

    /// A set with one changed field and correct checksums.
    fn changed(at: usize, value: u32) -> Vec<u8> {
        let mut bytes = set();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let payload = crc32fast::hash(&bytes[SetHeader::SIZE..]);
        bytes[56..60].copy_from_slice(&payload.to_le_bytes());
        let header = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&header.to_le_bytes());
        bytes
    }

    #[test]
    fn what_was_cut_changed_or_lies_is_refused() {
        use site_set::SetError::{Damaged, NoSet, Version};
        let whole = set();
        for end in 0..whole.len() {
            let wanted = if end < 12 { NoSet } else { Damaged };
            assert_eq!(parse(&whole[..end]).unwrap_err(), wanted, "{end}");
        }
        assert_eq!(parse(&[&whole[..], b"x"].concat()).unwrap_err(), Damaged);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let error = parse(&bytes).unwrap_err();
            assert_eq!(error == NoSet, at < 8, "{at}");
            assert_eq!(matches!(error, Version(_)), (8..12).contains(&at), "{at}");
        }
        assert_eq!(parse(&changed(8, 2)).unwrap_err(), Version(2));
        let rule = SetHeader::SIZE;
        let module = rule + 2 * SetRule::SIZE;
        let site = module + 2 * SetModule::SIZE;
        for (at, value) in [
            (32, 0),
            (32, 25),
            (36, u32::MAX),
            (40, u32::MAX),
            (44, 1),
            (rule, 0),
            (rule + 16, 0),
            (rule + 16, 1001),
            (rule + 20, 3),
            (rule + 32, u32::MAX),
            (module, 33),
            (module, 0),
            (module + 4, 4),
            (module + 8, u32::MAX),
            (module + 12, u32::MAX),
            (site, 0x1010),
            (site + 8, 0x1021),
            (site + 16, 2),
            (site + SetSite::SIZE + 16, 1),
        ] {
            assert_eq!(parse(&changed(at, value)).unwrap_err(), Damaged, "{at} {value}");
        }
        assert!(parse(&changed(rule + 16, 1000)).is_ok());
    }

    #[test]
    fn what_needs_record_is_refused() {
        for (text, hint) in
            [("f > p99", "record"), ("f entered", "record"), ("signal USR1", "EVERYCALL_SNAPSHOT_SIGNAL")]
        {
            let triggers = [text.parse().unwrap()];
            let error = SetBuilder::new(&triggers, POLICY, 0).unwrap_err().to_string();
            assert!(error.contains(hint) && error.contains(text), "{error}");
        }
    }
}
