//! Tables and trees of the calls in a range: the numbers of `everycall report`.

use std::sync::Arc;

use everycall_analysis::{Grouping, Key, Order, Profile, ROOT, machine};
use everycall_export::Filter;
use regex::{Regex, RegexBuilder};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::Answered;
use crate::file::{SharedFunctions, lock, place_of_track};
use crate::library::{Library, OpenFile};
use crate::query::{Query, tracks};

/// Parts of a tree below this part of the whole are left out.
const PRUNED: f64 = 0.0005;
/// Levels of a tree in an answer.
const LEVELS_MAX: usize = 512;
/// Functions that a search finds.
const FUNCTIONS_MAX: usize = 1000;

/// Which calls of a file are meant.
#[derive(Clone, Debug, Default)]
pub(super) struct Range {
    pub from: Option<u64>,
    pub to: Option<u64>,
    pub tracks: Option<Vec<u32>>,
}

impl Range {
    pub fn of(query: &Query) -> Answered<Range> {
        Ok(Range { from: query.number("from")?, to: query.number("to")?, tracks: query.tracks()? })
    }

    /// Whether all calls are meant.
    pub fn is_whole(&self) -> bool {
        self.from.is_none_or(|from| from == 0) && self.to.is_none() && self.tracks.is_none()
    }

