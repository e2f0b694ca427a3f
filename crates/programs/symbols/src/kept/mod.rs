//! Answers about a module's functions, kept apart from the module's files, which may be gone later.
//!
//! ```text
//! ModuleSymbols --Symbols::keeping--> every question is noted --kept()--> KeptSymbols --write--> bytes
//!                                                         bytes --read--> KeptSymbols answers as the file did
//! ```
//!
//! A question that wasn't asked before has no answer, as if the file were missing.

mod asked;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::function::{Function, FunctionId, InlinedCall, Leave, NameSource};
use crate::source::CompiledSource;

pub use asked::Symbols;

/// A question about two places of code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Question {
    /// Whether code at the second address is of the function that is entered at the first one.
    SameFunction(u64, u64),
    /// Whether code at an address was inlined from a function; with the innermost one left out.
    Inlined(u64, FunctionId, bool),
    /// Whether a function has this linker name.
    Called(FunctionId, String),
    /// Whether the function at an address may call the one that is entered at another one.
    MayCall(u64, u64),
}

/// All that is known of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeptFunction {
    function: Function,
    twins: Vec<String>,
    more_twins: usize,
    inlined: Vec<InlinedCall>,
    more_inlined: u64,
    /// Among all functions of the module.
    place: u32,
    is_ambiguous: bool,
    is_bare_thunk: bool,
    by_gcc: Option<bool>,
}

/// Questions about a module, with their answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptSymbols {
    /// In the order of their addresses.
    functions: Vec<KeptFunction>,
    addresses: HashMap<u64, FunctionId>,
    leaves: HashMap<u64, Leave>,
    answers: HashMap<Question, Option<bool>>,
    constants: HashMap<u64, Vec<u8>>,
    variables: HashMap<u64, String>,
    tasks: HashMap<u64, String>,
    /// Source lines of places of code.
    lines: HashMap<u64, (PathBuf, u32)>,
    compiled: BTreeMap<PathBuf, CompiledSource>,
    warnings: Vec<String>,
}

/// Kept symbols that are asked.
#[derive(Debug)]
pub(crate) struct Answers {
    kept: KeptSymbols,
    /// The module's short name, to which names of unknown functions add an offset.
    short_name: String,
    /// Addresses outside all functions, behind them.
    unnamed: Vec<KeptFunction>,
    unnamed_ids: HashMap<u64, FunctionId>,
}

/// A function that is known by its name alone.
#[derive(Clone, Debug)]
pub struct NamedFunction<'a> {
    /// The image address at which its calls are found.
    pub address: u64,
    /// Its name, as it is shown.
    pub name: String,
    /// The file that defines it.
    pub file: Option<&'a Path>,
    /// The line there, from 1.
    pub line: Option<u32>,
}

impl KeptSymbols {
    /// Symbols of functions that are known by their names alone, in the order of their addresses.
    pub fn of_names<'a>(functions: impl Iterator<Item = NamedFunction<'a>>) -> KeptSymbols {
        let mut kept = KeptSymbols::default();
        let mut files: HashMap<&Path, Arc<Path>> = HashMap::new();
        for (named, place) in functions.zip(0..) {
            let NamedFunction { address, name, file, line } = named;
            let file = file.map(|file| files.entry(file).or_insert_with(|| Arc::from(file)).clone());
            kept.addresses.insert(address, FunctionId(place));
            kept.functions.push(KeptFunction {
                function: Function {
                    name,
                    linkage_name: None,
                    part: None,
                    whole: None,
                    source: NameSource::Symbol,
                    start: address,
                    size: 0,
                    file,
                    line,
                },
                twins: Vec::new(),
                more_twins: 0,
                inlined: Vec::new(),
                more_inlined: 0,
                place,
                is_ambiguous: false,
                is_bare_thunk: false,
                by_gcc: None,
            });
        }
        kept
    }

    /// Number of functions.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// The source files that declare its functions, each once.
    pub fn source_files(&self) -> impl Iterator<Item = &Path> {
        let files = self.functions.iter().filter_map(|kept| kept.function.file.as_deref());
        files.collect::<std::collections::BTreeSet<_>>().into_iter()
    }

    /// Adds what debugging information says of a source file.
    pub fn add_compiled(&mut self, path: &Path, compiled: CompiledSource) {
        self.compiled.insert(path.to_path_buf(), compiled);
    }

    /// Adds why not everything is known, as a sentence.
    pub fn add_warning(&mut self, sentence: String) {
        self.warnings.push(sentence);
    }
}

impl Answers {
    pub fn new(kept: KeptSymbols, path: &Path) -> Answers {
        let short_name = crate::module::short_name(path);
        Answers { kept, short_name, unnamed: Vec::new(), unnamed_ids: HashMap::new() }
    }

    pub fn count(&self) -> usize {
        self.kept.functions.len()
    }

