//! The control socket: how other processes change what a traced process records.
//!
//! The traced process listens on a Unix stream socket. The kernel chooses the socket's name, in the
//! abstract namespace ([`ArenaHeader::control_name`](crate::arena::ArenaHeader)). The process opens
//! the socket when another process requests it
//! ([`ArenaHeader::control_asked`](crate::arena::ArenaHeader)), or at its start if tracing is off
//! or calls are only counted. It answers only its own user and root.
//!
//! ```text
//! client                                process
//!   Request, `length` bytes      -->
//!                                <--    Reply, `length` bytes
//! ```
//!
//! A connection has one request at a time. Selections of functions are [site sets](crate::site_set)
//! whose purpose is [`SELECTION`](crate::site_set::purpose::SELECTION). The base selection stays
//! until it is replaced. A session's selection ends with its connection, however that ends.
//!
//! A function's sites are on if tracing is on and the base selection or a session names it.
//!
//! A connection may also choose whose values are recorded ([capture sets](crate::capture_set)):
//! with what it selects, and as long.
//!
//! A connection may also arm functions: [triggers](crate::trigger) of its own compare their calls
//! until it ends.

use crate::wire::wire_struct;

/// First bytes of requests and replies.
pub const MAGIC: u64 = u64::from_le_bytes(*b"\x8fecctl\r\n");
/// Version of the requests.
pub const VERSION: u32 = 1;
/// Limit on connections, and so on sessions.
pub const CONNECTIONS: u32 = 128;
/// Limit on the clients that choose values to record, at the same time.
pub const CAPTURE_SETS: u32 = 16;
/// Bytes of a session's name.
pub const NAME_MAX: usize = 40;
/// Bytes of a name that the kernel chooses, after the zero with which abstract names begin.
pub const SOCKET_NAME: usize = 5;

wire_struct! {
    /// A client's request; `length` bytes follow.
    pub struct Request [80] {
        /// [`MAGIC`].
        pub magic: u64,
        /// [`VERSION`].
        pub version: u32,
        /// One of [`operation`].
        pub operation: u32,
        /// Bytes that follow: a site set, at most [`crate::site_set::SIZE_MAX`]; or none.
        pub length: u64,
        /// Operation `SET`: 1 to record what the selection contains, 0 to record nothing. Operation
        /// `SESSION`: which session, from 0, in the order of `LIST`.
        pub on: u32,
        /// Operations `OPEN` and `SET`: 0, or 1 more than one of [`crate::stamp`]: which events are to
        /// have stamps. 0 leaves it as it is while something is recorded; otherwise what the process
        /// began with is chosen.
        pub clock: u32,
        /// Operation `SET`: 1 to record the values of the `CAPTURE` before, or, without one, those
        /// of the start; 0 leaves it as it is.
        pub values: u32,
        /// Zero.
        pub reserved: u32,
        /// Operation `OPEN`: the session's name, padded with zeros.
        pub name: [u8; NAME_MAX],
    }
}

/// [`Request::operation`].
pub mod operation {
    /// Returns what is recorded now. The base selection follows the reply, if there is one.
    pub const GET: u32 = 1;
    /// Replaces the base selection with the set that follows, or with all functions if none
    /// follows.
    pub const SET: u32 = 2;
    /// Opens the connection's session, which isn't active yet, with the set that follows. If the
    /// connection has a session already, that one gets the set, and stays active if it is.
    pub const OPEN: u32 = 3;
    /// Activates the connection's session. The reply comes when the session's sites are on.
    pub const ACTIVATE: u32 = 4;
    /// Lists the sessions: one [`Session`](super::Session) after the other follows the reply.
    pub const LIST: u32 = 5;
    /// Arms the functions of the set that follows, whose purpose is
    /// [`LIVE`](crate::site_set::purpose::LIVE), in place of those that the connection armed
    /// before. The reply's `area` says where the triggers are. The functions are disarmed when the
    /// connection ends.
    pub const ARM: u32 = 6;
    /// Returns one session: a [`Session`](super::Session) and then its set follow the reply. Status
    /// `NO_SESSION` if there are fewer.
    pub const SESSION: u32 = 7;
    /// The [capture set](crate::capture_set) that follows says whose values are recorded with what
    /// the connection's next `OPEN` or `SET` chooses, as long as that is recorded. The replies of
    /// `ACTIVATE` and `SET` say which functions' values aren't.
    pub const CAPTURE: u32 = 8;
}

