//! A traced object in memory: its bounds, its code, its build id. These are read from the object's
//! program headers, which are loaded with it.
#![allow(unsafe_code)] // Headers of an object in memory, by their addresses.

use crate::sys::system::{PROT_EXEC, PROT_READ, PROT_WRITE};
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::arena::PAGE;
use everycall_hooks::ModuleDescriptor;

/// An executable segment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Text {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The flags in its program header.
    pub(crate) flags: u32,
}

impl Text {
    /// Program header flag.
    pub(crate) const EXECUTABLE: u32 = 1;
    const WRITABLE: u32 = 2;
    const READABLE: u32 = 4;

    pub(crate) fn protection(self) -> usize {
        let set = |flag, bit| if self.flags & flag == 0 { 0 } else { bit };
        set(Self::READABLE, PROT_READ) | set(Self::WRITABLE, PROT_WRITE) | set(Self::EXECUTABLE, PROT_EXEC)
    }

    /// The segment that contains `length` bytes at `address`.
    pub(crate) fn of(all: &[Text], address: u64, length: usize) -> Option<Text> {
        let within = |text: &&Text| {
            address >= text.start && address.checked_add(length as u64).is_some_and(|end| end <= text.end)
        };
        all.iter().find(within).copied()
    }
}

/// Facts from the program headers of a loaded object.
pub(crate) struct Image {
    pub(crate) base: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The addresses that its hooks report: `start` and `end`, or those of its trampolines.
    pub(crate) code: (u64, u64),
    /// Checksum of the table of its trampolines; 0 without.
    pub(crate) trampolines: u32,
    pub(crate) executable: bool,
    pub(crate) build_id: [u8; 32],
    pub(crate) build_id_length: u32,
    pub(crate) text: [Text; TEXT_SEGMENTS],
    /// Segments that can be read and not written: first address, and the one behind the last.
    pub(crate) constant: [(u64, u64); CONSTANT_SEGMENTS],
}

/// Limit on the read-only segments that are used. Objects usually have three.
pub(crate) const CONSTANT_SEGMENTS: usize = 4;

/// Limit on the executable segments that are used. Objects usually have one.
const TEXT_SEGMENTS: usize = 4;

impl Image {
    /// Of an object with hooks.
    pub(crate) fn of_module(module: &ModuleDescriptor) -> Option<Image> {
        let mut image = Image::of(module.elf_header.load(Relaxed))?;
        let (start, end) = (module.region[0].load(Relaxed), module.region[1].load(Relaxed));
        if start != 0 {
            image.code = (start, end);
            image.trampolines = module.trampolines.load(Relaxed) as u32;
            image.text = [Text::default(); TEXT_SEGMENTS];
            image.text[0] = Text { start, end, flags: Text::EXECUTABLE | Text::READABLE };
        }
        Some(image)
    }

