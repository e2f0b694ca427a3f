//! The client's side of the control socket (`everycall_format::control_socket`).
//!
//! A process opens its control socket only on request: [`Control::connect`] sets a word in its
//! arena, and the next event of the process that takes the slow path starts the listener. This is
//! at the latest its first event after 2^32 ticks.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use everycall_format::Wire;
use everycall_format::control_socket::{
    CAPTURE_SETS, MAGIC, Reply, Request, SOCKET_NAME, Session, VERSION, control_state, operation, status,
};
use everycall_format::site_set::SIZE_MAX;
use everycall_format::trigger::LIVE_AREAS;

use crate::arena::LiveArena;
use crate::process;

/// How often to check the arena for the socket.
const LOOK: Duration = Duration::from_millis(2);
/// How long an answer may take, all of it: a process with millions of sites, on a machine that is
/// busy.
const ANSWER: Duration = Duration::from_secs(60);
/// How often to check that the process, which is waited for, isn't stopped.
const CHECK: Duration = Duration::from_millis(200);
/// A process that is stopped for so long is waited for no longer.
const STOPPED: Duration = Duration::from_secs(1);
/// Sessions that are read at most.
const SESSIONS_MAX: u64 = 1 << 16;

/// Why a process doesn't carry out a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// It makes no traced calls, so it hasn't noticed the request.
    Silent(Duration),
    /// It is stopped, by a signal or a debugger.
    Stopped(u32),
    /// It has given no answer for so long.
    Slow(Duration),
    /// It has ended.
    Ended,
    /// It can't listen.
    Refused,
    /// Its socket is in another network namespace, or another process uses the socket's name.
    OtherNamespace,
    /// Only its own user and root may control it.
    NotAllowed,
    /// It was built by another version.
    Version,
    /// So many others control it.
    TooMany,
    /// Too many other clients have armed functions.
    NoArea,
    /// Too many other clients have chosen values.
    CapturesTaken,
    /// It has no memory for the selection.
    NoMemory,
    /// Something is recorded with another clock.
    OtherClock,
    /// It rejected the selection.
    Rejected(u32),
    /// The connection broke: it has ended.
    Io(io::Error),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Silent(time) => write!(
                f,
                "the process made no traced call for {} s, so it hasn't noticed the request. Try again when it \
                is busy; or start it with EVERYCALL_START=off, so that it always listens",
                time.as_secs()
            ),
            ControlError::Stopped(pid) => write!(
                f,
                "the process is stopped, by a signal or a debugger, so it can't answer; let it go on (kill -CONT {pid}, or in \
                 the debugger), and try again"
            ),
            ControlError::Slow(time) => {
                write!(f, "the process gave no complete answer within {} s; try again when it is less busy", time.as_secs())
            }
            ControlError::Ended => f.write_str(
                "the process has ended; choose functions when it starts, with `everycall record --only` or EVERYCALL_ONLY",
            ),
            ControlError::Refused => f.write_str(
                "the process can't listen: it is under a seccomp filter, or has no memory or no socket left. Choose functions when \
                 it starts, with `everycall record --only` or EVERYCALL_ONLY",
            ),
            ControlError::OtherNamespace => f.write_str(
                "its control socket is in another network namespace (a container); run everycall in that \
                container, or with `nsenter --target PID --net everycall ...`",
            ),
            ControlError::NotAllowed => {
                f.write_str("only the process's own user and root may control it; run as one of these, for example with sudo")
            }
            ControlError::Version => f.write_str(
                "the program was built by another version of everycall; use that version, or rebuild the program",
            ),
            ControlError::TooMany => {
                f.write_str("128 clients control it already; `everycall sessions PID` lists them")
            }
            ControlError::NoArea => write!(
                f,
                "{LIVE_AREAS} other `everycall trigger` commands wait for its calls already, and there is room for no more; end one of them, or give one \
                 command several conditions"
            ),
            ControlError::CapturesTaken => write!(
                f,
                "{CAPTURE_SETS} other commands record values of its calls already, and there is room for no more; end one of them: `everycall sessions \
                 PID` lists them"
            ),
            ControlError::NoMemory => f.write_str("the process has no memory for so many functions"),
            ControlError::OtherClock => f.write_str(
                "something is recorded with another --clock, and its events don't go together with the requested ones; leave out \
                 --clock, or end what is recorded first: `everycall sessions PID` lists sessions, and `everycall disable PID` switches the rest off",
            ),
            ControlError::Rejected(status) => write!(f, "the process rejected the request (status {status})"),
            ControlError::Io(error) if has_ended(error) => f.write_str(
                "the process has ended, or executes another program now; `everycall ps` lists the traced processes",
            ),
            ControlError::Io(error) => write!(f, "the connection broke: {error}; the process may have ended"),
        }
    }
}

