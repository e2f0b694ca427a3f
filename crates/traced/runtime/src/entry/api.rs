//! Functions that the program calls through `everycall.h`. They return 0 or one of [`error`].
//!
//! Each function may be called anywhere, including in a signal handler: no function waits for
//! another thread, and the calling thread's signals are blocked while its ring changes.
#![allow(unsafe_code)] // Called by the program through a table, with its C strings and callbacks.

use crate::features::calling::{WORDS_BEFORE, own_control, uninterrupted, with_control, with_thread, within};
use crate::features::snapshot::{self, Sink};
use crate::features::{fork, left_out, min_duration, pause};
use crate::state::process::{Process, traced};
use crate::state::recording;
use crate::sys::errors::error;
use crate::sys::{clock, text};
use crate::threads::begin;
use crate::threads::open_calls::Frame;
use crate::threads::quick_marks::{self, MarkResult};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::env::{RING_SIZE_MAX, RING_SIZE_MIN};
use everycall_format::label;
use everycall_hooks::arch::frame::{BODY_HOOK_BELOW, HOOK_BELOW_FRAME};
use everycall_hooks::{ByteSink, Switched};
use everycall_ring::{Control, state};

/// Ticks are rounded to this many bits before a rate is computed from them.
const RATE_BITS: u32 = 33;
/// Ticks per second to assume until the rate has been measured.
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
    let flags = if has_value == 0 { u32::from(label::NO_VALUE) } else { 0 };
    let value = if has_value == 0 { 0 } else { value };
    if class > u32::from(label::SPAN_END) {
        return error::ARGUMENT;
    }
    // SAFETY: by contract.
    unsafe { mark_at(class | flags, name, value, frame.wrapping_sub(HOOK_BELOW_FRAME)) }
}

/// See [`everycall_hooks::RuntimeTable::quick_mark`].
///
/// # Safety
/// `name` is null or a C string, of the length that `what` says.
pub(crate) unsafe extern "C" fn quick_mark(what: u32, name: *const u8, value: u64, pointer: u64) -> i32 {
    // SAFETY: by contract.
    unsafe { mark_at(what, name, value, pointer.wrapping_sub(BODY_HOOK_BELOW)) }
}

/// # Safety
/// As [`quick_mark`].
#[inline(always)]
unsafe fn mark_at(what: u32, name: *const u8, value: u64, stack_pointer: u64) -> i32 {
    let detail = what as u8;
    if name.is_null() || !is_programs(detail) {
        return error::ARGUMENT;
    }
    if recording::is_disabled() {
        return 0;
    }
    let name = match what >> 8 {
        // SAFETY: by contract.
        0 => unsafe { text::start_of(name) },
        // SAFETY: by contract.
        length => unsafe { core::slice::from_raw_parts(name, length as usize - 1) },
    };
    if traced().is_some() && quick_marks::write(detail, value, name, stack_pointer) == MarkResult::Yes {
        return 0;
    }
    slow_mark(detail, name, value, stack_pointer)
}

/// Whether the program may write marks of a class.
#[inline]
fn is_programs(detail: u8) -> bool {
    matches!(
        detail & label::CLASS_MASK,
        label::TASK_WAKE
            ..=label::SPAN_END | label::COUNTER | label::COUNTER_REAL | label::TASK_BEGIN | label::TASK_END
    )
}

#[cold]
#[inline(never)]
fn slow_mark(detail: u8, name: &[u8], value: u64, stack_pointer: u64) -> i32 {
    let class = detail & label::CLASS_MASK;
    let value = (detail & label::NO_VALUE == 0).then_some(value);
    code(with_thread(|thread| {
        let empty = label::record(class, 0, value, name);
        let ticks = thread.prepare(WORDS_BEFORE + empty.words().len());
        thread.drop_dead(ticks, Frame::Body(stack_pointer));
        thread.ring.push(label::record(class, ticks, value, name).words());
    }))
}

/// See [`everycall_hooks::RuntimeTable::ticks_per_second`]. The rate is measured from the process's
/// start; after 10 ms it is exact to one in 100,000.
pub(crate) unsafe extern "C" fn ticks_per_second() -> u64 {
    let Some(process) = traced() else { return RATE_UNKNOWN };
    let Some(first) = process.arena().start() else { return RATE_UNKNOWN };
    let now = clock::reading();
    let ticks = now.ticks.wrapping_sub(first.ticks);
    let nanoseconds = now.monotonic_raw_ns.wrapping_sub(first.monotonic_raw_ns);
    let excess = (u64::BITS - ticks.leading_zeros()).saturating_sub(RATE_BITS);
    let rate = ((ticks >> excess) * 1_000_000_000).checked_div(nanoseconds >> excess);
    rate.filter(|rate| *rate != 0).unwrap_or(RATE_UNKNOWN)
}

