//! Other processes choose what is recorded, through a socket (`everycall_format::control_socket`).
//!
//! A thread of ours listens: only it may wait, and only it may take some milliseconds to switch
//! sites. It exists while somebody is connected, or while the process records less than it did at
//! its start. Otherwise it ends after [`PATIENCE_S`], and the next request starts another one: the
//! client sets a word in the arena, which the slow path sees. Hooks take the slow path at least
//! once in 2^32 ticks. A process that starts with tracing off has no events, so it has the thread
//! from its start, and so has a child that is forked while nothing is recorded.
//!
//! A session ends with its connection. The kernel closes that when its owner ends, however it does.
#![allow(unsafe_code)] // A thread that gets the process by its address.

use crate::features::live_triggers;
use crate::features::loaded_modules::{self, OUTCOME};
use crate::features::{fork, pause};
use crate::state::capture_sets::{self, Unused};
use crate::state::process::{self, Process, process_state};
use crate::state::selection::{self, HEAD, Selection};
use crate::state::{dropped, recording};
use crate::sys::block::Block;
use crate::sys::helper::{self, Stack, Started};
use crate::sys::lock::Lock;
use crate::sys::socket::{self, Listener, NOTHING, Received, Stream};
use crate::sys::{system, wiped};
use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::Wire;
use everycall_format::arena::counter;
use everycall_format::control_socket::{
    CONNECTIONS, MAGIC, Reply, Request, Session, VERSION, control_state, operation, status,
};
use everycall_format::site_set;

/// How long the thread stays without clients.
const PATIENCE_S: u32 = 10;
/// How often it looks whether it is still needed.
const LOOK_MS: usize = 1000;
/// A forked child gets its arena only after this time, as most children soon execute a program.
const SETTLING_MS: usize = 10;
const PLACES: usize = CONNECTIONS as usize;

/// Not wiped in a forked child, which has it, too.
static STACK: Stack = Stack::new();
/// Whether the process records something else than at its start because of what others have asked,
/// so that only the thread can change it back.
static IS_CHANGED: AtomicU32 = AtomicU32::new(0);

/// Starts the thread if a client requests it. The caller has signals blocked.
pub(crate) fn start_if_asked(process: &'static Process) {
    if process.arena().control_asked().load(Relaxed) != 0 && process.listener.load(Relaxed) == 0 {
        start(process);
    }
}

/// Starts the thread, unless it runs.
#[cold]
pub(crate) fn start(process: &'static Process) {
    let state = process.arena().control_state();
    let argument = core::ptr::from_ref(process) as u64;
    // In a child that shares our memory, the thread would end with the child. Under a filter that
    // the program has installed, a socket may be its end.
    if process.pid.load(Relaxed) != system::process_id() {
        return;
    }
    let mask = system::set_signal_mask(u64::MAX);
    let is_started = match STACK.prepare() {
        Started::Busy => true,
        Started::Failed => false,
        Started::Yes => {
            !loaded_modules::is_filtered()
                && !matches!(helper::start(&STACK, &process.listener, listen, argument), Started::Failed)
        }
    };
    system::set_signal_mask(mask);
    if !is_started {
        process.arena().control_asked().store(0, Relaxed);
        state.store(control_state::REFUSED, Release);
    }
}

/// The C library calls it in each child of `fork`. Hooks that don't record never take the slow
/// path, in which a child begins to be traced and finds a client's request. So a child that begins
/// with its functions off gets the thread at once.
pub(crate) unsafe extern "C" fn in_forked_child() {
    wiped::begin_child();
    STACK.forget_unfinished();
    let Some(process) = process::process() else { return };
    let is_silent = recording::is_disabled()
        || !selection::is_base_on()
        || IS_CHANGED.load(Relaxed) != 0
        || dropped::is_counting();
    if !is_silent || process.state.load(Acquire) != process_state::BLANK || loaded_modules::is_filtered() {
        return;
    }
    let argument = core::ptr::from_ref(process) as u64;
    let mask = system::set_signal_mask(u64::MAX);
    if matches!(STACK.prepare(), Started::Yes) {
        let _ = helper::start(&STACK, &process.listener, listen_in_child, argument);
    }
    system::set_signal_mask(mask);
}

