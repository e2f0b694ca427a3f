//! The functions of one or several traces, numbered.

use std::collections::BTreeSet;

use everycall_calls::Location;
use rustc_hash::FxHashMap;

/// Number of a function in [`Functions`].
pub type FunctionNumber = u32;

/// A function as in its source, whatever the trace: its clones, such as the copies that compilers
/// make of a constructor, are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionIdentity {
    /// The complete demangled name; of a frame by id, the registered one.
    pub name: String,
    /// File name of its module; the path if two modules of a trace have the same file name. Of a
    /// frame by id, the module that its file is.
    pub module: String,
    /// Source file.
    pub file: Option<String>,
    /// Line of its declaration.
    pub line: Option<u32>,
    /// Distinguishes functions about which nothing else is known.
    pub part: Option<u64>,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its identity: distinguishes it from other functions.
    pub identity: FunctionIdentity,
    /// The displayed name; of a frame by id, behind that of its module.
    pub name: String,
    /// The linker names of the called code: several if there are clones.
    pub symbols: BTreeSet<String>,
    /// The lowest location at which it was entered.
    pub lowest: Option<Location>,
}

impl Function {
    /// A function of which only the identity is known.
    #[must_use]
    pub fn of(identity: FunctionIdentity) -> Function {
        Function { name: identity.name.clone(), identity, ..Function::default() }
    }

    /// A sort key for functions that are otherwise equal.
    pub(crate) fn order(&self) -> (Option<Location>, &FunctionIdentity) {
        (self.lowest, &self.identity)
    }
}

/// A set of functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    all: Vec<Function>,
    numbers: FxHashMap<FunctionIdentity, FunctionNumber>,
}

impl Functions {
    /// All functions, by number.
    #[must_use]
    pub fn all(&self) -> &[Function] {
        &self.all
    }

    /// The function with a number.
    #[must_use]
    pub fn get(&self, number: FunctionNumber) -> Option<&Function> {
        self.all.get(number as usize)
    }

    /// The number of the function with this identity, if it is there.
    pub(crate) fn find(&self, identity: &FunctionIdentity) -> Option<FunctionNumber> {
        self.numbers.get(identity).copied()
    }

    /// The number of a function, which is added if it is new.
    pub fn number(&mut self, function: Function) -> FunctionNumber {
        if let Some(&number) = self.numbers.get(&function.identity) {
            let known = &mut self.all[number as usize];
            known.symbols.extend(function.symbols);
            known.lowest = known.lowest.into_iter().chain(function.lowest).min();
            return number;
        }
        let number = self.all.len() as FunctionNumber;
        self.numbers.insert(function.identity.clone(), number);
        self.all.push(function);
        number
    }
}

/// The pointers that a thunk adjusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thunk {
    /// It moves the pointer to the object.
    This,
    /// It moves the returned pointer, too.
    Result,
}

/// Whether compilers have split a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// They haven't.
    #[default]
    No,
    /// Its calls may continue in a part.
    Whole,
    /// It is such a part.
    Part,
}

/// The function at a location.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its number.
    pub function: FunctionNumber,
    /// If it is a thunk: how it continues in its function.
    pub thunk: Option<Thunk>,
    /// Whether it was split: a call of it that continues in its part is one call.
    pub split: Split,
    /// Whether the filter's pattern matches its name.
    pub matches: bool,
}

/// Finds the function at a location.
pub trait PlaceOf {
    /// The function at a location, which is added if it is new.
    fn get(&mut self, location: Location, functions: &mut Functions) -> Place;
}
