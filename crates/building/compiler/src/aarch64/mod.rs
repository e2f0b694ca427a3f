//! Compilers for 64-bit Arm: their targets, and the assembler text that they write.

pub(crate) mod text;

/// Options of gcc and clang that compile for another machine, or another kind of program.
pub(crate) const OTHER_MACHINE_OPTIONS: [&str; 2] = ["-mbig-endian", "-mabi=ilp32"];

/// The target of rustc's for which the runtime is built.
pub(crate) const RUNTIME_TARGET: &str = "aarch64-unknown-none-softfloat";

/// Whether the first word of a target is this architecture.
pub(crate) fn is_cpu(cpu: &str) -> bool {
    ["aarch64", "arm64"].contains(&cpu)
}
