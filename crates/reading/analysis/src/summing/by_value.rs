//! Groups by a recorded value: `handle(path)` has a row for each path that `handle` was called
//! with.

use everycall_export::{
    CallValues, Source as _, ValuesNumber, is_of_end, plain_name, value_text, without_parameters,
};
use everycall_profile::{FunctionNumber, Functions, ValueGroups, ValueOf};
use regex::Regex;
use rustc_hash::FxHashMap;

use crate::view::TraceView;

/// Limit on different values; calls with further ones are one group.
const VALUES_MAX: usize = 1 << 16;
/// The group of these calls.
const FURTHER: &str = "(further values)";

/// Finds the value by which a call is grouped.
pub(crate) struct ByValue<'a> {
    view: &'a TraceView<'a>,
    /// The value's plain name.
    name: String,
    function: Option<Regex>,
    /// By function: whether it is meant.
    are_meant: Vec<Option<bool>>,
    /// Texts of captures that were read.
    texts: FxHashMap<ValuesNumber, Option<String>>,
}

impl<'a> ByValue<'a> {
    pub(crate) fn new(view: &'a TraceView<'a>, of: &ValueOf) -> ByValue<'a> {
        let pattern = regex::escape(&of.function).replace(r"\*", ".*");
        ByValue {
            view,
            name: plain_name(&of.value),
            function: Regex::new(&format!("^{pattern}$")).ok(),
            are_meant: Vec::new(),
            texts: FxHashMap::default(),
        }
    }
}

impl ValueGroups for ByValue<'_> {
    fn is_meant(&mut self, function: FunctionNumber, functions: &Functions) -> bool {
        let index = function as usize;
        if self.are_meant.len() <= index {
            self.are_meant.resize(index + 1, None);
        }
        *self.are_meant[index].get_or_insert_with(|| {
            let name = functions.get(function).map_or("", |function| function.name.as_str());
            self.function.as_ref().is_some_and(|pattern| pattern.is_match(without_parameters(name)))
        })
    }

    fn of(&mut self, values: CallValues) -> Option<&str> {
        let number = if is_of_end(&self.name) { values.result } else { values.arguments }?;
        if self.texts.len() >= VALUES_MAX && !self.texts.contains_key(&number) {
            return Some(FURTHER);
        }
        let (view, name) = (self.view, &self.name);
        let text = self.texts.entry(number).or_insert_with(|| {
            let values = view.values(number);
            values
                .iter()
                .find(|(known, _)| plain_name(known) == *name)
                .map(|(_, value)| value_text::text(value))
        });
        text.as_deref()
    }
}