/// Runs in the thread of a forked child.
unsafe extern "C" fn listen_in_child(process: u64) {
    helper::begin();
    let _ = socket::wait(&mut [], SETTLING_MS);
    // SAFETY: the process that has started the thread; it is never unmapped.
    let process: &'static Process = unsafe { &*(process as *const Process) };
    if fork::begin_in_helper(process) {
        serve(process);
    }
}

/// Runs in the thread.
unsafe extern "C" fn listen(process: u64) {
    helper::begin();
    // SAFETY: the process that has started the thread; it is never unmapped.
    serve(unsafe { &*(process as *const Process) });
}

fn serve(process: &'static Process) {
    let arena = process.arena();
    match Listener::new(PLACES) {
        None => arena.control_state().store(control_state::REFUSED, Release),
        Some((listener, name)) => {
            arena.control_name().store(name, Relaxed);
            arena.control_state().store(control_state::LISTENING, Release);
            Server::new(process, &listener).serve();
            arena.control_state().store(control_state::NONE, Release);
        }
    }
    arena.control_asked().store(0, Release);
}

/// A client.
struct Client {
    stream: Stream,
    owner: u32,
    /// The request as far as it has come.
    head: [u8; Request::SIZE],
    head_length: usize,
    request: Option<Request>,
    /// The request's body, in memory with room for a selection's head before it.
    body: Option<Block>,
    body_length: usize,
    /// Where its triggers are.
    area: Option<u32>,
    /// Whose values are to be recorded with what it chooses next.
    captures: Option<Unused>,
}

struct Server<'a> {
    process: &'static Process,
    listener: &'a Listener,
    clients: [Option<Client>; PLACES],
    /// Seconds without a client.
    idle: u32,
}

