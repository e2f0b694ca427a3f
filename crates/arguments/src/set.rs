//! Capture sets: which functions of files have which programs.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use everycall_format::Wire;
use everycall_format::capture_set::{
    CAPTURES_MAX, CaptureEntry, CaptureFunction, CaptureModule, CaptureSetHeader, FUNCTIONS_MAX, LAYOUT_MAX,
    MAGIC, MODULES_MAX, SIZE_MAX, VERSION,
};
use everycall_patterns::{FunctionTable, Selection};
use everycall_symbols::{ModuleDwarf, ModuleIdentity, SymbolOptions};
use object::{Object, ObjectSymbol, ReadCache, SymbolFlags};

use crate::compile::{CaptureOptions, Compiled, Compiler, Moment};
use crate::error::ArgumentError;
use crate::module::compile;
use crate::signature::FunctionPlace;
use crate::syntax::Request;

/// Why a request can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// It isn't an expression.
    Syntax(ArgumentError),
    /// Its function isn't a pattern.
    Pattern {
        /// The request.
        text: String,
        /// The mistake, in one sentence without a full stop.
        message: String,
    },
}

impl fmt::Display for RequestError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => error.fmt(out),
            Self::Pattern { text, message } => write!(out, "in {text}: {message}"),
        }
    }
}

impl std::error::Error for RequestError {}

/// Values of calls that are wanted: of which functions, and when.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// As it was written.
    pub text: String,
    /// At the entry or at the return.
    pub moment: Moment,
    request: Request,
    /// One rule: the function's pattern.
    selection: Selection,
    /// Only from where the functions are called is wanted.
    is_call_site: bool,
}

impl Wanted {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// It isn't one.
    pub fn parse(text: &str, moment: Moment) -> Result<Wanted, RequestError> {
        let request = Request::parse(text).map_err(RequestError::Syntax)?;
        let selection = Selection::of_options(std::slice::from_ref(&request.function), &[])
            .map_err(|error| RequestError::Pattern { text: text.to_owned(), message: error.to_string() })?;
        Ok(Wanted { text: text.to_owned(), moment, request, selection, is_call_site: false })
    }

    /// From where the functions of a pattern are called.
    ///
    /// # Errors
    ///
    /// It isn't a pattern.
    pub fn call_sites(pattern: &str) -> Result<Wanted, RequestError> {
        let request = Request { function: pattern.to_owned(), values: Some(Vec::new()), condition: None };
        let selection =
            Selection::of_options(std::slice::from_ref(&request.function), &[]).map_err(|error| {
                RequestError::Pattern { text: pattern.to_owned(), message: error.to_string() }
            })?;
        let moment = Moment::Entry;
        Ok(Wanted { text: pattern.to_owned(), moment, request, selection, is_call_site: true })
    }

    /// The pattern of its functions.
    #[must_use]
    pub fn function(&self) -> &str {
        &self.request.function
    }

    /// Those of `names` that are most similar to its pattern.
    #[must_use]
    pub fn near(&self, names: &[String]) -> Vec<String> {
        let rules = self.selection.rules().iter();
        rules.flat_map(|rule| Selection::near(rule, names)).collect()
    }
}

/// A function whose values are copied.
#[derive(Clone, Debug)]
struct Captured {
    start: u64,
    end: u64,
    entry: Option<Compiled>,
    exit: Option<Compiled>,
}

/// A file with such functions.
#[derive(Clone, Debug)]
pub struct CapturedFile {
    path: PathBuf,
    build_id: Vec<u8>,
    functions: Vec<Captured>,
}

impl CapturedFile {
    /// How many functions it has whose values are copied.
    #[must_use]
    pub fn count(&self) -> usize {
        self.functions.len()
    }
}

/// How far a request could be met in a file.
#[derive(Clone, Debug, Default)]
pub struct Met {
    /// Functions that its pattern matches.
    pub matched: u64,
    /// Functions of these of which it couldn't be met.
    pub failed: u64,
    /// Why not, of the first one: its name, and the error.
    pub error: Option<(String, ArgumentError)>,
}

