//! Capture sets: which functions of files have which programs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use everycall_format::Wire;
use everycall_format::arch::Machine;
use everycall_format::capture_set::{
    CAPTURES_MAX, CaptureEntry, CaptureFunction, CaptureModule, CaptureSetHeader, FUNCTIONS_MAX, LAYOUT_MAX,
    MAGIC, MODULES_MAX, SIZE_MAX, VERSION,
};
use everycall_patterns::{FunctionTable, Selection};
use everycall_symbols::{ModuleDwarf, ModuleIdentity, SymbolOptions};
use object::{Object, ObjectSymbol, ReadCache, SymbolFlags};

use crate::compile::{CaptureOptions, Compiled, Compiler, Judged, Moment, item_name};
use crate::error::ArgumentError;
use crate::module::compile_with;
use crate::signature::FunctionPlace;
use crate::syntax::{Expression, Request};
use crate::units::Units;

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
    /// The condition of a trigger, which is judged and copies nothing.
    judged: Option<Judged>,
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
        Ok(Wanted { text: text.to_owned(), moment, request, judged: None, selection, is_call_site: false })
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
        Ok(Wanted { text: pattern.to_owned(), moment, request, judged: None, selection, is_call_site: true })
    }

    /// Reads a trigger's condition on the calls of a function. `number`: the one by which the
    /// traced process knows it.
    ///
    /// # Errors
    ///
    /// It isn't one.
    pub fn condition(
        function: &str,
        condition: &str,
        moment: Moment,
        number: u32,
    ) -> Result<Wanted, RequestError> {
        let text = condition.to_owned();
        let condition = Expression::parse(condition).map_err(RequestError::Syntax)?;
        let request = Request { function: function.to_owned(), values: Some(Vec::new()), condition: None };
        let judged = Judged { number, condition, text: text.clone() };
        let selection = Selection::of_options(std::slice::from_ref(&request.function), &[])
            .map_err(|error| RequestError::Pattern { text: text.clone(), message: error.to_string() })?;
        Ok(Wanted { text, moment, request, judged: Some(judged), selection, is_call_site: false })
    }

    /// Whether it is a trigger's condition, so that nothing is copied.
    #[must_use]
    pub fn is_condition(&self) -> bool {
        self.judged.is_some()
    }

    /// The pattern of its functions.
    #[must_use]
    pub fn function(&self) -> &str {
        &self.request.function
    }

    /// The names of its values in a trace; `None` for all parameters.
    #[must_use]
    pub fn value_names(&self) -> Option<Vec<&str>> {
        self.request.values.as_ref().map(|values| values.iter().map(item_name).collect())
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
        let copies = |part: &Option<Compiled>| part.as_ref().is_some_and(|compiled| compiled.copies);
        self.functions.iter().filter(|function| copies(&function.entry) || copies(&function.exit)).count()
    }

    /// Whether no function of it is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
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
/// moment, the last one counts, and all conditions of triggers.
#[must_use]
pub fn capture_file(
    wanted: &[Wanted],
    table: &mut FunctionTable,
    path: &Path,
    options: &CaptureOptions,
) -> (CapturedFile, Vec<Met>) {
    let mut parts: BTreeMap<u64, Parts> = BTreeMap::new();
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
            let call_site = wanted.moment == Moment::Entry && with_call_sites.contains_key(&function.start);
            let is_c_library = debugging.is_c_library && place.is_local == Some(false);
            let options = &CaptureOptions { call_site, is_c_library, ..options.clone() };
            let of_function = parts.get(&function.start).and_then(|parts| parts.at(wanted.moment));
            let part = of_function.cloned().unwrap_or_default().with(wanted);
            let compiled = match table.machine() {
                Machine::OWN => part.compile(wanted.moment, debugging.dwarf(), place, options),
                other => Err(of_another_machine(&wanted.text, other)),
            };
            match compiled {
                Ok(compiled) if compiled.is_empty => {}
                Ok(compiled) => {
                    let end = function.start.saturating_add(function.size.max(1));
                    let parts = parts.entry(function.start).or_insert_with(|| Parts::new(end));
                    *parts.at_mut(wanted.moment) = Some(Part { compiled: Some(compiled), ..part });
                }
                Err(error) => {
                    met.failed += 1;
                    met.error.get_or_insert_with(|| (function.name(), error));
                }
            }
        }
        all_met.push(met);
    }
    if let Some(compiled) = call_site_alone(options).filter(|_| !with_call_sites.is_empty()) {
        for (start, size) in with_call_sites {
            let parts = parts.entry(start).or_insert_with(|| Parts::new(start.saturating_add(size.max(1))));
            let entry = parts.entry.get_or_insert_default();
            entry.compiled.get_or_insert_with(|| compiled.clone());
        }
    }
    // Functions that overlap end where the next one begins.
    let starts: Vec<u64> = parts.keys().copied().skip(1).chain([u64::MAX]).collect();
    let functions = parts.into_iter().zip(starts).map(|((start, parts), next)| {
        let compiled = |part: Option<Part>| part.and_then(|part| part.compiled);
        let end = parts.end.min(next);
        Captured { start, end, entry: compiled(parts.entry), exit: compiled(parts.exit) }
    });
    (CapturedFile { path: path.to_path_buf(), build_id, functions: functions.collect() }, all_met)
}

/// Where values are is only known for this machine's functions.
fn of_another_machine(text: &str, machine: Machine) -> ArgumentError {
    let message = format!("values of calls can't be captured in programs for {}", machine.name());
    ArgumentError::new(text, 0..text.len(), message)
}

