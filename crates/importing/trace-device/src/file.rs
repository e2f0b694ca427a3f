//! The file that an emulated device writes: its rings, and what the process had mapped.
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 16 | `everycall device` |
//! | 16 | 4 | version, 1 |
//! | 20 | 4 | process |
//! | 24 | 32 | unit of time in ns, places, frames, bytes of a block; 8 each |
//!
//! Chunks follow: kind, 4; zero, 4; bytes, 8; the bytes.
//!
//! | kind | bytes |
//! |---|---|
//! | 1 | words of the command line, each with a zero byte at its end |
//! | 2 | lines of `/proc/PID/maps` |
//! | 3 | thread id, 4; zero, 4; overwritten blocks, 8; blocks, the last one perhaps cut |
//! | 4 | branches that the process made: conditional, returns, indirect; 8 each |

use std::fmt;
use std::io::{self, Write};

use crate::parameters::Parameters;

/// The first bytes.
pub const MAGIC: &[u8; 16] = b"everycall device";
const VERSION: u32 = 1;
const HEAD: usize = 56;

/// Branches by the packets that Intel PT would need for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branches {
    /// Conditional ones.
    pub conditional: u64,
    /// Returns.
    pub returns: u64,
    /// Indirect calls and jumps.
    pub indirect: u64,
}

/// A thread's ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Thread id.
    pub tid: u32,
    /// Blocks that were overwritten.
    pub overwritten: u64,
    /// The others.
    pub blocks: Vec<u8>,
}

/// All of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFile {
    /// The device's sizes.
    pub parameters: Parameters,
    /// Process id.
    pub pid: u32,
    /// Words of the command line, each with a zero byte at its end.
    pub command: Vec<u8>,
    /// Lines of `/proc/PID/maps`.
    pub maps: Vec<u8>,
    /// Rings.
    pub threads: Vec<Thread>,
    /// Branches, if they were counted.
    pub branches: Option<Branches>,
    /// The file ends within a chunk.
    pub is_cut: bool,
}

/// Why a file can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Where.
    pub offset: usize,
    /// The part that is expected there.
    pub expected: &'static str,
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} is expected at byte {}", self.expected, self.offset)
    }
}

impl std::error::Error for FileError {}

impl DeviceFile {
    /// Writes the file.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&self.pid.to_le_bytes())?;
        let Parameters { unit_ns, places, frames, block_bytes } = self.parameters;
        for size in [unit_ns, places as u64, frames as u64, block_bytes as u64] {
            out.write_all(&size.to_le_bytes())?;
        }
        chunk(out, 1, &[&self.command])?;
        chunk(out, 2, &[&self.maps])?;
        for thread in &self.threads {
            let mut head = [0; 16];
            head[..4].copy_from_slice(&thread.tid.to_le_bytes());
            head[8..].copy_from_slice(&thread.overwritten.to_le_bytes());
            chunk(out, 3, &[&head, &thread.blocks])?;
        }
        if let Some(Branches { conditional, returns, indirect }) = self.branches {
            let numbers = [conditional, returns, indirect].map(u64::to_le_bytes);
            chunk(out, 4, &[numbers.as_flattened()])?;
        }
        Ok(())
    }

    /// Reads a file; of one that is cut, what is there.
    ///
    /// # Errors
    /// It isn't such a file, or a device that can't be.
    pub fn read(bytes: &[u8]) -> Result<DeviceFile, FileError> {
        let expected = |offset, expected| FileError { offset, expected };
        if !bytes.starts_with(MAGIC) {
            return Err(expected(0, "`everycall device`"));
        }
        let number = |offset| number(bytes, offset);
        if bytes.len() < HEAD {
            return Err(expected(bytes.len(), "the rest of the head"));
        }
        if number(16) as u32 != VERSION {
            return Err(expected(16, "version 1"));
        }
        let size = |offset| usize::try_from(number(offset)).unwrap_or(usize::MAX);
        let parameters =
            Parameters { unit_ns: number(24), places: size(32), frames: size(40), block_bytes: size(48) };
        if !parameters.are_valid() {
            return Err(expected(24, "a device with sizes that are possible"));
        }
        let mut file = DeviceFile {
            parameters,
            pid: (number(16) >> 32) as u32,
            command: Vec::new(),
            maps: Vec::new(),
            threads: Vec::new(),
            branches: None,
            is_cut: false,
        };
        let mut at = HEAD;
        while let Some(head) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(rest) = head.get(16..) else {
                file.is_cut = true;
                break;
            };
            let length = usize::try_from(self::number(head, 8)).unwrap_or(usize::MAX);
            file.is_cut = rest.len() < length;
            let payload = rest.get(..length).unwrap_or(rest);
            match self::number(head, 0) {
                1 => file.command = payload.to_vec(),
                2 => file.maps = payload.to_vec(),
                3 if payload.len() >= 16 => file.threads.push(Thread {
                    tid: self::number(payload, 0) as u32,
                    overwritten: self::number(payload, 8),
                    blocks: payload.get(16..).unwrap_or_default().to_vec(),
                }),
                4 if payload.len() >= 24 => {
                    let [conditional, returns, indirect] = [0, 8, 16].map(|at| self::number(payload, at));
                    file.branches = Some(Branches { conditional, returns, indirect });
                }
                3 | 4 => {}
                _ => return Err(expected(at, "a chunk of a device's file")),
            }
            at = at.saturating_add(16).saturating_add(payload.len());
        }
        Ok(file)
    }
}

fn chunk(out: &mut dyn Write, kind: u64, parts: &[&[u8]]) -> io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&(length as u64).to_le_bytes())?;
    parts.iter().try_for_each(|part| out.write_all(part))
}

/// Eight bytes; missing ones are zero.
fn number(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    let there = bytes.get(offset..).unwrap_or_default();
    number.iter_mut().zip(there).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_back_whole_and_cut() {
        let thread = |tid| Thread { tid, overwritten: 3, blocks: vec![7; 100 + tid as usize] };
        let file = DeviceFile {
            parameters: Parameters::DEVICE,
            pid: 17,
            command: b"app\0-v\0".to_vec(),
            maps: b"1000-2000 r-xp 0 00:00 1 /app\n".to_vec(),
            threads: vec![thread(1), thread(2)],
            branches: Some(Branches { conditional: 1, returns: 2, indirect: 3 }),
            is_cut: false,
        };
        let mut bytes = Vec::new();
        file.write(&mut bytes).unwrap();
        assert_eq!(DeviceFile::read(&bytes), Ok(file.clone()));
        for length in 0..bytes.len() {
            match DeviceFile::read(&bytes[..length]) {
                Ok(read) => assert!(length >= HEAD && read.threads.len() <= 2, "{length}"),
                Err(error) => assert!(length < HEAD, "{length}: {error}"),
            }
        }
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0xff;
            let _: Result<_, _> = DeviceFile::read(&damaged);
        }
    }
}