    pub fn function_at(&mut self, address: u64) -> FunctionId {
        if let Some(id) = self.kept.addresses.get(&address) {
            return *id;
        }
        let next = FunctionId((self.count() + self.unnamed.len()) as u32);
        let id = *self.unnamed_ids.entry(address).or_insert(next);
        if id == next {
            let name = format!("{}+{address:#x}", self.short_name);
            self.unnamed.push(KeptFunction {
                function: Function {
                    name,
                    linkage_name: None,
                    part: None,
                    whole: None,
                    source: NameSource::Address,
                    start: address,
                    size: 0,
                    file: None,
                    line: None,
                },
                twins: Vec::new(),
                more_twins: 0,
                inlined: Vec::new(),
                more_inlined: 0,
                place: u32::MAX,
                is_ambiguous: false,
                is_bare_thunk: false,
                by_gcc: None,
            });
        }
        id
    }

    fn of(&self, id: FunctionId) -> Option<&KeptFunction> {
        let known = self.kept.functions.get(id.index());
        known.or_else(|| self.unnamed.get(id.index().checked_sub(self.count())?))
    }

    fn at(&self, address: u64) -> Option<&KeptFunction> {
        self.kept.functions.get(self.kept.addresses.get(&address)?.index())
    }

    pub fn function(&self, id: FunctionId) -> Option<&Function> {
        self.of(id).map(|kept| &kept.function)
    }

    pub fn place(&self, id: FunctionId) -> u32 {
        self.of(id).map_or(u32::MAX, |kept| kept.place)
    }

    pub fn is_ambiguous(&self, id: FunctionId) -> bool {
        self.of(id).is_some_and(|kept| kept.is_ambiguous)
    }

    pub fn has_split_part(&self, id: FunctionId) -> bool {
        let Some(whole) = self.function(id).and_then(|function| function.linkage_name.as_deref()) else {
            return false;
        };
        let names = self.kept.functions.iter().filter_map(|kept| kept.function.linkage_name.as_deref());
        let part = |name: &str| name.strip_prefix(whole).is_some_and(|rest| rest.starts_with(".part."));
        names.into_iter().any(part)
    }

    pub fn twins(&self, id: FunctionId) -> (Vec<String>, usize) {
        self.of(id).map(|kept| (kept.twins.clone(), kept.more_twins)).unwrap_or_default()
    }

    pub fn inlined(&self, id: FunctionId) -> (Vec<InlinedCall>, u64) {
        self.of(id).map(|kept| (kept.inlined.clone(), kept.more_inlined)).unwrap_or_default()
    }

    pub fn is_bare_thunk(&self, address: u64) -> bool {
        self.at(address).is_some_and(|kept| kept.is_bare_thunk)
    }

    pub fn is_by_gcc(&self, address: u64) -> Option<bool> {
        self.at(address)?.by_gcc
    }

    pub fn leave(&self, address: u64) -> Option<Leave> {
        self.kept.leaves.get(&address).cloned()
    }

    pub fn is_same_function(&self, entry: u64, code: u64) -> Option<bool> {
        let known = self.kept.answers.get(&Question::SameFunction(entry, code)).copied();
        known.unwrap_or_else(|| {
            let of = |address| self.kept.addresses.get(&address);
            of(entry).filter(|function| Some(*function) == of(code)).map(|_| true)
        })
    }

    pub fn is_inlined_at(&self, address: u64, id: FunctionId, is_callees: bool) -> Option<bool> {
        *self.kept.answers.get(&Question::Inlined(address, id, is_callees))?
    }

    pub fn may_call(&self, caller: u64, callee: u64) -> Option<bool> {
        *self.kept.answers.get(&Question::MayCall(caller, callee))?
    }

    pub fn is_called(&self, id: FunctionId, linkage_name: &str) -> Option<bool> {
        let known = self.kept.answers.get(&Question::Called(id, linkage_name.to_owned())).copied();
        known.unwrap_or_else(|| {
            let kept = self.of(id)?;
            let own = kept.function.linkage_name.as_deref() == Some(linkage_name);
            (own || kept.twins.iter().any(|twin| twin == linkage_name)).then_some(true)
        })
    }

    pub fn constant_text(&self, address: u64) -> Option<Vec<u8>> {
        self.kept.constants.get(&address).cloned()
    }

    pub fn variable_at(&self, address: u64) -> Option<String> {
        self.kept.variables.get(&address).cloned()
    }

    pub fn line_at(&self, address: u64) -> Option<(PathBuf, u32)> {
        self.kept.lines.get(&address).cloned()
    }

    pub fn distance_in_function(&self, address: u64) -> Option<u64> {
        let id = self.kept.addresses.get(&address)?;
        address.checked_sub(self.kept.functions.get(id.index())?.function.start)
    }

    pub fn task_name_at(&self, address: u64) -> Option<String> {
        self.kept.tasks.get(&address).cloned()
    }

    pub fn compiled_source(&self, path: &Path) -> CompiledSource {
        self.kept.compiled.get(path).cloned().unwrap_or_default()
    }

    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.kept.warnings)
    }
}
