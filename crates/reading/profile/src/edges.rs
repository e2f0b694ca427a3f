//! The callers and callees of some functions.

use everycall_calls::{Thread, ValuesNumber};
use rustc_hash::FxHashMap;

use crate::focus::Focus;
use crate::functions::{FunctionNumber, Functions};
use crate::notes::Notes;
use crate::source::CallSource;
use crate::sums::Sums;
use crate::visitor::{EndedCall, Visitor};
use crate::walk::walk;

/// A caller or callee.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The function; `None` for calls whose caller isn't in the trace, or not shown.
    pub function: Option<FunctionNumber>,
    /// Whether a tail call made the call.
    pub is_jump: bool,
    /// Number of the line of the calls in a caller: see [`Edges::call_site`].
    site: Option<u32>,
    /// The calls that were made in this way.
    pub sums: Sums,
    open: u32,
}

#[derive(Clone, Debug, Default)]
struct Rows {
    all: Vec<Edge>,
    places: FxHashMap<(Option<FunctionNumber>, bool, Option<u32>), u32>,
}

impl Rows {
    fn place(&mut self, function: Option<FunctionNumber>, is_jump: bool, site: Option<u32>) -> u32 {
        let next = self.all.len() as u32;
        let place = *self.places.entry((function, is_jump, site)).or_insert(next);
        if place == next {
            self.all.push(Edge { function, is_jump, site, sums: Sums::default(), open: 0 });
        }
        place
    }
}

struct Open {
    function: FunctionNumber,
    is_meant: bool,
    as_callee: Option<u32>,
    /// The function that called it, and whether by a tail call.
    caller: (Option<FunctionNumber>, bool),
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
    /// Call sites, if callers are told apart by them.
    sites: Option<Sites>,
}

/// Call sites as texts, which are numbered.
#[derive(Default)]
struct Sites {
    texts: Vec<String>,
    numbers: FxHashMap<String, u32>,
    /// By captured arguments of the current trace.
    known: FxHashMap<ValuesNumber, Option<u32>>,
}

impl Sites {
    fn of(&mut self, number: ValuesNumber, source: &impl CallSource) -> Option<u32> {
        let Sites { texts, numbers, known } = self;
        *known.entry(number).or_insert_with(|| {
            let site = source.call_site(number)?;
            let next = texts.len() as u32;
            Some(*numbers.entry(site).or_insert_with_key(|site| {
                texts.push(site.clone());
                next
            }))
        })
    }
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
            sites: None,
        }
    }

    /// Tells callers apart by the lines of their calls, as far as these were recorded.
    #[must_use]
    pub fn by_call_site(self) -> Edges<'f> {
        Edges { sites: Some(Sites::default()), ..self }
    }

    /// The line of a caller's calls.
    #[must_use]
    pub fn call_site(&self, edge: &Edge) -> Option<&str> {
        self.sites.as_ref()?.texts.get(edge.site? as usize).map(String::as_str)
    }

    /// Adds the calls of a trace that pass a filter.
    pub fn add_trace<S: CallSource>(&mut self, source: &S, filter: &S::Filter) {
        let mut functions = std::mem::take(&mut self.functions);
        let mut notes = std::mem::take(&mut self.notes);
        if let Some(sites) = &mut self.sites {
            sites.known.clear();
        }
        walk(source, filter, None, &mut functions, &mut notes, &mut OfTrace { edges: self, source });
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

/// The calls of a trace.
struct OfTrace<'e, 'f, S> {
    edges: &'e mut Edges<'f>,
    source: &'e S,
}

impl<S: CallSource> Visitor for OfTrace<'_, '_, S> {
    fn thread(&mut self, _: &Thread) {
        self.edges.stack.clear();
        self.edges.open = 0;
    }

    fn begin(&mut self, function: FunctionNumber, from: Option<FunctionNumber>, functions: &Functions) {
        self.edges.begin(function, from, functions);
    }

    fn end(&mut self, call: &EndedCall) {
        let number = call.values.arguments;
        let site =
            self.edges.sites.as_mut().zip(number).and_then(|(sites, number)| sites.of(number, self.source));
        self.edges.end(call, site);
    }
}

impl Edges<'_> {
    fn begin(&mut self, function: FunctionNumber, from: Option<FunctionNumber>, functions: &Functions) {
        let is_meant = self.focus.has(function, functions);
        let around = self.stack.last();
        let caller = from.or(around.map(|open| open.function));
        let by_meant = match from {
            Some(from) => self.focus.has(from, functions),
            None => around.is_some_and(|open| open.is_meant),
        };
        let is_jump = from.is_some();
        let as_callee = by_meant.then(|| self.callees.place(Some(function), is_jump, None));
        if let Some(place) = as_callee {
            self.callees.all[place as usize].open += 1;
        }
        self.open += u32::from(is_meant);
        self.stack.push(Open { function, is_meant, as_callee, caller: (caller, is_jump) });
    }

    fn end(&mut self, call: &EndedCall, site: Option<u32>) {
        let Some(open) = self.stack.pop() else { return };
        self.open -= u32::from(open.is_meant);
        if let Some(place) = open.as_callee {
            let edge = &mut self.callees.all[place as usize];
            edge.open -= 1;
            if call.is_shown {
                edge.sums.add_call(call, edge.open == 0, None);
            }
        }
        if open.is_meant && call.is_shown {
            let place = self.callers.place(open.caller.0, open.caller.1, site);
            self.callers.all[place as usize].sums.add_call(call, self.open == 0, None);
            self.sums.add_call(call, self.open == 0, None);
        }
    }
}
