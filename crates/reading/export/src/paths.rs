//! Calls added up by call path: what formats of stacks are written from.
//!
//! Memory is bounded: paths deeper than [`LEVELS`] end in one frame for all that is deeper, and
//! when there are [`PATHS_MAX`] paths, calls on further ones are added up in one frame for each
//! caller.

use rustc_hash::FxHashMap;

use crate::draw::LEVELS;
use crate::driver::CallSums;
use crate::filtered::{Event, PointKind};
use crate::frames::Frame;
use crate::names::Functions;
use crate::source::Process;
use crate::summary::Summary;
use everycall_calls::Thread;

/// Largest number of paths that are kept apart.
const PATHS_MAX: usize = 1 << 18;

/// Number of a path.
pub(crate) type PathId = u32;

/// A call path.
pub(crate) struct Path {
    /// `None` for the outermost frame, which is the thread's name.
    pub(crate) caller: Option<PathId>,
    pub(crate) frame: Frame,
    /// Calls that ended on this path.
    pub(crate) calls: u64,
    /// Time in them, but not in longer paths.
    pub(crate) own_ns: u64,
    /// The frame that was called last from here, and its path: most often it is called again.
    last: Option<(u32, PathId)>,
}

struct Open {
    path: PathId,
    /// Time in longer paths.
    inner_ns: u64,
}

/// All paths of an output, each after its caller.
#[derive(Default)]
pub(crate) struct Paths {
    paths: Vec<Path>,
    /// By the caller's number, 0 for none, and the frame's: [`Frame::number`].
    ids: FxHashMap<(PathId, u32), PathId>,
    /// Names of threads: [`Frame::Thread`] is a position in it.
    threads: Vec<String>,
    open: Vec<Open>,
    /// The path of the thread whose events come.
    thread: Option<PathId>,
    /// Calls that frames for deeper calls have.
    pub(crate) deep_calls: u64,
    /// Calls that frames for further paths have.
    pub(crate) other_calls: u64,
    /// Events that are missing.
    pub(crate) lost_events: u64,
}

impl Paths {
    /// Something without callees, within the innermost call.
    #[cold]
    fn add_leaf(&mut self, frame: Frame, ns: u64) {
        // Outside of all calls, it belongs to none.
        let Some(path) = self.leaf(frame) else { return };
        self.add(path, ns);
        if let Some(caller) = self.open.last_mut() {
            caller.inner_ns = caller.inner_ns.saturating_add(ns);
        }
    }

    fn add(&mut self, path: PathId, own_ns: u64) {
        let path = &mut self.paths[path as usize];
        path.own_ns = path.own_ns.saturating_add(own_ns);
        path.calls += 1;
        match path.frame {
            Frame::Deeper => self.deep_calls += 1,
            Frame::MorePaths => self.other_calls += 1,
            _ => {}
        }
    }

    /// The path of a call that the innermost one makes.
    #[inline]
    pub(crate) fn called(&mut self, frame: Frame) -> PathId {
        let caller = self.open.last().map(|open| open.path).or(self.thread);
        let Some(id) = caller else { return self.path(None, frame) };
        let number = frame.number();
        match self.paths[id as usize].last {
            Some((last, path)) if last == number && self.open.len() < LEVELS => path,
            _ => self.called_by(id, frame),
        }
    }

    fn called_by(&mut self, caller: PathId, frame: Frame) -> PathId {
        if matches!(self.paths[caller as usize].frame, Frame::Deeper | Frame::MorePaths) {
            return caller;
        }
        if self.open.len() >= LEVELS {
            return self.path(Some(caller), Frame::Deeper);
        }
        let number = frame.number();
        let path = match self.ids.get(&key(Some(caller), frame)) {
            Some(&path) => path,
            None if self.paths.len() >= PATHS_MAX => self.path(Some(caller), Frame::MorePaths),
            None => self.path(Some(caller), frame),
        };
        self.paths[caller as usize].last = Some((number, path));
        path
    }

