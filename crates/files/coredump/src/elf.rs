//! An ELF core: which memory is where in the file, and what its notes say about the process.

use std::collections::BTreeMap;

use everycall_format::until_nul;
use everycall_reader::ReadAt;
use object::elf;

use crate::error::CoreError;

/// Bytes of an ELF header, a program header and a section header.
pub(crate) const FILE_HEADER: usize = 64;
pub(crate) const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
/// The types of program headers and notes that are of interest.
pub(crate) const PT_LOAD: u32 = elf::PT_LOAD.0;
const PT_NOTE: u32 = elf::PT_NOTE.0;
const NT_PRSTATUS: u32 = elf::NT_PRSTATUS.0;
const NT_PRPSINFO: u32 = elf::NT_PRPSINFO.0;
const NT_FILE: u32 = elf::NT_FILE.0;
/// Limit on program headers that are read; kernels write at most 2^24 or so.
const PROGRAM_HEADERS_MAX: u64 = 1 << 24;
/// Program headers that are read together.
const BATCH: u64 = 1024;
/// Limit on notes that are read; there are a few per thread.
const NOTES_MAX: u32 = 1 << 20;
/// Bytes of a list of mapped files.
const FILES_MAX: u64 = 16 << 20;
/// `NT_PRPSINFO`: user, process id, its parent's, command name, the beginning of the command line.
const PSINFO_USER: usize = 16;
const PSINFO_PID: usize = 24;
const PSINFO_PARENT: usize = 28;
const PSINFO_NAME: std::ops::Range<usize> = 40..56;
const PSINFO_ARGUMENTS: std::ops::Range<usize> = 56..136;
/// `NT_PRSTATUS`: signal number in the siginfo, the signal that was being delivered.
const STATUS_SIGINFO: usize = 0;
const STATUS_SIGNAL: usize = 12;

/// Memory of the process that is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Process address of its first byte.
    pub address: u64,
    /// Where its bytes begin in the file.
    pub offset: u64,
    /// How many there are in the file.
    pub size: u64,
}

/// Facts about the process of a core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Process id.
    pub pid: Option<u32>,
    /// Its real user.
    pub user: Option<u32>,
    /// Its parent's; 0 if unknown.
    pub parent: u32,
    /// Command name, of 15 bytes at most.
    pub name: Vec<u8>,
    /// The first 79 bytes of the command line.
    pub arguments: Vec<u8>,
    /// Threads that were alive.
    pub threads: u32,
    /// The signal that the first thread was given, where there was one.
    pub signal: Option<u32>,
    /// Whether that signal ended the process: the kernel made the core. Otherwise a debugger did,
    /// and the process continued.
    pub has_ended: bool,
    /// Paths of mapped files, with the address of their first mapping.
    pub files: Vec<(Vec<u8>, u64)>,
}

impl ProcessFacts {
    /// The process, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let name = String::from_utf8_lossy(&self.name).escape_debug().to_string();
        match (self.pid, name.is_empty()) {
            (Some(pid), false) => format!("{name} (process {pid})"),
            (Some(pid), true) => format!("process {pid}"),
            (None, false) => name,
            (None, true) => "an unnamed process".to_owned(),
        }
    }
}

/// A core's headers and notes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elf {
    /// By address; empty ones are left out.
    pub loads: Vec<Load>,
    pub process: ProcessFacts,
    /// Bytes that the headers declare and the file lacks.
    pub cut: u64,
}

/// Where a core's headers are, from its ELF header.
pub(crate) struct Outline {
    pub program_headers_at: u64,
    /// `None` if it is in the first section header.
    pub program_headers: Option<u64>,
    section_headers_at: u64,
}

/// Reads the ELF header in `bytes`.
pub(crate) fn outline(bytes: &[u8]) -> Result<Outline, CoreError> {
    let Some(header) = bytes.get(..FILE_HEADER) else {
        return Err(CoreError::CutHeaders { available: bytes.len() as u64 });
    };
    if header[4] != elf::ELFCLASS64.0 {
        return Err(CoreError::OtherMachine("a 32-bit program"));
    }
    if header[5] != elf::ELFDATA2LSB.0 {
        return Err(CoreError::OtherMachine("a big-endian machine"));
    }
    if u16_at(header, 16) != elf::ET_CORE.0 {
        return Err(CoreError::NotACore("a program or a library"));
    }
    let (machine, entry) = (u16_at(header, 18), u16_at(header, 54));
    if machine != elf::EM_X86_64.0 && machine != elf::EM_AARCH64.0 {
        return Err(CoreError::OtherMachine("another kind of machine"));
    }
    if usize::from(entry) != PROGRAM_HEADER {
        return Err(CoreError::Broken("its program headers have an unknown size"));
    }
    let count = u16_at(header, 56);
    Ok(Outline {
        program_headers_at: u64_at(header, 32),
        program_headers: (count != elf::PN_XNUM).then_some(count.into()),
        section_headers_at: u64_at(header, 40),
    })
}

/// The program header in `bytes`: its type and the place of its bytes.
pub(crate) fn program_header(bytes: &[u8]) -> (u32, Load) {
    let load = Load { offset: u64_at(bytes, 8), address: u64_at(bytes, 16), size: u64_at(bytes, 32) };
    (u32_at(bytes, 0), load)
}

