//! The functions of a file that have sites.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use everycall_format::Wire;
use everycall_format::arch::Machine;
use everycall_format::frame::{self, NamedFrame, Records};
use everycall_format::frame_pattern::matches;
use everycall_format::site::{SITES_SECTION, Site, XRAY_SECTION, XraySled, site_kind, sled_kind};
use everycall_symbols::{
    FunctionEntry, FunctionId, ModuleIdentity, ModuleSymbols, SymbolOptions, demangle, split_part,
};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, SectionKind};

use crate::arch;
use crate::code::Code;
use crate::names::Names;

/// Names of the functions that are called where there are no sites to switch.
const PLAIN_HOOKS: [&str; 4] =
    ["__fentry__", "__return__", "__cyg_profile_func_enter", "__cyg_profile_func_exit"];
/// Names that are suggested at most.
const NAMES_FOR_SUGGESTIONS: usize = 200_000;

/// Why a file has no functions to choose from.
#[derive(Debug)]
#[non_exhaustive]
pub enum TableError {
    /// It can't be read.
    Unreadable(PathBuf, std::io::Error),
    /// It isn't a 64-bit ELF file, or is damaged.
    NotUnderstood(PathBuf, String),
    /// None of its functions calls a hook.
    NoSites(PathBuf),
    /// It was linked through the prefix, and none of its functions was compiled through it.
    LinkedOnly(PathBuf),
    /// Its functions call hooks, but it has no symbols that say where its functions are.
    Stripped(PathBuf),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::Unreadable(path, error) => {
                write!(f, "{} can't be read ({error}); name a file that you may read", path.display())
            }
            TableError::NotUnderstood(path, reason) => write!(
                f,
                "{} is not a valid ELF file ({reason}); name a compiled program or library",
                path.display()
            ),
            TableError::NoSites(path) => write!(
                f,
                "{} has no traced functions; build it through the prefix: everycall cc -- g++ -O2 -g app.cpp -o app",
                path.display()
            ),
            TableError::LinkedOnly(path) => write!(f, "{}", linked_only(path)),
            TableError::Stripped(path) => write!(
                f,
                "{} is stripped, so the addresses of its functions are unknown; keep its symbols (leave out \
                strip and -s), or \
                 install its debug file",
                path.display()
            ),
        }
    }
}

/// A sentence for a program that was only linked through the prefix, and the advice.
#[must_use]
pub fn linked_only(path: &Path) -> String {
    format!(
        "{} was linked through the prefix, but none of its functions was compiled through it, so it has no traced \
         functions; compile its sources anew, as in: everycall cc -- g++ -O2 -g -c app.cpp (or CC='everycall cc -- gcc' \
         for make, after make clean)",
        path.display()
    )
}

impl std::error::Error for TableError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TableError::Unreadable(_, error) => Some(error),
            _ => None,
        }
    }
}

/// A function that can be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instrumented {
    /// Its first image address.
    pub start: u64,
    /// Bytes; 0 where unknown.
    pub size: u64,
    /// The linker's name, with the suffix of a part; empty where there is no symbol.
    pub linkage_name: String,
    /// Sites: places at which it calls a hook.
    pub sites: u32,
    id: FunctionId,
}

impl Instrumented {
    /// A function of the symbols, whose sites aren't counted.
    fn of(entry: FunctionEntry<'_>) -> Instrumented {
        Instrumented {
            start: entry.start,
            size: entry.size,
            linkage_name: String::from_utf8_lossy(entry.linkage_name).into_owned(),
            sites: 0,
            id: entry.id,
        }
    }

    /// Its name for people; `+0x1234` where there is no symbol.
    #[must_use]
    pub fn name(&self) -> String {
        match self.linkage_name.as_str() {
            "" => format!("+{:#x}", self.start),
            name => demangle(split_part(name).0),
        }
    }
}

/// A place in a function at which it calls a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SiteAt {
    address: u64,
    size: u64,
    /// Index of its function.
    function: u32,
    /// Instructions of the function's own in it.
    own: u32,
}

