//! The events of a thread in the order of time, as calls.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use everycall_format::label;
use rustc_hash::{FxHashMap, FxHashSet};

use super::asynchronous::{ALONE, SEARCHED};
use super::spool::{Kind, Record};
use crate::output::{Code, Output, ThreadId};

/// Slices that end so much later than the slice around them end with it: files round times.
const ROUNDING_NS: u64 = 1000;
/// Events of one time that are put into an order of their own; more of them are taken as they come.
const STAMP_MAX: usize = 4096;

/// Events that did not fit as they are in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    rounded: u64,
    overlapping: u64,
    /// Slices inside one whose end came before theirs.
    shortened: u64,
    /// Ends without a name and without a begin.
    ends: u64,
    /// Ends whose name or category no open slice has.
    others_ends: u64,
    /// Events that stand before ends of the same time, and are taken to come after them.
    moved: u64,
    /// Begins of asynchronous operations that had begun already.
    pub begun_twice: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.rounded += other.rounded;
        self.overlapping += other.overlapping;
        self.shortened += other.shortened;
        self.ends += other.ends;
        self.others_ends += other.others_ends;
        self.moved += other.moved;
        self.begun_twice += other.begun_twice;
    }

    pub fn tell(&self, notes: &mut Vec<String>) {
        let told = [
            (
                self.rounded,
                "slices end up to 1 us after the slice around them, and are shown as ending with it",
            ),
            (
                self.overlapping,
                "slices overlap others of their thread without being inside them, and are shown as spans",
            ),
            (
                self.shortened,
                "slices are shown only up to the end of the slice around them, which came before theirs",
            ),
            (self.ends, "ends of slices have no begin, and were left out"),
            (
                self.others_ends,
                "ends of slices have a name or category that no open slice has, and were left out",
            ),
            (
                self.moved,
                "events stand before the end of an earlier slice at the same time, and are shown after it",
            ),
            (
                self.begun_twice,
                "asynchronous operations (`S`) began again before their end; the second begins were left out",
            ),
        ];
        notes.extend(
            told.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
        );
    }
}

/// A slice that is open.
#[derive(Clone, Copy)]
struct Open {
    /// 0: none.
    name: u32,
    /// 0: none.
    category: u32,
    code: Code,
    /// Whether an end event of its own ends it.
    is_begun: bool,
    /// When the innermost complete slice that it is in, or that it is, ends.
    limit: u64,
    /// Its place among the events of this time, if it begins now.
    token: Option<usize>,
}

impl Open {
    /// Whether an end event is for it.
    fn fits(&self, end: &Record) -> bool {
        fits((self.name, self.category), end)
    }
}

/// Whether an end event is for a slice of this name and category: nothing that both have differs,
/// and an end with a category needs a begin with one.
fn fits((name, category): (u32, u32), end: &Record) -> bool {
    (end.group == 0 || end.group == category) && (end.name == 0 || name == 0 || end.name == name)
}

/// A begin that an end event is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// At an earlier time; its place among open slices.
    Earlier(usize),
    /// At this time; its place among the events of this time.
    Now(usize),
}

/// A thread.
pub(super) struct Replay {
    thread: ThreadId,
    /// Added to times.
    shift: u64,
    open: Vec<Open>,
    /// Events of one time whose order isn't known yet.
    stamp: Vec<Record>,
    /// Ends of slices that are shown as spans, with their names and numbers.
    spans: BinaryHeap<Reverse<(u64, u32, u64)>>,
    /// Names and numbers of spans that are open, which must differ.
    open_spans: FxHashSet<(u32, u64)>,
    /// The number of each open span of a pair.
    pairs: FxHashMap<u32, u64>,
    next_span: u64,
    /// By name: begun slices that ended with the one around them, and whose ends haven't come.
    shortened: FxHashMap<u32, u64>,
    pub counts: Counts,
}

