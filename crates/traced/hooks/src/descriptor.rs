//! The structures that a traced object and the runtime of its process share.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64};
use everycall_ring::Control;

/// The slow path of the runtime: `(what, control, slot, address, stack pointer, module)`.
///
/// - `what`: a set of the flags in [`slow`], which say what happened;
/// - `control`: the thread's control block, or null if it has none yet;
/// - `slot`: the slot that the hook has reserved and not completed, or null. Exit hooks have
///   written the ticks (the slot's upper half) unless the clock's upper half has changed;
/// - `address`: an address in the function (sited and `fentry` hooks), or the function's own
///   address (`__cyg_profile`);
/// - `stack_pointer`: comparable with those in the open-call stack;
/// - `module`: the module to which the hook belongs.
pub type SlowCall =
    unsafe extern "C" fn(u32, *const Control, *const AtomicU64, u64, u64, *const ModuleDescriptor);

/// Number of stacks for the slow path, which all threads share.
pub const SLOW_STACKS: usize = 512;
/// Bytes of each stack. There is no guard page between two of them, so the deepest chain of calls
/// has to fit; a test follows all chains. What is left, several times as much, is for a handler of
/// a signal that isn't blocked. Only touched pages take memory.
pub const SLOW_STACK_SIZE: usize = 64 << 10;

/// Bytes at the upper end of such a stack that hooks use for themselves, without pushing or
/// popping: valgrind treats popped memory as undefined, and would report accesses to it.
pub const SLOW_FRAME_SIZE: usize = 288;

/// Bytes that the runtime keeps for each thread in thread-local memory. Hooks read the first word.
pub const THREAD_SLOT_SIZE: usize = 40;

/// Offset, in that memory, of the address of the control block of the thread's own stack.
pub const THREAD_HOME: usize = 8;

/// The signals that are blocked in the slow path: all except `SIGSYS`. If the program's seccomp
/// filter traps one of our system calls, the program's handler answers. If `SIGSYS` were blocked,
/// the trap would end the program.
pub const BLOCKED_SIGNALS: u64 = !(1 << 30);
/// The bit of `SIGTRAP`, which isn't blocked while the thread single-steps itself
/// ([`crate::is_stepping`]): a blocked trap would end the program.
pub const TRAP_SIGNAL: u64 = 1 << 4;

/// Flags that describe an event to the slow path.
pub mod slow {
    /// An exit; otherwise it is an entry.
    pub const EXIT: u32 = 1;
    /// The address is a function's start, and the stack pointer lies within its frame
    /// (`__cyg_profile` hooks). Otherwise, the stack pointer is that at the function's first
    /// instruction.
    pub const BODY: u32 = 2;
    /// The hook has raised the top of the open-call stack by one entry without filling it.
    pub const PUSHED: u32 = 4;
    /// An entry that is to be counted: in a process that only counts, or else one that the hook has
    /// recorded.
    pub const COUNT: u32 = 8;
    /// A frame by id: the address is `id * STEP`, and the module is that of these frames.
    pub const FRAME: u32 = 16;
}

/// A hash map of the functions whose short calls are counted, in private memory of the process:
/// those with the first [`everycall_format::dropped::FUNCTIONS`] places. (If all calls are counted,
/// hooks find the counts by [`ModuleDescriptor::places`].) An entry has a
/// code offset in its lower half and a place among the counts in its upper half. A function has the
/// first entry, from its hash on, that was free; entries are never emptied, so a search ends at the
/// first empty one. All zero is an empty map.
#[repr(C)]
#[derive(Debug)]
pub struct ShortMap {
    /// Not 0: no further function gets into the map.
    pub is_full: AtomicU32,
    /// Places that were given, also those that aren't in the map, without place 0.
    pub places: AtomicU32,
    /// The entries.
    pub entries: [AtomicU64; short_map::SIZE as usize],
}

/// [`ShortMap`].
pub mod short_map {
    use everycall_format::dropped::FUNCTIONS;

