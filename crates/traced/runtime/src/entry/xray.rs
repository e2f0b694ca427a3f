//! Requests of the kit's XRay interface (`wrappers/xray.c`).
#![allow(unsafe_code)] // Called by the program through a table, with its objects and events.

use crate::features::calling::{WORDS_BEFORE, with_thread};
use crate::features::fork;
use crate::features::loaded_modules::Refused;
use crate::features::xray::{self, Functions, handler};
use crate::state::process::{Process, process};
use crate::state::{local, recording};
use crate::threads::open_calls::Frame;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::site::sled_kind;
use everycall_format::xray_event;
use everycall_hooks::arch::frame::HOOK_BELOW;
use everycall_hooks::{XrayCall, XrayObject};

/// The requests, as in `wrappers/xray.c`.
mod operation {
    pub const REGISTER: u32 = 0;
    pub const UNREGISTER: u32 = 1;
    pub const EVENT: u32 = 2;
    pub const LEAVE: u32 = 3;
    pub const SET_HANDLER: u32 = 4;
    pub const PATCH: u32 = 5;
    pub const ADDRESS: u32 = 6;
    pub const FUNCTIONS: u32 = 7;
    pub const OBJECTS: u32 = 8;
    pub const RECORD: u32 = 9;
    pub const EVENT_TYPE: u32 = 10;
}

/// Stands for all objects, or all functions of an object.
const ALL: u64 = i64::MAX as u64;

/// XRay's `XRayPatchingStatus`.
mod status {
    pub const NOT_INITIALIZED: u64 = 0;
    pub const SUCCESS: u64 = 1;
    pub const ONGOING: u64 = 2;
    pub const FAILED: u64 = 3;
}

