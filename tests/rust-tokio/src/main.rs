//! Tasks of every kind. Prints how often each was polled, and what they have made.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{yield_now, LocalSet};

const TURNS: u32 = 30;
const SHORT: u32 = 20;

extern "C" {
    fn in_c(a: i64, b: i64, c: i64, d: i64, e: i64, f: i64, g: i64, x: f64) -> i64;
}

static CALLS_OF_C: AtomicU32 = AtomicU32::new(0);
/// Tasks that wait forever.
static WAITING: AtomicU32 = AtomicU32::new(0);
/// The polls of each task, in the order in which they ended.
static POLLS: Mutex<Vec<(&str, u32)>> = Mutex::new(Vec::new());

/// Counts the polls of a future until it is dropped.
struct Counted<F>(&'static str, Pin<Box<F>>, u32);

impl<F> Drop for Counted<F> {
    fn drop(&mut self) {
        POLLS.lock().unwrap().push((self.0, self.2));
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.2 += 1;
        self.1.as_mut().poll(context)
    }
}

fn counted<F: Future>(name: &'static str, future: F) -> Counted<F> {
    Counted(name, Box::pin(future), 0)
}

#[inline(never)]
fn call_c(value: u32) -> i64 {
    CALLS_OF_C.fetch_add(1, Relaxed);
    unsafe { in_c(1, 2, 3, 4, 5, 6, value.into(), 8.5) }
}

/// Wakes itself, and goes on in whichever thread is free.
async fn compute() -> i64 {
    let mut sum = 0;
    for turn in 0..TURNS {
        sum += call_c(turn);
        yield_now().await;
    }
    sum
}

async fn receive<const N: usize>(told: oneshot::Receiver<usize>, is_waiting: Arc<AtomicU32>) -> usize {
    is_waiting.fetch_add(1, Relaxed);
    told.await.unwrap()
}

async fn short(value: u32) -> u32 {
    value
}

async fn panics() {
    yield_now().await;
    panic!("on purpose");
}

async fn waits_forever() {
    WAITING.fetch_add(1, Relaxed);
    std::future::pending().await
}

async fn is_aborted() {
    waits_forever().await
}

/// Returns when so many tasks wait forever, and their polls are over.
fn until_waiting(count: u32) {
    while WAITING.load(Relaxed) < count {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
}

async fn serves(mut requests: mpsc::Receiver<(u32, oneshot::Sender<u32>)>) {
    while let Some((request, answer)) = requests.recv().await {
        answer.send(2 * request).unwrap();
    }
}

async fn local(value: std::rc::Rc<u32>) -> u32 {
    yield_now().await;
    // Through the frame that makes the poll.
    let stack = std::backtrace::Backtrace::force_capture().to_string();
    println!("walked {}", stack.contains("everycall_tokio_poll") && stack.contains("main"));
    *value
}

fn tell<const N: usize>(runtime: &Runtime) -> tokio::task::JoinHandle<usize> {
    let (tell, told) = oneshot::channel();
    let is_waiting = Arc::new(AtomicU32::new(0));
    let task = runtime.spawn(counted("receive", receive::<N>(told, Arc::clone(&is_waiting))));
    let teller = std::thread::Builder::new().name(format!("teller {N}"));
    let teller = teller.spawn(move || {
        while is_waiting.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        tell.send(N).unwrap();
    });
    teller.unwrap().join().unwrap();
    task
}

async fn in_all(runtime: &Runtime) {
    let computing: Vec<_> = (0..4).map(|_| runtime.spawn(counted("compute", compute()))).collect();
    for computing in computing {
        println!("computed {}", computing.await.unwrap());
    }
    let mut sum = 0;
    for value in 0..SHORT {
        // One after the other, so that they get the same memory.
        sum += runtime.spawn(counted("short", short(value))).await.unwrap();
    }
    println!("short {sum}");
    let panicked = runtime.spawn(counted("panics", panics())).await;
    println!("panicked {}", panicked.unwrap_err().is_panic());
    let aborted = runtime.spawn(counted("is_aborted", is_aborted()));
    until_waiting(1);
    aborted.abort();
    println!("aborted {}", aborted.await.unwrap_err().is_cancelled());
    let (ask, requests) = mpsc::channel(1);
    let serving = runtime.spawn(counted("serves", serves(requests)));
    for request in 0..10 {
        let (answer, answered) = oneshot::channel();
        ask.send((request, answer)).await.unwrap();
        sum += answered.await.unwrap();
    }
    drop(ask);
    serving.await.unwrap();
    let boxed: Pin<Box<dyn Future<Output = u32> + Send>> = Box::pin(counted("boxed", short(7)));
    println!("served {} {}", sum, runtime.spawn(boxed).await.unwrap());
    let blocking: Vec<_> = (0..3).map(|value| runtime.spawn_blocking(move || call_c(value))).collect();
    for blocking in blocking {
        POLLS.lock().unwrap().push(("blocking", 1));
        println!("blocking {}", blocking.await.unwrap());
    }
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = Builder::new_multi_thread().worker_threads(3).build().unwrap();
    let told = [tell::<0>(&runtime), tell::<1>(&runtime), tell::<2>(&runtime)];
    for told in told {
        println!("told {}", runtime.block_on(told).unwrap());
    }
    runtime.block_on(in_all(&runtime));
    // Dropped unfinished.
    runtime.spawn(counted("waits_forever", waits_forever()));
    until_waiting(2);
    drop(runtime);

    let runtime = Builder::new_current_thread().build().unwrap();
    let set = LocalSet::new();
    let both = async {
        let local = tokio::task::spawn_local(counted("local", local(5.into())));
        let other = runtime.spawn(counted("compute", compute()));
        (local.await.unwrap(), other.await.unwrap())
    };
    println!("local {:?}", set.block_on(&runtime, both));
    drop(set);
    drop(runtime);

    eprintln!("in_c = {}", CALLS_OF_C.load(Relaxed));
    let mut by_name: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (name, polls) in POLLS.lock().unwrap().iter() {
        by_name.entry(name).or_default().push(*polls);
    }
    for (name, polls) in &by_name {
        polls.iter().for_each(|polls| eprintln!("polls of {name} = {polls}"));
    }
}
