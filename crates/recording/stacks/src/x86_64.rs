//! Registers: as the kernel gives them with a sample, and as unwind information numbers them.

/// The registers that are wanted with a sample, by the kernel's numbers
/// (`arch/x86/include/uapi/asm/perf_regs.h`).
pub const WANTED: u64 = 0x00ff_01ff;
/// Unwind information's numbers of the wanted registers, in the kernel's order. The last number
/// stands for the instruction pointer.
pub const ORDER: [u16; 17] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15];
/// How many numbers there are.
pub const COUNT: usize = 17;
/// The stack pointer.
pub const STACK: u16 = 7;
/// The frame pointer, in code that has one.
pub const FRAME: u16 = 6;
/// The instruction pointer, which is also the column of return addresses.
pub const INSTRUCTION: u16 = 16;
/// Registers that a function leaves to its caller as they were.
pub const PRESERVED: [u16; 6] = [3, 6, 12, 13, 14, 15];
