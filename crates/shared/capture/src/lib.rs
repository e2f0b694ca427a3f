//! Runs the programs that copy values of a call ([`everycall_format::capture`]).
//!
//! ```text
//! bytes --Program::check--> Program --run(machine, output)--> Outcome, bytes
//! ```
//!
//! [`Program::check`] is called once, on a private copy of the bytes. It accepts only programs
//! whose jumps lead forwards, whose registers exist, and whose output, reads and steps are bounded
//! by the format's limits, whatever values they meet. So [`Program::run`] always ends, and needs no
//! further limit. It reads memory through [`Machine`] alone, which may refuse any read.
//!
//! This crate runs inside of traced programs, at any of their calls: it allocates nothing, has no
//! panic, and computes floats with integers, so that it neither raises floating-point exceptions
//! nor depends on the program's rounding mode.
//!
//! Not here: types, text, where memory may be read.
//!
//! Checked by: instructions one by one; random and damaged programs against their bounds; no
//! `unsafe`.

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
// Invalid input leads to an error, never to a panic.
#![cfg_attr(
    not(test),
    deny(
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used,
        clippy::indexing_slicing
    )
)]

mod check;
mod float;
mod machine;
mod output;
mod plain;
mod run;
mod text;

pub use check::{Program, Refusal};
pub use machine::Machine;
pub use plain::{Item, Origin, Plain, Test};
pub use run::Outcome;
