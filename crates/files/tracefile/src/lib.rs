//! The only writer of trace files (`.ect`), in bounded memory, for the recorder and for core dumps.
//!
//! - [`ChunkWriter`]: the file's header, chunks with their checksums, the end.
//! - [`module_table`], [`texts`]: payloads.
//! - [`SourceFile`]: symbols and sources behind a recording.
//! - [`Packer`]: event words in their smallest form.
//! - [`Runs`]: turns segments into events chunks.
//! - [`Ring`]: a thread's ring, scanned once, then copied segment by segment.
//! - [`Dropped`]: calls that were counted, by function.
//! - [`write_calibration`]: what a process's hooks cost.
//! - [`FrameNames`]: what frames by id are called.
//! - [`write_code_names`]: what code of just-in-time compilers is called.
//! - [`write_stamps`]: which events have a time of their own.
//! - [`StreamedThread`]: which part of a thread was written while it runs.
//! - [`KeptStates`]: the newest scheduling events in an arena.
//! - [`Summary`]: what was written and what was lost, for the report at the end.
//!
//! Not here: where the bytes lie.
//!
//! Checked by: the recorder's tests, `reader`.

// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Invalid input leads to an error, never to a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod all_calls;
mod calibration;
mod chunk_writer;
mod code_names;
mod dropped;
mod embedded;
mod frame_names;
mod images;
mod kept_states;
mod memory;
mod packer;
mod payload;
mod ring;
mod runs;
mod stamps;
mod streamed_thread;
mod summary;
mod value_counts;

pub use all_calls::AllCalls;
pub use calibration::write_calibration;
pub use chunk_writer::{ChunkWriter, WriteChunk, array};
pub use code_names::write_code_names;
pub use dropped::{Dropped, keep_settled};
pub use embedded::SourceFile;
pub use frame_names::FrameNames;
pub use images::{IMAGES_SIZE_MAX, Images};
pub use kept_states::KeptStates;
pub use packer::Packer;
pub use payload::{module_image, module_table, texts};
pub use ring::{Ring, Segments, Tally, is_segment, segment_head, tally};
pub use runs::{Place, Runs};
pub use stamps::write_stamps;
pub use streamed_thread::{Progress, StreamedThread};
pub use summary::{Child, Summary, ThreadSummary, text_of};
