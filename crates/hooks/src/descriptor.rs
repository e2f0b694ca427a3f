//! What a traced object and the runtime of its process know of each other.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64};
use everycall_ring::Control;

/// The slow path of the runtime: `(what, control, slot, address, stack pointer, module)`.
///
/// - `what`: a set of [`slow`];
/// - `control`: the thread's control block, null where it has none yet;
/// - `slot`: the slot that the hook has reserved and not written, null where there is none; exit
///   hooks have written the ticks (its upper half) unless the clock's upper half has changed;
/// - `address`: an address in the function (sited and `fentry` hooks), or the function's
///   (`__cyg_profile`);
/// - `stack_pointer`: comparable with those in the open-call stack;
/// - `module`: whose hook it was.
pub type SlowCall =
    unsafe extern "C" fn(u32, *const Control, *const AtomicU64, u64, u64, *const ModuleDescriptor);

/// Stacks for the slow path.
pub const SLOW_STACKS: usize = 512;
/// Bytes of each. Nothing lies between two of them, so the deepest chain of calls has to fit: the
/// tests follow all of them. A handler of a signal that isn't blocked has the rest, several times
/// as much. Memory is what is touched.
pub const SLOW_STACK_SIZE: usize = 64 << 10;

/// Bytes at the upper end of such a stack that hooks take for themselves, and write to without
/// pushing them. valgrind takes what was popped for gone, and would complain about them: nothing
/// else is pushed and popped there.
pub const SLOW_FRAME_SIZE: usize = 288;

/// Bytes of what the runtime keeps for each thread in thread-local memory; hooks read the first
/// word.
pub const THREAD_SLOT_SIZE: usize = 32;

/// The set of signals that are blocked in the slow path: all but `SIGSYS`. Where a filter of system
/// calls traps one of ours, the program's handler answers it; a blocked one would end the program.
pub const BLOCKED_SIGNALS: u64 = !(1 << 30);
/// That of `SIGTRAP`, which isn't where the thread steps through itself ([`crate::is_stepping`]): a
/// blocked trap would end the program.
pub const TRAP_SIGNAL: u64 = 1 << 4;

/// What happened, for the slow path.
pub mod slow {
    /// An exit (else an entry).
    pub const EXIT: u32 = 1;
    /// The address is a function's start, and the stack pointer one within its frame
    /// (`__cyg_profile` hooks); else the stack pointer is that at the function's first instruction.
    pub const BODY: u32 = 2;
    /// The hook has raised the top of the open-call stack by one entry without filling it.
    pub const PUSHED: u32 = 4;
}

/// A traced object. Lies blank in the object's zeroed memory; its initialiser fills in what the
/// object knows, the runtime the rest when it registers the object.
#[repr(C)]
#[derive(Debug)]
pub struct ModuleDescriptor {
    /// Place of the thread-local slot, from the thread pointer.
    pub thread_slot: AtomicU64,
    /// Subtracted from addresses to get code offsets of entries.
    pub bias_entry: AtomicU32,
    /// The same for exits, with the exit bit.
    pub bias_exit: AtomicU32,
    /// Not 0: hooks that are always called (`__fentry__`, `__cyg_profile`) record.
    pub on: AtomicU64,
    /// The runtime's slow path.
    pub slow: AtomicU64,
    /// Where the stacks for the slow path are listed: [`SLOW_STACKS`] words, each the highest
    /// address of a stack that nobody is on, or 0.
    pub slow_stacks: AtomicU64,
    /// First address of the object, for hooks that are handed addresses.
    pub start: AtomicU64,
    /// Bytes of the object in memory.
    pub size: AtomicU64,

    /// [`everycall_format::site::RUNTIME_ABI`](../everycall_format/site/constant.RUNTIME_ABI.html).
    pub abi: AtomicU32,
    /// Index in the runtime's module table.
    pub index: AtomicU32,
    /// The object's ELF header in memory.
    pub elf_header: AtomicU64,
    /// Sites of mode `nops`: first and behind the last; 0 where there are none.
    pub sites: [AtomicU64; 2],
    /// XRay sleds: first and behind the last; 0 where there are none.
    pub sleds: [AtomicU64; 2],
    /// The object's entry hook.
    pub entry_hook: AtomicU64,
    /// The object's exit hook.
    pub exit_hook: AtomicU64,
    /// The object's tail-exit hook.
    pub tail_exit_hook: AtomicU64,
}