impl Server<'_> {
    fn new<'a>(process: &'static Process, listener: &'a Listener) -> Server<'a> {
        Server { process, listener, clients: [const { None }; PLACES], idle: 0 }
    }

    fn serve(&mut self) {
        // Children forked from here on have no such thread, and its memory is wiped.
        while self.process.state.load(Acquire) == process_state::ON {
            let mut list = [NOTHING; PLACES + 1];
            for (polled, client) in list.iter_mut().zip(&self.clients) {
                if let Some(client) = client {
                    *polled = client.stream.poll();
                }
            }
            if let Some(last) = list.last_mut() {
                *last = self.listener.poll();
            }
            let something = socket::wait(&mut list, LOOK_MS);
            if !something && self.is_superfluous() {
                return;
            }
            for (place, polled) in (0..PLACES).zip(list) {
                if socket::has_happened(polled) && !self.go_on(place) {
                    self.close(place);
                }
            }
            while let Some(stream) = self.listener.accept() {
                self.take(stream);
            }
        }
    }

    /// Whether the thread had no clients for long, or is the process's only thread.
    fn is_superfluous(&mut self) -> bool {
        if self.clients.iter().any(Option::is_some) {
            self.idle = 0;
            return false;
        }
        self.idle += 1;
        let is_needed = IS_CHANGED.load(Relaxed) != 0 || !selection::is_base_on();
        !is_needed && self.idle > PATIENCE_S
    }

    /// Takes a new client, if its user may ask.
    fn take(&mut self, stream: Stream) {
        let free = self.clients.iter_mut().find(|client| client.is_none());
        let Some((owner, user)) = stream.peer() else { return };
        if user != 0 && Some(user) != system::user() {
            let _ = stream.send(&refusal(status::NOT_ALLOWED).to_bytes());
            return;
        }
        let Some(free) = free else {
            let _ = stream.send(&refusal(status::TOO_MANY).to_bytes());
            return;
        };
        *free = Some(Client {
            stream,
            owner,
            head: [0; Request::SIZE],
            head_length: 0,
            request: None,
            body: None,
            body_length: 0,
            area: None,
            captures: None,
        });
    }

    /// A client is gone, and its session with it.
    fn close(&mut self, place: usize) {
        let gone = self.clients.get_mut(place).and_then(Option::take);
        if let Some(area) = gone.and_then(|client| client.area) {
            live_triggers::disarm(self.process, area);
        }
        let had_session = self.locked(|| {
            let had_session = selection::session(place).is_some();
            selection::set_session(place, None);
            selection::note_sessions();
            capture_sets::put_client(place, None);
            had_session
        });
        if had_session {
            self.change();
        }
    }

    /// Receives what a client has sent. Returns false once it is gone.
    fn go_on(&mut self, place: usize) -> bool {
        let Some(Some(client)) = self.clients.get_mut(place) else { return true };
        match client.receive() {
            Err(Disconnection) => return false,
            Ok(false) => return true,
            Ok(true) => {}
        }
        let Some(request) = client.request.take() else { return true };
        let body = client.body.take();
        (client.head_length, client.body_length) = (0, 0);
        let owner = client.owner;
        self.answer(place, owner, &request, body)
    }

    /// Does what a request asks. Returns whether the client has got the answer.
    fn answer(&mut self, place: usize, owner: u32, request: &Request, body: Option<Block>) -> bool {
        let mut armed = (0, 0);
        let status = match request.operation {
            operation::ARM => self.arm(place, body, &mut armed),
            operation::GET | operation::LIST => status::DONE,
            operation::CAPTURE => self.capture(place, body),
            operation::SET => self.set_base(place, owner, request, body),
            operation::OPEN => self.open(place, owner, request, body),
            operation::ACTIVATE => self.activate(place),
            operation::SESSION if self.nth_session(request.on).is_none() => status::NO_SESSION,
            operation::SESSION => status::DONE,
            _ => status::VERSION,
        };
        let mut reply = refusal(status);
        (reply.area, reply.left_out) = match request.operation {
            operation::OPEN | operation::ACTIVATE => self.locked(|| capture_sets::missing(Some(place))),
            operation::SET => self.locked(|| capture_sets::missing(None)),
            _ => armed,
        };
        let Some(Some(client)) = self.clients.get(place) else { return false };
        self.locked(|| {
            let base = selection::base();
            reply.pid = self.process.pid.load(Relaxed);
            reply.sessions = selection::active_sessions();
            reply.on = selection::is_base_on().into();
            reply.has_base = base.is_some().into();
            reply.sites_on = OUTCOME.on.load(Relaxed).into();
            reply.sites_off = OUTCOME.off.load(Relaxed).into();
            reply.foreign = OUTCOME.foreign.load(Relaxed).into();
            reply.failed = OUTCOME.failed.load(Relaxed).into();
            reply.ticks = everycall_hooks::ticks();
            reply.took = OUTCOME.took.load(Relaxed);
            reply.changes = self.process.arena().counters().get(counter::SELECTIONS).copied().unwrap_or(0);
        });
        if status == status::DONE && request.operation == operation::GET {
            let base = self.locked(selection::begin_sending);
            let bytes = base.map_or(&[][..], Selection::bytes);
            reply.length = bytes.len() as u64;
            let is_sent = client.stream.send(&reply.to_bytes()) && client.stream.send(bytes);
            self.locked(selection::end_sending);
            return is_sent;
        }
        if status == status::DONE && request.operation == operation::LIST {
            let rows = self.locked(|| {
                let sessions = (0..PLACES).filter_map(selection::session);
                sessions.count()
            });
            reply.length = (rows * Session::SIZE) as u64;
            let sessions = (0..PLACES).filter_map(|place| self.locked(|| selection::session(place)));
            return client.stream.send(&reply.to_bytes())
                && sessions.take(rows).all(|session| client.stream.send(&row(session)));
        }
        if status == status::DONE && request.operation == operation::SESSION {
            // Only this thread replaces sessions, so it stays while it is sent.
            let Some(session) = self.nth_session(request.on) else { return false };
            reply.length = (Session::SIZE + session.bytes().len()) as u64;
            return client.stream.send(&reply.to_bytes())
                && client.stream.send(&row(session))
                && client.stream.send(session.bytes());
        }
        client.stream.send(&reply.to_bytes())
    }

    /// A session by its number in the order of `LIST`.
    fn nth_session(&self, number: u32) -> Option<&'static Selection> {
        self.locked(|| (0..PLACES).filter_map(selection::session).nth(number as usize))
    }

    /// Takes the set of whose values are recorded with what a client chooses next.
    fn capture(&mut self, place: usize, body: Option<Block>) -> u32 {
        let (Some(Some(client)), Some(body)) = (self.clients.get_mut(place), body) else {
            return status::BAD_SET;
        };
        client.captures = Unused::parse(body).ok();
        if client.captures.is_some() { status::DONE } else { status::BAD_SET }
    }

    /// The set that a client has sent before.
    fn captures_of(&mut self, place: usize) -> Option<Unused> {
        self.clients.get_mut(place)?.as_mut()?.captures.take()
    }

    fn set_base(&mut self, place: usize, owner: u32, request: &Request, body: Option<Block>) -> u32 {
        let captures = self.captures_of(place);
        let new = match body {
            None => None,
            Some(body) => match Selection::new(body, owner, request.name) {
                None => return status::BAD_SET,
                new => new,
            },
        };
        if request.on != 0 && !self.choose_stamps(request) {
            // Nothing of the base selection is recorded meanwhile.
            let was_on = selection::is_base_on();
            self.locked(|| selection::set_base_on(false));
            self.change();
            if !self.choose_stamps(request) {
                self.locked(|| selection::set_base_on(was_on));
                self.change();
                return status::OTHER_CLOCK;
            }
        }
        let has_values = captures.is_some();
        IS_CHANGED.store((new.is_some() || request.on == 0 || has_values).into(), Relaxed);
        self.locked(|| {
            if request.values != 0 {
                capture_sets::put_base(captures);
            }
            selection::set_base(new);
            selection::set_base_on(request.on != 0);
        });
        self.change();
        if selection::is_allowed() { status::DONE } else { status::DISABLED }
    }

    fn open(&mut self, place: usize, owner: u32, request: &Request, body: Option<Block>) -> u32 {
        let captures = self.captures_of(place);
        let Some(new) = body.and_then(|body| Selection::new(body, owner, request.name)) else {
            return status::BAD_SET;
        };
        if !self.choose_stamps(request) {
            return status::OTHER_CLOCK;
        }
        if !self.locked(|| capture_sets::put_client(place, captures)) {
            return status::CAPTURES_TAKEN;
        }
        let was_active = self.locked(|| {
            let active = selection::session(place).filter(|old| old.is_active());
            // Were it off until the next request, the calls of that time would be lost.
            if let Some(old) = active {
                new.activate();
                new.since.store(old.since.load(Relaxed), Relaxed);
            }
            let was_active = active.is_some();
            selection::set_session(place, Some(new));
            selection::note_sessions();
            was_active
        });
        if was_active {
            self.change();
        }
        status::DONE
    }

    /// Chooses which events have stamps, if a request says so, or if nothing is recorded.
    fn choose_stamps(&self, request: &Request) -> bool {
        self.locked(|| loaded_modules::choose_stamps(self.process, request.clock.checked_sub(1)))
    }

    /// Arms a client's functions. `armed`: its area, and how many functions had no room.
    fn arm(&mut self, place: usize, body: Option<Block>, armed: &mut (u32, u32)) -> u32 {
        let (Some(Some(client)), Some(body)) = (self.clients.get_mut(place), body) else {
            return status::BAD_SET;
        };
        match live_triggers::arm(self.process, client.area, body) {
            Err(status) => status,
            Ok((area, left_out)) => {
                client.area = Some(area);
                *armed = (area, left_out);
                status::DONE
            }
        }
    }

    fn activate(&self, place: usize) -> u32 {
        let is_there = self.locked(|| {
            let session = selection::session(place);
            session.inspect(|session| session.activate());
            selection::note_sessions();
            capture_sets::activate(place);
            session.is_some()
        });
        if !is_there {
            return status::NO_SESSION;
        }
        self.change();
        self.locked(|| {
            if let Some(session) = selection::session(place)
                && session.since.load(Relaxed) == 0
            {
                session.since.store(everycall_hooks::ticks(), Relaxed);
            }
        });
        if selection::is_allowed() { status::DONE } else { status::DISABLED }
    }

    /// Switches the sites as selections now want it, and waits until that is done.
    fn change(&self) {
        self.process.arena().count(counter::SELECTIONS, 1);
        loaded_modules::request();
        pause::update(self.process);
        while !loaded_modules::is_followed() {
            system::yield_now();
            loaded_modules::follow(self.process);
        }
    }

    /// Runs `action` while holding the module lock.
    fn locked<R>(&self, action: impl FnOnce() -> R) -> R {
        let _lock = Lock::take(&self.process.module_lock);
        action()
    }
}

