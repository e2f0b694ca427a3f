//! Answers of a page that has its data in itself, and no server.
//!
//! ```text
//! data     its parts
//! head     what the page's data says in JSON
//! slices   the calls of a track, from columns
//! source   the page as a source of calls for profiles
//! call     one call of it
//! wasm     what the page's script calls
//! ```
//!
//! `docs/design/viewer.md` has the form of the data.

mod call;
mod data;
mod head;
mod slices;
mod source;
#[cfg(target_family = "wasm")]
mod wasm;

use everycall_profile::{
    CallPlace, Edges, Explanation, Focus, Function, Grouping, Key, Order, Profile, Slowest,
};
use serde::Serialize;

use crate::query::Query;
use crate::scope::{Place, Scope, Side};
use crate::sums::{Comparison, Flame, Report};
use crate::{Answered, Explained, ExplainedTimes, Instances, NOT_TIMED, Slow, bits, callers, listed_callers};
pub use data::Page;
pub use head::BEGIN;
use slices::Track;
pub use slices::{MAYBE_TAIL, PlaceKind, WITHOUT_CALL};
use source::Range;

/// The sums of a function: its number, its calls, their time, and all of its calls, if they were
/// counted.
type FunctionSums = (u32, u64, u64, Option<u64>);

impl Page {
    /// The answer to a request, in JSON. `None`: there is no such answer here.
    ///
    /// # Errors
    ///
    /// A sentence why there is none.
    pub fn answer(&self, path: &str, query: &str) -> Option<Answered<String>> {
        let query = Query::parse(query);
        Some(match path {
            "report" => json(query.scope().and_then(|scope| {
                let limit = query.index("limit", usize::MAX)?;
                self.report(&scope, query.grouping()?, limit)
            })),
            "flame" => json(query.scope().and_then(|scope| {
                let profile = self.profile(&self.range(&scope)?, Grouping::Path);
                Ok(Flame::of(&profile, &mut number))
            })),
            "compare" => json((|| self.compare(&query.side("a")?, &query.side("b")?))()),
            "instances" => {
                json((|| self.instances(query.function()?, &query.scope()?, query.index("limit", 100)?))())
            }
            "explain" => json(query.position().and_then(|position| self.explain(position))),
            "slice" => json(query.position().and_then(|position| self.details(position))),
            "callers" => json(query.function().map(|function| self.callers(function))),
            "sums" => json(Ok(self.sums())),
            _ => return None,
        })
    }

    fn range(&self, scope: &Scope) -> Answered<Range> {
        let Scope { from, to, tracks, call } = scope;
        let Some(call) = call else {
            let (from, to) = (from.unwrap_or(0), to.unwrap_or(u64::MAX));
            return Ok(Range { from, to, tracks: tracks.clone(), call: None });
        };
        let found = self.found(*call)?;
        Ok(Range { call: Some((call.track, found.position)), ..Range::default() })
    }

    fn profile(&self, range: &Range, by: Grouping) -> Profile {
        let mut profile = Profile::by(by);
        profile.add_trace(self, range);
        profile
    }

    fn whole(&self) -> &Profile {
        self.whole.get_or_init(|| self.profile(&Range::default(), Grouping::Function))
    }

    fn report(&self, scope: &Scope, by: Grouping, limit: usize) -> Answered<Report> {
        Ok(Report::new(self.profile(&self.range(scope)?, by), limit, &mut number))
    }

    fn side(&self, side: &Side) -> Answered<Range> {
        match side {
            Side::Call(call) => self.range(&Scope { call: Some(*call), ..Scope::default() }),
            Side::Range(0, scope) => self.range(scope),
            Side::Range(file, _) => Err(format!("there is no file {file}")),
        }
    }

    fn compare(&self, a: &Side, b: &Side) -> Answered<Comparison> {
        let (a, b) = (self.side(a)?, self.side(b)?);
        let of = |by: Grouping| [self.profile(&a, by.clone()), self.profile(&b, by)];
        let (trees, tables) = (of(Grouping::Path), of(Grouping::Function));
        Ok(Comparison::of([&trees[0], &trees[1]], [&tables[0], &tables[1]], &mut number))
    }

