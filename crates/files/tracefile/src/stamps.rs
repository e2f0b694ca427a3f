//! The chunk that says which events have a time of their own.

use std::io::{self, Write};

use everycall_format::Wire;
use everycall_format::ect::{StampsRecord, chunk};
use everycall_format::stamp::EXACT;

use crate::chunk_writer::ChunkWriter;

/// Writes the chunk of a process whose arena says `stamps`, where `wanted` was asked for: both are
/// of [`everycall_format::stamp`]. A process whose events all have stamps, as was wanted, needs
/// none.
///
/// # Errors
///
/// The output's.
pub fn write_stamps<W: Write>(file: &mut ChunkWriter<W>, stamps: u32, wanted: u32) -> io::Result<()> {
    if (stamps, wanted) == (EXACT, EXACT) {
        return Ok(());
    }
    let record =
        StampsRecord { record_size: StampsRecord::SIZE as u32, stamps, wanted, ..StampsRecord::default() };
    file.chunk(chunk::STAMPS, &[&record.to_bytes()])
}
