//! What the program itself asks for, through `everycall.h`. Results are 0 or one of [`error`].
//!
//! Each function may be called anywhere, also in a signal handler: nothing here waits for another thread, and the calling
//! thread's signals are blocked while its ring is changed.

use crate::open_calls::Frame;
use crate::process::{self, Process, state as process_state};
use crate::slow::Thread;
use crate::snapshot::{self, Sink};
use crate::{contexts, modules, pause, slow_stacks, start, system, threads};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::env::{RING_SIZE_MAX, RING_SIZE_MIN};
use everycall_format::label::{self, NAME_MAX};
use everycall_hooks::ByteSink;
use everycall_ring::{Control, state};

/// As in `everycall.h`; the texts stand there.
pub(crate) mod error {
    pub(crate) const NOT_TRACED: i32 = -1;
    pub(crate) const ARGUMENT: i32 = -2;
    pub(crate) const BUSY: i32 = -3;
    pub(crate) const NO_THREAD: i32 = -4;
    pub(crate) const NO_ROOM: i32 = -5;
    // -6 was that of a process that was started off, -7 is the header's own.
    pub(crate) const NO_MEMORY: i32 = -8;
    pub(crate) const CALLBACK: i32 = -9;
    pub(crate) const NO_FOLDER: i32 = -10;
    pub(crate) const NOT_ALLOWED: i32 = -11;
    pub(crate) const DISK_FULL: i32 = -12;
    pub(crate) const WRITE: i32 = -13;
    pub(crate) const TOO_MANY_STACKS: i32 = -14;
}

/// Words before a label: epoch 2, gap 5.
const WORDS_BEFORE: usize = 7;
/// From `__builtin_frame_address(0)` of a function that was called in a frame, to the stack pointer that a hook called in the same
/// place would have: the return address is 8 above the one, and 32 above the other.
const HOOK_BELOW_FRAME: u64 = 24;
/// Rates are counted in so many bits.
const RATE_BITS: u32 = 33;
/// Ticks in a second as long as nothing is known of them.
const RATE_UNKNOWN: u64 = 1_000_000_000;

/// See [`everycall_hooks::RuntimeTable::mark`].
///
/// # Safety
/// `name` is null or a C string.
pub(crate) unsafe extern "C" fn mark(
    class: u32,
    has_value: u32,
    name: *const u8,
    value: u64,
    frame: u64,
) -> i32 {
    if name.is_null() || !(u32::from(label::LABEL)..=u32::from(label::SPAN_END)).contains(&class) {
        return error::ARGUMENT;
    }
    if pause::is_disabled() {
        return 0;
    }
    // SAFETY: by contract.
    let name = unsafe { start_of_text(name) };
    let value = (has_value != 0).then_some(value);
    code(with_thread(|thread| {
        let empty = label::record(class as u8, 0, value, name);
        let ticks = thread.prepare(WORDS_BEFORE + empty.words().len());
        thread.drop_dead(ticks, Frame::Body(frame.wrapping_sub(HOOK_BELOW_FRAME)));
        thread.ring.push(label::record(class as u8, ticks, value, name).words());
    }))
}

/// A mark of the runtime's own, where the calling thread records already. `stack_pointer`: frames below it are dead.
pub(crate) fn note(class: u8, name: &[u8], stack_pointer: u64) {
    let Some(process) = traced().filter(|_| !pause::is_disabled()) else { return };
    let mask = system::block_signals();
    let is_active = |control: &&Control| control.state.load(Relaxed) == state::ACTIVE;
    if let Some(control) = own_control(process).filter(is_active) {
        within(process, control, |thread| {
            thread.ring.hold();
            if !pause::stop_if_asked(thread) {
                let empty = label::record(class, 0, None, name);
                let ticks = thread.prepare(WORDS_BEFORE + empty.words().len());
                thread.drop_dead(ticks, Frame::Body(stack_pointer));
                thread.ring.push(label::record(class, ticks, None, name).words());
                thread.resume();
            }
        });
    }
    system::set_signal_mask(mask);
}

/// As much of a C string as a label holds, and a byte more.
///
/// # Safety
/// It is one, and stays.
pub(crate) unsafe fn start_of_text(begin: *const u8) -> &'static [u8] {
    let mut length = 0;
    // SAFETY: by contract.
    unsafe {
        while length <= NAME_MAX && *begin.add(length) != 0 {
            length += 1;
        }
        core::slice::from_raw_parts(begin, length)
    }
}