/// Finds the functions of a file that are wanted, and compiles their programs. `path` is the file's
/// name, which may differ from where it was opened. Where several requests mean one function at one
/// moment, the last one counts.
#[must_use]
pub fn capture_file(
    wanted: &[Wanted],
    table: &mut FunctionTable,
    path: &Path,
    options: &CaptureOptions,
) -> (CapturedFile, Vec<Met>) {
    let mut functions: Vec<Captured> = Vec::new();
    let mut by_start: HashMap<u64, usize> = HashMap::new();
    let mut all_met = Vec::new();
    let file = table.path().to_path_buf();
    let mut debugging = None;
    let build_id = table.build_id().to_vec();
    // Functions whose call sites are wanted, and their programs without other values.
    let mut with_call_sites: HashMap<u64, u64> = HashMap::new();
    for wanted in wanted.iter().filter(|wanted| wanted.is_call_site) {
        let resolved = wanted.selection.resolve(table);
        let meant = table.functions().iter().zip(&resolved.is_on).filter(|(_, is_on)| **is_on);
        with_call_sites.extend(meant.map(|(function, _)| (function.start, function.size)));
    }
    for wanted in wanted {
        if wanted.is_call_site {
            all_met.push(Met { matched: with_call_sites.len() as u64, ..Met::default() });
            continue;
        }
        let resolved = wanted.selection.resolve(table);
        let mut met = Met::default();
        let meant = table.functions().iter().zip(&resolved.is_on).enumerate();
        for (index, (function, _)) in meant.filter(|(_, (_, is_on))| **is_on) {
            met.matched += 1;
            let debugging = debugging.get_or_insert_with(|| Debugging::open(&file, &build_id));
            let place = FunctionPlace {
                address: function.start,
                first_site: table.first_site(index),
                linkage_name: &function.linkage_name,
                is_local: debugging.are_local.get(&function.start).copied(),
            };
            let (request, dwarf) = (&wanted.request, debugging.dwarf.as_mut());
            let call_site = with_call_sites.contains_key(&function.start);
            let options = &CaptureOptions { call_site, ..options.clone() };
            let compiled = match compile(request, &wanted.text, wanted.moment, dwarf, place, options) {
                Ok(compiled) if compiled.is_empty => continue,
                Ok(compiled) => compiled,
                Err(error) => {
                    met.failed += 1;
                    met.error.get_or_insert_with(|| (function.name(), error));
                    continue;
                }
            };
            let at = *by_start.entry(function.start).or_insert_with(|| {
                let end = function.start.saturating_add(function.size.max(1));
                functions.push(Captured { start: function.start, end, entry: None, exit: None });
                functions.len() - 1
            });
            let Some(captured) = functions.get_mut(at) else { continue };
            match wanted.moment {
                Moment::Entry => captured.entry = Some(compiled),
                Moment::Exit => captured.exit = Some(compiled),
            }
        }
        all_met.push(met);
    }
    if let Some(compiled) = call_site_alone(options).filter(|_| !with_call_sites.is_empty()) {
        for (start, size) in with_call_sites {
            let at = *by_start.entry(start).or_insert_with(|| {
                let end = start.saturating_add(size.max(1));
                functions.push(Captured { start, end, entry: None, exit: None });
                functions.len() - 1
            });
            if let Some(captured) = functions.get_mut(at) {
                captured.entry.get_or_insert_with(|| compiled.clone());
            }
        }
    }
    functions.sort_by_key(|function| function.start);
    // Functions that overlap end where the next one begins.
    let starts: Vec<u64> = functions.iter().map(|function| function.start).collect();
    for (function, next) in functions.iter_mut().zip(starts.into_iter().skip(1)) {
        function.end = function.end.min(next);
    }
    (CapturedFile { path: path.to_path_buf(), build_id, functions }, all_met)
}

/// The program that copies from where a function was called, and nothing else.
fn call_site_alone(options: &CaptureOptions) -> Option<Compiled> {
    let options = CaptureOptions { call_site: true, ..options.clone() };
    Compiler::new(None, None, Moment::Entry, &options, "").compile(Some(&[]), None).ok()
}

/// Facts about a file beside its functions.
struct Debugging {
    dwarf: Option<ModuleDwarf>,
    /// By address: whether no other object can call the function.
    are_local: HashMap<u64, bool>,
}

impl Debugging {
    fn open(file: &Path, build_id: &[u8]) -> Debugging {
        let identity = ModuleIdentity::new(file, build_id);
        let dwarf = ModuleDwarf::open(&identity, &SymbolOptions::default()).ok();
        Debugging { dwarf, are_local: are_local(file).unwrap_or_default() }
    }
}

fn are_local(file: &Path) -> Option<HashMap<u64, bool>> {
    let cache = ReadCache::new(everycall_io::infile::open(file).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let mut are_local = HashMap::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let SymbolFlags::Elf { st_other, .. } = symbol.flags() else { continue };
        // Linkers make hidden symbols local, too.
        let is_local = symbol.is_local() && st_other.visibility() == object::elf::STV_DEFAULT;
        // Of several names of one function, one that others can call is enough.
        are_local.entry(symbol.address()).and_modify(|known| *known &= is_local).or_insert(is_local);
    }
    Some(are_local)
}

/// There is more in a set than fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureSetTooLarge {
    /// Files.
    Files(usize),
    /// Functions.
    Functions(usize),
    /// Bytes.
    Bytes(usize),
}

