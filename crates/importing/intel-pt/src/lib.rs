//! Traces of Intel Processor Trace: what the CPU wrote, as calls with times.
//!
//! ```text
//! packet   bytes -> packets
//! clock    TSC, TMA, MTC, CYC -> ticks of the time-stamp counter
//! code     bytes of a process's code -> blocks, each up to its branch
//! flow     packets and blocks -> branches between functions
//! calls    branches of a thread -> entries, exits, what was unwound, gaps
//! ```
//!
//! Nothing here opens a file: the caller supplies packets and code (`docs/design/intel-pt.md`). No
//! number of a trace is trusted: bytes that make no sense end in a [`Gap`], and decoding goes on at
//! the next synchronization point.
//!
//! Not here: opening files, processes, names.
//!
//! Checked by: a model of a CPU that runs random programs; libipt and perf on the same bytes;
//! damaged packets.

#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes a gap, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod calls;
mod clock;
mod code;
mod flow;
mod packet;

pub use calls::{CallSink, Calls};
pub use clock::{Clock, Rates, Time};
pub use code::{Block, Code, Image, Kind, Place};
pub use flow::{Flow, Gap, Sink};
pub use packet::{Ip, Packet, PacketError, Packets, find_psb};
