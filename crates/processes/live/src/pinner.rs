//! Our entry in the table of pinners, and the segments that we have pinned by it.
//!
//! A process that dies while it has segments pinned leaves them pinned. The next process takes over
//! its entry, and with it the pinned segments: only the owner of an entry may clear its bit in
//! segments.

use std::sync::atomic::{
    AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use everycall_format::arena::{PINNERS, pinned_by};
use everycall_machine::clock;
use rustix::thread::futex;

use crate::arena::LiveArena;
use crate::error::LiveError;
use crate::process;

/// An entry of the table, ours until it is dropped.
#[derive(Debug)]
pub(crate) struct Pinner<'a> {
    arena: &'a LiveArena,
    index: u32,
}

impl<'a> Pinner<'a> {
    /// Takes an entry: a dead pinner's, after its segments were released, or a free one.
    pub fn join(arena: &'a LiveArena) -> Result<Pinner<'a>, LiveError> {
        let own = std::process::id();
        let started = process::began(own).unwrap_or(0);
        let mut joined = None;
        for index in 0..PINNERS {
            let (pid, since, of) = arena.pinner(index);
            let owner = pid.load(Acquire);
            let is_wanted = match owner {
                0 => joined.is_none(),
                _ => is_dead(owner, of.load(Relaxed)),
            };
            if !is_wanted {
                continue;
            }
            // Other processes that read the entry in between must not conclude that this process
            // has died.
            of.store(0, Relaxed);
            if pid.compare_exchange(owner, own, AcqRel, Relaxed).is_err() {
                continue;
            }
            of.store(started, Relaxed);
            since.store(clock::read().ticks, Relaxed);
            let pinner = Pinner { arena, index };
            if owner != 0 {
                pinner.release_all();
            }
            if joined.is_none() {
                joined = Some(pinner);
            }
        }
        joined.ok_or(LiveError::TooManyHolders(PINNERS))
    }

    /// Our bit in segments' pins.
    pub fn bit(&self) -> u32 {
        pinned_by::FIRST << self.index
    }

    /// Holds segment `index` of the pool.
    pub fn pin(&self, index: u32) -> bool {
        self.arena.pool().pin(index, self.bit())
    }

    /// Whether it is still pinned by us: a thread that finds no other segment takes it away.
    pub fn is_pinned(&self, index: u32) -> bool {
        self.arena.pool().is_pinned(index, self.bit())
    }

    /// Unpins it, and wakes threads that wait for segments.
    pub fn release(&self, index: u32) {
        if self.arena.pool().release(index, self.bit()) && self.arena.pool_waiters().load(Acquire) != 0 {
            let doorbell: &AtomicU32 = self.arena.pool_doorbell();
            doorbell.fetch_add(1, Release);
            let _ = futex::wake(doorbell, futex::Flags::empty(), u32::MAX >> 1);
        }
    }

    fn release_all(&self) {
        for index in 0..self.arena.segments_taken() {
            if self.is_pinned(index) {
                self.release(index);
            }
        }
    }
}

impl Drop for Pinner<'_> {
    fn drop(&mut self) {
        self.release_all();
        let (pid, _, started) = self.arena.pinner(self.index);
        started.store(0, Relaxed);
        pid.store(0, Release);
    }
}

/// Whether the process that took an entry has ended. `started` is 0 if it has only just taken it.
fn is_dead(pid: u32, started: u64) -> bool {
    match process::began(pid) {
        None => true,
        Some(began) => started != 0 && began != started,
    }
}
