//! Capture programs: instructions that copy values of a call, and the bytes that they write.
//!
//! The host makes a program from an expression and the types in DWARF. The traced process checks
//! it once (`everycall-capture`), and runs it at the function's entry or exit. A program has no
//! types and no text. It runs forwards only, so it ends after at most as many steps as it has
//! instructions.
//!
//! ```text
//! ProgramHeader | instructions, 16 bytes each | pool: texts to compare with
//! ```
//!
//! What it writes is a *capture*: one item after the other.
//!
//! ```text
//! item      status (one byte), then the bytes that EMIT, COPY and COPY_TEXT wrote
//! a text    TextHeader, then `copied` bytes
//! ```
//!
//! A capture begins with no header: the program's id, which the event carries, says what the items
//! are. `docs/design/arguments.md` says who decides what.

use crate::wire::wire_struct;

/// First bytes of a program.
pub const MAGIC: u32 = u32::from_le_bytes(*b"ecp\x01");
/// Limit on the instructions of a program.
pub const INSTRUCTIONS_MAX: usize = 512;
/// Limit on the bytes of a program's pool.
pub const POOL_MAX: usize = 1024;
/// Limit on the bytes of a capture: what fits behind one event.
pub const OUTPUT_MAX: usize = 960;
/// Limit on the bytes that one instruction copies or compares.
pub const COPY_MAX: usize = 512;
/// Limit on the reads of memory of one run. Each may be a system call.
pub const READS_MAX: usize = 64;
/// Limit on the steps of one run, in about the time that an addition takes.
pub const COST_MAX: u32 = 1 << 16;
/// Numbers that conditions may have: see [`operation::MEET`].
pub const CONDITIONS: u32 = 32;
/// Conditions with smaller numbers are remembered with their call until it ends. Those of others
/// count at the event alone.
pub const REMEMBERED: u32 = 3;
/// Registers of the interpreter. All are zero at the beginning.
pub const REGISTERS: usize = 16;
/// Stands for a register with a length, where a text ends before its first zero byte.
pub const UNTIL_ZERO: u8 = 0xff;

wire_struct! {
    /// The beginning of a program.
    pub struct ProgramHeader [16] {
        /// [`MAGIC`].
        pub magic: u32,
        /// The program's id: captures name it, and the host keeps the items' types under it.
        pub id: u32,
        /// Number of instructions, 1 to [`INSTRUCTIONS_MAX`].
        pub instructions: u32,
        /// Bytes of the pool, at most [`POOL_MAX`].
        pub pool: u32,
    }
}

wire_struct! {
    /// An instruction.
    pub struct Instruction [16] {
        /// One of [`operation`].
        pub operation: u8,
        /// The register that is set.
        pub target: u8,
        /// The first operand's register.
        pub left: u8,
        /// The second operand's register.
        pub right: u8,
        /// See the operation.
        pub size: u32,
        /// See the operation.
        pub value: u64,
    }
}

/// [`Instruction::operation`]. "Jumps to `size`" means: to the instruction with this index, which
/// must be greater than the instruction's own; the index behind the last one ends the program.
pub mod operation {
    /// The program ends. The call is recorded.
    pub const END: u8 = 0;
    /// The program ends. Its condition is false: at an entry, the call isn't recorded, and neither
    /// is its exit; at a return, the exit is recorded without values.
    pub const REJECT: u8 = 1;
    /// An item begins. If a later instruction fails, the item's bytes are taken back, its status
    /// is `UNREADABLE`, and the program jumps to `size`. `value` is 0, or a status to write instead
    /// of `PRESENT`.
    pub const ITEM: u8 = 2;
    /// A part without an item begins: if a later instruction fails, the program jumps to `size`.
    pub const GUARD: u8 = 3;
    /// `target` = `value`.
    pub const CONSTANT: u8 = 4;
    /// `target` = the call's register `size`, one of [`register`](super::register), or
    /// [`ERRNO`](super::ERRNO). Fails if it isn't known.
    pub const REGISTER: u8 = 5;
    /// `target` = the `size` (1, 2, 4 or 8) bytes at `left` + `value`. `right`: 1 to extend the
    /// sign, else 0. Fails if they can't be read.
    pub const LOAD: u8 = 6;
    /// `target` = `left` `size` `right`; `size` is one of [`calculation`](super::calculation).
    /// Fails if the result is undefined.
    pub const CALCULATE: u8 = 7;
    /// `target` = 1 if `left` `size` `right`, else 0; `size` is one of
    /// [`comparison`](super::comparison).
    pub const COMPARE: u8 = 8;
    /// Jumps to `size`.
    pub const JUMP: u8 = 9;
    /// Jumps to `size` if `left` is zero.
    pub const JUMP_IF_ZERO: u8 = 10;
    /// Jumps to `size` if `left` isn't zero.
    pub const JUMP_UNLESS_ZERO: u8 = 11;
    /// Writes the low `size` (1 to 8) bytes of `left`.
    pub const EMIT: u8 = 12;
    /// Writes the `size` bytes at `left` + `value`. Fails if one can't be read.
    pub const COPY: u8 = 13;
    /// Writes a [`TextHeader`](super::TextHeader) and at most `size` bytes of the text at `left`,
    /// which has the length in register `right`, or ends before its first zero byte
    /// ([`UNTIL_ZERO`](super::UNTIL_ZERO)). Never fails.
    pub const COPY_TEXT: u8 = 14;
    /// `target` = 1 if the text at `left` with the length in register `right`
    /// ([`UNTIL_ZERO`](super::UNTIL_ZERO)) is like the bytes of the pool from the low half of
    /// `value`, as many as its upper half says; else 0. `size` is one of
    /// [`likeness`](super::likeness). Fails if the text can't be read.
    pub const COMPARE_TEXT: u8 = 15;
    /// Fails if `left` is zero.
    pub const FAIL_IF_ZERO: u8 = 16;
    /// Extends the sign (`right` 1) or zeros (0) of the low `size` (1 to 64) bits of `left`, after
    /// a shift to the right by `value` (at most 63) bits.
    pub const BITS: u8 = 17;
    /// `target` = `left`, a 32-bit float, as a 64-bit float.
    pub const WIDEN_FLOAT: u8 = 18;
    /// The call meets the condition with the number `size`, less than
    /// [`CONDITIONS`](super::CONDITIONS).
    pub const MEET: u8 = 19;
}