/// See [`everycall_hooks::RuntimeTable::record_thread`].
pub(crate) unsafe extern "C" fn record_thread(record: u32, frame: u64) -> i32 {
    let Some(process) = traced() else { return error::NOT_TRACED };
    uninterrupted(process, || match own_control(process) {
        // The thread hasn't recorded anything yet.
        None if record == 0 => {
            begin::leave_out();
            0
        }
        None => 0,
        Some(control) if begin::is_left_out(control) => {
            if record != 0 {
                begin::take_back();
            }
            0
        }
        Some(control) if record == 0 => within(process, control, |thread| {
            thread.ring.suspend();
            pause::leave_out(thread);
        }),
        Some(control) => {
            pause::take_back(process, control);
            go_on(process, control, frame)
        }
    })
}

/// See [`everycall_hooks::RuntimeTable::record_process`].
pub(crate) unsafe extern "C" fn record_process(record: u32, frame: u64) -> i32 {
    // A forked child whose sites are off has not recorded an event yet.
    let Some(process) = fork::traced() else { return error::NOT_TRACED };
    uninterrupted(process, || {
        if record == 0 {
            pause::disable(process);
            return 0;
        }
        pause::enable(process);
        own_control(process).map_or(0, |control| go_on(process, control, frame))
    })
}

/// If the calling thread had stopped recording, writes its GAP record now, not at its next event.
fn go_on(process: &'static Process, control: &'static Control, frame: u64) -> i32 {
    if control.gap_ticks.load(Relaxed) == 0 || control.state.load(Relaxed) != state::ACTIVE {
        return 0;
    }
    let result = within(process, control, |thread| {
        thread.ring.suspend();
        if !recording::stop_if_asked(thread.control, &thread.slot) {
            let ticks = thread.prepare(WORDS_BEFORE);
            thread.drop_dead(ticks, Frame::Body(frame.wrapping_sub(HOOK_BELOW_FRAME)));
            thread.resume();
        }
    });
    // BUSY: a signal handler that interrupted the slow path calls this. The slow path writes the
    // record.
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

/// See [`everycall_hooks::RuntimeTable::min_duration`].
pub(crate) unsafe extern "C" fn set_min_duration(nanoseconds: u64) -> i32 {
    let Some(process) = fork::traced() else { return error::NOT_TRACED };
    uninterrupted(process, || {
        let result = min_duration::change(process, nanoseconds);
        let active = |control: &&Control| control.state.load(Relaxed) == state::ACTIVE;
        if result == 0
            && let Some(control) = own_control(process).filter(active)
        {
            // In a signal handler that interrupted the slow path, this fails: then the thread
            // adopts it later.
            let _ = within(process, control, min_duration::adopt);
        }
        result
    })
}

/// See [`everycall_hooks::RuntimeTable::functions`].
///
/// # Safety
/// As there.
pub(crate) unsafe extern "C" fn functions(
    what: u32,
    addresses: *const u64,
    count: u64,
    result: *mut Switched,
) -> i32 {
    if addresses.is_null() || count == 0 || what > 1 {
        return error::ARGUMENT;
    }
    let Some(process) = fork::traced() else { return error::NOT_TRACED };
    // SAFETY: by contract.
    match uninterrupted(process, || unsafe {
        left_out::switch(process, addresses, count as usize, what == 0)
    }) {
        Ok(switched) => {
            if !result.is_null() {
                // SAFETY: by contract.
                unsafe { result.write(switched) };
            }
            0
        }
        Err(error) => error,
    }
}

/// See [`everycall_hooks::RuntimeTable::select`].
///
/// # Safety
/// `path` is null or a C string.
pub(crate) unsafe extern "C" fn select(path: *const u8) -> i32 {
    let Some(process) = fork::traced() else { return error::NOT_TRACED };
    // SAFETY: by contract.
    let path = (!path.is_null()).then(|| unsafe { text::whole(path) });
    code(uninterrupted(process, || left_out::select(process, path)))
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

pub(crate) fn code(result: Result<(), i32>) -> i32 {
    result.err().unwrap_or(0)
}
