//! 64-bit Arm: numbers that both sides agree on.

/// The architecture's name in messages.
pub const NAME: &str = "64-bit Arm";
/// Its name in targets of compilers.
pub const TARGET: &str = "aarch64";
/// Its number in headers of ELF files.
pub const ELF_MACHINE: u16 = 183;

/// Bytes of a direct call.
pub const CALL_SIZE: usize = 4;
/// Bytes of a site: `mov x9, x30`, and a NOP or the call of a hook.
pub const SITE_SIZE: usize = 8;
/// Bytes of one of XRay's sites.
pub const SLED_SIZE: usize = 32;
/// Bytes from the begin of XRay's site to its call.
pub const SLED_CALL: usize = 4;

/// Bytes from the stack pointer at a function's first instruction to the arguments on the stack.
pub const TO_ARGUMENTS: i64 = 0;

/// Registers of the traced call, numbered as in DWARF up to
/// [`VECTOR_UPPER`](register::VECTOR_UPPER).
pub mod register {
    /// General registers: x0 to x30, then the stack pointer. At an entry, it is what it is at the
    /// function's first instruction.
    pub const GENERAL: u32 = 0;
    /// The stack pointer.
    pub const STACK_POINTER: u32 = 31;
    /// How many general registers there are.
    pub const GENERAL_COUNT: u32 = 32;
    /// The lower halves of v0 to v31.
    pub const VECTOR: u32 = 64;
    /// The upper halves of v0 to v31.
    pub const VECTOR_UPPER: u32 = 96;
    /// How many vector registers there are.
    pub const VECTOR_COUNT: u32 = 32;
    /// There are no others for floating point.
    pub const FLOATING: u32 = 128;
    /// How many words the floating-point registers have.
    pub const FLOATING_COUNT: u32 = 0;
    /// Registers have smaller numbers than this.
    pub const END: u32 = FLOATING + FLOATING_COUNT;
}
