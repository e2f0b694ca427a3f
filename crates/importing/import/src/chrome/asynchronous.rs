//! Asynchronous operations: begins and ends with an id, which may be of different threads.
//!
//! Events of one id follow each other by time, then by their order in the file. An end belongs to
//! the innermost open begin of its name, as in Chrome's trace viewer and in Perfetto; one without
//! a name to the innermost open begin. A pair is a span of the thread on which it began.

use std::io;

use rustc_hash::FxHashMap;

use super::scan::{self, Event};
use super::spool::{Kind, Record, Spool};

/// No pair: the other half of the span isn't in the file.
pub(super) const ALONE: u32 = u32::MAX;

/// Ids in the file, and whose they are.
#[derive(Default)]
pub(super) struct Ids {
    groups: FxHashMap<Vec<u8>, u32>,
    /// By number of the group: whether an id can only be begun once (`S` and `F`).
    are_single: Vec<bool>,
    texts: FxHashMap<Vec<u8>, u64>,
}

impl Ids {
    /// The group and the number of an event's id: events of one operation have both in common.
    pub fn of(&mut self, event: &Event<'_>) -> (u32, u64) {
        let text = scan::text(event.id);
        let digits = |digits: &[u8], radix| {
            let are_digits = digits.iter().all(u8::is_ascii_hexdigit);
            let digits = str::from_utf8(digits).ok().filter(|_| are_digits)?;
            u64::from_str_radix(digits, radix).ok()
        };
        let hex = text.strip_prefix(b"0x").and_then(|text| digits(text, 16));
        let (form, number) = match (hex, digits(&text, 10)) {
            (Some(number), _) => (b'x', number),
            (None, Some(number)) => (b'd', number),
            (None, None) => {
                let next = self.texts.len() as u64;
                (b't', *self.texts.entry(text).or_insert(next))
            }
        };
        // `S` and `F` are matched by name and id, `b` and `e` by category and id.
        let is_single = matches!(event.phase, b'S' | b'F');
        let kind = if is_single { event.name } else { event.category };
        let process = if event.is_id_local { event.pid } else { b"" };
        let mut key = vec![form, u8::from(is_single)];
        for part in [kind, event.scope, process] {
            key.extend((part.len() as u64).to_le_bytes());
            key.extend(part);
        }
        let next = self.are_single.len() as u32;
        let group = *self.groups.entry(key).or_insert(next);
        if group == next {
            self.are_single.push(is_single);
        }
        (group, number)
    }

    /// Adds the spans of these events to those of threads. Returns the number of begins that were
    /// left out.
    pub fn pair(&self, events: &mut Spool, spans: &mut Spool) -> io::Result<u64> {
        let mut left_out = 0;
        let mut pairs = 0_u32;
        let mut open: Vec<Record> = Vec::new();
        let mut sorted = events.sorted()?;
        let mut current = None;
        while let Some(event) = sorted.next_record()? {
            if current != Some((event.group, event.value)) {
                current = Some((event.group, event.value));
                open.drain(..).try_for_each(|begin| spans.add(Record { group: ALONE, ..begin }))?;
            }
            if event.kind == Kind::SpanBegin {
                let is_single = self.are_single.get(event.group as usize).is_some_and(|single| *single);
                if is_single && !open.is_empty() {
                    left_out += 1;
                } else {
                    open.push(event);
                }
                continue;
            }
            // Name 0 is none.
            let fits = |begin: &Record| event.name == 0 || begin.name == 0 || begin.name == event.name;
            let Some(place) = open.iter().rev().take(SEARCHED).position(fits) else {
                spans.add(Record { group: ALONE, ..event })?;
                continue;
            };
            let begin = open.remove(open.len() - 1 - place);
            if begin.ns == event.ns {
                spans.add(Record { kind: Kind::SpanWhole, ..begin })?;
                continue;
            }
            spans.add(Record { group: pairs, ..begin })?;
            spans.add(Record { kind: Kind::SpanEnd, ns: event.ns, group: pairs, ..begin })?;
            pairs = if pairs + 1 == ALONE { 0 } else { pairs + 1 };
        }
        open.drain(..).try_for_each(|begin| spans.add(Record { group: ALONE, ..begin }))?;
        Ok(left_out)
    }
}

/// Open begins among which that of an end is looked for.
pub(super) const SEARCHED: usize = 4096;
