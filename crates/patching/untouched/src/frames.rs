//! Unwind information of a region, for the unwinder in libgcc and for debuggers.
//!
//! ```text
//! image: ELF header, sections, .eh_frame | for each of its entries: its code, its place
//! ```
//!
//! The runtime (`kit/wrappers/frames.h`) lists the image for gdb, and finds entries for libgcc. The
//! trampolines' rows are those of the instructions that they stand for.

use everycall_inject::{InjectError, Remote};
use everycall_kit::{HOOK_FRAMES, HOOK_FRAMES_AT, HOOKS_AT};
use everycall_rewrite::{Plan, UnwindState};

/// The begin of a region, and of what is written here.
const ALIGN: usize = 64;
/// Rows of an entry: unwinders read all of an entry's before the one that they look for.
const ROWS: usize = 16;
/// DWARF's numbers of the stack pointer and the return address.
const STACK_POINTER: u16 = 7;
const RETURN_ADDRESS: u16 = 16;
/// Offsets of saved registers are multiples of it.
const FACTOR: i64 = -8;

/// Unwind information as bytes for a place in memory.
pub(crate) struct Frames {
    /// The image, then the list.
    pub(crate) bytes: Vec<u8>,
    image: usize,
    count: u64,
}

/// An entry's code, from the region's start on, and its place in the image.
struct Entry {
    start: u32,
    end: u32,
    at: u32,
}

impl Frames {
    /// For a region at `start` that takes `size` bytes; the bytes will be at `at`. `has_hooks`:
    /// the hooks are at its start.
    pub(crate) fn of(plan: &Plan, start: u64, size: u64, at: u64, has_hooks: bool) -> Frames {
        let mut image = vec![0; header::SIZE];
        let mut entries = Vec::new();
        if has_hooks {
            hooks(&mut image, &mut entries, start, at);
        }
        trampolines(&mut image, &mut entries, plan, start);
        // The end of a list of entries.
        image.extend([0; 4]);
        header::write(&mut image, start, size, at);
        image.resize(image.len().next_multiple_of(ALIGN), 0);
        let length = image.len();
        for entry in &entries {
            for field in [entry.start, entry.end, entry.at] {
                image.extend(field.to_le_bytes());
            }
        }
        Frames { bytes: image, image: length, count: entries.len() as u64 }
    }

    /// Makes it known to the runtime, whose function for that is `register`.
    ///
    /// # Errors
    ///
    /// The thread can't call it.
    pub(crate) fn register(
        &self,
        thread: &mut Remote<'_>,
        register: Option<u64>,
        [start, size, at]: [u64; 3],
    ) -> Result<(), InjectError> {
        let Some(register) = register.filter(|_| self.count > 0) else { return Ok(()) };
        let image = self.image as u64;
        thread.call_function(register, [start, size, at, image, at + image, self.count]).map(|_| ())
    }
}

/// Those that the hooks were linked with, which lead from themselves to their code.
fn hooks(image: &mut Vec<u8>, entries: &mut Vec<Entry>, start: u64, at: u64) {
    let (mut rest, mut offset) = (HOOK_FRAMES, 0);
    while let Some((length, kind)) = rest.first_chunk::<8>().map(|bytes| {
        let [a, b, c, d, e, f, g, h] = *bytes;
        (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]))
    }) {
        let Some((own, others)) = rest.split_at_checked(length + 4).filter(|_| length > 0) else { break };
        let here = image.len();
        image.extend(own);
        let words: Option<[i32; 2]> = own.get(8..16).map(|bytes| {
            [0, 4].map(|at| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
        });
        if let Some([distance, size]) = words.filter(|_| kind != 0) {
            let linked = HOOK_FRAMES_AT.wrapping_add(offset + 8).wrapping_add_signed(distance.into());
            let from = linked.wrapping_sub(HOOKS_AT) as u32;
            let moved = start.wrapping_add(from.into()).wrapping_sub(at + here as u64 + 8) as i32;
            if let Some(field) = image.get_mut(here + 8..here + 12) {
                field.copy_from_slice(&moved.to_le_bytes());
            }
            entries.push(Entry { start: from, end: from.wrapping_add_signed(size), at: here as u32 });
        }
        (rest, offset) = (others, offset + own.len() as u64);
    }
    entries.sort_by_key(|entry| entry.start);
}

