//! Code of processes: which file was mapped where and when, its bytes and its functions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use everycall_intel_pt::{Code as Blocks, Image};
use everycall_machine::vdso;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SymbolKind};
use rustc_hash::FxHashMap;

use super::file::{FileName, is_dump};

/// The largest program or library that is read.
const FILE_MAX: u64 = 4 << 30;
/// The number of a mapping of generated code, which no file has.
pub(crate) const GENERATED: u32 = u32::MAX;

/// A program's or library's file.
#[derive(Debug, Default)]
pub(crate) struct CodeFile {
    bytes: Arc<Vec<u8>>,
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
            if file.segments.is_empty() {
                // Files that `perf inject --jit` makes have sections only.
                let texts = parsed.sections().filter(|section| section.kind() == SectionKind::Text);
                let place = |section: object::Section<'_, '_>| {
                    section.file_range().map(|(at, size)| (at, size, section.address()))
                };
                file.segments = texts.filter_map(place).collect();
            }
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
        file.bytes = Arc::new(bytes);
        Some(file)
    }

    /// Code that a compiler wrote into a file of its own: place and size of each function.
    pub fn of_generated(bytes: Arc<Vec<u8>>, parts: &[(u64, u64)]) -> CodeFile {
        let mut functions: Vec<(u64, u64, u64)> =
            parts.iter().map(|(at, size)| (*at, at.saturating_add(*size), *at)).collect();
        functions.sort_unstable();
        functions.dedup();
        CodeFile { bytes, functions, ..CodeFile::default() }
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
#[derive(Debug)]
pub(crate) struct Files {
    names: Vec<FileName>,
    loaded: Mutex<Loaded>,
}

#[derive(Debug, Default)]
struct Loaded {
    files: FxHashMap<u32, Option<Arc<CodeFile>>>,
    /// By the file's number, as several threads load files.
    notes: BTreeMap<u32, String>,
}

impl Files {
    pub fn new(names: Vec<FileName>) -> Files {
        Files { names, loaded: Mutex::default() }
    }

    pub fn name(&self, number: u32) -> Option<&FileName> {
        self.names.get(number as usize)
    }

    /// Whether a mapping has no file: memory, in which code may be generated later.
    pub fn is_memory(&self, number: u32) -> bool {
        let path = self.name(number).map_or(&b""[..], |name| &name.path);
        path.is_empty()
            || [&b"//"[..], b"[heap", b"[stack", b"[anon"].iter().any(|text| path.starts_with(text))
            || is_dump(path)
    }

    /// The file with this number, if the build that ran is there.
    pub fn load(&self, number: u32) -> Option<Arc<CodeFile>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = loaded.files.get(&number) {
            return file.clone();
        }
        let name = self.names.get(number as usize).cloned().unwrap_or_default();
        let mut note = None;
        let found = find(&name, &mut note).map(Arc::new);
        loaded.notes.extend(note.map(|note| (number, note)));
        loaded.files.insert(number, found.clone());
        found
    }

    /// What is wrong with files.
    pub fn notes(&self) -> Vec<String> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.notes.values().cloned().collect()
    }
}

/// The file with this name, if the build that ran is there.
fn find(name: &FileName, note: &mut Option<String>) -> Option<CodeFile> {
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
            *note = Some("the kernel's vdso isn't that of the recording: calls in it are missing".to_owned());
        }
        return found;
    }
    if !name.path.starts_with(b"/") || name.path.starts_with(b"//") {
        return None;
    }
    let bytes = match everycall_io::infile::read(path, FILE_MAX) {
        Ok(bytes) => bytes,
        Err(error) => {
            *note = Some(format!("{shown} can't be read ({error}): calls in it are missing"));
            return None;
        }
    };
    let Some(file) = CodeFile::new(bytes) else {
        *note = Some(format!("{shown} is no program or library: calls in it are missing"));
        return None;
    };
    if !name.build_id.is_empty() && !file.build_id.is_empty() && file.build_id != name.build_id {
        let its: String = file.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        *note = Some(format!(
            "{shown} is another build than the one that ran (build id {its} instead of {hex}): calls in it are missing"
        ));
        return None;
    }
    Some(file)
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
    pub file: Option<Arc<CodeFile>>,
}

impl Map {
    /// Whether it is code that a compiler generated.
    pub fn is_generated(&self) -> bool {
        self.number == GENERATED
    }
}

/// Code of a process at all times.
#[derive(Debug, Default)]
pub(crate) struct Code {
    /// What replaces nothing: it may be known from the beginning, as times have bounds.
    first: Arc<Maps>,
    /// What replaces others, in the order of time.
    later: Arc<Vec<Map>>,
}

impl Code {
    /// A process with these mapped files, in the order of their times. They are read.
    pub fn new(maps: Vec<Map>, files: &Files) -> Code {
        let (mut first, mut later) = (Maps::default(), Vec::new());
        let mut taken = Ranges::default();
        for mut map in maps.into_iter().filter(|map| map.start < map.end) {
            let is_free = taken.is_free(map.start, map.end);
            // Memory that replaces nothing has nothing to be read.
            if is_free && !map.is_generated() && files.is_memory(map.number) {
                continue;
            }
            taken.add(map.start, map.end);
            if map.file.is_none() {
                map.file = files.load(map.number);
            }
            if is_free { first.insert(map) } else { later.push(map) }
        }
        Code { first: Arc::new(first), later: Arc::new(later) }
    }
}

