//! Calls and marks by name: search, where its hits are, and the next one.

use std::collections::BTreeMap;

use everycall_analysis::{Key, Order};
use everycall_answers::{Place, Sought};
use regex::{Regex, RegexBuilder};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Answered;
use super::draw::text;
use super::sums::{number, whole};
use crate::cell::{Cell, SEVERAL};
use crate::file::lock;
use crate::library::Library;

/// Functions that a search finds.
const FUNCTIONS_MAX: usize = 1000;
/// Marks that a search looks at in each track.
const MARKS_MAX: usize = 1 << 17;

/// The functions and marks that a search matches.
struct Meant {
    /// By number of the function.
    functions: Vec<bool>,
    /// For labels, log lines and other marks.
    pattern: Option<Regex>,
}

impl Meant {
    fn of(library: &Library, sought: &Sought) -> Answered<Meant> {
        let functions = lock(&library.functions);
        let text = match sought {
            Sought::Function(number) => {
                let functions = (0..functions.len()).map(|of| of == *number as usize).collect();
                return Ok(Meant { functions, pattern: None });
            }
            Sought::Text(text) => text,
        };
        let pattern = pattern(text)?;
        let is_meant = |named: &crate::functions::Named| {
            pattern.is_match(&named.name) || pattern.is_match(&named.identity.name)
        };
        Ok(Meant { functions: functions.all().iter().map(is_meant).collect(), pattern: Some(pattern) })
    }

    fn has(&self, cell: &Cell) -> bool {
        cell.function != SEVERAL && self.functions.get(cell.function as usize) == Some(&true)
    }

    /// Passes the matching cells of all tracks: track, depth, cell.
    fn each(
        &self,
        library: &Library,
        from: u64,
        to: u64,
        mut each: impl FnMut(u32, usize, Cell),
    ) -> Answered<()> {
        for open in library.files()? {
            for thread in 0..open.file.threads.len() {
                let Some(track) = open.file.track(thread) else { continue };
                let id = open.file.track_id(thread);
                track.levels.cells(track.levels.lowest(), from, to, &mut |depth, cell| {
                    if self.has(&cell) {
                        each(id, depth, cell);
                    }
                });
            }
        }
        Ok(())
    }

    /// The matching marks.
    fn marks(&self, library: &Library) -> Answered<Vec<Hit>> {
        let Some(pattern) = &self.pattern else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for open in library.files()? {
            let pattern = pattern.clone();
            all.extend(open.quick.ask(move |context| {
                let mut found = Vec::new();
                for thread in 0..context.file.threads.len() {
                    let items =
                        context.file.track(thread).map(|track| track.marks.within(0, u64::MAX, usize::MAX));
                    for item in items.unwrap_or_default().iter().take(MARKS_MAX) {
                        let text = text(context, item);
                        if pattern.is_match(&text) {
                            let track = context.file.track_id(thread);
                            let place = (item.at, track, None, item.to);
                            found.push(Hit::of(place, None, Some(text)));
                        }
                    }
                }
                found
            })?);
        }
        Ok(all)
    }
}

/// A call or mark: in the order of time, then of tracks, then of depth; marks come before calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Hit {
    /// Begin, in nanoseconds since the trace's.
    pub from: u64,
    /// Its track.
    pub track: u32,
    /// Number of enclosing calls; `None` for a mark.
    pub depth: Option<usize>,
    /// End.
    pub to: u64,
    /// The function of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<u32>,
    /// The text of a mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Hit {
    fn of(
        (from, track, depth, to): (u64, u32, Option<usize>, u64),
        function: Option<u32>,
        text: Option<String>,
    ) -> Hit {
        Hit { from, track, depth, to, function, text }
    }

    fn of_call(track: u32, depth: usize, cell: &Cell) -> Hit {
        Hit::of((cell.from, track, Some(depth), cell.to()), Some(cell.function), None)
    }

    /// Where it is drawn.
    #[must_use]
    pub fn place(&self) -> Place {
        let Hit { track, from, to, depth, .. } = *self;
        Place { track, from, to, depth: depth.unwrap_or(0) }
    }
}