    /// Values of the hash. At most half as many entries are ever used.
    const HASHES: u32 = 2 * FUNCTIONS;
    /// Number of entries. There are more than hashes, because a search doesn't wrap around.
    pub const SIZE: u32 = HASHES + 64;
    /// The hash is the upper bits of a product with this.
    pub const FACTOR: u32 = 0x9e37_79b1;
    /// How far the product is shifted.
    pub const SHIFT: u32 = u32::BITS - HASHES.ilog2();
}

/// The word of a function whose events may be unstamped, as hooks read it. In bit 31,
/// [`EXIT_WITHOUT_STAMP`](everycall_format::arena::EXIT_WITHOUT_STAMP): exits may.
pub mod site {
    /// Entries may.
    pub const ENTRY: u32 = 1;
    /// The offset of the function's count in a thread's counts, in bytes. 0 if it has none.
    pub const COUNT: u32 = everycall_format::dropped::FUNCTIONS_MAX * 8 - 8;
}

/// [`ModuleDescriptor::on`]: calls are counted, or timed, and not recorded. A process sets it in
/// all modules that are on, or in none.
pub const COUNTS: u64 = 2;
/// [`ModuleDescriptor::on`]: all calls are counted.
pub const COUNT_ALL: u64 = COUNTS | 1;

/// [`ModuleDescriptor::on`]: behind the bits are others, as many, of the functions whose values are
/// copied at their entries.
pub const CAPTURES: u64 = 4;

/// The descriptor of a traced object. At first it is all zero. The object's initialiser fills in
/// what the object knows, and the runtime fills in the rest when it registers the object.
#[repr(C)]
#[derive(Debug)]
pub struct ModuleDescriptor {
    /// Offset of the thread-local slot from the thread pointer.
    pub thread_slot: AtomicU64,
    /// Subtracted from addresses to get code offsets of entries.
    pub bias_entry: AtomicU32,
    /// Subtracted from addresses to get code offsets of exits, including the exit bit.
    pub bias_exit: AtomicU32,
    /// The action of hooks that are always called (`__fentry__`, `__cyg_profile`):
    ///
    /// - 0: nothing;
    /// - 1: record everything;
    /// - [`COUNT_ALL`]: count everything;
    /// - otherwise: the address of bits, one for each byte of the object: record the functions
    ///   whose bits are set, or count them if [`COUNTS`] is set in the address. [`CAPTURES`] may be
    ///   set in it. The bits stay as long as the object is loaded.
    pub on: AtomicU64,
    /// Where hooks find the function's word of [`site`], at twice the lower half of its entry's
    /// word. 0: hooks read the clock for each event.
    pub unstamped: AtomicU64,
    /// Offset, from the thread pointer, of the word that the kernel clears when it stops the thread
    /// or delivers a signal to it (`rseq_cs`).
    pub guard_offset: AtomicU64,
    /// The value that hooks write there: the address of the object's sequence.
    pub guard: AtomicU64,
    /// The runtime's slow path.
    pub slow: AtomicU64,
    /// Address of the list of stacks for the slow path: [`SLOW_STACKS`] words, each the highest
    /// address of an unused stack, or 0.
    pub slow_stacks: AtomicU64,
    /// First address of the object, for hooks that get addresses.
    pub start: AtomicU64,
    /// Bytes of the object in memory.
    pub size: AtomicU64,

    /// [`everycall_format::site::RUNTIME_ABI`](../everycall_format/site/constant.RUNTIME_ABI.html).
    pub abi: AtomicU32,
    /// Index in the runtime's module table.
    pub index: AtomicU32,
    /// The object's ELF header in memory.
    pub elf_header: AtomicU64,
    /// Sites of mode `nops`: address of the first one, and of the end of the last. 0 if there are
    /// none.
    pub sites: [AtomicU64; 2],
    /// XRay sleds: address of the first one, and of the end of the last. 0 if there are none.
    pub sleds: [AtomicU64; 2],
    /// The object's entry hook.
    pub entry_hook: AtomicU64,
    /// The object's exit hook.
    pub exit_hook: AtomicU64,
    /// The object's hook for tail exits of armed functions, which always takes the slow path. (In
    /// objects of older versions it is the exit hook.)
    pub tail_exit_hook: AtomicU64,
    /// The object's entry hook in processes that count.
    pub count_hook: AtomicU64,
    /// The object's entry hook in processes that time calls.
    pub time_entry_hook: AtomicU64,
    /// The object's exit hook there.
    pub time_exit_hook: AtomicU64,
    /// Not 0 in processes that time calls: what hooks do where [`COUNTS`] is set.
    pub times: AtomicU64,
    /// In processes that count, the distance from a function's address, as its entry hook gets it,
    /// to a `u32`: the offset of the function's count in a thread's counts, in bytes, or of its
    /// [times](everycall_format::times) in a thread's; 0 if the
    /// function has none yet. (The addresses of two functions are at least five bytes apart,
    /// because each contains the call of a hook. So these words don't overlap.)
    pub places: AtomicU64,
    /// In processes that record, the same for the [counts of all
    /// calls](everycall_format::all_calls); 0 if the module's calls aren't counted.
    pub recorded_places: AtomicU64,

