//! callgrind's profile format, for KCachegrind, QCachegrind and callgrind_annotate: own time of
//! each function, and calls and time of each pair of caller and callee.
//!
//! <https://valgrind.org/docs/manual/cl-format.html>. A call of a function that is open already
//! counts as a call, but its time is that of the outermost one alone, so that inclusive times of
//! recursive functions are true. Memory holds functions and pairs.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use crate::driver::{Export, Sink};
use crate::filtered::Event;
use crate::frames::{Frame, in_a_line};
use crate::json::put_number;
use crate::names::Functions;
use crate::portions::Portions;
use crate::source::{Source, Thread};

/// Calls of one function by another.
struct Pair {
    /// Position of the one that is called.
    callee: usize,
    calls: u64,
    inclusive_ns: u64,
}

/// A function.
struct Costs {
    frame: Frame,
    own_ns: u64,
    /// Open calls of it in the thread.
    open: u64,
    /// In the order in which they were called first.
    callees: Vec<Pair>,
    /// Where the function that was called last stands in it: often the next one, too.
    last: usize,
}

struct Open {
    /// Position of the function.
    position: usize,
    inner_ns: u64,
}

/// The output.
pub(crate) struct Callgrind<'o> {
    portions: Portions<'o>,
    costs: Vec<Costs>,
    /// By function: its position, once it has one.
    functions: Vec<Option<usize>>,
    /// The positions of other frames.
    others: FxHashMap<Frame, usize>,
    /// By positions of caller and callee: the position in the caller's callees.
    pairs: FxHashMap<(usize, usize), usize>,
    open: Vec<Open>,
    total_ns: u64,
}

impl<'o> Callgrind<'o> {
    pub(crate) fn new(out: &'o mut dyn Write) -> Self {
        Callgrind {
            portions: Portions::new(out),
            costs: Vec::new(),
            functions: Vec::new(),
            others: FxHashMap::default(),
            pairs: FxHashMap::default(),
            open: Vec::new(),
            total_ns: 0,
        }
    }

    #[inline]
    fn position(&mut self, frame: Frame) -> usize {
        if let Frame::Function(function) = frame
            && let Some(&Some(position)) = self.functions.get(function.index())
        {
            return position;
        }
        self.find_or_add(frame)
    }

    #[cold]
    fn find_or_add(&mut self, frame: Frame) -> usize {
        let next = self.costs.len();
        let position = match frame {
            Frame::Function(function) => {
                if self.functions.len() <= function.index() {
                    self.functions.resize(function.index() + 1, None);
                }
                *self.functions[function.index()].get_or_insert(next)
            }
            frame => *self.others.entry(frame).or_insert(next),
        };
        if position == next {
            self.costs.push(Costs { frame, own_ns: 0, open: 0, callees: Vec::new(), last: 0 });
        }
        position
    }

    #[inline]
    fn enter(&mut self, frame: Frame) {
        let position = self.position(frame);
        self.costs[position].open += 1;
        self.open.push(Open { position, inner_ns: 0 });
    }

    #[inline]
    fn leave(&mut self, ns: u64) {
        let Some(Open { position, inner_ns }) = self.open.pop() else { return };
        let own_ns = ns.saturating_sub(inner_ns);
        self.total_ns = self.total_ns.saturating_add(own_ns);
        let costs = &mut self.costs[position];
        costs.own_ns = costs.own_ns.saturating_add(own_ns);
        costs.open = costs.open.saturating_sub(1);
        let is_outermost = costs.open == 0;
        let Some(caller) = self.open.last_mut() else { return };
        caller.inner_ns = caller.inner_ns.saturating_add(ns);
        let caller = caller.position;
        let pair = self.pair(caller, position);
        pair.calls += 1;
        if is_outermost {
            pair.inclusive_ns = pair.inclusive_ns.saturating_add(ns);
        }
    }

    #[inline]
    fn pair(&mut self, caller: usize, callee: usize) -> &mut Pair {
        let costs = &mut self.costs[caller];
        if costs.callees.get(costs.last).is_none_or(|pair| pair.callee != callee) {
            costs.last = *self.pairs.entry((caller, callee)).or_insert_with(|| {
                costs.callees.push(Pair { callee, calls: 0, inclusive_ns: 0 });
                costs.callees.len() - 1
            });
        }
        &mut costs.callees[costs.last]
    }

