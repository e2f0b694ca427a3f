//! Programs that are built with the prefix in every way.

mod builds;
mod embedded;
mod inlined;
mod modules;
mod musl;
mod names;
mod trace_insn;
mod walks;
mod xray_api;
