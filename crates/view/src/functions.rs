//! The functions of all files, numbered as they occur.

use everycall_analysis::{Function, FunctionIdentity};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

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

    /// Those with the numbers `from` until `to`, for the page.
    pub fn json(&self, from: usize, to: usize) -> Value {
        let all = self.all.iter().enumerate().skip(from).take(to.saturating_sub(from));
        all.map(|(number, named)| named.json(number)).collect()
    }
}

impl Named {
    fn json(&self, number: usize) -> Value {
        let FunctionIdentity { name, module, file, line, .. } = &self.identity;
        let mut object = Map::new();
        object.insert("id".to_owned(), json!(number));
        object.insert("name".to_owned(), json!(self.name));
        object.insert("full".to_owned(), json!(name));
        object.insert("module".to_owned(), json!(module));
        if let Some(file) = file {
            object.insert("file".to_owned(), json!(file));
        }
        if let Some(line) = line {
            object.insert("line".to_owned(), json!(line));
        }
        Value::Object(object)
    }
}