/// A site in the file: address, function, bytes, and instructions of the function's own in it.
type RawSite = (u64, u64, u64, u32);

/// An executable section.
struct Text {
    name: String,
    address: u64,
    bytes: Vec<u8>,
}

/// The functions of a file that have sites, in the order of their addresses.
pub struct FunctionTable {
    path: PathBuf,
    build_id: Vec<u8>,
    functions: Vec<Instrumented>,
    sites: Vec<SiteAt>,
    text: Vec<Text>,
    symbols: ModuleSymbols,
    /// Whether its hooks are always called, so that functions, not sites, are chosen.
    is_plain: bool,
    machine: Machine,
    /// Of each function, if they are frames by id.
    frames: Vec<Frame>,
}

/// The name of a frame by id, and where it is defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub name: Vec<u8>,
    pub file: Vec<u8>,
    pub line: u32,
}

impl fmt::Debug for FunctionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FunctionTable({}, {} functions)", self.path.display(), self.functions.len())
    }
}

impl FunctionTable {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// It can't be read, or has no functions that can be recorded.
    pub fn open(path: &Path) -> Result<FunctionTable, TableError> {
        let (mut table, raw, hooks) = FunctionTable::read(path)?;
        if !raw.is_empty() {
            table.add_sited(raw);
            return Ok(table);
        }
        table.is_plain = true;
        table.add_plain(&hooks);
        if table.functions.is_empty() {
            let report = everycall_symbols::site_report(path);
            let path = path.to_owned();
            return Err(match report {
                Ok(report) if report.is_linked_only() => TableError::LinkedOnly(path),
                Ok(report) if report.note.is_some() => TableError::Stripped(path),
                _ => TableError::NoSites(path),
            });
        }
        Ok(table)
    }

    /// Reads the file at `path`, which was built without hooks and has these functions, given by
    /// their first image addresses and sizes in bytes.
    ///
    /// # Errors
    ///
    /// It can't be read.
    pub fn of_functions(
        path: &Path,
        functions: impl Iterator<Item = (u64, u64)>,
    ) -> Result<FunctionTable, TableError> {
        let (mut table, ..) = FunctionTable::read(path)?;
        for (start, size) in functions {
            let id = table.symbols.function_at(start);
            let linkage_name = table.symbols.function(id).linkage_name.clone().unwrap_or_default();
            table.functions.push(Instrumented { start, size, linkage_name, sites: 0, id });
        }
        table.functions.sort_by_key(|function| function.start);
        table.is_plain = true;
        Ok(table)
    }

    /// Reads the file at `path` with all functions that its symbols name, with and without hooks.
    ///
    /// # Errors
    ///
    /// It can't be read.
    pub fn of_all(path: &Path) -> Result<FunctionTable, TableError> {
        let (mut table, ..) = FunctionTable::read(path)?;
        let named = table.symbols.functions().filter(FunctionEntry::is_programs);
        table.functions = named.map(Instrumented::of).collect();
        table.functions.sort_by_key(|function| function.start);
        table.is_plain = true;
        Ok(table)
    }

