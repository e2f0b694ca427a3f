//! The recorder's hub, through which a process gets its arena. It stays mapped, also in forked
//! children, which have no other way to find the recorder.
#![allow(unsafe_code)] // Shared memory: fields of the hub, by their addresses.

use crate::sys::disk::{self, NotMemory};
use crate::sys::file::File;
use crate::sys::{processes, system};
use core::mem::offset_of;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};
use everycall_format::Wire;
use everycall_format::arena::{ArenaHeader, ChildEntry};
use everycall_format::hub::{ASKING, HUB_MAGIC, HUB_VERSION, HubHeader, SPARES, silence};

/// How long a process waits for the recorder to open a module's file: long enough for a recorder
/// that gets no CPU for a while. If the recorder doesn't answer in this time, no process waits
/// again until it does.
pub(crate) const FILE_WAIT_NS: u64 = 200_000_000;
/// How long a process waits if triggers may name functions of the module: otherwise calls of these
/// functions would be missed. Long enough to read a large library's symbols on a busy machine.
const NAMES_WAIT_NS: u64 = 10_000_000_000;
/// A process that waits for [`NAMES_WAIT_NS`] checks this often whether the recorder is still
/// running.
const LOOK_NS: u64 = 100_000_000;
/// Time between two attempts to get a place among the processes that wait for hooks.
const PLACE_WAIT_NS: u64 = 5_000_000;
/// How long a process waits for an arena. If the recorder doesn't answer in this time, no process
/// waits again until it does.
const ARENA_WAIT_NS: u64 = 50_000_000;
/// The longest accepted path, including the zero at its end.
const PATH_MAX: usize = 256;

static HUB: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
// The hub's layout, as it was checked. What the hub holds now may have been written by a process
// that has dropped its privileges since.
static CHILDREN_OFFSET: AtomicU64 = AtomicU64::new(0);
static CHILD_CAPACITY: AtomicU32 = AtomicU32::new(0);
/// The process from which the hub was opened.
static RECORDER_PID: AtomicU32 = AtomicU32::new(0);

/// The hub, and its layout as it was checked.
#[derive(Clone, Copy)]
pub(crate) struct Hub {
    base: *mut u8,
    children_offset: u64,
    child_capacity: u32,
    recorder_pid: u32,
}

/// An arena that no other process can take: its file and its layout.
pub(crate) struct Spare {
    pub(crate) file: File,
    pub(crate) header: ArenaHeader,
}

/// Opens the hub that the recorder named, and keeps it. See [`disk::open_memory`] for its permitted
/// owners.
pub(crate) fn open(path: &[u8]) -> Result<Hub, NotMemory> {
    let recorder_pid = recorder_of(path).ok_or(NotMemory::NotTrusted)?;
    let mut name = [0; PATH_MAX];
    let place = name.get_mut(..path.len()).filter(|place| place.len() < PATH_MAX);
    place.ok_or(NotMemory::NotTrusted)?.copy_from_slice(path);
    let file = disk::open_memory(name.get(..=path.len()).unwrap_or(&[]))?;
    let mut bytes = [0; HubHeader::SIZE];
    if file.read(&mut bytes) != bytes.len() {
        return Err(NotMemory::NotThere);
    }
    // All recorded processes can write into the hub, so only the kernel's size is trusted.
    let size = disk::size_of(&file).ok_or(NotMemory::NotThere)?;
    let header =
        HubHeader::read(&bytes).filter(|header| header.magic == HUB_MAGIC).ok_or(NotMemory::NotThere)?;
    if header.version != HUB_VERSION {
        return Err(NotMemory::OtherVersion);
    }
    if !header.is_consistent(size) {
        return Err(NotMemory::NotThere);
    }
    CHILDREN_OFFSET.store(header.children_offset, Relaxed);
    CHILD_CAPACITY.store(header.child_capacity, Relaxed);
    RECORDER_PID.store(recorder_pid, Relaxed);
    HUB.store(file.map_shared(header.hub_size).ok_or(NotMemory::NotThere)?, Release);
    hub().ok_or(NotMemory::NotThere)
}

/// The hub, if there is one.
pub(crate) fn hub() -> Option<Hub> {
    let base = HUB.load(Acquire);
    (!base.is_null()).then(|| Hub {
        base,
        children_offset: CHILDREN_OFFSET.load(Relaxed),
        child_capacity: CHILD_CAPACITY.load(Relaxed),
        recorder_pid: RECORDER_PID.load(Relaxed),
    })
}

