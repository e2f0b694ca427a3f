//! A hook's part of the stack, and the layout of a function's frame there.
#![allow(unsafe_code)] // The stack of a hook, by its address.

/// Bytes of the stack that the entry into the slow path takes.
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
pub(super) const FRAME: usize = ABOVE_REGISTERS + REGISTERS;
/// Where the general registers are in it, by number.
pub(super) const REGISTERS: usize = 32;
/// Where the address of the saved vector registers is in it. At its begin is the signal mask.
pub(super) const VECTORS_AT: usize = 8;
/// From the first register up to the stack pointer before.
const ABOVE_REGISTERS: usize = 272;

/// The address of register x0 in the frame of a hook's way into the slow path.
pub(super) fn registers_of(hook: u64) -> u64 {
    // The stack pointer is a multiple of 16, and the hook's is at most 8 lower.
    (hook.wrapping_add(15) & !15).wrapping_sub(ABOVE_REGISTERS as u64)
}

/// Distance from the stack pointer that a hook reports up to the function's, if a site at the
/// function's first instruction called the hook.
pub const HOOK_BELOW: u64 = 8;
/// Distance from the stack pointer in a function's body down to that of a hook that is called there.
/// Those of functions that the body calls are lower.
pub const BODY_HOOK_BELOW: u64 = 0;
/// As that, from `__builtin_frame_address(0)` of a called function down to the hook's, if the hook
/// were called in the place of the function. The frame address lies below the body's stack pointer,
/// and it isn't known how far.
pub const HOOK_BELOW_FRAME: u64 = 0;
/// In so many bytes at the upper end of a stack, no hook of that stack has its stack pointer.
pub const ABOVE_HOOKS: u64 = 0;
/// How much lower the stack pointer of an entry hook may be than that of the function's exit hook.
pub const ENTRY_BELOW_EXIT: u64 = 0;
/// Stack pointers of hooks are multiples of this.
pub const ALIGN: u64 = 8;

/// The address at which the return addresses of a function's calls are: there is none, as they are
/// in a register first, and each function saves it where it likes.
#[must_use]
pub fn return_address_below(_hook: u64) -> Option<u64> {
    None
}

/// A general register as a hook has saved it on its way into the slow path.
///
/// # Safety
/// `hook` is the stack pointer of a hook that is in the slow path.
unsafe fn saved(hook: u64, number: u64) -> u64 {
    // SAFETY: by contract.
    unsafe { *(registers_of(hook).wrapping_add(8 * number) as *const u64) }
}

/// The return address of a function's call, as it was passed to the `__cyg_profile` hook.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that is in the slow path.
#[must_use]
pub unsafe fn call_site(hook: u64) -> u64 {
    // SAFETY: by contract.
    unsafe { saved(hook, 1) }
}

/// The return address of a `__cyg_profile` hook itself. For an inlined call, it lies in the
/// function that made the call.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that is in the slow path.
#[must_use]
pub unsafe fn hook_returns_to(hook: u64) -> u64 {
    // SAFETY: by contract.
    unsafe { saved(hook, 30) }
}

/// The return address of a function whose first or last instruction has called a hook.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that is in the slow path.
#[must_use]
pub unsafe fn function_returns_to(hook: u64) -> u64 {
    // SAFETY: by contract.
    unsafe { saved(hook, 9) }
}
