//! Where functions begin and end, by the table that unwinders use (`.eh_frame_hdr`), which is
//! loaded with the object: its entries are in the order of addresses.
#![allow(unsafe_code)] // Tables that the linker made, by their addresses.

/// The encodings that linkers use: for the table's entries, and for their number.
const TABLE: u8 = 0x3b; // signed, four bytes, from the header on
const COUNT: u8 = 0x03; // unsigned, four bytes

/// The function at `address` of the object whose ELF header is loaded at `elf_header`: its begin
/// and its end. `None` if nothing says so.
pub(crate) fn function_at(elf_header: u64, address: u64) -> Option<(u64, u64)> {
    let header = header(elf_header)?;
    // SAFETY: the object is loaded, and its linker made the table.
    let [version, _, count_kind, table_kind] = unsafe { *(header as *const [u8; 4]) };
    if (version, count_kind, table_kind) != (1, COUNT, TABLE) {
        return None;
    }
    let signed = |address: u64| {
        // SAFETY: within the table.
        i64::from(unsafe { (address as *const i32).read_unaligned() })
    };
    let count = signed(header + 8) as u32;
    let begin = |index: u32| header.wrapping_add_signed(signed(header + 12 + u64::from(index) * 8));
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if begin(middle) <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let index = low.checked_sub(1)?;
    let entry = header.wrapping_add_signed(signed(header + 16 + u64::from(index) * 8));
    // length, distance to the common entry, begin, size: four bytes each
    let start = begin(index);
    let end = start.checked_add(signed(entry + 12) as u32 as u64)?;
    // The entry repeats where the function begins. A difference shows that it has another encoding.
    let says = (entry + 8).wrapping_add_signed(signed(entry + 8));
    (says == start && address < end).then_some((start, end))
}

/// The address of the table's header.
fn header(elf_header: u64) -> Option<u64> {
    const PT_LOAD: u32 = 1;
    const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
    if elf_header == 0 {
        return None;
    }
    let at = |offset: u64| elf_header.wrapping_add(offset);
    // SAFETY: the ELF header and the program headers are loaded, as in `image`.
    let headers = unsafe {
        let (headers, size, count) =
            (at(*(at(32) as *const u64)), *(at(54) as *const u16), *(at(56) as *const u16));
        (0..u64::from(count)).map(move |index| {
            let header = headers + index * u64::from(size);
            (*(header as *const u32), *((header + 8) as *const u64), *((header + 16) as *const u64))
        })
    };
    let first = headers.clone().find(|(kind, offset, _)| (*kind, *offset) == (PT_LOAD, 0))?;
    let base = elf_header.wrapping_sub(first.2);
    let found = headers.clone().find(|(kind, ..)| *kind == PT_GNU_EH_FRAME)?;
    Some(base.wrapping_add(found.2))
}
