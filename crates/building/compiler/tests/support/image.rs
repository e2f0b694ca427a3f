//! The functions of the test programs in a linked file, and the places where they call hooks.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolKind};

/// Tag of the dynamic entry for text relocations.
const DT_TEXTREL: u64 = 22;

/// A place where a hook is called or can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub address: u64,
    pub is_exit: bool,
    /// The function's start, if the file lists it.
    pub function: Option<u64>,
}

pub struct Image {
    /// Start and end of each function, by name; the cold part of `f` is `f.cold`.
    pub functions: BTreeMap<String, (u64, u64)>,
    pub places: Vec<Place>,
    pub is_stack_executable: bool,
    pub has_text_relocations: bool,
}

impl Image {
    /// Reads the test programs' functions and their hooks from a file.
    pub fn read(path: &Path, mode: &str) -> Image {
        Image::read_functions(path, mode, &is_of_the_programs)
    }

    /// Reads those functions whose names `is_counted` accepts, and their hooks, from a file.
    pub fn read_functions(path: &Path, mode: &str, is_counted: &dyn Fn(&str) -> bool) -> Image {
        let data = std::fs::read(path).unwrap();
        let file = ElfFile64::<Endianness>::parse(&*data).unwrap();
        let functions = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0)
            .filter_map(|symbol| {
                Some((symbol.name().ok()?.to_owned(), (symbol.address(), symbol.address() + symbol.size())))
            })
            .filter(|(name, _)| is_counted(name))
            .collect();
        let places = match mode {
            "nops" => nop_sites(&file),
            "xray" => sleds(&file),
            _ => calls(path),
        };
        let endian = file.endian();
        let stack =
            file.elf_program_headers().iter().find(|header| header.p_type(endian) == elf::PT_GNU_STACK);
        let is_stack_executable = stack.is_none_or(|header| header.p_flags(endian).contains(elf::PF_X));
        let has_text_relocations = file.section_by_name(".dynamic").is_some_and(|section| {
            section.data().unwrap().chunks_exact(16).any(|entry| entry[..8] == DT_TEXTREL.to_le_bytes())
        });
        Image { functions, places, is_stack_executable, has_text_relocations }
    }

    /// The function at an address; its cold part counts as a function.
    pub fn function_at(&self, address: u64) -> Option<&str> {
        let found = self.functions.iter().find(|(_, (start, end))| (*start..*end).contains(&address));
        found.map(|(name, _)| whole(name))
    }

    /// The faults of the hooks of this file's functions.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut seen: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for place in &self.places {
            let Some(name) = self.function_at(place.address) else { continue };
            let counts = seen.entry(name).or_default();
            *if place.is_exit { &mut counts.1 } else { &mut counts.0 } += 1;
            if let Some(function) = place.function
                && self.functions.get(name).is_some_and(|(start, _)| *start != function)
                && self.function_at(function) != Some(name)
            {
                complaints.push(format!("a site of {name} is listed for {function:#x}"));
            }
        }
        // Names of one address (C1 and C2 constructors) share what is found under any of them.
        let counts_at = |range: &(u64, u64)| {
            let names = self.functions.iter().filter(|(_, other)| other.0 == range.0);
            names
                .filter_map(|(name, _)| seen.get(whole(name)))
                .fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
        };
        for (name, range) in &self.functions {
            let (entries, exits) = counts_at(range);
            let returns = !name.contains("noreturn");
            if !is_cold(name) && !is_thunk(name) && (entries == 0 || (returns && exits == 0)) {
                complaints.push(format!("{name} has {entries} entries and {exits} exits"));
            }
        }
        complaints
    }
}

fn is_of_the_programs(name: &str) -> bool {
    name == "main"
        || name.starts_with("t_")
        || name.contains("2tt")
        || name.starts_with("_ZL8t_thread")
        || name.starts_with("_ZL15t_through")
}

