//! A server whose routes take different times. It answers so many requests as its argument says,
//! on the port that it prints.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

#[inline(never)]
fn respond(path: &str, stream: &mut TcpStream) -> usize {
    if path.starts_with("/report") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let body = format!("this is {path}\n");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).unwrap();
    body.len()
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    let count = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut sent = 0;
    for stream in listener.incoming().take(count) {
        let mut stream = stream.unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        sent += respond(line.split(' ').nth(1).unwrap(), &mut stream);
    }
    println!("{sent} bytes");
}
