//! Registers the program's fibers: called through `everycall.h`, and by the wrappers of
//! `makecontext` and `make_fcontext`.
#![allow(unsafe_code)] // Called by the program through a table, with a C string.

use crate::features::calling;
use crate::state::process;
use crate::sys::errors::error;
use crate::sys::text;
use crate::threads::contexts;
use core::sync::atomic::Ordering::Relaxed;

/// The kinds of request: see [`everycall_hooks::RuntimeTable::fiber`].
mod what {
    pub const STACK: u32 = 0;
    pub const GONE: u32 = 1;
    pub const NAME: u32 = 2;
}

/// Limit on the bytes of a name; a zero follows.
const NAME_MAX: usize = 15;

/// See [`everycall_hooks::RuntimeTable::fiber`].
///
/// # Safety
/// `name` is null or a C string.
pub(crate) unsafe extern "C" fn fiber(what: u32, low: u64, size: u64, name: *const u8) -> i32 {
    // SAFETY: by contract.
    let name = if name.is_null() { [0; 16] } else { unsafe { start_of_name(name) } };
    if what == what::NAME {
        let mut is_fiber = false;
        let named = calling::with_control(|thread, _| {
            is_fiber = thread.control.fiber.load(Relaxed) != 0;
            if is_fiber && name[0] != 0 {
                thread.slot.set_name(name);
            }
        });
        return match named {
            Ok(()) if !is_fiber => error::ARGUMENT,
            other => other.err().unwrap_or(0),
        };
    }
    let high = low.checked_add(size).filter(|_| low != 0 && size != 0);
    let (Some(high), what::STACK | what::GONE) = (high, what) else { return error::ARGUMENT };
    let Some(process) = process::traced() else { return error::NOT_TRACED };
    let pointer = everycall_hooks::stack_pointer();
    calling::aside(process, || match what {
        what::STACK if contexts::runs_own_stack(pointer) && (low..high).contains(&pointer) => error::ARGUMENT,
        what::STACK if contexts::register(process, low, high, name, pointer) => 0,
        what::STACK => error::TOO_MANY_STACKS,
        _ if contexts::unregister(process, low, high, pointer) => 0,
        _ => error::ARGUMENT,
    })
}

/// The first bytes of a C string, truncated between characters.
///
/// # Safety
/// `text` is a C string.
unsafe fn start_of_name(text: *const u8) -> [u8; 16] {
    let is_within_character = |byte: u8| byte & 0xc0 == 0x80;
    // SAFETY: by contract.
    let text = unsafe { text::start_of(text) };
    let mut length = text.len().min(NAME_MAX);
    while length > 0 && text.get(length).copied().is_some_and(is_within_character) {
        length -= 1;
    }
    let mut name = [0; 16];
    name.iter_mut().zip(text.iter().take(length)).for_each(|(place, byte)| *place = *byte);
    name
}