    pub(crate) fn of(elf_header: u64) -> Option<Image> {
        const PT_LOAD: u32 = 1;
        const PT_DYNAMIC: u32 = 2;
        const PT_INTERP: u32 = 3;
        const PT_NOTE: u32 = 4;
        const ET_EXEC: u16 = 2;
        const DT_FLAGS_1: u64 = 0x6fff_fffb;
        const DF_1_PIE: u64 = 0x0800_0000;
        if elf_header == 0 {
            return None;
        }
        let at = |offset: u64| elf_header.wrapping_add(offset);
        // SAFETY: `elf_header` is the linker's address of the ELF header, which is loaded. So are
        // the program headers to which it points (in the same page or segment), and the notes and
        // the dynamic section to which those point.
        unsafe {
            if *(elf_header as *const [u8; 4]) != *b"\x7fELF" {
                return None;
            }
            let kind = *(at(16) as *const u16);
            let headers = at(*(at(32) as *const u64));
            let size = u64::from(*(at(54) as *const u16));
            let count = u64::from(*(at(56) as *const u16));
            let header = |index: u64| {
                let address = headers + index * size;
                let word = |offset: u64| *((address + offset) as *const u64);
                // kind, offset, address, file size, size in memory
                (*(address as *const u32), word(8), word(16), word(32), word(40))
            };
            let protection = |index: u64| *((headers + index * size + 4) as *const u32);
            let loads = || (0..count).map(header).filter(|(kind, ..)| *kind == PT_LOAD);
            let first = loads().map(|(_, _, address, ..)| address).min()?;
            let last = loads().map(|(_, _, address, _, size)| address + size).max()?;
            let base = elf_header.wrapping_sub(loads().find(|(_, offset, ..)| *offset == 0)?.2);
            let start = base.wrapping_add(first) & !(PAGE - 1);
            let end = base.wrapping_add(last).next_multiple_of(PAGE);

            let mut image = Image {
                base,
                start,
                end,
                code: (start, end),
                trampolines: 0,
                executable: kind == ET_EXEC,
                build_id: [0; 32],
                build_id_length: 0,
                text: [Text::default(); TEXT_SEGMENTS],
                constant: [(0, 0); CONSTANT_SEGMENTS],
            };
            let segments = (0..count).map(|index| (header(index), protection(index)));
            let executable =
                segments.filter(|((kind, ..), flags)| *kind == PT_LOAD && flags & Text::EXECUTABLE != 0);
            for (place, ((_, _, address, _, size), flags)) in image.text.iter_mut().zip(executable) {
                let start = base.wrapping_add(address);
                *place = Text { start, end: start.wrapping_add(size), flags };
            }
            let is_constant = |flags: u32| flags & (Text::READABLE | Text::WRITABLE) == Text::READABLE;
            let constant = (0..count)
                .map(|index| (header(index), protection(index)))
                .filter(|((kind, ..), flags)| *kind == PT_LOAD && is_constant(*flags));
            for (place, ((_, _, address, size, _), _)) in image.constant.iter_mut().zip(constant) {
                let start = base.wrapping_add(address);
                *place = (start, start.wrapping_add(size));
            }
            for (kind, _, address, size, _) in (0..count).map(header) {
                match kind {
                    PT_INTERP => image.executable = true,
                    PT_NOTE => image.find_build_id(base.wrapping_add(address), size),
                    PT_DYNAMIC => {
                        let mut entry = base.wrapping_add(address) as *const [u64; 2];
                        while (*entry)[0] != 0 {
                            if (*entry)[0] == DT_FLAGS_1 && (*entry)[1] & DF_1_PIE != 0 {
                                image.executable = true;
                            }
                            entry = entry.add(1);
                        }
                    }
                    _ => {}
                }
            }
            Some(image)
        }
    }

    /// # Safety
    /// `size` bytes of notes are loaded at `notes`.
    unsafe fn find_build_id(&mut self, notes: u64, size: u64) {
        const NT_GNU_BUILD_ID: u32 = 3;
        let mut position = 0;
        while position + 12 <= size {
            let address = notes + position;
            // SAFETY: within the notes, which are aligned to 4.
            let [name_size, length, kind] = unsafe { *(address as *const [u32; 3]) };
            let description = address + 12 + u64::from(name_size).next_multiple_of(4);
            let end = position
                + 12
                + u64::from(name_size).next_multiple_of(4)
                + u64::from(length).next_multiple_of(4);
            if end > size {
                return;
            }
            // SAFETY: as above.
            let is_gnu = name_size == 4 && unsafe { *((address + 12) as *const [u8; 4]) } == *b"GNU\0";
            if is_gnu && kind == NT_GNU_BUILD_ID && length as usize <= self.build_id.len() {
                // SAFETY: as above.
                let bytes = unsafe { core::slice::from_raw_parts(description as *const u8, length as usize) };
                for (place, byte) in self.build_id.iter_mut().zip(bytes) {
                    *place = *byte;
                }
                self.build_id_length = length;
                return;
            }
            position = end;
        }
    }
}
