//! Core dumps.

use crate::Bytes;

const PAGE: usize = 4096;

/// A core of a process, as the kernel writes it.
#[derive(Clone, Debug, Default)]
pub struct Core {
    /// Process id; if 0, there is no note about the process.
    pub pid: u32,
    /// Command name.
    pub name: String,
    /// Command line.
    pub arguments: String,
    /// The signal that ended it.
    pub signal: u16,
    /// Whether the signal's information is included. Debuggers omit it.
    pub is_kernels: bool,
    /// Live threads.
    pub threads: u32,
    /// Mapped files, with their addresses.
    pub files: Vec<(u64, String)>,
    /// Memory: address and bytes, in order of addresses.
    pub memory: Vec<(u64, Vec<u8>)>,
}

impl Core {
    /// Adds memory at `address` as kernels dump partially dumped memory: pages of zeros are left
    /// out, and each run of other pages is a piece of its own.
    pub fn add_in_pieces(&mut self, address: u64, bytes: &[u8]) {
        let mut is_open = false;
        for (index, page) in bytes.chunks(PAGE).enumerate() {
            let is_used = page.iter().any(|byte| *byte != 0);
            match self.memory.last_mut() {
                Some((_, piece)) if is_used && is_open => piece.extend(page),
                _ if is_used => self.memory.push((address + (index * PAGE) as u64, page.to_vec())),
                _ => {}
            }
            is_open = is_used;
        }
    }

    /// The bytes of the file.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        let notes = self.notes();
        let headers = 1 + self.memory.len();
        let notes_at = 64 + 56 * headers;
        let mut bytes = Bytes::default();
        bytes.padded(b"\x7fELF\x02\x01\x01", 16).u16(4).u16(62).u32(1).u64(0);
        bytes.u64(64).u64(0).u32(0).u16(64).u16(56).u16(headers as u16).u16(0).u16(0).u16(0);
        bytes.u32(4).u32(0).u64(notes_at as u64).u64(0).u64(0);
        bytes.u64(notes.len() as u64).u64(0).u64(4);
        let mut offset = (notes_at + notes.len()).next_multiple_of(PAGE);
        for (address, memory) in &self.memory {
            bytes.u32(1).u32(6).u64(offset as u64).u64(*address).u64(0);
            bytes.u64(memory.len() as u64).u64(memory.len() as u64).u64(PAGE as u64);
            offset += memory.len().next_multiple_of(PAGE);
        }
        bytes.0.extend(notes);
        for (_, memory) in &self.memory {
            bytes.0.resize(bytes.0.len().next_multiple_of(PAGE), 0);
            bytes.0.extend(memory);
        }
        bytes.0
    }

    fn notes(&self) -> Vec<u8> {
        let mut notes = Bytes::default();
        for thread in 0..self.threads {
            let mut status = Bytes::default();
            let signal = if thread == 0 { self.signal } else { 0 };
            status.u32(if self.is_kernels { signal.into() } else { 0 }).u32(0).u32(0).u16(signal).u16(0);
            status.u64(0).u64(0).u32(self.pid + thread).zeros(336 - 36);
            note(&mut notes, 1, &status.0);
            if thread == 0 && self.pid != 0 {
                let mut info = Bytes::default();
                info.u32(0).u32(0).u64(0).u32(0).u32(0).u32(self.pid).u32(1).u32(0).u32(0);
                info.padded(self.name.as_bytes(), 16).padded(self.arguments.as_bytes(), 80);
                note(&mut notes, 3, &info.0);
            }
        }
        let mut files = Bytes::default();
        files.u64(self.files.len() as u64).u64(PAGE as u64);
        for (address, _) in &self.files {
            files.u64(*address).u64(address + PAGE as u64).u64(0);
        }
        for (_, path) in &self.files {
            files.0.extend(path.as_bytes());
            files.0.push(0);
        }
        note(&mut notes, 0x4649_4c45, &files.0);
        notes.0
    }
}

fn note(notes: &mut Bytes, kind: u32, data: &[u8]) {
    notes.u32(5).u32(data.len() as u32).u32(kind).padded(b"CORE", 8);
    notes.padded(data, data.len().next_multiple_of(4));
}