/// Thunks adjust a pointer and continue in the actual function, which is traced.
pub fn is_thunk(name: &str) -> bool {
    name.starts_with("_ZTh") || name.starts_with("_ZTc") || name.starts_with("_ZTv")
}

fn is_cold(name: &str) -> bool {
    name.contains(".cold")
}

pub fn whole(name: &str) -> &str {
    name.split_once(".cold").map_or(name, |(whole, _)| whole)
}

fn code_at<'a>(file: &ElfFile64<'a, Endianness>, address: u64, size: u64) -> &'a [u8] {
    let holds = |start: u64, len: u64| address >= start && address + size <= start + len;
    let section =
        file.sections().find(|section| holds(section.address(), section.size())).expect("code in a section");
    section.data_range(address, size).unwrap().unwrap()
}

fn nop_sites(file: &ElfFile64<'_, Endianness>) -> Vec<Place> {
    let Some(section) = file.section_by_name("everycall_sites") else { return Vec::new() };
    let (data, base) = (section.data().unwrap(), section.address());
    assert_eq!((data.len() % 12, base % 4), (0, 0));
    let mut places = Vec::new();
    for (index, record) in data.chunks_exact(12).enumerate() {
        let field = |at: usize| i32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        let at = base + 12 * index as u64;
        let address = at.wrapping_add_signed(field(0).into());
        let function = (at + 4).wrapping_add_signed(field(4).into());
        let off = if field(8) == 3 { [0xc3, 0x0f, 0x1f, 0x40, 0] } else { [0x0f, 0x1f, 0x44, 0, 0] };
        assert_eq!(code_at(file, address, 5), off, "site at {address:#x}");
        assert!(field(8) == 3 || address % 8 <= 3, "site at {address:#x} crosses a word");
        assert!((0..=3).contains(&field(8)));
        if field(8) == 3 {
            assert_eq!(code_at(file, address + 5, 1), [0xc3], "behind the exit at {address:#x}");
        }
        if field(8) == 2 {
            // A tail exit is followed by a jump: e9, eb, ff /4, or one with the notrack or bnd
            // prefix.
            let next = code_at(file, address + 5, 2);
            assert!(
                matches!(next, [0xe9 | 0xeb | 0xff | 0x3e | 0xf2 | 0x41, _]),
                "tail exit at {address:#x}: {next:x?}"
            );
        }
        places.push(Place { address, is_exit: field(8) != 0, function: Some(function) });
    }
    places
}

fn sleds(file: &ElfFile64<'_, Endianness>) -> Vec<Place> {
    let Some(section) = file.section_by_name("xray_instr_map") else { return Vec::new() };
    let (data, base) = (section.data().unwrap(), section.address());
    let mut places = Vec::new();
    for (index, record) in data.chunks_exact(32).enumerate() {
        let field = |at: usize| i64::from_le_bytes(record[at..at + 8].try_into().unwrap());
        let at = base + 32 * index as u64;
        let function = (at + 8).wrapping_add_signed(field(8));
        let is_exit = matches!(record[16], 1 | 2);
        places.push(Place { address: at.wrapping_add_signed(field(0)), is_exit, function: Some(function) });
    }
    places
}

/// Direct calls of and jumps to hooks, as the disassembler shows them.
fn calls(path: &Path) -> Vec<Place> {
    let output = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(path).output().unwrap();
    let listing = String::from_utf8_lossy(&output.stdout);
    let place = |line: &str| {
        let (address, rest) = line.split_once(':')?;
        let (_, target) = rest.split_once('<')?;
        let is_exit = match target.trim_end_matches('>') {
            "__fentry__" | "__cyg_profile_func_enter" => false,
            "__return__" | "__cyg_profile_func_exit" => true,
            _ => return None,
        };
        (rest.contains("call") || rest.contains("jmp")).then_some(())?;
        let address = u64::from_str_radix(address.trim(), 16).ok()?;
        Some(Place { address, is_exit, function: None })
    };
    listing.lines().filter_map(place).collect()
}
