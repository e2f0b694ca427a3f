//! The cost of a process's hooks: from its arena into a file.

use std::io::{self, Write};

use everycall_format::Wire;
use everycall_format::calibration::{CALIBRATION_OFFSET, Calibration};
use everycall_format::ect::chunk;

use crate::chunk_writer::ChunkWriter;

/// Writes the chunk of the calibration in an arena, with the CPU time that its process took in all,
/// if that is known. Nothing is written if the arena has none. `read` reads bytes at an offset, and
/// says whether it could.
///
/// # Errors
///
/// The output's.
pub fn write_calibration<W: Write>(
    file: &mut ChunkWriter<W>,
    cpu_ns: Option<u64>,
    mut read: impl FnMut(u64, &mut [u8]) -> bool,
) -> io::Result<()> {
    let mut bytes = [0; Calibration::SIZE];
    let record = Some(()).filter(|()| read(CALIBRATION_OFFSET, &mut bytes));
    let record = record.and_then(|()| Calibration::read(&bytes)).filter(|record| record.record_size != 0);
    let Some(record) = record else { return Ok(()) };
    let record = Calibration { record_size: Calibration::SIZE as u32, cpu_ns: cpu_ns.unwrap_or(0), ..record };
    file.chunk(chunk::CALIBRATION, &[&record.to_bytes()])
}
