//! The files whose code runs: where it lies in them, how they are unwound, and the vDSO.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use everycall_machine::vdso;
use object::elf::PT_LOAD;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, ReadCache, ReadRef};

use crate::unwind::UnwindFile;

/// Largest section with unwind information that is read.
const SECTION_MAX: u64 = 256 << 20;

/// Code of a file.
#[derive(Debug, Default)]
pub struct Code {
    pub build_id: Vec<u8>,
    pub unwind: UnwindFile,
    /// Loaded parts: the place in the file, its length, and the address.
    parts: Vec<(u64, u64, u64)>,
    /// Functions of the vDSO: address and name, sorted.
    functions: Vec<(u64, String)>,
}

impl Code {
    /// Reads a file of process `pid`. `None` if it can't be read, or isn't an ELF file.
    pub fn read(pid: u32, path: &[u8]) -> Option<Code> {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        // The process may see other files than the recorder.
        let seen: PathBuf = [Path::new("/proc"), Path::new(&pid.to_string()), Path::new("root")]
            .iter()
            .collect::<PathBuf>()
            .join(path.strip_prefix("/").ok()?);
        let file = open(&seen).or_else(|| open(path))?;
        Code::of(&ReadCache::new(file))
    }

    /// Reads the vDSO.
    pub fn of_vdso() -> Option<Code> {
        let bytes = vdso()?;
        let mut code = Code::of(&*bytes)?;
        let file = object::File::parse(&*bytes).ok()?;
        let symbols = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
        code.functions = symbols
            .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned())))
            .filter(|(address, name)| *address != 0 && !name.is_empty())
            .collect();
        // Of two names of a function, the public one comes first.
        code.functions.sort_by(|one, other| (one.0, other.1.as_str()).cmp(&(other.0, one.1.as_str())));
        Some(code)
    }

    fn of<'a, R: ReadRef<'a>>(data: R) -> Option<Code> {
        let header = object::elf::FileHeader64::<LittleEndian>::parse(data).ok()?;
        let endian = LittleEndian;
        let loaded = header.program_headers(endian, data).ok()?.iter();
        let parts = loaded
            .filter(|part| part.p_type(endian) == PT_LOAD)
            .map(|part| (part.p_offset(endian), part.p_filesz(endian), part.p_vaddr(endian)))
            .collect();
        let file = object::File::parse(data).ok()?;
        let section = |name: &str| {
            let section = file.section_by_name(name).filter(|section| section.size() <= SECTION_MAX)?;
            Some((section.uncompressed_data().ok()?.into_owned(), section.address()))
        };
        let address = |name: &str| file.section_by_name(name).map_or(0, |section| section.address());
        let unwind = UnwindFile {
            header: section(".eh_frame_hdr").unwrap_or_default(),
            frames: section(".eh_frame").unwrap_or_default(),
            text: address(".text"),
            got: address(".got"),
            ..UnwindFile::default()
        };
        let build_id = file.build_id().ok().flatten().unwrap_or_default().to_vec();
        Some(Code { build_id, unwind, parts, functions: Vec::new() })
    }

    /// The address of what lies at `offset` of the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let within = |(begin, length, _): &&(u64, u64, u64)| {
            offset.checked_sub(*begin).is_some_and(|distance| distance < *length)
        };
        let (begin, _, address) = self.parts.iter().find(within)?;
        address.checked_add(offset - begin)
    }

    /// The vDSO's function at an address.
    pub fn function(&self, address: u64) -> Option<&str> {
        let behind = self.functions.partition_point(|(begin, _)| *begin <= address);
        let (begin, _) = self.functions.get(behind.checked_sub(1)?)?;
        let of = self.functions.iter().find(|(other, _)| other == begin);
        of.map(|(_, name)| name.as_str())
    }
}

/// Opens a regular file: others may wait, or do something when they are read.
fn open(path: &Path) -> Option<File> {
    fs::metadata(path).ok().filter(|metadata| metadata.is_file())?;
    File::open(path).ok()
}
