//! Code of processes: which file was mapped where and when, its bytes and its functions.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use everycall_intel_pt::{Code as Blocks, Image};
use everycall_machine::vdso;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use rustc_hash::FxHashMap;

use super::file::FileName;

/// The largest program or library that is read.
const FILE_MAX: u64 = 4 << 30;

/// A program's or library's file.
#[derive(Debug, Default)]
pub(crate) struct CodeFile {
    bytes: Vec<u8>,
    /// Functions, by their place in the file: first byte, the byte behind it, and the first byte of
    /// the function that it belongs to.
    functions: Vec<(u64, u64, u64)>,
    /// Parts that are loaded: place in the file, size, address.
    segments: Vec<(u64, u64, u64)>,
    pub build_id: Vec<u8>,
}

impl CodeFile {
    /// The file's bytes, if they are those of a program or library.
    pub fn new(bytes: Vec<u8>) -> Option<CodeFile> {
        let mut file = CodeFile::default();
        {
            let parsed = object::File::parse(&bytes[..]).ok()?;
            file.build_id = parsed.build_id().ok().flatten().unwrap_or_default().to_vec();
            file.segments = parsed
                .segments()
                .map(|segment| {
                    let (at, size) = segment.file_range();
                    (at, size, segment.address())
                })
                .collect();
            let mut found: Vec<(u64, u64, &[u8])> = Vec::new();
            for symbol in parsed.symbols().chain(parsed.dynamic_symbols()) {
                let is_function = symbol.kind() == SymbolKind::Text && symbol.is_definition();
                if is_function && let Some(at) = file.place(symbol.address()) {
                    let name = symbol.name_bytes().unwrap_or_default();
                    found.push((at, at.saturating_add(symbol.size()), name));
                }
            }
            found.sort_unstable();
            let exact: FxHashMap<&[u8], u64> = found.iter().map(|(start, _, name)| (*name, *start)).collect();
            found.dedup_by_key(|(start, _, _)| *start);
            let starts: Vec<u64> = found.iter().map(|(start, _, _)| *start).collect();
            // Code without a symbol's size ends where its section or the next function does.
            let sections: Vec<(u64, u64)> = parsed
                .sections()
                .filter_map(|section| section.file_range())
                .map(|(at, size)| (at, at.saturating_add(size)))
                .collect();
            for (index, (start, end, name)) in found.iter().enumerate() {
                let end = if end > start {
                    *end
                } else {
                    let next = starts.get(index + 1).copied().unwrap_or(u64::MAX);
                    let section = sections.iter().find(|(at, end)| (*at..*end).contains(start));
                    next.min(section.map_or(*start, |(_, end)| *end))
                };
                let whole = exact.get(whole_name(name)).copied().unwrap_or(*start);
                file.functions.push((*start, end, whole));
            }
        }
        file.bytes = bytes;
        Some(file)
    }

    fn place(&self, address: u64) -> Option<u64> {
        let holds =
            |(_, size, start): &&(u64, u64, u64)| address.checked_sub(*start).is_some_and(|at| at < *size);
        self.segments.iter().find(holds).map(|(at, _, start)| (address - start).wrapping_add(*at))
    }

    /// By how much addresses are higher than in the file, if its byte at `offset` is at `address`.
    pub fn bias(&self, address: u64, offset: u64) -> u64 {
        let holds = |(at, size, _): &&(u64, u64, u64)| {
            // Mappings begin at a page.
            offset.checked_add(4095).is_some_and(|end| end >= *at) && offset < at.saturating_add(*size)
        };
        let of = self.segments.iter().filter(holds).max_by_key(|(at, _, _)| *at);
        let (at, _, start) = of.copied().unwrap_or((offset, 0, offset));
        address.wrapping_sub(offset).wrapping_sub(start.wrapping_sub(at))
    }

    fn function(&self, place: u64) -> Option<u64> {
        let index = self.functions.partition_point(|(start, _, _)| *start <= place).checked_sub(1)?;
        let (_, end, whole) = self.functions.get(index)?;
        (place < *end).then_some(*whole)
    }
}

/// A function's name without the mark of the part that compilers move away because it is rarely
/// run.
fn whole_name(name: &[u8]) -> &[u8] {
    let cut = memchr::memmem::rfind(name, b".cold").filter(|at| *at > 0);
    cut.and_then(|at| name.get(..at)).unwrap_or(name)
}

/// Files that were mapped into any process.
pub(crate) struct Files {
    names: Vec<FileName>,
    loaded: FxHashMap<u32, Option<Rc<CodeFile>>>,
    pub notes: Vec<String>,
}

impl Files {
    pub fn new(names: Vec<FileName>) -> Files {
        Files { names, loaded: FxHashMap::default(), notes: Vec::new() }
    }

    pub fn name(&self, number: u32) -> Option<&FileName> {
        self.names.get(number as usize)
    }

    /// The file with this number, if the build that ran is there.
    pub fn load(&mut self, number: u32) -> Option<Rc<CodeFile>> {
        if let Some(file) = self.loaded.get(&number) {
            return file.clone();
        }
        let name = self.names.get(number as usize).cloned().unwrap_or_default();
        let found = self.find(&name).map(Rc::new);
        self.loaded.insert(number, found.clone());
        found
    }