    /// The restartable sequence of the object's hooks: where it begins, where it ends, and where
    /// threads go on that the kernel has stopped in it.
    pub sequence: [AtomicU64; 3],
    /// The object's entry hook in processes in which events may go without a stamp.
    pub unstamped_entry_hook: AtomicU64,
    /// The object's exit hook there.
    pub unstamped_exit_hook: AtomicU64,
    /// Where `__return__` continues. It tests [`ModuleDescriptor::unstamped`].
    pub called_exit_hook: AtomicU64,
    /// The entry and the exit hook of XRay's sleds that aren't in the place of a `ret`. A thread may
    /// have been stopped right before such a sled's call, so it is never led to another hook; these
    /// test [`ModuleDescriptor::unstamped`].
    pub sled_hooks: [AtomicU64; 2],

    /// The object's entry hook for functions whose values are copied there, which continues in the
    /// slow path. In objects with XRay's interface it is the entry hook.
    pub capture_entry_hook: AtomicU64,
    /// The object's exit hook for these.
    pub capture_exit_hook: AtomicU64,
    /// Address of what is copied at the object's functions, which begins with a
    /// [`CapturePlaces`]; or 0.
    pub captures: AtomicU64,
    /// The runtime's function that records an event with values that hooks don't copy themselves,
    /// on the thread's own stack:
    /// `(control, address behind the hook's call, the hook's stack pointer, module, is an exit)`.
    /// It returns 0, or 1 if the slow path has to do it, or 2 if the slow path has to count the
    /// call.
    pub capture: AtomicU64,

    /// The object's [trampolines](everycall_format::trampoline), which call its hooks: where they
    /// begin and end. 0 if its own code calls them.
    pub region: [AtomicU64; 2],
    /// Checksum of the table that leads from trampolines to functions.
    pub trampolines: AtomicU64,
}

/// Where capture hooks find what is copied: a hash table of places.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CapturePlaces {
    /// Address of the table. At least one place is free.
    pub table: u64,
    /// The number of places minus 1; it is a power of two.
    pub mask: u32,
}

impl CapturePlaces {
    /// The place from which on an address is looked for.
    #[must_use]
    pub fn first(behind: u64, mask: u32) -> u32 {
        (behind as u32).wrapping_mul(Self::FACTOR) >> Self::SHIFT & mask
    }

    /// See [`CapturePlaces::first`].
    pub const FACTOR: u32 = 0x9e37_79b1;
    /// See [`CapturePlaces::first`].
    pub const SHIFT: u32 = 7;
}

/// The call of a hook that copies values. All zero is a free place.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturePlace {
    /// The address behind the call.
    pub behind: u64,
    /// Where its [`Copies`] are, in bytes from the [`CapturePlaces`]; 0 if the hook can't do it by
    /// itself.
    pub copies: u32,
    /// The programs that copy values, as the runtime numbers them; 0 if there are none.
    pub program: u32,
    /// The hook is called at an exit.
    pub is_exit: bool,
    /// Calls of the function are left out if a condition is false.
    pub is_conditional: bool,
}

