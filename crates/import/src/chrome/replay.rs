//! The events of a thread in the order of time, as calls.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use everycall_format::label;

use super::spool::{Kind, Record};
use crate::output::{Code, Output, ThreadId};

/// Slices that end so much later than the slice around them end with it: files round times.
const ROUNDING_NS: u64 = 1000;

/// What didn't fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    rounded: u64,
    overlapping: u64,
    /// Slices inside one whose end came before theirs.
    shortened: u64,
    /// Ends without a name and without a begin.
    ends: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.rounded += other.rounded;
        self.overlapping += other.overlapping;
        self.shortened += other.shortened;
        self.ends += other.ends;
    }

    pub fn tell(&self, notes: &mut Vec<String>) {
        if self.rounded > 0 {
            notes.push(format!(
                "{} slices end up to 1 us after the slice around them, and are shown as ending with it",
                self.rounded
            ));
        }
        if self.overlapping > 0 {
            notes.push(format!(
                "{} slices overlap others of their thread without being inside them, and are shown as spans",
                self.overlapping
            ));
        }
        if self.shortened > 0 {
            notes.push(format!(
                "{} slices are shown only up to the end of the slice around them, which came before theirs",
                self.shortened
            ));
        }
        if self.ends > 0 {
            notes.push(format!("{} ends of slices have no begin, and were left out", self.ends));
        }
    }
}

/// A slice that is open.
#[derive(Clone, Copy)]
struct Open {
    code: Code,
    /// When it ends, if that is known.
    end: Option<u64>,
}

/// A thread.
pub(super) struct Replay {
    thread: ThreadId,
    /// Added to times.
    shift: u64,
    open: Vec<Open>,
    /// Ends of slices that are shown as spans, with their names and numbers.
    spans: BinaryHeap<Reverse<(u64, u32, u64)>>,
    next_span: u64,
    pub counts: Counts,
}

impl Replay {
    pub fn new(thread: ThreadId, shift: u64) -> Replay {
        Replay {
            thread,
            shift,
            open: Vec::new(),
            spans: BinaryHeap::new(),
            next_span: 0,
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
        let now = self.shift.saturating_add_signed(record.ns);
        self.end_until(now, texts, out)?;
        let text = |number: u32| texts.get(number as usize).map(Vec::as_slice).unwrap_or_default();
        let label =
            |out: &mut Output<W>, class, value| out.label(self.thread, now, class, text(record.name), value);
        match record.kind {
            Kind::Complete => self.complete(record, now, text(record.name), code, out),
            Kind::Begin => {
                let Some(code) = code(record.name, out) else { return Ok(()) };
                self.open.push(Open { code, end: None });
                out.entry(self.thread, now, code)
            }
            Kind::End => self.end(record, now, text(record.name).is_empty(), code, out),
            Kind::Instant => label(out, label::INSTANT, None),
            Kind::SpanBegin => label(out, label::SPAN_BEGIN, Some(record.value)),
            Kind::SpanEnd => label(out, label::SPAN_END, Some(record.value)),
            Kind::Counter => label(out, label::COUNTER, Some(record.value)),
            Kind::CounterReal => label(out, label::COUNTER_REAL, Some(record.value)),
        }
    }

    #[inline]
    fn complete<W: Write>(
        &mut self,
        record: &Record,
        now: u64,
        name: &[u8],
        code: &mut impl FnMut(u32, &mut Output<W>) -> Option<Code>,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let mut end = now.saturating_add(record.value);
        if let Some(around) = self.open.last().and_then(|open| open.end)
            && end > around
        {
            if end - around > ROUNDING_NS {
                self.counts.overlapping += 1;
                let number = self.next_span;
                self.next_span += 1;
                self.spans.push(Reverse((end, record.name, number)));
                return out.label(self.thread, now, label::SPAN_BEGIN, name, Some(number));
            }
            self.counts.rounded += 1;
            end = around;
        }
        let Some(code) = code(record.name, out) else { return Ok(()) };
        self.open.push(Open { code, end: Some(end) });
        out.entry(self.thread, now, code)
    }

    fn end<W: Write>(
        &mut self,
        record: &Record,
        now: u64,
        is_nameless: bool,
        code: &mut impl FnMut(u32, &mut Output<W>) -> Option<Code>,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let begun = self.open.iter().rposition(|open| open.end.is_none());
        match begun {
            Some(place) => {
                // Slices inside it that would end later end with it.
                let inside = self.open.split_off(place);
                for end in inside.iter().filter_map(|open| open.end) {
                    let is_rounding = end - now.min(end) <= ROUNDING_NS;
                    *(if is_rounding { &mut self.counts.rounded } else { &mut self.counts.shortened }) += 1;
                }
                inside.iter().rev().try_for_each(|open| out.exit(self.thread, now, open.code))
            }
            None if is_nameless || !self.open.is_empty() => {
                self.counts.ends += 1;
                Ok(())
            }
            None => match code(record.name, out) {
                Some(code) => out.exit(self.thread, now, code),
                None => Ok(()),
            },
        }
    }

    /// Ends what ends until then.
    #[inline]
    fn end_until<W: Write>(&mut self, now: u64, texts: &[Vec<u8>], out: &mut Output<W>) -> io::Result<()> {
        while let Some(Open { code, end: Some(end) }) = self.open.last().copied()
            && end <= now
        {
            self.end_spans(end, texts, out)?;
            self.open.pop();
            out.exit(self.thread, end, code)?;
        }
        self.end_spans(now, texts, out)
    }

    #[inline]
    fn end_spans<W: Write>(&mut self, now: u64, texts: &[Vec<u8>], out: &mut Output<W>) -> io::Result<()> {
        while let Some(Reverse((end, name, number))) = self.spans.peek().copied()
            && end <= now
        {
            self.spans.pop();
            let text = texts.get(name as usize).map(Vec::as_slice).unwrap_or_default();
            out.label(self.thread, end, label::SPAN_END, text, Some(number))?;
        }
        Ok(())
    }

    /// Ends what is left, except slices whose ends aren't in the file.
    pub fn finish<W: Write>(&mut self, out: &mut Output<W>, texts: &[Vec<u8>]) -> io::Result<()> {
        self.end_until(u64::MAX, texts, out)
    }
}