    fn find(&mut self, name: &FileName) -> Option<CodeFile> {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(&name.path));
        let shown = everycall_io::terminal::line(&String::from_utf8_lossy(&name.path)).into_owned();
        let hex: String = name.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        // Where perf keeps copies of what it recorded.
        let kept = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".debug"));
        if let Some(kept) = kept.filter(|_| hex.len() > 2) {
            let below = kept.join(".build-id").join(&hex[..2]).join(&hex[2..]);
            for file in ["elf", "vdso"] {
                let bytes = everycall_io::infile::read(&below.join(file), FILE_MAX).ok();
                let found = bytes.and_then(CodeFile::new).filter(|file| file.build_id == name.build_id);
                if found.is_some() {
                    return found;
                }
            }
        }
        if name.path.starts_with(b"[vdso") {
            let own = vdso().and_then(CodeFile::new);
            let found = own.filter(|file| name.build_id.is_empty() || file.build_id == name.build_id);
            if found.is_none() {
                self.notes.push(
                    "the kernel's vdso isn't that of the recording: calls in it are missing".to_owned(),
                );
            }
            return found;
        }
        if !name.path.starts_with(b"/") || name.path.starts_with(b"//") {
            return None;
        }
        let bytes = match everycall_io::infile::read(path, FILE_MAX) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.notes.push(format!("{shown} can't be read ({error}): calls in it are missing"));
                return None;
            }
        };
        let Some(file) = CodeFile::new(bytes) else {
            self.notes.push(format!("{shown} is no program or library: calls in it are missing"));
            return None;
        };
        if !name.build_id.is_empty() && !file.build_id.is_empty() && file.build_id != name.build_id {
            let its: String = file.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
            self.notes.push(format!(
                "{shown} is another build than the one that ran (build id {its} instead of {hex}): calls in it are missing"
            ));
            return None;
        }
        Some(file)
    }
}

/// A file, mapped.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub number: u32,
    /// In ticks.
    pub from: u64,
    pub file: Option<Rc<CodeFile>>,
}

/// Code of a process.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// By their first addresses; none overlap.
    pub maps: Vec<Map>,
    /// Those that replace others later, the next one last.
    later: Vec<Map>,
    pub blocks: Blocks,
}

impl Space {
    /// A process with these mapped files, in the order of their times.
    pub fn new(maps: Vec<Map>) -> Space {
        let mut space = Space::default();
        for map in maps {
            // A mapping that replaces nothing may be known from the beginning: times have bounds.
            if space.is_free(&map) { space.insert(map) } else { space.later.push(map) }
        }
        space.later.reverse();
        space
    }

    fn is_free(&self, map: &Map) -> bool {
        let overlaps = |other: &Map| other.start < map.end && map.start < other.end;
        !self.maps.iter().any(overlaps) && !self.later.iter().any(overlaps)
    }

    fn insert(&mut self, map: Map) {
        let mut parts = Vec::new();
        self.maps.retain(|other| {
            if other.end <= map.start || other.start >= map.end {
                return true;
            }
            if other.start < map.start {
                parts.push(Map { end: map.start, ..other.clone() });
            }
            if other.end > map.end {
                let offset = other.offset.wrapping_add(map.end - other.start);
                parts.push(Map { start: map.end, offset, ..other.clone() });
            }
            false
        });
        self.maps.extend(parts);
        self.maps.sort_by_key(|map| map.start);
        let index = self.maps.partition_point(|other| other.start < map.start);
        self.maps.insert(index, map);
    }

    /// Maps what was mapped up to this time.
    pub fn reach(&mut self, ticks: u64, files: &mut Files) {
        while self.later.last().is_some_and(|map| map.from <= ticks) {
            let Some(map) = self.later.pop() else { break };
            self.insert(map);
            self.load(files);
            self.blocks.clear();
        }
    }

    /// Reads the mapped files.
    pub fn load(&mut self, files: &mut Files) {
        for map in &mut self.maps {
            if map.file.is_none() {
                map.file = files.load(map.number);
            }
        }
    }
}

/// The mapped files of a process.
pub(crate) struct Maps<'m>(pub &'m [Map]);

impl Maps<'_> {
    pub fn find(&self, address: u64) -> Option<&Map> {
        let index = self.0.partition_point(|map| map.start <= address).checked_sub(1)?;
        self.0.get(index).filter(|map| address < map.end)
    }
}

impl Image for Maps<'_> {
    fn bytes(&self, address: u64) -> &[u8] {
        let found = self.find(address).and_then(|map| {
            let start = usize::try_from((address - map.start).wrapping_add(map.offset)).ok()?;
            let end = usize::try_from((map.end - map.start).wrapping_add(map.offset)).ok()?;
            let bytes = &map.file.as_ref()?.bytes;
            bytes.get(start..end.min(bytes.len()))
        });
        found.unwrap_or_default()
    }

    fn function(&self, address: u64) -> u64 {
        let found = self.find(address).and_then(|map| {
            let start = map.file.as_ref()?.function((address - map.start).wrapping_add(map.offset))?;
            Some(start.wrapping_sub(map.offset).wrapping_add(map.start))
        });
        found.unwrap_or(0)
    }
}