/// The values that a hook copies by itself. Behind it are its tests, and then its items, or (if
/// [`copies::WORDS`] is set) the places of its words, as [`CopyTest::at`], but in 16 bits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copies {
    /// The lower half of the first word of the record with the values. If there are items, without
    /// its number of words.
    pub first_word: u32,
    /// The capture's id.
    pub id: u32,
    /// A set of [`copies`].
    pub flags: u32,
    /// Number of tests.
    pub tests: u32,
    /// Number of items.
    pub items: u32,
    /// Words of the record, if there are no items; 0 if nothing is copied.
    pub words: u32,
    /// Bytes of the capture, if there are no items.
    pub bytes: u32,
    /// Zero.
    pub reserved: u32,
    /// Address of a table of [`COPY_PAGES`] addresses of pages that can be read, each at a place by
    /// its number.
    pub pages: u64,
}

/// Number of pages in [`Copies::pages`]; a power of two.
pub const COPY_PAGES: usize = 256;
/// Limit on the bytes of values that are copied on the thread's own stack, where there is little
/// room: longer captures take the slow path.
pub const COPY_ROOM: usize = 160;

/// [`Copies::flags`].
pub mod copies {
    /// At an exit; otherwise at an entry.
    pub const EXIT: u32 = 1;
    /// Calls of the function may be left out, so that the call which ends may not be open.
    pub const CONDITIONAL: u32 = 2;
    /// There is a value in a vector register.
    pub const VECTORS: u32 = 4;
    /// There are no items, but words of 4 bytes in registers.
    pub const WORDS: u32 = 8;
}

/// A test that a call has to pass. The function's calls are left out otherwise.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CopyTest {
    /// Where the value is, in bytes from the hook's stack pointer while it copies.
    pub at: u32,
    /// Zero.
    pub reserved: u32,
    /// The value times this has the bits that count at its upper end, and zeros below.
    pub factor: u64,
    /// Subtracted from that.
    pub first: u64,
    /// The result is at most this.
    pub span: u64,
}

/// A value to copy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CopyItem {
    /// As [`CopyTest::at`].
    pub at: u32,
    /// Bytes; of a text, at most, and a multiple of 16.
    pub size: u16,
    /// One of [`copied`].
    pub what: u16,
}

/// [`CopyItem::what`].
pub mod copied {
    /// A register that the hook has saved.
    pub const SAVED: u16 = 0;
    /// As [`SAVED`], without a status.
    pub const WORD: u16 = 1;
    /// The text at the address in such a register.
    pub const TEXT: u16 = 2;
    /// A word of the function's stack, above its stack pointer.
    pub const STACK: u16 = 3;
}

/// A callback of the program that takes bytes: `(context, bytes, count)`. Writing stops if it
/// doesn't return 0.
pub type ByteSink = unsafe extern "C" fn(*mut c_void, *const u8, usize) -> i32;

/// How modules and the program itself find the runtime of their process: the dynamic symbol
/// `everycall_runtime_v1`. The fields after `unregister` are for `everycall.h`, which declares the
/// same structure. `size` says how much of it exists. Functions return 0 or one of the header's
/// error codes, which are negative.
#[repr(C)]
#[derive(Debug)]
pub struct RuntimeTable {
    /// Version: `RUNTIME_ABI`.
    pub abi: u32,
    /// Bytes of this table.
    pub size: u32,
    /// Registers a module: assigns its range of the code space, and switches its sites on.
    pub register: unsafe extern "C" fn(*const ModuleDescriptor),
    /// Unregisters a module that is about to be unloaded.
    pub unregister: unsafe extern "C" fn(*const ModuleDescriptor),

    /// `(class, has a value, name, value, frame)`: a label, instant or span of the calling thread.
    /// *Frame* is the result of `__builtin_frame_address(0)` in the function that calls this.
    pub mark: unsafe extern "C" fn(u32, u32, *const u8, u64, u64) -> i32,
    /// Ticks per second.
    pub ticks_per_second: unsafe extern "C" fn() -> u64,
    /// `(record, frame)`: excludes the calling thread, or records it again.
    pub record_thread: unsafe extern "C" fn(u32, u64) -> i32,
    /// `(record, frame)`: switches tracing off or on for the process.
    pub record_process: unsafe extern "C" fn(u32, u64) -> i32,
    /// `(bytes)`: sets the size of the calling thread's ring.
    pub ring_size: unsafe extern "C" fn(u64) -> i32,
    /// `(since, result)`: takes a snapshot of all threads, from `since` (ticks) on. Stores its
    /// handle in `result`.
    pub snapshot: unsafe extern "C" fn(u64, *mut u64) -> i32,
    /// `(snapshot, descriptor, path, callback, context)`: writes a trace file to the callback, or
    /// to the path if the callback is null, or to the descriptor if both are null.
    pub snapshot_write: unsafe extern "C" fn(u64, i32, *const u8, Option<ByteSink>, *mut c_void) -> i32,
    /// Frees a snapshot.
    pub snapshot_free: unsafe extern "C" fn(u64) -> i32,

