//! Snapshots that a signal asks for (`EVERYCALL_SNAPSHOT_SIGNAL`).
//!
//! The handler starts a thread that lives as long as the snapshot is taken and written, and returns at once. A thread and not a process: a
//! process would be a zombie until somebody waits for it, and a child of the program where that is the first process of its container or adopts
//! orphans. It has all signals blocked, no descriptor of the program's (a table of its own, emptied), no part in its
//! scheduling class, and it needs no thread-local storage and nothing of the C library.
//!
//! The file has no name until it is whole: a program that ends meanwhile leaves nothing.

use crate::api;
use crate::file::{File, errno};
use crate::folder::{Folder, Name};
use crate::process::Process;
use crate::snapshot::{self, Sink};
use crate::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::{PAGE, counter};
use everycall_format::ect;

/// Bytes of the thread's stack.
const STACK_SIZE: u64 = 128 << 10;
/// Files of one process.
const NUMBER_MAX: u32 = 1_000_000;
/// Shares everything but the table of descriptors; the kernel says when it is gone.
const FLAGS: usize = 0x100 | 0x200 | 0x800 | 0x1_0000 | 0x4_0000 | 0x20_0000;

static FOLDER: Folder = Folder::new();
/// Upper end of the stack, of which there is one for all snapshots; 0 where no signal is meant.
static STACK: AtomicU64 = AtomicU64::new(0);
/// Number of the last file.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Makes `signal` write snapshots into `folder`. False where there is no such folder.
pub(crate) fn arm(signal: u32, folder: &[u8]) -> bool {
    if !FOLDER.set(folder) || File::open_folder_or_link(FOLDER.path()).is_err() {
        return false;
    }
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let Some(stack) = system::map(STACK_SIZE + PAGE, PROT_READ | PROT_WRITE, flags, -1) else { return false };
    // What is below the stack must be nobody's.
    system::protect(stack as u64, PAGE, 0);
    STACK.store(stack as u64 + PAGE + STACK_SIZE, Relaxed);
    #[cfg(any(feature = "executable", feature = "shared"))]
    system::handle_signal(signal, snapshot_signal_arrived, everycall_hooks::handler_end());
    let _ = signal;
    true
}

/// The handler; all signals are blocked in it.
unsafe extern "C" fn snapshot_signal_arrived(_: c_int) {
    // A forked child that makes no traced call has nothing to show.
    let Some(process) = api::traced() else { return };
    let helper = &process.signal_helper;
    if helper.compare_exchange(0, u32::MAX, AcqRel, Relaxed).is_err() {
        process.arena().count(counter::SIGNALS_BUSY, 1);
        return;
    }
    let argument = core::ptr::from_ref(process) as u64;
    // SAFETY: the stack is whose who has set the mark above, which the kernel takes away when the thread is gone.
    let started = unsafe {
        everycall_hooks::spawn(FLAGS, STACK.load(Relaxed), helper.as_ptr(), snapshot_thread, argument)
    };
    if started < 0 {
        process.arena().count(counter::SIGNALS_FAILED, 1);
        helper.store(0, Release);
    }
}

/// The thread.
unsafe extern "C" fn snapshot_thread(process: u64) {
    system::close_all();
    system::be_ordinary();
    // SAFETY: the process that the handler has found; it stays.
    let process = unsafe { &*(process as *const Process) };
    if write(process).is_none() {
        process.arena().count(counter::SIGNALS_FAILED, 1);
    }
}

/// Takes a snapshot and writes it.
fn write(process: &'static Process) -> Option<()> {
    let taken = snapshot::take(process, 0).ok()?;
    let written = write_file(process, taken);
    // It is ours, and nobody else knows of it.
    let _ = snapshot::free(process, taken);
    written
}

fn write_file(process: &'static Process, taken: u64) -> Option<()> {
    let folder = File::open_folder_or_link(FOLDER.path()).ok()?;
    let unnamed = folder.create_unnamed_in();
    if let Ok(file) = unnamed {
        snapshot::write(process, taken, Sink::File(file.descriptor())).ok()?;
        return name_it(|name| file.give_name(&folder, name));
    }
    // A file system without such files: one that is cut stays where the program ends meanwhile.
    let mut made: Option<(File, Name)> = None;
    name_it(|name| {
        made = Some((folder.create_in(name.text())?, name.clone()));
        Ok(())
    })?;
    let (file, name) = made?;
    let written = snapshot::write(process, taken, Sink::File(file.descriptor()));
    if written.is_err() {
        folder.remove_in(name.text());
    }
    written.ok()
}

/// Finds a name that nobody has: NAME-PID-NUMBER.ect.
fn name_it(mut give: impl FnMut(&Name) -> Result<(), isize>) -> Option<()> {
    loop {
        let number = NUMBER.fetch_add(1, Relaxed) + 1;
        let mut name = Name::of_process();
        name.put(b"-");
        name.put_number(number);
        name.put(ect::ENDING.as_bytes());
        match give(&name) {
            Ok(()) => return Some(()),
            Err(errno::EEXIST) if number < NUMBER_MAX => {}
            Err(_) => return None,
        }
    }
}