/// The client has closed its connection, or sends what makes no sense.
struct Disconnection;

impl Client {
    /// Receives more of a request. Returns whether it is whole now.
    fn receive(&mut self) -> Result<bool, Disconnection> {
        loop {
            let place = match &self.request {
                None => self.head.get_mut(self.head_length..).unwrap_or(&mut []),
                Some(_) => match &mut self.body {
                    None => return Ok(true),
                    Some(body) => body.bytes_mut().get_mut(HEAD + self.body_length..).unwrap_or(&mut []),
                },
            };
            if place.is_empty() && self.request.is_some() {
                return Ok(true);
            }
            let count = match self.stream.receive(place) {
                Received::Some(count) => count,
                Received::Nothing => return Ok(false),
                Received::End => return Err(Disconnection),
            };
            if self.request.is_some() {
                self.body_length += count;
                continue;
            }
            self.head_length += count;
            if self.head_length == Request::SIZE {
                self.begin()?;
            }
        }
    }

    /// The head of a request is whole.
    fn begin(&mut self) -> Result<(), Disconnection> {
        let request = Request::read(&self.head).ok_or(Disconnection)?;
        let refused = if (request.magic, request.version) != (MAGIC, VERSION) {
            Some(status::VERSION)
        } else if request.length > site_set::SIZE_MAX {
            Some(status::BAD_SET)
        } else {
            None
        };
        if let Some(status) = refused {
            let _ = self.stream.send(&refusal(status).to_bytes());
            return Err(Disconnection);
        }
        if request.length > 0 {
            let Some(body) = Block::new(HEAD as u64 + request.length) else {
                let _ = self.stream.send(&refusal(status::NO_MEMORY).to_bytes());
                return Err(Disconnection);
            };
            self.body = Some(body);
        }
        self.request = Some(request);
        Ok(())
    }
}

fn refusal(status: u32) -> Reply {
    Reply { magic: MAGIC, version: VERSION, status, ..Reply::default() }
}

fn row(session: &Selection) -> [u8; Session::SIZE] {
    let row = Session {
        owner: session.owner,
        active: session.is_active().into(),
        since: session.since.load(Relaxed),
        sites: session.sites.load(Relaxed),
        name: session.name,
        reserved: 0,
    };
    row.to_bytes()
}
