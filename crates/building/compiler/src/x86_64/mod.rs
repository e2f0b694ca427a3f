//! Compilers for x86-64: their targets, and the assembler text that they write.

pub(crate) mod text;
pub(crate) mod trace_insn;

/// Options of gcc and clang that compile for another machine.
pub(crate) const OTHER_MACHINE_OPTIONS: [&str; 3] = ["-m32", "-mx32", "-m16"];

/// Target prefixes of cross-compilers' names.
pub(crate) const OTHER_MACHINES: [&str; 12] = [
    "aarch64",
    "arm",
    "i386",
    "i486",
    "i586",
    "i686",
    "riscv",
    "powerpc",
    "s390x",
    "mips",
    "sparc",
    "loongarch",
];

/// Whether a target of clang's has this architecture.
pub(crate) fn is_target(triple: &str) -> bool {
    ["x86_64", "amd64"].iter().any(|cpu| triple.starts_with(cpu))
}

/// A target of rustc's whose programs can be traced.
pub(crate) const RUST_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Whether programs of this target of rustc's can be traced: those of Linux with a C library.
pub(crate) fn is_rust_target(target: &str) -> bool {
    target.starts_with("x86_64-") && target.contains("-linux-") && !target.ends_with("x32")
}
