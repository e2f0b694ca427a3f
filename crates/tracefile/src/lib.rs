//! The one writer of trace files (`.ect`), in bounded memory, whoever has the bytes: the recorder, or what opens cores.
//!
//! - [`ChunkWriter`]: the file's header, chunks with their checksums, the end.
//! - [`module_table`], [`texts`]: payloads.
//! - [`Packer`]: event words in their smallest form.
//! - [`Runs`]: segments on their way into events chunks.
//! - [`Ring`]: a thread's ring, looked through once, then copied segment by segment.
//! - [`Summary`]: what was written and what was lost, for the report at the end.

// Messages go through `everycall_messages`: these macros panic where nobody can read them.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// What comes from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod chunk_writer;
mod packer;
mod payload;
mod ring;
mod runs;
mod summary;

pub use chunk_writer::{ChunkWriter, array, bytes_of};
pub use packer::Packer;
pub use payload::{module_image, module_table, texts};
pub use ring::{Ring, Segments, Tally, is_segment, tally};
pub use runs::{Place, Runs};
pub use summary::{Child, Summary, ThreadSummary, text_of};