/// The values and conditions that are wanted of a function.
struct Parts {
    end: u64,
    entry: Option<Part>,
    exit: Option<Part>,
}

impl Parts {
    fn new(end: u64) -> Parts {
        Parts { end, entry: None, exit: None }
    }

    fn at(&self, moment: Moment) -> Option<&Part> {
        match moment {
            Moment::Entry => self.entry.as_ref(),
            Moment::Exit => self.exit.as_ref(),
        }
    }

    fn at_mut(&mut self, moment: Moment) -> &mut Option<Part> {
        match moment {
            Moment::Entry => &mut self.entry,
            Moment::Exit => &mut self.exit,
        }
    }
}

/// The values and conditions that are wanted at one moment, and their program.
#[derive(Clone, Default)]
struct Part {
    /// Values, and what they were read from.
    values: Option<(Request, String)>,
    conditions: Vec<Judged>,
    compiled: Option<Compiled>,
}

impl Part {
    fn with(mut self, wanted: &Wanted) -> Part {
        match &wanted.judged {
            Some(judged) => self.conditions.push(judged.clone()),
            None => self.values = Some((wanted.request.clone(), wanted.text.clone())),
        }
        self
    }

    fn compile(
        &self,
        moment: Moment,
        dwarf: Option<(&mut ModuleDwarf, &mut Units)>,
        place: FunctionPlace<'_>,
        options: &CaptureOptions,
    ) -> Result<Compiled, ArgumentError> {
        let nothing = || {
            (Request { function: String::new(), values: Some(Vec::new()), condition: None }, String::new())
        };
        let (request, text) = self.values.clone().unwrap_or_else(nothing);
        compile_with(&request, &self.conditions, &text, moment, dwarf, place, options)
    }
}

/// The program that copies from where a function was called, and nothing else.
fn call_site_alone(options: &CaptureOptions) -> Option<Compiled> {
    let options = CaptureOptions { call_site: true, ..options.clone() };
    Compiler::new(None, None, Moment::Entry, &options, "").compile(Some(&[]), None, &[]).ok()
}

/// Facts about a file beside its functions.
struct Debugging {
    dwarf: Option<ModuleDwarf>,
    units: Units,
    /// Whether the file is a C library, or contains one.
    is_c_library: bool,
    /// By address: whether no other object can call the function.
    are_local: HashMap<u64, bool>,
}

impl Debugging {
    fn open(file: &Path, build_id: &[u8]) -> Debugging {
        let identity = ModuleIdentity::new(file, build_id);
        let dwarf = ModuleDwarf::open(&identity, &SymbolOptions::default()).ok();
        let (are_local, is_c_library) = symbols_of(file).unwrap_or_default();
        Debugging { dwarf, units: Units::default(), is_c_library, are_local }
    }

    fn dwarf(&mut self) -> Option<(&mut ModuleDwarf, &mut Units)> {
        Some((self.dwarf.as_mut()?, &mut self.units))
    }
}

/// By address of a symbol: whether no other object can call the function; and whether the file has
/// a C library's start.
fn symbols_of(file: &Path) -> Option<(HashMap<u64, bool>, bool)> {
    let cache = ReadCache::new(everycall_io::infile::open(file).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let (mut are_local, mut is_c_library) = (HashMap::new(), false);
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        is_c_library |= symbol.is_definition() && symbol.name() == Ok("__libc_start_main");
        let SymbolFlags::Elf { st_other, .. } = symbol.flags() else { continue };
        // Linkers make hidden symbols local, too.
        let is_local = symbol.is_local() && st_other.visibility() == object::elf::STV_DEFAULT;
        // Of several names of one function, one that others can call is enough.
        are_local.entry(symbol.address()).and_modify(|known| *known &= is_local).or_insert(is_local);
    }
    Some((are_local, is_c_library))
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
    let mut parts = Texts::default();
    let (mut modules, mut functions) = (Vec::new(), Vec::new());
    let mut first_function = 0;
    for file in &files {
        let (path_offset, path_length) = parts.add_bytes(file.path.as_os_str().as_bytes());
        let mut build_id = [0; 32];
        build_id[..file.build_id.len()].copy_from_slice(&file.build_id);
        let of_file = file.functions.len() as u32;
        modules.extend(
            CaptureModule {
                build_id_length: file.build_id.len() as u32,
                first_function,
                functions: of_file,
                path_offset,
                path_length,
                build_id,
                ..CaptureModule::default()
            }
            .to_bytes(),
        );
        first_function += of_file;
        for function in &file.functions {
            let (start, end) = (function.start, function.end);
            let (entry, exit) = (parts.add(function.entry.as_ref()), parts.add(function.exit.as_ref()));
            functions.extend(CaptureFunction { start, end, entry, exit, reserved: 0 }.to_bytes());
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
    let mut set = header.to_bytes().to_vec();
    header.header_checksum = crc32fast::hash(&set[..CaptureSetHeader::SIZE - size_of::<u32>()]);
    header.write(&mut set);
    set.extend_from_slice(&payload);
    Ok(set)
}

/// Programs, layouts and paths of a set.
#[derive(Default)]
struct Texts {
    captures: Vec<u8>,
    count: u32,
    bytes: Vec<u8>,
    /// Programs and layouts that are there already: many functions share them.
    known: HashMap<Vec<u8>, (u32, u32)>,
}

impl Texts {
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
        self.captures.extend(entry.to_bytes());
        self.count += 1;
        self.count
    }
}