/// The process in `/proc/PID/fd/NUMBER`; `None` for any other path.
fn recorder_of(path: &[u8]) -> Option<u32> {
    let rest = path.strip_prefix(b"/proc/")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (pid, rest) = rest.split_at_checked(digits)?;
    let descriptor = rest.strip_prefix(b"/fd/")?;
    let is_number = |text: &[u8]| (1..=9).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    (is_number(pid) && is_number(descriptor))
        .then(|| pid.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0')))
}

impl Hub {
    fn field(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: an aligned field of the header, which stays mapped; atomics may be shared.
        unsafe { &*self.base.wrapping_add(offset).cast::<AtomicU32>() }
    }

    /// Whether children are followed.
    pub(crate) fn follows(&self) -> bool {
        self.field(offset_of!(HubHeader, follow)).load(Relaxed) != 0
    }

    /// Whether the recorder adds functions of new modules to the selection.
    pub(crate) fn selects(&self) -> bool {
        self.field(offset_of!(HubHeader, selects)).load(Relaxed) != 0
    }

    /// Whether the recorder adds captures of new modules to the set.
    pub(crate) fn captures(&self) -> bool {
        self.field(offset_of!(HubHeader, captures)).load(Relaxed) != 0
    }

    /// Rings the doorbell: the recorder has something to handle. Returns the doorbell's new value.
    pub(crate) fn ring(&self) -> u32 {
        let doorbell = self.field(offset_of!(HubHeader, doorbell));
        let value = doorbell.fetch_add(1, Release).wrapping_add(1);
        system::wake(doorbell);
        value
    }

    /// Waits until the recorder has handled the doorbell's value `doorbell`, for at most
    /// `nanoseconds`. Returns false if it hasn't in time.
    pub(crate) fn wait_for(&self, doorbell: u32, nanoseconds: u64) -> bool {
        let deadline = system::clock_ns(system::CLOCK_MONOTONIC) + nanoseconds;
        let is_silent = self.field(offset_of!(HubHeader, silent));
        self.wait_while(doorbell, || {
            let left = deadline.checked_sub(system::clock_ns(system::CLOCK_MONOTONIC));
            let left = left.filter(|left| *left > 0 && is_silent.load(Relaxed) == 0);
            if left.is_none() {
                is_silent.fetch_or(silence::SHORTLY, Relaxed);
            }
            left
        })
    }

    /// Waits until the recorder has handled the doorbell's value `doorbell`, and so has found the
    /// functions that triggers name. This may take seconds. Returns false if the recorder is gone,
    /// the recording has ended, or the time is over.
    pub(crate) fn wait_for_names(&self, doorbell: u32) -> bool {
        let deadline = system::clock_ns(system::CLOCK_MONOTONIC) + NAMES_WAIT_NS;
        let is_silent = self.field(offset_of!(HubHeader, silent));
        let mut has_waited = false;
        self.wait_while(doorbell, || {
            let left = deadline.saturating_sub(system::clock_ns(system::CLOCK_MONOTONIC));
            if left == 0 {
                is_silent.fetch_or(silence::LONG, Relaxed);
            }
            let is_in_vain = is_silent.load(Relaxed) & (silence::LONG | silence::OVER) != 0
                || (has_waited && processes::process_has_ended(self.recorder_pid));
            has_waited = true;
            (!is_in_vain).then_some(left.min(LOOK_NS))
        })
    }

    /// Waits until the recorder has handled the doorbell's value `doorbell`. `longer` returns for
    /// how many nanoseconds to wait each time. Returns false when `longer` returns `None`.
    fn wait_while(&self, doorbell: u32, mut longer: impl FnMut() -> Option<u64>) -> bool {
        let acknowledged = self.field(offset_of!(HubHeader, acknowledged));
        loop {
            let seen = acknowledged.load(Acquire);
            if seen.wrapping_sub(doorbell).cast_signed() >= 0 {
                return true;
            }
            let Some(nanoseconds) = longer() else { return false };
            system::wait(acknowledged, seen, nanoseconds);
        }
    }

    /// Has the recorder write hooks into the files that the process has loaded, if it does that,
    /// and waits for it. Returns false if it hasn't in time.
    ///
    /// A thread of the process calls functions of the runtime meanwhile, possibly this one: it must
    /// not be in a part of the runtime that those enter.
    pub(crate) fn ask_for_hooks(&self) -> bool {
        if self.field(offset_of!(HubHeader, hooks)).load(Relaxed) == 0 {
            return true;
        }
        let pid = system::process_id();
        let deadline = system::clock_ns(system::CLOCK_MONOTONIC) + NAMES_WAIT_NS;
        let is_silent = self.field(offset_of!(HubHeader, silent));
        let is_in_vain = || {
            system::clock_ns(system::CLOCK_MONOTONIC) > deadline
                || is_silent.load(Relaxed) & (silence::LONG | silence::OVER) != 0
                || processes::process_has_ended(self.recorder_pid)
        };
        let places =
            || (0..ASKING).map(|place| self.field(offset_of!(HubHeader, asking) + place * size_of::<u32>()));
        let place = loop {
            let free = places().find(|place| place.compare_exchange(0, pid, AcqRel, Relaxed).is_ok());
            if let Some(place) = free {
                break place;
            }
            // Others have all places: each is answered in milliseconds.
            let first = self.field(offset_of!(HubHeader, asking));
            system::wait(first, first.load(Acquire), PLACE_WAIT_NS);
            if is_in_vain() {
                return false;
            }
        };
        let asked = self.field(offset_of!(HubHeader, asked));
        asked.fetch_add(1, Release);
        system::wake(asked);
        while place.load(Acquire) == pid {
            system::wait(place, pid, LOOK_NS);
            if place.load(Acquire) == pid && is_in_vain() {
                // A recorder that hasn't begun doesn't do so any more.
                return place.compare_exchange(pid, 0, AcqRel, Relaxed).is_err();
            }
        }
        true
    }

    /// Takes a spare arena. If there is none, the recorder gets a moment to make one.
    pub(crate) fn take(&self) -> Option<Spare> {
        let number = self.take_number().or_else(|| {
            // If no children are followed, there will be no more.
            let waits = self.follows();
            if waits {
                (self.wait_for(self.ring(), ARENA_WAIT_NS).then(|| self.take_number())).flatten()
            } else {
                None
            }
        })?;
        let file = disk::open_memory(&path(self.recorder_pid, number - 1)).ok()?;
        if !disk::is_spare(&file) {
            return None;
        }
        let mut bytes = [0; ArenaHeader::SIZE];
        if file.read(&mut bytes) != bytes.len() {
            return None;
        }
        let size = disk::size_of(&file)?;
        let header = ArenaHeader::read(&bytes).filter(|header| header.is_consistent(size))?;
        Some(Spare { file, header })
    }

    fn take_number(&self) -> Option<u32> {
        (0..SPARES)
            .map(|place| self.field(offset_of!(HubHeader, spares) + place * size_of::<u32>()))
            .filter(|place| place.load(Relaxed) != 0)
            .map(|place| place.swap(0, AcqRel))
            .find(|number| *number != 0)
    }

    /// Counts a process that should have been followed.
    pub(crate) fn count_untraced(&self) {
        self.field(offset_of!(HubHeader, untraced)).fetch_add(1, Relaxed);
    }

    /// Lists the calling process as one that isn't followed. `kind` is one of
    /// [`everycall_format::arena::child_kind`].
    pub(crate) fn list(&self, kind: u32) {
        let index = self.field(offset_of!(HubHeader, children)).fetch_add(1, Relaxed);
        if index >= self.child_capacity {
            return;
        }
        let mut name = [0; 40];
        for (place, byte) in name.iter_mut().zip(system::thread_name()) {
            *place = byte;
        }
        let entry = ChildEntry {
            pid: system::process_id(),
            parent: system::parent_id(),
            kind,
            reserved: 0,
            ticks: everycall_hooks::ticks(),
            name,
        };
        let offset = self.children_offset + u64::from(index) * ChildEntry::SIZE as u64;
        let place = self.base.wrapping_add(offset as usize);
        // SAFETY: within the hub by its checked layout; only this thread uses the place.
        entry.write(unsafe { core::slice::from_raw_parts_mut(place, ChildEntry::SIZE) });
    }
}

/// `/proc/PID/fd/NUMBER` with a zero behind it.
fn path(pid: u32, descriptor: u32) -> [u8; 40] {
    let mut path = [0; 40];
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        for byte in bytes {
            if let Some(place) = path.get_mut(length) {
                *place = *byte;
                length += 1;
            }
        }
    };
    put(b"/proc/");
    put_number(&mut put, pid);
    put(b"/fd/");
    put_number(&mut put, descriptor);
    path
}

