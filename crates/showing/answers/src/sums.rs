//! Tables and trees of the calls in a range, made from profiles: the numbers of `everycall report`.

use everycall_profile::{Function, Key, Order, Profile, ROOT, Row, machine};
use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// Gives the number by which a viewer knows a function.
pub type Numbering<'n> = &'n mut dyn FnMut(&Function) -> u32;

/// Parts of a tree below this part of the whole are left out.
const PRUNED: f64 = 0.0005;
/// Levels of a tree in an answer.
const LEVELS_MAX: usize = 512;

/// The numbers of a profile's functions.
fn numbers(profile: &Profile, number: Numbering<'_>) -> Vec<u32> {
    profile.functions().all().iter().map(number).collect()
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
    /// The table of a profile, with at most `limit` rows. `number` is that of a function.
    #[must_use]
    pub fn new(profile: Profile, limit: usize, number: Numbering<'_>) -> Report {
        Report { numbers: numbers(&profile, number), profile, limit }
    }

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
fn nodes(profiles: &[&Profile], number: Numbering<'_>) -> Vec<Node> {
    let mut nodes = vec![Node::default()];
    let mut places: FxHashMap<(usize, u32), usize> = FxHashMap::default();
    for (side, profile) in profiles.iter().enumerate() {
        let Some(tree) = profile.tree() else { continue };
        let numbers = numbers(profile, number);
        let mut place_of = vec![ROOT; tree.nodes().len()];
        for (index, node) in tree.nodes().iter().enumerate().skip(1) {
            let Some(&function) = numbers.get(node.function as usize) else { continue };
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

impl Flame {
    /// The tree of a profile by path.
    #[must_use]
    pub fn of(profile: &Profile, number: Numbering<'_>) -> Flame {
        let node = |node: &Node| {
            let [total_ns, own_ns, calls] = node.numbers[0];
            (FlameNode { function: shown(node), total_ns, own_ns, calls }, total_ns)
        };
        let (root, pruned) = pruned(&nodes(&[profile], number), node);
        Flame {
            root,
            calls: profile.calls,
            pruned_nodes: pruned.nodes,
            pruned_calls: pruned.calls,
            pruned_ns: pruned.ns,
            calls_on_further_paths: profile.tree().map_or(0, |tree| tree.further.calls),
        }
    }
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

impl Tree {
    /// All of the tree of a profile by path.
    #[must_use]
    pub fn of(profile: &Profile, number: Numbering<'_>) -> Tree {
        let node = |node: &Node| {
            let [total_ns, own_ns, calls] = node.numbers[0];
            let function = node.function.unwrap_or(u32::MAX);
            TreeNode { function, parent: node.parent, calls, total_ns, own_ns }
        };
        Tree {
            nodes: nodes(&[profile], number).iter().map(node).collect(),
            further: profile.tree().map_or(0, |tree| tree.further.calls),
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

impl Comparison {
    /// Of two sides: their profiles by path, and those by function.
    #[must_use]
    pub fn of(trees: [&Profile; 2], tables: [&Profile; 2], number: Numbering<'_>) -> Comparison {
        let nodes = nodes(&trees, number);
        let node = |node: &Node| {
            let [[a_ns, a_own_ns, a_calls], [b_ns, b_own_ns, b_calls]] = node.numbers;
            let function = shown(node);
            let node = ComparedNode { function, a_ns, b_ns, a_own_ns, b_own_ns, a_calls, b_calls };
            (node, a_ns.abs_diff(b_ns))
        };
        let (root, pruned) = pruned(&nodes, node);
        // By function: calls, own and total time, of both sides.
        let mut functions: FxHashMap<u32, [[u64; 3]; 2]> = FxHashMap::default();
        for (side, table) in tables.into_iter().enumerate() {
            let numbers = numbers(table, number);
            for row in table.rows(Order::OwnTime) {
                if let Key::Function(of) = row.key
                    && let Some(&number) = numbers.get(*of as usize)
                    && let Some(sums) = functions.entry(number).or_default().get_mut(side)
                {
                    *sums = [row.sums.calls, row.sums.own_ns, row.sums.total_ns];
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
        Comparison {
            a: whole(0),
            b: whole(1),
            functions: functions.into_iter().map(row).collect(),
            root,
            pruned_nodes: pruned.nodes,
            pruned_ns: pruned.ns,
        }
    }
}

/// The number of a node's function; -1 for the root.
fn shown(node: &Node) -> i64 {
    node.function.map_or(-1, i64::from)
}
