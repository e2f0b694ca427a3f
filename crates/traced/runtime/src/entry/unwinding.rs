//! Calls from the wrappers of throws, landing pads and jumps (the kit's `wrappers`). By these
//! calls, the runtime knows at once which frames were unwound, not only at the next event. They are
//! also exact where the comparison of hooks' stack pointers isn't: a call with arguments on the
//! stack, or one whose hook is in the function's body, may have a lower stack pointer than a dead
//! frame.
#![allow(unsafe_code)] // Called by the kit's wrappers, with C strings.

use crate::features::{calling, hooks_asked};
use crate::state::places::{self, Place};
use crate::state::{captures, process, recording};
use crate::sys::text;
use crate::threads::thread::Thread;
use crate::threads::{armed_calls, cancellation, contexts, throws};
use everycall_format::label::{self, Name};
use everycall_format::trigger::type_hash;
use everycall_hooks::arch::frame::BODY_HOOK_BELOW;

/// See the kit's `runtime.h`: the program jumps, so frames are unwound.
const JUMP: u32 = 0;
const THROW: u32 = label::THROW as u32;
const CATCH: u32 = label::CATCH as u32;
const CLEANUP: u32 = label::CLEANUP as u32;
const THREAD_END: u32 = label::THREAD_END as u32;
/// A handler begins in this frame. This follows [`CATCH`], after the cleanup of the inlined calls
/// inside the handler's call.
const HANDLED: u32 = 11;
/// As [`HANDLED`], if the calls that were inlined into the frame have recorded their exits as part
/// of the cleanup.
const CLEANED: u32 = 13;
/// The program cancels a thread. Its thread pointer is passed in place of the stack pointer.
const CANCEL: u32 = 14;
/// The unwinder asks a frame whether it catches an exception. The stack pointer is unused.
const RAISED: u32 = 15;
/// The loader has loaded libraries. Holds the loader's lock.
const LOADED: u32 = 16;
/// With [`CATCH`] or [`CLEANUP`]: the compiler may not call exit hooks for calls that were inlined
/// into the frame.
const UNTOLD_ENDS: u32 = 1 << 8;
/// With [`CATCH`]: the compiler calls their exit hooks as part of the cleanup.
const TOLD_ENDS: u32 = 1 << 9;
/// Words of records that may precede it: epoch 2, gap 5.
const WORDS_BEFORE: usize = 7;

/// See [`everycall_hooks::RuntimeTable::unwinding`].
///
/// # Safety
/// `name` is null or a C string; for a handler, it is an address in its function.
pub(crate) unsafe extern "C" fn unwinding(what: u32, stack_pointer: u64, name: *const u8) {
    if recording::is_disabled() {
        return;
    }
    let hook = stack_pointer.wrapping_sub(BODY_HOOK_BELOW);
    match what {
        LOADED => hooks_asked::ask(),
        CANCEL => {
            // The calling thread need not record.
            if let Some(process) = process::traced() {
                cancellation::cancel(process, stack_pointer);
            }
        }
        // The wrappers call this for all frames in which exceptions are caught.
        HANDLED | CLEANED if calling::is_recording() && contexts::shares_frame(hook) => {
            let _ = calling::with_thread(|thread| match what {
                HANDLED => thread.divert_inlined(hook, name as u64),
                _ if thread.open.count_inlined(hook) > 0 => thread.tell_inlined(hook, label::HANDLER),
                _ => {}
            });
        }
        JUMP | THROW | THREAD_END if calling::is_recording() => {
            // SAFETY: by contract.
            let (text, thrown) = unsafe { (text(name), awaited_throw(what, name)) };
            // If the slow path is running, this fails, and the next event finds the unwound frames.
            let _ = calling::with_thread(|thread| leave(thread, what, hook, text, !name.is_null(), thrown));
        }
        // SAFETY: by contract.
        RAISED => unsafe { raised(name) },
        _ => {}
    }
}

/// See [`everycall_hooks::RuntimeTable::thrown`]. The text is recorded where values of calls are:
/// nobody has asked for it elsewhere.
///
/// # Safety
/// `name` is a C string that is never freed, and `message` one that stays for this call.
pub(crate) unsafe extern "C" fn thrown(stack_pointer: u64, name: *const u8, message: *const u8) {
    // SAFETY: by contract.
    unsafe {
        if captures::are_any() && !recording::is_disabled() && calling::is_recording() {
            thrown_with_text(stack_pointer, name, message);
        } else {
            unwinding(THROW, stack_pointer, name);
        }
    }
}

/// # Safety
/// As [`thrown`].
#[inline(never)] // Otherwise it enlarges the frame of `thrown`, on the thread's own stack.
unsafe fn thrown_with_text(stack_pointer: u64, name: *const u8, message: *const u8) {
    // SAFETY: by contract.
    let (of_type, message, thrown) = unsafe { (text(name), text(message), awaited_throw(THROW, name)) };
    let name = Name::of_throw(of_type, message);
    let hook = stack_pointer.wrapping_sub(BODY_HOOK_BELOW);
    let _ = calling::with_thread(|thread| leave(thread, THROW, hook, name.bytes(), true, thrown));
}

