//! A small ELF file with symbols only: the names of functions whose code is missing. As a module's
//! file inside the trace, it gives them to every reader.

use everycall_format::arch::ELF_MACHINE;
use everycall_format::ect::IMPORTED_BUILD_ID;

/// A function's first address, its size and its name.
pub(crate) struct Symbol<'a> {
    pub address: u64,
    pub size: u64,
    pub name: &'a [u8],
}

const HEADER: u64 = 64;
const SECTION: u16 = 64;
const NOBITS: u32 = 8;
const NAMES: &[u8] = b"\0.text\0.symtab\0.strtab\0.shstrtab\0.note.gnu.build-id\0";

/// The file's bytes, and its build id: the module's own, or one of the symbols.
pub(crate) fn image(symbols: &[Symbol<'_>], known: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut strings = vec![0_u8];
    let mut table = vec![0_u8; 24];
    for symbol in symbols {
        table.extend((strings.len() as u32).to_le_bytes());
        // A global function, in section 1.
        table.extend([0x12, 0]);
        table.extend(1_u16.to_le_bytes());
        table.extend(symbol.address.to_le_bytes());
        table.extend(symbol.size.to_le_bytes());
        strings.extend(symbol.name.iter().filter(|byte| **byte != 0));
        strings.push(0);
    }
    let mut checks = crc32fast::Hasher::new();
    checks.update(&strings);
    let names = checks.clone().finalize();
    checks.update(&table);
    let mut build_id = known.to_vec();
    if build_id.is_empty() {
        build_id.extend(IMPORTED_BUILD_ID);
        build_id.extend(names.to_be_bytes());
        build_id.extend(checks.finalize().to_be_bytes());
    }
    build_id.resize(build_id.len().next_multiple_of(4), 0);

    let mut note = Vec::new();
    for word in [4, build_id.len() as u32, 3] {
        note.extend(word.to_le_bytes());
    }
    note.extend(b"GNU\0");
    note.extend(&build_id);

    let end = symbols.iter().map(|symbol| symbol.address.saturating_add(symbol.size)).max().unwrap_or(0);
    let start = symbols.iter().map(|symbol| symbol.address).min().unwrap_or(0);
    let note_at = HEADER;
    let table_at = note_at + note.len() as u64;
    let strings_at = table_at + table.len() as u64;
    let names_at = strings_at + strings.len() as u64;
    let sections_at = (names_at + NAMES.len() as u64).next_multiple_of(8);

    let mut file = Vec::with_capacity(sections_at as usize + 6 * usize::from(SECTION));
    // 64 bits, little endian, version 1.
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // A shared object.
    file.extend(3_u16.to_le_bytes());
    file.extend(ELF_MACHINE.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for word in [0, 0, sections_at] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [HEADER as u16, 0, 0, SECTION, 6, 4] {
        file.extend(half.to_le_bytes());
    }
    for part in [&note[..], &table, &strings, NAMES] {
        file.extend(part);
    }
    file.resize(sections_at as usize, 0);
    let name = |text: &[u8]| memchr::memmem::find(NAMES, text).unwrap_or(0) as u32;
    let mut section =
        |name: u32, kind: u32, flags: u64, at: u64, sizes: [u64; 2], rest: [u64; 2], link: [u32; 2]| {
            file.extend(name.to_le_bytes());
            file.extend(kind.to_le_bytes());
            for word in [flags, at, sizes[0], sizes[1]] {
                file.extend(word.to_le_bytes());
            }
            link.iter().for_each(|word| file.extend(word.to_le_bytes()));
            rest.iter().for_each(|word| file.extend(word.to_le_bytes()));
        };
    section(0, 0, 0, 0, [0, 0], [0, 0], [0, 0]);
    section(name(b".text"), NOBITS, 6, start, [HEADER, end - start], [16, 0], [0, 0]);
    section(name(b".symtab"), 2, 0, 0, [table_at, table.len() as u64], [8, 24], [3, 1]);
    section(name(b".strtab"), 3, 0, 0, [strings_at, strings.len() as u64], [1, 0], [0, 0]);
    section(name(b".shstrtab"), 3, 0, 0, [names_at, NAMES.len() as u64], [1, 0], [0, 0]);
    section(name(b".note.gnu.build-id"), 7, 2, 0, [note_at, note.len() as u64], [4, 0], [0, 0]);
    (file, build_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSymbol};

    #[test]
    fn another_reader_finds_the_symbols() {
        let symbols = [
            Symbol { address: 0x1000, size: 16, name: b"a(int)" },
            Symbol { address: 0x1010, size: 16, name: "größe <b>".as_bytes() },
        ];
        let (bytes, build_id) = image(&symbols, &[]);
        let file = object::File::parse(&bytes[..]).unwrap();
        assert_eq!(file.build_id().unwrap(), Some(&build_id[..]));
        let found: Vec<_> =
            file.symbols().map(|s| (s.address(), s.size(), s.name().unwrap().to_owned())).collect();
        assert_eq!(found, [(0x1000, 16, "a(int)".to_owned()), (0x1010, 16, "größe <b>".to_owned())]);
    }
}