/// See [`everycall_hooks::RuntimeTable::ticks_per_second`]. Measured since the process's start: exact to one in 100,000 after 10 ms.
pub(crate) unsafe extern "C" fn ticks_per_second() -> u64 {
    let Some(process) = traced() else { return RATE_UNKNOWN };
    let Some(first) = process.arena().start() else { return RATE_UNKNOWN };
    let now = start::clock_reading();
    let ticks = now.ticks.wrapping_sub(first.ticks);
    let nanoseconds = now.monotonic_raw_ns.wrapping_sub(first.monotonic_raw_ns);
    let excess = (u64::BITS - ticks.leading_zeros()).saturating_sub(RATE_BITS);
    let rate = ((ticks >> excess) * 1_000_000_000).checked_div(nanoseconds >> excess);
    rate.filter(|rate| *rate != 0).unwrap_or(RATE_UNKNOWN)
}

/// See [`everycall_hooks::RuntimeTable::record_thread`].
pub(crate) unsafe extern "C" fn record_thread(record: u32, frame: u64) -> i32 {
    let Some(process) = traced() else { return error::NOT_TRACED };
    let mask = system::block_signals();
    let result = match own_control(process) {
        // It hasn't recorded anything, and is to record nothing.
        None if record == 0 => {
            threads::leave_out();
            0
        }
        None => 0,
        Some(control) if threads::is_left_out(control) => {
            if record != 0 {
                threads::take_back();
            }
            0
        }
        Some(control) if record == 0 => within(process, control, |thread| {
            thread.ring.hold();
            pause::leave_out(thread);
        }),
        Some(control) => {
            pause::take_back(process, control);
            go_on(process, control, frame)
        }
    };
    system::set_signal_mask(mask);
    result
}

/// See [`everycall_hooks::RuntimeTable::record_process`].
pub(crate) unsafe extern "C" fn record_process(record: u32, frame: u64) -> i32 {
    // A forked child whose sites are off has had no event.
    let Some(process) = modules::traced() else { return error::NOT_TRACED };
    let mask = system::block_signals();
    let mut result = 0;
    if record == 0 {
        pause::disable(process);
    } else {
        pause::enable(process);
        if let Some(control) = own_control(process) {
            result = go_on(process, control, frame);
        }
    }
    system::set_signal_mask(mask);
    result
}

/// Says at once that the calling thread records again, where it didn't.
fn go_on(process: &'static Process, control: &'static Control, frame: u64) -> i32 {
    if control.gap_ticks.load(Relaxed) == 0 || control.state.load(Relaxed) != state::ACTIVE {
        return 0;
    }
    let result = within(process, control, |thread| {
        thread.ring.hold();
        if !pause::stop_if_asked(thread) {
            let ticks = thread.prepare(WORDS_BEFORE);
            thread.drop_dead(ticks, Frame::Body(frame.wrapping_sub(HOOK_BELOW_FRAME)));
            thread.resume();
        }
    });
    // A handler within the slow path: that one says it.
    if result == error::BUSY { 0 } else { result }
}

/// See [`everycall_hooks::RuntimeTable::ring_size`].
pub(crate) unsafe extern "C" fn ring_size(bytes: u64) -> i32 {
    if !bytes.is_power_of_two() || !(RING_SIZE_MIN..=RING_SIZE_MAX).contains(&bytes) {
        return error::ARGUMENT;
    }
    let mut fits = true;
    let result = with_control(|thread, process| {
        let arena = process.arena();
        let segments = bytes.checked_div(arena.layout().segment_size).unwrap_or(0).max(1) as u32;
        let now = thread.slot.ring_segments().load(Relaxed);
        let all = arena.ring_segments().load(Relaxed).saturating_sub(now).saturating_add(segments);
        fits = segments <= now || all <= arena.layout().segment_capacity;
        if fits {
            arena.ring_segments().fetch_add(segments.wrapping_sub(now), Relaxed);
            thread.slot.ring_segments().store(segments, Relaxed);
            thread.control.ring_limit.store(segments.max(2), Relaxed);
        }
    });
    match result {
        Ok(()) if !fits => error::NO_ROOM,
        other => code(other),
    }
}

