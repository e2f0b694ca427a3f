//! A selection, and its bytes.

use std::fmt;
use std::path::PathBuf;

use everycall_format::site_set::{
    MODULES_MAX, SELECTION_RULES_MAX, SITES_MAX, SetHeader, SetRule, SetSite, SiteSet, purpose,
};

use crate::writer::SetWriter;

/// The functions of a module that are to be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its file.
    pub path: PathBuf,
    /// Its build id, 1 to 32 bytes.
    pub build_id: Vec<u8>,
    /// Begin and end of functions, image addresses, in ascending order and apart.
    pub ranges: Vec<(u64, u64)>,
}

/// Which functions are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectionSet {
    /// The rules that it was made from, `+ PATTERN` or `- PATTERN`; the last one that matches
    /// decides.
    pub rules: Vec<String>,
    /// Whether functions that no rule matches, and those of other modules, are recorded.
    pub others: bool,
    /// The functions that are recorded, by module.
    pub modules: Vec<Module>,
}

/// There is more in a selection than fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetTooLarge {
    /// Rules.
    Rules(usize),
    /// Modules.
    Modules(usize),
    /// Runs of selected functions.
    Functions(usize),
}

impl fmt::Display for SetTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetTooLarge::Rules(count) => {
                write!(
                    f,
                    "{count} rules are too many: {SELECTION_RULES_MAX} fit; use patterns for several functions"
                )
            }
            SetTooLarge::Modules(count) => write!(f, "{count} modules are too many: {MODULES_MAX} fit"),
            SetTooLarge::Functions(count) => write!(
                f,
                "{count} separate runs of selected functions are too many: {SITES_MAX} fit; select whole files or modules"
            ),
        }
    }
}

impl std::error::Error for SetTooLarge {}

impl SelectionSet {
    /// Reads the rules and the default of a set's bytes. `None` if they aren't a selection.
    #[must_use]
    pub fn rules_of(bytes: &[u8]) -> Option<SelectionSet> {
        let set = SiteSet::parse(bytes, crc32fast::hash).ok().filter(SiteSet::is_selection)?;
        let rules = (0..set.rule_count()).filter_map(|index| set.rule(index));
        let rules = rules.map(|rule| set.text(rule.text_offset, rule.text_length));
        let rules = rules.map(|text| String::from_utf8_lossy(text).into_owned());
        Some(SelectionSet {
            rules: rules.filter(|rule| !rule.is_empty()).collect(),
            others: set.header().others != 0,
            modules: Vec::new(),
        })
    }

    /// Both together: the functions that either names.
    #[must_use]
    pub fn with(mut self, other: SelectionSet) -> SelectionSet {
        self.rules.extend(other.rules);
        self.others |= other.others;
        for more in other.modules {
            match self.modules.iter_mut().find(|module| module.build_id == more.build_id) {
                None => self.modules.push(more),
                Some(module) => {
                    module.ranges.extend(more.ranges);
                    module.ranges.sort_unstable();
                    let mut whole: Vec<(u64, u64)> = Vec::new();
                    for (start, end) in module.ranges.drain(..) {
                        match whole.last_mut().filter(|last| start < last.1) {
                            Some(last) => last.1 = last.1.max(end),
                            None => whole.push((start, end)),
                        }
                    }
                    module.ranges = whole;
                }
            }
        }
        self
    }

    /// The site set.
    ///
    /// # Errors
    ///
    /// There is too much in it.
    pub fn bytes(&self) -> Result<Vec<u8>, SetTooLarge> {
        if self.rules.len() > SELECTION_RULES_MAX as usize {
            return Err(SetTooLarge::Rules(self.rules.len()));
        }
        let modules = self.modules.iter().filter(|module| (1..=32).contains(&module.build_id.len()));
        let modules: Vec<&Module> = modules.collect();
        if modules.len() > MODULES_MAX as usize {
            return Err(SetTooLarge::Modules(modules.len()));
        }
        let functions = modules.iter().map(|module| module.ranges.len()).sum::<usize>();
        if functions > SITES_MAX as usize {
            return Err(SetTooLarge::Functions(functions));
        }
        let mut writer = SetWriter::default();
        // A set has a rule at least, to which its functions belong.
        let none = [String::new()];
        let rules = if self.rules.is_empty() { &none[..] } else { &self.rules };
        for rule in rules {
            let (text_offset, text_length) = writer.text(rule.as_bytes());
            writer.rule(&SetRule { text_offset, text_length, ..SetRule::default() });
        }
        for module in modules {
            let sites = module.ranges.iter();
            let sites = sites.map(|(start, end)| SetSite { start: *start, end: *end, ..SetSite::default() });
            writer.module(&module.path, &module.build_id, sites);
        }
        Ok(writer.finish(SetHeader {
            purpose: purpose::SELECTION,
            others: self.others.into(),
            ..SetHeader::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> SelectionSet {
        SelectionSet {
            rules: vec!["- *".to_owned(), "+ handle_*".to_owned()],
            others: false,
            modules: vec![
                Module {
                    path: "/bin/app".into(),
                    build_id: vec![7; 20],
                    ranges: vec![(0x1000, 0x1010), (0x2000, 0x2040)],
                },
                Module { path: "/lib/x.so".into(), build_id: vec![8; 20], ranges: vec![] },
                // Its identity isn't known.
                Module { path: "/lib/y.so".into(), build_id: vec![], ranges: vec![(1, 2)] },
            ],
        }
    }

    #[test]
    fn a_set_keeps_rules_and_functions() {
        let bytes = set().bytes().unwrap();
        let parsed = SiteSet::parse(&bytes, crc32fast::hash).unwrap();
        assert!(parsed.is_selection());
        let modules: Vec<_> = parsed.modules().collect();
        assert_eq!(modules.len(), 2);
        let sites: Vec<_> = parsed.sites_of(&modules[0]).map(|site| (site.start, site.end)).collect();
        assert_eq!(sites, [(0x1000, 0x1010), (0x2000, 0x2040)]);
        assert_eq!(parsed.sites_of(&modules[1]).count(), 0);
        let rules = SelectionSet::rules_of(&bytes).unwrap();
        assert_eq!((rules.rules, rules.others), (set().rules, false));
    }

    #[test]
    fn a_set_without_rules_is_one() {
        let bytes = SelectionSet { others: true, ..SelectionSet::default() }.bytes().unwrap();
        let rules = SelectionSet::rules_of(&bytes).unwrap();
        assert!(rules.rules.is_empty() && rules.others);
    }

    #[test]
    fn what_is_no_selection_has_no_rules() {
        let mut bytes = set().bytes().unwrap();
        assert_eq!(SelectionSet::rules_of(&bytes[1..]), None);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(SelectionSet::rules_of(&bytes), None);
    }

    #[test]
    fn too_many_rules_are_refused() {
        let rules = vec!["+ x".to_owned(); SELECTION_RULES_MAX as usize + 1];
        let set = SelectionSet { rules, ..set() };
        assert!(matches!(set.bytes(), Err(SetTooLarge::Rules(_))));
    }
}
