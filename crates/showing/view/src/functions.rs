//! The functions of all files, numbered as they occur.

use everycall_analysis::{Function, FunctionIdentity};
use rustc_hash::FxHashMap;
use serde::Serialize;

/// Functions by number. The same function of two files has one number.
#[derive(Debug, Default)]
pub(crate) struct FunctionTable {
    all: Vec<Named>,
    numbers: FxHashMap<FunctionIdentity, u32>,
}

/// Calls by number of the function: all of them, as they were counted beside the rings.
pub(crate) type AllCalls = FxHashMap<u32, u64>;

/// A function as it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// The displayed name.
    pub name: String,
    /// The properties that distinguish it.
    pub identity: FunctionIdentity,
}

impl FunctionTable {
    /// The number of a function, which is added if it is new.
    pub fn number(&mut self, function: &Function) -> u32 {
        if let Some(number) = self.numbers.get(&function.identity) {
            return *number;
        }
        let number = self.all.len() as u32;
        self.numbers.insert(function.identity.clone(), number);
        self.all.push(Named { name: function.name.clone(), identity: function.identity.clone() });
        number
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The function with a number.
    pub fn get(&self, number: u32) -> Option<&Named> {
        self.all.get(number as usize)
    }

    /// All of them.
    pub fn all(&self) -> &[Named] {
        &self.all
    }

    /// Those with the numbers `from` until `to`.
    pub fn facts(&self, from: usize, to: usize) -> Vec<FunctionFacts> {
        let all = self.all.iter().enumerate().skip(from).take(to.saturating_sub(from));
        let facts = |(id, named): (usize, &Named)| {
            let FunctionIdentity { name: full, module, file, line, .. } = named.identity.clone();
            FunctionFacts { id, name: named.name.clone(), full, module, file, line }
        };
        all.map(facts).collect()
    }
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FunctionFacts {
    /// Its number.
    pub id: usize,
    /// The displayed name.
    pub name: String,
    /// The complete name.
    pub full: String,
    /// Its module.
    pub module: String,
    /// Its source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line of its declaration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}