    /// The filter of `report` that shows the same; `None` if no thread of the file is meant.
    pub fn filter(&self, open: &OpenFile) -> Option<Filter> {
        let mut filter = Filter { since_ns: self.from, until_ns: self.to, ..Filter::default() };
        if let Some(tracks) = &self.tracks {
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
        profile.add_trace(context.view, &Filter::default());
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
    let range = Range::of(query)?;
    let profile = profile(library, &range, by)?;
    let limit =
        query.number("limit")?.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let rows = profile.rows(Order::OwnTime);
    let all = rows.len();
    let row = |row: &everycall_analysis::Row<'_>| {
        let mut object = machine::object(machine::key(&profile, row.key), row.sums);
        if let Key::Function(function) = row.key {
            object["function"] = json!(number(&library.functions, &profile, *function));
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

/// The tree as JSON, and how many nodes are left out with how much time.
fn tree(nodes: &[Node], json: impl Fn(&Node) -> Value, order: impl Fn(&Node) -> u64) -> (Value, usize, u64) {
    let most = |node: &Node| node.numbers[0][0].max(node.numbers[1][0]);
    let least = nodes.first().map_or(0.0, |root| most(root) as f64 * PRUNED);
    let is_shown =
        |node: &Node| node.parent == node.level || (most(node) as f64 >= least && node.level <= LEVELS_MAX);
    let mut shown = vec![false; nodes.len()];
    let (mut pruned, mut pruned_ns) = (0, 0_u64);
    for (index, node) in nodes.iter().enumerate() {
        let with_parent = index == ROOT || shown.get(node.parent) == Some(&true);
        let is_in = with_parent && (index == ROOT || is_shown(node));
        if !is_in {
            pruned += 1;
            pruned_ns = pruned_ns.saturating_add(if with_parent { most(node) } else { 0 });
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
            return (value, pruned, pruned_ns);
        }
        if let Some(of) = children.get_mut(node.parent) {
            of.push((order(node), value));
        }
    }
    (Value::Null, pruned, pruned_ns)
}

/// `flame`.
pub(crate) fn flame(library: &Library, query: &Query) -> Answered<Value> {
    let profile = profile(library, &Range::of(query)?, Grouping::Path)?;
    let nodes = nodes(&library.functions, &[&profile]);
    let json = |node: &Node| {
        let [total_ns, own_ns, calls] = node.numbers[0];
        json!({ "function": node.function, "total_ns": total_ns, "own_ns": own_ns, "calls": calls })
    };
    let (mut root, pruned, pruned_ns) = tree(&nodes, json, |node| node.numbers[0][0]);
    root["pruned"] = json!({ "nodes": pruned, "total_ns": pruned_ns });
    root["calls_on_further_paths"] = json!(profile.tree().map_or(0, |tree| tree.further.calls));
    Ok(root)
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
    let pattern = pattern(query.text("q").ok_or("q is missing")?)?;
    let limit = query.number("limit")?.unwrap_or(1000).clamp(1, 100_000) as usize;
    let files = library.files()?;
    // Calls and times by function.
    let mut sums: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
    for open in &files {
        let profile = whole(open)?;
        for row in profile.rows(Order::Calls) {
            if let Key::Function(function) = row.key
                && let Some(number) = number(&library.functions, &profile, *function)
            {
                let sum = sums.entry(number).or_default();
                *sum = (sum.0 + row.sums.calls, sum.1.saturating_add(row.sums.total_ns));
            }
        }
    }
    let meant: Vec<bool> = {
        let functions = lock(&library.functions);
        let is_meant = |named: &crate::functions::Named| {
            pattern.is_match(&named.name) || pattern.is_match(&named.identity.name)
        };
        functions.all().iter().map(is_meant).collect()
    };
    let mut found: Vec<(u32, u64, u64)> = meant
        .iter()
        .zip(0_u32..)
        .filter(|(is_meant, _)| **is_meant)
        .map(|(_, number)| {
            let (calls, total_ns) = sums.get(&number).copied().unwrap_or_default();
            (number, calls, total_ns)
        })
        .collect();
    found.sort_by_key(|(number, calls, total_ns)| (std::cmp::Reverse((*total_ns, *calls)), *number));
    let total: u64 = found.iter().map(|(_, calls, _)| calls).sum();
    let mut hits: Vec<(u64, u32, usize, crate::levels::Cell)> = Vec::new();
    let mut more = 0_usize;
    for open in &files {
        for thread in 0..open.file.threads.len() {
            let Some(track) = open.file.track(thread) else { continue };
            let level = track.levels.lowest();
            track.levels.cells(level, 0, u64::MAX, &mut |depth, cell| {
                if meant.get(cell.function as usize) == Some(&true) {
                    hits.push((cell.from, open.file.track_id(thread), depth, cell));
                    if hits.len() >= 2 * limit.max(1000) {
                        hits.select_nth_unstable_by_key(limit - 1, |hit| (hit.0, hit.1, hit.2));
                        more += hits.len() - limit;
                        hits.truncate(limit);
                    }
                }
            });
        }
    }
    hits.sort_by_key(|hit| (hit.0, hit.1, hit.2));
    more += hits.len().saturating_sub(limit);
    hits.truncate(limit);
    let hit = |(from, track, depth, cell): &(u64, u32, usize, crate::levels::Cell)| json!({ "track": track, "from": from, "to": cell.to(), "depth": depth, "function": cell.function, "count": cell.count });
    let functions = found.iter().take(FUNCTIONS_MAX);
    Ok(json!({
        "functions": functions.map(|(id, calls, total_ns)| json!({ "id": id, "calls": calls, "total_ns": total_ns })).collect::<Vec<_>>(),
        "all_functions": found.len(),
        "hits": hits.iter().map(hit).collect::<Vec<_>>(),
        "more_hits": more,
        "total": total,
    }))
}

/// One side of a comparison: `FILE:from-to:tracks`, where each part may be left out.
fn side(library: &Library, text: &str) -> Answered<(Arc<OpenFile>, Range)> {
    let wrong = || format!("`{text}` isn't FILE:FROM-TO:TRACKS");
    let mut parts = text.split(':');
    let file: usize = match parts.next().unwrap_or_default() {
        "" => 0,
        number => number.parse().map_err(|_| wrong())?,
    };
    let open = library.files()?.get(file).cloned().ok_or_else(|| format!("there is no file {file}"))?;
    let mut range = Range::default();
    if let Some((from, to)) = parts.next().and_then(|part| part.split_once('-')) {
        let number = |text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| wrong()),
        };
        (range.from, range.to) = (number(from)?, number(to)?);
    }
    if let Some(text) = parts.next().filter(|text| !text.is_empty()) {
        range.tracks = Some(tracks(text)?);
    }
    Ok((open, range))
}

/// `compare`.
pub(crate) fn compare(library: &Library, query: &Query) -> Answered<Value> {
    let mut profiles = Vec::new();
    for name in ["a", "b"] {
        let (open, range) = side(library, query.text(name).ok_or_else(|| format!("{name} is missing"))?)?;
        let filter = range.filter(&open).ok_or("no track of the file is meant")?;
        profiles.push(open.long.ask(move |context| {
            let mut profile = Profile::by(Grouping::Path);
            profile.add_trace(context.view, &filter);
            profile
        })?);
    }
    let nodes = nodes(&library.functions, &profiles.iter().collect::<Vec<_>>());
    let json = |node: &Node| {
        let [[a_ns, a_own, a_calls], [b_ns, b_own, b_calls]] = node.numbers;
        json!({
            "function": node.function,
            "a_ns": a_ns, "b_ns": b_ns,
            "a_own_ns": a_own, "b_own_ns": b_own,
            "a_calls": a_calls, "b_calls": b_calls,
        })
    };
    let (mut root, pruned, pruned_ns) =
        tree(&nodes, json, |node| node.numbers[0][0].abs_diff(node.numbers[1][0]));
    root["pruned"] = json!({ "nodes": pruned, "total_ns": pruned_ns });
    Ok(root)
}
