//! Functions of a linked program, by address.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use object::{Object, ObjectSymbol, SymbolKind};

/// A program's symbol table.
#[derive(Clone, Debug)]
pub struct FunctionTable {
    /// Start, end and name, by start.
    ranges: Vec<(u64, u64, String)>,
}

impl FunctionTable {
    /// Reads the symbol table of a program.
    ///
    /// A function and its cold part are one. Functions with the same name (static ones of several
    /// files) are distinguished by their order, `f#2`, which is the order of the objects; but if
    /// one of them has a cold part, they are counted together. Of several names of one address, the
    /// first in alphabetical order is used.
    ///
    /// # Panics
    /// Where the file isn't a program with symbols.
    #[must_use]
    pub fn read(program: &Path) -> FunctionTable {
        let data = std::fs::read(program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let file = object::File::parse(&*data).expect("an ELF file");
        let mut by_start: BTreeMap<u64, (u64, String)> = BTreeMap::new();
        let mut starts: BTreeMap<String, u64> = BTreeMap::new();
        for symbol in file.symbols() {
            if symbol.kind() != SymbolKind::Text || !symbol.is_definition() || symbol.size() == 0 {
                continue;
            }
            let name = symbol.name().expect("a name in UTF-8").to_owned();
            let (start, end) = (symbol.address(), symbol.address() + symbol.size());
            starts.insert(name.clone(), start);
            let known = by_start.entry(start).or_insert_with(|| (end, name.clone()));
            if name < known.1 {
                known.1 = name;
            }
            known.0 = known.0.max(end);
        }
        assert!(!by_start.is_empty(), "{} has no symbols", program.display());
        // A constructor has two names, and its cold part may go by the other one.
        let first_names: BTreeMap<u64, String> =
            by_start.iter().map(|(start, (_, name))| (*start, name.clone())).collect();
        let whole_of = |name: &str| {
            let (whole, _) = name.split_once(".cold")?;
            let first = starts.get(whole).and_then(|start| first_names.get(start));
            Some(first.map_or(whole, String::as_str).to_owned())
        };
        let with_cold: BTreeSet<String> = by_start.values().filter_map(|(_, name)| whole_of(name)).collect();
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let ranges = by_start.into_iter().map(|(start, (end, name))| {
            let whole = &*whole_of(&name).unwrap_or(name);
            let number = seen.entry(whole.to_owned()).or_default();
            *number += 1;
            let name = match *number {
                1 => whole.to_owned(),
                _ if with_cold.contains(whole) => whole.to_owned(),
                number => format!("{whole}#{number}"),
            };
            (start, end, name)
        });
        FunctionTable { ranges: ranges.collect() }
    }

    /// Start, end and name of each function and of each cold part, in the order of addresses.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &str)> {
        self.ranges.iter().map(|(start, end, name)| (*start, *end, &**name))
    }

    /// The function at an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<&str> {
        let behind = self.ranges.partition_point(|(start, ..)| *start <= address);
        let (_, end, name) = self.ranges.get(behind.checked_sub(1)?)?;
        (address < *end).then_some(name)
    }
}
