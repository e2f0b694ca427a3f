//! Call paths as a tree that is folded and unfolded.

use everycall_view::answers::Tree;

use super::list::List;

/// Paths that one key unfolds.
const UNFOLDED_MAX: usize = 10_000;

/// The tree.
#[derive(Clone, Debug, Default)]
pub struct TreeView {
    pub tree: Tree,
    /// By node: those called from it, the longest first.
    children: Vec<Vec<usize>>,
    is_open: Vec<bool>,
    /// The node that is shown as the root, and those before it.
    roots: Vec<usize>,
    /// Nodes in the order of rows, with their levels.
    pub rows: Vec<(usize, usize)>,
    pub list: List,
    /// Rows that are seen.
    pub height: usize,
    pub is_there: bool,
}

impl TreeView {
    /// Shows another tree, with its hottest path unfolded.
    pub fn show(&mut self, tree: Tree) {
        let mut children = vec![Vec::new(); tree.nodes.len()];
        for (index, node) in tree.nodes.iter().enumerate().skip(1) {
            if let Some(of) = children.get_mut(node.parent) {
                of.push(index);
            }
        }
        for of in &mut children {
            of.sort_by_key(|child| {
                let node = tree.nodes.get(*child).copied().unwrap_or_default();
                (std::cmp::Reverse(node.total_ns), std::cmp::Reverse(node.calls))
            });
        }
        *self = TreeView {
            is_open: vec![false; tree.nodes.len()],
            tree,
            children,
            roots: vec![0],
            height: self.height,
            is_there: true,
            ..TreeView::default()
        };
        self.unfold(0);
        self.hottest();
        self.list = List::default();
    }

    /// The node that is shown as the root.
    pub fn root(&self) -> usize {
        self.roots.last().copied().unwrap_or(0)
    }

    /// Whether it is a part of the tree.
    pub fn is_zoomed(&self) -> bool {
        self.roots.len() > 1
    }

    /// The node at the cursor.
    pub fn node(&self) -> Option<usize> {
        self.rows.get(self.list.cursor).map(|(node, _)| *node)
    }

    /// The function of a node; `None` for the root.
    pub fn function(&self, node: usize) -> Option<u32> {
        self.tree.nodes.get(node).map(|node| node.function).filter(|function| *function != u32::MAX)
    }

