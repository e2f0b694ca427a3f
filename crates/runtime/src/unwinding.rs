//! What the wrappers around throws, landing pads and jumps tell (the kit's `wrappers`): frames that are left without their exits
//! are known at once, not at the next event, and exactly, where comparing stack pointers of hooks can't be (a call with arguments
//! on the stack, or one from within a function's body, may lie deeper than a frame that is gone).

use crate::open_calls::{HOOK_BELOW, shared};
use crate::slow::Place;
use crate::{api, cancellation, contexts, modules, pause, triggers};
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::label;

/// See the kit's `runtime.h`: frames are left, nothing else.
const JUMP: u32 = 0;
const THROW: u32 = label::THROW as u32;
const CATCH: u32 = label::CATCH as u32;
const CLEANUP: u32 = label::CLEANUP as u32;
const THREAD_END: u32 = label::THREAD_END as u32;
/// A handler begins in this frame: behind [`CATCH`], when what was inlined around it has been cleaned up.
const HANDLED: u32 = 11;
/// What was inlined into the frame that catches is going to tell of its exits, as part of the cleanup: behind [`CATCH`].
const CLEANS: u32 = 12;
/// Now it has; the handler begins.
const CLEANED: u32 = 13;
/// A thread is asked to end: in the stack pointer's place, its thread pointer.
const CANCEL: u32 = 14;
/// With [`CATCH`] or [`CLEANUP`]: compilers may not tell of the ends of calls that were inlined into the frame.
const UNTOLD_ENDS: u32 = 1 << 8;
/// Words of a record that comes before: epoch 2, gap 5.
const WORDS_BEFORE: usize = 7;

/// See [`everycall_hooks::RuntimeTable::unwinding`].
///
/// # Safety
/// `name` is null or a C string; of a cleanup, the address of the function, of a handler, one in it.
pub(crate) unsafe extern "C" fn unwinding(what: u32, stack_pointer: u64, name: *const u8) {
    let has_untold_ends = what & UNTOLD_ENDS != 0;
    let what = what & !UNTOLD_ENDS;
    if !matches!(what, JUMP | THROW | CATCH | CLEANUP | THREAD_END | HANDLED | CLEANS | CLEANED | CANCEL)
        || pause::is_disabled()
    {
        return;
    }
    if what == CANCEL {
        // Whoever asks need not record.
        if let Some(process) = api::traced() {
            cancellation::cancel(process, stack_pointer);
        }
        return;
    }
    let hook = stack_pointer.wrapping_sub(HOOK_BELOW);
    // These are told wherever exceptions are caught.
    let is_of_shared = matches!(what, HANDLED | CLEANS | CLEANED);
    if !api::is_recording() || is_of_shared && !contexts::shares_frame(hook) {
        return;
    }
    let function = name as u64;
    let name = match name.is_null() || matches!(what, CLEANUP | HANDLED) {
        true => &[][..],
        // SAFETY: by contract.
        false => unsafe { api::start_of_text(name) },
    };
    // Where the slow path is running, what was left is found at the next event.
    let _ = api::with_thread(|thread| {
        if what == JUMP {
            let Some(process) = api::traced() else { return };
            if !contexts::stays_in_jump(process, thread.control, hook) {
                return;
            }
        }
        if what == HANDLED {
            return thread.watch_inlined(hook, function);
        }
        if matches!(what, CLEANS | CLEANED) {
            let class = if what == CLEANS { label::CLEANUP } else { label::HANDLER };
            return if thread.open.count_inlined(hook) > 0 {
                thread.tell_inlined(hook, class)
            };
        }
        let record = label::record(what as u8, 0, None, name);
        let ticks = thread.prepare(WORDS_BEFORE + record.words().len());
        thread.drop_below(ticks, hook, what == JUMP);
        if thread.open.innermost_pointer().is_none_or(|pointer| pointer <= hook) && what != THROW {
            // What was handled in this frame, or further inside, is over.
            thread.control.handled.store(0, Relaxed);
        }
        let value = match what {
            // Calls of the frame that cleans up may yet tell of their exits.
            CLEANUP => {
                let code = match api::traced().map(|process| modules::place_anywhere(process, function)) {
                    Some(Place::Offset(code)) => Some(code),
                    Some(Place::Unknown(_)) | None => None,
                };
                Some(thread.open.count_in_frame(hook, code).into())
            }
            // A frame is entered again, to clean up or to catch: what it calls is called from there.
            THREAD_END if function != 0 => Some(1),
            _ => None,
        };
        if what == THREAD_END {
            // Nobody runs any more who would tell of a name that is set from here on.
            thread.look_at_name();
        }
        if what == JUMP || value == Some(0) {
            return;
        }
        thread.ring.push(label::record(what as u8, ticks, value, name).words());
        if has_untold_ends {
            thread.open.clean_up(hook, what == CATCH);
            if what == CATCH && thread.open.shared_at(hook) != shared::NONE {
                thread.tell_inlined(hook, label::CLEANUP);
            }
        }
        if what == THREAD_END
            && let Some(process) = api::traced()
        {
            triggers::thread_ends(process, thread, ticks);
        }
    });
}
