//! Calls of the program about frames by id and threads, beside the hooks of frames. They return 0
//! or one of [`error`].
#![allow(unsafe_code)] // Called by the program through a table, with its C strings.

use crate::features::calling::{self, WORDS_BEFORE, uninterrupted, with_thread};
use crate::features::{fork, frames};
use crate::state::frames::Name;
use crate::state::process::traced;
use crate::state::recording;
use crate::sys::errors::error;
use crate::sys::text;
use crate::threads::open_calls::{Exit, Frame};
use crate::threads::throws;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::arena::counter;
use everycall_format::event::unwound;
use everycall_format::frame::{TEXT_MAX, offset_of};
use everycall_format::label;
use everycall_format::trigger::type_hash;
use everycall_hooks::frame::{IS_RECORDED, MISPLACED, NAME, THREAD, UNWIND};

/// Words of an UNWOUND record.
const UNWOUND_WORDS: usize = 3;

/// See [`everycall_hooks::RuntimeTable::frame`].
///
/// # Safety
/// `name` and `file` are null or C strings.
pub(crate) unsafe extern "C" fn frame(
    what: u32,
    id: u32,
    name: *const u8,
    file: *const u8,
    line: u32,
) -> i32 {
    // SAFETY: by contract.
    let text = |text: *const u8| unsafe {
        if text.is_null() {
            &[][..]
        } else {
            core::slice::from_raw_parts(text, text::length_up_to(text, TEXT_MAX))
        }
    };
    if what == THREAD {
        return if name.is_null() { error::ARGUMENT } else { name_thread(id, text(name)) };
    }
    let Some(code) = offset_of(id) else { return error::ARGUMENT };
    match what {
        NAME if name.is_null() => error::ARGUMENT,
        NAME => {
            let Some(process) = fork::traced() else { return error::NOT_TRACED };
            let name = Name { id, name: text(name), file: text(file), line };
            match uninterrupted(process, || frames::name(process, name)) {
                true => 0,
                false => error::NO_ROOM,
            }
        }
        UNWIND if !frames::is_recorded(id) => 0,
        UNWIND => unwind(code, text(name), !name.is_null(), everycall_hooks::stack_pointer()),
        MISPLACED => {
            if let Some(process) = traced() {
                process.arena().count(counter::FRAMES_MISPLACED, line.into());
            }
            0
        }
        IS_RECORDED => i32::from(frames::is_recorded(id) && calling::is_included()),
        _ => error::ARGUMENT,
    }
}

/// Names the thread with this kernel id.
fn name_thread(tid: u32, name: &[u8]) -> i32 {
    let Some(process) = fork::traced() else { return error::NOT_TRACED };
    match uninterrupted(process, || frames::name_thread(process, tid, name)) {
        true => 0,
        false => error::NO_ROOM,
    }
}

/// The innermost frame with this code offset is left by an exception, whose type is `name` if it
/// `is_thrown` there.
#[inline(never)] // Otherwise it enlarges the frame of `frame`, on the thread's own stack.
fn unwind(code: u32, name: &[u8], is_thrown: bool, pointer: u64) -> i32 {
    if recording::is_disabled() || !calling::is_recording() {
        return 0;
    }
    let name = name.get(..name.len().min(label::NAME_MAX)).unwrap_or_default();
    let record = |ticks| label::record(label::THROW, ticks, None, name);
    let result = with_thread(|thread| {
        let ticks = thread.prepare(WORDS_BEFORE + UNWOUND_WORDS + record(0).words().len());
        if is_thrown {
            thread.ring.push(record(ticks).words());
            if traced().is_some_and(|process| throws::are_wanted(process.arena())) {
                let hash = (!name.is_empty()).then(|| type_hash(name));
                thread.judge_throw(ticks, hash);
            }
        }
        match thread.open.find_exit(Frame::ById(pointer), code) {
            Exit::Of(inside) => thread.leave_innermost(ticks, inside.saturating_add(1), unwound::KNOWN),
            _ => {
                thread.slot.orphan_exits().fetch_add(1, Relaxed);
            }
        }
    });
    result.err().unwrap_or(0)
}
