//! The functions of one module, by address.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::arch;
use crate::constants::Constants;
use crate::debug::{DebugInfo, Declaration, EntryId, InlinedCalls, SplitPlaces};
use crate::elf;
use crate::exits::{AllNames, Exits, Leaving};
use crate::function::{Function, FunctionEntry, FunctionId, InlinedCall, Leave, NameSource};
use crate::identity::ModuleIdentity;
use crate::instruction::Target;
use crate::locate::{Located, LocatedFile, locate};
use crate::name::{demangle, is_named, split_part, thunk_target};
use crate::options::SymbolOptions;
use crate::source::CompiledSource;
use crate::table::FunctionTable;
use crate::task_names::TaskNames;
use crate::variables::Variables;
use crate::warning::SymbolWarning;

/// Names that [`ModuleSymbols::twins`] gives of one function.
const TWINS_MAX: usize = 8;
/// Functions of one name that a thunk's is looked for among.
const TARGETS_MAX: usize = 8;

/// The functions of one module.
///
/// Opening reads the symbols; DWARF is read unit by unit when [`function`](Self::function) asks for
/// it.
pub struct ModuleSymbols {
    path: PathBuf,
    /// The text before `+0x` in the names of functions without a symbol.
    short_name: String,
    table: FunctionTable,
    /// Requested addresses that are in no function of the table; their ids follow the table's.
    unnamed: Vec<u64>,
    unnamed_ids: HashMap<u64, FunctionId>,
    functions: Vec<Option<Box<Function>>>,
    /// Rows of the table by name; filled when a part looks for its whole.
    by_name: Option<Vec<u32>>,
    debug: DebugState,
    /// The module's own file.
    file: Option<LocatedFile>,
    /// Read when an exit is looked up.
    exits: Option<Exits>,
    /// Read when a name is looked up.
    all_names: Option<AllNames>,
    /// Read when a constant text is asked for.
    constants: Option<Constants>,
    /// Read when a variable is looked up.
    variables: Option<Variables>,
    /// Read when a task's name is looked up.
    task_names: Option<TaskNames>,
    warnings: Vec<SymbolWarning>,
}

enum DebugState {
    /// Not needed yet.
    Unread(Box<DebugFiles>),
    Read(Box<DebugInfo>),
    None,
}

struct DebugFiles {
    debug: LocatedFile,
    shared: Option<LocatedFile>,
    places: SplitPlaces,
}

impl ModuleSymbols {
    /// Opens a module. If nothing can be read, all functions are named by module and offset, and
    /// [`warnings`](Self::warnings) say why.
    pub fn open(identity: &ModuleIdentity<'_>, options: &SymbolOptions) -> Self {
        let mut located = catch_unwind(AssertUnwindSafe(|| locate(identity, options))).unwrap_or_default();
        let mut warnings = std::mem::take(&mut located.warnings);
        let table = catch_unwind(AssertUnwindSafe(|| build_table(&located))).unwrap_or_else(|_| {
            warnings.push(SymbolWarning::NotUnderstood {
                path: identity.path.to_path_buf(),
                reason: "the reader of its symbols gave up on it".to_owned(),
            });
            FunctionTable::default()
        });
        Self {
            path: identity.path.to_path_buf(),
            short_name: short_name(identity.path),
            table,
            unnamed: Vec::new(),
            unnamed_ids: HashMap::new(),
            functions: Vec::new(),
            by_name: None,
            file: located.module.clone(),
            exits: None,
            all_names: None,
            constants: None,
            variables: None,
            task_names: None,
            debug: debug_state(located, options),
            warnings,
        }
    }

    /// The function that contains an image address. Each address outside all known functions gets
    /// its own id.
    pub fn function_at(&mut self, image_address: u64) -> FunctionId {
        if let Some(id) = self.table.find(image_address) {
            return id;
        }
        let next = FunctionId((self.table.len() + self.unnamed.len()) as u32);
        let id = *self.unnamed_ids.entry(image_address).or_insert(next);
        if id == next {
            self.unnamed.push(image_address);
        }
        id
    }

