//! Threads that decode pieces; or none, where whoever asks decodes them itself.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, panicking, scope};

use super::decode::{Task, Worker};
use super::world::World;

/// Branches of all pieces that are decoded at once, about.
const EVENTS_MAX: usize = 1 << 20;
/// Branches of one piece, at least and at most.
const PIECE_EVENTS: (usize, usize) = (1 << 12, 1 << 17);

/// Where pieces are decoded.
pub(crate) struct Pool<'w> {
    /// Pieces of one CPU that may be decoded at once.
    pub ahead: usize,
    /// The most branches of one piece that are in memory.
    most: usize,
    how: How<'w>,
}

enum How<'w> {
    Here(Box<Worker<'w>>, VecDeque<Box<Task>>),
    /// `None` comes from a thread that ends by a panic, with the piece that it had.
    Threads(Sender<Box<Task>>, Receiver<Option<Box<Task>>>),
}

/// Tells that its thread ends by a panic: whoever waits for its piece would wait for ever.
struct OnPanic<'d>(&'d Sender<Option<Box<Task>>>);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if panicking() {
            let _ = self.0.send(None);
        }
    }
}

impl Pool<'_> {
    /// Gives a piece away.
    pub fn send(&mut self, task: Box<Task>) {
        match &mut self.how {
            How::Here(_, tasks) => tasks.push_back(task),
            // Without a receiver, nothing is received either.
            How::Threads(jobs, _) => drop(jobs.send(task)),
        }
    }

    /// A piece with its next branches; `None` if there is none any more.
    pub fn receive(&mut self) -> Option<Box<Task>> {
        match &mut self.how {
            How::Here(worker, tasks) => {
                let mut task = tasks.pop_front()?;
                worker.run(&mut task, self.most);
                Some(task)
            }
            How::Threads(_, done) => done.recv().ok().flatten(),
        }
    }
}

/// Runs with so many threads; with one, nothing is decoded elsewhere. `queues`: CPUs.
pub(crate) fn with_pool<'w, T>(
    threads: usize,
    queues: usize,
    world: &'w World,
    run: impl FnOnce(&mut Pool<'w>) -> T,
) -> T {
    // One more than threads can take at once: it is merged meanwhile.
    let ahead = if threads > 1 { 1 + threads.saturating_mul(2).div_ceil(queues.max(1)) } else { 1 };
    let most = EVENTS_MAX / queues.max(1).saturating_mul(ahead);
    let most = most.clamp(PIECE_EVENTS.0, PIECE_EVENTS.1);
    let here = || How::Here(Box::new(Worker::new(0, world)), VecDeque::new());
    if threads <= 1 {
        return run(&mut Pool { ahead, most, how: here() });
    }
    let (send, jobs) = channel::<Box<Task>>();
    let jobs = Mutex::new(jobs);
    scope(|scope| {
        let (done, receive) = channel();
        let mut started = 0;
        for id in 0..threads {
            let (jobs, done) = (&jobs, done.clone());
            let work = move || {
                let _told = OnPanic(&done);
                let mut worker = Worker::new(id, world);
                loop {
                    let task = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(mut task) = task else { return };
                    worker.run(&mut task, most);
                    if done.send(Some(task)).is_err() {
                        return;
                    }
                }
            };
            started += usize::from(Builder::new().spawn_scoped(scope, work).is_ok());
        }
        let how = if started == 0 { here() } else { How::Threads(send, receive) };
        run(&mut Pool { ahead, most, how })
    })
}
