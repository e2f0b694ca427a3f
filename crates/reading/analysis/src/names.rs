//! Names for the locations of a trace: the modules' symbols, opened on first use.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use everycall_export::{Details, FunctionName, Inlined, Names};
use everycall_format::ect::IMPORTED_BUILD_ID;
use everycall_format::frame::STEP;
use everycall_format::frame_pattern::module_of;
use everycall_profile::Split;
use everycall_reader::{EmbeddedSource, Module, Source, TraceFile};
use everycall_symbols::{
    CompiledSource, FunctionId, InlinedCall, KeptSymbols, Leave, ModuleIdentity, NamedFunction, PathMap,
    SourceFinder, SourceRefusal, SourceText, SymbolOptions, SymbolWarning, Symbols, Thunk, short_name,
};
use everycall_timeline::{Code, Location, Trace};

use crate::source_notes::{SourceNote, SourceNotes, is_newer};

/// Largest number of inlined calls that are shown per function; further ones are counted.
const INLINED_SHOWN: usize = 16;
/// Module files inside a trace may occupy this much memory together, ...
const IMAGES_BASE: u64 = 128 << 20;
/// ... or this multiple of the trace's size. Such files are compressed to about a quarter.
const IMAGES_RATIO: u64 = 16;

/// The library that records calls that wait.
pub(crate) const WAITS_LIBRARY: &str = "libeverycall-waits.so";

/// A function of a trace; equal ids denote the same function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FunctionKey {
    /// A function that the module's symbols know.
    Known(u32, FunctionId),
    /// An address.
    At(Location),
}

/// A function as in its source: all of its clones are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FunctionGroup {
    /// A function with a name.
    Named {
        /// Its module.
        module: u32,
        /// Its name.
        name: String,
        /// Where it is declared.
        place: Option<(String, Option<u32>)>,
        /// The function itself if several functions have the name and a part can't be assigned to
        /// one of them: its place among all functions of the module.
        alone: Option<u32>,
    },
    /// An address.
    At(Location),
}

/// How functions are named, and where their binaries and sources are searched.
#[derive(Clone, Debug, Default)]
pub struct NameOptions {
    /// Replacements for the folders of binaries.
    pub binary_maps: Vec<PathMap>,
    /// Replacements for the folders of sources.
    pub source_maps: Vec<PathMap>,
    /// Folders with debugging information, laid out like `/usr/lib/debug`, which is searched after
    /// them.
    pub debug_dirs: Vec<PathBuf>,
    /// Sources below these folders are allowed in addition.
    pub source_folders: Vec<PathBuf>,
    /// Sources are allowed everywhere, even if they aren't what was compiled.
    pub any_source: bool,
    /// Whether names are complete: default template arguments aren't left out.
    pub full_names: bool,
    /// Whether the calls that were inlined into each function are included.
    pub inlines: bool,
}

/// Why functions of a module could not be named completely. `Display` gives a sentence with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameWarning {
    /// Its file, or its debugging information.
    Symbols(SymbolWarning),
    /// The copy of its file that the trace holds, as a sentence.
    Image(String),
    /// The symbols or sources that the trace holds, or what was amiss when they were put there, as
    /// a sentence.
    Embedded(String),
}

impl NameWarning {
    /// Whether a [`PathMap`] to the right file would help.
    #[must_use]
    pub fn is_mended_by_path_map(&self) -> bool {
        matches!(self, NameWarning::Symbols(warning) if warning.is_mended_by_path_map())
    }
}

impl fmt::Display for NameWarning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameWarning::Symbols(warning) => warning.fmt(out),
            NameWarning::Image(sentence) | NameWarning::Embedded(sentence) => out.write_str(sentence),
        }
    }
}