    fn children_of(&self, node: usize) -> &[usize] {
        self.children.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether nodes are below it, and whether they are seen.
    pub fn fold_state(&self, node: usize) -> (bool, bool) {
        (!self.children_of(node).is_empty(), self.is_open.get(node) == Some(&true))
    }

    fn set(&mut self, node: usize, open: bool) {
        if let Some(is_open) = self.is_open.get_mut(node) {
            *is_open = open;
        }
    }

    fn unfold(&mut self, node: usize) {
        self.set(node, true);
        self.lay_out();
    }

    /// Makes the rows again; the cursor stays at its node, or at the nearest one around it.
    fn lay_out(&mut self) {
        let mut at = self.node();
        self.rows.clear();
        let root = self.root();
        let mut left: Vec<(usize, usize)> = vec![(root, 0)];
        while let Some((node, level)) = left.pop() {
            // The trace's root is no call.
            if node != 0 {
                self.rows.push((node, level));
            }
            if self.is_open.get(node) == Some(&true) || node == root {
                let level = if node == 0 { 0 } else { level + 1 };
                let below: Vec<_> =
                    self.children_of(node).iter().rev().map(|child| (*child, level)).collect();
                left.extend(below);
            }
        }
        while let Some(node) = at {
            if let Some(place) = self.rows.iter().position(|(of, _)| *of == node) {
                self.list.cursor = place;
                break;
            }
            at = self.tree.nodes.get(node).map(|of| of.parent).filter(|parent| *parent != node && node != 0);
        }
        self.settle();
    }

    /// Keeps the cursor in sight.
    pub fn settle(&mut self) {
        self.list.settle(self.rows.len(), self.height);
    }

    /// Unfolds the node at the cursor, or goes to its first child.
    pub fn open(&mut self) {
        let Some(node) = self.node() else { return };
        match self.fold_state(node) {
            (true, false) => self.unfold(node),
            (true, true) => {
                self.list.step(1);
                self.settle();
            }
            _ => {}
        }
    }

    /// Folds the node at the cursor, or goes to its parent.
    pub fn close(&mut self) {
        let Some(node) = self.node() else { return };
        if self.fold_state(node) == (true, true) && node != self.root() {
            self.set(node, false);
            return self.lay_out();
        }
        let parent = self.tree.nodes.get(node).map(|of| of.parent);
        if let Some(place) = parent.and_then(|parent| self.rows.iter().position(|(of, _)| *of == parent)) {
            self.list.cursor = place;
            self.settle();
        }
    }

    /// Folds or unfolds the node at the cursor.
    pub fn toggle(&mut self) {
        let Some(node) = self.node() else { return };
        let (_, is_open) = self.fold_state(node);
        if is_open && node != self.root() {
            self.close()
        } else {
            self.set(node, true);
            self.lay_out()
        }
    }

    /// Unfolds, from the cursor on, the child with the most time, its child, and so on, and goes to
    /// the last one.
    pub fn hottest(&mut self) {
        let mut node = self.node().unwrap_or(self.root());
        // Those with little time of it aren't what one looks for.
        let least = self.tree.nodes.get(node).map_or(0, |of| of.total_ns / 2);
        loop {
            self.set(node, true);
            let next = self.children_of(node).first().copied();
            let total = |node: usize| self.tree.nodes.get(node).map_or(0, |of| of.total_ns);
            match next.filter(|next| total(*next) >= least.max(1)) {
                Some(next) => node = next,
                None => break,
            }
        }
        self.lay_out();
        if let Some(place) = self.rows.iter().position(|(of, _)| *of == node) {
            self.list.cursor = place;
        }
        self.settle();
    }

    /// Unfolds everything below the cursor, as far as that is of use.
    pub fn unfold_all(&mut self) {
        let mut left = Vec::from_iter(self.node());
        let mut count = 0;
        // Level by level, so that what isn't unfolded is the deepest.
        while !left.is_empty() && count < UNFOLDED_MAX {
            let mut below = Vec::new();
            for node in left {
                self.set(node, true);
                below.extend_from_slice(self.children_of(node));
                count += 1;
            }
            left = below;
        }
        self.lay_out();
    }

    /// Folds everything.
    pub fn fold_all(&mut self) {
        self.is_open.fill(false);
        self.lay_out();
    }

    /// Shows only what is below the cursor.
    pub fn zoom(&mut self) {
        if let Some(node) = self.node().filter(|node| *node != self.root()) {
            self.roots.push(node);
            self.set(node, true);
            self.lay_out();
        }
    }

    /// Shows what was shown before.
    pub fn back(&mut self) {
        if self.is_zoomed() {
            self.roots.pop();
            self.lay_out();
        }
    }

    /// Goes to the next node, in the order of a whole tree, whose function matches; unfolds the
    /// nodes around it. False if there is none.
    pub fn find(&mut self, is_meant: impl Fn(u32) -> bool, is_forward: bool) -> bool {
        // All nodes below the root in the order of rows.
        let mut order = Vec::new();
        let mut left = vec![self.root()];
        while let Some(node) = left.pop() {
            order.push(node);
            left.extend(self.children_of(node).iter().rev());
        }
        let at = self.node().and_then(|node| order.iter().position(|of| *of == node)).unwrap_or(0);
        let is_hit = |node: &&usize| self.function(**node).is_some_and(&is_meant);
        let (before, behind) = order.split_at((at + usize::from(is_forward)).min(order.len()));
        let found = if is_forward {
            behind.iter().chain(before).find(is_hit)
        } else {
            before.iter().rev().chain(behind.iter().rev()).find(is_hit)
        };
        let Some(found) = found.copied() else { return false };
        let mut node = found;
        while let Some(parent) =
            self.tree.nodes.get(node).map(|of| of.parent).filter(|_| node != self.root() && node != 0)
        {
            self.set(parent, true);
            node = parent;
        }
        self.lay_out();
        if let Some(place) = self.rows.iter().position(|(of, _)| *of == found) {
            self.list.cursor = place;
        }
        self.settle();
        true
    }
}
