//! Which types of exceptions triggers name. The runtime identifies a type by its name in the C++
//! ABI (`St9bad_alloc`). The types that a pattern matches are therefore found beforehand: among the
//! type names in a file, and among those of the standard library.

use std::collections::BTreeSet;
use std::path::Path;

use everycall_format::trigger::{TYPES, ThrownType, type_hash};
use everycall_patterns::NamePattern as Pattern;
use everycall_recorder::triggers::Thrown;
use everycall_symbols::demangle;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, SectionKind};

use crate::trigger::{Condition, Trigger};

/// Prefixes of symbols of types: for the type information, and for the name.
const SYMBOLS: [&str; 2] = ["_ZTI", "_ZTS"];
/// The prefix of the demangled symbol of a type's name.
const NAME_OF: &str = "typeinfo name for ";
/// Longer names are ignored.
const NAME_MAX: usize = 4000;
/// At most this many bytes of a section with constants are searched.
const SECTION_MAX: u64 = 1 << 30;

/// Types that may be thrown although no file of the program has their names.
const STANDARD: [&str; 44] = [
    "St9exception",
    "St9bad_alloc",
    "St20bad_array_new_length",
    "St8bad_cast",
    "St10bad_typeid",
    "St13bad_exception",
    "St11logic_error",
    "St12domain_error",
    "St16invalid_argument",
    "St12length_error",
    "St12out_of_range",
    "St13runtime_error",
    "St11range_error",
    "St14overflow_error",
    "St15underflow_error",
    "St12system_error",
    "St12future_error",
    "St17bad_function_call",
    "St12bad_weak_ptr",
    "St18bad_variant_access",
    "St19bad_optional_access",
    "St12bad_any_cast",
    "St11regex_error",
    "St12format_error",
    "NSt8ios_base7failureB5cxx11E",
    "NSt8ios_base7failureE",
    "NSt10filesystem7__cxx1116filesystem_errorE",
    "NSt3__112system_errorE",
    "NSt3__112future_errorE",
    "NSt3__117bad_function_callE",
    "NSt3__112bad_weak_ptrE",
    "NSt3__111regex_errorE",
    "NSt3__18ios_base7failureE",
    "NSt3__112format_errorE",
    "i",
    "j",
    "l",
    "m",
    "b",
    "c",
    "d",
    "PKc",
    "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "NSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEE",
];

/// Demangles a type's name of the ABI; `None` if it isn't one.
fn shown(name: &str) -> Option<String> {
    let shown = demangle(&format!("_ZTS{name}"));
    shown.strip_prefix(NAME_OF).map(str::to_owned)
}

/// The names of types in a file. They need no symbols, because each is a string among the
/// constants.
pub(crate) fn types_of(file: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let Ok(file) = everycall_io::infile::open(file) else { return names };
    let cache = ReadCache::new(file);
    let Ok(elf) = ElfFile64::<Endianness, _>::parse(&cache) else { return names };
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        let name = symbol.name().unwrap_or_default();
        // The version of a symbol isn't part of its name.
        let name = name.split('@').next().unwrap_or_default();
        names.extend(SYMBOLS.iter().filter_map(|prefix| name.strip_prefix(prefix)).map(str::to_owned));
    }
    let constants = elf.sections().filter(|section| {
        let kind = section.kind();
        matches!(kind, SectionKind::ReadOnlyData | SectionKind::ReadOnlyString)
            && section.size() <= SECTION_MAX
    });
    for section in constants {
        let Ok(data) = section.data() else { continue };
        for text in data.split(|byte| *byte == 0) {
            // Names of types with internal linkage begin with an asterisk.
            let text = text.strip_prefix(b"*").unwrap_or(text);
            if may_be_type(text)
                && let Ok(text) = std::str::from_utf8(text)
                && shown(text).is_some()
            {
                names.insert(text.to_owned());
            }
        }
    }
    names
}

/// Whether a string can be the name of a class.
fn may_be_type(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
    let begins = matches!(text, [b'1'..=b'9', ..] | [b'N' | b'Z', .., b'E'] | [b'Z', ..] | [b'S', b't', ..]);
    begins && (3..=NAME_MAX).contains(&text.len()) && text.iter().all(is_part)
}

/// The ABI's name of a class whose name has no wildcards and no template arguments.
fn mangled(text: &str) -> Option<String> {
    let is_name = |part: &&str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let parts: Vec<&str> = text.split("::").collect();
    if !parts.iter().all(is_name) {
        return None;
    }
    let coded = |parts: &[&str]| parts.iter().map(|part| format!("{}{part}", part.len())).collect::<String>();
    Some(match parts.as_slice() {
        [one] => coded(&[one]),
        ["std", one] => format!("St{}", coded(&[one])),
        ["std", rest @ ..] => format!("NSt{}E", coded(rest)),
        all => format!("N{}E", coded(all)),
    })
}

/// The types that triggers name, as far as they were found.
#[derive(Debug, Default)]
pub(crate) struct Types {
    known: BTreeSet<(u64, u32)>,
    thrown: Thrown,
}