impl Elf {
    /// Reads headers and notes.
    pub fn read(file: &dyn ReadAt) -> Result<Elf, CoreError> {
        let available = file.size()?;
        let mut header = [0; FILE_HEADER];
        let count = file.read_full_at(0, &mut header)?;
        let outline = outline(&header[..count])?;
        let cut = CoreError::CutHeaders { available };
        let headers = match outline.program_headers {
            Some(count) => count,
            None => {
                let mut section = [0; SECTION_HEADER];
                if file.read_full_at(outline.section_headers_at, &mut section)? < section.len() {
                    return Err(cut);
                }
                u64::from(u32_at(&section, 44))
            }
        };
        if headers == 0 {
            return Err(CoreError::Broken("it has no program headers"));
        }
        let end = headers
            .checked_mul(PROGRAM_HEADER as u64)
            .and_then(|bytes| bytes.checked_add(outline.program_headers_at));
        if headers > PROGRAM_HEADERS_MAX || end.is_none_or(|end| end > available) {
            return Err(cut);
        }
        let mut core = Elf::default();
        let mut notes = Vec::new();
        let mut next = 0;
        while next < headers {
            let batch = BATCH.min(headers - next);
            let mut bytes = vec![0; batch as usize * PROGRAM_HEADER];
            let at = outline.program_headers_at + next * PROGRAM_HEADER as u64;
            let count = file.read_full_at(at, &mut bytes)?;
            for header in bytes[..count].chunks_exact(PROGRAM_HEADER) {
                let (kind, load) = program_header(header);
                let end = load.offset.saturating_add(load.size);
                core.cut = core.cut.max(end.saturating_sub(available));
                match kind {
                    PT_LOAD if load.size > 0 => core.loads.push(load),
                    PT_NOTE => notes.push(load),
                    _ => {}
                }
            }
            next += batch;
        }
        core.loads.sort_by_key(|load| load.address);
        let mut left = NOTES_MAX;
        for note in notes {
            core.process.read_notes(file, note, &mut left)?;
        }
        Ok(core)
    }

    /// Whether the list of mapped files has `name` in one of its paths.
    pub fn maps_file(&self, name: &[u8]) -> bool {
        self.process.files.iter().any(|(path, _)| path.windows(name.len()).any(|part| part == name))
    }
}

impl ProcessFacts {
    /// The path of its crash file, if it mapped one.
    pub(crate) fn crash_file(&self) -> Option<String> {
        let mut paths = self.files.iter().map(|(path, _)| path);
        let found = paths.find(|path| path.ends_with(everycall_format::crash::ENDING.as_bytes()))?;
        Some(String::from_utf8_lossy(found).escape_debug().to_string())
    }

    fn read_notes(&mut self, file: &dyn ReadAt, notes: Load, left: &mut u32) -> Result<(), CoreError> {
        let end = notes.offset.saturating_add(notes.size);
        let mut at = notes.offset;
        while at < end && *left > 0 {
            *left -= 1;
            let mut header = [0; 12];
            if file.read_full_at(at, &mut header)? < header.len() {
                break;
            }
            let padded = |size: u32| u64::from(size).next_multiple_of(4);
            let (name, size) = (padded(u32_at(&header, 0)), u32_at(&header, 4));
            let data_at = at.saturating_add(12).saturating_add(name);
            at = data_at.saturating_add(padded(size));
            let limit = match u32_at(&header, 8) {
                NT_PRSTATUS => 32,
                NT_PRPSINFO => PSINFO_ARGUMENTS.end as u64,
                NT_FILE => FILES_MAX,
                _ => continue,
            };
            // At most the file's size: sizes in it aren't trusted.
            let length = u64::from(size).min(limit).min(file.size()?.saturating_sub(data_at));
            let mut data = vec![0; length as usize];
            let count = file.read_full_at(data_at, &mut data)?;
            data.truncate(count);
            match u32_at(&header, 8) {
                NT_PRSTATUS => self.read_status(&data),
                NT_PRPSINFO => self.read_info(&data),
                _ => self.read_files(&data),
            }
        }
        Ok(())
    }

    /// The first thread's is that of the thread which the signal was for.
    fn read_status(&mut self, data: &[u8]) {
        self.threads += 1;
        let signal = u32::from(u16_at(data, STATUS_SIGNAL));
        if self.threads == 1 && signal > 0 {
            self.signal = Some(signal);
            // Debuggers leave this one empty.
            self.has_ended = u32_at(data, STATUS_SIGINFO) == signal;
        }
    }

    fn read_info(&mut self, data: &[u8]) {
        let text = |range: std::ops::Range<usize>| {
            let bytes = data.get(range).unwrap_or_default();
            until_nul(bytes).to_vec()
        };
        self.user = Some(u32_at(data, PSINFO_USER));
        self.pid = Some(u32_at(data, PSINFO_PID)).filter(|pid| *pid != 0);
        self.parent = u32_at(data, PSINFO_PARENT);
        self.name = text(PSINFO_NAME);
        self.arguments = text(PSINFO_ARGUMENTS);
    }

    /// Count and page size; begin, end and place in the file of each mapping; then their paths.
    fn read_files(&mut self, data: &[u8]) {
        let entries = data.get(16..).unwrap_or_default();
        let count = usize::try_from(u64_at(data, 0)).unwrap_or(usize::MAX).min(entries.len() / 24);
        let paths = entries.get(count * 24..).unwrap_or_default().split(|byte| *byte == 0);
        let mut first: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (entry, path) in entries.chunks_exact(24).take(count).zip(paths) {
            let begin = u64_at(entry, 0);
            let known = first.entry(path).or_insert(begin);
            *known = begin.min(*known);
        }
        self.files.extend(first.into_iter().map(|(path, begin)| (path.to_vec(), begin)));
    }
}

/// The number at `at`; 0 beyond the end.
fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(number(bytes, at))
}
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number(bytes, at))
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(number(bytes, at))
}