/// The functions and sources of a trace.
pub struct SymbolNames<'a> {
    file: &'a TraceFile<'static>,
    modules: &'a [Module],
    options: SymbolOptions,
    maps_paths: bool,
    /// Whether files are preferred to what the trace holds, because somebody said where they are.
    prefers_files: bool,
    /// Whether inlined calls are included.
    has_inlines: bool,
    /// Whether names are shown in full.
    has_full_names: bool,
    /// Real time of the trace's end in nanoseconds since 1970, if known.
    ended_ns: Option<u64>,
    opened: RefCell<Vec<Option<Symbols>>>,
    /// Whether symbols are opened to be put into the trace: those that it holds aren't used.
    keeps: bool,
    /// The source files that the trace holds.
    embedded_sources: OnceCell<HashMap<Vec<u8>, EmbeddedSource>>,
    sources: RefCell<SourceFinder>,
    source_notes: RefCell<SourceNotes>,
    /// By the displayed path of a source: a module that was built from it.
    modules_of_sources: RefCell<HashMap<String, usize>>,
    /// Source paths that aren't UTF-8, by their displayed form.
    odd_paths: RefCell<HashMap<String, Arc<Path>>>,
    /// By their sentences: each is reported once.
    warnings: RefCell<BTreeMap<String, NameWarning>>,
    /// Bytes that module files in the trace may still occupy in memory.
    image_bytes_left: Cell<u64>,
}

/// A module's file that is being read into memory.
struct Image {
    bytes: Vec<u8>,
    left: u64,
}

