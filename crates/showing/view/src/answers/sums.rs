//! Tables and trees of the calls in a range: the numbers of `everycall report`.

use std::sync::Arc;

use everycall_analysis::{Grouping, Key, Order, Profile, ROOT, Row, machine};
use everycall_export::{CallAt, Filter};
use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::Answered;
use super::place::{Position, cell_at};
use crate::file::{SharedFunctions, lock, place_of_track};
use crate::library::{Library, OpenFile};

/// Parts of a tree below this part of the whole are left out.
const PRUNED: f64 = 0.0005;
/// Levels of a tree in an answer.
const LEVELS_MAX: usize = 512;

/// The calls that sums cover: all that pass the library's filter, in a part of the time, of some
/// tracks, or one call and what it called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Begin, in nanoseconds since the trace's.
    pub from: Option<u64>,
    /// End.
    pub to: Option<u64>,
    /// The tracks.
    pub tracks: Option<Vec<u32>>,
    /// The call, instead of all others.
    pub call: Option<Position>,
}

/// One side of a comparison.
#[derive(Clone, Debug)]
pub enum Side {
    /// Calls of the file at this place among all.
    Range(usize, Scope),
    /// A call.
    Call(Position),
}

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

/// A table of sums, as `report` has it.
pub struct Report {
    /// The sums.
    pub profile: Profile,
    /// Numbers of functions by those of the profile.
    numbers: Vec<u32>,
    /// Rows that are in it.
    limit: usize,
}

impl Report {
    /// All rows, those with the most own time first.
    #[must_use]
    pub fn rows(&self) -> Vec<Row<'_>> {
        self.profile.rows_of_all_calls(Order::OwnTime)
    }

    /// The number of a function of the profile.
    #[must_use]
    pub fn number(&self, function: u32) -> Option<u32> {
        self.numbers.get(function as usize).copied()
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let mut object = machine::object(machine::key(&self.profile, row.key), row.sums);
        if let Key::Function(function) = row.key {
            object["function"] = json!(self.number(*function));
        } else {
            object["name"] = json!(row.key.shown(self.profile.functions()));
        }
        if let Key::Path(path) = row.key {
            let numbers: Vec<_> = path.iter().map(|of| self.number(*of)).collect();
            object["functions"] = json!(numbers);
        }
        object
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let rows = self.rows();
        let answer = json!({
            "calls": self.profile.calls,
            "unwound_calls": self.profile.unwound,
            "not_in_the_numbers": machine::notes(&self.profile.notes),
            "all_rows": rows.len(),
            "rows": rows.iter().take(self.limit).map(|row| self.row(row)).collect::<Vec<_>>(),
        });
        answer.serialize(to)
    }
}

/// The sums of a scope.
///
/// # Errors
///
/// A sentence why they aren't known.
pub fn report(library: &Library, scope: &Scope, by: Grouping, limit: usize) -> Answered<Report> {
    let profile = profile(library, &Range::of(library, scope)?, by)?;
    let mut functions = lock(&library.functions);
    let numbers = profile.functions().all().iter().map(|function| functions.number(function)).collect();
    Ok(Report { profile, numbers, limit })
}

/// A node of a tree in an answer.
#[derive(Clone, Debug, Default)]
struct Node {
    function: Option<u32>,
    parent: usize,
    level: usize,
    /// Total time, own time, calls; of one side, or of both.
    numbers: [[u64; 3]; 2],
}

/// The nodes of profiles by path, where equal paths share a node. Parents come first.
fn nodes(functions: &SharedFunctions, profiles: &[&Profile]) -> Vec<Node> {
    let mut nodes = vec![Node::default()];
    let mut places: FxHashMap<(usize, u32), usize> = FxHashMap::default();
    for (side, profile) in profiles.iter().enumerate() {
        let Some(tree) = profile.tree() else { continue };
        let mut place_of = vec![ROOT; tree.nodes().len()];
        for (index, node) in tree.nodes().iter().enumerate().skip(1) {
            let Some(function) = number(functions, profile, node.function) else { continue };
            let parent = place_of.get(node.parent).copied().unwrap_or(ROOT);
            let new = nodes.len();
            let place = *places.entry((parent, function)).or_insert(new);
            if place == new {
                let level = nodes.get(parent).map_or(0, |parent| parent.level) + 1;
                nodes.push(Node { function: Some(function), parent, level, ..Node::default() });
            }
            if let Some(slot) = place_of.get_mut(index) {
                *slot = place;
            }
            let sums = &node.sums;
            let numbers = [sums.total_ns, sums.own_ns, sums.calls];
            if let Some(of) = nodes.get_mut(place).and_then(|node| node.numbers.get_mut(side)) {
                of.iter_mut().zip(numbers).for_each(|(sum, more)| *sum = sum.saturating_add(more));
            }
        }
    }
    // The root has the times of the outermost calls.
    let mut root = [[0_u64; 3]; 2];
    for node in nodes.iter().skip(1).filter(|node| node.parent == ROOT) {
        for (sum, of) in root.iter_mut().zip(node.numbers) {
            sum[0] = sum[0].saturating_add(of[0]);
        }
    }
    if let Some(node) = nodes.first_mut() {
        node.numbers = root;
    }
    nodes
}

