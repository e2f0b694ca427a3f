//! Unix stream sockets, for the thread that listens to other processes. Nothing here waits, except
//! [`wait`] and [`Stream::send`].
#![allow(unsafe_code)] // System calls.

use crate::sys::errors::errno;
use crate::sys::file::File;
use everycall_format::control_socket::SOCKET_NAME;
use everycall_hooks::arch::{kernel, number};
use everycall_hooks::syscall;

const AF_UNIX: usize = 1;
const SOCK_STREAM: usize = 1;
const SOCK_NONBLOCK: usize = 0o4000;
const SOCK_CLOEXEC: usize = 0o2_000_000;
const SOL_SOCKET: usize = 1;
const MSG_NOSIGNAL: usize = 0x4000;
/// `POLLIN`, at the place of the requested events in a `pollfd`.
const POLLIN: u64 = 1 << 32;
const POLL_RESULT: u64 = 0xffff << 48;

/// A socket that others connect to.
pub(crate) struct Listener(File);

impl Listener {
    /// Opens a socket whose name the kernel chooses. Returns the name, too, its first byte lowest.
    pub(crate) fn new(backlog: usize) -> Option<(Listener, u64)> {
        let kind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
        // SAFETY: makes a descriptor.
        let file = File::from_result(unsafe { syscall(number::SOCKET, [AF_UNIX, kind, 0, 0, 0, 0]) }).ok()?;
        let family = (AF_UNIX as u16).to_le_bytes();
        // SAFETY: reads an address that has only a family: then the kernel chooses a name.
        let bound = unsafe {
            syscall(number::BIND, [file.number(), family.as_ptr() as usize, family.len(), 0, 0, 0])
        };
        // SAFETY: only changes the socket.
        if bound != 0 || unsafe { syscall(number::LISTEN, [file.number(), backlog, 0, 0, 0, 0]) } != 0 {
            return None;
        }
        // Family, zero, name.
        let mut address = [0_u8; 2 + 1 + SOCKET_NAME];
        let mut length = address.len() as u32;
        let (place, size) = (address.as_mut_ptr() as usize, &raw mut length as usize);
        // SAFETY: writes at most that many bytes, and the length of the whole name.
        if unsafe { syscall(number::GETSOCKNAME, [file.number(), place, size, 0, 0, 0]) } != 0
            || length as usize != address.len()
        {
            return None;
        }
        let mut name = [0; 8];
        name.iter_mut().zip(address.iter().skip(3)).for_each(|(to, from)| *to = *from);
        Some((Listener(file), u64::from_le_bytes(name)))
    }

    /// The next client, if there is one.
    pub(crate) fn accept(&self) -> Option<Stream> {
        let arguments = [self.0.number(), 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0];
        // SAFETY: makes a descriptor.
        File::from_result(unsafe { syscall(number::ACCEPT4, arguments) }).ok().map(Stream)
    }

    /// The element for [`wait`] by which to wait for a client.
    pub(crate) fn poll(&self) -> u64 {
        self.0.number() as u64 | POLLIN
    }
}

/// A connection.
pub(crate) struct Stream(File);

/// The result of receiving from a connection.
pub(crate) enum Received {
    /// This many bytes came.
    Some(usize),
    /// Nothing yet.
    Nothing,
    /// The other side has closed the connection.
    End,
}

impl Stream {
    /// The process and the user on the other side.
    pub(crate) fn peer(&self) -> Option<(u32, u32)> {
        const SO_PEERCRED: usize = 17;
        let mut credentials = [0_u32; 3]; // process, user, group
        let mut length = size_of_val(&credentials) as u32;
        let (place, size) = (credentials.as_mut_ptr() as usize, &raw mut length as usize);
        // SAFETY: writes at most three words, and how many bytes there are.
        let result = unsafe {
            syscall(number::GETSOCKOPT, [self.0.number(), SOL_SOCKET, SO_PEERCRED, place, size, 0])
        };
        (result == 0).then_some((credentials[0], credentials[1]))
    }

    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        let arguments = [self.0.number(), buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
        // SAFETY: writes into the buffer only.
        match unsafe { syscall(number::READ, arguments) } {
            count @ 1.. => Received::Some(count.cast_unsigned()),
            errno::EAGAIN | errno::EINTR => Received::Nothing,
            _ => Received::End,
        }
    }

    /// Sends all of `bytes`. Waits for a client that doesn't read, but not for long. Returns
    /// whether all were sent.
    pub(crate) fn send(&self, bytes: &[u8]) -> bool {
        /// `POLLOUT`.
        const POLLOUT: u64 = 4 << 32;
        const PATIENCE_MS: usize = 2000;
        let mut rest = bytes;
        while !rest.is_empty() {
            let arguments = [self.0.number(), rest.as_ptr() as usize, rest.len(), MSG_NOSIGNAL, 0, 0];
            // SAFETY: reads the bytes only.
            match unsafe { syscall(number::SENDTO, arguments) } {
                count @ 1.. => rest = rest.get(count.cast_unsigned()..).unwrap_or(&[]),
                errno::EINTR => {}
                errno::EAGAIN if wait(&mut [self.0.number() as u64 | POLLOUT], PATIENCE_MS) => {}
                _ => return false,
            }
        }
        true
    }

    /// The entry of a poll list that waits for input.
    pub(crate) fn poll(&self) -> u64 {
        self.0.number() as u64 | POLLIN
    }
}

/// An element of the list for [`wait`] without a descriptor.
pub(crate) const NOTHING: u64 = u32::MAX as u64;

/// Waits for an event on one of these descriptors, for at most this many milliseconds. Returns
/// whether there was one.
pub(crate) fn wait(list: &mut [u64], milliseconds: usize) -> bool {
    // SAFETY: reads and writes as many pollfds, each a 64-bit word: descriptor, events that are
    // waited for, events that came.
    unsafe { kernel::poll(list.as_mut_ptr(), list.len(), milliseconds) > 0 }
}

/// Whether an element of the list has an event.
pub(crate) fn has_happened(polled: u64) -> bool {
    polled & POLL_RESULT != 0
}