impl Write for Image {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Err(io::Error::other(
                "the files of modules in it take more memory than such a trace's may",
            ));
        };
        self.bytes.try_reserve(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        self.left = left;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> SymbolNames<'a> {
    /// The names of `trace`, which was opened from `file`.
    pub fn new(file: &'a TraceFile<'static>, trace: &Trace<'_>, wanted: NameOptions) -> SymbolNames<'a> {
        let maps_paths = !wanted.binary_maps.is_empty();
        let prefers_files = maps_paths || !wanted.debug_dirs.is_empty();
        let mut options = SymbolOptions { binary_maps: wanted.binary_maps, ..SymbolOptions::default() };
        options.debug_dirs.splice(0..0, wanted.debug_dirs);
        let sources =
            SourceFinder::new(wanted.source_maps).allowing(wanted.source_folders, wanted.any_source);
        let modules = &file.recording().modules;
        let clock = trace.clock();
        let ended = trace.process_end().map(|end| clock.ns(end.ticks));
        SymbolNames {
            file,
            modules,
            options,
            has_inlines: wanted.inlines,
            has_full_names: wanted.full_names,
            maps_paths,
            prefers_files,
            ended_ns: clock
                .origin_realtime_ns()
                .zip(ended)
                .map(|(origin, ended)| origin.saturating_add(ended)),
            opened: RefCell::new(modules.iter().map(|_| None).collect()),
            keeps: false,
            embedded_sources: OnceCell::new(),
            sources: RefCell::new(sources),
            source_notes: RefCell::default(),
            modules_of_sources: RefCell::default(),
            odd_paths: RefCell::default(),
            warnings: RefCell::default(),
            image_bytes_left: Cell::new(IMAGES_BASE.saturating_add(file.size().saturating_mul(IMAGES_RATIO))),
        }
    }

    /// Reads the modules' own files even if the trace holds symbols and sources. The answers can be
    /// [kept](SymbolNames::kept).
    #[must_use]
    pub(crate) fn keeping(self) -> SymbolNames<'a> {
        SymbolNames { keeps: true, ..self }
    }

    /// The symbols that each module was asked for so far, by its index.
    pub(crate) fn kept(&self) -> Vec<(usize, KeptSymbols)> {
        let mut opened = self.opened.borrow_mut();
        let mut all = Vec::new();
        for (index, symbols) in opened.iter_mut().enumerate() {
            let Some(symbols) = symbols else { continue };
            let Some(mut kept) = symbols.kept() else { continue };
            let warnings = symbols.take_warnings().into_iter().filter(|warning| !self.is_expected(warning));
            warnings.for_each(|warning| kept.add_warning(warning.to_string()));
            all.push((index, kept));
        }
        all
    }

    /// A name as it is shown.
    fn shown(&self, full: String) -> String {
        if self.has_full_names { full } else { short_name(&full) }
    }

    /// Symbols of a file, whether it is a module of the trace or not.
    pub(crate) fn open_other(&self, path: &[u8], build_id: &[u8]) -> Symbols {
        let path = Path::new(OsStr::from_bytes(path));
        Symbols::open(&ModuleIdentity::new(path, build_id), &self.options)
    }

    /// Names of a file of [`SymbolNames::open_other`]: the function at an address, and those whose
    /// code was inlined there, outermost first.
    pub(crate) fn in_other(
        &self,
        symbols: &mut Symbols,
        image_address: u64,
    ) -> (Option<String>, Vec<String>) {
        let id = symbols.function_at(image_address);
        let name = symbols.is_known(id).then(|| self.shown(symbols.function(id).shown_name()));
        let inlined = symbols.inlined_at(image_address).into_iter().map(|name| self.shown(name));
        (name, inlined.collect())
    }

    /// The function at a location.
    pub fn key(&self, location: Location) -> FunctionKey {
        let known = self.with_module(location, |symbols| {
            let id = symbols.function_at(location.image_address);
            symbols.is_known(id).then_some(id)
        });
        known.flatten().map_or(FunctionKey::At(location), |id| FunctionKey::Known(location.module, id))
    }

    /// The function at a location as in its source.
    pub fn group(&self, location: Location) -> FunctionGroup {
        let FunctionKey::Known(module, id) = self.key(location) else { return FunctionGroup::At(location) };
        let FunctionName { name, full_name, file, line, .. } = self.name(location);
        let is_ambiguous =
            line.is_none() && self.with_module(location, |symbols| symbols.is_ambiguous(id)) == Some(true);
        FunctionGroup::Named {
            module: self.grouped(module),
            name: full_name.unwrap_or(name).into_owned(),
            place: file.map(|file| (file.into_owned(), line)),
            alone: if is_ambiguous { self.with_module(location, |symbols| symbols.place(id)) } else { None },
        }
    }

    /// Whether the function at a location is a frame by id.
    #[must_use]
    pub fn is_frame(&self, location: Location) -> bool {
        location.module_index().is_some_and(|index| self.is_of_frames(index))
    }

    /// The linker's name of the function at a location.
    pub fn symbol(&self, location: Location) -> Option<String> {
        self.with_module(location, |symbols| {
            let id = symbols.function_at(location.image_address);
            symbols.function(id).linkage_name
        })?
    }

    /// The C string at a location, without its terminator, if it lies in the module's read-only
    /// data.
    #[must_use]
    pub fn constant_text(&self, location: Location) -> Option<Vec<u8>> {
        self.with_module(location, |symbols| symbols.constant_text(location.image_address))?
    }

    /// The variable that contains a location: `server`, `app::queue+64`.
    #[must_use]
    pub fn variable(&self, location: Location) -> Option<String> {
        self.with_module(location, |symbols| symbols.variable_at(location.image_address))?
    }

    /// Gives tasks of `trace`, which was opened from the same file, the names of their types, where
    /// the program didn't name them.
    pub fn name_tasks(&self, trace: &mut Trace<'_>) {
        if trace.has_tasks_of_code() {
            trace.name_tasks(|location| self.task(location));
        }
    }

    /// The name of tasks whose type is that of the function at a location.
    pub fn task(&self, location: Location) -> Option<String> {
        self.with_module(location, |symbols| symbols.task_name_at(location.image_address))?
    }

    /// If the location is in a thunk without the function's body: how it continues in its function.
    pub fn leads_on(&self, location: Location) -> Option<Thunk> {
        self.with_module(location, |symbols| {
            let id = symbols.function_at(location.image_address);
            let function = symbols.function(id);
            let (thunk, name) = (function.thunk()?, function.name.clone());
            let has_body = symbols.inlined(id).0.iter().any(|call| call.level == 0 && call.name == name);
            (!has_body).then_some(thunk)
        })?
    }

    /// How calls of the function at a location go on in a part that the compiler has split off, or
    /// whether it is such a part.
    pub fn split(&self, location: Location) -> Split {
        let split = self.with_module(location, |symbols| {
            let id = symbols.function_at(location.image_address);
            match symbols.function(id).is_split_part() {
                true => Split::Part,
                false if symbols.has_split_part(id) => Split::Whole,
                false => Split::No,
            }
        });
        split.unwrap_or_default()
    }

    fn leave(&self, exit: Location) -> Option<Leave> {
        self.with_module(exit, |symbols| symbols.leave(exit.image_address))?
    }

    /// The name of the function to which the jump at an exit leads; `None` if there is no jump, or
    /// if its target is computed.
    #[must_use]
    pub fn jump_target(&self, exit: Location) -> Option<String> {
        match self.leave(exit)? {
            Leave::Return | Leave::JumpAnywhere => None,
            Leave::Jump(id) => self.with_module(exit, |symbols| symbols.function(id).shown_name()),
            Leave::JumpByName(name) => Some(everycall_symbols::demangle(&name)),
        }
    }

    /// The name of the function at a location, with everything known about it.
    pub fn name(&self, location: Location) -> FunctionName<'static> {
        let named = self.with_module(location, |symbols| {
            let id = symbols.function_at(location.image_address);
            let is_known = symbols.is_known(id);
            let function = symbols.function(id);
            let file = function.file.as_ref().map(|file| self.shown_path(file));
            (function.shown_name(), file, function.line, is_known)
        });
        let index = location.module_index();
        if let (Some(index), Some((_, Some(file), ..))) = (index, &named) {
            let mut modules = self.modules_of_sources.borrow_mut();
            if !modules.contains_key(file) {
                modules.insert(file.clone(), index);
            }
        }
        let module = index.and_then(|index| self.modules.get(index));
        if let Some(frames) = module.filter(|module| module.is_frames()) {
            return named_frame(location, frames, named);
        }
        let module = module.map_or(Cow::Borrowed("unknown"), |module| Cow::Owned(base_name(&module.path)));
        match named {
            Some((full, file, line, _)) => {
                let name = self.shown(full.clone());
                let full_name = (name != full).then_some(full.into());
                FunctionName { name: name.into(), full_name, module, file: file.map(Cow::from), line }
            }
            None => FunctionName {
                name: nameless(location).into(),
                full_name: None,
                module,
                file: None,
                line: None,
            },
        }
    }

    /// Why modules could not be named completely, or lack calls, for the modules used so far, sorted
    /// by sentence. Where none was used because nothing was recorded, for the first that have sites.
    #[must_use]
    pub fn warnings(&self) -> Vec<NameWarning> {
        /// Largest number of modules that are opened for this alone.
        const OPENED_MAX: usize = 4;
        if self.opened.borrow().iter().all(Option::is_none) {
            let with_sites = self.modules.iter().zip(0..).filter(|(module, _)| module.sites > 0);
            for (_, module) in with_sites.take(OPENED_MAX) {
                self.with_module(Location { module, image_address: 0 }, |_| ());
            }
        }
        let mut opened = self.opened.borrow_mut();
        let kept: Vec<String> = opened.iter_mut().flatten().flat_map(Symbols::take_kept_warnings).collect();
        kept.into_iter().for_each(|sentence| self.note(NameWarning::Embedded(sentence)));
        let of_modules = opened.iter_mut().flatten().flat_map(Symbols::take_warnings);
        of_modules
            .filter(|warning| !self.is_expected(warning))
            .for_each(|warning| self.note(NameWarning::Symbols(warning)));
        self.warnings.borrow().values().cloned().collect()
    }

    /// Whether a warning is that a library of ours has no lines, which nobody looks for, or that
    /// functions of which the trace of another tool only had the names have none.
    fn is_expected(&self, warning: &SymbolWarning) -> bool {
        let SymbolWarning::NoDebugInfo { path } = warning else { return false };
        let is_names = |module: &Module| {
            module.path == path.as_os_str().as_bytes() && module.build_id.starts_with(&IMPORTED_BUILD_ID)
        };
        path.ends_with(WAITS_LIBRARY) || self.modules.iter().any(is_names)
    }

    fn note(&self, warning: NameWarning) {
        self.warnings.borrow_mut().insert(warning.to_string(), warning);
    }

    fn shown_path(&self, path: &Arc<Path>) -> String {
        let shown = path.to_string_lossy().into_owned();
        if path.to_str().is_none() {
            self.odd_paths.borrow_mut().insert(shown.clone(), Arc::clone(path));
        }
        shown
    }

    fn with_module<T>(&self, location: Location, ask: impl FnOnce(&mut Symbols) -> T) -> Option<T> {
        let index = location.module_index()?;
        let module = self.modules.get(index)?;
        let mut opened = self.opened.borrow_mut();
        Some(ask(opened.get_mut(index)?.get_or_insert_with(|| self.open(location.module, module))))
    }

    fn open(&self, index: u32, module: &Module) -> Symbols {
        let path = Path::new(OsStr::from_bytes(&module.path));
        if module.is_frames() {
            return Symbols::of_kept(self.frames(module), path);
        }
        if self.prefers_files {
            let found = self.open_file(index, module, path);
            if found.has_functions() {
                return found;
            }
        }
        match self.embedded(index, path) {
            Some(kept) => Symbols::of_kept(kept, path),
            None => self.open_file(index, module, path),
        }
    }

    /// The program's names for its frames by id.
    fn frames(&self, module: &Module) -> KeptSymbols {
        let names = self.file.recording().frames_of(module).map_or(&[][..], |frames| &frames.names);
        KeptSymbols::of_names(names.iter().map(|frame| NamedFunction {
            address: u64::from(frame.id) * u64::from(STEP),
            name: String::from_utf8_lossy(&frame.name).into_owned(),
            file: (!frame.file.is_empty()).then(|| Path::new(OsStr::from_bytes(&frame.file))),
            line: frame.line,
        }))
    }

    /// The module that stands for this one where functions are grouped: processes have frames by id
    /// of their own, with the same names.
    fn grouped(&self, module: u32) -> u32 {
        let of = |module: &Module| module.is_frames();
        let is_frames = self.modules.get(module as usize).is_some_and(of);
        let first = if is_frames { self.modules.iter().position(of) } else { None };
        first.map_or(module, |first| first as u32)
    }

    /// The symbols of a module's own files.
    fn open_file(&self, index: u32, module: &Module, path: &Path) -> Symbols {
        let mut identity = ModuleIdentity::new(path, &module.build_id);
        identity.image = self.image(index);
        if identity.image.is_none() && module.build_id.is_empty() && self.was_changed(path, module) {
            // No file has this size.
            identity.file_size = Some(u64::MAX);
        }
        let open = if self.keeps { Symbols::keeping } else { Symbols::open };
        open(&identity, &self.options)
    }

    /// The symbols of a module that the trace holds. Damaged ones are missing.
    fn embedded(&self, index: u32, path: &Path) -> Option<KeptSymbols> {
        if self.keeps || !self.file.has_symbols(index) {
            return None;
        }
        let mut left = self.image_bytes_left.get();
        let bytes = self.file.symbols(index, &mut left).map_err(|warning| warning.to_string());
        self.image_bytes_left.set(left);
        let kept = bytes.and_then(|bytes| {
            let bytes = bytes.unwrap_or_default();
            KeptSymbols::read(&bytes).map_err(str::to_owned)
        });
        let note = |why: String| {
            let module = path.display();
            let sentence = format!(
                "the symbols of {module} in this trace can't be used ({why}); its file is used instead, if it is still there"
            );
            self.note(NameWarning::Embedded(sentence));
        };
        kept.map_err(note).ok()
    }

    /// A source file that the trace holds.
    fn embedded_source(&self, path: &Path) -> Option<&EmbeddedSource> {
        if self.keeps || !self.file.has_sources() {
            return None;
        }
        let all = self.embedded_sources.get_or_init(|| {
            let mut left = self.image_bytes_left.get();
            let (sources, warnings) = self.file.sources(&mut left);
            self.image_bytes_left.set(left);
            for warning in warnings {
                let sentence = format!("some sources in this trace can't be used: {warning}");
                self.note(NameWarning::Embedded(sentence));
            }
            sources.into_iter().map(|source| (source.path.clone(), source)).collect()
        });
        all.get(path.as_os_str().as_bytes())
    }

    /// The module's file, if the trace contains it.
    fn image(&self, index: u32) -> Option<Arc<[u8]>> {
        if !self.file.has_module_image(index) {
            return None;
        }
        let left = self.image_bytes_left.get();
        let mut image = Image { bytes: Vec::new(), left };
        let copied = self.file.copy_module_image(index, &mut image);
        self.image_bytes_left.set(image.left);
        match copied {
            Ok(_) => Some(image.bytes.into()),
            Err(error) => {
                self.note(NameWarning::Image(error.to_string()));
                None
            }
        }
    }

    /// Whether a file without build id certainly differs from the traced one.
    fn was_changed(&self, path: &Path, module: &Module) -> bool {
        let Ok(now) = fs::metadata(path) else { return false };
        if self.maps_paths {
            return false;
        }
        let another = module.inode != 0 && (now.dev(), now.ino()) != (module.device, module.inode);
        let modified_ns = i128::from(now.mtime()) * 1_000_000_000 + i128::from(now.mtime_nsec());
        another || self.ended_ns.is_some_and(|ended| modified_ns > i128::from(ended))
    }
}

