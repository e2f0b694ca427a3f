//! The guard, a word of each thread that the kernel clears when it stops the thread: no hook here
//! leaves a stamp out, so none needs it.

/// The range of code that a guard stands for.
#[derive(Debug, Default)]
pub struct Sequence;

impl Sequence {
    /// A sequence that isn't used.
    #[must_use]
    pub const fn new() -> Sequence {
        Sequence
    }

    /// The range of an object's hooks.
    pub fn begin(&self, _start: u64, _end: u64, _abort: u64) {}

    /// The object is about to be unloaded.
    pub fn end(&self) {}
}

/// The guard's offset from the thread pointer: there is none, so every event gets a stamp.
#[must_use]
pub fn guard_offset() -> Option<u64> {
    None
}

/// Whether the kernel clears the calling thread's guard.
///
/// # Safety
/// The offset is that of [`guard_offset`].
#[must_use]
#[allow(unsafe_code)] // As where there is a guard.
pub unsafe fn is_guarded(_offset: u64) -> bool {
    false
}

/// Whether the kernel clears the guard when it stops the thread, as `stop` lets it.
///
/// # Safety
/// The offset is that of [`guard_offset`].
#[allow(unsafe_code)] // As where there is a guard.
pub unsafe fn is_cleared(_offset: u64, _sequence: &'static Sequence, _stop: impl FnOnce()) -> bool {
    false
}