/// Code of a process at one time.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub maps: Arc<Maps>,
    pub blocks: Blocks,
    first: Arc<Maps>,
    later: Arc<Vec<Map>>,
    /// How many of them are mapped.
    next: usize,
}

impl Space {
    /// A process at its beginning.
    pub fn new(code: &Code) -> Space {
        Space {
            maps: code.first.clone(),
            blocks: Blocks::default(),
            first: code.first.clone(),
            later: code.later.clone(),
            next: 0,
        }
    }

    /// Maps what was mapped at this time. Returns whether that is something else than before.
    #[inline]
    pub fn reach(&mut self, ticks: u64) -> bool {
        let is_early = self.later.get(self.next).is_none_or(|map| map.from > ticks);
        let is_late = || self.later.get(self.next.wrapping_sub(1)).is_none_or(|map| map.from <= ticks);
        if is_early && is_late() {
            return false;
        }
        self.go(ticks);
        true
    }

    #[cold]
    fn go(&mut self, ticks: u64) {
        let wanted = self.later.partition_point(|map| map.from <= ticks);
        if wanted < self.next {
            self.maps = self.first.clone();
            self.blocks.clear();
            self.next = 0;
        }
        for map in self.later.get(self.next..wanted).unwrap_or_default() {
            self.blocks.forget(map.start, map.end);
            Arc::make_mut(&mut self.maps).insert(map.clone());
        }
        self.next = wanted;
    }
}

/// Ranges of addresses, joined where they touch.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn is_free(&self, start: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_none_or(|(_, last)| *last <= start)
    }

    fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((first, last)) = self.0.range(..=end).next_back().map(|(first, last)| (*first, *last))
            && last >= start
        {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
    }
}

/// The mapped files of a process, by their first addresses; none overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Maps(BTreeMap<u64, Map>);

impl Maps {
    pub fn find(&self, address: u64) -> Option<&Map> {
        self.0.range(..=address).next_back().map(|(_, map)| map).filter(|map| address < map.end)
    }

    /// Adds a mapping: it replaces what was there.
    fn insert(&mut self, map: Map) {
        while let Some(start) = self.0.range(..map.end).next_back().map(|(start, _)| *start)
            && let Some(other) = self.0.remove(&start)
        {
            if other.end <= map.start {
                self.0.insert(start, other);
                break;
            }
            if other.end > map.end {
                let offset = other.offset.wrapping_add(map.end - other.start);
                self.0.insert(map.end, Map { start: map.end, offset, ..other.clone() });
            }
            if other.start < map.start {
                self.0.insert(start, Map { end: map.start, ..other });
                break;
            }
        }
        self.0.insert(map.start, map);
    }
}

impl Image for Maps {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, end: u64, offset: u64) -> Map {
        Map { start, end, offset, number: GENERATED, from: 0, file: None }
    }

    fn shown(maps: &Maps) -> Vec<(u64, u64, u64)> {
        maps.0.values().map(|map| (map.start, map.end, map.offset)).collect()
    }

    #[test]
    fn later_mappings_replace_what_they_overlap() {
        let mut maps = Maps::default();
        maps.insert(map(10, 20, 100));
        maps.insert(map(30, 40, 300));
        maps.insert(map(13, 16, 500));
        assert_eq!(shown(&maps), [(10, 13, 100), (13, 16, 500), (16, 20, 106), (30, 40, 300)]);
        maps.insert(map(15, 35, 700));
        assert_eq!(shown(&maps), [(10, 13, 100), (13, 15, 500), (15, 35, 700), (35, 40, 305)]);
        maps.insert(map(0, 50, 0));
        assert_eq!(shown(&maps), [(0, 50, 0)]);
        assert_eq!(maps.find(49).map(|map| map.end), Some(50));
        assert!(maps.find(50).is_none());
    }

    #[test]
    fn ranges_are_joined() {
        let mut ranges = Ranges::default();
        ranges.add(10, 20);
        ranges.add(30, 40);
        assert!(ranges.is_free(20, 30) && ranges.is_free(0, 10) && ranges.is_free(40, 50));
        assert!(!ranges.is_free(19, 30) && !ranges.is_free(0, 100) && !ranges.is_free(15, 16));
        ranges.add(20, 30);
        assert_eq!(ranges.0.into_iter().collect::<Vec<_>>(), [(10, 40)]);
    }

    #[test]
    fn this_systems_vdso_is_code() {
        let files = Files::new(vec![FileName { path: b"[vdso]".to_vec(), build_id: Vec::new() }]);
        let file = files.load(0).unwrap();
        assert!(file.functions.len() > 2 && file.bytes.len() > 1000, "{:?}", files.notes());
    }
}