fn trampolines(image: &mut Vec<u8>, entries: &mut Vec<Entry>, plan: &Plan, start: u64) {
    let common = image.len();
    // No augmentation: addresses are absolute.
    let mut bytes = vec![0; 8];
    bytes.extend([1, 0, 1, 0x78, RETURN_ADDRESS as u8]);
    bytes.extend([0x0c, STACK_POINTER as u8, 8, 0x80 | RETURN_ADDRESS as u8, 1]);
    append(image, &bytes);
    let end = u64::from(plan.hooks.reserved) + plan.code.len() as u64;
    let behind = |index: usize| plan.rows.get(index).map_or(end as u32, |row| row.at);
    let state = |index: usize| {
        let number = plan.rows.get(index)?.state?;
        plan.states.get(number as usize)?.as_ref().filter(|state| is_expressible(state))
    };
    let mut index = 0;
    while index < plan.rows.len() {
        let first = index;
        let mut program = Vec::new();
        let mut last: Option<(&UnwindState, u32)> = None;
        while index < first + ROWS
            && let Some(state) = state(index)
        {
            let at = behind(index);
            if let Some((_, before)) = last {
                // To a place, by four bytes.
                program.push(0x04);
                program.extend((at - before).to_le_bytes());
            }
            row(&mut program, state, last.map(|(state, _)| state));
            last = Some((state, at));
            index += 1;
        }
        if first == index {
            index += 1;
            continue;
        }
        let (from, to) = (behind(first), behind(index));
        let here = image.len();
        let mut bytes = vec![0; 4];
        bytes.extend(((here + 4 - common) as u32).to_le_bytes());
        bytes.extend(start.wrapping_add(from.into()).to_le_bytes());
        bytes.extend(u64::from(to - from).to_le_bytes());
        bytes.extend(program);
        append(image, &bytes);
        entries.push(Entry { start: from, end: to, at: here as u32 });
    }
}

fn is_expressible(state: &UnwindState) -> bool {
    let is_saved = |&(register, offset): &(u16, i64)| register < 64 && offset <= 0 && offset % FACTOR == 0;
    state.cfa_offset >= 0 && state.saved.iter().all(is_saved)
}

/// The instructions that lead from one state to another, or from that of the common entry.
fn row(program: &mut Vec<u8>, state: &UnwindState, last: Option<&UnwindState>) {
    program.push(0x0c);
    uleb(program, state.cfa_register.into());
    uleb(program, state.cfa_offset as u64);
    let is_saved = |register: u16| state.saved.iter().any(|(saved, _)| *saved == register);
    for (register, _) in last.map_or(&[][..], |last| &last.saved) {
        if !is_saved(*register) {
            program.push(0xc0 | *register as u8);
        }
    }
    for (register, offset) in &state.saved {
        program.push(0x80 | *register as u8);
        uleb(program, (offset / FACTOR) as u64);
    }
}

fn uleb(bytes: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends an entry, with its length and up to a multiple of eight bytes.
fn append(image: &mut Vec<u8>, entry: &[u8]) {
    let length = entry.len().next_multiple_of(8) - 4;
    // Entries of the hooks are behind each other at multiples of four bytes.
    image.extend((length as u32).to_le_bytes());
    image.extend(entry.get(4..).unwrap_or_default());
    image.resize(image.len() + (length + 4 - entry.len()), 0);
}

/// The ELF header and sections of the image.
mod header {
    const NAMES: &[u8] = b"\0.text\0.eh_frame\0.shstrtab\0";
    const SECTIONS: usize = 4;
    const NAMES_AT: usize = 64 + 64 * SECTIONS;
    pub(super) const SIZE: usize = (NAMES_AT + NAMES.len()).next_multiple_of(8);

    /// name, kind, flags, address, offset, size
    type Section = [u64; 6];

    pub(super) fn write(image: &mut [u8], start: u64, size: u64, at: u64) {
        const RELOCATABLE: u64 = 1;
        const X86_64: u64 = 62;
        const CODE: Section = [1, 8, 6, 0, 0, 0];
        let frames = (image.len() - SIZE) as u64;
        let mut put = |at: usize, size: usize, value: u64| {
            if let Some(field) = image.get_mut(at..at + size) {
                field.copy_from_slice(&value.to_le_bytes()[..size]);
            }
        };
        put(0, 8, u64::from_le_bytes([0x7f, b'E', b'L', b'F', 2, 1, 1, 0]));
        for (at, size, value) in [
            (16, 2, RELOCATABLE),
            (18, 2, X86_64),
            (20, 4, 1),
            (40, 8, 64),
            (52, 2, 64),
            (58, 2, 64),
            (60, 2, SECTIONS as u64),
            (62, 2, 3),
        ] {
            put(at, size, value);
        }
        let sections: [Section; 3] = [
            [CODE[0], CODE[1], CODE[2], start, 0, size],
            [7, 1, 2, at + SIZE as u64, SIZE as u64, frames],
            [17, 3, 0, 0, NAMES_AT as u64, NAMES.len() as u64],
        ];
        for (number, [name, kind, flags, address, offset, size]) in sections.into_iter().enumerate() {
            let at = 64 + 64 * (number + 1);
            put(at, 4, name);
            put(at + 4, 4, kind);
            for (field, value) in [(8, flags), (16, address), (24, offset), (32, size), (48, 8)] {
                put(at + field, 8, value);
            }
        }
        if let Some(names) = image.get_mut(NAMES_AT..NAMES_AT + NAMES.len()) {
            names.copy_from_slice(NAMES);
        }
    }
}