/// See [`raise`].
///
/// # Safety
/// `name` is null or a C string.
#[inline(never)] // Otherwise it enlarges the frame of `unwinding`, on the thread's own stack.
unsafe fn raised(name: *const u8) {
    // SAFETY: by contract.
    if let Some(thrown) = unsafe { awaited_throw(RAISED, name) }
        && calling::is_recording()
    {
        // SAFETY: by contract.
        let text = unsafe { text(name) };
        let _ = calling::with_thread(|thread| raise(thread, text, thrown));
    }
}

/// The exception that is thrown, if a trigger waits for exceptions.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn awaited_throw(what: u32, name: *const u8) -> Option<Thrown> {
    let process = process::traced().filter(|_| matches!(what, THROW | RAISED))?;
    if !throws::are_wanted(process.arena()) {
        return None;
    }
    // SAFETY: by contract.
    let hash = if name.is_null() { None } else { Some(type_hash(unsafe { text::whole(name) })) };
    Some(Thrown { hash })
}

/// An exception that a trigger may wait for.
#[derive(Clone, Copy)]
struct Thrown {
    /// Hash of its type's name, if known.
    hash: Option<u64>,
}

/// See [`everycall_hooks::RuntimeTable::landing`].
///
/// # Safety
/// `name` is null or a C string.
pub(crate) unsafe extern "C" fn landing(what: u32, stack_pointer: u64, name: *const u8, function: u64) {
    let ends = what & (UNTOLD_ENDS | TOLD_ENDS);
    let what = what & !ends;
    if !matches!(what, CATCH | CLEANUP) || recording::is_disabled() || !calling::is_recording() {
        return;
    }
    // SAFETY: by contract.
    let name = unsafe { text(name) };
    let hook = stack_pointer.wrapping_sub(BODY_HOOK_BELOW);
    let _ = calling::with_thread(|thread| land(thread, what, hook, name, function, ends));
}

/// # Safety
/// Null or a C string.
unsafe fn text(name: *const u8) -> &'static [u8] {
    // SAFETY: by contract.
    if name.is_null() { &[] } else { unsafe { text::start_of(name) } }
}

/// Handles a throw, a jump or a thread's end: frames are unwound. `is_entered`: while the thread
/// ends, a frame is entered to clean up or to catch.
fn leave(thread: &Thread<'_>, what: u32, hook: u64, name: &[u8], is_entered: bool, thrown: Option<Thrown>) {
    let Some(process) = process::traced() else { return };
    if what == JUMP && !contexts::stays_in_jump(process, thread.control, hook) {
        return;
    }
    let ends_thread = what == THREAD_END;
    // If a frame is entered to clean up or to catch, that frame makes the following calls.
    let value = (ends_thread && is_entered).then_some(1);
    let record = |ticks| label::record(what as u8, ticks, value, name);
    let ticks = thread.prepare(WORDS_BEFORE + record(0).words().len());
    thread.drop_below(ticks, hook, what == JUMP);
    if ends_thread {
        // This may be the last chance to read the thread's name.
        thread.look_at_name();
    }
    if what == JUMP {
        thread.forget_handler(hook);
        thread.open.settle(hook);
        return;
    }
    thread.ring.push(record(ticks).words());
    if ends_thread {
        armed_calls::thread_ends(process, thread, ticks);
    }
    if let Some(Thrown { hash }) = thrown {
        thread.judge_throw(ticks, hash);
    }
}

/// Handles the unwinder's question to a frame whether it catches an exception. It reports a throw
/// only if no wrapper has, and only for the first frame that is asked.
fn raise(thread: &Thread<'_>, name: &[u8], thrown: Thrown) {
    if thread.is_raised() {
        return;
    }
    let record = |ticks| label::record(THROW as u8, ticks, None, name);
    let ticks = thread.prepare(WORDS_BEFORE + record(0).words().len());
    thread.ring.push(record(ticks).words());
    thread.judge_throw(ticks, thrown.hash);
}

/// Handles a landing pad: a frame is entered again, to clean up or to catch.
fn land(thread: &Thread<'_>, what: u32, hook: u64, name: &[u8], function: u64, ends: u32) {
    let Some(process) = process::traced() else { return };
    let code = match places::of(process, function) {
        Place::Offset(code) => Some(code),
        Place::Unknown(_) => None,
    };
    thread.end_raise();
    let words = label::record(what as u8, 0, Some(0), name).words().len();
    let ticks = thread.prepare(WORDS_BEFORE + words);
    thread.drop_below(ticks, hook, false);
    let hook = thread.open.pointer_in(code, hook);
    thread.forget_handler(hook);
    // The calls in the frame that cleans up may still record exits.
    let value = (what == CLEANUP).then(|| thread.open.count_in_frame(hook, code).into());
    if value == Some(0) {
        return;
    }
    thread.ring.push(label::record(what as u8, ticks, value, name).words());
    if ends == UNTOLD_ENDS {
        thread.open.clean_up(hook, what == CATCH);
    }
    if what == CATCH && ends != 0 && thread.open.is_shared(hook) {
        thread.tell_inlined(hook, label::CLEANUP);
    }
}
