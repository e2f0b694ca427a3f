//! Variables by address.

use object::{Object, ObjectSymbol, SymbolKind};

use crate::elf::Elf;

/// The variables that a file names, by address.
#[derive(Default)]
pub(crate) struct Variables {
    /// First address, size, linker name.
    all: Vec<(u64, u64, String)>,
}

impl Variables {
    pub(crate) fn of(elf: &Elf<'_>) -> Self {
        let symbols = elf.symbols().chain(elf.dynamic_symbols());
        let mut all: Vec<(u64, u64, String)> = symbols
            .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.is_definition() && symbol.size() > 0)
            .filter_map(|symbol| Some((symbol.address(), symbol.size(), symbol.name().ok()?.to_owned())))
            .filter(|(_, _, name)| !name.is_empty())
            .collect();
        all.sort();
        all.dedup();
        Self { all }
    }

    /// The variable that contains an address, and how far into it the address is.
    pub(crate) fn at(&self, address: u64) -> Option<(&str, u64)> {
        let end = self.all.partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = self.all.get(end.checked_sub(1)?)?;
        let inside = address - start;
        (inside < *size).then_some((name.as_str(), inside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_that_contains_it() {
        let all = vec![(0x10, 8, "a".to_owned()), (0x20, 0x100, "b".to_owned())];
        let variables = Variables { all };
        assert_eq!(variables.at(0x10), Some(("a", 0)));
        assert_eq!(variables.at(0x17), Some(("a", 7)));
        assert_eq!(variables.at(0x11f), Some(("b", 0xff)));
        for address in [0, 0xf, 0x18, 0x1f, 0x120, u64::MAX] {
            assert_eq!(variables.at(address), None, "{address:#x}");
        }
    }
}
