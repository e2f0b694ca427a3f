//! Tables and trees of the calls in a range: the numbers of `everycall report`.

use std::sync::Arc;

use everycall_analysis::{Function, Grouping, Profile};
use everycall_answers::{Comparison, Flame, Position, Report, Scope, Side, Tree};
use everycall_export::{CallAt, Filter};

use super::Answered;
use super::place::cell_at;
use crate::file::{SharedFunctions, lock, place_of_track};
use crate::library::{Library, OpenFile};

/// The calls of a file that an answer covers.
#[derive(Clone, Debug, Default)]
pub(super) struct Range {
    pub from: Option<u64>,
    pub to: Option<u64>,
    pub tracks: Option<Vec<u32>>,
    /// One call and what it called: its track, begin and depth.
    pub call: Option<(u32, CallAt)>,
}

impl Range {
    pub fn of(library: &Library, scope: &Scope) -> Answered<Range> {
        let Scope { from, to, tracks, call } = scope.clone();
        match call {
            Some(call) => Range::of_call(library, call),
            None => Ok(Range { from, to, tracks, call: None }),
        }
    }

    fn of_call(library: &Library, call: Position) -> Answered<Range> {
        let (_, _, cell) = cell_at(library, call)?;
        let at = CallAt { start_ns: cell.from, depth: call.depth as u32 };
        Ok(Range { call: Some((call.track, at)), ..Range::default() })
    }

    /// Whether all calls are covered.
    pub fn is_whole(&self) -> bool {
        self.from.is_none_or(|from| from == 0)
            && self.to.is_none()
            && self.tracks.is_none()
            && self.call.is_none()
    }

    /// The filter of `report` that shows the same; `None` if no thread of the file is covered.
    pub fn filter(&self, open: &OpenFile) -> Option<Filter> {
        let mut filter = open.file.filter.clone();
        filter.since_ns = self.from.max(filter.since_ns);
        filter.until_ns = self.to.into_iter().chain(filter.until_ns).min();
        let only = self.call.map(|(track, _)| vec![track]);
        filter.call = self.call.map(|(_, call)| call);
        if let Some(tracks) = only.as_ref().or(self.tracks.as_ref()) {
            let threads = tracks.iter().map(|id| place_of_track(*id));
            let threads = threads.filter(|(file, _)| *file == open.file.index);
            let threads: Vec<_> = threads.filter_map(|(_, thread)| open.file.threads.get(thread)).collect();
            if threads.is_empty() {
                return None;
            }
            filter.tids = threads.iter().map(|thread| thread.tid).collect();
            filter.pids = threads.iter().map(|thread| thread.pid).collect();
        }
        Some(filter)
    }
}

/// The sums of a range of all files.
pub(super) fn profile(library: &Library, range: &Range, by: Grouping) -> Answered<Profile> {
    let mut sum = Profile::by(by.clone());
    let files = library.files()?;
    let is_one = files.len() == 1;
    for open in &files {
        let Some(filter) = range.filter(open) else { continue };
        let grouping = by.clone();
        let empty = if is_one { Profile::by(by.clone()) } else { std::mem::take(&mut sum) };
        let added = open.long.ask(move |context| {
            let mut profile = if is_one { Profile::by(grouping) } else { empty };
            profile.add_trace(context.view, &filter);
            profile
        })?;
        sum = added;
    }
    Ok(sum)
}

/// The sums of all calls of a file by function, made once.
pub(super) fn whole(open: &Arc<OpenFile>) -> Answered<Arc<Profile>> {
    let mut whole = lock(&open.whole);
    if let Some(profile) = whole.as_ref() {
        return Ok(Arc::clone(profile));
    }
    let profile = open.long.ask(|context| {
        let mut profile = Profile::by(Grouping::Function);
        profile.add_trace(context.view, &context.file.filter);
        profile
    })?;
    Ok(Arc::clone(whole.insert(Arc::new(profile))))
}

/// The number that the page knows a function by.
pub(super) fn number(functions: &SharedFunctions, profile: &Profile, of: u32) -> Option<u32> {
    let function = profile.functions().get(of)?;
    Some(lock(functions).number(function))
}

/// The sums of a scope.
///
/// # Errors
///
/// A sentence why they aren't known.
pub fn report(library: &Library, scope: &Scope, by: Grouping, limit: usize) -> Answered<Report> {
    let profile = profile(library, &Range::of(library, scope)?, by)?;
    let mut functions = lock(&library.functions);
    Ok(Report::new(profile, limit, &mut |function| functions.number(function)))
}

/// The calls of a scope by path.
///
/// # Errors
///
/// A sentence why they aren't known.
pub fn flame(library: &Library, scope: &Scope) -> Answered<Flame> {
    let profile = profile(library, &Range::of(library, scope)?, Grouping::Path)?;
    let mut functions = lock(&library.functions);
    Ok(Flame::of(&profile, &mut |function| functions.number(function)))
}

/// The calls of a scope by path, all of them.
///
/// # Errors
///
/// A sentence why they aren't known.
pub fn tree(library: &Library, scope: &Scope) -> Answered<Tree> {
    let profile = profile(library, &Range::of(library, scope)?, Grouping::Path)?;
    let mut functions = lock(&library.functions);
    Ok(Tree::of(&profile, &mut |function| functions.number(function)))
}

fn side(library: &Library, side: &Side) -> Answered<(Arc<OpenFile>, Range)> {
    match side {
        Side::Call(call) => Ok((library.track(call.track)?.0, Range::of_call(library, *call)?)),
        Side::Range(file, scope) => {
            let open = library.files()?.get(*file).cloned();
            Ok((open.ok_or_else(|| format!("there is no file {file}"))?, Range::of(library, scope)?))
        }
    }
}

/// Compares two scopes.
///
/// # Errors
///
/// A sentence why that can't be done.
pub fn compare(library: &Library, a: &Side, b: &Side) -> Answered<Comparison> {
    let (mut trees, mut tables) = (Vec::new(), Vec::new());
    for of in [a, b] {
        let (open, range) = side(library, of)?;
        let filter = range.filter(&open).ok_or("no track of the file is meant")?;
        let (tree, table) = open.long.ask(move |context| {
            let profile = |by| {
                let mut profile = Profile::by(by);
                profile.add_trace(context.view, &filter);
                profile
            };
            (profile(Grouping::Path), profile(Grouping::Function))
        })?;
        trees.push(tree);
        tables.push(table);
    }
    let (Some([one, other]), Some([first, second])) = (trees.first_chunk(), tables.first_chunk()) else {
        return Err("there is nothing to compare".to_owned());
    };
    let mut functions = lock(&library.functions);
    let number = &mut |function: &Function| functions.number(function);
    Ok(Comparison::of([one, other], [first, second], number))
}
