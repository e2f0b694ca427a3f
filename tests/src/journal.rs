//! A program's own account of its calls (`tests/oracle/journal.h`), and its comparison with a
//! trace.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::Path;

use everycall_reader::TraceFile;
use everycall_timeline::{EndKind, ThreadInfo, TimelineEvent, Trace};

use crate::workloads::FunctionTable;

/// Bytes before the first thread.
const HEADER: usize = 4096;
/// Numbers before a thread's events.
const THREAD_HEADER: usize = 8;
/// Events stored of each thread.
pub const EVENTS: usize = 1 << 18;

/// A thread's own journal: its newest events.
#[derive(Clone, Debug)]
pub struct Account {
    /// Kernel thread id.
    pub tid: u32,
    /// Events ever.
    pub count: u64,
    /// The newest of them, oldest first: an address in the program's file, and whether it is an
    /// exit.
    pub events: Vec<(u64, bool)>,
}

/// The contents of a file; nothing if the program died before it made the file.
///
/// # Panics
/// Where the file isn't a journal.
#[must_use]
pub fn read(path: &Path) -> Vec<Account> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let number = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().expect("eight bytes"));
    if bytes.len() < HEADER {
        return Vec::new();
    }
    let (base, threads) = (number(0), number(1));
    let account = |thread: u64| {
        let at = HEADER / 8 + thread as usize * (THREAD_HEADER + EVENTS);
        let count = number(at + 1);
        // The oldest one may have been written over, and not been counted yet.
        let newest = count.saturating_sub(EVENTS as u64 - 1)..count;
        let event = |index: u64| number(at + THREAD_HEADER + index as usize % EVENTS);
        let events = newest.map(event).map(|event| ((event >> 1) - base, event & 1 == 1)).collect();
        Account { tid: number(at) as u32, count, events }
    };
    (0..threads).map(account).collect()
}

/// How a thread's end in a trace differs from its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The trace has the entry of a function that is not in the account yet.
    OneMore,
    /// Both end with the same event.
    Same,
    /// The account has the exit of a function, and the exit's event is missing.
    OneLess,
}

/// A thread of a trace equals its own account, as far as that goes.
#[derive(Clone, Copy, Debug)]
pub struct Agreement {
    /// How they end.
    pub edge: Edge,
    /// Events in the trace that are in the account.
    pub compared: usize,
}

/// Compares each thread of the trace in `file` with its account: event by event, from the newest
/// one back to where the ring begins. Functions that aren't `kept` in the journal are left out.
/// `ring` is the least number of events in a full ring; `None`: no event may be missing.
///
/// # Errors
/// The first difference, as a sentence.
pub fn compare(
    file: &Path,
    program: &Path,
    accounts: &[Account],
    ring: Option<u64>,
    kept: impl Fn(&str) -> bool,
) -> Result<Vec<Agreement>, String> {
    let table = FunctionTable::read(program);
    let opened = File::open(file).map_err(|error| error.to_string())?;
    let opened = TraceFile::open(opened).map_err(|error| error.to_string())?;
    let trace = Trace::open(opened).map_err(|error| error.to_string())?;
    let warnings: Vec<String> = trace.warnings().iter().map(ToString::to_string).collect();
    if !warnings.is_empty() {
        return Err(format!("{warnings:?}"));
    }
    let by_tid: BTreeMap<u32, &ThreadInfo> = trace.threads().iter().map(|info| (info.tid, info)).collect();
    let mut agreements = Vec::new();
    for account in accounts.iter().filter(|account| account.count > 0) {
        let Some(info) = by_tid.get(&account.tid) else {
            return Err(format!("thread {} isn't there, of {} events", account.tid, account.count));
        };
        let found = newest_events(&trace, info, &table, &kept)?;
        let known: Vec<(&str, bool)> = account
            .events
            .iter()
            .map(|(address, is_exit)| (table.at(*address).unwrap_or("?"), *is_exit))
            .filter(|(name, _)| kept(name))
            .collect();
        let agreement = agree(&found, &known)
            .ok_or_else(|| format!("thread {}: {}", account.tid, difference(&found, &known)))?;
        if info.losses > 1 || info.segments_lost > 0 || info.malformed_words > 0 {
            return Err(format!("thread {}: {info:?}", account.tid));
        }
        let is_whole = match ring {
            Some(ring) if info.segments_overwritten > 0 => info.events >= ring,
            _ => found.len() as u64 + 1 >= known.len() as u64,
        };
        if !is_whole {
            let (there, all) = (found.len(), account.count);
            return Err(format!("thread {}: {there} events are there of {all}: {info:?}", account.tid));
        }
        agreements.push(agreement);
    }
    Ok(agreements)
}

