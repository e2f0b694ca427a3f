//! Frames by id: calls that the program reports itself, for code that has no hooks (functions of an
//! interpreter, of a just-in-time compiler). They share the event words, the open-call stack and
//! everything else with calls of machine code. Their code offsets are in a range that no module
//! gets: `FIRST + id * STEP`.
//!
//! The names of ids are in the arena:
//!
//! ```text
//! frames_offset of the arena's header, frames_size bytes
//!   FrameNames
//!   records: FrameName, the name, the file; each padded with zeros to a multiple of RECORD_ALIGN
//! ```
//!
//! Records with the id [`THREAD`] are the names that the program gives its threads, those with the
//! id [`TRAMPOLINES`] are tables of trampolines, and those with the id [`CAPTURES`] are layouts of
//! captures.
//!
//! Records are only added. The last one of an id counts. One whose thread was killed meanwhile
//! stays incomplete. Only used parts take memory.

use crate::event::NO_PLACE_FIRST;
use crate::wire::{PAGE, Wire, wire_struct};

/// Number of ids.
pub const IDS: u32 = 1 << 20;
/// Code offsets of an id. (Hooks look up a function's counts by the first of them, four bytes
/// each.)
pub const STEP: u32 = 8;
/// Code offset of id 0; those that modules may have end here.
pub const FIRST: u32 = NO_PLACE_FIRST - IDS * STEP;
/// Default bytes for names in an arena, their header included.
pub const FRAMES_SIZE: u64 = 16 << 20;
/// Records begin at multiples of this.
pub const RECORD_ALIGN: u64 = 8;
/// The most bytes of a name, and of a file's path; what is longer is truncated.
pub const TEXT_MAX: usize = 1024;

/// In place of an id: the record is the name of a thread. Its line is the kernel's thread id, and in
/// place of a path it has the ticks at which the name was given, 8 bytes.
pub const THREAD: u32 = u32::MAX;

/// In place of an id: a part of a table of [trampolines](crate::trampoline). Its line is the
/// table's number, in place of a name it has entries, and in place of a path the image address that
/// is added to their origins, 8 bytes. Since version 2.15.
pub const TRAMPOLINES: u32 = u32::MAX - 1;

/// In place of an id: a part of the layout of a [capture](crate::capture_set). Its line is the
/// capture's id, in place of a name it has bytes of the layout, and in place of a path the number
/// of this part, from 0, and how many parts there are, 4 bytes each. Since version 2.15.
pub const CAPTURES: u32 = u32::MAX - 2;

/// [`FrameNames::is_used`].
pub mod used {
    /// The program has named frames, or reported them.
    pub const FRAMES: u32 = 1;
    /// There are records of trampolines.
    pub const TRAMPOLINES: u32 = 2;
    /// There are records of captures.
    pub const CAPTURES: u32 = 4;
}

const _: () = assert!(FRAMES_SIZE.is_multiple_of(PAGE));

wire_struct! {
    /// Before the records of names.
    pub struct FrameNames [64] {
        /// Bytes of records.
        pub used: u64,
        /// Names that found no room.
        pub lost: u64,
        /// A set of [`used`]; 0 if there are no records.
        pub is_used: u32,
        /// Zero.
        pub reserved: [u32; 11],
    }
}

wire_struct! {
    /// Begins a record: the name of an id. The texts follow.
    pub struct FrameName [24] {
        /// Bytes of the record with its texts and padding.
        pub size: u32,
        /// The id.
        pub id: u32,
        /// Line of its definition, from 1; 0 if it isn't known.
        pub line: u32,
        /// Bytes of the name.
        pub name_length: u32,
        /// Bytes of the path of its file, which follows the name; 0 if it isn't known.
        pub file_length: u32,
        /// 1 once the record is complete. Its size is there before.
        pub is_complete: u32,
    }
}

/// The build id of the module that frames by id make.
pub const BUILD_ID: &[u8] = b"frames by id";

/// The name of an id, as its record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedFrame<'a> {
    /// The id.
    pub id: u32,
    /// Its name.
    pub name: &'a [u8],
    /// The path of its file; empty if it isn't known.
    pub file: &'a [u8],
    /// Line of its definition; 0 if it isn't known.
    pub line: u32,
}

/// Reads records of names, up to the first one that isn't complete.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    read: usize,
}

impl<'a> Records<'a> {
    /// Those in these bytes.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Records<'a> {
        Records { rest: bytes, read: 0 }
    }

    /// Bytes of the records that were read.
    #[must_use]
    pub fn read(&self) -> usize {
        self.read
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = NamedFrame<'a>;

    fn next(&mut self) -> Option<NamedFrame<'a>> {
        loop {
            let record = FrameName::read(self.rest).filter(|record| record.is_complete != 0)?;
            let (whole, rest) = self.rest.split_at_checked(record.size as usize)?;
            let texts = whole.get(FrameName::SIZE..)?;
            self.rest = rest;
            self.read += whole.len();
            let Some((name, texts)) = texts.split_at_checked(record.name_length as usize) else { continue };
            let Some(file) = texts.get(..record.file_length as usize) else { continue };
            if record.id < IDS {
                return Some(NamedFrame { id: record.id, name, file, line: record.line });
            }
        }
    }
}

/// Reads parts of tables of trampolines among records of names: the table's number, the address
/// that is added to its entries' origins, and the entries.
pub fn tables(records: &[u8]) -> impl Iterator<Item = (u32, u64, &[u8])> {
    let mut rest = records;
    core::iter::from_fn(move || {
        loop {
            let record = FrameName::read(rest).filter(|record| record.is_complete != 0)?;
            let (whole, behind) = rest.split_at_checked(record.size as usize)?;
            let texts = whole.get(FrameName::SIZE..)?;
            rest = behind;
            let Some((entries, first)) = texts.split_at_checked(record.name_length as usize) else {
                continue;
            };
            let first = first.get(..record.file_length as usize).and_then(|first| first.try_into().ok());
            if let (TRAMPOLINES, Some(first)) = (record.id, first) {
                return Some((record.line, u64::from_le_bytes(first), entries));
            }
        }
    })
}

/// Whether a code offset is one of a frame by id.
#[must_use]
pub const fn is_frame(offset: u32) -> bool {
    offset.wrapping_sub(FIRST) < IDS * STEP
}

/// The code offset of an id.
#[must_use]
pub const fn offset_of(id: u32) -> Option<u32> {
    if id < IDS { Some(FIRST + id * STEP) } else { None }
}
