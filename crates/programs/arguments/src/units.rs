//! Facts about units of DWARF that each of their functions needs: a unit is looked through once,
//! not once for each function.

use std::collections::HashMap;
use std::rc::Rc;

use everycall_symbols::DwarfSlice;
use gimli::{AttributeValue, Dwarf, DwoId, Unit, UnitOffset};

use crate::place::{self, Located, Place};
use crate::types::Entry;

type Slice<'a> = DwarfSlice<'a>;

/// Where a unit is: in the program's own sections, or, if it is a split one, by its id.
type Key = (Option<usize>, Option<u64>);

/// The units of a module that were looked through.
#[derive(Default)]
pub(crate) struct Units(HashMap<Key, Rc<UnitFacts>>);

impl Units {
    /// The facts about a unit.
    pub(crate) fn facts<'a>(&mut self, dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>) -> Rc<UnitFacts> {
        let offset = unit.header.debug_info_offset().map(|offset| offset.0);
        let key = (offset, unit.dwo_id.map(|DwoId(id)| id));
        let read = || Rc::new(UnitFacts::read(dwarf, unit));
        self.0.entry(key).or_insert_with(read).clone()
    }
}

/// Facts about a unit.
pub(crate) struct UnitFacts {
    pub(crate) is_rust: bool,
    pub(crate) producer: Producer,
    /// Whether its code is optimised, as far as that says anything about parameters.
    pub(crate) is_optimised: bool,
    /// Whether it says which parameters functions have: gcc's `-g1`, which is enough for lines,
    /// has functions without any.
    pub(crate) describes_parameters: bool,
    /// Entries of functions, by the addresses at which their ranges begin.
    functions: HashMap<u64, UnitOffset>,
}

impl UnitFacts {
    fn read<'a>(dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>) -> Self {
        let is_rust = language(unit) == Some(gimli::DW_LANG_Rust);
        let producer_text = producer_of(dwarf, unit).unwrap_or_default();
        let producer = Producer::named(&producer_text);
        let is_optimised = match is_rust {
            true => is_optimised_by_rustc(dwarf, unit),
            false => producer != Producer::Gcc && is_optimised(unit),
        };
        let mut functions = HashMap::new();
        let mut has_types = false;
        // Of a damaged unit, the functions before the damage are known.
        let _ = add_functions(dwarf, unit, &mut functions, &mut has_types);
        let describes_parameters = has_types || !producer_text.split(' ').any(|word| word == "-g1");
        Self { is_rust, producer, is_optimised, describes_parameters, functions }
    }

    /// The function whose code begins at an address.
    pub(crate) fn function_at<'a>(&self, unit: &Unit<Slice<'a>>, address: u64) -> Option<Entry<'a>> {
        unit.entry(*self.functions.get(&address)?).ok()
    }
}

/// Who has compiled a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Producer {
    /// It gives functions other names when it changes their parameters or results.
    Gcc,
    /// From LLVM 16 on, functions with other parameters have another calling convention.
    LlvmThatTells,
    Other,
}

impl Producer {
    fn named(text: &str) -> Self {
        let version = |behind: &str| -> Option<(u32, u32)> {
            let (_, rest) = text.split_once(behind)?;
            let mut numbers = rest.split(['.', ' ', '-']).map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        };
        match (version("rustc version "), version("clang version ")) {
            _ if text.starts_with("GNU ") => Self::Gcc,
            (Some(rustc), _) if rustc >= (1, 70) => Self::LlvmThatTells,
            (None, Some(clang)) if clang >= (16, 0) => Self::LlvmThatTells,
            _ => Self::Other,
        }
    }
}

