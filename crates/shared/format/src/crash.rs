//! The crash record, in the arena's header page: how the process was started. It is stored because
//! a program may overwrite its command line with a title, and change its folder. In a crash file
//! (an arena that outlives its process), the record also has facts that can't be found out later.

use crate::arena::{ClockReading, PAGE, PINNERS, PINNERS_OFFSET, PinnerEntry};
use crate::wire::{Wire, wire_struct};

/// How the names of crash files end.
pub const ENDING: &str = ".arena";
/// Where the record is in the arena.
pub const CRASH_OFFSET: u64 = 2048;
/// Limit on the stored bytes of the command line and of the folder.
pub const COMMAND_MAX: usize = PAGE as usize - CRASH_OFFSET as usize - size_of::<CrashRecord>();
/// "crashrec".
pub const CRASH_MAGIC: u64 = u64::from_le_bytes(*b"crashrec");
/// "beginrec": the record of an arena that is no crash file. It has no boot and no clocks.
pub const BEGIN_MAGIC: u64 = u64::from_le_bytes(*b"beginrec");
/// Entries of an open-call stack in a crash file: fewer than elsewhere, because disk space is
/// allocated for all of them.
pub const OPEN_CALL_CAPACITY: u32 = 1 << 14;

const _: () = assert!(PINNERS_OFFSET + PINNERS as u64 * size_of::<PinnerEntry>() as u64 <= CRASH_OFFSET);

wire_struct! {
    /// A process at its start. The words of its command line follow, each ended by a zero byte
    /// (the last word is truncated if there was no room for all), then its working folder.
    pub struct CrashRecord [192] {
        /// [`CRASH_MAGIC`] or [`BEGIN_MAGIC`].
        pub magic: u64,
        /// Bytes of this structure.
        pub record_size: u32,
        /// Bytes of the command line.
        pub command_length: u32,
        /// The kernel's id of this boot, as it writes it, NUL padded.
        pub boot: [u8; 40],
        /// The process's name at its start, NUL padded.
        pub name: [u8; 16],
        /// The last two clock readings, in any order. A reading whose ticks are 0 is being written.
        pub latest: [ClockReading; 2],
        /// Bytes of the folder; 0 if it isn't known.
        pub folder_length: u32,
        /// Zero.
        pub reserved: [u32; 9],
    }
}

/// The command line, folder and name with which a process was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning<'a> {
    /// The words of its command line, each ended by a zero byte.
    pub command: &'a [u8],
    /// Its working folder; empty if it isn't known.
    pub folder: &'a [u8],
    /// Its name, NUL padded.
    pub name: [u8; 16],
}

impl<'a> Beginning<'a> {
    /// The record in the bytes at [`CRASH_OFFSET`], which may contain anything. `None` if there is
    /// no record.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Beginning<'a>> {
        let record = CrashRecord::read(bytes)?;
        let size = usize::try_from(record.record_size).ok()?;
        if !matches!(record.magic, CRASH_MAGIC | BEGIN_MAGIC) || size < CrashRecord::SIZE {
            return None;
        }
        let rest = bytes.get(size..)?;
        let (command, rest) = rest.split_at_checked(record.command_length as usize).unwrap_or((rest, &[]));
        let folder = rest.get(..record.folder_length as usize).filter(|folder| folder.first() == Some(&b'/'));
        Some(Beginning { command, folder: folder.unwrap_or(&[]), name: record.name })
    }

    /// Whether the command line is complete.
    #[must_use]
    pub fn has_whole_command(&self) -> bool {
        self.command.last() == Some(&0)
    }

    /// The words of the command line.
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let line = self.command.strip_suffix(b"\0").unwrap_or(self.command);
        let is_there = !self.command.is_empty();
        line.split(|byte| *byte == 0).filter(move |_| is_there)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn page(record: CrashRecord, texts: &[u8]) -> Vec<u8> {
        let mut bytes = record.to_bytes().to_vec();
        bytes.extend(texts);
        bytes
    }

    #[test]
    fn what_a_process_began_with_is_read_and_lies_are_not_believed() {
        let record = |command_length, folder_length| CrashRecord {
            magic: BEGIN_MAGIC,
            record_size: CrashRecord::SIZE as u32,
            command_length,
            folder_length,
            ..CrashRecord::default()
        };
        let whole = page(record(7, 4), b"app\0-x\0/srv");
        let found = Beginning::parse(&whole).unwrap();
        assert_eq!(
            (found.words().collect::<Vec<_>>(), found.folder),
            (vec![&b"app"[..], b"-x"], &b"/srv"[..])
        );
        assert!(found.has_whole_command());
        for end in 0..whole.len() {
            let cut = Beginning::parse(&whole[..end]);
            assert_eq!(cut.is_some(), end >= CrashRecord::SIZE, "{end}");
            assert!(cut.is_none_or(|cut| cut.folder.is_empty()), "{end}");
        }
        let lie = page(record(u32::MAX, u32::MAX), b"app");
        let found = Beginning::parse(&lie).unwrap();
        assert_eq!((found.words().collect::<Vec<_>>(), found.folder), (vec![&b"app"[..]], &b""[..]));
        assert!(!found.has_whole_command());
        assert_eq!(Beginning::parse(&page(record(0, 0), b"")).unwrap().words().count(), 0);
        assert!(Beginning::parse(&page(CrashRecord { magic: 1, ..record(0, 0) }, b"")).is_none());
        assert!(
            Beginning::parse(&page(CrashRecord { record_size: u32::MAX, ..record(0, 0) }, b"")).is_none()
        );
    }
}
