//! A server and its clients, whose tasks several threads run. Prints how often functions were
//! called and tasks polled, and what the clients were answered.

use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const CLIENTS: usize = 6;
const REQUESTS: u32 = 40;
const TURNS: u32 = 50;

static ANSWERS: AtomicU32 = AtomicU32::new(0);
static MIXES: AtomicU32 = AtomicU32::new(0);
/// The polls of each task, in the order in which they ended.
static POLLS: Mutex<Vec<(&str, u32)>> = Mutex::new(Vec::new());

/// Counts the polls of a future.
struct Counted<F>(&'static str, Pin<Box<F>>, u32);

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.2 += 1;
        let poll = self.1.as_mut().poll(context);
        if poll.is_ready() {
            POLLS.lock().unwrap().push((self.0, self.2));
        }
        poll
    }
}

/// A task whose polls are counted.
fn task<F: Future>(name: &'static str, future: F) -> Counted<everycall::Task<F>> {
    Counted(name, Box::pin(everycall::task(future)), 0)
}

#[inline(never)]
fn answer(request: &str) -> String {
    ANSWERS.fetch_add(1, Relaxed);
    request.to_uppercase()
}

async fn serve(stream: TcpStream) {
    let mut stream = tokio::io::BufReader::new(stream);
    let mut request = String::new();
    while stream.read_line(&mut request).await.unwrap() > 0 {
        stream.write_all(answer(&request).as_bytes()).await.unwrap();
        request.clear();
    }
}

async fn accept(listener: TcpListener) {
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let (stream, _) = listener.accept().await.unwrap();
        tasks.push(tokio::spawn(task("serve", serve(stream))));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[inline(never)]
fn mix(value: u32) -> u32 {
    MIXES.fetch_add(1, Relaxed);
    value.wrapping_mul(31).wrapping_add(7)
}

/// Wakes itself, and goes on in whichever thread is free.
async fn compute() -> u32 {
    let mut value = 1;
    for _ in 0..TURNS {
        value = mix(value);
        tokio::task::yield_now().await;
    }
    value
}

async fn receive(told: tokio::sync::oneshot::Receiver<u32>, is_waiting: Arc<AtomicU32>) -> u32 {
    is_waiting.store(1, Relaxed);
    told.await.unwrap()
}

/// A thread that knows nothing of tokio.
fn client(address: SocketAddr, number: usize) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut last = String::new();
    for request in 0..REQUESTS {
        writeln!(stream, "request {request} of client {number}").unwrap();
        last.clear();
        answers.read_line(&mut last).unwrap();
    }
    last
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_io().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = runtime.spawn(task("accept", accept(listener)));
    let computing: Vec<_> = (0..4).map(|_| runtime.spawn(task("compute", compute()))).collect();
    let (tell, told) = tokio::sync::oneshot::channel();
    let is_waiting = Arc::new(AtomicU32::new(0));
    let receiving = runtime.spawn(task("receive", receive(told, Arc::clone(&is_waiting))));
    let teller = std::thread::Builder::new().name("teller".to_owned());
    let teller = teller.spawn(move || {
        while is_waiting.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        tell.send(7).unwrap();
    });
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| std::thread::spawn(move || client(address, number))).collect();
    let mut answers: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    answers.sort();
    print!("{}", answers.concat());
    teller.unwrap().join().unwrap();
    runtime.block_on(accepting).unwrap();
    for computing in computing {
        println!("computed {}", runtime.block_on(computing).unwrap());
    }
    println!("told {}", runtime.block_on(receiving).unwrap());
    drop(runtime);
    eprintln!("tasks::answer = {}", ANSWERS.load(Relaxed));
    eprintln!("tasks::mix = {}", MIXES.load(Relaxed));
    for (name, polls) in POLLS.lock().unwrap().iter() {
        eprintln!("polls of {name} = {polls}");
    }
}