impl Code for SymbolNames<'_> {
    fn same_function(&self, entry: Location, exit: Location) -> Option<bool> {
        if entry == exit {
            return Some(true);
        }
        let (FunctionKey::Known(module, _), FunctionKey::Known(exit_module, _)) =
            (self.key(entry), self.key(exit))
        else {
            return None;
        };
        if module != exit_module {
            return Some(false);
        }
        self.with_module(entry, |symbols| symbols.is_same_function(entry.image_address, exit.image_address))?
    }

    fn call_site(&self, behind: Location) -> Option<String> {
        // The call ends there.
        let call = Location { image_address: behind.image_address.checked_sub(1)?, ..behind };
        let line = self.with_module(call, |symbols| symbols.line_at(call.image_address))?;
        if let Some((path, line)) = line {
            return Some(format!("{}:{line}", base_name(path.as_os_str().as_bytes())));
        }
        let name = self.name(call).name;
        let inside =
            self.with_module(behind, |symbols| symbols.distance_in_function(behind.image_address))?;
        Some(match inside {
            Some(inside) => format!("{name}+{inside:#x}"),
            None => format!("{name} ({:#x})", behind.image_address),
        })
    }

    fn function_named(&self, place: Location) -> Option<String> {
        let inside =
            self.with_module(place, |symbols| symbols.distance_in_function(place.image_address))??;
        (inside == 0).then(|| self.name(place).name.into_owned())
    }

    fn variable_named(&self, place: Location) -> Option<String> {
        self.variable(place)
    }

    fn may_call(&self, caller: Location, callee: Location) -> Option<bool> {
        if caller.module != callee.module {
            return None;
        }
        self.with_module(callee, |symbols| symbols.may_call(caller.image_address, callee.image_address))?
    }

    fn is_inlined(&self, code: Location, entry: Location, is_callees: bool) -> Option<bool> {
        let FunctionKey::Known(module, entry_id) = self.key(entry) else { return None };
        if module != code.module {
            return Some(false);
        }
        self.with_module(code, |symbols| symbols.is_inlined_at(code.image_address, entry_id, is_callees))?
    }

    fn reports_exits_in_cleanups(&self, code: Location) -> Option<bool> {
        self.with_module(code, |symbols| symbols.is_by_gcc(code.image_address))?
    }

    fn jumps(&self, exit: Location) -> bool {
        matches!(self.leave(exit), Some(Leave::Jump(_) | Leave::JumpByName(_) | Leave::JumpAnywhere))
    }

    fn is_bare_thunks(&self, exit: Location) -> bool {
        self.with_module(exit, |symbols| symbols.is_bare_thunk(exit.image_address)).unwrap_or(false)
    }

    fn jumps_to(&self, exit: Location, entry: Location) -> Option<bool> {
        match self.leave(exit)? {
            Leave::Return => Some(false),
            Leave::Jump(target) => Some(self.key(entry) == FunctionKey::Known(exit.module, target)),
            Leave::JumpByName(name) => self.with_module(entry, |symbols| {
                let id = symbols.function_at(entry.image_address);
                symbols.is_called(id, &name)
            })?,
            Leave::JumpAnywhere => None,
        }
    }
}

