//! Gives scheduling events to those who take snapshots of recorded processes: the kernel's rings
//! are the recorder's, and only it can read them.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Mutex;
use std::thread::Builder;
use std::time::Duration;

use everycall_format::Wire;
use everycall_format::sched::{SOCKET, SchedRequest};
use everycall_sched::Sched;
use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;

use crate::sys::lock::lock;
use crate::tree::process_tree::ProcessTree;

/// Clients that are answered at a time.
const CLIENTS: usize = 4;
/// How long to wait for a client's request: it sends it at once.
const REQUEST: Duration = Duration::from_millis(5);
/// How long a client may take to read a part of the answer.
const ANSWER: Duration = Duration::from_secs(1);

/// The socket.
#[derive(Debug)]
pub(super) struct Serving {
    socket: UnixListener,
}

impl Serving {
    /// Opens it; `None` if that is refused, or its name is taken.
    pub fn begin() -> Option<Serving> {
        let name = format!("{SOCKET}{}", std::process::id());
        let socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Serving { socket })
    }

    /// Readable when somebody asks.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Answers those who ask, from events that were just read.
    pub fn serve(&self, sched: &Sched, tree: &Mutex<ProcessTree>) {
        for _ in 0..CLIENTS {
            let Ok((stream, _)) = self.socket.accept() else { return };
            let Some((mut stream, payload)) = answer(stream, sched, tree) else { continue };
            // A client that doesn't read must not hold the recorder up.
            let _ = Builder::new().spawn(move || stream.write_all(&payload));
        }
    }
}

fn answer(mut stream: UnixStream, sched: &Sched, tree: &Mutex<ProcessTree>) -> Option<(UnixStream, Vec<u8>)> {
    let uid = socket_peercred(stream.as_fd()).ok()?.uid;
    if !uid.is_root() && uid != getuid() {
        return None;
    }
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(REQUEST)).ok()?;
    stream.set_write_timeout(Some(ANSWER)).ok()?;
    let mut bytes = [0; SchedRequest::SIZE];
    stream.read_exact(&mut bytes).ok()?;
    let request = SchedRequest::read(&bytes)?;
    let pid = lock(tree)
        .members()
        .find(|member| member.arena.header().start.ticks == request.start_ticks)
        .map(|member| member.pid)?;
    let payload = sched.excerpt(pid, request.since_ticks, request.since_raw_ns)?;
    Some((stream, payload))
}
