//! Snapshots on a signal (`EVERYCALL_SNAPSHOT_SIGNAL`).
//!
//! The handler starts a [helper] that takes and writes the snapshot, and returns at once.
#![allow(unsafe_code)] // A signal handler, and a thread that gets the process by its address.

use crate::features::snapshot;
use crate::state::process::{self, Process};
use crate::sys::file::File;
use crate::sys::folder::Folder;
use crate::sys::helper::{self, Stack, Started};
use crate::sys::processes;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use everycall_format::arena::counter;
use everycall_format::ect;

/// The highest file number of a process.
const NUMBER_MAX: u32 = 1_000_000;

static FOLDER: Folder = Folder::new();
/// One stack for all snapshots.
static STACK: Stack = Stack::new();
/// Number of the last file.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Makes `signal` write snapshots into `folder`. Returns false if there is no such folder.
pub(crate) fn arm(signal: u32, folder: &[u8]) -> bool {
    if !FOLDER.set(folder) || File::open_folder_or_link(FOLDER.path()).is_err() || !STACK.map() {
        return false;
    }
    #[cfg(any(feature = "executable", feature = "shared"))]
    crate::sys::system::handle_signal(signal, snapshot_signal_arrived, everycall_hooks::handler_end());
    let _ = signal;
    true
}

/// The handler; all signals are blocked in it.
unsafe extern "C" fn snapshot_signal_arrived(_: c_int) {
    // A forked child that makes no traced call has nothing to show.
    let Some(process) = process::traced() else { return };
    let argument = core::ptr::from_ref(process) as u64;
    match helper::start(&STACK, &process.signal_helper, snapshot_thread, argument) {
        Started::Yes => {}
        Started::Busy => process.arena().count(counter::SIGNALS_BUSY, 1),
        Started::Failed => process.arena().count(counter::SIGNALS_FAILED, 1),
    }
}

/// Runs in the helper thread.
unsafe extern "C" fn snapshot_thread(process: u64) {
    helper::begin();
    // SAFETY: the process that the handler has found; it is never unmapped.
    let process = unsafe { &*(process as *const Process) };
    if write(process).is_none() {
        process.arena().count(counter::SIGNALS_FAILED, 1);
    }
}

/// Takes a snapshot and writes it to NAME-PID-NUMBER.ect.
fn write(process: &'static Process) -> Option<()> {
    let taken = snapshot::take(process, 0).ok()?;
    let name = || {
        let number = NUMBER.fetch_add(1, Relaxed) + 1;
        let mut name = processes::file_name();
        name.put(b"-");
        name.put_number(number);
        name.put(ect::ENDING.as_bytes());
        (number < NUMBER_MAX).then_some(name)
    };
    let written = snapshot::write_new(&FOLDER, name, |sink| snapshot::write(process, taken, sink));
    // The snapshot is ours, and no other thread knows of it.
    let _ = snapshot::free(process, taken);
    written.map(|_| ())
}
