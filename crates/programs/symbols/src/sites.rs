//! Whether an ELF file can be traced, and how: what `record` decides with.

use std::fmt;
use std::path::{Path, PathBuf};

use everycall_format::arch::Machine;
use everycall_format::site::{
    NOTE_MODULE, NOTE_OWNER, NOTE_RUNTIME, NOTE_SECTION, SITES_SECTION, XRAY_SECTION,
};
use object::read::elf::{Dyn, ProgramHeader, SectionHeader};
use object::{LittleEndian, Object, ObjectSection, elf};

use crate::elf::{Elf, bytes_at, string_at, strings_of};
use crate::file_bytes::FileBytes;

/// Names of the functions that plain hooks call.
const PLAIN_HOOKS: [&[u8]; 4] =
    [b"__fentry__", b"__return__", b"__cyg_profile_func_enter", b"__cyg_profile_func_exit"];

/// How an object is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// An executable without dynamic linker, at a fixed address.
    Static,
    /// A position-independent executable without dynamic linker.
    StaticPie,
    /// An executable with dynamic linker, at a fixed address.
    Dynamic,
    /// A position-independent executable with dynamic linker.
    DynamicPie,
    /// A shared object.
    Shared,
    /// Neither program nor library: an object file or a core.
    Other,
}

/// Contents of everycall's note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoteReport {
    /// The object carries the runtime itself, rather than the part that finds it.
    pub is_runtime: bool,
    /// Version of the table through which modules and runtime meet; zero for the module part
    /// without one.
    pub abi: u32,
}

/// Facts of an ELF file that matter for tracing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteReport {
    /// The machine, as the ELF header states it.
    pub machine: u16,
    /// Whether the file is of the 64-bit class. The rest is filled in for 64-bit little-endian
    /// files only.
    pub is_64_bit: bool,
    /// How it is linked.
    pub link: LinkKind,
    /// The dynamic linker that the program requests.
    pub interpreter: Option<PathBuf>,
    /// Sites of mode `nops`.
    pub site_count: u64,
    /// XRay sleds.
    pub xray_sled_count: u64,
    /// Plain hooks that the file calls and expects from elsewhere.
    pub hooks_undefined: bool,
    /// Plain hooks that the file defines itself.
    pub hooks_defined: bool,
    /// Whether BOLT rewrote the file after its link: it moves code, and doesn't know of lists of
    /// sites.
    pub is_rewritten: bool,
    /// The note of everycall, if the file has one.
    pub note: Option<NoteReport>,
    /// Whether the file has its symbol table, rather than being stripped.
    pub has_symbols: bool,
}

impl SiteReport {
    /// Whether programs for the file's machine can be traced.
    pub fn is_supported(&self) -> bool {
        self.is_64_bit && Machine::of_elf(self.machine).is_some()
    }

    /// Whether it was linked through the prefix, and certainly has no code that was compiled
    /// through it. (Without symbols, calls of plain hooks can't be recognized.) The caller knows
    /// whether definitions of plain hooks are called.
    pub fn is_linked_only(&self) -> bool {
        self.note.is_some()
            && self.has_symbols
            && self.site_count + self.xray_sled_count == 0
            && !self.hooks_undefined
    }

    /// Whether sites or sleds are listed that lie elsewhere by now.
    #[must_use]
    pub fn has_moved_sites(&self) -> bool {
        self.is_rewritten && self.site_count + self.xray_sled_count > 0
    }

    /// Whether any function of the file can report its calls.
    pub fn is_traceable(&self) -> bool {
        self.site_count > 0 || self.xray_sled_count > 0 || self.hooks_undefined || self.hooks_defined
    }
}

/// Why there is no [`SiteReport`].
#[derive(Debug)]
#[non_exhaustive]
pub enum SiteError {
    /// The file can't be read.
    Unreadable(PathBuf, std::io::Error),
    /// The file is not an ELF file; a script, perhaps.
    NotElf(PathBuf),
    /// The ELF headers are damaged.
    Damaged(PathBuf, String),
}

impl fmt::Display for SiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => {
                write!(f, "{} can't be read ({error}); name a program that you may read", path.display())
            }
            Self::NotElf(path) => write!(
                f,
                "{} is not an ELF file, so it has no functions to trace; name a compiled program, or the one that it starts",
                path.display()
            ),
            Self::Damaged(path, reason) => {
                write!(f, "{} is a damaged ELF file ({reason}); link it again", path.display())
            }
        }
    }
}