    /// Something without callees, within the innermost call.
    fn leaf(&mut self, frame: Frame, ns: u64) {
        if !self.open.is_empty() {
            self.enter(frame);
            self.leave(ns);
        }
    }
}

impl<'o, S: Source> Sink<'o, S> for Callgrind<'o> {
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn thread(&mut self, _: &mut Export<'_, S>, _: usize, _: &Thread) {
        self.open.clear();
        for costs in &mut self.costs {
            costs.open = 0;
        }
    }

    #[inline]
    fn event(&mut self, export: &mut Export<'_, S>, event: Event) {
        export.summary.event(&event);
        match event {
            Event::Begin { function, .. } => self.enter(Frame::Function(function)),
            Event::End { start_ns, end_ns, .. } => self.leave(end_ns.saturating_sub(start_ns)),
            Event::Gap(gap) => self.leaf(Frame::of_gap(gap.why), gap.until_ns.saturating_sub(gap.at_ns)),
            Event::Untraced(slice) => {
                let ns = slice.until_ns.saturating_sub(slice.at_ns);
                self.leaf(Frame::Function(slice.function), ns);
            }
            Event::Point(_) | Event::Mark(_) | Event::OffCpu(_) => {}
        }
    }

    fn end(&mut self, export: &mut Export<'_, S>) -> io::Result<()> {
        let command = export.source.processes().first().map_or("", |process| &process.name);
        let lost = export.summary.lost_events;
        let bytes = &mut self.portions.bytes;
        bytes.extend_from_slice(b"# callgrind format\nversion: 1\ncreator: everycall\ncmd: ");
        bytes.extend_from_slice(in_a_line(command, None).as_bytes());
        bytes.extend_from_slice(b"\ndesc: Trigger: Program termination\n");
        if lost > 0 {
            bytes.extend_from_slice(format!("desc: {lost} events are missing\n").as_bytes());
        }
        bytes.extend_from_slice(b"positions: line\nevents: Nanoseconds\nsummary: ");
        put_number(bytes, self.total_ns);
        bytes.push(b'\n');
        for costs in &self.costs {
            let bytes = &mut self.portions.bytes;
            bytes.push(b'\n');
            let line = put_place(bytes, costs.frame, &export.functions, ["ob", "fl", "fn"]);
            put_line(bytes, line, costs.own_ns);
            for pair in &costs.callees {
                let callee = self.costs[pair.callee].frame;
                let called = put_place(bytes, callee, &export.functions, ["cob", "cfi", "cfn"]);
                bytes.extend_from_slice(b"calls=");
                put_line(bytes, pair.calls, called);
                put_line(bytes, line, pair.inclusive_ns);
            }
            self.portions.spill()?;
        }
        Ok(())
    }
}

/// Module, file and name of a function, under these keys; its line.
fn put_place(bytes: &mut Vec<u8>, frame: Frame, functions: &Functions<'_>, keys: [&str; 3]) -> u64 {
    let function = match frame {
        Frame::Function(id) => Some(functions.get(id)),
        _ => None,
    };
    let module = function.map_or("", |function| &function.module);
    let file = function.and_then(|function| function.file.as_deref()).unwrap_or_default();
    for (key, text) in keys.into_iter().zip([module, file, frame.name(functions)]) {
        bytes.extend_from_slice(key.as_bytes());
        bytes.push(b'=');
        // Without any text, readers take the one before.
        let text = if text.is_empty() { "???" } else { text };
        bytes.extend_from_slice(in_a_line(text, None).as_bytes());
        bytes.push(b'\n');
    }
    function.and_then(|function| function.line).unwrap_or(0).into()
}

/// Two numbers.
fn put_line(bytes: &mut Vec<u8>, first: u64, second: u64) {
    put_number(bytes, first);
    bytes.push(b' ');
    put_number(bytes, second);
    bytes.push(b'\n');
}