/// See [`everycall_hooks::RuntimeTable::xray`].
///
/// # Safety
/// `object` belongs to the loaded object that calls this; the other arguments are those of the
/// operation.
pub(crate) unsafe extern "C" fn xray(
    operation: u32,
    object: *mut XrayObject,
    first: u64,
    second: u64,
    third: u64,
) -> u64 {
    // SAFETY: by contract.
    let Some(object) = (unsafe { object.as_ref::<'static>() }) else { return 0 };
    let Some(process) = process() else { return 0 };
    match operation {
        operation::EVENT => {
            // SAFETY: by contract: the hook's own.
            if let Some(call) = unsafe { (second as *mut XrayCall).as_mut() } {
                handle(object, first, call);
            }
            0
        }
        operation::LEAVE => {
            local::set_handling(first);
            0
        }
        // SAFETY: by contract: three words, which the hook has saved.
        operation::RECORD => unsafe {
            record(first as u8, *(second as *const [u64; 3]), third);
            0
        },
        operation::EVENT_TYPE => xray::event_type(first).into(),
        operation::UNREGISTER => {
            xray::unregister(object);
            0
        }
        // The tracing of a forked child begins here, with its parent's objects.
        _ => fork::traced().map_or(0, |_| control(process, operation, object, first, second, third)),
    }
}

fn control(
    process: &'static Process,
    operation: u32,
    own: &'static XrayObject,
    first: u64,
    second: u64,
    third: u64,
) -> u64 {
    let functions = |number| xray::object(number).and_then(Functions::of);
    match operation {
        operation::REGISTER => {
            xray::register(own, third != 0);
            1
        }
        operation::SET_HANDLER => xray::set_handler(process, first as usize, second).into(),
        operation::PATCH => patch(process, first, second, third != 0),
        operation::ADDRESS => {
            functions(first).and_then(|functions| functions.function_address(second)).unwrap_or(0)
        }
        operation::FUNCTIONS => functions(first).map_or(0, |functions| functions.count()),
        operation::OBJECTS => xray::objects().into(),
        _ => 0,
    }
}

fn patch(process: &'static Process, object: u64, function: u64, on: bool) -> u64 {
    let one = Some(function).filter(|id| *id != ALL);
    let number = u64::from(xray::objects());
    // No such object was registered, or it is unloaded.
    if object != ALL && (object >= number || object != 0 && xray::object(object).is_none()) {
        return status::FAILED;
    }
    let numbers = if object == ALL { 0..number } else { object..object + 1 };
    let mut result = status::NOT_INITIALIZED;
    for functions in numbers.filter_map(xray::object).filter_map(Functions::of) {
        let now = match functions.patch(process, one, on) {
            None => status::FAILED,
            Some(Err(Refused::Busy)) => status::ONGOING,
            Some(Err(Refused::NoMemory | Refused::NoRoom)) => status::FAILED,
            Some(Ok(marked)) if marked.sites == 0 => status::NOT_INITIALIZED,
            Some(Ok(marked)) if marked.counts.wrong() != 0 => status::FAILED,
            Some(Ok(_)) => status::SUCCESS,
        };
        result = result.max(now);
    }
    result
}

/// Finds the handler that the hook of an event has to call, if any.
fn handle(object: &'static XrayObject, address: u64, call: &mut XrayCall) {
    let Some(event) = xray::event(object, address, call.kind as u8) else { return };
    call.is_recorded = event.is_recorded.into();
    let pointer = call.before;
    let running = local::handling();
    // Below the running handler's hook, this event is within that handler: no handler is called.
    // Above it, the handler was left by a jump or an exception.
    if !event.is_patched || running > pointer {
        return;
    }
    let of_function = || xray::handler(handler::FUNCTION);
    (call.handler, call.has_argument) = match event.kind {
        sled_kind::CUSTOM_EVENT => (xray::handler(handler::CUSTOM), 0),
        sled_kind::TYPED_EVENT => (xray::handler(handler::TYPED), 0),
        sled_kind::ENTRY_LOG_ARGS => match xray::handler(handler::ARGUMENT) {
            // As in XRay's own runtime, this handler then gets the argument, too.
            0 => (of_function(), 1),
            handler => (handler, 1),
        },
        _ => (of_function(), 0),
    };
    if call.handler != 0 {
        (call.id, call.kind) = (event.id, event.kind.into());
        // On the same stack, the earlier handler was left: it must not count as running afterwards.
        call.before = if are_on_one_stack(running, pointer) { 0 } else { running };
        local::set_handling(pointer);
    }
}

/// Whether both stack pointers lie on the stack that the thread runs, or neither does. (A signal
/// handler may run on another one.)
fn are_on_one_stack(one: u64, other: u64) -> bool {
    local::last().is_none_or(|control| {
        let stack = control.stack_end.load(Relaxed)..control.stack_high.load(Relaxed);
        stack.contains(&one) == stack.contains(&other)
    })
}

/// Records a custom or typed event.
///
/// # Safety
/// `arguments` are those of `__xray_CustomEvent` or `__xray_TypedEvent`.
unsafe fn record(kind: u8, arguments: [u64; 3], pointer: u64) {
    if recording::is_disabled() {
        return;
    }
    let (of_type, data, length) = match (kind, arguments) {
        (sled_kind::CUSTOM_EVENT, [data, length, _]) => (None, data, length),
        (_, [of_type, data, length]) => (Some(of_type as u32), data, length),
    };
    let kept = if data == 0 { 0 } else { length.min(xray_event::DATA_MAX as u64) };
    // SAFETY: by contract; empty if there is no data.
    let data = unsafe { core::slice::from_raw_parts(data.max(1) as *const u8, kept as usize) };
    let length = length.min(u32::MAX.into()) as u32;
    let _ = with_thread(|thread| {
        let words = xray_event::record(0, of_type, length, data).words().len();
        let ticks = thread.prepare(WORDS_BEFORE + words);
        // The function is running, so frames below its frame are dead.
        thread.drop_dead(ticks, Frame::Body(pointer.wrapping_sub(HOOK_BELOW - 8)));
        thread.ring.push(xray_event::record(ticks, of_type, length, data).words());
    });
}