    fn sums(&self) -> Vec<FunctionSums> {
        let profile = self.whole();
        let row = |row: everycall_profile::Row<'_>| {
            let Key::Function(of) = row.key else { return None };
            let id = number(profile.functions().get(*of)?);
            Some((id, row.sums.calls, row.sums.total_ns, Some(row.sums.all_calls).filter(|all| *all > 0)))
        };
        profile.rows_of_all_calls(Order::Calls).into_iter().filter_map(row).collect()
    }

    fn instances(&self, function: u32, scope: &Scope, limit: usize) -> Answered<Instances> {
        let range = self.range(scope)?;
        let limit = limit.clamp(1, 10_000);
        let is_meant = |of: &Function| number(of) == function;
        let mut slowest = Slowest::new(Focus::new(&is_meant), limit);
        slowest.add_trace(self, &range);
        let slowest = slowest.calls().into_iter().filter_map(|call| {
            let place =
                CallPlace { pid: call.pid, tid: call.tid, depth: call.depth, start_ns: call.start_ns };
            let place = Place {
                track: self.track_of(&place)?,
                from: call.start_ns,
                to: call.end_ns,
                depth: call.depth as usize,
            };
            Some(Slow { place, own_ns: call.own_ns, uncertain: call.is_uncertain })
        });
        let slowest = slowest.collect();
        let profile = self.profile(&range, Grouping::Function);
        let rows = profile.rows_of_all_calls(Order::Calls);
        let row = rows.iter().find(|row| match row.key {
            Key::Function(of) => profile.functions().get(*of).is_some_and(is_meant),
            _ => false,
        });
        let sums = row.map(|row| row.sums.clone()).unwrap_or_default();
        Instances::of(&sums.times, (sums.calls, sums.all_calls), slowest, &mut |each| {
            self.each_call(function, &range, each);
            Ok(())
        })
    }

    /// Passes the calls of a function in a range.
    fn each_call(&self, function: u32, range: &Range, each: &mut dyn FnMut(Place)) {
        for track in self.tracks.iter().filter(|track| range.has(track.id)) {
            for slice in track.slices(&self.bytes) {
                let is_in = slice.from <= range.to && slice.to() >= range.from && !slice.is_untraced();
                if is_in && self.head.function_at(slice.place) == Some(function) {
                    each(slice.place_in(track.id));
                }
            }
        }
    }

    /// The track of a call.
    fn track_of(&self, place: &CallPlace) -> Option<u32> {
        let is_it = |track: &&Track| (track.thread.pid, track.thread.tid) == (place.pid, place.tid);
        let has = |track: &&Track| {
            track
                .slices(&self.bytes)
                .take_while(|slice| slice.from <= place.start_ns)
                .any(|slice| (slice.from, slice.depth) == (place.start_ns, place.depth))
        };
        let all: Vec<&Track> = self.tracks.iter().filter(is_it).collect();
        // A thread of a process that executed another program has several.
        let found = if all.len() > 1 { all.iter().find(|track| has(track)) } else { None };
        found.or(all.first()).map(|track| track.id)
    }

    fn explain(&self, position: crate::Position) -> Answered<Explained> {
        let found = self.found(position)?;
        let function = self.head.function_at(found.slice.place).unwrap_or(u32::MAX);
        if found.slice.bits & u64::from(bits::CUT_START | bits::CUT_END | bits::AT_MOST) != 0 {
            return Err(NOT_TIMED.to_owned());
        }
        let thread = &found.track.thread;
        let (depth, start_ns) = (found.slice.depth, found.slice.from);
        let call = CallPlace { pid: thread.pid, tid: thread.tid, depth, start_ns };
        let is_meant = |of: &Function| number(of) == function;
        let mut explanation = Explanation::new(Focus::new(&is_meant)).of_call(call).with_tails(true);
        explanation.first(self, &Range::default());
        explanation.second(self, &Range::default());
        let here = found.slice.place_in(position.track);
        Explained::of(ExplainedTimes::of(&explanation, &mut number), (function, here), &mut |each| {
            self.each_call(function, &Range::default(), each);
            Ok(())
        })
    }

    fn callers(&self, function: u32) -> Vec<crate::Caller> {
        let is_meant = |of: &Function| number(of) == function;
        let mut edges = Edges::new(Focus::new(&is_meant));
        edges.add_trace(self, &Range::default());
        listed_callers(callers(&edges, &mut number), |of| {
            let known = self.head.functions.get(of as usize);
            (known.and_then(|of| of.file.clone()), known.and_then(|of| of.line))
        })
    }
}

/// The number of a function in the page.
fn number(function: &Function) -> u32 {
    function.identity.part.and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX)
}

fn json<T: Serialize>(answer: Answered<T>) -> Answered<String> {
    serde_json::to_string(&answer?).map_err(|error| error.to_string())
}