impl std::error::Error for SiteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(_, error) => Some(error),
            _ => None,
        }
    }
}

/// Reports on the file at `path`.
///
/// # Errors
///
/// Where it can't be read, is no ELF file, or has damaged headers.
pub fn site_report(path: &Path) -> Result<SiteReport, SiteError> {
    let (bytes, _) =
        FileBytes::open(path).map_err(|error| SiteError::Unreadable(path.to_path_buf(), error))?;
    site_report_of_image(&bytes, path)
}

/// Reports on the bytes of an ELF file; `path` is for error messages only.
///
/// # Errors
///
/// Where it is no ELF file, or has damaged headers.
pub fn site_report_of_image(image: &[u8], path: &Path) -> Result<SiteReport, SiteError> {
    if !image.starts_with(&elf::ELFMAG) {
        return Err(SiteError::NotElf(path.to_path_buf()));
    }
    let damaged = |reason: String| SiteError::Damaged(path.to_path_buf(), reason);
    let (Some(&class), Some(&order), Some(machine)) = (image.get(4), image.get(5), image.get(18..20)) else {
        return Err(damaged("its header is cut short".to_owned()));
    };
    let is_little = order == elf::ELFDATA2LSB.0;
    let machine = [machine[0], machine[1]];
    let mut report = SiteReport {
        machine: if is_little { u16::from_le_bytes(machine) } else { u16::from_be_bytes(machine) },
        is_64_bit: class == elf::ELFCLASS64.0,
        link: LinkKind::Other,
        interpreter: None,
        site_count: 0,
        xray_sled_count: 0,
        hooks_undefined: false,
        hooks_defined: false,
        is_rewritten: false,
        note: None,
        has_symbols: false,
    };
    if !report.is_64_bit || !is_little {
        return Ok(report);
    }
    let elf = crate::elf::parse(image).map_err(damaged)?;
    report.interpreter = interpreter(&elf);
    report.link = link_kind(&elf, report.interpreter.is_some());
    report.site_count = section_size(&elf, SITES_SECTION) / 12;
    report.xray_sled_count = section_size(&elf, XRAY_SECTION) / 32;
    (report.hooks_undefined, report.hooks_defined) = plain_hooks(&elf);
    report.is_rewritten = is_rewritten(&elf);
    report.note = note(&elf);
    report.has_symbols = !elf.elf_symbol_table().is_empty();
    Ok(report)
}

/// Sections that BOLT leaves: its note, and the code that it replaced.
const BOLT_SECTIONS: [&str; 2] = [".note.bolt_info", ".bolt.org.text"];

fn is_rewritten(elf: &Elf<'_>) -> bool {
    BOLT_SECTIONS.iter().any(|name| elf.section_by_name(name).is_some())
}

/// Whether a file lists sites or sleds that lie elsewhere by now.
pub(crate) fn has_moved_sites(elf: &Elf<'_>) -> bool {
    is_rewritten(elf) && [SITES_SECTION, XRAY_SECTION].iter().any(|name| section_size(elf, name) > 0)
}

fn section_size(elf: &Elf<'_>, name: &str) -> u64 {
    elf.section_by_name(name).map_or(0, |section| section.size())
}

fn interpreter(elf: &Elf<'_>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = elf
        .elf_program_headers()
        .iter()
        .find_map(|header| header.interpreter(LittleEndian, elf.data()).ok()?)?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
}

fn link_kind(elf: &Elf<'_>, has_interpreter: bool) -> LinkKind {
    let is_program = dynamic_value(elf, elf::DT_FLAGS_1).is_some_and(|flags| flags & elf::DF_1_PIE.0 != 0);
    match (elf.elf_header().e_type.get(LittleEndian), has_interpreter) {
        (elf::ET_EXEC, false) => LinkKind::Static,
        (elf::ET_EXEC, true) => LinkKind::Dynamic,
        (elf::ET_DYN, true) if is_program || dynamic_value(elf, elf::DT_SONAME).is_none() => {
            LinkKind::DynamicPie
        }
        (elf::ET_DYN, false) if is_program => LinkKind::StaticPie,
        // libc.so.6 and the like are shared objects that can also be run.
        (elf::ET_DYN, _) => LinkKind::Shared,
        _ => LinkKind::Other,
    }
}