/// Whether an error says that the other side is gone.
fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | UnexpectedEof)
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ControlError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> ControlError {
        ControlError::Io(error)
    }
}

/// A connection to a traced process. A session that is opened on it ends with it.
#[derive(Debug)]
pub struct Control {
    stream: UnixStream,
    pid: u32,
}

/// Whether a process is stopped for longer than [`STOPPED`].
struct Watch {
    pid: u32,
    since: Option<Instant>,
}

impl Watch {
    fn new(pid: u32) -> Watch {
        Watch { pid, since: None }
    }

    /// Fails if it is.
    fn check(&mut self) -> Result<(), ControlError> {
        if !process::is_stopped(self.pid) {
            self.since = None;
        } else if self.since.get_or_insert_with(Instant::now).elapsed() >= STOPPED {
            return Err(ControlError::Stopped(self.pid));
        }
        Ok(())
    }
}

impl Control {
    /// Connects to the process of `arena`. Waits up to `patience` for it to listen.
    ///
    /// # Errors
    ///
    /// It doesn't listen, or isn't ours.
    pub fn connect(arena: &LiveArena, patience: Duration) -> Result<Control, ControlError> {
        let deadline = Instant::now() + patience;
        let mut watch = Watch::new(arena.process().pid);
        loop {
            watch.check()?;
            match arena.control_state() {
                control_state::LISTENING => match Control::to(arena) {
                    // It has just stopped to listen.
                    Err(ControlError::Io(error))
                        if error.kind() == io::ErrorKind::ConnectionRefused
                            && Instant::now() < deadline
                            && process::began(arena.process().pid).is_some() => {}
                    Err(ControlError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        let is_there = process::began(arena.process().pid) == Some(arena.process().started);
                        return Err(if is_there {
                            ControlError::OtherNamespace
                        } else {
                            ControlError::Ended
                        });
                    }
                    result => return result,
                },
                control_state::REFUSED => return Err(ControlError::Refused),
                _ if Instant::now() >= deadline => return Err(ControlError::Silent(patience)),
                _ => arena.ask_for_control(),
            }
            std::thread::sleep(LOOK);
        }
    }

    fn to(arena: &LiveArena) -> Result<Control, ControlError> {
        let name = arena.control_name().to_le_bytes();
        let address = SocketAddr::from_abstract_name(&name[..SOCKET_NAME])?;
        let stream = UnixStream::connect_addr(&address)?;
        let peer = rustix::net::sockopt::socket_peercred(stream.as_fd()).map_err(io::Error::from)?;
        // The number is the process's in our own namespace. One of another user's may have taken
        // the name.
        if u32::try_from(peer.pid.as_raw_nonzero().get()) != Ok(arena.process().pid) {
            return Err(ControlError::OtherNamespace);
        }
        stream.set_read_timeout(Some(CHECK))?;
        stream.set_write_timeout(Some(CHECK))?;
        Ok(Control { stream, pid: arena.process().pid })
    }

    /// The current state, and the base selection, a site set; empty for all functions.
    ///
    /// # Errors
    ///
    /// The process has ended, or uses another protocol.
    pub fn now(&mut self) -> Result<(Reply, Vec<u8>), ControlError> {
        self.ask(request(operation::GET), &[])
    }

