//! The functions at the locations of a trace.

use std::collections::BTreeSet;

use everycall_profile::{
    Function, FunctionIdentity, FunctionNumber, Functions, Place, PlaceOf, Split, Thunk,
};
use everycall_timeline::Location;
use regex::Regex;
use rustc_hash::FxHashMap;

use crate::names::{FunctionGroup, SymbolNames};
use crate::view::TraceView;

/// The places of one trace.
pub struct Places<'a> {
    names: &'a SymbolNames<'a>,
    pattern: Option<&'a Regex>,
    by_symbol: bool,
    /// By module index: the module name in the identity of its functions.
    modules: Vec<String>,
    groups: FxHashMap<FunctionGroup, FunctionNumber>,
    places: FxHashMap<Location, Place>,
    /// A cache of recent lookups, with one entry per slot.
    recent: Vec<(Location, Place)>,
}

/// Numbers the functions of a trace's locations, as the profiles do: clones share a number.
pub struct FunctionFinder<'a> {
    places: Places<'a>,
    functions: Functions,
}

impl<'a> FunctionFinder<'a> {
    /// A finder that knows no functions yet.
    #[must_use]
    pub fn new(view: &'a TraceView<'_>) -> FunctionFinder<'a> {
        FunctionFinder { places: Places::new(view, None, false), functions: Functions::default() }
    }

    /// The number of the function at a location; numbers are dense, in the order of first use.
    #[inline]
    pub fn number(&mut self, location: Location) -> FunctionNumber {
        self.places.get(location, &mut self.functions).function
    }

    /// The functions that occurred so far.
    #[must_use]
    pub fn functions(&self) -> &Functions {
        &self.functions
    }
}

/// Size of the cache: a power of two.
const RECENT: usize = 1 << 11;

fn recent_index(location: Location) -> usize {
    // Most functions are aligned to 16 bytes.
    let mixed = (location.image_address >> 4) ^ (location.image_address >> 15) ^ u64::from(location.module);
    mixed as usize % RECENT
}

impl<'a> Places<'a> {
    /// `by_symbol`: each linker name is a function of its own.
    pub(crate) fn new(view: &'a TraceView<'_>, pattern: Option<&'a Regex>, by_symbol: bool) -> Places<'a> {
        let paths: Vec<String> =
            view.trace().modules().iter().map(|module| module.path_lossy().into_owned()).collect();
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let mut of_base: FxHashMap<String, BTreeSet<&str>> = FxHashMap::default();
        for path in &paths {
            of_base.entry(base(path)).or_default().insert(path);
        }
        let modules = paths.iter().map(|path| {
            let base = base(path);
            if of_base.get(&base).is_some_and(|paths| paths.len() > 1) { path.clone() } else { base }
        });
        Places {
            names: view.names(),
            pattern,
            by_symbol,
            modules: modules.collect(),
            groups: FxHashMap::default(),
            places: FxHashMap::default(),
            recent: vec![
                (
                    Location { module: Location::LOST_MODULE, image_address: u64::MAX },
                    Place { function: 0, thunk: None, split: Split::No, matches: false }
                );
                RECENT
            ],
        }
    }

    fn look_up(&mut self, location: Location, index: usize, functions: &mut Functions) -> Place {
        let place = match self.places.get(&location) {
            Some(place) => *place,
            None => self.find(location, functions),
        };
        if let Some(recent) = self.recent.get_mut(index) {
            *recent = (location, place);
        }
        place
    }

    #[cold]
    fn find(&mut self, location: Location, functions: &mut Functions) -> Place {
        let named = self.names.name(location);
        let matches = self.pattern.is_none_or(|pattern| {
            pattern.is_match(&named.name)
                || named.full_name.as_deref().is_some_and(|full| pattern.is_match(full))
        });
        let group = self.names.group(location);
        // Tables have no column for the module, and interpreters have many functions of one name.
        let is_frame = self.names.is_frame(location);
        let shown = named.full_name.as_ref().filter(|_| is_frame).unwrap_or(&named.name);
        let mut function = Function {
            name: shown.clone().into_owned(),
            symbols: self.names.symbol(location).into_iter().collect(),
            lowest: Some(location),
            ..Function::default()
        };
        if let Some(symbol) = function.symbols.first().filter(|_| self.by_symbol) {
            function.name.clone_from(symbol);
        }
        let known = if self.by_symbol { None } else { self.groups.get(&group) };
        let number = match known {
            Some(&number) => {
                if let Some(known) = functions.get(number) {
                    function.identity = known.identity.clone();
                }
                functions.number(function)
            }
            None => {
                let module = location.module_index().and_then(|index| self.modules.get(index));
                let module = module.filter(|_| !is_frame);
                let (file, line, part) = match &group {
                    FunctionGroup::Named { place, alone, .. } => {
                        let (file, line) = place.clone().unzip();
                        (file, line.flatten(), alone.map(u64::from))
                    }
                    FunctionGroup::At(location) => (None, None, Some(location.image_address)),
                };
                function.identity = FunctionIdentity {
                    name: match function.symbols.first().filter(|_| self.by_symbol) {
                        Some(symbol) => symbol.clone(),
                        None if is_frame => named.name.into_owned(),
                        None => named.full_name.unwrap_or(named.name).into_owned(),
                    },
                    module: module.cloned().unwrap_or_else(|| named.module.into_owned()),
                    file,
                    line,
                    part,
                };
                let number = functions.number(function);
                if !self.by_symbol {
                    self.groups.insert(group, number);
                }
                number
            }
        };
        let place = match self.by_symbol {
            true => Place { function: number, thunk: None, split: Split::No, matches },
            false => {
                let thunk = self.names.leads_on(location).map(|thunk| match thunk {
                    everycall_symbols::Thunk::This => Thunk::This,
                    everycall_symbols::Thunk::Result => Thunk::Result,
                });
                let split = self.names.split(location);
                Place { function: number, thunk, split, matches }
            }
        };
        self.places.insert(location, place);
        place
    }
}

impl PlaceOf for Places<'_> {
    #[inline]
    fn get(&mut self, location: Location, functions: &mut Functions) -> Place {
        let index = recent_index(location);
        match self.recent.get(index) {
            Some((at, place)) if *at == location => *place,
            _ => self.look_up(location, index, functions),
        }
    }
}