impl Replay {
    pub fn new(thread: ThreadId, shift: u64) -> Replay {
        Replay {
            thread,
            shift,
            open: Vec::new(),
            stamp: Vec::new(),
            spans: BinaryHeap::new(),
            open_spans: FxHashSet::default(),
            pairs: FxHashMap::default(),
            next_span: 0,
            shortened: FxHashMap::default(),
            counts: Counts::default(),
        }
    }

    #[inline]
    pub fn record<W: Write>(
        &mut self,
        record: &Record,
        texts: &[Vec<u8>],
        code: &mut impl FnMut(u32, &mut Output<W>) -> Option<Code>,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let is_other =
            self.stamp.last().is_some_and(|last| last.ns != record.ns || record.kind == Kind::Complete);
        if is_other || self.stamp.len() >= STAMP_MAX {
            self.settle(texts, code, out)?;
        }
        if record.kind != Kind::Complete {
            self.stamp.push(*record);
            return Ok(());
        }
        let now = self.time(record);
        self.end_until(now, texts, out)?;
        self.complete(record, now, texts, code, out)
    }

    fn time(&self, record: &Record) -> u64 {
        self.shift.saturating_add_signed(record.ns)
    }

    /// Writes the events of a time. Ends without a name end the innermost slice, others the
    /// innermost one of their name, as in Perfetto. Where that one began earlier, what begins now
    /// begins after it.
    fn settle<W: Write>(
        &mut self,
        texts: &[Vec<u8>],
        code: &mut impl FnMut(u32, &mut Output<W>) -> Option<Code>,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.stamp);
        if let Some(first) = events.first() {
            self.end_until(self.time(first), texts, out)?;
        }
        // The usual case.
        if let [event] = events[..] {
            let begin = Some(&event).filter(|event| event.kind == Kind::End);
            match begin.and_then(|end| self.earlier(end, &FxHashSet::default())) {
                Some(place) => {
                    self.end(Begun::Earlier(place), self.time(&event), &[], &FxHashSet::default(), out)?;
                }
                None => self.other(&event, 0, texts, code, out)?,
            }
            if let Some(open) = self.open.last_mut() {
                open.token = None;
            }
            events.clear();
            self.stamp = events;
            return Ok(());
        }
        let begins = self.begins(&events);
        let mut is_ended = vec![false; events.len()];
        let mut earlier_ended = FxHashSet::default();
        let mut last_earlier = 0;
        for (place, begin) in begins.iter().enumerate() {
            match begin {
                Some(Begun::Now(begin)) => is_ended.iter_mut().skip(*begin).take(1).for_each(|is| *is = true),
                Some(Begun::Earlier(begin)) => {
                    earlier_ended.insert(*begin);
                    last_earlier = place;
                }
                None => {}
            }
        }
        // A slice that stays open can't begin before the end of one that began earlier.
        let stays = |(event, is_ended): (&Record, &bool)| event.kind == Kind::Begin && !is_ended;
        let first_staying = events.iter().zip(&is_ended).position(stays).unwrap_or(usize::MAX);
        let is_late = |place: usize| {
            (first_staying..last_earlier).contains(&place)
                && !matches!(begins.get(place), Some(Some(Begun::Earlier(_))))
        };
        let before = (0..=last_earlier).filter(|place| !is_late(*place));
        let late: Vec<usize> = (0..last_earlier).filter(|place| is_late(*place)).collect();
        self.counts.moved += late.len() as u64;
        let order = before.chain(late.iter().copied()).chain(last_earlier + 1..events.len());
        for place in order {
            let Some(event) = events.get(place) else { continue };
            match begins.get(place).copied().flatten() {
                Some(begin) => self.end(begin, self.time(event), &is_ended, &earlier_ended, out)?,
                None => self.other(event, place, texts, code, out)?,
            }
        }
        self.open.iter_mut().rev().take_while(|open| open.token.is_some()).for_each(|open| open.token = None);
        events.clear();
        self.stamp = events;
        Ok(())
    }

    /// Which begin each of the events of a time ends.
    fn begins(&self, events: &[Record]) -> Vec<Option<Begun>> {
        let mut begun: Vec<usize> = Vec::new();
        let mut ended = FxHashSet::default();
        let mut begins = Vec::with_capacity(events.len());
        for (place, event) in events.iter().enumerate() {
            if event.kind == Kind::Begin {
                begun.push(place);
            }
            if event.kind != Kind::End {
                begins.push(None);
                continue;
            }
            let is_begin = |place: &&usize| {
                events.get(**place).is_some_and(|begin| fits((begin.name, begin.group), event))
            };
            if let Some(place) = begun.iter().rev().position(|place| is_begin(&place)) {
                begins.push(Some(Begun::Now(begun.remove(begun.len() - 1 - place))));
                continue;
            }
            let earlier = self.earlier(event, &ended);
            ended.extend(earlier);
            begins.push(earlier.map(Begun::Earlier));
        }
        begins
    }

    /// The innermost open slice of an earlier time that an event is the end of.
    fn earlier(&self, end: &Record, ended: &FxHashSet<usize>) -> Option<usize> {
        let mut open = self.open.iter().enumerate().rev().take(SEARCHED);
        let found = open.find(|(place, open)| open.is_begun && open.fits(end) && !ended.contains(place));
        found.map(|(place, _)| place)
    }

    /// A begun slice ended with the one around it: its own end may come later.
    fn shorten(&mut self, name: u32) {
        self.counts.shortened += 1;
        *self.shortened.entry(name).or_default() += 1;
    }

    /// Whether this is the end of a slice that ended before, with the one around it.
    fn is_shortened(&mut self, end: &Record) -> bool {
        let left = self.shortened.get_mut(&end.name).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    }

    /// Writes an event that ends no slice.
    fn other<W: Write>(
        &mut self,
        record: &Record,
        token: usize,
        texts: &[Vec<u8>],
        code: &mut impl FnMut(u32, &mut Output<W>) -> Option<Code>,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let now = self.time(record);
        let thread = self.thread;
        let text = texts.get(record.name as usize).map(Vec::as_slice).unwrap_or_default();
        let label = |out: &mut Output<W>, class, value| out.label(thread, now, class, text, value);
        match record.kind {
            // Those have been looked at before.
            Kind::Complete => Ok(()),
            Kind::Begin => {
                let Some(code) = code(record.name, out) else { return Ok(()) };
                let limit = self.open.last().map_or(u64::MAX, |open| open.limit);
                let (name, category) = (record.name, record.group);
                self.open.push(Open { name, category, code, is_begun: true, limit, token: Some(token) });
                out.entry(thread, now, code)
            }
            Kind::End if self.is_shortened(record) => Ok(()),
            Kind::End if record.name == 0 => {
                self.counts.ends += 1;
                Ok(())
            }
            Kind::End if self.open.is_empty() => match code(record.name, out) {
                Some(code) => out.exit(thread, now, code),
                None => Ok(()),
            },
            Kind::End => {
                self.counts.others_ends += 1;
                Ok(())
            }
            Kind::Instant => label(out, label::INSTANT, None),
            Kind::SpanBegin => {
                let number = self.begin_span(record.name, record.value);
                if record.group != ALONE {
                    self.pairs.insert(record.group, number);
                }
                label(out, label::SPAN_BEGIN, Some(number))
            }
            Kind::SpanEnd => {
                // One without its begin ends no other span.
                let alone = |replay: &mut Replay| replay.begin_span(record.name, record.value);
                let number = match self.pairs.remove(&record.group) {
                    Some(number) => number,
                    None => alone(self),
                };
                self.open_spans.remove(&(record.name, number));
                label(out, label::SPAN_END, Some(number))
            }
            Kind::SpanWhole => {
                let number = self.begin_span(record.name, record.value);
                self.open_spans.remove(&(record.name, number));
                label(out, label::SPAN_BEGIN, Some(number))?;
                label(out, label::SPAN_END, Some(number))
            }
            Kind::Counter => label(out, label::COUNTER, Some(record.value)),
            Kind::CounterReal => label(out, label::COUNTER_REAL, Some(record.value)),
        }
    }

    /// The number of a span: this one, unless an open span of that name has it.
    fn begin_span(&mut self, name: u32, wanted: u64) -> u64 {
        let mut number = wanted;
        while !self.open_spans.insert((name, number)) {
            number = self.next_span;
            self.next_span += 1;
        }
        number
    }

    #[inline]
    fn complete<W: Write>(
        &mut self,
        record: &Record,
        now: u64,
        texts: &[Vec<u8>],
        code: &mut impl FnMut(u32, &mut Output<W>) -> Option<Code>,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let mut end = now.saturating_add(record.value);
        let around = self.open.last().map_or(u64::MAX, |open| open.limit);
        if end > around {
            if end - around > ROUNDING_NS {
                self.counts.overlapping += 1;
                let number = self.begin_span(record.name, self.next_span);
                self.spans.push(Reverse((end, record.name, number)));
                let text = texts.get(record.name as usize).map(Vec::as_slice).unwrap_or_default();
                return out.label(self.thread, now, label::SPAN_BEGIN, text, Some(number));
            }
            self.counts.rounded += 1;
            end = around;
        }
        let Some(code) = code(record.name, out) else { return Ok(()) };
        let (name, category) = (record.name, 0);
        self.open.push(Open { name, category, code, is_begun: false, limit: end, token: None });
        out.entry(self.thread, now, code)
    }

    /// Ends this slice, and with it those inside it.
    fn end<W: Write>(
        &mut self,
        begin: Begun,
        now: u64,
        is_ended: &[bool],
        earlier_ended: &FxHashSet<usize>,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let place = match begin {
            Begun::Earlier(place) => place,
            // It may have ended with a slice around it.
            Begun::Now(token) => match self.open.iter().rposition(|open| open.token == Some(token)) {
                Some(place) => place,
                None => return Ok(()),
            },
        };
        while self.open.len() > place {
            let Some(open) = self.open.pop() else { break };
            let has_end = match open.token {
                Some(token) => is_ended.get(token) == Some(&true),
                None => earlier_ended.contains(&self.open.len()),
            };
            if open.is_begun && !has_end && self.open.len() > place {
                self.shorten(open.name);
            }
            if !open.is_begun && open.limit > now {
                let is_rounding = open.limit - now <= ROUNDING_NS;
                *(if is_rounding { &mut self.counts.rounded } else { &mut self.counts.shortened }) += 1;
            }
            out.exit(self.thread, now, open.code)?;
        }
        Ok(())
    }

    /// Ends complete slices that end until then, and what is inside them.
    #[inline]
    fn end_until<W: Write>(&mut self, now: u64, texts: &[Vec<u8>], out: &mut Output<W>) -> io::Result<()> {
        // Ends of slices that are inside one may come at the time when that ends.
        while let Some(Open { name, is_begun, limit, code, .. }) = self.open.last().copied()
            && (limit < now || limit == now && !is_begun)
        {
            self.end_spans(limit, texts, out)?;
            self.open.pop();
            if is_begun {
                self.shorten(name);
            }
            out.exit(self.thread, limit, code)?;
        }
        self.end_spans(now, texts, out)
    }

    #[inline]
    fn end_spans<W: Write>(&mut self, now: u64, texts: &[Vec<u8>], out: &mut Output<W>) -> io::Result<()> {
        while let Some(Reverse((end, name, number))) = self.spans.peek().copied()
            && end <= now
        {
            self.spans.pop();
            self.open_spans.remove(&(name, number));
            let text = texts.get(name as usize).map(Vec::as_slice).unwrap_or_default();
            out.label(self.thread, end, label::SPAN_END, text, Some(number))?;
        }
        Ok(())
    }

    /// Ends what is left, except slices whose ends aren't in the file.
    pub fn finish<W: Write>(
        &mut self,
        texts: &[Vec<u8>],
        code: &mut impl FnMut(u32, &mut Output<W>) -> Option<Code>,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        self.settle(texts, code, out)?;
        self.end_until(u64::MAX, texts, out)
    }
}