/// Sums of the nodes that a tree leaves out.
#[derive(Clone, Copy, Debug, Default)]
struct Pruned {
    nodes: usize,
    calls: u64,
    /// The time of its outermost nodes.
    ns: u64,
}

/// A node of a tree with those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Branch<T> {
    /// The node.
    #[serde(flatten)]
    pub node: T,
    /// The nodes below it.
    pub children: Vec<Branch<T>>,
}

/// The tree without small parts, and what it leaves out. `of` makes a node, with a number by
/// which those with one parent are sorted, the largest first.
fn pruned<T: Default>(nodes: &[Node], of: impl Fn(&Node) -> (T, u64)) -> (Branch<T>, Pruned) {
    let most = |node: &Node| node.numbers[0][0].max(node.numbers[1][0]);
    let least = nodes.first().map_or(0.0, |root| most(root) as f64 * PRUNED);
    let has_calls = |node: &Node| node.numbers.iter().any(|[.., calls]| *calls > 0);
    let is_shown = |node: &Node| most(node) as f64 >= least && node.level <= LEVELS_MAX && has_calls(node);
    let mut shown = vec![false; nodes.len()];
    let mut pruned = Pruned::default();
    for (index, node) in nodes.iter().enumerate() {
        let with_parent = index == ROOT || shown.get(node.parent) == Some(&true);
        let is_in = with_parent && (index == ROOT || is_shown(node));
        if !is_in && has_calls(node) {
            pruned.nodes += 1;
            pruned.calls += node.numbers[0][2] + node.numbers[1][2];
            pruned.ns = pruned.ns.saturating_add(if with_parent { most(node) } else { 0 });
        }
        if let Some(place) = shown.get_mut(index) {
            *place = is_in;
        }
    }
    let mut children: Vec<Vec<(u64, Branch<T>)>> = nodes.iter().map(|_| Vec::new()).collect();
    for (index, node) in nodes.iter().enumerate().rev() {
        if shown.get(index) != Some(&true) {
            continue;
        }
        let mut below = children.get_mut(index).map(std::mem::take).unwrap_or_default();
        below.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        let (shown, order) = of(node);
        let branch = Branch { node: shown, children: below.into_iter().map(|(_, child)| child).collect() };
        if index == ROOT {
            return (branch, pruned);
        }
        if let Some(siblings) = children.get_mut(node.parent) {
            siblings.push((order, branch));
        }
    }
    (Branch::default(), pruned)
}

/// A node of [`Flame`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlameNode {
    /// Its function; -1 for the root.
    pub function: i64,
    /// Time of its calls.
    pub total_ns: u64,
    /// Their time without that of the calls that they made.
    pub own_ns: u64,
    /// How many there are.
    pub calls: u64,
}

/// The calls by path, without those that can't be drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flame {
    /// The root.
    pub root: Branch<FlameNode>,
    /// How many calls there are.
    pub calls: u64,
    /// Nodes that are left out.
    pub pruned_nodes: usize,
    /// Their calls.
    pub pruned_calls: u64,
    /// Their time.
    pub pruned_ns: u64,
    /// Calls on further paths, of which there were too many.
    pub calls_on_further_paths: u64,
}

/// The calls of a scope by path.
///
/// # Errors
///
/// A sentence why they aren't known.
pub fn flame(library: &Library, scope: &Scope) -> Answered<Flame> {
    let profile = profile(library, &Range::of(library, scope)?, Grouping::Path)?;
    let node = |node: &Node| {
        let [total_ns, own_ns, calls] = node.numbers[0];
        (FlameNode { function: shown(node), total_ns, own_ns, calls }, total_ns)
    };
    let (root, pruned) = pruned(&nodes(&library.functions, &[&profile]), node);
    Ok(Flame {
        root,
        calls: profile.calls,
        pruned_nodes: pruned.nodes,
        pruned_calls: pruned.calls,
        pruned_ns: pruned.ns,
        calls_on_further_paths: profile.tree().map_or(0, |tree| tree.further.calls),
    })
}

/// A call path of a [`Tree`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeNode {
    /// The function that was called last; its number is that of the root, `u32::MAX`, or one of
    /// `functions`.
    pub function: u32,
    /// Index of the path without it.
    pub parent: usize,
    /// Calls.
    pub calls: u64,
    /// Their time, in nanoseconds.
    pub total_ns: u64,
    /// Their time without that of the calls that they made, in nanoseconds.
    pub own_ns: u64,
}

