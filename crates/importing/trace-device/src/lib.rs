//! A model of a CPU with a TRACE instruction: what it would write for each call, and what that
//! would cost. `docs/design/trace-instruction.md` has the design and the figures.
//!
//! ```text
//! instruction -> Encoder -> Buffer (SRAM) -> DMA -> Ring (DRAM) -> Decoder -> events
//!                 stamps, differences       waits   newest blocks
//! ```
//!
//! `parameters` has every size, rate and energy. The model runs on a host and is no part of what
//! traced programs contain.
//!
//! Not here: what is traced, files, symbols.
//!
//! Checked by: random streams read back, each block alone, damaged; buffers against counted bursts.

#![deny(missing_docs, clippy::missing_errors_doc)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod buffer;
mod calls;
mod decode;
mod encode;
mod event;
mod file;
mod names;
pub mod parameters;
mod predictor;
mod ring;
mod varint;

pub use buffer::{Buffer, Bursts};
pub use calls::{Change, OpenCalls};
pub use decode::{DecodeError, Decoder};
pub use encode::Encoder;
pub use event::{Event, Place, Stamped};
pub use file::{Branches, DeviceFile, FileError, MAGIC, Thread};
pub use names::Names;
pub use parameters::Parameters;
pub use ring::Ring;