    fn path(&mut self, caller: Option<PathId>, frame: Frame) -> PathId {
        *self.ids.entry(key(caller, frame)).or_insert_with(|| {
            self.paths.push(Path { caller, frame, calls: 0, own_ns: 0, last: None });
            // Memory is exhausted long before the numbers are.
            PathId::try_from(self.paths.len() - 1).unwrap_or(PathId::MAX)
        })
    }

    /// Paths on which calls ended.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|path| path.calls > 0)
    }

    /// All paths, each after its caller.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter()
    }

    /// The path of the innermost open call.
    #[inline]
    pub(crate) fn current(&self) -> Option<PathId> {
        self.open.last().map(|open| open.path)
    }

    /// The path of something without callees, within the innermost open call.
    pub(crate) fn leaf(&mut self, frame: Frame) -> Option<PathId> {
        self.current().map(|_| self.called(frame))
    }

    /// By path: the time on it and on longer ones.
    pub(crate) fn total_ns(&self) -> Vec<u64> {
        let mut totals: Vec<u64> = self.paths.iter().map(|path| path.own_ns).collect();
        // Each is after its caller.
        for (index, path) in self.paths.iter().enumerate().rev() {
            if let Some(caller) = path.caller {
                totals[caller as usize] = totals[caller as usize].saturating_add(totals[index]);
            }
        }
        totals
    }

    /// The paths that have a total time of `least` or more, with the time on each and on its
    /// narrower longer ones.
    pub(crate) fn wide(&self, total_ns: &[u64], least: u64) -> impl Iterator<Item = (&Path, u64)> {
        let mut own: Vec<u64> = self.paths.iter().map(|path| path.own_ns).collect();
        for (index, path) in self.paths.iter().enumerate().rev() {
            if let Some(caller) = path.caller.filter(|_| total_ns[index] < least) {
                own[caller as usize] = own[caller as usize].saturating_add(std::mem::take(&mut own[index]));
            }
        }
        self.paths.iter().zip(own).filter(|(_, own_ns)| *own_ns > 0)
    }

    /// The path's frames, the innermost first.
    pub(crate) fn frames<'p>(&'p self, path: &'p Path) -> impl Iterator<Item = Frame> + 'p {
        std::iter::successors(Some(path), |path| path.caller.map(|caller| &self.paths[caller as usize]))
            .map(|path| path.frame)
    }

    /// The names of a path's frames, the outermost first.
    pub(crate) fn names<'p>(
        &'p self,
        path: &'p Path,
        functions: &'p Functions<'_>,
    ) -> impl Iterator<Item = &'p str> {
        let frames: Vec<Frame> = self.frames(path).collect();
        frames.into_iter().rev().map(|frame| self.name(frame, functions))
    }

    /// The name of a frame.
    pub(crate) fn name<'p>(&'p self, frame: Frame, functions: &'p Functions<'_>) -> &'p str {
        match frame {
            Frame::Thread(index) => &self.threads[index],
            frame => frame.name(functions),
        }
    }
}

impl CallSums for Paths {
    /// Threads of one name share their paths, as a pool's do.
    fn thread(&mut self, thread: &Thread, processes: &[Process]) {
        self.open.clear();
        let program = processes.get(thread.process).map_or("", |process| &process.name);
        let name = [thread.name.as_str(), program].into_iter().find(|name| !name.is_empty());
        let name = name.unwrap_or("(no name)");
        let index = self.threads.iter().position(|known| known == name).unwrap_or_else(|| {
            self.threads.push(name.to_owned());
            self.threads.len() - 1
        });
        self.thread = Some(self.path(None, Frame::Thread(index)));
    }

