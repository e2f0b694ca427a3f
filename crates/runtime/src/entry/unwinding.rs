//! What the wrappers around throws, landing pads and jumps tell (the kit's `wrappers`): frames that
//! are left without their exits are known at once, not at the next event, and exactly, where
//! comparing stack pointers of hooks can't be (a call with arguments on the stack, or one from
//! within a function's body, may lie deeper than a frame that is gone).
#![allow(unsafe_code)] // Called by the kit's wrappers, with C strings.

use crate::features::calling;
use crate::state::places::{self, Place};
use crate::state::{process, recording};
use crate::sys::text;
use crate::threads::thread::Thread;
use crate::threads::{cancellation, contexts, triggers};
use everycall_format::label;
use everycall_hooks::arch::frame::HOOK_BELOW;

/// See the kit's `runtime.h`: frames are left, nothing else.
const JUMP: u32 = 0;
const THROW: u32 = label::THROW as u32;
const CATCH: u32 = label::CATCH as u32;
const CLEANUP: u32 = label::CLEANUP as u32;
const THREAD_END: u32 = label::THREAD_END as u32;
/// A handler begins in this frame: behind [`CATCH`], when what was inlined around it has been
/// cleaned up.
const HANDLED: u32 = 11;
/// The same, where what was inlined into the frame has told of its exits, as part of the cleanup.
const CLEANED: u32 = 13;
/// A thread is asked to end: in the stack pointer's place, its thread pointer.
const CANCEL: u32 = 14;
/// With [`CATCH`] or [`CLEANUP`]: compilers may not tell of the ends of calls that were inlined
/// into the frame.
const UNTOLD_ENDS: u32 = 1 << 8;
/// With [`CATCH`]: they tell of them, as part of the cleanup.
const TOLD_ENDS: u32 = 1 << 9;
/// Words of a record that comes before: epoch 2, gap 5.
const WORDS_BEFORE: usize = 7;

/// See [`everycall_hooks::RuntimeTable::unwinding`].
///
/// # Safety
/// `name` is null or a C string; of a handler, an address in its function.
pub(crate) unsafe extern "C" fn unwinding(what: u32, stack_pointer: u64, name: *const u8) {
    if recording::is_disabled() {
        return;
    }
    let hook = stack_pointer.wrapping_sub(HOOK_BELOW);
    match what {
        CANCEL => {
            // Whoever asks need not record.
            if let Some(process) = process::traced() {
                cancellation::cancel(process, stack_pointer);
            }
        }
        // They are told wherever exceptions are caught.
        HANDLED | CLEANED if calling::is_recording() && contexts::shares_frame(hook) => {
            let _ = calling::with_thread(|thread| match what {
                HANDLED => thread.watch_inlined(hook, name as u64),
                _ if thread.open.count_inlined(hook) > 0 => thread.tell_inlined(hook, label::HANDLER),
                _ => {}
            });
        }
        JUMP | THROW | THREAD_END if calling::is_recording() => {
            // SAFETY: by contract.
            let text = unsafe { text(name) };
            // Where the slow path is running, what was left is found at the next event.
            let _ = calling::with_thread(|thread| leave(thread, what, hook, text, !name.is_null()));
        }
        _ => {}
    }
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
    let hook = stack_pointer.wrapping_sub(HOOK_BELOW);
    let _ = calling::with_thread(|thread| land(thread, what, hook, name, function, ends));
}

/// # Safety
/// Null or a C string.
unsafe fn text(name: *const u8) -> &'static [u8] {
    // SAFETY: by contract.
    if name.is_null() { &[] } else { unsafe { text::start_of(name) } }
}

/// Frames are left, as something is thrown, or the program jumps, or the thread ends. `is_entered`:
/// one is entered again meanwhile.
fn leave(thread: &Thread<'_>, what: u32, hook: u64, name: &[u8], is_entered: bool) {
    let Some(process) = process::traced() else { return };
    if what == JUMP && !contexts::stays_in_jump(process, thread.control, hook) {
        return;
    }
    let ends_thread = what == THREAD_END;
    // A frame is entered again, to clean up or to catch: what it calls is called from there.
    let value = (ends_thread && is_entered).then_some(1);
    let record = |ticks| label::record(what as u8, ticks, value, name);
    let ticks = thread.prepare(WORDS_BEFORE + record(0).words().len());
    thread.drop_below(ticks, hook, what == JUMP);
    if ends_thread {
        // Nobody runs any more who would tell of a name that is set from here on.
        thread.look_at_name();
    }
    if what == JUMP {
        thread.forget_handler(hook);
        thread.open.settle(hook);
        return;
    }
    thread.ring.push(record(ticks).words());
    if ends_thread {
        triggers::thread_ends(process, thread, ticks);
    }
}

/// A frame is entered again, to clean up or to catch.
fn land(thread: &Thread<'_>, what: u32, hook: u64, name: &[u8], function: u64, ends: u32) {
    let Some(process) = process::traced() else { return };
    let code = match places::of(process, function) {
        Place::Offset(code) => Some(code),
        Place::Unknown(_) => None,
    };
    let words = label::record(what as u8, 0, Some(0), name).words().len();
    let ticks = thread.prepare(WORDS_BEFORE + words);
    thread.drop_below(ticks, hook, false);
    let hook = thread.open.pointer_in(code, hook);
    thread.forget_handler(hook);
    // Calls of the frame that cleans up may yet tell of their exits.
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
