//! `everycall view` as its page sees it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::everycall;

/// A viewer, which ends with the test.
pub struct Viewer {
    /// Its process.
    pub command: Child,
    address: String,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

impl Viewer {
    /// A viewer with these arguments.
    ///
    /// # Panics
    /// Where it doesn't start.
    #[must_use]
    pub fn start(words: &[&str]) -> Viewer {
        Viewer::start_by(Command::new(everycall()), words)
    }

    /// One by a command of its own.
    ///
    /// # Panics
    /// Where it doesn't start.
    #[must_use]
    pub fn start_by(mut command: Command, words: &[&str]) -> Viewer {
        command.args(["view", "--no-browser"]).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        // A program that is started may write, too.
        while !address.starts_with("http://") {
            address.clear();
            assert_ne!(said.read_line(&mut address).unwrap(), 0, "{words:?}: no address");
        }
        // Whoever writes later finds a reader.
        std::thread::Builder::new().spawn(move || said.read_to_end(&mut Vec::new())).unwrap();
        Viewer { command: child, address: address.trim().to_owned() }
    }

    /// The answer to a request of the page, of those in JSON.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn get(&self, request: &str) -> Value {
        let rest = self.address.strip_prefix("http://").unwrap();
        let (host, path) = rest.split_once('/').unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let head = format!("GET /{path}{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let at = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        serde_json::from_slice(&answer[at + 4..]).unwrap()
    }
}
