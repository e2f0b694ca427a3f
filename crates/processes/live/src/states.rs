//! Thread states of a process that `record --states` records: its recorder has the kernel's events.
//! The arena has what the recorder had read some milliseconds ago, or before it was killed.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use everycall_format::Wire;
use everycall_format::event::Word;
use everycall_format::sched::{SOCKET, SchedRequest};

use crate::arena::Reached;
use crate::take::{PinnedSegment, Snapshot, nanoseconds_since};

/// How long the recorder may take to answer. It takes a millisecond, unless it waits for a CPU or a
/// disk.
const ANSWER: Duration = Duration::from_millis(200);
/// Bytes of an answer at most; a recorder keeps less.
const PAYLOAD_MAX: u64 = 256 << 20;

/// The payload of a SCHED chunk; `None` if the process isn't recorded with states. `Err` has a
/// sentence for the user.
pub(crate) fn of(snapshot: &Snapshot<'_>) -> Result<Option<Vec<u8>>, String> {
    let asked = of_recorder(snapshot);
    if let Ok(Some(_)) = asked {
        return asked;
    }
    match snapshot.arena.kept_states() {
        Some(kept) => Ok(Some(kept.chunk().concat())),
        None => asked,
    }
}

fn of_recorder(snapshot: &Snapshot<'_>) -> Result<Option<Vec<u8>>, String> {
    let Reached::Recorder(recorder) = snapshot.arena.reached() else { return Ok(None) };
    let Some(mut stream) = connect(recorder) else { return Ok(None) };
    let (start, now) = (snapshot.arena.layout().start, snapshot.after);
    let since_ticks = oldest(snapshot).unwrap_or(now.ticks);
    let since_raw_ns = now.monotonic_raw_ns.saturating_sub(nanoseconds_since(&start, &now, since_ticks));
    let request = SchedRequest { start_ticks: start.ticks, since_ticks, since_raw_ns };
    let bytes = request.to_bytes();
    let mut payload = Vec::new();
    let answered = stream
        .set_read_timeout(Some(ANSWER))
        .and_then(|()| stream.set_write_timeout(Some(ANSWER)))
        .and_then(|()| stream.write_all(&bytes))
        .and_then(|()| (&mut stream).take(PAYLOAD_MAX).read_to_end(&mut payload).map(|_| ()));
    match answered {
        Ok(()) if !payload.is_empty() => Ok(Some(payload)),
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(format!(
            "thread states are missing: the recorder, process {recorder}, didn't answer within {} ms",
            ANSWER.as_millis()
        )),
        Err(error) => Err(format!("thread states are missing: the recorder, process {recorder}: {error}")),
    }
}

/// A connection to the recorder itself, and not to another process that has taken its name.
fn connect(recorder: u32) -> Option<UnixStream> {
    let name = SocketAddr::from_abstract_name(format!("{SOCKET}{recorder}")).ok()?;
    let stream = UnixStream::connect_addr(&name).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(stream.as_fd()).ok()?;
    (u32::try_from(peer.pid.as_raw_nonzero().get()) == Ok(recorder)).then_some(stream)
}

/// The first moment of the oldest segment.
fn oldest(snapshot: &Snapshot<'_>) -> Option<u64> {
    let begins = |segment: &PinnedSegment| match &segment.copy {
        Some(bytes) => {
            let word = |index: usize| bytes.as_chunks().0.get(index).map(|bytes| u64::from_le_bytes(*bytes));
            Some((word(0)?, word(1)?))
        }
        None => {
            let words = snapshot.arena.pool().segment(segment.index);
            Some((words.first()?.load(Relaxed), words.get(1)?.load(Relaxed)))
        }
    };
    let ticks = |(first, second): (u64, u64)| match (Word::decode(first), Word::decode(second)) {
        (Word::Record { ticks_low, .. }, Word::Payload { payload, .. }) => {
            Some(u64::from(payload) << 32 | u64::from(ticks_low))
        }
        _ => None,
    };
    let threads = snapshot.threads.iter();
    let firsts = threads.filter_map(|thread| {
        let newest = thread.newest.as_ref().and_then(|(_, words)| Some((*words.first()?, *words.get(1)?)));
        thread.segments.first().and_then(begins).or(newest).and_then(ticks)
    });
    firsts.min()
}