wire_struct! {
    /// The process's answer; `length` bytes follow.
    pub struct Reply [104] {
        /// [`MAGIC`].
        pub magic: u64,
        /// [`VERSION`].
        pub version: u32,
        /// One of [`status`].
        pub status: u32,
        /// Bytes that follow.
        pub length: u64,
        /// Id of the process in its own PID namespace.
        pub pid: u32,
        /// Active sessions.
        pub sessions: u32,
        /// 1 if the base selection is recorded.
        pub on: u32,
        /// 1 if there is a base selection; without one, all functions belong to it.
        pub has_base: u32,
        /// Sites that are on.
        pub sites_on: u64,
        /// Sites that are off because their functions are not selected.
        pub sites_off: u64,
        /// Sites that stay as they are because other code has changed their bytes.
        pub foreign: u64,
        /// Sites that can't be written.
        pub failed: u64,
        /// When this was the state, ticks.
        pub ticks: u64,
        /// How long the process took to switch sites, ticks.
        pub took: u64,
        /// Times that the recorded functions have changed.
        pub changes: u64,
        /// Operation `ARM`: index of the area with the connection's triggers
        /// (`ArenaHeader::live_triggers_at`). Others: functions of which other values are recorded,
        /// which somebody else chose before.
        pub area: u32,
        /// Operation `ARM`: functions that were not armed for lack of room. Others: functions whose
        /// values can't be recorded.
        pub left_out: u32,
    }
}

/// [`Reply::status`].
pub mod status {
    /// Done.
    pub const DONE: u32 = 0;
    /// The request isn't one of this version.
    pub const VERSION: u32 = 1;
    /// The set is damaged, or isn't a selection.
    pub const BAD_SET: u32 = 2;
    /// There are [`CONNECTIONS`](super::CONNECTIONS) clients already.
    pub const TOO_MANY: u32 = 3;
    /// The process has no memory for the set.
    pub const NO_MEMORY: u32 = 4;
    /// The connection has no session, or there is no session of this number.
    pub const NO_SESSION: u32 = 5;
    /// The program itself has switched tracing off.
    pub const DISABLED: u32 = 6;
    /// The client's user isn't the process's, nor root.
    pub const NOT_ALLOWED: u32 = 7;
    /// All [`LIVE_AREAS`](crate::trigger::LIVE_AREAS) areas are in use by other clients.
    pub const NO_AREA: u32 = 8;
    /// Something is recorded with another clock than the requested one.
    pub const OTHER_CLOCK: u32 = 9;
    /// [`CAPTURE_SETS`](super::CAPTURE_SETS) other clients have chosen values already.
    pub const CAPTURES_TAKEN: u32 = 10;
}

wire_struct! {
    /// A session, in the answer to [`operation::LIST`].
    pub struct Session [72] {
        /// Its owner's process id.
        pub owner: u32,
        /// 1 once it is active.
        pub active: u32,
        /// When it became active, ticks.
        pub since: u64,
        /// Sites that its selection names.
        pub sites: u64,
        /// Its name, padded with zeros.
        pub name: [u8; NAME_MAX],
        /// Zero.
        pub reserved: u64,
    }
}

/// [`ArenaHeader::control_state`](crate::arena::ArenaHeader).
pub mod control_state {
    /// No process has requested the socket.
    pub const NONE: u32 = 0;
    /// The socket is open.
    pub const LISTENING: u32 = 1;
    /// The process can't open it: it has a seccomp filter, or no memory or socket is left.
    pub const REFUSED: u32 = 2;
}