    /// `(what, stack pointer, name)`, from the kit's wrappers:
    ///
    /// - something is thrown (`label::THROW`);
    /// - a handler or a cleanup is entered (`CATCH`, `CLEANUP`);
    /// - the program jumps (0);
    /// - further events, which `entry::unwinding` of the runtime lists.
    ///
    /// *Stack pointer* is the one with which the program continues, or the one at the throw. *Name*
    /// is the exception's type as the C++ ABI writes it, or null; for a cleanup, it is its
    /// function's address.
    pub unwinding: unsafe extern "C" fn(u32, u64, *const u8),

    /// `(what, low, size, name)`, from the kit's wrappers and `everycall.h`:
    ///
    /// - 0: registers a stack, on which something new begins unless the caller runs on it;
    /// - 1: unregisters a stack;
    /// - 2: names the fiber that the caller runs.
    ///
    /// *Name* may be null.
    pub fiber: unsafe extern "C" fn(u32, u64, u64, *const u8) -> i32,

    /// `(flags)`, from the kit's wrapper of `mlockall`, with its flags, `MCL_CURRENT` among them:
    /// locks all memory except the runtime's own. Returns 0 or a positive error of the kernel.
    pub lock_memory: unsafe extern "C" fn(u32) -> i32,

    /// `(what, stack pointer, name, function)`, from the kit's wrappers, as `unwinding`: the
    /// unwinder enters a frame of the function at this address (0 if it isn't known), to clean up
    /// or to catch. The stack pointer is lower than the frame's if arguments have been pushed.
    pub landing: unsafe extern "C" fn(u32, u64, *const u8, u64),

    /// `(nanoseconds)`: from now on, calls that take less and call nothing that is recorded are
    /// dropped. 0: every call is recorded.
    pub min_duration: unsafe extern "C" fn(u64) -> i32,

    /// `(operation, object, ...)`, from the kit's XRay interface (`wrappers/xray.c`): for
    /// its functions, and for events for which a handler may be set.
    pub xray: unsafe extern "C" fn(u32, *mut XrayObject, u64, u64, u64) -> u64,

    /// Not 0 while tracing is off for the process. The header reads it in place of a call.
    pub off: &'static AtomicU32,
    /// `(what, name, value, stack pointer)`: as `mark`. *What* is the class, with
    /// [`everycall_format::label::NO_VALUE`], and above bit 8 the length of the name plus 1, or 0
    /// if it isn't known. *Stack pointer* is the one in the function that calls this.
    pub quick_mark: unsafe extern "C" fn(u32, *const u8, u64, u64) -> i32,
    /// `(format, types, arguments, stack pointer)`: a log line, see [`everycall_format::log_line`].
    pub log: unsafe extern "C" fn(*const u8, u32, *const u64, u64) -> i32,
    /// `(what, addresses, count, result)`: leaves the functions that contain these addresses out
    /// (0), or takes them back (1). Writes what it found to `result`, unless that is null.
    pub functions: unsafe extern "C" fn(u32, *const u64, u64, *mut Switched) -> i32,
    /// `(path)`: from now on, records the functions of the selection in this file, as
    /// `everycall resolve --only` writes it; all functions if it is null.
    pub select: unsafe extern "C" fn(*const u8) -> i32,

    /// `(what, bytes allocated, bytes freed, frame)`, from the library that counts allocations: an
    /// allocator was called. *What* is a set of [`memory_change`]. *Frame* is the result of
    /// `__builtin_frame_address(0)` in the function that the program has called.
    pub memory: unsafe extern "C" fn(u32, u64, u64, u64),
    /// 2 if allocations aren't counted. Read in place of calls of `memory`.
    pub memory_wanted: &'static AtomicU32,