/// A pattern as the page takes it: a part of a name, or `/REGEX/`.
fn pattern(text: &str) -> Answered<Regex> {
    let expression = text.strip_prefix('/').and_then(|text| text.strip_suffix('/'));
    let (expression, is_exact) = match expression {
        Some(expression) => (expression.to_owned(), true),
        None => (regex::escape(text), false),
    };
    let built = RegexBuilder::new(&expression).case_insensitive(!is_exact).build();
    built.map_err(|error| {
        let error = error.to_string();
        let what = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("this is no regular expression: {what}")
    })
}

/// A function that a search finds, with its calls.
#[derive(Clone, Debug, Serialize)]
pub struct FoundFunction {
    /// Its number.
    pub id: u32,
    /// Its calls.
    pub calls: u64,
    /// Their time.
    pub total_ns: u64,
    /// All of its calls, if they were counted.
    pub all_calls: Option<u64>,
}

/// The result of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Search {
    /// Functions, those with the most time first.
    pub functions: Vec<FoundFunction>,
    /// How many functions there are.
    pub all_functions: usize,
    /// The first hits.
    pub hits: Vec<Hit>,
    /// How many there are.
    pub total: u64,
}

/// Searches functions and marks by name.
///
/// # Errors
///
/// A sentence why that can't be done.
pub fn search(library: &Library, sought: &Sought, limit: usize) -> Answered<Search> {
    let meant = Meant::of(library, sought)?;
    let limit = limit.clamp(1, 100_000);
    // Calls, times and all calls by function.
    let mut sums: FxHashMap<u32, (u64, u64, u64)> = FxHashMap::default();
    for open in library.files()? {
        let profile = whole(&open)?;
        for row in profile.rows_of_all_calls(Order::Calls) {
            if let Key::Function(function) = row.key
                && let Some(number) = number(&library.functions, &profile, *function)
            {
                let sum = sums.entry(number).or_default();
                sum.0 += row.sums.calls;
                sum.1 = sum.1.saturating_add(row.sums.total_ns);
                sum.2 = sum.2.saturating_add(row.sums.all_calls);
            }
        }
    }
    let numbers = meant.functions.iter().zip(0_u32..).filter(|(is_meant, _)| **is_meant);
    let mut found: Vec<_> =
        numbers.map(|(_, number)| (number, sums.get(&number).copied().unwrap_or_default())).collect();
    found.sort_by_key(|(number, (calls, total_ns, all))| {
        (std::cmp::Reverse((*total_ns, *calls, *all)), *number)
    });
    let marks = meant.marks(library)?;
    let total = found.iter().map(|(_, (calls, ..))| calls).sum::<u64>() + marks.len() as u64;
    let mut hits = marks;
    meant.each(library, 0, u64::MAX, |track, depth, cell| {
        hits.push(Hit::of_call(track, depth, &cell));
        if hits.len() >= 4 * limit.max(1000) {
            hits.sort_unstable();
            hits.truncate(limit);
        }
    })?;
    hits.sort_unstable();
    hits.truncate(limit);
    let function = |(id, (calls, total_ns, all)): &(u32, (u64, u64, u64))| FoundFunction {
        id: *id,
        calls: *calls,
        total_ns: *total_ns,
        all_calls: Some(*all).filter(|all| *all > 0),
    };
    let functions = found.iter().take(FUNCTIONS_MAX).map(function).collect();
    Ok(Search { functions, all_functions: found.len(), hits, total })
}

/// Where calls and marks are.
#[derive(Clone, Debug, Serialize)]
pub struct Hits {
    /// By track: begin, end, and how many there are, merged to pixels.
    pub tracks: BTreeMap<u32, Vec<(u64, u64, u64)>>,
    /// How many there are.
    pub total: u64,
}

/// Where the hits of a search are in a window.
///
/// # Errors
///
/// A sentence why that isn't known.
pub fn hits(
    library: &Library,
    sought: &Sought,
    wanted: &[u32],
    (from, to, pixels): (u64, u64, u64),
) -> Answered<Hits> {
    let meant = Meant::of(library, sought)?;
    let pixel = (to.saturating_sub(from) / pixels).max(1);
    // By track and pixel: begin, end, hits.
    let mut found: BTreeMap<u32, BTreeMap<u64, (u64, u64, u64)>> = BTreeMap::new();
    let mut total = 0;
    let mut add = |track: u32, begin: u64, end: u64, count: u64| {
        if !wanted.contains(&track) {
            return;
        }
        total += count;
        let here = found.entry(track).or_default().entry(begin.max(from) / pixel).or_insert((begin, end, 0));
        *here = (here.0.min(begin), here.1.max(end), here.2 + count);
    };
    meant
        .each(library, from, to, |track, _, cell| add(track, cell.from, cell.to(), u64::from(cell.count)))?;
    for mark in meant.marks(library)?.iter().filter(|mark| mark.to >= from && mark.from <= to) {
        add(mark.track, mark.from, mark.to, 1);
    }
    let rows = |(track, rows): (u32, BTreeMap<_, _>)| (track, rows.into_values().collect());
    Ok(Hits { tracks: found.into_iter().map(rows).collect(), total })
}