impl fmt::Display for CaptureSetTooLarge {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(count) => {
                write!(out, "{count} files with functions in --args are too many: {MODULES_MAX} fit")
            }
            Self::Functions(count) => write!(
                out,
                "{count} functions in --args and --results are too many: {FUNCTIONS_MAX} fit; name fewer"
            ),
            Self::Bytes(count) => write!(
                out,
                "the programs that copy values take {count} bytes, and {SIZE_MAX} fit; name fewer functions"
            ),
        }
    }
}

impl std::error::Error for CaptureSetTooLarge {}

/// The bytes of a capture set with these files.
///
/// # Errors
///
/// There is too much in it.
pub fn set_of(files: &[CapturedFile]) -> Result<Vec<u8>, CaptureSetTooLarge> {
    let files: Vec<&CapturedFile> =
        files.iter().filter(|file| (1..=32).contains(&file.build_id.len())).collect();
    if files.len() > MODULES_MAX as usize {
        return Err(CaptureSetTooLarge::Files(files.len()));
    }
    let count = files.iter().map(|file| file.functions.len()).sum::<usize>();
    if count > FUNCTIONS_MAX as usize {
        return Err(CaptureSetTooLarge::Functions(count));
    }
    let mut parts = Parts::default();
    let (mut modules, mut functions) = (Vec::new(), Vec::new());
    let mut first_function = 0;
    for file in &files {
        let (path_offset, path_length) = parts.add_bytes(file.path.as_os_str().as_bytes());
        let mut build_id = [0; 32];
        build_id[..file.build_id.len()].copy_from_slice(&file.build_id);
        let of_file = file.functions.len() as u32;
        put(
            &mut modules,
            &CaptureModule {
                build_id_length: file.build_id.len() as u32,
                first_function,
                functions: of_file,
                path_offset,
                path_length,
                build_id,
                ..CaptureModule::default()
            },
        );
        first_function += of_file;
        for function in &file.functions {
            let (start, end) = (function.start, function.end);
            let (entry, exit) = (parts.add(function.entry.as_ref()), parts.add(function.exit.as_ref()));
            put(&mut functions, &CaptureFunction { start, end, entry, exit, reserved: 0 });
        }
    }
    let bytes = parts.bytes.len() as u32;
    let payload = [modules, functions, parts.captures, parts.bytes].concat();
    let length = CaptureSetHeader::SIZE + payload.len();
    if length as u64 > SIZE_MAX || parts.count > CAPTURES_MAX {
        return Err(CaptureSetTooLarge::Bytes(length));
    }
    let mut header = CaptureSetHeader {
        magic: MAGIC,
        version: VERSION,
        header_size: CaptureSetHeader::SIZE as u32,
        file_length: length as u64,
        modules: files.len() as u32,
        functions: count as u32,
        captures: parts.count,
        bytes,
        payload_checksum: crc32fast::hash(&payload),
        ..CaptureSetHeader::default()
    };
    let mut set = vec![0; CaptureSetHeader::SIZE];
    header.write(&mut set);
    header.header_checksum = crc32fast::hash(&set[..CaptureSetHeader::SIZE - size_of::<u32>()]);
    header.write(&mut set);
    set.extend_from_slice(&payload);
    Ok(set)
}

/// Programs, layouts and paths of a set.
#[derive(Default)]
struct Parts {
    captures: Vec<u8>,
    count: u32,
    bytes: Vec<u8>,
    /// Programs and layouts that are there already: many functions share them.
    known: HashMap<Vec<u8>, (u32, u32)>,
}

impl Parts {
    fn add_bytes(&mut self, bytes: &[u8]) -> (u32, u32) {
        if let Some(place) = self.known.get(bytes) {
            return *place;
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let place = (self.bytes.len() as u32, bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
        self.known.insert(bytes.to_vec(), place);
        place
    }

    /// The number of a capture, plus 1; 0 if there is none.
    fn add(&mut self, compiled: Option<&Compiled>) -> u32 {
        let Some(compiled) = compiled.filter(|compiled| compiled.layout.len() <= LAYOUT_MAX as usize) else {
            return 0;
        };
        let (program_offset, program_length) = self.add_bytes(&compiled.program);
        let (layout_offset, layout_length) = self.add_bytes(&compiled.layout);
        let entry = CaptureEntry {
            id: compiled.id,
            program_offset,
            program_length,
            layout_offset,
            layout_length,
            ..CaptureEntry::default()
        };
        put(&mut self.captures, &entry);
        self.count += 1;
        self.count
    }
}

fn put<T: Wire>(bytes: &mut Vec<u8>, what: &T) {
    let at = bytes.len();
    bytes.resize(at + T::SIZE, 0);
    what.write(&mut bytes[at..]);
}