/// The newest entries and exits of a thread, by name, in the order of time.
fn newest_events<'t>(
    trace: &Trace<'_>,
    info: &ThreadInfo,
    table: &'t FunctionTable,
    kept: &impl Fn(&str) -> bool,
) -> Result<Vec<(&'t str, bool)>, String> {
    let mut events: VecDeque<(&str, bool)> = VecDeque::new();
    let mut add = |address: u64, is_exit: bool| {
        let name = table.at(address).ok_or_else(|| format!("{address:#x} lies in no function"))?;
        if kept(name) {
            if events.len() == EVENTS {
                events.pop_front();
            }
            events.push_back((name, is_exit));
        }
        Ok::<(), String>(())
    };
    let (since, _) = info.reach.unwrap_or_default();
    for event in trace.thread_events(info.index) {
        match event {
            // Calls that are open at the end are known by the thread's stack of them too, from
            // before the ring's events.
            TimelineEvent::Begin(begin) if !begin.cut && begin.start_ns >= since => {
                add(begin.location.image_address, false)?
            }
            TimelineEvent::End(end) if end.how == EndKind::Returned => add(end.location.image_address, true)?,
            TimelineEvent::Begin(_) => {}
            TimelineEvent::End(end) if end.how == EndKind::TruncatedAtEnd => {}
            // One event may be missing; anything else that isn't a call is an error.
            TimelineEvent::Loss(loss) if loss.count == Some(1) => {}
            other => return Err(format!("thread {}: {other:?}", info.tid)),
        }
    }
    Ok(events.into())
}

/// Compares from the end backwards, as far as both go.
fn agree(found: &[(&str, bool)], known: &[(&str, bool)]) -> Option<Agreement> {
    let is_suffix =
        |a: &[(&str, bool)], b: &[(&str, bool)]| a.iter().rev().zip(b.iter().rev()).all(|(a, b)| a == b);
    let agreement =
        |edge, found: &[_], known: &[_]| Some(Agreement { edge, compared: found.len().min(known.len()) });
    if is_suffix(found, known) {
        return agreement(Edge::Same, found, known);
    }
    if let [before @ .., (_, false)] = found
        && is_suffix(before, known)
    {
        return agreement(Edge::OneMore, before, known);
    }
    if let [before @ .., (_, true)] = known
        && is_suffix(found, before)
    {
        return agreement(Edge::OneLess, found, before);
    }
    None
}

/// Where they part, counted from the end, in the order that agrees longest.
fn difference(found: &[(&str, bool)], known: &[(&str, bool)]) -> String {
    let less = |events: &'_ [_]| events.len().saturating_sub(1);
    let same = |found: &[(&str, bool)], known: &[(&str, bool)]| {
        found.iter().rev().zip(known.iter().rev()).take_while(|(a, b)| a == b).count()
    };
    let orders = [(found, known), (&found[..less(found)], known), (found, &known[..less(known)])];
    let (count, (found, known)) = orders
        .map(|(found, known)| (same(found, known), (found, known)))
        .into_iter()
        .max_by_key(|(count, _)| *count)
        .unwrap_or_default();
    let around = |events: &[(&str, bool)]| {
        let behind = events.len() - count;
        let shown = events[behind.saturating_sub(4)..behind + count.min(4)].iter();
        let shown = shown.map(|(name, is_exit)| format!("{}{name}", if *is_exit { "-" } else { "+" }));
        shown.collect::<Vec<_>>().join(" ")
    };
    format!(
        "{count} events at the end agree of {} and {}; before, the trace has {}, the account {}",
        found.len(),
        known.len(),
        around(found),
        around(known)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: [(&str, bool); 6] =
        [("main", false), ("f", false), ("g", false), ("g", true), ("f", true), ("g", false)];

    #[test]
    fn one_event_at_the_edge_and_no_more() {
        let edge = |found: &[(&str, bool)], known: &[(&str, bool)]| {
            agree(found, known).map(|agreement| (agreement.edge, agreement.compared))
        };
        assert_eq!(edge(&CALLS, &CALLS), Some((Edge::Same, 6)));
        assert_eq!(edge(&CALLS[2..], &CALLS), Some((Edge::Same, 4)));
        assert_eq!(edge(&CALLS, &CALLS[..5]), Some((Edge::OneMore, 5)));
        assert_eq!(edge(&CALLS[..4], &CALLS[..5]), Some((Edge::OneLess, 4)));
        // The account of an entry is written behind its event, that of an exit before it.
        assert_eq!(edge(&CALLS[..5], &CALLS[..4]), None);
        assert_eq!(edge(&CALLS[..5], &CALLS), None);
        // Two are missing, or one in the middle.
        assert_eq!(edge(&CALLS[..3], &CALLS[..5]), None);
        assert_eq!(edge(&[CALLS[1], CALLS[2], CALLS[4]], &CALLS[..5]), None);
    }
}
