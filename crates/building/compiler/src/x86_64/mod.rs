//! Compilers for x86-64: their targets, and the assembler text that they write.

pub(crate) mod text;
pub(crate) mod trace_insn;

/// Options of gcc and clang that compile for another machine.
pub(crate) const OTHER_MACHINE_OPTIONS: [&str; 3] = ["-m32", "-mx32", "-m16"];

/// Whether the first word of a target is this architecture.
pub(crate) fn is_cpu(cpu: &str) -> bool {
    ["x86_64", "amd64"].contains(&cpu)
}

/// A target of rustc's whose programs can be traced.
pub(crate) const RUST_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Whether programs of this target of rustc's can be traced: those of Linux with a C library.
pub(crate) fn is_rust_target(target: &str) -> bool {
    target.starts_with("x86_64-") && target.contains("-linux-") && !target.ends_with("x32")
}
