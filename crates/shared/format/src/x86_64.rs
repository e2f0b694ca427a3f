//! x86-64: numbers that both sides agree on.

/// The architecture's name in messages.
pub const NAME: &str = "x86-64";
/// Its name in targets of compilers.
pub const TARGET: &str = "x86_64";
/// Its number in headers of ELF files.
pub const ELF_MACHINE: u16 = 62;

/// Bytes of a direct call.
pub const CALL_SIZE: usize = 5;
/// Bytes of a site, which becomes the call of a hook.
pub const SITE_SIZE: usize = CALL_SIZE;
/// Bytes of one of XRay's sites.
pub const SLED_SIZE: usize = 11;
/// Bytes from the begin of XRay's site of an entry or a tail exit to its call.
pub const SLED_CALL: usize = 3;

/// Bytes from the stack pointer at a function's first instruction to the arguments on the stack.
pub const TO_ARGUMENTS: i64 = 8;

/// Registers of the traced call, numbered as in DWARF up to [`VECTOR`](register::VECTOR).
pub mod register {
    /// General registers: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15. At an entry, rsp is
    /// what it is at the function's first instruction.
    pub const GENERAL: u32 = 0;
    /// The stack pointer.
    pub const STACK_POINTER: u32 = 7;
    /// How many general registers there are.
    pub const GENERAL_COUNT: u32 = 16;
    /// The lower halves of xmm0 to xmm15.
    pub const VECTOR: u32 = 17;
    /// The upper halves of xmm0 to xmm15.
    pub const VECTOR_UPPER: u32 = 33;
    /// How many vector registers there are.
    pub const VECTOR_COUNT: u32 = 16;
    /// st0 and st1: for each the low eight bytes, then the upper two.
    pub const FLOATING: u32 = 49;
    /// How many words the floating-point registers have.
    pub const FLOATING_COUNT: u32 = 4;
    /// Registers have smaller numbers than this.
    pub const END: u32 = FLOATING + FLOATING_COUNT;
}
