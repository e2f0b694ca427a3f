//! Threads that get answers, so that keys never wait for them.
//!
//! There are two: one for what a screen needs, and one for what may take as long as reading the
//! file. A newer request takes the place of an older one of its kind that waits. A long answer
//! that is being computed is stopped by a newer long request: one of another kind waits for its
//! turn again.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use everycall_view::answers::functions;
use everycall_view::{Library, STOPPED};

use crate::data::{Answer, Function, Request, answer};

/// An answer, with the functions that weren't known before.
pub struct Delivery {
    /// The number of the first function in `functions`.
    pub first: usize,
    pub functions: Vec<Function>,
    pub request: Request,
    pub answer: Result<Answer, String>,
}

/// Requests that wait, the next one first.
#[derive(Default)]
struct Waiting {
    requests: Vec<Request>,
    running: Option<Request>,
}

#[derive(Default)]
struct Lane {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads.
pub struct Lanes {
    library: Arc<Library>,
    quick: Arc<Lane>,
    long: Arc<Lane>,
    answers: Receiver<Delivery>,
}

impl Lanes {
    /// Starts the threads.
    pub fn start(library: &Arc<Library>) -> io::Result<Lanes> {
        let (send, answers) = channel();
        let (quick, long) = (Arc::new(Lane::default()), Arc::new(Lane::default()));
        for lane in [&quick, &long] {
            let (lane, library, send) = (Arc::clone(lane), Arc::clone(library), send.clone());
            let run = move || run(&lane, &library, &send);
            std::thread::Builder::new().name("answers".to_owned()).spawn(run)?;
        }
        Ok(Lanes { library: Arc::clone(library), quick, long, answers })
    }

    /// Asks.
    pub fn ask(&self, request: Request) {
        let lane = if request.is_long() { &self.long } else { &self.quick };
        let mut waiting = lane.lock();
        waiting.requests.retain(|old| !old.is_replaced_by(&request));
        if request.is_long()
            && let Some(running) = &waiting.running
        {
            if !running.is_replaced_by(&request) {
                let again = running.clone();
                waiting.requests.insert(0, again);
            }
            // Under the lock, so that it is this one that ends.
            self.library.stop(true);
        }
        if request.is_long() {
            waiting.requests.insert(0, request);
        } else {
            waiting.requests.push(request);
        }
        drop(waiting);
        lane.changed.notify_one();
    }

    /// An answer that has come.
    pub fn next(&self) -> Option<Delivery> {
        self.answers.try_recv().ok()
    }
}

fn run(lane: &Lane, library: &Library, send: &Sender<Delivery>) {
    let mut known = 0;
    loop {
        let request = {
            let waiting = lane.changed.wait_while(lane.lock(), |waiting| waiting.requests.is_empty());
            let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
            let request = waiting.requests.remove(0);
            if request.is_long() {
                library.stop(false);
            }
            waiting.running = Some(request.clone());
            request
        };
        let answer = answer(library, &request);
        lane.lock().running = None;
        if answer.as_ref().is_err_and(|error| error == STOPPED) {
            continue;
        }
        let functions = functions(library, known, usize::MAX);
        let first = known;
        known += functions.len();
        if send.send(Delivery { first, functions, request, answer }).is_err() {
            return;
        }
    }
}