    /// The file without functions, with its sites and its references to hooks.
    fn read(path: &Path) -> Result<(FunctionTable, Vec<RawSite>, Vec<u64>), TableError> {
        let unreadable = |error| TableError::Unreadable(path.to_owned(), error);
        let path = &path.canonicalize().map_err(unreadable)?;
        let unreadable = |error| TableError::Unreadable(path.clone(), error);
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(TableError::NotUnderstood(path.to_owned(), "not a file".to_owned()));
        }
        let odd = |error: object::Error| TableError::NotUnderstood(path.to_owned(), error.to_string());
        let cache = ReadCache::new(everycall_io::infile::open(path).map_err(unreadable)?);
        let elf = ElfFile64::<Endianness, _>::parse(&cache).map_err(odd)?;
        let build_id = elf.build_id().ok().flatten().unwrap_or_default().to_vec();
        let symbols = ModuleSymbols::open(&ModuleIdentity::new(path, &build_id), &SymbolOptions::default());
        let mut text = Vec::new();
        for section in elf.sections().filter(|section| section.kind() == SectionKind::Text) {
            let name = section.name().unwrap_or_default().to_owned();
            let bytes = section.data().map_err(odd)?.to_vec();
            text.push(Text { name, address: section.address(), bytes });
        }
        let endian = elf.endian();
        let machine = Machine::of_elf(elf.elf_header().e_machine.get(endian).0).unwrap_or(Machine::OWN);
        let mut raw = Vec::new();
        for section in elf.sections() {
            let Ok(name) = section.name() else { continue };
            if name == SITES_SECTION {
                nops(machine, section.address(), section.data().map_err(odd)?, &mut raw);
            } else if name == XRAY_SECTION {
                sleds(machine, section.address(), section.data().map_err(odd)?, &mut raw);
            }
        }
        let table = FunctionTable {
            path: path.to_owned(),
            build_id,
            functions: Vec::new(),
            sites: Vec::new(),
            text,
            symbols,
            machine,
            is_plain: false,
            frames: Vec::new(),
        };
        let hooks = hooks(&elf);
        Ok((table, raw, hooks))
    }

    /// The frames by id that a process has named: its records of names. `None` if there are none.
    #[must_use]
    pub fn of_frames(records: &[u8]) -> Option<FunctionTable> {
        // The last name of an id counts.
        let named: BTreeMap<u32, NamedFrame<'_>> =
            Records::of(records).map(|frame| (frame.id, frame)).collect();
        if named.is_empty() {
            return None;
        }
        let path = Path::new("frames by id");
        let mut symbols = ModuleSymbols::open(&ModuleIdentity::new(path, &[]), &SymbolOptions::default());
        let mut table = FunctionTable {
            path: path.to_owned(),
            build_id: frame::BUILD_ID.to_vec(),
            functions: Vec::new(),
            sites: Vec::new(),
            text: Vec::new(),
            is_plain: true,
            machine: Machine::OWN,
            frames: Vec::new(),
            symbols: ModuleSymbols::open(&ModuleIdentity::new(path, &[]), &SymbolOptions::default()),
        };
        for (id, NamedFrame { name, file, line, .. }) in named {
            let start = u64::from(id) * u64::from(frame::STEP);
            table.functions.push(Instrumented {
                start,
                size: frame::STEP.into(),
                linkage_name: String::from_utf8_lossy(name).into_owned(),
                sites: 0,
                id: symbols.function_at(start),
            });
            table.frames.push(Frame { name: name.to_vec(), file: file.to_vec(), line });
        }
        Some(table)
    }

    /// How many frames by id a pattern of a trigger means; `None` if these aren't frames.
    #[must_use]
    pub fn frames_named(&self, pattern: &str) -> Option<usize> {
        let is_meant = |frame: &&Frame| matches(pattern.as_bytes(), &frame.name, &frame.file);
        (!self.frames.is_empty()).then(|| self.frames.iter().filter(is_meant).count())
    }

    /// The frame by id at this index; `None` if these aren't frames.
    pub(crate) fn frame(&self, index: usize) -> Option<&Frame> {
        self.frames.get(index)
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The machine of its code.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The file's build id; empty if it has none.
    #[must_use]
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// The functions, in the order of their addresses.
    #[must_use]
    pub fn functions(&self) -> &[Instrumented] {
        &self.functions
    }

    /// Sites of all functions.
    #[must_use]
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// Whether hooks are always called here (modes `fentry`, `finstrument`, `after-inlining`).
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// The instructions of a function, by its index. Without a size, it ends where the next one
    /// begins.
    #[must_use]
    pub fn code(&self, index: usize) -> Code {
        let Some(function) = self.functions.get(index) else { return Code::default() };
        let next = self.functions.get(index + 1).map_or(u64::MAX, |next| next.start);
        let end = match function.size {
            0 => next,
            size => function.start.saturating_add(size),
        };
        let bytes = self.text.iter().find_map(|text| {
            let first = usize::try_from(function.start.checked_sub(text.address)?).ok()?;
            let last = usize::try_from(end - text.address).unwrap_or(usize::MAX).min(text.bytes.len());
            text.bytes.get(first..last)
        });
        let site = |address: u64| {
            let place = self.sites.binary_search_by_key(&address, |site| site.address).ok()?;
            let site = self.sites.get(place)?;
            Some((site.size, site.own))
        };
        arch::code_of(self.machine, bytes.unwrap_or_default(), function.start, site)
    }

    /// Bytes of the site with which a function begins; 0 if it doesn't begin with one. Its
    /// parameters are where they were until behind it.
    #[must_use]
    pub fn first_site(&self, index: usize) -> u64 {
        let Some(function) = self.functions.get(index) else { return 0 };
        let place = self.sites.binary_search_by_key(&function.start, |site| site.address).ok();
        place.and_then(|place| self.sites.get(place)).map_or(0, |site| site.size)
    }

    /// The section that a function begins in.
    #[must_use]
    pub(crate) fn section(&self, index: usize) -> Option<&str> {
        let start = self.functions.get(index)?.start;
        let has = |text: &&Text| {
            start.checked_sub(text.address).is_some_and(|offset| offset < text.bytes.len() as u64)
        };
        self.text.iter().find(has).map(|text| text.name.as_str())
    }

    /// Where a function is declared: file and line, as the compiler recorded them.
    pub fn source(&mut self, index: usize) -> Option<(PathBuf, Option<u32>)> {
        if let Some(Frame { file, line, .. }) = self.frame(index) {
            let file = PathBuf::from(OsStr::from_bytes(file));
            return (!file.as_os_str().is_empty()).then_some((file, (*line != 0).then_some(*line)));
        }
        let function = self.symbols.function(self.functions.get(index)?.id);
        Some((function.file.as_deref()?.to_owned(), function.line))
    }

    /// The functions' names, without parameters, for suggestions.
    #[must_use]
    pub fn plain_names(&self) -> Vec<String> {
        let named = self.functions.iter().filter(|function| !function.linkage_name.is_empty());
        named.take(NAMES_FOR_SUGGESTIONS).map(|function| Names::of(&function.linkage_name).plain).collect()
    }

    /// Ranges of selected sites, as image addresses in ascending order, not adjacent. `is_chosen`:
    /// by the index of each function.
    #[must_use]
    pub(crate) fn ranges(&self, is_chosen: &[bool]) -> Vec<(u64, u64)> {
        let chosen = |function: u32| is_chosen.get(function as usize).copied().unwrap_or(false);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        if self.is_plain {
            // A hook may get any address of its function.
            for (function, _) in self.functions.iter().zip(is_chosen).filter(|(_, chosen)| **chosen) {
                let end = function.start.saturating_add(function.size.max(1));
                match ranges.last_mut() {
                    Some(last) if last.1 >= function.start => last.1 = last.1.max(end),
                    _ => ranges.push((function.start, end)),
                }
            }
            return ranges;
        }
        let mut is_open = false;
        for site in &self.sites {
            let is_wanted = chosen(site.function);
            match ranges.last_mut() {
                Some(last) if is_wanted && is_open => last.1 = site.address + 1,
                _ if is_wanted => ranges.push((site.address, site.address + 1)),
                _ => {}
            }
            is_open = is_wanted;
        }
        ranges
    }

    /// Functions with sites, by what the sites say themselves.
    fn add_sited(&mut self, mut raw: Vec<RawSite>) {
        raw.sort_unstable();
        let mut starts: Vec<u64> = raw.iter().map(|(_, function, ..)| *function).collect();
        starts.sort_unstable();
        starts.dedup();
        for start in &starts {
            let id = self.symbols.function_at(*start);
            self.functions.push(Instrumented {
                start: *start,
                size: 0,
                linkage_name: String::new(),
                sites: 0,
                id,
            });
        }
        let entries = self.symbols.functions().filter(|entry| !entry.is_plt);
        let named: Vec<_> = entries
            .map(|entry| (entry.start, entry.size, String::from_utf8_lossy(entry.linkage_name).into_owned()))
            .collect();
        for function in &mut self.functions {
            if let Ok(found) = named.binary_search_by_key(&function.start, |named| named.0) {
                let (_, size, name) = &named[found];
                (function.size, function.linkage_name) = (*size, name.clone());
            }
        }
        for (address, function, size, own) in raw {
            let Ok(function) = starts.binary_search(&function) else { continue };
            self.functions[function].sites += 1;
            self.sites.push(SiteAt { address, size, function: function as u32, own });
        }
    }

    /// Functions that call one of these hooks.
    fn add_plain(&mut self, hooks: &[u64]) {
        let entries = self.symbols.functions().filter(|entry| !entry.is_plt && entry.size > 0);
        let mut functions: Vec<Instrumented> = entries.map(Instrumented::of).collect();
        for Text { address: begin, bytes, .. } in &self.text {
            for (address, target) in arch::possible_calls(self.machine, bytes, *begin) {
                if !hooks.contains(&target) {
                    continue;
                }
                let behind = functions.partition_point(|function| function.start <= address);
                let Some(function) = behind.checked_sub(1) else { continue };
                if address < functions[function].start + functions[function].size {
                    functions[function].sites += 1;
                    let own = 0;
                    self.sites.push(SiteAt {
                        address,
                        size: self.machine.sites().call as u64,
                        function: function as u32,
                        own,
                    });
                }
            }
        }
        // Those without a call of a hook go.
        let mut places = vec![u32::MAX; functions.len()];
        let mut kept = 0;
        for (place, function) in places.iter_mut().zip(&functions).filter(|(_, function)| function.sites > 0)
        {
            (*place, kept) = (kept, kept + 1);
            self.functions.push(function.clone());
        }
        self.sites.iter_mut().for_each(|site| site.function = places[site.function as usize]);
        self.sites.sort_unstable();
    }
}

