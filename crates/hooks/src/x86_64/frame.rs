//! What hooks leave on the stack, and the layout of a function's frame there.
#![allow(unsafe_code)] // The stack of a hook, by its address.

/// From a hook's stack pointer to the stack pointer before the hook was called, if the function's
/// first instruction called it: above the return address and four registers.
pub const HOOK_BELOW: u64 = 40;
/// From `__builtin_frame_address(0)` of a function that was called in a frame, to the stack pointer
/// that a hook called at the same place would have. The return address is 8 above the former, and
/// 32 above the latter.
pub const HOOK_BELOW_FRAME: u64 = 24;
/// How much lower the stack pointer of an entry hook may be than that of the function's exit hook:
/// gcc pushes the static chain before it calls the entry hook of a nested function.
pub const ENTRY_BELOW_EXIT: u64 = 8;
/// Stack pointers of hooks are multiples of this.
pub const ALIGN: u64 = 8;

/// The address at which a function puts the return addresses of its calls. Its hook has this stack
/// pointer and lies within its frame, and the function has pushed no arguments.
#[must_use]
pub fn return_address_below(hook: u64) -> u64 {
    hook.saturating_add(HOOK_BELOW - 8)
}

/// The registers that a `__cyg_profile` hook has saved: `rsi`, in which it got the call site, three
/// others, and its return address.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that runs.
unsafe fn saved(hook: u64) -> [u64; 5] {
    // SAFETY: by contract.
    unsafe { *(hook as *const [u64; 5]) }
}

/// The address to which the call of a function returns, as its `__cyg_profile` hook was passed it.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that runs.
#[must_use]
pub unsafe fn call_site(hook: u64) -> u64 {
    // SAFETY: by contract.
    unsafe { saved(hook)[0] }
}

/// The return address of a `__cyg_profile` hook itself. For an inlined call, it lies in the
/// function that made the call.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that runs.
#[must_use]
pub unsafe fn hook_returns_to(hook: u64) -> u64 {
    // SAFETY: by contract.
    unsafe { saved(hook)[4] }
}

/// The return address of a function whose first instruction has called an entry hook.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that runs.
#[must_use]
pub unsafe fn function_returns_to(hook: u64) -> u64 {
    // SAFETY: by contract: the return address that the function was called with.
    unsafe { *((hook + HOOK_BELOW) as *const u64) }
}