impl Names for SymbolNames<'_> {
    fn function(&self, location: everycall_export::Location) -> FunctionName<'_> {
        self.name(Location { module: location.module, image_address: location.image_address })
    }

    fn details(&self, location: everycall_export::Location) -> Details {
        let details = self.with_module(location, |symbols| details(symbols, location, self.has_inlines));
        let mut details = details.unwrap_or_default();
        if !self.has_full_names {
            details.full_name = details.full_name.filter(|full| short_name(full) != *full);
            for name in &mut details.same_code_as {
                *name = short_name(name);
            }
            for call in &mut details.inlined {
                call.name = short_name(&call.name);
            }
        } else {
            details.full_name = None;
        }
        details
    }

    fn jump_target(&self, exit: everycall_export::Location) -> Option<String> {
        let exit = Location { module: exit.module, image_address: exit.image_address };
        let name = SymbolNames::jump_target(self, exit)?;
        Some(if self.has_full_names { name } else { short_name(&name) })
    }

    fn source(&self, file: &str) -> Option<Cow<'_, str>> {
        let odd_paths = self.odd_paths.borrow();
        let path = odd_paths.get(file).map_or(Path::new(file), |path| path);
        if let Some(source) = self.embedded_source(path) {
            self.source_notes.borrow_mut().add_embedded(file, source.is_newer, source.is_lossy);
            return Some(Cow::Owned(source.text.clone()));
        }
        // Sources that can't be read are left out; the export is complete without them.
        let module = self.modules_of_sources.borrow().get(file).copied();
        let found = self.found_source(module, path)?;
        self.source_notes.borrow_mut().add(file, &found, self.built(file));
        Some(Cow::Owned(found.ok()?.text.to_string()))
    }
}

