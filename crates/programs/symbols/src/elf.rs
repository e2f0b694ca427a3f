//! The parts of an ELF file that name functions: 64-bit little-endian, as the traced machines are.

use std::borrow::Cow;
use std::ops::Range;

use everycall_format::arch::Machine;
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, SectionHeader, SymbolTable};
use object::{CompressionFormat, LittleEndian, Object, ObjectSection, ReadRef, SectionIndex, elf};

use crate::budget::MEMORY_BASE_BYTES;

/// Longer linker names are treated as damage: reading them again and again would take quadratic
/// time.
const NAME_SIZE_MAX: usize = 32 << 10;

pub(crate) type Elf<'d> = ElfFile64<'d, LittleEndian>;

/// A symbol of executable code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeSymbol<'d> {
    pub start: u64,
    pub size: u64,
    pub name: &'d [u8],
    pub kind: elf::SymbolType,
    pub bind: elf::SymbolBind,
}

/// The file's machine; `None` if its programs can't be traced.
pub(crate) fn machine_of(elf: &Elf<'_>) -> Option<Machine> {
    Machine::of_elf(elf.elf_header().e_machine.get(LittleEndian).0)
}

/// Parses headers; the sentence says why not.
pub(crate) fn parse(data: &[u8]) -> Result<Elf<'_>, String> {
    if !data.starts_with(&elf::ELFMAG) {
        return Err("it is not an ELF file".to_owned());
    }
    if data.get(4) != Some(&elf::ELFCLASS64.0) || data.get(5) != Some(&elf::ELFDATA2LSB.0) {
        return Err("it is an ELF file of another class or byte order".to_owned());
    }
    Elf::parse(data).map_err(|error| format!("its headers are damaged ({error})"))
}

/// The GNU build id; empty if there is none.
pub(crate) fn build_id<'d>(elf: &Elf<'d>) -> &'d [u8] {
    elf.build_id().ok().flatten().unwrap_or_default()
}

/// Address ranges and indices of the sections that contain code.
pub(crate) struct CodeSections {
    /// By section index.
    ranges: Vec<Range<u64>>,
}

impl CodeSections {
    pub(crate) fn of(elf: &Elf<'_>) -> Self {
        let flags = elf::SHF_ALLOC | elf::SHF_EXECINSTR;
        let ranges = elf
            .elf_section_table()
            .iter()
            .map(|section| {
                let start = section.sh_addr.get(LittleEndian);
                let is_code = section.sh_flags.get(LittleEndian) & flags == flags;
                let size = if is_code { section.sh_size.get(LittleEndian) } else { 0 };
                start..start.saturating_add(size)
            })
            .collect();
        Self { ranges }
    }

    /// The code section that contains `address`. Sections are few, except in the objects of hostile
    /// files: addresses beyond the first thousand sections have no result.
    pub(crate) fn holding(&self, address: u64) -> Option<&Range<u64>> {
        self.ranges.iter().take(1024).find(|range| range.contains(&address))
    }

    fn by_index(&self, index: SectionIndex) -> Option<&Range<u64>> {
        self.ranges.get(index.0).filter(|range| !range.is_empty())
    }
}

/// The symbols of `.symtab` or `.dynsym` that are in code sections and have a name.
pub(crate) fn code_symbols<'d>(
    elf: &Elf<'d>,
    code: &CodeSections,
    dynamic: bool,
) -> impl Iterator<Item = CodeSymbol<'d>> {
    let table = if dynamic { elf.elf_dynamic_symbol_table() } else { elf.elf_symbol_table() };
    let strings = strings_of(elf, table);
    table.enumerate().filter_map(move |(index, symbol)| {
        let kind = symbol.st_type();
        if !matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE) {
            return None;
        }
        let section = table.symbol_section(LittleEndian, symbol, index).ok()??;
        let start = symbol.st_value.get(LittleEndian);
        code.by_index(section)?.contains(&start).then_some(())?;
        let name = string_at(strings, symbol.st_name.get(LittleEndian), NAME_SIZE_MAX)?;
        // Mapping symbols of arm64, and labels that assemblers write into the symbol table.
        if name.is_empty() || kind == elf::STT_NOTYPE && (name[0] == b'$' || name.starts_with(b".L")) {
            return None;
        }
        Some(CodeSymbol { start, size: symbol.st_size.get(LittleEndian), name, kind, bind: symbol.st_bind() })
    })
}

/// The strings that contain the names of a symbol table's symbols.
pub(crate) fn strings_of<'d>(elf: &Elf<'d>, table: &SymbolTable<'d, FileHeader64<LittleEndian>>) -> &'d [u8] {
    let section = elf.elf_section_table().section(table.string_section()).ok();
    section.and_then(|section| section.data(LittleEndian, elf.data()).ok()).unwrap_or_default()
}

/// The NUL-terminated name of less than `size_max` bytes at `offset`, without `@VERSION`.
pub(crate) fn string_at(strings: &[u8], offset: u32, size_max: usize) -> Option<&[u8]> {
    let rest = strings.get(offset as usize..)?;
    let rest = &rest[..rest.len().min(size_max)];
    let name = &rest[..memchr::memchr(0, rest)?];
    let version = memchr::memchr(b'@', name).filter(|&at| at > 0);
    Some(&name[..version.unwrap_or(name.len())])
}

/// Memory that decompressed sections may take.
#[derive(Debug)]
pub(crate) struct InflateBudget {
    left: u64,
}

impl InflateBudget {
    /// Honest compression makes debugging information three to four times smaller, and the rest of
    /// the file isn't compressed.
    pub(crate) fn for_file(size: usize) -> Self {
        Self { left: MEMORY_BASE_BYTES / 4 + 3 * size as u64 }
    }
}

/// Contents of a section, decompressed where they are compressed (zlib, zstd, and GNU's older
/// `.zdebug`). Empty where there is no such section.
///
/// # Errors
///
/// A sentence, where the contents are damaged or too large.
pub(crate) fn section<'d>(
    elf: &Elf<'d>,
    name: &str,
    budget: &mut InflateBudget,
) -> Result<Cow<'d, [u8]>, String> {
    let Some(section) = elf.section_by_name(name) else { return Ok(Cow::Borrowed(&[])) };
    let damaged = |error| format!("section {name} is damaged: {error}");
    let compressed = section.compressed_data().map_err(damaged)?;
    if compressed.format == CompressionFormat::None {
        return Ok(Cow::Borrowed(compressed.data));
    }
    match budget.left.checked_sub(compressed.uncompressed_size) {
        Some(left) => budget.left = left,
        None => {
            return Err(format!(
                "section {name} claims {} bytes when decompressed, more than a file of this size may hold",
                compressed.uncompressed_size
            ));
        }
    }
    compressed.decompress().map_err(damaged)
}

/// The offset of `part` in `whole`; `None` if `part` isn't inside.
pub(crate) fn range_within(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

/// Reads `size` bytes at `offset`.
pub(crate) fn bytes_at(data: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    data.read_bytes_at(offset, size).ok()
}