fn put_number(put: &mut impl FnMut(&[u8]), number: u32) {
    let mut place = 1_000_000_000;
    let mut shown = false;
    while place > 0 {
        let digit = (number / place % 10) as u8;
        shown |= digit != 0 || place == 1;
        if shown {
            put(&[b'0' + digit]);
        }
        place /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_descriptors_of_processes_are_recorders() {
        assert_eq!(recorder_of(b"/proc/7/fd/10"), Some(7));
        assert_eq!(recorder_of(b"/proc/4194303/fd/0"), Some(4_194_303));
        for other in [
            &b""[..],
            b"/proc/",
            b"/proc//fd/1",
            b"/proc/self/fd/1",
            b"/proc/7/fd/",
            b"/proc/7/fd/1/x",
            b"/proc/7/fd/1x",
            b"/proc/7/fd/../1",
            b"/proc/7/cwd/1",
            b"/proc/7/fd/12345678901",
            b"/proc/12345678901/fd/1",
            b"proc/7/fd/1",
            b"/dev/shm/7/fd/1",
        ] {
            assert_eq!(recorder_of(other), None, "{:?}", core::str::from_utf8(other));
        }
    }

    #[test]
    fn paths_are_written_out() {
        assert!(path(7, 10).starts_with(b"/proc/7/fd/10\0"));
        assert!(path(4_194_303, 0).starts_with(b"/proc/4194303/fd/0\0"));
        assert!(path(u32::MAX, u32::MAX).starts_with(b"/proc/4294967295/fd/4294967295\0"));
    }
}