impl SymbolNames<'_> {
    /// A source file as it is put into the trace. It is noted as if it had been shown.
    pub(crate) fn source_to_keep(&self, module: usize, path: &Path) -> Option<EmbeddedSource> {
        let file = self.shown_path(&path.into());
        let found = self.found_source(Some(module), path)?;
        let built = self.built(&file);
        self.source_notes.borrow_mut().add(&file, &found, built);
        let source = found.ok()?;
        Some(EmbeddedSource {
            path: path.as_os_str().as_bytes().to_vec(),
            is_newer: is_newer(&source, built),
            is_lossy: source.is_lossy,
            md5: source.md5,
            text: source.text.to_string(),
        })
    }

    /// The source files of frames by id that were asked about, with their modules.
    pub(crate) fn sources_of_frames(&self) -> Vec<(usize, PathBuf)> {
        let (all, odd_paths) = (self.modules_of_sources.borrow(), self.odd_paths.borrow());
        let of_frames = all.iter().filter(|(_, module)| self.is_of_frames(**module));
        let path = |file: &String| odd_paths.get(file).map_or(PathBuf::from(file), |path| path.to_path_buf());
        of_frames.map(|(file, module)| (*module, path(file))).collect()
    }

    fn is_of_frames(&self, module: usize) -> bool {
        self.modules.get(module).is_some_and(Module::is_frames)
    }

    /// A source file of a module. `None` where an interpreter has code of no file: `<string>`.
    fn found_source(&self, module: Option<usize>, path: &Path) -> Option<Result<SourceText, SourceRefusal>> {
        let mut sources = self.sources.borrow_mut();
        if !module.is_some_and(|module| self.is_of_frames(module)) {
            let compiled = module.map(|module| self.compiled_source(module, path)).unwrap_or_default();
            return Some(sources.compiled(path, &compiled));
        }
        let text = path.as_os_str().as_bytes();
        if text.starts_with(b"<") && text.ends_with(b">") {
            return None;
        }
        // Interpreters take names as they are given: relative to where the program was started.
        let folder = Path::new(OsStr::from_bytes(&self.file.recording().meta.working_folder));
        let started = CompiledSource { md5: None, folder: Some(folder.to_path_buf()) };
        Some(sources.compiled(&folder.join(path), &started))
    }

    /// A module's debugging information about a source file.
    pub(crate) fn compiled_source(&self, module: usize, path: &Path) -> CompiledSource {
        let opened = self.opened.borrow();
        let symbols = opened.get(module).and_then(Option::as_ref);
        symbols.map(|symbols| symbols.compiled_source(path)).unwrap_or_default()
    }
}

