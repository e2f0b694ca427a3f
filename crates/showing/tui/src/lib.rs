//! The viewer in a terminal, behind `everycall tui`: the answers of `everycall_view`, on a screen
//! of characters.
//!
//! ```text
//! text      texts of others, so that no terminal acts upon them
//! data      requests and answers, with types
//! layout    where things are on a screen
//! state     keys and answers in, requests out: what is shown
//! draw      state -> cells of a screen
//! lanes     threads that get answers
//! screen    the terminal, and how it gets back what it was; signals
//! run       all of it together
//! ```
//!
//! Not here: numbers and levels of its own: they are `view`'s.
//!
//! Checked by: kept screens, each key against the state; a terminal emulator of others end to end,
//! killed, suspended and resized.

#![deny(missing_docs, clippy::missing_errors_doc)]
// The terminal belongs to `screen`.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod data;
mod draw;
mod lanes;
mod layout;
mod run;
pub mod screen;
mod signals;
mod state;
mod text;

pub use run::run;

#[cfg(test)]
mod tests;