/// `size` of [`operation::CALCULATE`]. Results wrap.
pub mod calculation {
    /// Addition.
    pub const ADD: u32 = 0;
    /// Subtraction.
    pub const SUBTRACT: u32 = 1;
    /// Multiplication.
    pub const MULTIPLY: u32 = 2;
    /// Division of signed numbers.
    pub const DIVIDE_SIGNED: u32 = 3;
    /// Division of unsigned numbers.
    pub const DIVIDE: u32 = 4;
    /// The rest of a division of signed numbers.
    pub const REST_SIGNED: u32 = 5;
    /// The rest of a division of unsigned numbers.
    pub const REST: u32 = 6;
    /// Bits that are set in both.
    pub const AND: u32 = 7;
    /// Bits that are set in one or both.
    pub const OR: u32 = 8;
    /// Bits that are set in one of them.
    pub const XOR: u32 = 9;
    /// A shift to the left by less than 64 bits.
    pub const SHIFT_LEFT: u32 = 10;
    /// A shift to the right by less than 64 bits.
    pub const SHIFT_RIGHT: u32 = 11;
    /// A shift to the right by less than 64 bits, with the sign.
    pub const SHIFT_RIGHT_SIGNED: u32 = 12;
    /// How many there are.
    pub const COUNT: u32 = 13;
}

/// `size` of [`operation::COMPARE`].
pub mod comparison {
    /// Equal integers.
    pub const EQUAL: u32 = 0;
    /// The first integer is less, both unsigned.
    pub const LESS: u32 = 1;
    /// The first integer is less, both signed.
    pub const LESS_SIGNED: u32 = 2;
    /// Equal 64-bit floats.
    pub const EQUAL_FLOAT: u32 = 3;
    /// The first 64-bit float is less.
    pub const LESS_FLOAT: u32 = 4;
    /// The first 64-bit float is less or equal. Of a NaN, neither this nor its opposite is true.
    pub const LESS_EQUAL_FLOAT: u32 = 5;
    /// How many there are.
    pub const COUNT: u32 = 6;
}

/// `size` of [`operation::COMPARE_TEXT`].
pub mod likeness {
    /// The text is these bytes.
    pub const EQUAL: u32 = 0;
    /// The text begins with these bytes.
    pub const PREFIX: u32 = 1;
    /// The first [`COPY_MAX`](super::COPY_MAX) bytes of the text contain these bytes.
    pub const CONTAINS: u32 = 2;
    /// How many there are.
    pub const COUNT: u32 = 3;
}

pub use crate::arch::register;

/// Stands for the calling thread's `errno` where [`operation::REGISTER`] names a register. It isn't
/// known in every process.
pub const ERRNO: u32 = 1 << 16;

/// An item's first byte.
pub mod status {
    /// The value follows.
    pub const PRESENT: u8 = 0;
    /// Memory that it lies in can't be read. Nothing follows.
    pub const UNREADABLE: u8 = 1;
    /// There is no such value: a null pointer on the way, or another variant. Nothing follows.
    pub const ABSENT: u8 = 2;
}

wire_struct! {
    /// The beginning of a copied text or of copied elements.
    pub struct TextHeader [8] {
        /// The whole length in bytes; at most `u32::MAX`. If the end wasn't reached, what was seen.
        pub length: u32,
        /// The bytes that follow.
        pub copied: u16,
        /// Bits of [`text_flag`].
        pub flags: u16,
    }
}

/// Bits of [`TextHeader::flags`].
pub mod text_flag {
    /// There is more than was copied.
    pub const CUT: u16 = 1;
    /// What comes after the copied bytes can't be read.
    pub const UNREADABLE: u16 = 2;
    /// The pointer is null.
    pub const NULL: u16 = 4;
}

// A text of the greatest size fits into an otherwise empty capture.
const _: () = assert!(COPY_MAX + 8 < OUTPUT_MAX && OUTPUT_MAX <= 4 * 255);