impl SymbolNames<'_> {
    /// The latest time by which the file built from a source existed: when it was traced, or when
    /// it was written.
    fn built(&self, source: &str) -> Option<SystemTime> {
        let traced = self.ended_ns.map(|ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns));
        let module = self.modules.get(*self.modules_of_sources.borrow().get(source)?)?;
        let path = Path::new(OsStr::from_bytes(&module.path));
        let mapped = PathMap::apply_all(&self.options.binary_maps, path);
        // If the file was replaced since, the new one is younger, which does no harm.
        let written = fs::metadata(mapped.as_deref().unwrap_or(path)).and_then(|file| file.modified()).ok();
        written.into_iter().chain(traced).min()
    }

    /// Which of the requested sources could not be shown as they were compiled.
    #[must_use]
    pub fn source_notes(&self) -> Vec<SourceNote> {
        self.source_notes.borrow().all()
    }
}

/// Facts about a function besides its name.
fn details(symbols: &mut Symbols, location: Location, has_inlines: bool) -> Details {
    let id = symbols.function_at(location.image_address);
    let (twins, more) = symbols.twins(id);
    let function = symbols.function(id);
    let own = function.shown_name();
    let names = twins.iter().map(|linkage| everycall_symbols::shown_name(linkage));
    // Other names that the source gives to the same function aren't other functions.
    let mut others: Vec<String> = names.filter(|name| *name != own).collect();
    others.dedup();
    let has_others = !others.is_empty();
    if has_others && more > 0 {
        others.push(format!("and {more} more"));
    }
    let is_one_of_many = function.may_have_clones() || has_others;
    let (mut inlined, mut more_inlined) = if has_inlines { symbols.inlined(id) } else { (Vec::new(), 0) };
    more_inlined += inlined.len().saturating_sub(INLINED_SHOWN) as u64;
    keep_outer(&mut inlined);
    Details {
        full_name: Some(own),
        symbol: function.linkage_name.clone().filter(|_| is_one_of_many),
        same_code_as: others,
        inlined: inlined.into_iter().map(shown_inlined).collect(),
        more_inlined,
    }
}