/// The calls by path: all of them, whereas `flame` leaves out what can't be drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The root comes first, and each path after the one that is its parent.
    pub nodes: Vec<TreeNode>,
    /// Calls on further paths, of which there were too many.
    pub further: u64,
}

/// The calls of a scope by path, all of them.
///
/// # Errors
///
/// A sentence why they aren't known.
pub fn tree(library: &Library, scope: &Scope) -> Answered<Tree> {
    let profile = profile(library, &Range::of(library, scope)?, Grouping::Path)?;
    let node = |node: &Node| {
        let [total_ns, own_ns, calls] = node.numbers[0];
        TreeNode { function: node.function.unwrap_or(u32::MAX), parent: node.parent, calls, total_ns, own_ns }
    };
    Ok(Tree {
        nodes: nodes(&library.functions, &[&profile]).iter().map(node).collect(),
        further: profile.tree().map_or(0, |tree| tree.further.calls),
    })
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

/// A function in [`Comparison`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedFunction {
    /// Its number.
    pub function: u32,
    /// Its calls.
    pub a_calls: u64,
    /// Its calls on the other side.
    pub b_calls: u64,
    /// Its own time.
    pub a_own_ns: u64,
    /// Its own time on the other side.
    pub b_own_ns: u64,
    /// Its time.
    pub a_total_ns: u64,
    /// Its time on the other side.
    pub b_total_ns: u64,
}

/// A path in [`Comparison`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComparedNode {
    /// Its last function; -1 for the root.
    pub function: i64,
    /// Its time.
    pub a_ns: u64,
    /// Its time on the other side.
    pub b_ns: u64,
    /// Its own time.
    pub a_own_ns: u64,
    /// Its own time on the other side.
    pub b_own_ns: u64,
    /// Its calls.
    pub a_calls: u64,
    /// Its calls on the other side.
    pub b_calls: u64,
}

/// All calls of a side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Time of the outermost ones.
    pub ns: u64,
    /// How many there are.
    pub calls: u64,
}

/// Two scopes side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// One side.
    pub a: Compared,
    /// The other.
    pub b: Compared,
    /// Those whose own time differs most come first.
    pub functions: Vec<ComparedFunction>,
    /// The paths of both.
    pub root: Branch<ComparedNode>,
    /// Paths that are left out.
    pub pruned_nodes: usize,
    /// Their time.
    pub pruned_ns: u64,
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
    let nodes = nodes(&library.functions, &trees.iter().collect::<Vec<_>>());
    let node = |node: &Node| {
        let [[a_ns, a_own_ns, a_calls], [b_ns, b_own_ns, b_calls]] = node.numbers;
        let function = shown(node);
        let node = ComparedNode { function, a_ns, b_ns, a_own_ns, b_own_ns, a_calls, b_calls };
        (node, a_ns.abs_diff(b_ns))
    };
    let (root, pruned) = pruned(&nodes, node);
    // By function: calls, own and total time, of both sides.
    let mut functions: FxHashMap<u32, [[u64; 3]; 2]> = FxHashMap::default();
    for (side, table) in tables.iter().enumerate() {
        for row in table.rows(Order::OwnTime) {
            if let Key::Function(of) = row.key
                && let Some(number) = number(&library.functions, table, *of)
                && let Some(numbers) = functions.entry(number).or_default().get_mut(side)
            {
                *numbers = [row.sums.calls, row.sums.own_ns, row.sums.total_ns];
            }
        }
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by_key(|(number, [a, b])| (std::cmp::Reverse(a[1].abs_diff(b[1])), *number));
    let row = |(function, [a, b]): (u32, [[u64; 3]; 2])| {
        let ([a_calls, a_own_ns, a_total_ns], [b_calls, b_own_ns, b_total_ns]) = (a, b);
        ComparedFunction { function, a_calls, b_calls, a_own_ns, b_own_ns, a_total_ns, b_total_ns }
    };
    let whole = |side: usize| {
        let calls = tables.get(side).map_or(0, |table| table.calls);
        let ns = nodes.first().and_then(|root| root.numbers.get(side)).map_or(0, |numbers| numbers[0]);
        Compared { ns, calls }
    };
    Ok(Comparison {
        a: whole(0),
        b: whole(1),
        functions: functions.into_iter().map(row).collect(),
        root,
        pruned_nodes: pruned.nodes,
        pruned_ns: pruned.ns,
    })
}

/// The number of a node's function; -1 for the root.
fn shown(node: &Node) -> i64 {
    node.function.map_or(-1, i64::from)
}