/// See [`everycall_hooks::RuntimeTable::snapshot`].
///
/// # Safety
/// `result` is null or a place for a number.
pub(crate) unsafe extern "C" fn snapshot(since: u64, result: *mut u64) -> i32 {
    if result.is_null() {
        return error::ARGUMENT;
    }
    let taken = traced().ok_or(error::NOT_TRACED).and_then(|process| snapshot::take(process, since));
    // SAFETY: by contract.
    unsafe { result.write(taken.unwrap_or(0)) };
    code(taken.map(|_| ()))
}

/// See [`everycall_hooks::RuntimeTable::snapshot_write`].
///
/// # Safety
/// `path` is null or a C string; the callback and its context belong together.
pub(crate) unsafe extern "C" fn snapshot_write(
    taken: u64,
    descriptor: i32,
    path: *const u8,
    callback: Option<ByteSink>,
    context: *mut c_void,
) -> i32 {
    let Some(process) = traced() else { return error::NOT_TRACED };
    code(if let Some(callback) = callback {
        snapshot::write(process, taken, Sink::Callback(callback, context))
    } else if !path.is_null() {
        // SAFETY: by contract.
        unsafe { snapshot::write_file(process, taken, path) }
    } else if descriptor >= 0 {
        snapshot::write(process, taken, Sink::Descriptor(descriptor))
    } else {
        Err(error::ARGUMENT)
    })
}

/// See [`everycall_hooks::RuntimeTable::snapshot_free`].
pub(crate) unsafe extern "C" fn snapshot_free(taken: u64) -> i32 {
    code(traced().ok_or(error::NOT_TRACED).and_then(|process| snapshot::free(process, taken)))
}

/// The process, where it is traced.
pub(crate) fn traced() -> Option<&'static Process> {
    process::process().filter(|process| process.state.load(Relaxed) == process_state::ON)
}

fn code(result: Result<(), i32>) -> i32 {
    result.err().unwrap_or(0)
}

/// The control block of the stack that the calling thread runs, whose signals are blocked; none where the thread hasn't recorded
/// anything. (A forked child's only thread finds its parent's, wiped.)
fn own_control(process: &'static Process) -> Option<&'static Control> {
    contexts::last()?;
    contexts::current(process, everycall_hooks::stack_pointer()).map(|found| found.control)
}

/// Whether the calling thread has begun and isn't left out.
pub(crate) fn is_recording() -> bool {
    traced().is_some() && contexts::last().is_some_and(|control| !threads::is_left_out(control))
}

/// Does something with the calling thread, which begins if it hasn't yet.
pub(crate) fn with_control(change: impl FnOnce(&Thread<'_>, &'static Process)) -> Result<(), i32> {
    let process = traced().ok_or(error::NOT_TRACED)?;
    let pointer = everycall_hooks::stack_pointer();
    let mask = system::block_signals();
    let result = slow_stacks::run(|| match contexts::current(process, pointer).map(|found| found.control) {
        Some(control) if !threads::is_left_out(control) => {
            within(process, control, |thread| change(thread, process))
        }
        _ => error::NO_THREAD,
    });
    system::set_signal_mask(mask);
    if result == 0 { Ok(()) } else { Err(result) }
}

/// The same, with room in its ring to write; nothing where it doesn't record.
pub(crate) fn with_thread(write: impl FnOnce(&Thread<'_>)) -> Result<(), i32> {
    if traced().is_some() && contexts::last().is_some_and(threads::is_left_out) {
        return Ok(());
    }
    with_control(|thread, _| {
        if thread.control.state.load(Relaxed) == state::OFF {
            return;
        }
        thread.ring.hold();
        if !pause::stop_if_asked(thread) {
            write(thread);
            thread.resume();
            thread.watch_handler();
        }
    })
}

/// Does something with a thread, unless its slow path is running.
fn within(process: &'static Process, control: &'static Control, work: impl FnOnce(&Thread<'_>)) -> i32 {
    if control.busy.swap(1, Relaxed) != 0 {
        return error::BUSY;
    }
    let thread = Thread::new(process, control);
    work(&thread);
    thread.watch_on();
    pause::look_again(control);
    control.busy.store(0, Relaxed);
    0
}