/// Keeps the outermost calls up to the limit: those that the function's own source names.
fn keep_outer(calls: &mut Vec<InlinedCall>) {
    let mut places: Vec<usize> = (0..calls.len()).collect();
    places.sort_by_key(|&place| calls[place].level);
    places.truncate(INLINED_SHOWN);
    let kept: BTreeSet<usize> = places.into_iter().collect();
    let mut place = 0;
    calls.retain(|_| {
        place += 1;
        kept.contains(&(place - 1))
    });
}

fn shown_inlined(call: InlinedCall) -> Inlined {
    let place = call.file.as_deref().and_then(Path::file_name).map(|file| {
        let line = call.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{}{line}", file.to_string_lossy())
    });
    Inlined { level: call.level, name: call.name, place }
}

/// The name of a frame by id: of what was found, and whether the program registered it. It isn't
/// C++: nothing is left out of it. Its module is its file's, by which patterns may name it, too.
fn named_frame(
    location: Location,
    module: &Module,
    found: Option<(String, Option<String>, Option<u32>, bool)>,
) -> FunctionName<'static> {
    let (name, file, line) = match found {
        Some((name, file, line, true)) => (name, file, line),
        _ => (format!("frame {}", location.image_address / u64::from(STEP)), None, None),
    };
    let of_file = file.as_deref().map(|file| base_name(module_of(file.as_bytes())));
    let full_name = of_file.as_ref().map(|module| format!("{module}.{name}").into());
    let module = Cow::Owned(of_file.unwrap_or_else(|| base_name(&module.path)));
    FunctionName { name: name.into(), full_name, module, file: file.map(Cow::from), line }
}

fn nameless(location: Location) -> String {
    match location.module {
        Location::NO_MODULE => format!("code outside all modules at {:#x}", location.image_address),
        Location::LOST_MODULE => format!("code of an unknown module at offset {:#x}", location.image_address),
        module => format!("module {module}+{:#x}", location.image_address),
    }
}

pub(crate) fn base_name(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if name.is_empty() { "unknown".to_owned() } else { String::from_utf8_lossy(name).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_inlined_calls_are_kept_with_those_around_them() {
        let call = |(place, level): (usize, u32)| InlinedCall {
            level,
            name: place.to_string(),
            file: None,
            line: None,
        };
        // Ten calls, each with an inner call, which contains another one.
        let mut calls: Vec<_> = [0, 1, 2].repeat(10).into_iter().enumerate().map(call).collect();
        keep_outer(&mut calls);
        assert_eq!(calls.len(), INLINED_SHOWN);
        assert_eq!(calls.iter().filter(|call| call.level == 0).count(), 10);
        assert_eq!(calls.iter().filter(|call| call.level == 1).count(), 6);
        assert!(calls.windows(2).all(|pair| pair[1].level <= pair[0].level + 1));
        let mut few: Vec<_> = [0, 1, 2].into_iter().enumerate().map(call).collect();
        keep_outer(&mut few);
        assert_eq!(few.len(), 3);
    }
}