    /// From now on, records the functions in `set`, or all functions if it is empty, or none.
    /// Returns when the sites have been switched. `clock`: which events get stamps, one of
    /// [`everycall_format::stamp`]; `None` leaves it as it is, or as the process was started if
    /// nothing is recorded.
    ///
    /// # Errors
    ///
    /// As for [`Control::now`].
    pub fn set(&mut self, on: bool, clock: Option<u32>, set: &[u8]) -> Result<Reply, ControlError> {
        let request = Request { on: on.into(), clock: requested(clock), ..request(operation::SET) };
        self.ask(request, set).map(|(reply, _)| reply)
    }

    /// As [`Control::set`], and records the values of the last [`Control::capture`], or without one
    /// those that the process was started with.
    ///
    /// # Errors
    ///
    /// As for [`Control::now`].
    pub fn set_with_values(
        &mut self,
        on: bool,
        clock: Option<u32>,
        set: &[u8],
    ) -> Result<Reply, ControlError> {
        let request =
            Request { on: on.into(), clock: requested(clock), values: 1, ..request(operation::SET) };
        self.ask(request, set).map(|(reply, _)| reply)
    }

    /// Whose values are recorded with what [`Control::open`] or [`Control::set_with_values`]
    /// chooses next, a capture set.
    ///
    /// # Errors
    ///
    /// As for [`Control::now`].
    pub fn capture(&mut self, set: &[u8]) -> Result<(), ControlError> {
        self.ask(request(operation::CAPTURE), set).map(drop)
    }

    /// Makes `set` this connection's session. It isn't active yet; a session that the connection
    /// has already gets the set and stays as it is, without a gap. `clock` as for [`Control::set`].
    ///
    /// # Errors
    ///
    /// As for [`Control::now`].
    pub fn open(&mut self, name: &str, clock: Option<u32>, set: &[u8]) -> Result<Reply, ControlError> {
        let mut request = Request { clock: requested(clock), ..request(operation::OPEN) };
        for (place, byte) in request.name.iter_mut().zip(name.bytes()) {
            *place = byte;
        }
        self.ask(request, set).map(|(reply, _)| reply)
    }

    /// Activates this connection's session. Returns when its sites are on; the reply's ticks say
    /// when.
    ///
    /// # Errors
    ///
    /// As for [`Control::now`].
    pub fn activate(&mut self) -> Result<Reply, ControlError> {
        self.ask(request(operation::ACTIVATE), &[]).map(|(reply, _)| reply)
    }

    /// Arms the functions of `set` for this connection; each further set has those of the ones
    /// before. The reply says where threads post calls ([`LiveArena::armed`]). It ends with the
    /// connection.
    ///
    /// # Errors
    ///
    /// As for [`Control::now`]; or others have taken all places.
    pub fn arm(&mut self, set: &[u8]) -> Result<Reply, ControlError> {
        self.ask(request(operation::ARM), set).map(|(reply, _)| reply)
    }

    /// All sessions of the process.
    ///
    /// # Errors
    ///
    /// As for [`Control::now`].
    pub fn sessions(&mut self) -> Result<(Reply, Vec<Session>), ControlError> {
        let (reply, rows) = self.ask(request(operation::LIST), &[])?;
        Ok((reply, rows.chunks_exact(Session::SIZE).filter_map(Session::read).collect()))
    }

