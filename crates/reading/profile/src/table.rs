//! Sums by group.

use everycall_calls::Thread;
use rustc_hash::FxHashMap;

use crate::bounds::CallBounds;
use crate::functions::{FunctionNumber, Functions};
use crate::group::{Grouping, Key};
use crate::hooks::Prices;
use crate::sums::Sums;
use crate::value_of::ValueGroups;
use crate::visitor::{CallStates, EndedCall, Visitor, WithTail};

/// Index of a group in [`Cells`].
type Place = u32;

/// A group of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) key: Key,
    pub(crate) sums: Sums,
}

/// A set of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cells {
    pub(crate) all: Vec<Cell>,
    /// By place: number of open calls in the current thread. Beside the cells, so that a begin
    /// doesn't touch one.
    open: Vec<u32>,
    places: FxHashMap<Key, Place>,
    pub(crate) has_own_times: bool,
    /// How long the thread waited for a CPU in the call that ends next, as far as it is known.
    waited_ns: u64,
    pub(crate) follows_tails: bool,
    /// Cost of hooks in the trace that is being added, if that is requested.
    pub(crate) prices: Option<Prices>,
}

impl Cells {
    pub(crate) fn place(&mut self, key: Key) -> Place {
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        let place = self.all.len() as Place;
        self.places.insert(key.clone(), place);
        self.all.push(Cell { key, sums: Sums::default() });
        self.open.push(0);
        place
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Sums> {
        self.places.get(key).and_then(|place| self.all.get(*place as usize)).map(|cell| &cell.sums)
    }

    pub(crate) fn add(&mut self, key: Key, sums: &Sums) {
        let place = self.place(key);
        self.all[place as usize].sums.add(sums);
    }

    #[inline]
    pub(crate) fn begin(&mut self, place: Place) {
        self.open[place as usize] += 1;
    }

    #[inline]
    pub(crate) fn end(&mut self, place: Place, call: &EndedCall) {
        let waited_ns = std::mem::take(&mut self.waited_ns);
        let open = &mut self.open[place as usize];
        // A call that continues in a tail call is still open.
        *open -= u32::from(!call.of.goes_on);
        if call.is_shown {
            self.all[place as usize].sums.add_call(call, *open == 0, self.has_own_times.then_some(waited_ns));
        }
    }
}

/// How the group of a call is determined.
pub(crate) enum By<'a> {
    /// By its function. Stores index + 1 of the group of known functions.
    Function(Vec<Place>),
    /// All calls of a thread belong to one group.
    Thread(Place),
    /// By the value of the label when the call begins.
    Label(Option<Option<u64>>),
    /// By a value that is known when the call ends.
    Value(Option<Box<dyn ValueGroups + 'a>>),
}

/// The place of a call that belongs to no group, or whose group isn't known yet.
const NOWHERE: Place = Place::MAX;
/// That of a call whose group is known when it ends.
const AT_ITS_END: Place = Place::MAX - 1;

/// Adds calls to their groups.
pub(crate) struct Table<'a> {
    pub(crate) cells: &'a mut Cells,
    pub(crate) by: By<'a>,
    pub(crate) grouping: Grouping,
    pub(crate) trace: usize,
    /// Names of processes.
    pub(crate) processes: Vec<String>,
    pub(crate) stack: Vec<Place>,
    /// The group of the call that ended last.
    ended: Place,
}

impl<'a> Table<'a> {
    pub(crate) fn new(
        cells: &'a mut Cells,
        grouping: &Grouping,
        trace: usize,
        processes: Vec<String>,
    ) -> Table<'a> {
        let by = match grouping {
            Grouping::Thread | Grouping::Process => By::Thread(0),
            Grouping::Label(_) => By::Label(None),
            _ => By::Function(Vec::new()),
        };
        Table { cells, by, grouping: grouping.clone(), trace, processes, stack: Vec::new(), ended: 0 }
    }

    #[cold]
    fn new_function(&mut self, function: FunctionNumber, functions: &Functions) -> Place {
        let identity = functions.get(function).map(|function| &function.identity);
        let place = self.cells.place(match (&self.grouping, identity) {
            (Grouping::Module, Some(identity)) => Key::Module(identity.module.clone()),
            (Grouping::File, Some(identity)) => Key::File(identity.file.clone()),
            _ => Key::Function(function),
        });
        if let By::Function(places) = &mut self.by {
            let index = function as usize;
            if places.len() <= index {
                places.resize(index + 1, 0);
            }
            places[index] = place + 1;
        }
        place
    }
}