    /// `(id)`: a [frame by id](everycall_format::frame) begins: the hook itself.
    pub frame_enter: unsafe extern "C" fn(u64),
    /// `(id)`: it ends.
    pub frame_leave: unsafe extern "C" fn(u64),
    /// `(what, id, text, file, line)`: something about a frame by id or a thread, one of [`frame`].
    /// *Text* and *file* are C strings or null.
    pub frame: unsafe extern "C" fn(u32, u32, *const u8, *const u8, u32) -> i32,

    /// `(what, limits)`, from the kit's wrappers of `setrlimit` and functions like it, of the limit of
    /// address space: changes the soft and the hard limit that the program sets (0) into those that
    /// the kernel gets, or those that the kernel has (1) into what the program has set.
    pub address_space: unsafe extern "C" fn(u32, *mut u64),

    /// `(what)`, from `everycall`: an [object with
    /// trampolines](everycall_format::trampoline::Adopted), whose code doesn't lead to them yet.
    /// Registers it.
    pub adopt: unsafe extern "C" fn(*const u8),

    /// `(stack pointer, name, text)`, from the kit's wrappers, as `unwinding`: something is thrown
    /// that has a text, a C string.
    pub thrown: unsafe extern "C" fn(u64, *const u8, *const u8),
}

const _: () = assert!(
    core::mem::offset_of!(RuntimeTable, adopt) == everycall_format::trampoline::ADOPT_OFFSET as usize
);

/// First argument of [`RuntimeTable::frame`].
pub mod frame {
    /// Names an id: its name, the file and line that define it.
    pub const NAME: u32 = 0;
    /// The innermost frame of this id is left by an exception; the text is its type.
    pub const UNWIND: u32 = 1;
    /// Whether a call of this id that begins now is recorded: 1 or 0.
    pub const IS_RECORDED: u32 = 2;
    /// So many frames, which the line is, ended on a stack of calls on which they hadn't begun.
    pub const MISPLACED: u32 = 3;
    /// Names a thread, whose kernel id stands for that of a frame.
    pub const THREAD: u32 = 4;
}

/// First argument of [`RuntimeTable::memory`].
pub mod memory_change {
    /// A block was allocated.
    pub const ALLOCATED: u32 = 1;
    /// A block was freed.
    pub const FREED: u32 = 2;
    /// Nothing was; the other bits are `everycall_format::memory::facts`.
    pub const FACTS: u32 = 1 << 31;
}

/// The result of [`RuntimeTable::functions`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Switched {
    /// Functions.
    pub functions: u32,
    /// Their sites; 0 where hooks are always called.
    pub sites: u32,
    /// Sites that could not be switched.
    pub not_switched: u32,
}

/// An object that contains the kit's XRay interface. The object's hooks read the first fields.
#[repr(C)]
#[derive(Debug)]
pub struct XrayObject {
    /// Not 0: a handler is set, so hooks call the runtime before they record.
    pub active: AtomicU64,
    /// Three words that the hooks use to save registers.
    pub saving: [AtomicU64; 3],
    /// The object's [`ModuleDescriptor`].
    pub module: AtomicU64,
    /// Section `xray_fn_idx`: its beginning and end. 0 if there is none.
    pub functions: [AtomicU64; 2],
    /// Its number, plus 1; 0 before it is registered.
    pub number: AtomicU64,
}

/// An event of such an object. Its hook fills in `before` and `kind`, the runtime the rest.
#[repr(C)]
#[derive(Debug)]
pub struct XrayCall {
    /// The handler to call, or 0.
    pub handler: u64,
    /// The hook's stack pointer. The runtime replaces it by the stack pointer of
    /// the hook whose handler was running before, which is restored afterwards, or by 0.
    pub before: u64,
    /// The function's id.
    pub id: u32,
    /// The type of the event, as XRay numbers them.
    pub kind: u32,
    /// Not 0: the handler also takes the function's first argument.
    pub has_argument: u32,
    /// Not 0: the event is recorded.
    pub is_recorded: u32,
}
