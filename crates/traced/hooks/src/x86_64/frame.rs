//! A hook's part of the stack, and the layout of a function's frame there.
#![allow(unsafe_code)] // The stack of a hook, by its address.

/// Distance from a hook's stack pointer up to the function's, if the function's first instruction
/// called the hook: the hook's return address and four registers.
pub const HOOK_BELOW: u64 = 40;
/// Distance from the stack pointer in a function's body down to that of a hook that is called there.
/// Those of functions that the body calls are lower.
pub const BODY_HOOK_BELOW: u64 = HOOK_BELOW;
/// In so many bytes at the upper end of a stack, no hook of that stack has its stack pointer.
pub const ABOVE_HOOKS: u64 = HOOK_BELOW;
/// Distance from `__builtin_frame_address(0)` of a called function down to the stack pointer of a
/// hook that is called in its place: the return address is 8 above the former, and 32 above the
/// latter.
pub const HOOK_BELOW_FRAME: u64 = 24;
/// How much lower the stack pointer of an entry hook may be than that of the function's exit hook:
/// gcc pushes the static chain before it calls the entry hook of a nested function.
pub const ENTRY_BELOW_EXIT: u64 = 8;
/// Stack pointers of hooks are multiples of this.
pub const ALIGN: u64 = 8;

/// The address at which the return addresses of a function's calls are, if the function has pushed
/// no arguments. `hook` is the stack pointer of a hook within the function's frame. `None` on
/// machines where each function saves them where it likes.
#[must_use]
pub fn return_address_below(hook: u64) -> Option<u64> {
    Some(hook.saturating_add(HOOK_BELOW - 8))
}

/// The stack of a `__cyg_profile` hook: `rsi` (the call site that it was passed), three other
/// registers, and its return address.
///
/// # Safety
/// `hook` is the stack pointer of such a hook, which is running.
unsafe fn saved(hook: u64) -> [u64; 5] {
    // SAFETY: by contract.
    unsafe { *(hook as *const [u64; 5]) }
}

/// The return address of a function's call, as it was passed to the `__cyg_profile` hook.
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

/// The return address of a function whose first or last instruction has called a hook.
///
/// # Safety
/// `hook` is the stack pointer of such a hook that runs.
#[must_use]
pub unsafe fn function_returns_to(hook: u64) -> u64 {
    // SAFETY: by contract: the return address that the function was called with.
    unsafe { *((hook + HOOK_BELOW) as *const u64) }
}