    /// All that is known of a function. The first call for a function of a compilation unit reads
    /// the unit.
    ///
    /// # Panics
    ///
    /// Where `id` is not from this module.
    pub fn function(&mut self, id: FunctionId) -> &Function {
        let count = self.table.len() + self.unnamed.len();
        assert!(id.index() < count, "function {} of a module with {count}", id.0);
        if self.functions.len() < count {
            self.functions.resize_with(count, || None);
        }
        let known = self.functions[id.index()].take();
        let function = known.unwrap_or_else(|| Box::new(self.resolve(id)));
        self.functions[id.index()].insert(function)
    }

    /// The table of functions, sorted by address; nothing is resolved for it.
    pub fn functions(&self) -> impl ExactSizeIterator<Item = FunctionEntry<'_>> {
        self.table.entries()
    }

    /// The name that [`function`](Self::function) would give, from symbols alone: cheap enough to
    /// match patterns against every function. (Of functions that were folded into one, it may be
    /// another one's.)
    pub fn name(&self, id: FunctionId) -> String {
        match self.table.entry(id) {
            Some(entry) => self.name_entry(&entry).0,
            None => self.offset_name(self.unnamed.get(id.index() - self.table.len()).copied().unwrap_or(0)),
        }
    }

    /// How a function is left at the exit whose hook returns to this image address; `None` if that
    /// isn't known, as for exits that are recorded by their function's own address.
    pub fn leave(&mut self, image_address: u64) -> Option<Leave> {
        let is_start = self.is_start(image_address);
        let (exits, image) = self.exits()?;
        let leaving = exits.at(image, image_address, is_start)?;
        Some(match leaving {
            Leaving::Returns => Leave::Return,
            Leaving::JumpsAnywhere => Leave::JumpAnywhere,
            Leaving::JumpsToName(name) => Leave::JumpByName(String::from_utf8_lossy(&name).into_owned()),
            Leaving::JumpsTo(target) => {
                let id = self.function_at(target);
                let entry = self.table.entry(id);
                match entry.map(|entry| (entry.is_plt, entry.linkage_name)) {
                    Some((_, name)) if arch::is_return_thunk(name) => Leave::Return,
                    Some((_, name)) if arch::is_indirect_thunk(name) => Leave::JumpAnywhere,
                    Some((true, name)) => Leave::JumpByName(String::from_utf8_lossy(name).into_owned()),
                    // A stub without a name, or unknown code.
                    None => Leave::JumpAnywhere,
                    // Over a site: an exit that is only known by its function.
                    Some(_) if is_start && self.table.find(image_address) == Some(id) => return None,
                    Some(_) => Leave::Jump(id),
                }
            }
        })
    }

    /// Whether the function at an image address may itself call the one that is entered at another
    /// one: false where it has no instruction that could. `None` where that isn't known, as where
    /// it calls through a pointer.
    pub fn may_call(&mut self, caller: u64, callee: u64) -> Option<bool> {
        /// The parts of a function that compilers split off.
        const PARTS_MAX: usize = 16;
        const SIZE_MAX: u64 = 1 << 20;
        let callee_id = self.table.find(callee)?;
        let mut parts = vec![self.table.find(caller)?];
        let mut next = 0;
        while let Some(&part) = parts.get(next) {
            next += 1;
            let (start, size) = self.table.entry(part).map(|entry| (entry.start, entry.size))?;
            let (exits, image) = self.exits()?;
            if size == 0 || size > SIZE_MAX {
                return None;
            }
            let has_sites = exits.has_sites();
            for target in arch::targets(exits.machine()?, exits.code_of(image, start, size)?, start)? {
                let (exits, _) = self.exits()?;
                let name = match target {
                    Target::Slot(slot) => exits.slot_name(slot)?.to_vec(),
                    Target::Address(address) => {
                        let id = self.table.find(address)?;
                        if id == callee_id || self.is_same_function(callee, address) == Some(true) {
                            return Some(true);
                        }
                        let entry = self.table.entry(id)?;
                        let name = entry.linkage_name;
                        if arch::is_indirect_thunk(name) || !has_sites && may_be_of_inlined(name) {
                            return None;
                        }
                        if !entry.is_plt {
                            let is_part = name.is_empty() || split_part_of_bytes(name);
                            if is_part && !parts.contains(&id) {
                                parts.push(id);
                            }
                            continue;
                        }
                        name.to_vec()
                    }
                };
                if !has_sites && may_be_of_inlined(&name) {
                    return None;
                }
                if self.is_called(callee_id, str::from_utf8(&name).ok()?)? {
                    return Some(true);
                }
            }
            if parts.len() > PARTS_MAX {
                return None;
            }
        }
        Some(false)
    }

    /// The C string at an image address, without its end: `None` where the file isn't there, where
    /// programs may write, and where no end comes within 4,096 bytes.
    pub fn constant_text(&mut self, image_address: u64) -> Option<Vec<u8>> {
        let file = self.file.as_ref()?;
        let constants = self.constants.get_or_insert_with(|| read(file, Constants::of));
        constants.text(&file.bytes, image_address).map(<[u8]>::to_vec)
    }

    /// File and line of the code at an image address: of the innermost function that was inlined
    /// there.
    pub fn line_at(&mut self, image_address: u64) -> Option<(PathBuf, u32)> {
        self.read_debug_info();
        let DebugState::Read(debug) = &mut self.debug else { return None };
        let found = debug.line_at(image_address);
        self.warnings.extend(debug.take_warnings(&self.path));
        found.map(|(path, line)| (path.to_path_buf(), line))
    }

    /// The name of the variable that contains an image address, with the distance from its
    /// beginning in bytes if that isn't 0: `server`, `app::queue+64`.
    pub fn variable_at(&mut self, image_address: u64) -> Option<String> {
        let file = self.file.as_ref()?;
        let variables = self.variables.get_or_insert_with(|| read(file, Variables::of));
        let (name, inside) = variables.at(image_address)?;
        let name = crate::demangle(name);
        Some(if inside == 0 { name } else { format!("{name}+{inside}") })
    }

    /// The name of tasks whose type is that of the function at an image address; `None` if it isn't
    /// one of a task's type.
    pub fn task_name_at(&mut self, image_address: u64) -> Option<String> {
        let id = self.table.find(image_address)?;
        let file = self.file.as_ref()?;
        let names = self.task_names.get_or_insert_with(|| read(file, TaskNames::of));
        let linkage_name = str::from_utf8(self.table.entry(id)?.linkage_name).ok()?;
        names.get(split_part(linkage_name).0).map(str::to_owned)
    }

    /// How far an image address is behind the beginning of the function that contains it; `None` if
    /// no known one does.
    pub fn distance_in_function(&mut self, image_address: u64) -> Option<u64> {
        let id = self.table.find(image_address)?;
        image_address.checked_sub(self.table.start(id.index())?)
    }

    fn is_start(&self, image_address: u64) -> bool {
        self.table.find(image_address).and_then(|id| self.table.start(id.index())) == Some(image_address)
    }

    /// The module's exits, and its file.
    fn exits(&mut self) -> Option<(&Exits, &[u8])> {
        let file = self.file.as_ref()?;
        Some((self.exits.get_or_insert_with(|| read(file, Exits::of)), &file.bytes))
    }

    /// Whether code at an image address is of the function that is entered at another one; `None`
    /// if that isn't known.
    pub fn is_same_function(&mut self, entry: u64, code: u64) -> Option<bool> {
        let (entry_row, code_row) = (self.table.find(entry)?, self.table.find(code)?);
        if entry_row == code_row {
            return Some(true);
        }
        // A function's cold part is at another address; if its whole function isn't certain, there
        // is no result.
        let mut whole = |id| {
            let function = self.function(id);
            let is_part = function.part.as_deref().is_some_and(|part| part.contains("cold"));
            if is_part { function.whole } else { Some(id) }
        };
        let is_same = whole(entry_row)? == whole(code_row)?;
        let has_symbol = self.table.entry(code_row).is_some_and(|row| !row.linkage_name.is_empty());
        if is_same || has_symbol || self.table.owner(code_row).is_some() || self.is_start(code) {
            return Some(is_same);
        }
        let described = self.declaration(code_row).entry;
        if described.is_some() && described == self.declaration(entry_row).entry {
            return Some(true);
        }
        (!self.is_without_entry(code_row, entry_row)).then_some(false)
    }

    /// Whether a row doesn't begin with the call of a hook that a function does: then it is a part
    /// of some function.
    fn is_without_entry(&mut self, row: FunctionId, function: FunctionId) -> bool {
        let mut first_call = |id: FunctionId| {
            let start = self.table.start(id.index())?;
            let (exits, image) = self.exits()?;
            exits.first_call(image, start)
        };
        first_call(function).is_some_and(|hook| first_call(row) != Some(hook))
    }

    /// Whether an image address is in a thunk without an entry hook: gcc's `fentry` gives thunks
    /// that it expands only an exit hook.
    pub fn is_bare_thunk(&mut self, image_address: u64) -> bool {
        let Some(id) = self.table.find(image_address) else { return false };
        if self.function(id).thunk().is_none() || self.table.owner(id).is_some() {
            return false;
        }
        let start = self.table.start(id.index());
        start
            .zip(self.exits())
            .is_some_and(|(start, (exits, image))| exits.first_call(image, start).is_none())
    }

    /// Whether a function has this linker name; `None` if the name stands for a choice of
    /// functions.
    pub fn is_called(&mut self, id: FunctionId, linkage_name: &str) -> Option<bool> {
        let Some(start) = self.table.start(id.index()) else { return Some(false) };
        let Some(names) = self.all_names() else { return Some(false) };
        if names.at(start).any(|name| name == linkage_name.as_bytes()) {
            return Some(true);
        }
        (!names.is_indirect(linkage_name.as_bytes())).then_some(false)
    }

    /// The other names of a function: linkers fold functions whose code is the same, and sources
    /// give one function several names. In alphabetical order, at most eight, and how many more
    /// there are.
    pub fn twins(&mut self, id: FunctionId) -> (Vec<String>, usize) {
        let Some(entry) = self.table.entry(id) else { return (Vec::new(), 0) };
        let start = entry.start;
        let own = self.function(id).linkage_name.clone().unwrap_or_default();
        let Some(names) = self.all_names() else { return (Vec::new(), 0) };
        let mut others = names.at(start).filter(|name| **name != *own.as_bytes());
        let twins =
            others.by_ref().take(TWINS_MAX).map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        (twins, others.count())
    }

    /// The calls that the compiler inlined into a function, as far as its debugging information
    /// says: each before those inlined into it, at most 256, and how many more there are.
    pub fn inlined(&mut self, id: FunctionId) -> (Vec<InlinedCall>, u64) {
        let inlined = self.inlined_calls(id).unwrap_or_default();
        let named = |call: crate::debug::InlinedCall| {
            let linkage_name = String::from_utf8_lossy(&call.name);
            let name = demangle(split_part(&linkage_name).0);
            InlinedCall { level: call.level, name, file: call.file, line: call.line }
        };
        (inlined.calls.into_iter().map(named).collect(), inlined.more)
    }

    /// The functions whose code was inlined at an image address, outermost first, as far as
    /// debugging information says.
    pub fn inlined_at(&mut self, image_address: u64) -> Vec<String> {
        let Some(around) = self.table.find(image_address) else { return Vec::new() };
        let calls = self.inlined_calls(around).unwrap_or_default().calls;
        let is_there = |call: &crate::debug::InlinedCall| {
            call.ranges.iter().any(|range| (range.0..range.1).contains(&image_address))
        };
        let named = |call: crate::debug::InlinedCall| {
            let linkage_name = String::from_utf8_lossy(&call.name);
            demangle(split_part(&linkage_name).0)
        };
        calls.into_iter().filter(is_there).map(named).collect()
    }

    /// Whether code at an image address was inlined there from a function with an entry of its own;
    /// `None` if debugging information doesn't say. `is_callees`: ignore the innermost function
    /// that was inlined there, because it is the one being called.
    pub fn is_inlined_at(&mut self, image_address: u64, id: FunctionId, is_callees: bool) -> Option<bool> {
        let around = self.table.find(image_address)?;
        let inlined = self.inlined_calls(around)?;
        let linkage_name = self.table.entry(id)?.linkage_name;
        let linkage_name = String::from_utf8_lossy(linkage_name);
        let linkage_name = split_part(&linkage_name).0;
        let demangled = demangle(linkage_name);
        let is_its = |name: &[u8]| {
            // Where only lines are described, names are the plain ones.
            let is_plain = !name.starts_with(b"_Z");
            name == linkage_name.as_bytes()
                || is_plain && str::from_utf8(name).is_ok_and(|name| is_named(&demangled, name))
        };
        let is_there = |call: &&crate::debug::InlinedCall| {
            call.ranges.iter().any(|range| (range.0..range.1).contains(&image_address))
        };
        let innermost = inlined.calls.iter().rposition(|call| is_there(&call));
        let calls = &inlined.calls[..innermost.map_or(0, |innermost| innermost + usize::from(!is_callees))];
        let is_inlined = calls.iter().filter(is_there).any(|call| is_its(&call.name));
        // Debugging information attributes code that the compiler merged from several places to a
        // block around all of them, or to no inlined call.
        let is_anywhere = inlined.calls.iter().filter(is_there).any(|call| call.line.is_none());
        let mut is_known = || {
            let is_several = is_anywhere || self.is_of_several_places(around, image_address, is_callees);
            inlined.more == 0 && !is_several
        };
        (is_inlined || is_known()).then_some(is_inlined)
    }

    /// Whether code of a function, whose inlined calls are known, is that of several places.
    fn is_of_several_places(&mut self, id: FunctionId, image_address: u64, is_hook: bool) -> bool {
        let entry = self.declaration(id).entry;
        let DebugState::Read(debug) = &self.debug else { return false };
        entry.is_some_and(|entry| debug.is_of_several_places(entry, image_address, is_hook))
    }

    /// Whether gcc compiled the function at an image address; `None` if debugging information
    /// doesn't say.
    pub fn is_by_gcc(&mut self, image_address: u64) -> Option<bool> {
        let id = self.table.find(image_address)?;
        self.inlined_calls(id)?.by_gcc
    }

    /// The calls inlined into a function, from debugging information; `None` if there is none of
    /// it.
    fn inlined_calls(&mut self, id: FunctionId) -> Option<InlinedCalls> {
        let entry = self.declaration(id).entry?;
        let DebugState::Read(debug) = &mut self.debug else { return None };
        let inlined = debug.inlined(entry);
        self.warnings.extend(debug.take_warnings(&self.path));
        Some(inlined)
    }

    /// Whether several functions have the name that this one has without the suffix of a part: then
    /// names don't show which of them a part belongs to.
    pub fn is_ambiguous(&mut self, id: FunctionId) -> bool {
        let Some(entry) = self.table.entry(id) else { return false };
        let name = String::from_utf8_lossy(entry.linkage_name).into_owned();
        let name = thunk_target(&name).unwrap_or_else(|| split_part(&name).0.to_owned());
        self.rows_named(name.as_bytes()).len() > 1
    }

    fn all_names(&mut self) -> Option<&AllNames> {
        let file = self.file.as_ref()?;
        Some(match &mut self.all_names {
            Some(names) => names,
            unread => unread.insert(read(file, AllNames::of)),
        })
    }

    /// The path that the module was recorded under.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Problems found so far: reading debugging information may add to them.
    pub fn warnings(&self) -> &[SymbolWarning] {
        &self.warnings
    }

    /// Takes the warnings, so that each is shown once.
    pub fn take_warnings(&mut self) -> Vec<SymbolWarning> {
        std::mem::take(&mut self.warnings)
    }

    fn resolve(&mut self, id: FunctionId) -> Function {
        let Some(entry) = self.table.entry(id) else {
            let start = self.unnamed[id.index() - self.table.len()];
            return self.unnamed(start, 0);
        };
        if entry.linkage_name.is_empty() {
            let (start, size) = (entry.start, entry.size);
            if let Some(whole) = self.table.owner(id).filter(|whole| *whole != id) {
                let part = Some("cold".to_owned());
                return Function { start, size, part, whole: Some(whole), ..self.function(whole).clone() };
            }
            let declaration = self.declaration(id);
            return self.unnamed(start, size).declared(declaration);
        }
        let (name, part, linkage_name) = self.name_entry(&entry);
        let source = if entry.is_plt { NameSource::Plt } else { NameSource::Symbol };
        let function = Function {
            name,
            linkage_name: Some(linkage_name),
            part,
            whole: None,
            source,
            start: entry.start,
            size: entry.size,
            file: None,
            line: None,
        };
        if source == NameSource::Plt {
            return function;
        }
        let declaration = self.declaration(id);
        let whole = self.whole_of(id, declaration.entry);
        let entry_name = declaration.entry_name.clone();
        let function = Function { whole, ..function.declared(declaration) };
        let function = self.called_as_declared(function, entry_name);
        self.declared_as_target(function)
    }

    /// A thunk is declared where the function is that it leads to: compilers give it the line of
    /// its class, or none. Where functions of several files have that name, it is the one of the
    /// thunk's file.
    fn declared_as_target(&mut self, function: Function) -> Function {
        let Some(target) = function.linkage_name.as_deref().and_then(thunk_target) else { return function };
        let candidates = self.rows_named(target.as_bytes());
        // A name with many functions isn't worth the search.
        let candidates = if candidates.len() > TARGETS_MAX { Vec::new() } else { candidates };
        let is_only = candidates.len() == 1;
        let places: Vec<_> = candidates
            .into_iter()
            .map(|row| self.declaration(FunctionId(row)))
            .map(|declaration| (declaration.file, declaration.line))
            .filter(|(file, _)| is_only || *file == function.file)
            .collect();
        match &places[..] {
            [(file, line)] => Function { file: file.clone(), line: *line, ..function },
            _ => function,
        }
    }

    /// Demangled name, part, and linker name of a row.
    fn name_entry(&self, entry: &FunctionEntry<'_>) -> (String, Option<String>, String) {
        if entry.linkage_name.is_empty() {
            return (self.offset_name(entry.start), None, String::new());
        }
        let linkage_name = String::from_utf8_lossy(entry.linkage_name).into_owned();
        if entry.is_plt {
            return (demangle(&linkage_name) + "@plt", None, linkage_name);
        }
        let (whole, part) = split_part(&linkage_name);
        (demangle(whole), part.map(str::to_owned), linkage_name)
    }

    /// Where a linker folded functions with the same code, the one whose declaration was found
    /// gives the name: so that name and line belong together.
    fn called_as_declared(&mut self, function: Function, entry_name: Option<Vec<u8>>) -> Function {
        let Some(entry_name) = entry_name else { return function };
        let start = function.start;
        let is_twin = |names: &AllNames| names.at(start).any(|name| *name == *entry_name);
        if !self.all_names().is_some_and(is_twin) {
            return function;
        }
        let linkage_name = String::from_utf8_lossy(&entry_name).into_owned();
        let (whole, part) = split_part(&linkage_name);
        let name = demangle(whole);
        if name == function.name {
            return function;
        }
        let part = part.map(str::to_owned);
        Function { name, part, linkage_name: Some(linkage_name), ..function }
    }

    fn offset_name(&self, address: u64) -> String {
        format!("{}+{address:#x}", self.short_name)
    }

    fn unnamed(&self, start: u64, size: u64) -> Function {
        Function {
            name: self.offset_name(start),
            linkage_name: None,
            part: None,
            whole: None,
            source: NameSource::Address,
            start,
            size,
            file: None,
            line: None,
        }
    }

    /// Checksum and folder of a source file that a function's declaration named.
    pub fn compiled_source(&self, path: &Path) -> CompiledSource {
        match &self.debug {
            DebugState::Read(debug) => debug.compiled_source(path).unwrap_or_default(),
            _ => CompiledSource::default(),
        }
    }

    fn declaration(&mut self, id: FunctionId) -> Declaration {
        self.read_debug_info();
        let DebugState::Read(debug) = &mut self.debug else { return Declaration::default() };
        let declaration = debug.declaration(id.0, &self.table);
        self.warnings.extend(debug.take_warnings(&self.path));
        declaration.unwrap_or_default()
    }

    fn read_debug_info(&mut self) {
        let DebugState::Unread(_) = self.debug else { return };
        let DebugState::Unread(files) = std::mem::replace(&mut self.debug, DebugState::None) else { return };
        let DebugFiles { debug, shared, places } = *files;
        match DebugInfo::load(&debug, shared.as_ref(), places) {
            Ok(Some(info)) => self.debug = DebugState::Read(Box::new(info)),
            Ok(None) => self.warnings.push(SymbolWarning::NoDebugInfo { path: self.path.clone() }),
            Err(warning) => self.warnings.push(warning),
        }
    }

    /// The function that a `.cold` part belongs to: by its sites; otherwise by name, if only one
    /// function has it; otherwise by the entry in DWARF that both share. Functions of several files
    /// may have the same name.
    fn whole_of(&mut self, id: FunctionId, entry: Option<EntryId>) -> Option<FunctionId> {
        let name = self.table.entry(id)?.linkage_name.to_vec();
        let cold = name.windows(5).position(|word| word == b".cold")?;
        if let Some(owner) = self.table.owner(id) {
            return Some(owner);
        }
        let candidates = self.rows_named(&name[..cold]);
        match candidates[..] {
            [only] => Some(FunctionId(only)),
            // A name with many functions isn't worth the search.
            [] | [_, _, _, _, _, _, _, _, _, ..] => None,
            _ => candidates
                .into_iter()
                .map(FunctionId)
                .find(|&candidate| entry.is_some() && self.declaration(candidate).entry == entry),
        }
    }

    /// Whether the compiler has split a part off this function, in which its calls may continue:
    /// gcc's `f.part.0` of `f`.
    pub fn has_split_part(&mut self, id: FunctionId) -> bool {
        let Some(entry) = self.table.entry(id).filter(|entry| !entry.linkage_name.is_empty()) else {
            return false;
        };
        let part = [entry.linkage_name, b".part."].concat();
        self.rows_from(&part, |name| name.starts_with(&part)).next().is_some()
    }

    /// Rows of the table with this linker name.
    fn rows_named(&mut self, name: &[u8]) -> Vec<u32> {
        self.rows_from(name, |other| other == name).collect()
    }

    /// Rows of the table, in the order of their linker names, from `first` on while `is_it`.
    fn rows_from(&mut self, first: &[u8], is_it: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = u32> {
        let table = &self.table;
        let name_of = |index: u32| table.entry(FunctionId(index)).map_or(&[][..], |entry| entry.linkage_name);
        let by_name = self.by_name.get_or_insert_with(|| {
            let mut rows: Vec<u32> = (0..table.len() as u32).collect();
            rows.sort_by(|&a, &b| name_of(a).cmp(name_of(b)));
            rows
        });
        let from = by_name.partition_point(|&row| name_of(row) < first);
        by_name[from..].iter().copied().take_while(move |&row| is_it(name_of(row)))
    }
}

