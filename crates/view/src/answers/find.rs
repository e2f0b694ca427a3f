//! Calls and marks by name: search, where its hits are, and the next one.

use everycall_analysis::{Key, Order};
use regex::{Regex, RegexBuilder};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::draw::{end_ns, text, tracks};
use super::sums::{number, whole};
use crate::cell::{Cell, SEVERAL};
use crate::file::lock;
use crate::library::Library;
use crate::query::{Answered, Query};

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
    fn of(library: &Library, query: &Query) -> Answered<Meant> {
        let functions = lock(&library.functions);
        if let Some(number) = query.number("function")? {
            return Ok(Meant {
                functions: (0..functions.len()).map(|of| of as u64 == number).collect(),
                pattern: None,
            });
        }
        let pattern = pattern(query.text("q").ok_or("q is missing")?)?;
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

    /// The matching marks: track, begin, end, text.
    fn marks(&self, library: &Library) -> Answered<Vec<Mark>> {
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
                            found.push(Mark { track, from: item.at, to: item.to, text });
                        }
                    }
                }
                found
            })?);
        }
        Ok(all)
    }
}

/// A mark that is found.
struct Mark {
    track: u32,
    from: u64,
    to: u64,
    text: String,
}

/// A hit: by time, then by track, then by depth; marks come before calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hit {
    from: u64,
    track: u32,
    /// Depth + 1; 0 for a mark.
    level: usize,
    to: u64,
    function: u32,
    text: String,
}

impl Hit {
    fn of_call(track: u32, depth: usize, cell: &Cell) -> Hit {
        let (from, to, function) = (cell.from, cell.to(), cell.function);
        Hit { from, track, level: depth + 1, to, function, text: String::new() }
    }

    fn of_mark(mark: Mark) -> Hit {
        let Mark { track, from, to, text } = mark;
        Hit { from, track, level: 0, to, function: SEVERAL, text }
    }

    fn json(&self) -> Value {
        let Hit { from, track, level, to, function, text } = self;
        match level.checked_sub(1) {
            Some(depth) => {
                json!({ "track": track, "from": from, "to": to, "depth": depth, "function": function })
            }
            None => json!({ "track": track, "from": from, "to": to, "depth": null, "text": text }),
        }
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

/// `search`.
pub(crate) fn search(library: &Library, query: &Query) -> Answered<Value> {
    let meant = Meant::of(library, query)?;
    let limit = query.number("limit")?.unwrap_or(1000).clamp(1, 100_000) as usize;
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
    let mut hits: Vec<Hit> = marks.into_iter().map(Hit::of_mark).collect();
    meant.each(library, 0, u64::MAX, |track, depth, cell| {
        hits.push(Hit::of_call(track, depth, &cell));
        if hits.len() >= 4 * limit.max(1000) {
            hits.sort_unstable();
            hits.truncate(limit);
        }
    })?;
    hits.sort_unstable();
    hits.truncate(limit);
    let functions = found.iter().take(FUNCTIONS_MAX);
    let functions = functions.map(|(id, (calls, total_ns, all))| {
        let all_calls = Some(all).filter(|all| **all > 0);
        json!({ "id": id, "calls": calls, "total_ns": total_ns, "all_calls": all_calls })
    });
    Ok(json!({
        "functions": functions.collect::<Vec<_>>(),
        "all_functions": found.len(),
        "hits": hits.iter().map(Hit::json).collect::<Vec<_>>(),
        "total": total,
    }))
}

/// `hits`: where calls and marks are, merged to pixels.
pub(crate) fn hits(library: &Library, query: &Query) -> Answered<Value> {
    let (from, to, pixels) = query.window(end_ns(library)?)?;
    let meant = Meant::of(library, query)?;
    let pixel = (to.saturating_sub(from) / pixels).max(1);
    let wanted = tracks(library, query)?;
    // By track and pixel: begin, end, hits.
    let mut found: FxHashMap<u32, std::collections::BTreeMap<u64, (u64, u64, u64)>> = FxHashMap::default();
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
    let rows = |(track, rows): (&u32, &std::collections::BTreeMap<u64, (u64, u64, u64)>)| {
        (
            track.to_string(),
            rows.values().map(|(from, to, count)| json!([from, to, count])).collect::<Value>(),
        )
    };
    let tracks: Map<String, Value> = found.iter().map(rows).collect();
    Ok(json!({ "tracks": tracks, "total": total }))
}

/// `next`: the hit behind or before another one.
pub(crate) fn next(library: &Library, query: &Query) -> Answered<Value> {
    let meant = Meant::of(library, query)?;
    let cursor = match query.number("from")? {
        None => None,
        Some(from) => {
            let track = query.number("track")?.unwrap_or(0) as u32;
            // A mark has no depth.
            let level = query.number("depth")?.map_or(0, |depth| depth as usize + 1);
            Some((from, track, level))
        }
    };
    let wanted = query.tracks()?;
    let is_forward = query.text("dir").is_none_or(|dir| dir != "previous");
    // The first and last of all, and those on both sides of the cursor.
    let (mut first, mut last, mut before, mut behind): (Option<Hit>, Option<Hit>, Option<Hit>, Option<Hit>) =
        (None, None, None, None);
    let (mut total, mut earlier, mut is_there) = (0_u64, 0_u64, false);
    let mut look = |hit: Hit| {
        if wanted.as_ref().is_some_and(|tracks| !tracks.contains(&hit.track)) {
            return;
        }
        total += 1;
        let key = (hit.from, hit.track, hit.level);
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
    meant.marks(library)?.into_iter().for_each(|mark| look(Hit::of_mark(mark)));
    // Numbers from 1.
    let (hit, index) = match (cursor.is_some(), is_forward) {
        (false, _) => (first, 1),
        (true, true) if behind.is_some() => (behind, earlier + u64::from(is_there) + 1),
        (true, true) => (first, 1),
        (true, false) if before.is_some() => (before, earlier),
        (true, false) => (last, total),
    };
    Ok(
        json!({ "hit": hit.as_ref().map(Hit::json), "index": if hit.is_some() { index } else { 0 }, "total": total }),
    )
}

/// `text`: the calls that begin in a range, by time.
pub(crate) fn listed(library: &Library, query: &Query) -> Answered<Value> {
    let (from, to, _) = query.window(end_ns(library)?)?;
    let limit = query.number("limit")?.unwrap_or(200).clamp(1, 10_000) as usize;
    let mut rows: Vec<Hit> = Vec::new();
    let mut total = 0_u64;
    for id in tracks(library, query)? {
        let (open, thread) = library.track(id)?;
        let Some(track) = open.file.track(thread) else { continue };
        track.levels.cells(track.levels.lowest(), from, to, &mut |depth, cell| {
            if cell.from < from {
                return;
            }
            total += u64::from(cell.count);
            if cell.count == 1 {
                rows.push(Hit::of_call(id, depth, &cell));
            }
            if rows.len() >= 8 * limit.max(1000) {
                rows.sort_unstable();
                rows.truncate(limit);
            }
        });
    }
    rows.sort_unstable();
    rows.truncate(limit);
    Ok(json!({ "rows": rows.iter().map(Hit::json).collect::<Vec<_>>(), "total": total }))
}
