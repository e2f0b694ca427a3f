//! The callers and callees of some functions.

use everycall_export::{Filter, Thread};
use rustc_hash::FxHashMap;

use super::focus::Focus;
use super::functions::{FunctionNumber, Functions};
use super::notes::Notes;
use super::sums::Sums;
use super::walk::{EndedCall, Visitor, walk};
use crate::view::TraceView;

/// A caller or callee.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The function; `None` for calls whose caller isn't in the trace, or not shown.
    pub function: Option<FunctionNumber>,
    /// Whether a tail call made the call.
    pub is_jump: bool,
    /// The calls that were made in this way.
    pub sums: Sums,
    open: u32,
}

#[derive(Clone, Debug, Default)]
struct Rows {
    all: Vec<Edge>,
    places: FxHashMap<(Option<FunctionNumber>, bool), u32>,
}

impl Rows {
    fn place(&mut self, function: Option<FunctionNumber>, is_jump: bool) -> u32 {
        let next = self.all.len() as u32;
        let place = *self.places.entry((function, is_jump)).or_insert(next);
        if place == next {
            self.all.push(Edge { function, is_jump, sums: Sums::default(), open: 0 });
        }
        place
    }
}

struct Open {
    function: FunctionNumber,
    is_meant: bool,
    as_callee: Option<u32>,
    /// Its position among the callers, if the called function is in focus.
    caller: Option<u32>,
}

/// The calls of some functions by caller, and the calls that these functions made.
pub struct Edges<'f> {
    focus: Focus<'f>,
    functions: Functions,
    /// Losses that make the numbers incomplete.
    pub notes: Notes,
    /// All of their calls.
    pub sums: Sums,
    callers: Rows,
    callees: Rows,
    stack: Vec<Open>,
    /// Number of open calls of the functions in focus.
    open: u32,
}

impl<'f> Edges<'f> {
    /// Creates it for the functions in focus.
    #[must_use]
    pub fn new(focus: Focus<'f>) -> Edges<'f> {
        Edges {
            focus,
            functions: Functions::default(),
            notes: Notes::default(),
            sums: Sums::default(),
            callers: Rows::default(),
            callees: Rows::default(),
            stack: Vec::new(),
            open: 0,
        }
    }

    /// Adds the calls of a trace that pass a filter.
    pub fn add_trace(&mut self, view: &TraceView<'_>, filter: &Filter) {
        let mut functions = std::mem::take(&mut self.functions);
        let mut notes = std::mem::take(&mut self.notes);
        walk(view, filter, None, &mut functions, &mut notes, self);
        (self.functions, self.notes) = (functions, notes);
    }

    /// The functions that occurred.
    #[must_use]
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Whether any of the functions in focus occurred.
    #[must_use]
    pub fn has_any(&self) -> bool {
        self.focus.has_any()
    }

    /// The callers of the functions in focus.
    #[must_use]
    pub fn callers(&self) -> &[Edge] {
        &self.callers.all
    }

    /// The callees of the functions in focus.
    #[must_use]
    pub fn callees(&self) -> &[Edge] {
        &self.callees.all
    }
}

impl Visitor for Edges<'_> {
    fn thread(&mut self, _: &Thread) {
        self.stack.clear();
        self.open = 0;
    }

    fn begin(&mut self, function: FunctionNumber, from: Option<FunctionNumber>, functions: &Functions) {
        let is_meant = self.focus.has(function, functions);
        let around = self.stack.last();
        let caller = from.or(around.map(|open| open.function));
        let by_meant = match from {
            Some(from) => self.focus.has(from, functions),
            None => around.is_some_and(|open| open.is_meant),
        };
        let is_jump = from.is_some();
        let caller = is_meant.then(|| self.callers.place(caller, is_jump));
        let as_callee = by_meant.then(|| self.callees.place(Some(function), is_jump));
        if let Some(place) = as_callee {
            self.callees.all[place as usize].open += 1;
        }
        self.open += u32::from(is_meant);
        self.stack.push(Open { function, is_meant, as_callee, caller });
    }

    fn end(&mut self, call: &EndedCall) {
        let Some(open) = self.stack.pop() else { return };
        self.open -= u32::from(open.is_meant);
        if let Some(place) = open.as_callee {
            let edge = &mut self.callees.all[place as usize];
            edge.open -= 1;
            if call.is_shown {
                edge.sums.add_call(call, edge.open == 0, None);
            }
        }
        if let Some(place) = open.caller.filter(|_| call.is_shown) {
            self.callers.all[place as usize].sums.add_call(call, self.open == 0, None);
            self.sums.add_call(call, self.open == 0, None);
        }
    }
}
