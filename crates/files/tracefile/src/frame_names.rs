//! The names of frames by id: those of an arena, and their chunk.

use std::io::{self, Write};

use everycall_format::Wire;
use everycall_format::arena::ArenaHeader;
use everycall_format::ect::{FrameNamesRecord, chunk};
use everycall_format::frame;

use crate::chunk_writer::ChunkWriter;

/// The names that a process gives its frames by id.
#[derive(Clone, Debug, Default)]
pub struct FrameNames {
    /// As in the arena.
    records: Vec<u8>,
    lost: u64,
}

impl FrameNames {
    /// The names in an arena with this layout; `None` if its process has no frames by id. `read`
    /// reads bytes at an offset, and says whether it could.
    pub fn read(layout: &ArenaHeader, read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<FrameNames> {
        FrameNames::since(layout, 0, read)
    }

    /// The names in an arena, as [`FrameNames::read`], without the first `from` bytes of records.
    pub fn since(
        layout: &ArenaHeader,
        from: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<FrameNames> {
        let mut header = [0; frame::FrameNames::SIZE];
        if !read(layout.frames_offset, &mut header) {
            return None;
        }
        let header = frame::FrameNames::read(&header).filter(|header| header.is_used != 0)?;
        let room = layout.frames_size.saturating_sub(frame::FrameNames::SIZE as u64);
        let mut records = vec![0; header.used.min(room).saturating_sub(from) as usize];
        if !read(layout.frames_offset + frame::FrameNames::SIZE as u64 + from, &mut records) {
            records.clear();
        }
        Some(FrameNames { records, lost: header.lost })
    }

    /// The records, as in the arena.
    #[must_use]
    pub fn into_records(self) -> Vec<u8> {
        self.records
    }

    /// Writes their chunk.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn write<W: Write>(&self, file: &mut ChunkWriter<W>) -> io::Result<()> {
        let record = FrameNamesRecord {
            record_size: FrameNamesRecord::SIZE as u32,
            length: self.records.len() as u64,
            lost: self.lost,
            ..FrameNamesRecord::default()
        };
        file.chunk(chunk::FRAME_NAMES, &[&record.to_bytes(), &self.records])
    }
}