impl Visitor for Table<'_> {
    fn thread(&mut self, thread: &Thread) {
        self.stack.clear();
        let trace = self.trace;
        if let By::Thread(place) = &mut self.by {
            let key = if self.grouping == Grouping::Process {
                let name = self.processes.get(thread.process).cloned().unwrap_or_default();
                Key::Process { trace, pid: thread.pid, name }
            } else {
                Key::Thread { trace, pid: thread.pid, tid: thread.tid, name: thread.name.clone() }
            };
            *place = self.cells.place(key);
        }
    }

    #[inline]
    fn begin(&mut self, function: FunctionNumber, _: Option<FunctionNumber>, functions: &Functions) {
        let place = match &mut self.by {
            By::Function(places) => match places.get(function as usize) {
                Some(place) if *place > 0 => *place - 1,
                _ => self.new_function(function, functions),
            },
            By::Thread(place) => *place,
            By::Label(label) => {
                self.cells.place(Key::Label { is_set: label.is_some(), value: label.flatten() })
            }
            By::Value(by) => {
                self.stack.push(if by.as_mut().is_some_and(|by| by.is_meant(function, functions)) {
                    AT_ITS_END
                } else {
                    NOWHERE
                });
                return;
            }
        };
        self.cells.begin(place);
        self.stack.push(place);
    }

    fn is_by_symbol(&self) -> bool {
        self.grouping == Grouping::Symbol
    }

    fn states(&mut self, states: &CallStates, call: &EndedCall) {
        let Some(place) = self.stack.last().filter(|place| call.is_shown && **place < AT_ITS_END) else {
            return;
        };
        let is_outermost = self.cells.open[*place as usize] == 1 && !call.of.goes_on;
        self.cells.waited_ns = states.own.runnable;
        self.cells.all[*place as usize].sums.add_states(states, is_outermost);
    }

    fn bounds(&mut self, bounds: &CallBounds, call: &EndedCall) {
        let Some(place) = self.stack.last().filter(|place| call.is_shown && **place < AT_ITS_END) else {
            return;
        };
        let is_outermost = self.cells.open[*place as usize] == 1 && !call.of.goes_on;
        self.cells.all[*place as usize].sums.bounds.add_call(bounds, is_outermost);
    }

    #[inline]
    fn end(&mut self, call: &EndedCall) {
        let Some(mut place) = self.stack.pop() else { return };
        if let By::Value(by) = &mut self.by {
            let value =
                if place == AT_ITS_END { by.as_mut().and_then(|by| by.of(call.values)) } else { None };
            place = value.map_or(NOWHERE, |value| self.cells.place(Key::Value(value.to_owned())));
            if place != NOWHERE {
                self.cells.begin(place);
            }
        }
        if place != NOWHERE {
            self.cells.end(place, call);
        }
        self.ended = place;
    }

    fn follows_tails(&self) -> bool {
        self.cells.follows_tails
    }

    fn prices(&self) -> Option<&Prices> {
        self.cells.prices.as_ref()
    }

    fn token(&self) -> u32 {
        self.ended
    }

    fn tail_ended(&mut self, token: u32, call: &WithTail) {
        let Some(open) = self.cells.open.get_mut(token as usize) else { return };
        *open -= 1;
        if call.is_shown {
            self.cells.all[token as usize].sums.add_tail(call, *open == 0);
        }
    }

    fn label(&mut self, in_force: Option<Option<u64>>) {
        if let By::Label(label) = &mut self.by {
            *label = in_force;
        }
    }

    fn untraced(&mut self, function: FunctionNumber, at_most_ns: u64) {
        let place = match &self.by {
            By::Function(places) => places.get(function as usize).and_then(|place| place.checked_sub(1)),
            By::Thread(place) => Some(*place),
            By::Label(_) => self.stack.last().copied(),
            By::Value(_) => None,
        };
        if let Some(cell) = place.and_then(|place| self.cells.all.get_mut(place as usize)) {
            let sum = &mut cell.sums.untraced_at_most_ns;
            *sum = sum.saturating_add(at_most_ns);
        }
    }
}