    #[inline]
    fn event(&mut self, event: &Event) {
        match *event {
            Event::Begin { function, .. } => {
                let path = self.called(Frame::Function(function));
                self.open.push(Open { path, inner_ns: 0 });
            }
            Event::End { start_ns, end_ns, .. } => {
                let Some(Open { path, inner_ns }) = self.open.pop() else { return };
                let ns = end_ns.saturating_sub(start_ns);
                self.add(path, ns.saturating_sub(inner_ns));
                if let Some(caller) = self.open.last_mut() {
                    caller.inner_ns = caller.inner_ns.saturating_add(ns);
                }
            }
            Event::Gap(gap) | Event::ShortSuspension(gap) => {
                self.add_leaf(Frame::of_gap(gap.why), gap.until_ns.saturating_sub(gap.at_ns));
            }
            Event::Untraced(slice) => {
                self.add_leaf(Frame::Function(slice.function), slice.until_ns.saturating_sub(slice.at_ns));
            }
            Event::Point(point) => {
                if let (PointKind::Lost(_), Some(count)) = (point.kind, point.count) {
                    self.lost_events = self.lost_events.saturating_add(count);
                }
            }
            Event::Mark(_) | Event::OffCpu(_) => {}
        }
    }

    fn count(&self, summary: &mut Summary) {
        summary.deep_calls += self.deep_calls;
        summary.other_calls += self.other_calls;
    }
}

#[inline]
fn key(caller: Option<PathId>, frame: Frame) -> (PathId, u32) {
    (caller.map_or(0, |caller| caller.wrapping_add(1)), frame.number())
}

#[cfg(test)]
mod tests {
    use everycall_timeline::EndKind;

    use super::*;
    use crate::filtered::Start;
    use crate::testing::function_ids;

    fn call(paths: &mut Paths, depth: usize, ids: &[crate::names::FunctionId]) {
        let start = Start::default();
        for level in 0..depth {
            let function = ids[level % ids.len()];
            paths.event(&Event::Begin { function, start_ns: level as u64, start });
        }
        for level in (0..depth).rev() {
            let (start_ns, end_ns) = (level as u64, (2 * depth - level) as u64);
            let function = ids[level % ids.len()];
            paths.event(&Event::End { function, start_ns, end_ns, start, how: EndKind::Returned });
        }
    }

    fn paths() -> Paths {
        let mut paths = Paths::default();
        let thread =
            Thread { process: 0, pid: 1, tid: 1, name: "main".to_owned(), dropped: 0, is_sampled: false };
        paths.thread(&thread, &[]);
        paths
    }

    #[test]
    fn deep_recursion_takes_bounded_memory_and_no_time_is_lost() {
        let mut paths = paths();
        let depth = 3 * LEVELS;
        call(&mut paths, depth, &function_ids(1));
        // The thread, the levels, and what is deeper.
        assert_eq!(paths.paths.len(), 1 + LEVELS + 1);
        assert_eq!(paths.deep_calls, (depth - LEVELS) as u64);
        assert_eq!(paths.iter().map(|path| path.own_ns).sum::<u64>(), 2 * depth as u64);
        assert_eq!(paths.iter().map(|path| path.calls).sum::<u64>(), depth as u64);
    }

    #[test]
    fn further_paths_are_added_up() {
        let mut paths = paths();
        let ids = function_ids(700);
        let start = Start::default();
        let mut calls = 0;
        for &outer in &ids {
            paths.event(&Event::Begin { function: outer, start_ns: 0, start });
            for &inner in &ids {
                paths.event(&Event::Begin { function: inner, start_ns: 0, start });
                paths.event(&Event::End {
                    function: inner,
                    start_ns: 0,
                    end_ns: 3,
                    start,
                    how: EndKind::Returned,
                });
            }
            let end_ns = 3 * ids.len() as u64 + 1;
            paths.event(&Event::End { function: outer, start_ns: 0, end_ns, start, how: EndKind::Returned });
            calls += 1 + ids.len() as u64;
        }
        assert!(paths.paths.len() <= 2 * PATHS_MAX, "{} paths", paths.paths.len());
        assert!(paths.other_calls > 0);
        assert_eq!(paths.iter().map(|path| path.calls).sum::<u64>(), calls);
        let all: u64 = paths.iter().map(|path| path.own_ns).sum();
        assert_eq!(all, ids.len() as u64 * (3 * ids.len() as u64 + 1));
    }
}