/// A function of the program's that takes bytes: `(context, bytes, count)`; anything but 0 ends the
/// writing.
pub type ByteSink = unsafe extern "C" fn(*mut c_void, *const u8, usize) -> i32;

/// How modules and the program itself find the runtime of their process: the dynamic symbol
/// `everycall_runtime_v1`. What follows `unregister` is for `everycall.h`, which declares the same;
/// `size` says how much of it is there. Results are 0 or one of the header's error codes, negative.
#[repr(C)]
#[derive(Debug)]
pub struct RuntimeTable {
    /// Version: `RUNTIME_ABI`.
    pub abi: u32,
    /// Bytes of this table.
    pub size: u32,
    /// Takes a module in: sets its place in the code space, switches its sites on.
    pub register: unsafe extern "C" fn(*const ModuleDescriptor),
    /// The module is about to be unloaded.
    pub unregister: unsafe extern "C" fn(*const ModuleDescriptor),

    /// `(class, has a value, name, value, frame)`: a label, instant or span of the calling thread.
    /// *Frame* is what `__builtin_frame_address(0)` is in the function that calls this.
    pub mark: unsafe extern "C" fn(u32, u32, *const u8, u64, u64) -> i32,
    /// Ticks in a second.
    pub ticks_per_second: unsafe extern "C" fn() -> u64,
    /// `(record, frame)`: leaves the calling thread out, or takes it back.
    pub record_thread: unsafe extern "C" fn(u32, u64) -> i32,
    /// `(record, frame)`: switches tracing off or on for the process.
    pub record_process: unsafe extern "C" fn(u32, u64) -> i32,
    /// Bytes of the calling thread's ring.
    pub ring_size: unsafe extern "C" fn(u64) -> i32,
    /// `(since, result)`: takes a snapshot of all threads, from `since` (ticks) on. Its handle goes
    /// to `result`.
    pub snapshot: unsafe extern "C" fn(u64, *mut u64) -> i32,
    /// `(snapshot, descriptor, path, callback, context)`: writes a trace file, to the callback
    /// unless it is null, else to the path unless it is null, else to the descriptor.
    pub snapshot_write: unsafe extern "C" fn(u64, i32, *const u8, Option<ByteSink>, *mut c_void) -> i32,
    /// Frees a snapshot.
    pub snapshot_free: unsafe extern "C" fn(u64) -> i32,

    /// `(what, stack pointer, name)`, from the kit's wrappers: something is thrown
    /// (`label::THROW`), a handler or a cleanup is entered (`CATCH`, `CLEANUP`), or the program
    /// jumps (0). *Stack pointer* is what it is where the program goes on, or was where it threw;
    /// *name* is the exception's type as the C++ ABI writes it, or null; of a cleanup, its
    /// function's address.
    pub unwinding: unsafe extern "C" fn(u32, u64, *const u8),

    /// `(what, low, size, name)`, from the kit's wrappers and `everycall.h`: something new begins
    /// on a stack, unless the caller runs it (0); its memory is no stack any more (1); the context
    /// that the caller runs has this name (2). *Name* may be null.
    pub fiber: unsafe extern "C" fn(u32, u64, u64, *const u8) -> i32,

    /// `(flags)`, from the kit's wrapper of `mlockall`, whose flags these are, `MCL_CURRENT` among
    /// them: locks all memory but the runtime's own. 0 or an error of the kernel's, positive.
    pub lock_memory: unsafe extern "C" fn(u32) -> i32,

    /// `(what, stack pointer, name, function)`, from the kit's wrappers, as `unwinding`: the
    /// unwinder enters a frame of the function at this address (0 where that isn't known), to clean
    /// up or to catch. Less than the frame's stack pointer is told where arguments have been
    /// pushed.
    pub landing: unsafe extern "C" fn(u32, u64, *const u8, u64),
}
