//! The server on loopback.

use std::io::{self, BufWriter, Read as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::assets;
use crate::file::lock;
use crate::http::{Answer, Rules, read_head};
use crate::library::Library;
use crate::peers;
use crate::requests;
use crate::running::States;
use crate::threads::thread;
use everycall_answers::Query;

/// Connections at once that have shown the secret; a browser opens six.
const CONNECTIONS_MAX: usize = 64;
/// Connections at once that haven't shown it yet. They are counted apart, so that whoever doesn't
/// know it takes no place of the page.
const STRANGERS_MAX: usize = 16;
/// A connection that has shown the secret may be silent for so long.
const IDLE: Duration = Duration::from_secs(120);
/// Within this time, the whole head of a connection's first request has to be there.
const FIRST_HEAD: Duration = Duration::from_secs(5);
/// The server ends so long after the page last said that it is there.
const AFTER_PAGE: Duration = Duration::from_secs(15);
/// A server whose address is known.
pub struct Server {
    listener: TcpListener,
    rules: Rules,
}

impl Server {
    /// Takes a random port of the loopback interface, and a random secret.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn bind(port: u16) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        let mut bytes = [0_u8; 16];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
        }
        let secret = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Server { listener, rules: Rules { port, secret } })
    }

    /// Where the page is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.rules.port, self.rules.secret)
    }

    /// Serves until the page that was opened is closed. Without `ends_with_page`, until the process
    /// ends.
    ///
    /// # Errors
    ///
    /// Those of the system: no thread can be started.
    pub fn serve(self, library: Arc<Library>, ends_with_page: bool) -> io::Result<()> {
        self.serve_what(Served::Files(library), ends_with_page)
    }

    /// As [`Server::serve`], with a running program.
    ///
    /// # Errors
    ///
    /// Those of the system: no thread can be started.
    pub fn serve_running(self, states: Arc<States>, ends_with_page: bool) -> io::Result<()> {
        self.serve_what(Served::Running(states), ends_with_page)
    }

    fn serve_what(self, served: Served, ends_with_page: bool) -> io::Result<()> {
        let state = Arc::new(State {
            rules: self.rules,
            served,
            begun: Instant::now(),
            seen_ms: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            strangers: AtomicUsize::new(0),
            others: AtomicUsize::new(0),
            failed: Mutex::new(None),
        });
        let accepting = Arc::clone(&state);
        let listener = self.listener;
        thread("accept", move || accept(&listener, &accepting))?;
        loop {
            std::thread::sleep(Duration::from_millis(250));
            if let Some(error) = lock(&state.failed).take() {
                return Err(error);
            }
            let seen = state.seen_ms.load(Ordering::Relaxed);
            let silent = state.begun.elapsed().saturating_sub(Duration::from_millis(seen));
            if ends_with_page && seen > 0 && silent > AFTER_PAGE {
                return Ok(());
            }
        }
    }
}

/// The page's subject.
enum Served {
    Files(Arc<Library>),
    Running(Arc<States>),
}

struct State {
    rules: Rules,
    served: Served,
    begun: Instant,
    /// When the page last said that it is there, in milliseconds since `begun`; 0 for never.
    seen_ms: AtomicU64,
    connections: AtomicUsize,
    /// Connections that haven't shown the secret, of this user or of an unknown one.
    strangers: AtomicUsize,
    /// Those of other users.
    others: AtomicUsize,
    failed: Mutex<Option<io::Error>>,
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) =>
            {
                continue;
            }
            Err(_) => {
                // No descriptors are left, for example: others may be closed meanwhile.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        // If the system says whose it is, other users take no place of this one's.
        let kind: fn(&State) -> &AtomicUsize =
            if peers::is_of_another_user(&stream) { |state| &state.others } else { |state| &state.strangers };
        let Some(place) = Place::take(state, STRANGERS_MAX, kind) else { continue };
        let of_connection = Arc::clone(state);
        let started = thread("connection", move || {
            // A connection that breaks is the client's matter.
            let _ = answer_all(stream, place, &of_connection);
        });
        if let Err(error) = started {
            *lock(&state.failed) = Some(error);
        }
    }
}

/// A place among the connections of a kind, which is given back when it is dropped.
struct Place {
    state: Arc<State>,
    of: fn(&State) -> &AtomicUsize,
}

impl Place {
    fn take(state: &Arc<State>, most: usize, of: fn(&State) -> &AtomicUsize) -> Option<Place> {
        // Given back by `drop` if it is one too many.
        let place = Place { state: Arc::clone(state), of };
        (of(state).fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.of)(&self.state).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is read until a moment.
struct Until<'a> {
    from: &'a TcpStream,
    /// None: each read waits for [`IDLE`] at most.
    deadline: Option<Instant>,
}

impl io::Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let rest = self.deadline.map_or(IDLE, |deadline| deadline.saturating_duration_since(Instant::now()));
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.from.set_read_timeout(Some(rest))?;
        self.from.read(bytes)
    }
}

fn answer_all(stream: TcpStream, place: Place, state: &Arc<State>) -> io::Result<()> {
    stream.set_write_timeout(Some(IDLE))?;
    stream.set_nodelay(true)?;
    let mut from = stream.try_clone()?;
    let mut out = BufWriter::new(stream);
    let mut left = Vec::new();
    let (mut place, mut is_known) = (Some(place), false);
    loop {
        let deadline = (!is_known).then(|| Instant::now() + FIRST_HEAD);
        let Some(head) = read_head(&mut Until { from: &from, deadline }, &mut left)? else { break };
        let checked = state.rules.check(&head);
        if checked.is_ok() && !is_known {
            let Some(known) = Place::take(state, CONNECTIONS_MAX, |state| &state.connections) else { break };
            place = Some(known);
            is_known = true;
        }
        let (answer, keeps_alive) = match checked {
            Ok(request) => (state.answer(&request.path, &request.query), request.keeps_alive),
            Err(refusal) => {
                let (status, sentence) = refusal.answer();
                (requests::error(status, sentence), false)
            }
        };
        answer.write(&mut out, keeps_alive)?;
        if !keeps_alive {
            return end(&out, &mut from);
        }
    }
    drop(place);
    Ok(())
}

/// Ends a connection so that the client gets the answer: closing it while bytes of the client are
/// unread would take the answer back.
fn end(out: &BufWriter<TcpStream>, from: &mut TcpStream) -> io::Result<()> {
    out.get_ref().shutdown(Shutdown::Write)?;
    from.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut unread = [0; 4096];
    for _ in 0..64 {
        if from.read(&mut unread)? == 0 {
            break;
        }
    }
    Ok(())
}

impl State {
    fn answer(&self, path: &str, query: &str) -> Answer {
        if let Some((_, kind, body)) = assets::ALL.iter().find(|(name, ..)| *name == path) {
            self.see();
            return Answer { status: 200, kind, body: body.to_vec() };
        }
        if path == "alive" {
            self.see();
            return Answer { status: 200, kind: requests::JSON, body: b"{}".to_vec() };
        }
        match &self.served {
            Served::Files(library) => requests::answer(library, path, query),
            Served::Running(states) => {
                if path == "running" {
                    self.see();
                }
                requests::answer_running(states, path, &Query::parse(query))
            }
        }
    }

    /// The page is there.
    fn see(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.seen_ms.store(now.max(1), Ordering::Relaxed);
    }
}
