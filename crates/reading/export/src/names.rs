//! Names and places of functions, each looked up once.

use std::borrow::Cow;

use everycall_timeline::Location;
use regex::Regex;
use rustc_hash::FxHashMap;

/// Name and source location of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName<'a> {
    /// The displayed name, demangled.
    pub name: Cow<'a, str>,
    /// The complete name, if the displayed one is a short form. Patterns match either.
    pub full_name: Option<Cow<'a, str>>,
    /// File name of its module.
    pub module: Cow<'a, str>,
    /// Path of its source file, as [`Names::source`] takes it.
    pub file: Option<Cow<'a, str>>,
    /// Line of its declaration, from 1.
    pub line: Option<u32>,
}

/// Further facts about a function, which are shown with each of its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The complete name, if the displayed one is a short form.
    pub full_name: Option<String>,
    /// The linker name, if several functions may have the displayed name.
    pub symbol: Option<String>,
    /// Other functions that have the same code at the same address.
    pub same_code_as: Vec<String>,
    /// The calls that the compiler inlined into it, each before those inlined into it.
    pub inlined: Vec<Inlined>,
    /// Number of further inlined calls.
    pub more_inlined: u64,
}

/// A call that the compiler replaced by the function's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inlined {
    /// Number of enclosing inlined calls.
    pub level: u32,
    /// The function that would have been called.
    pub name: String,
    /// File name and line of the call, if known.
    pub place: Option<String>,
}

/// Provides names and sources.
pub trait Names {
    /// The function at `location`, which lies in a module. Called once per location.
    fn function(&self, location: Location) -> FunctionName<'_>;

    /// Further facts about the function at `location`; called for functions that are shown.
    fn details(&self, location: Location) -> Details {
        let _ = location;
        Details::default()
    }

    /// The name of the function to which the jump at this exit leads; `None` if unknown.
    fn jump_target(&self, exit: Location) -> Option<String> {
        let _ = exit;
        None
    }

    /// The text of a source file, if it is available.
    fn source(&self, file: &str) -> Option<Cow<'_, str>>;
}

fn unnamed(name: String) -> FunctionName<'static> {
    FunctionName { name: name.into(), full_name: None, module: Cow::Borrowed(""), file: None, line: None }
}

/// Dense number of a function within one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(u32);

impl FunctionId {
    /// The function with this number.
    #[must_use]
    pub fn of_index(index: usize) -> FunctionId {
        FunctionId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// As an index: numbers are given from 0 on.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A function that occurred.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) module: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    /// Where it was first entered or left.
    pub(crate) location: Location,
    /// Whether the filter's pattern matches it.
    pub(crate) matches: bool,
}

impl Function {
    /// `file.cpp:12` or nothing.
    pub(crate) fn place(&self) -> Option<String> {
        let file = self.file.as_deref()?;
        let base = file.rsplit('/').next().unwrap_or(file);
        Some(match self.line {
            Some(line) => format!("{base}:{line}"),
            None => base.to_owned(),
        })
    }

    /// The function's name, then its file and line: what viewers call its slices.
    pub(crate) fn slice_name(&self) -> String {
        match self.place() {
            Some(place) => format!("{} ({place})", self.name),
            None => self.name.clone(),
        }
    }
}

/// The functions that occurred so far.
pub(crate) struct Functions<'a> {
    names: &'a dyn Names,
    pattern: Option<&'a Regex>,
    ids: FxHashMap<Location, FunctionId>,
    /// Untraced targets of jumps, by the exits of these jumps.
    untraced: FxHashMap<Location, FunctionId>,
    functions: Vec<Function>,
}

impl<'a> Functions<'a> {
    pub(crate) fn new(names: &'a dyn Names, pattern: Option<&'a Regex>) -> Self {
        Functions {
            names,
            pattern,
            ids: FxHashMap::default(),
            untraced: FxHashMap::default(),
            functions: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn id(&mut self, location: Location) -> FunctionId {
        match self.ids.get(&location) {
            Some(&id) => id,
            None => self.add(location),
        }
    }

    #[cold]
    fn add(&mut self, location: Location) -> FunctionId {
        let FunctionName { name, full_name, module, file, line } = match location.module {
            Location::NO_MODULE => unnamed(format!("{:#x} (outside of all modules)", location.image_address)),
            Location::LOST_MODULE => {
                unnamed(format!("code offset {:#x} (module not known)", location.image_address))
            }
            _ => self.names.function(location),
        };
        let matches = self.pattern.is_none_or(|pattern| {
            pattern.is_match(&name) || full_name.as_deref().is_some_and(|full| pattern.is_match(full))
        });
        let file = file.map(Cow::into_owned);
        let (name, module) = (name.into_owned(), module.into_owned());
        let function = Function { name, module, file, line, location, matches };
        // Each holds a name on the heap: memory is exhausted long before the numbers are.
        let id = FunctionId(u32::try_from(self.functions.len()).unwrap_or(u32::MAX));
        self.functions.push(function);
        self.ids.insert(location, id);
        id
    }

    /// The untraced target of the jump at `exit`, shown like a function.
    #[cold]
    pub(crate) fn untraced(&mut self, exit: Location) -> FunctionId {
        if let Some(&id) = self.untraced.get(&exit) {
            return id;
        }
        let target = self.names.jump_target(exit);
        let target = target.as_deref().unwrap_or("indirect jump");
        let name = format!("{target} (not traced, at most)");
        let location = Location { module: Location::NO_MODULE, image_address: exit.image_address };
        let function =
            Function { name, module: String::new(), file: None, line: None, location, matches: false };
        let id = FunctionId(u32::try_from(self.functions.len()).unwrap_or(u32::MAX));
        self.functions.push(function);
        self.untraced.insert(exit, id);
        id
    }

    #[inline]
    pub(crate) fn get(&self, id: FunctionId) -> &Function {
        &self.functions[id.index()]
    }

    /// Whether the filter's pattern, if there is one, matches a function.
    #[inline]
    pub(crate) fn pattern_matches(&self, id: FunctionId) -> bool {
        self.pattern.is_none() || self.get(id).matches
    }

    /// Further facts about a function.
    pub(crate) fn details(&self, id: FunctionId) -> Details {
        let location = self.get(id).location;
        match location.module_index() {
            Some(_) => self.names.details(location),
            None => Details::default(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter()
    }
}