    /// A session by its number, from 0, with its selection, a site set. `None` if there are fewer,
    /// or the process's runtime is of a version without this request.
    ///
    /// # Errors
    ///
    /// As for [`Control::now`].
    pub fn session(&mut self, number: u32) -> Result<Option<(Session, Vec<u8>)>, ControlError> {
        match self.ask(Request { on: number, ..request(operation::SESSION) }, &[]) {
            Ok((_, mut body)) => {
                let session = Session::read(&body).ok_or(ControlError::Version)?;
                body.drain(..Session::SIZE);
                Ok(Some((session, body)))
            }
            Err(ControlError::Rejected(status::NO_SESSION) | ControlError::Version) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn ask(&mut self, request: Request, body: &[u8]) -> Result<(Reply, Vec<u8>), ControlError> {
        let mut bytes = Request { length: body.len() as u64, ..request }.to_bytes().to_vec();
        // A process doesn't read a request that it refuses to the end: its answer says why.
        bytes.extend_from_slice(body);
        let deadline = Instant::now() + ANSWER;
        let mut watch = Watch::new(self.pid);
        let mut left = &bytes[..];
        let mut sent = None;
        while !left.is_empty() && sent.is_none() {
            match self.stream.write(left) {
                Ok(0) => sent = Some(io::ErrorKind::WriteZero.into()),
                Ok(count) => left = &left[count..],
                Err(error) => sent = still(error, deadline, &mut watch)?,
            }
        }
        let mut head = [0; Reply::SIZE];
        if let Err(error) = self.read(&mut head, deadline, &mut watch) {
            return Err(match (error, sent) {
                (ControlError::Io(_), Some(sent)) => ControlError::Io(sent),
                (error, _) => error,
            });
        }
        let reply = Reply::read(&head).filter(|reply| reply.magic == MAGIC).ok_or(ControlError::Version)?;
        match reply.status {
            status::DONE | status::DISABLED => {}
            status::VERSION => return Err(ControlError::Version),
            status::TOO_MANY => return Err(ControlError::TooMany),
            status::NO_MEMORY => return Err(ControlError::NoMemory),
            status::NO_AREA => return Err(ControlError::NoArea),
            status::CAPTURES_TAKEN => return Err(ControlError::CapturesTaken),
            status::OTHER_CLOCK => return Err(ControlError::OtherClock),
            status::NOT_ALLOWED => return Err(ControlError::NotAllowed),
            other => return Err(ControlError::Rejected(other)),
        }
        let most = match request.operation {
            operation::LIST => SESSIONS_MAX * Session::SIZE as u64,
            operation::SESSION => SIZE_MAX + Session::SIZE as u64,
            _ => SIZE_MAX,
        };
        if reply.length > most {
            return Err(ControlError::Version);
        }
        let mut body = Vec::new();
        let length = usize::try_from(reply.length).map_err(|_| ControlError::Version)?;
        while body.len() < length {
            // Memory is taken as bytes come.
            let piece = (length - body.len()).min(PIECE);
            let filled = body.len();
            body.resize(filled + piece, 0);
            self.read(&mut body[filled..], deadline, &mut watch)?;
        }
        Ok((reply, body))
    }

    /// Fills `bytes` before `deadline`.
    fn read(&mut self, bytes: &mut [u8], deadline: Instant, watch: &mut Watch) -> Result<(), ControlError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(ControlError::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(error) => {
                    if let Some(error) = still(error, deadline, watch)? {
                        return Err(ControlError::Io(error));
                    }
                }
            }
            // Bytes that come one by one don't make it wait for longer.
            if Instant::now() >= deadline && filled < bytes.len() {
                return Err(ControlError::Slow(ANSWER));
            }
        }
        Ok(())
    }
}

/// Returns an error of the socket if it is final; `None` if the socket was silent and may be waited
/// for.
fn still(error: io::Error, deadline: Instant, watch: &mut Watch) -> Result<Option<io::Error>, ControlError> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(None),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            watch.check()?;
            if Instant::now() >= deadline { Err(ControlError::Slow(ANSWER)) } else { Ok(None) }
        }
        _ => Ok(Some(error)),
    }
}

/// Bytes of an answer that are read at once.
const PIECE: usize = 1 << 20;

fn request(operation: u32) -> Request {
    Request { magic: MAGIC, version: VERSION, operation, on: 1, ..Request::default() }
}

/// [`Request::clock`].
fn requested(clock: Option<u32>) -> u32 {
    clock.map_or(0, |clock| clock + 1)
}