impl Types {
    /// The types of the standard library, and types whose ABI name follows from the pattern.
    pub fn new(triggers: &[Trigger]) -> Types {
        let mut types = Types::default();
        for (rule, trigger) in (0..).zip(triggers) {
            let Condition::Threw(function, of) = &trigger.condition else { continue };
            types.thrown.anywhere |= u32::from(function.is_none()) << rule;
            match of {
                None => types.thrown.any |= 1 << rule,
                Some(pattern) => {
                    // A class that only other libraries have is in no file that is searched.
                    types.add_name(rule, mangled(&pattern.to_string()));
                    // An exception of frames by id has the name that is written.
                    types.add_name(rule, Some(pattern.to_string()));
                }
            }
        }
        types.add(triggers, STANDARD.into_iter());
        types
    }

    fn add_name(&mut self, rule: u32, name: Option<String>) {
        let Some(hash) = name.map(|name| type_hash(name.as_bytes())) else { return };
        if self.known.insert((hash, rule)) && self.thrown.types.len() < TYPES as usize {
            self.thrown.types.push(ThrownType { hash, rules: 1 << rule, reserved: 0 });
        }
    }

    /// Searches names of types. Returns how many each trigger matches.
    fn add<'n>(&mut self, triggers: &[Trigger], names: impl Iterator<Item = &'n str>) {
        for name in names {
            let Some(shown) = shown(name) else { continue };
            for (rule, pattern) in patterns(triggers) {
                if pattern.matches_text(&shown) {
                    self.add_name(rule, Some(name.to_owned()));
                }
            }
        }
    }

    /// Searches a file.
    pub fn add_file(&mut self, triggers: &[Trigger], file: &Path) {
        if patterns(triggers).next().is_some() {
            let names = types_of(file);
            self.add(triggers, names.iter().map(String::as_str));
        }
    }

    /// The types for the runtime; `None` if no trigger waits for exceptions.
    pub fn thrown(&self) -> Option<&Thrown> {
        let Thrown { any, anywhere, types } = &self.thrown;
        (*any != 0 || *anywhere != 0 || !types.is_empty()).then_some(&self.thrown)
    }
}

/// The types that triggers wait for by name.
fn patterns(triggers: &[Trigger]) -> impl Iterator<Item = (u32, &Pattern)> {
    (0..).zip(triggers).filter_map(|(rule, trigger)| match &trigger.condition {
        Condition::Threw(_, Some(pattern)) => Some((rule, pattern)),
        _ => None,
    })
}

/// For each trigger whose type is neither in these files nor in the standard library: its pattern,
/// and the most similar names in them.
#[must_use]
pub fn unknown_types<'t>(
    triggers: &'t [Trigger],
    files: &[impl AsRef<Path>],
) -> Vec<(&'t Pattern, Vec<String>)> {
    if patterns(triggers).next().is_none() {
        return Vec::new();
    }
    let own = files.iter().flat_map(|file| types_of(file.as_ref()));
    let all: Vec<String> =
        own.chain(STANDARD.iter().map(|name| (*name).to_owned())).filter_map(|name| shown(&name)).collect();
    let is_unknown = |(_, pattern): &(u32, &Pattern)| !all.iter().any(|name| pattern.matches_text(name));
    let near = |(_, pattern): (u32, &'t Pattern)| (pattern, pattern.near(all.iter().map(String::as_str)));
    patterns(triggers).filter(is_unknown).map(near).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_types_have_names() {
        for name in STANDARD {
            assert!(shown(name).is_some_and(|shown| shown != name), "{name}");
        }
        assert_eq!(shown("St9bad_alloc").unwrap(), "std::bad_alloc");
        assert_eq!(shown("N3app5ErrorE").unwrap(), "app::Error");
        assert_eq!(shown("N3app7WrappedIiEE").unwrap(), "app::Wrapped<int>");
        assert_eq!(shown("hello world"), None);
    }

    #[test]
    fn names_are_mangled() {
        for (text, name) in [
            ("Error", Some("5Error")),
            ("std::bad_alloc", Some("St9bad_alloc")),
            ("app::net::Error", Some("N3app3net5ErrorE")),
            ("std::ios_base::failure", Some("NSt8ios_base7failureE")),
            ("app::*", None),
            ("app::Wrapped<int>", None),
            ("3d", None),
        ] {
            assert_eq!(mangled(text).as_deref(), name, "{text}");
        }
    }

    #[test]
    fn types_are_found_by_patterns() {
        let triggers: Vec<Trigger> =
            ["threw", "f threw bad_alloc", "threw app::*", "f > 1ms", "g threw std::*_error"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        let mut types = Types::new(&triggers);
        types.add(&triggers, ["N3app5ErrorE", "N5other5ErrorE"].into_iter());
        let thrown = types.thrown().unwrap();
        assert_eq!((thrown.any, thrown.anywhere), (1, 0b101));
        let rules = |name: &str| {
            let hash = type_hash(name.as_bytes());
            thrown.types.iter().filter(|known| known.hash == hash).fold(0, |all, known| all | known.rules)
        };
        assert_eq!(rules("St9bad_alloc"), 0b10);
        assert_eq!(rules("N3app5ErrorE"), 0b100);
        assert_eq!(rules("N5other5ErrorE"), 0);
        assert_eq!(rules("St13runtime_error"), 0b10000);
        assert_eq!(rules("9bad_alloc"), 0b10, "as it is written");
        assert!(Types::new(&triggers[3..4]).thrown().is_none());
    }
}