/// A hit of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Next {
    /// The hit; `None` if there is none at all.
    pub hit: Option<Hit>,
    /// Its number, from 1.
    pub index: u64,
    /// How many there are.
    pub total: u64,
}

/// The hit behind or before another one, given by begin, track and depth; after the last one comes
/// the first. `wanted`: the tracks; `None` for all.
///
/// # Errors
///
/// A sentence why it isn't known.
pub fn next(
    library: &Library,
    sought: &Sought,
    cursor: Option<(u64, u32, Option<usize>)>,
    is_forward: bool,
    wanted: Option<&[u32]>,
) -> Answered<Next> {
    let meant = Meant::of(library, sought)?;
    // The first and last of all, and those on both sides of the cursor.
    let (mut first, mut last, mut before, mut behind): (Option<Hit>, Option<Hit>, Option<Hit>, Option<Hit>) =
        (None, None, None, None);
    let (mut total, mut earlier, mut is_there) = (0_u64, 0_u64, false);
    let mut look = |hit: Hit| {
        if wanted.as_ref().is_some_and(|tracks| !tracks.contains(&hit.track)) {
            return;
        }
        total += 1;
        let key = (hit.from, hit.track, hit.depth);
        let less = |of: &Option<Hit>| of.as_ref().is_none_or(|of| hit < *of);
        let more = |of: &Option<Hit>| of.as_ref().is_none_or(|of| hit > *of);
        if less(&first) {
            first = Some(hit.clone());
        }
        if more(&last) {
            last = Some(hit.clone());
        }
        match cursor {
            Some(cursor) if key < cursor => {
                earlier += 1;
                if more(&before) {
                    before = Some(hit);
                }
            }
            Some(cursor) if key > cursor && less(&behind) => behind = Some(hit),
            Some(cursor) => is_there |= key == cursor,
            None => {}
        }
    };
    meant.each(library, 0, u64::MAX, |track, depth, cell| look(Hit::of_call(track, depth, &cell)))?;
    meant.marks(library)?.into_iter().for_each(look);
    // Numbers from 1.
    let (hit, index) = match (cursor.is_some(), is_forward) {
        (false, _) => (first, 1),
        (true, true) if behind.is_some() => (behind, earlier + u64::from(is_there) + 1),
        (true, true) => (first, 1),
        (true, false) if before.is_some() => (before, earlier),
        (true, false) => (last, total),
    };
    Ok(Next { index: if hit.is_some() { index } else { 0 }, hit, total })
}

/// The calls of some tracks that begin in a range.
#[derive(Clone, Debug, Serialize)]
pub struct Calls {
    /// The first of them.
    pub rows: Vec<Hit>,
    /// How many there are.
    pub total: u64,
}

/// The calls that begin in a range, by time.
///
/// # Errors
///
/// A sentence why they aren't known.
pub fn listed(library: &Library, tracks: &[u32], (from, to): (u64, u64), limit: usize) -> Answered<Calls> {
    let limit = limit.clamp(1, 10_000);
    let mut rows: Vec<Hit> = Vec::new();
    let mut total = 0_u64;
    for id in tracks {
        let (open, thread) = library.track(*id)?;
        let Some(track) = open.file.track(thread) else { continue };
        track.levels.cells(track.levels.lowest(), from, to, &mut |depth, cell| {
            if cell.from < from {
                return;
            }
            total += u64::from(cell.count);
            if cell.count == 1 {
                rows.push(Hit::of_call(*id, depth, &cell));
            }
            if rows.len() >= 8 * limit.max(1000) {
                rows.sort_unstable();
                rows.truncate(limit);
            }
        });
    }
    rows.sort_unstable();
    rows.truncate(limit);
    Ok(Calls { rows, total })
}
