//! Futures as tasks, each with a track of its own.
//!
//! `unsafe`: the future in a pinned task is pinned, too, which safe Rust can only write with an
//! allocation.
#![allow(unsafe_code)]

use std::any::type_name;
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::runtime::{self, Mark};

/// Numbers of tasks lie above those that the parts of the program in other languages may count.
const FIRST_NUMBER: u32 = 1_000_000;

/// Makes a future a task, which has a track of its own in traces:
/// `tokio::spawn(everycall::task(f))`. It is named by the future's type.
///
/// Calls that a thread makes while it polls the task are on the task's track, where the polls
/// follow each other, whichever threads they are made by. An arrow leads from the wake-up of the
/// task to the poll that follows, and from here to the first one.
///
/// ```
/// async fn fetch(id: u32) -> u32 { id }
/// let task = everycall::task(fetch(7));
/// # let mut task = std::pin::pin!(task);
/// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert!(task.as_mut().poll(&mut context).is_ready());
/// ```
pub fn task<F: Future>(future: F) -> Task<F> {
    named_task(type_title::<F>(), future)
}

/// Makes a future a task with this name, as [`task`] does.
pub fn named_task<F: Future>(name: impl Into<Cow<'static, str>>, future: F) -> Task<F> {
    let polls = runtime::is_there().then(|| Arc::new(Polls::new(name.into())));
    if let Some(polls) = &polls {
        polls.wake();
    }
    Task { future, polls, waker: None }
}

/// The name of a future's type. That of an `async fn` is the function's.
fn type_title<F>() -> &'static str {
    let mut name = type_name::<F>();
    while let Some(outer) = name.strip_suffix("::{{closure}}") {
        name = outer;
    }
    name
}

/// A future whose polls are on a track of their own.
#[must_use = "futures do nothing unless they are polled"]
pub struct Task<F> {
    future: F,
    /// `None`: the process contains no runtime.
    polls: Option<Arc<Polls>>,
    /// The waker of the last poll, and ours around it.
    waker: Option<(Arc<TaskWaker>, Waker)>,
}

impl<F> fmt::Debug for Task<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.polls.as_ref().map(|polls| &polls.name);
        formatter.debug_struct("Task").field("name", &name).finish_non_exhaustive()
    }
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is not moved: it is only reached through this pin.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let Some(polls) = &this.polls else { return future.poll(context) };
        let is_same = this.waker.as_ref().is_some_and(|(inner, _)| inner.inner.will_wake(context.waker()));
        if !is_same {
            this.waker = None;
        }
        let (_, waker) = this.waker.get_or_insert_with(|| {
            let waker = TaskWaker { inner: context.waker().clone(), polls: Arc::clone(polls) };
            let waker = Arc::new(waker);
            (Arc::clone(&waker), Waker::from(waker))
        });
        let mut context = Context::from_waker(waker);
        let step = polls.begin();
        let poll = future.poll(&mut context);
        step.end();
        poll
    }
}

/// The polls of a task.
struct Polls {
    name: Cow<'static, str>,
    number: u32,
    begun: AtomicU32,
    /// The last one for which the task was woken: of several wakes, the first one counts.
    woken: AtomicU32,
}

impl Polls {
    fn new(name: Cow<'static, str>) -> Polls {
        static NEXT: AtomicU32 = AtomicU32::new(FIRST_NUMBER);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Polls { name, number, begun: AtomicU32::new(0), woken: AtomicU32::new(0) }
    }

    #[inline(always)]
    fn mark(&self, class: Mark, poll: u32) {
        let name: &str = &self.name;
        runtime::mark(class, name, Some(u64::from(poll) << 32 | u64::from(self.number)));
    }

    fn wake(&self) {
        let next = self.begun.load(Ordering::Acquire).wrapping_add(1);
        if self.woken.fetch_max(next, Ordering::AcqRel) < next {
            self.mark(Mark::TaskWake, next);
        }
    }

    /// Nothing but the poll is between this and [`Step::end`]: without calls of their own, also
    /// where nothing is optimised.
    #[inline(always)]
    fn begin(&self) -> Step {
        let poll = self.begun.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.mark(Mark::TaskBegin, poll);
        Step { number: self.number }
    }
}

/// A poll that is being made. Dropped where it panics.
struct Step {
    number: u32,
}

impl Step {
    #[inline(always)]
    fn end(self) {
        runtime::mark(Mark::TaskEnd, "", Some(self.number as u64));
        std::mem::forget(self);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        runtime::mark(Mark::TaskEnd, "", Some(self.number.into()));
    }
}

/// Wakes the task, and puts that on the timeline of the thread that does it.
struct TaskWaker {
    inner: Waker,
    polls: Arc<Polls>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.polls.wake();
        self.inner.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    async fn ready() {}

    #[test]
    fn tasks_are_named_by_their_functions() {
        assert_eq!(
            (type_title_of(&ready()), type_title_of(&async {})),
            ("everycall::tasks::tests::ready", "everycall::tasks::tests::tasks_are_named_by_their_functions")
        );
    }

    fn type_title_of<F>(_: &F) -> &'static str {
        type_title::<F>()
    }

    #[test]
    fn of_several_wakes_the_first_one_counts() {
        let polls = Polls::new("a".into());
        for poll in 1..3 {
            polls.wake();
            polls.wake();
            assert_eq!(polls.woken.load(Ordering::Relaxed), poll);
            drop(polls.begin());
        }
    }

    /// As in a traced process: the waker is ours, and wakes the one around it.
    #[test]
    fn the_waker_wakes_the_one_that_was_given() {
        struct Count(AtomicU32);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let seen = std::cell::RefCell::new(Vec::new());
        let future = std::future::poll_fn(|context: &mut Context<'_>| {
            context.waker().wake_by_ref();
            seen.borrow_mut().push(context.waker().clone());
            Poll::<()>::Pending
        });
        let mut task = pin!(Task { future, polls: Some(Arc::new(Polls::new("a".into()))), waker: None });
        for wakes in 1..4 {
            assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(count.0.load(Ordering::Relaxed), wakes);
        }
        let seen = seen.take();
        assert!(seen.iter().all(|one| one.will_wake(&seen[0]) && !one.will_wake(&waker)));
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
    }
}
