//! The processes of a trace in the order of their process tree.

use everycall_reader::Process;

/// A process's place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relative {
    /// Its place in the trace's processes.
    pub process: usize,
    /// How many of the trace's processes it descends from.
    pub generation: usize,
}

/// All processes: each is followed by its descendants, in the order of their starts.
pub(crate) fn process_tree(processes: &[Process]) -> Vec<Relative> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); processes.len()];
    let mut roots = Vec::new();
    for (index, process) in processes.iter().enumerate() {
        match process.parent.and_then(|parent| children.get_mut(parent)) {
            Some(siblings) => siblings.push(index),
            None => roots.push(index),
        }
    }
    let start = |index: &usize| (processes[*index].start_ticks, *index);
    roots.sort_by_key(start);
    children.iter_mut().for_each(|siblings| siblings.sort_by_key(start));
    let mut order = Vec::with_capacity(processes.len());
    let mut seen = vec![false; processes.len()];
    // A circle in a damaged file has no root, and comes last.
    let all = roots.into_iter().chain(0..processes.len());
    for root in all {
        let mut waiting = vec![Relative { process: root, generation: 0 }];
        while let Some(relative) = waiting.pop() {
            if std::mem::replace(&mut seen[relative.process], true) {
                continue;
            }
            order.push(relative);
            let generation = relative.generation + 1;
            let next = children[relative.process].iter().rev();
            waiting.extend(next.map(|&process| Relative { process, generation }));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(parents: &[(Option<usize>, u64)]) -> Vec<(usize, usize)> {
        let process = |&(parent, start)| Process { parent, start_ticks: Some(start), ..Process::default() };
        let processes: Vec<Process> = parents.iter().map(process).collect();
        process_tree(&processes).iter().map(|relative| (relative.process, relative.generation)).collect()
    }

    #[test]
    fn parents_come_before_their_children() {
        let tree = [(Some(3), 40), (Some(3), 20), (Some(1), 30), (None, 10), (None, 5)];
        assert_eq!(order(&tree), [(4, 0), (3, 0), (1, 1), (2, 2), (0, 1)]);
        assert_eq!(order(&[]), []);
    }

    #[test]
    fn circular_and_unknown_parents_lose_no_process() {
        assert_eq!(order(&[(Some(1), 1), (Some(0), 2), (Some(9), 3)]), [(2, 0), (0, 0), (1, 1)]);
    }
}