/// Where plain hooks begin.
fn hooks<'data>(elf: &impl Object<'data>) -> Vec<u64> {
    let is_hook = |name: &str| PLAIN_HOOKS.contains(&name);
    let symbols = elf.symbols().filter(|symbol| symbol.is_definition());
    symbols.filter(|symbol| symbol.name().is_ok_and(is_hook)).map(|symbol| symbol.address()).collect()
}

/// Address, function, bytes and own instructions of each site of mode `nops`.
fn nops(machine: Machine, at: u64, bytes: &[u8], raw: &mut Vec<RawSite>) {
    for (index, bytes) in (0..).zip(bytes.chunks_exact(Site::SIZE)) {
        let place: u64 = at + index * Site::SIZE as u64;
        let Some(site) = Site::read(bytes) else { continue };
        // The other kinds are before a `ret` or a jump of the function's own.
        let own = 0;
        if site.kind <= site_kind::RETURN {
            let of = |distance: i32| place.wrapping_add_signed(distance.into());
            raw.push((
                of(site.site),
                function_of(place, site.function),
                arch::site_size(machine, site.kind),
                own,
            ));
        }
    }
}

fn function_of(place: u64, distance: i32) -> u64 {
    // The distance is from the field itself, the second one.
    (place + 4).wrapping_add_signed(distance.into())
}

/// Address, function, bytes and own instructions of each XRay sled.
fn sleds(machine: Machine, at: u64, bytes: &[u8], raw: &mut Vec<RawSite>) {
    for (index, bytes) in (0..).zip(bytes.chunks_exact(XraySled::SIZE)) {
        let place: u64 = at + index * XraySled::SIZE as u64;
        let Some(sled) = XraySled::read(bytes) else { continue };
        if sled.kind <= sled_kind::ENTRY_LOG_ARGS {
            // An exit's XRay sled takes the place of the function's `ret`.
            let own = u32::from(sled.kind == sled_kind::EXIT);
            let function = (place + 8).wrapping_add_signed(sled.function);
            raw.push((place.wrapping_add_signed(sled.sled), function, machine.sites().sled as u64, own));
        }
    }
}