/// Whether a unit's code is optimised: parameters move, or calls are described.
fn is_optimised(unit: &Unit<Slice<'_>>) -> bool {
    let Ok(mut entries) = unit.entries_raw(None) else { return true };
    while !entries.is_empty() {
        let Ok(abbreviation) = entries.read_abbreviation() else { return true };
        let Some(abbreviation) = abbreviation else { continue };
        // The variable that becomes a result in memory moves without optimisation, too.
        let is_moved = abbreviation.tag() == gimli::DW_TAG_formal_parameter
            && abbreviation.attributes().iter().any(|it| {
                it.name() == gimli::DW_AT_location
                    && matches!(it.form(), gimli::DW_FORM_sec_offset | gimli::DW_FORM_loclistx)
            });
        let is_call = matches!(abbreviation.tag(), gimli::DW_TAG_call_site | gimli::DW_TAG_GNU_call_site);
        if is_moved || is_call || entries.skip_attributes(abbreviation.attributes()).is_err() {
            return true;
        }
    }
    false
}

/// Whether rustc has optimised a unit's code: a function has other parameters than it should, or
/// one is in a register when it begins. (It describes no calls, and copies optimised functions of
/// the standard library, whose parameters move, into all programs.)
fn is_optimised_by_rustc<'a>(dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>) -> bool {
    let mut entries = unit.entries();
    // Where the function begins whose parameters come next.
    let mut function = None;
    while let Ok(Some(entry)) = entries.next_dfs() {
        match entry.tag() {
            gimli::DW_TAG_subprogram => {
                if is_changed(entry) {
                    return true;
                }
                let start = entry.attr_value(gimli::DW_AT_low_pc);
                function = start.and_then(|start| dwarf.attr_address(unit, start).ok().flatten());
            }
            gimli::DW_TAG_formal_parameter => {
                let Some(start) = function else { continue };
                let is_in_register = match entry.attr_value(gimli::DW_AT_location) {
                    Some(value) => matches!(
                        place::located(dwarf, unit, value, start, None),
                        Located::Exactly(Place::Registers(_)) | Located::Parts(_)
                    ),
                    None => true,
                };
                if is_in_register {
                    return true;
                }
            }
            gimli::DW_TAG_template_type_parameter => {}
            _ => function = None,
        }
    }
    false
}

/// LLVM says of functions whose parameters or results it has removed that they have another
/// calling convention.
pub(crate) fn is_changed(entry: &Entry<'_>) -> bool {
    matches!(
        entry.attr_value(gimli::DW_AT_calling_convention),
        Some(AttributeValue::CallingConvention(gimli::DW_CC_nocall))
    )
}

/// Who has compiled a unit, and with which options.
fn producer_of<'a>(dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>) -> Option<String> {
    let mut entries = unit.entries();
    let root = entries.next_dfs().ok()??;
    let text = dwarf.attr_string(unit, root.attr_value(gimli::DW_AT_producer)?).ok()?;
    Some(text.to_string_lossy().into_owned())
}

/// The unit's language.
fn language(unit: &Unit<Slice<'_>>) -> Option<gimli::DwLang> {
    let mut entries = unit.entries();
    let root = entries.next_dfs().ok()??;
    match root.attr_value(gimli::DW_AT_language) {
        Some(AttributeValue::Language(language)) => Some(language),
        _ => None,
    }
}

/// Adds the functions of a unit, and whether anything in it has a type.
fn add_functions<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    functions: &mut HashMap<u64, UnitOffset>,
    has_types: &mut bool,
) -> gimli::Result<()> {
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let offset = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        entries.skip_attributes(abbreviation.attributes())?;
        *has_types |= abbreviation.attributes().iter().any(|it| it.name() == gimli::DW_AT_type);
        let has_code = abbreviation
            .attributes()
            .iter()
            .any(|it| matches!(it.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges));
        if abbreviation.tag() != gimli::DW_TAG_subprogram || !has_code {
            continue;
        }
        let mut ranges = dwarf.die_ranges(unit, &unit.entry(offset)?)?;
        while let Ok(Some(range)) = ranges.next() {
            functions.entry(range.begin).or_insert(offset);
        }
    }
    Ok(())
}
