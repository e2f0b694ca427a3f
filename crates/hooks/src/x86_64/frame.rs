//! What hooks leave on the stack, and what a function's frame has there.
#![allow(unsafe_code)] // The stack of a hook, by its address.

/// From a hook's stack pointer to where it was before the hook was called, and a function's first
/// instruction called it: behind its return address and four registers.
pub const HOOK_BELOW: u64 = 40;
/// From `__builtin_frame_address(0)` of a function that was called in a frame, to the stack pointer
/// that a hook called in the same place would have: the return address is 8 above the one, and 32
/// above the other.
pub const HOOK_BELOW_FRAME: u64 = 24;
/// How much lower the stack pointer of an entry hook may be than that of the function's exit hook:
/// gcc pushes the static chain before it calls the entry hook of a nested function.
pub const ENTRY_BELOW_EXIT: u64 = 8;
/// Stack pointers of hooks are multiples of this.
pub const ALIGN: u64 = 8;

/// Where a function whose hook has this stack pointer puts the return addresses of what it calls,
/// if the hook lies within its frame and the function has pushed no arguments.
#[must_use]
pub fn return_address_below(hook: u64) -> u64 {
    hook.saturating_add(HOOK_BELOW - 8)
}

/// What a `__cyg_profile` hook has saved: `rsi`, in which it was handed the call site, three other
/// registers, and where it returns to.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that runs.
unsafe fn saved(hook: u64) -> [u64; 5] {
    // SAFETY: by contract.
    unsafe { *(hook as *const [u64; 5]) }
}

/// Where a function was called, as its `__cyg_profile` hook was told: where the call returns to.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that runs.
#[must_use]
pub unsafe fn call_site(hook: u64) -> u64 {
    // SAFETY: by contract.
    unsafe { saved(hook)[0] }
}

/// Where a `__cyg_profile` hook itself returns to: of a call that was inlined, into the function
/// that made it.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that runs.
#[must_use]
pub unsafe fn hook_returns_to(hook: u64) -> u64 {
    // SAFETY: by contract.
    unsafe { saved(hook)[4] }
}

/// Where a function returns to whose first instruction has called an entry hook.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that runs.
#[must_use]
pub unsafe fn function_returns_to(hook: u64) -> u64 {
    // SAFETY: by contract: what the function was called with.
    unsafe { *((hook + HOOK_BELOW) as *const u64) }
}
