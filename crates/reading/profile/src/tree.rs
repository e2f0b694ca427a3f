//! The calling-context tree: one node for each path of calls that occurred.
//!
//! A call of a function that is already on its path belongs to the existing node. Recursion
//! therefore doesn't lengthen paths, and the number of nodes is bounded by the number of paths
//! without repetition.

use rustc_hash::FxHashMap;

use crate::bounds::CallBounds;
use crate::functions::{FunctionNumber, Functions};
use crate::sums::Sums;
use crate::visitor::{CallStates, EndedCall, Visitor};

/// Largest number of paths with nodes; calls on other paths are in [`Tree::further`].
pub const PATHS_MAX: usize = 1 << 18;

/// The root node, which isn't a call: threads begin there.
pub const ROOT: usize = 0;

/// A path of calls.
#[derive(Clone, Debug)]
pub struct Node {
    /// The function at its end.
    pub function: FunctionNumber,
    /// The node of the path without its last call.
    pub parent: usize,
    /// Sums of its calls.
    pub sums: Sums,
    open: u32,
}

/// The paths of calls, of all threads together.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Child nodes by node and called function.
    edges: FxHashMap<(u32, FunctionNumber), u32>,
    /// Nodes of the open calls.
    stack: Vec<u32>,
    limit: usize,
    /// Calls on paths beyond [`PATHS_MAX`].
    pub further: Sums,
    further_open: u32,
}

/// Not a node: the call is counted in [`Tree::further`].
const FURTHER: u32 = u32::MAX;

impl Default for Tree {
    fn default() -> Tree {
        Tree::with_limit(PATHS_MAX)
    }
}

impl Tree {
    fn with_limit(limit: usize) -> Tree {
        let root = Node { function: FunctionNumber::MAX, parent: ROOT, sums: Sums::default(), open: 0 };
        Tree {
            nodes: vec![root],
            edges: FxHashMap::default(),
            stack: Vec::new(),
            limit,
            further: Sums::default(),
            further_open: 0,
        }
    }

    /// All nodes. Parents come before their children; the first one is [`ROOT`].
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The functions from the outermost call to the one at the end of a path.
    #[must_use]
    pub fn path(&self, mut node: usize) -> Vec<FunctionNumber> {
        let mut path = Vec::new();
        while node != ROOT {
            path.push(self.nodes[node].function);
            node = self.nodes[node].parent;
        }
        path.reverse();
        path
    }

    #[cold]
    fn add(&mut self, at: u32, function: FunctionNumber) -> u32 {
        let mut known = at as usize;
        while known != ROOT && self.nodes[known].function != function {
            known = self.nodes[known].parent;
        }
        let node = if known != ROOT {
            known as u32
        } else if self.nodes.len() > self.limit {
            return FURTHER;
        } else {
            self.nodes.push(Node { function, parent: at as usize, sums: Sums::default(), open: 0 });
            (self.nodes.len() - 1) as u32
        };
        self.edges.insert((at, function), node);
        node
    }
}

impl Visitor for Tree {
    fn begin(&mut self, function: FunctionNumber, _: Option<FunctionNumber>, _: &Functions) {
        let at = self.stack.last().copied().unwrap_or(ROOT as u32);
        let node = match at {
            FURTHER => FURTHER,
            _ => self.edges.get(&(at, function)).copied().unwrap_or_else(|| self.add(at, function)),
        };
        match self.nodes.get_mut(node as usize) {
            Some(node) => node.open += 1,
            None => self.further_open += 1,
        }
        self.stack.push(node);
    }

    fn states(&mut self, states: &CallStates, call: &EndedCall) {
        let Some(node) = self.stack.last().filter(|_| call.is_shown) else { return };
        let (sums, open) = match self.nodes.get_mut(*node as usize) {
            Some(node) => (&mut node.sums, node.open),
            None => (&mut self.further, self.further_open),
        };
        sums.add_states(states, open == 1);
    }

    fn bounds(&mut self, bounds: &CallBounds, call: &EndedCall) {
        let Some(node) = self.stack.last().filter(|_| call.is_shown) else { return };
        let (sums, open) = match self.nodes.get_mut(*node as usize) {
            Some(node) => (&mut node.sums, node.open),
            None => (&mut self.further, self.further_open),
        };
        sums.bounds.add_call(bounds, open == 1);
    }

    fn end(&mut self, call: &EndedCall) {
        let Some(node) = self.stack.pop() else { return };
        let (sums, open) = match self.nodes.get_mut(node as usize) {
            Some(node) => (&mut node.sums, &mut node.open),
            None => (&mut self.further, &mut self.further_open),
        };
        *open -= 1;
        if call.is_shown {
            sums.add_call(call, *open == 0, None);
        }
    }

    fn untraced(&mut self, function: FunctionNumber, at_most_ns: u64) {
        let at = self.stack.last().copied().unwrap_or(ROOT as u32);
        let node = self.edges.get(&(at, function)).copied().unwrap_or(FURTHER);
        let sums = self.nodes.get_mut(node as usize).map_or(&mut self.further, |node| &mut node.sums);
        sums.untraced_at_most_ns = sums.untraced_at_most_ns.saturating_add(at_most_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_calls::{Begin, Calls, EndKind, Window};

    use crate::functions::Place;
    use crate::functions::Split;
    use crate::visitor::Counted;

    /// A tree of calls given by function number; `0` ends the innermost call.
    fn tree(calls: &[FunctionNumber], limit: usize) -> Tree {
        let mut tree = Tree::with_limit(limit);
        let mut open = Vec::new();
        for (now, &function) in calls.iter().enumerate() {
            if function > 0 {
                tree.begin(function, None, &Functions::default());
                open.push((function, now as u64));
                continue;
            }
            let (function, start_ns) = open.pop().unwrap();
            let begin = Begin { start_ns, ..Begin::default() };
            let place = Place { function, thunk: None, split: Split::No, matches: true };
            let mut calls = Calls::new(Window::default(), None);
            calls.begin(&begin, true, Counted::at(place));
            let call = calls.end(&begin.ended(now as u64, EndKind::Returned)).unwrap();
            tree.end(&EndedCall { own_ns: 1, ..call });
        }
        tree
    }

    #[test]
    fn recursion_stays_on_its_path_and_counts_once() {
        // 1 calls 2, which calls 1, which calls 2 and 3.
        let tree = tree(&[1, 2, 1, 2, 0, 3, 0, 0, 0, 0, 3, 0], usize::MAX);
        let rows: Vec<_> = (1..tree.nodes().len())
            .map(|node| {
                let sums = &tree.nodes()[node].sums;
                (tree.path(node), sums.calls, sums.total_ns)
            })
            .collect();
        let expected = vec![(vec![1], 2, 9), (vec![1, 2], 2, 7), (vec![1, 3], 1, 1), (vec![3], 1, 1)];
        assert_eq!(rows, expected);
    }

    #[test]
    fn calls_on_more_paths_than_there_is_room_for_are_counted_together() {
        let tree = tree(&[1, 2, 3, 0, 0, 0, 4, 5, 0, 0], 2);
        assert_eq!(tree.nodes().len(), 3);
        assert_eq!((tree.further.calls, tree.further.own_ns), (3, 3));
    }
}
