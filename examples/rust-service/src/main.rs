//! A service that answers requests of clients on threads of their own. Each request is labelled, so
//! that the calls of one can be found again; some are slow.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let clients: Vec<_> = (0..4).map(|first| thread::spawn(move || client(address, first))).collect();
    let mut servers = Vec::new();
    for _ in 0..clients.len() {
        let (stream, _) = listener.accept()?;
        servers.push(thread::spawn(move || serve(stream)));
    }
    for thread in clients.into_iter().chain(servers) {
        thread.join().expect("no thread panics")?;
    }
    Ok(())
}

/// Asks for every fourth number.
fn client(address: std::net::SocketAddr, first: u64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let mut answers = BufReader::new(stream.try_clone()?).lines();
    for id in (first..40).step_by(4) {
        writeln!(stream, "{id}")?;
        answers.next().transpose()?;
    }
    Ok(())
}

/// Answers the requests of one client.
fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    for line in BufReader::new(stream.try_clone()?).lines() {
        let answer = handle_request(line?.parse().unwrap_or(0));
        writeln!(stream, "{answer}")?;
    }
    Ok(())
}

#[inline(never)]
fn handle_request(id: u64) -> u64 {
    everycall::label("request", id);
    let _span = everycall::span("look up");
    look_up(id)
}

#[inline(never)]
fn look_up(id: u64) -> u64 {
    if id == 23 {
        thread::sleep(Duration::from_millis(30));
    }
    id * 2
}
