//! Tables and trees of the calls in a range: the numbers of `everycall report`.

use std::sync::Arc;

use everycall_analysis::{Grouping, Key, Order, Profile, ROOT, machine};
use everycall_export::{CallAt, Filter};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::place::call_place;
use crate::file::{SharedFunctions, lock, place_of_track};
use crate::library::{Library, OpenFile};
use crate::query::{Answered, Query, tracks};

/// Parts of a tree below this part of the whole are left out.
const PRUNED: f64 = 0.0005;
/// Levels of a tree in an answer.
const LEVELS_MAX: usize = 512;

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
    pub fn of(library: &Library, query: &Query) -> Answered<Range> {
        if let Some(call) = query.text("call") {
            return Range::of_call(library, call);
        }
        Ok(Range {
            from: query.number("from")?,
            to: query.number("to")?,
            tracks: query.tracks()?,
            call: None,
        })
    }

    /// The call at a `TRACK:AT:DEPTH`.
    fn of_call(library: &Library, text: &str) -> Answered<Range> {
        let (open, thread, cell, depth) = call_place(library, text)?;
        let call = CallAt { start_ns: cell.from, depth: depth as u32 };
        Ok(Range { call: Some((open.file.track_id(thread), call)), ..Range::default() })
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

/// `report`.
pub(crate) fn report(library: &Library, query: &Query) -> Answered<Value> {
    let by = match query.text("by").unwrap_or("function") {
        "function" => Grouping::Function,
        "path" => Grouping::Path,
        "module" => Grouping::Module,
        "thread" => Grouping::Thread,
        "process" => Grouping::Process,
        "file" => Grouping::File,
        other => match other.strip_prefix("label:") {
            Some(label) => Grouping::Label(label.to_owned()),
            None => {
                return Err("by is function, path, module, thread, process, file or label:NAME".to_owned());
            }
        },
    };
    let range = Range::of(library, query)?;
    let profile = profile(library, &range, by)?;
    let limit =
        query.number("limit")?.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let rows = profile.rows_of_all_calls(Order::OwnTime);
    let all = rows.len();
    let row = |row: &everycall_analysis::Row<'_>| {
        let mut object = machine::object(machine::key(&profile, row.key), row.sums);
        if let Key::Function(function) = row.key {
            object["function"] = json!(number(&library.functions, &profile, *function));
        } else {
            object["name"] = json!(row.key.shown(profile.functions()));
        }
        if let Key::Path(path) = row.key {
            let numbers: Vec<_> = path.iter().map(|of| number(&library.functions, &profile, *of)).collect();
            object["functions"] = json!(numbers);
        }
        object
    };
    Ok(json!({
        "calls": profile.calls,
        "unwound_calls": profile.unwound,
        "not_in_the_numbers": machine::notes(&profile.notes),
        "all_rows": all,
        "rows": rows.iter().take(limit).map(row).collect::<Vec<_>>(),
    }))
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

/// The tree as JSON, and what it leaves out.
fn tree(nodes: &[Node], json: impl Fn(&Node) -> Value, order: impl Fn(&Node) -> u64) -> (Value, Pruned) {
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
    let mut children: Vec<Vec<(u64, Value)>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate().rev() {
        if shown.get(index) != Some(&true) {
            continue;
        }
        let mut below = children.get_mut(index).map(std::mem::take).unwrap_or_default();
        below.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        let mut value = json(node);
        value["children"] = below.into_iter().map(|(_, child)| child).collect();
        if index == ROOT {
            return (value, pruned);
        }
        if let Some(of) = children.get_mut(node.parent) {
            of.push((order(node), value));
        }
    }
    (Value::Null, pruned)
}

/// `flame`.
pub(crate) fn flame(library: &Library, query: &Query) -> Answered<Value> {
    let profile = profile(library, &Range::of(library, query)?, Grouping::Path)?;
    let nodes = nodes(&library.functions, &[&profile]);
    let json = |node: &Node| {
        let [total_ns, own_ns, calls] = node.numbers[0];
        json!({ "function": shown(node), "total_ns": total_ns, "own_ns": own_ns, "calls": calls })
    };
    let (root, pruned) = tree(&nodes, json, |node| node.numbers[0][0]);
    Ok(json!({
        "root": root,
        "calls": profile.calls,
        "pruned_nodes": pruned.nodes,
        "pruned_calls": pruned.calls,
        "pruned_ns": pruned.ns,
        "calls_on_further_paths": profile.tree().map_or(0, |tree| tree.further.calls),
    }))
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

/// The calls of a range by path; `query` is that of `flame`.
pub(crate) fn whole_tree(library: &Library, query: &Query) -> Answered<Tree> {
    let profile = profile(library, &Range::of(library, query)?, Grouping::Path)?;
    let node = |node: &Node| {
        let [total_ns, own_ns, calls] = node.numbers[0];
        TreeNode { function: node.function.unwrap_or(u32::MAX), parent: node.parent, calls, total_ns, own_ns }
    };
    Ok(Tree {
        nodes: nodes(&library.functions, &[&profile]).iter().map(node).collect(),
        further: profile.tree().map_or(0, |tree| tree.further.calls),
    })
}

/// One side of a comparison: `range:FILE:FROM:TO:TRACKS`, where each number may be left out, or
/// `call:TRACK:AT:DEPTH`.
fn side(library: &Library, text: &str) -> Answered<(Arc<OpenFile>, Range)> {
    let wrong = || format!("`{text}` isn't range:FILE:FROM:TO:TRACKS or call:TRACK:AT:DEPTH");
    if let Some(call) = text.strip_prefix("call:") {
        let range = Range::of_call(library, call)?;
        let (track, _) = range.call.ok_or_else(wrong)?;
        return Ok((library.track(track)?.0, range));
    }
    let mut parts = text.strip_prefix("range:").ok_or_else(wrong)?.split(':');
    let mut number = || match parts.next().unwrap_or_default() {
        "" => Ok(None),
        text => text.parse::<u64>().map(Some).map_err(|_| wrong()),
    };
    let (file, from, to) = (number()?.unwrap_or(0), number()?, number()?);
    let open =
        library.files()?.get(file as usize).cloned().ok_or_else(|| format!("there is no file {file}"))?;
    let tracks = parts.next().filter(|text| !text.is_empty()).map(tracks).transpose()?;
    Ok((open, Range { from, to, tracks, call: None }))
}

/// `compare`.
pub(crate) fn compare(library: &Library, query: &Query) -> Answered<Value> {
    let (mut trees, mut tables) = (Vec::new(), Vec::new());
    for name in ["a", "b"] {
        let (open, range) = side(library, query.text(name).ok_or_else(|| format!("{name} is missing"))?)?;
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
    let json = |node: &Node| {
        let [[a_ns, a_own, a_calls], [b_ns, b_own, b_calls]] = node.numbers;
        json!({
            "function": shown(node),
            "a_ns": a_ns, "b_ns": b_ns,
            "a_own_ns": a_own, "b_own_ns": b_own,
            "a_calls": a_calls, "b_calls": b_calls,
        })
    };
    let (root, pruned) = tree(&nodes, json, |node| node.numbers[0][0].abs_diff(node.numbers[1][0]));
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
    let row = |(number, [a, b]): &(u32, [[u64; 3]; 2])| {
        json!({
            "function": number, "a_calls": a[0], "b_calls": b[0], "a_own_ns": a[1], "b_own_ns": b[1],
            "a_total_ns": a[2], "b_total_ns": b[2],
        })
    };
    let whole = |side: usize| {
        let calls = tables.get(side).map_or(0, |table| table.calls);
        let ns = nodes.first().and_then(|root| root.numbers.get(side)).map_or(0, |numbers| numbers[0]);
        json!({ "ns": ns, "calls": calls })
    };
    Ok(json!({
        "a": whole(0),
        "b": whole(1),
        "functions": functions.iter().map(row).collect::<Vec<_>>(),
        "root": root,
        "pruned_nodes": pruned.nodes,
        "pruned_ns": pruned.ns,
    }))
}

/// The number of a node's function; -1 for the root.
fn shown(node: &Node) -> i64 {
    node.function.map_or(-1, i64::from)
}