fn dynamic_value(elf: &Elf<'_>, tag: elf::DynamicTag) -> Option<u64> {
    let entries = elf
        .elf_program_headers()
        .iter()
        .find_map(|header| header.dynamic(LittleEndian, elf.data()).ok()?)?;
    entries.iter().find(|entry| entry.d_tag(LittleEndian) == tag).map(|entry| entry.d_val.get(LittleEndian))
}

/// Whether plain hooks are (undefined, defined) in either symbol table. A tool that only defines
/// them, such as a library of hooks, calls none: definitions count where the file also has code
/// that isn't the hooks, which the caller knows from the note.
fn plain_hooks(elf: &Elf<'_>) -> (bool, bool) {
    let (mut undefined, mut defined) = (false, false);
    for table in [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()] {
        let strings = strings_of(elf, table);
        for symbol in table.iter() {
            let name = string_at(strings, symbol.st_name.get(LittleEndian), 64);
            if name.is_some_and(|name| PLAIN_HOOKS.contains(&name)) {
                let here = object::read::elf::Sym::st_shndx(symbol, LittleEndian) != elf::SHN_UNDEF;
                defined |= here;
                undefined |= !here;
            }
        }
    }
    (undefined, defined)
}

fn note(elf: &Elf<'_>) -> Option<NoteReport> {
    let (_, section) = elf.elf_section_table().section_by_name(LittleEndian, NOTE_SECTION.as_bytes())?;
    let mut notes = section.notes(LittleEndian, elf.data()).ok()??;
    let mut found: Option<NoteReport> = None;
    while let Ok(Some(note)) = notes.next() {
        let kind = note.n_type(LittleEndian).0;
        if note.name() != NOTE_OWNER.as_bytes() || kind != NOTE_RUNTIME && kind != NOTE_MODULE {
            continue;
        }
        let abi = note.desc().first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        // An object with both parts counts as one with the runtime.
        if found.is_none_or(|found| !found.is_runtime) {
            found = Some(NoteReport { is_runtime: kind == NOTE_RUNTIME, abi });
        }
    }
    found
}

/// One entry of a site list.
#[derive(Clone, Copy)]
pub(crate) struct SiteEntry {
    /// Of the site or sled.
    pub address: u64,
    /// Start of its function.
    pub function: u64,
    /// As the list has it.
    pub kind: u32,
}

/// The entries of the site list in this section, in its order.
pub(crate) fn entries(elf: &Elf<'_>, section_name: &str) -> Vec<SiteEntry> {
    let Some((base, data)) = list(elf, section_name) else { return Vec::new() };
    if section_name == XRAY_SECTION {
        return data
            .chunks_exact(32)
            .zip((base..).step_by(32))
            .filter_map(|(entry, at)| {
                let distance =
                    |from: usize| Some(i64::from_le_bytes(*entry.get(from..)?.first_chunk::<8>()?));
                Some(SiteEntry {
                    address: at.wrapping_add_signed(distance(0)?),
                    function: at.wrapping_add(8).wrapping_add_signed(distance(8)?),
                    kind: (*entry.get(16)?).into(),
                })
            })
            .collect();
    }
    data.chunks_exact(12)
        .zip((base..).step_by(12))
        .filter_map(|(entry, at)| {
            let word = |from: usize| entry.get(from..)?.first_chunk::<4>();
            let distance = |from: usize| Some(i64::from(i32::from_le_bytes(*word(from)?)));
            Some(SiteEntry {
                address: at.wrapping_add_signed(distance(0)?),
                function: at.wrapping_add(4).wrapping_add_signed(distance(4)?),
                kind: u32::from_le_bytes(*word(8)?),
            })
        })
        .collect()
}

/// Address and bytes of a site list.
fn list<'d>(elf: &Elf<'d>, section_name: &str) -> Option<(u64, &'d [u8])> {
    let section = elf.section_by_name(section_name)?;
    let (offset, size) = section.file_range()?;
    Some((section.address(), bytes_at(elf.data(), offset, size)?))
}
