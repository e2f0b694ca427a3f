//! Threads, fibers and tasks, and their numbers.

use everycall_format::ect::LOG_FILE_TID;

/// Larger than all thread ids of the kernel: this plus a fiber's number takes the place of a thread
/// id.
pub const FIBERS_FROM: u32 = 1_000_000_000;
/// Larger than all numbers of fibers: tasks are fibers whose number is this plus the task's.
pub const TASKS_FROM: u32 = 500_000_000;

/// A thread as outputs show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its position in its source's list of processes.
    pub process: usize,
    /// The kernel's number of the process.
    pub pid: u32,
    /// The kernel's number of the thread; for a fiber, [`FIBERS_FROM`] plus its number.
    pub tid: u32,
    /// Its name; empty if unknown.
    pub name: String,
    /// Short calls that were dropped in the time range of its events.
    pub dropped: u64,
    /// It isn't a thread: its events are counters of the process, which the recorder has sampled.
    pub is_sampled: bool,
}

impl Thread {
    /// Its number, if it is a task: a coroutine that threads run step by step.
    #[must_use]
    pub fn task(&self) -> Option<u32> {
        self.fiber().and_then(|fiber| fiber.checked_sub(TASKS_FROM))
    }

    /// Its number, if it is a fiber; of a task, [`TASKS_FROM`] plus its number.
    #[must_use]
    pub fn fiber(&self) -> Option<u32> {
        let is_fiber = |fiber: &u32| *fiber > 0 && self.tid < LOG_FILE_TID;
        self.tid.checked_sub(FIBERS_FROM).filter(is_fiber)
    }
}