impl Function {
    fn declared(mut self, declaration: Declaration) -> Self {
        if let Some(linkage_name) = declaration.name {
            let (whole, part) = split_part(&linkage_name);
            self.name = demangle(whole);
            self.part = part.map(str::to_owned);
            self.linkage_name = Some(linkage_name);
            self.source = NameSource::Dwarf;
        }
        self.file = declaration.file;
        self.line = declaration.line;
        self
    }
}

/// Reads something from a file; nothing if the reader panics.
fn read<T: Default>(file: &LocatedFile, of: impl Fn(&elf::Elf<'_>) -> T) -> T {
    let read = || elf::parse(&file.bytes).map(|elf| of(&elf)).unwrap_or_default();
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_default()
}

/// Whether this is the hook that a function may call for each call that was inlined into it.
fn may_be_of_inlined(name: &[u8]) -> bool {
    name.starts_with(b"__cyg_profile_func_")
}

/// Whether this is the name of a part of a function, or of a copy of it.
fn split_part_of_bytes(name: &[u8]) -> bool {
    str::from_utf8(name).is_ok_and(|name| split_part(name).1.is_some())
}

fn build_table(located: &Located) -> FunctionTable {
    let module = located.module.as_ref().and_then(|file| elf::parse(&file.bytes).ok());
    let debug: Vec<_> = [&located.debug, &located.minimal]
        .into_iter()
        .flatten()
        .filter_map(|file| elf::parse(&file.bytes).ok())
        .collect();
    FunctionTable::build(module.as_ref(), &debug)
}

fn debug_state(located: Located, options: &SymbolOptions) -> DebugState {
    let neighbours =
        [&located.module, &located.debug].into_iter().flatten().map(|file| file.path.clone()).collect();
    let places = SplitPlaces { may_open: located.may_open, neighbours, maps: options.binary_maps.clone() };
    match located.debug.or(located.module) {
        Some(debug) => DebugState::Unread(Box::new(DebugFiles { debug, shared: located.shared, places })),
        None => DebugState::None,
    }
}

/// The file name that offsets follow in the names of functions without a symbol.
pub(crate) fn short_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    if name.is_empty() { "unknown".to_owned() } else { name.to_owned() }
}
