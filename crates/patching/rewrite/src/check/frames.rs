//! The checker's own reading of `.eh_frame` and of tables of landing pads.

use super::elf::{Bytes, Loaded};

/// Functions (start, size), and landing pads.
#[derive(Default)]
pub(super) struct Frames {
    pub(super) functions: Vec<(u64, u64)>,
    pub(super) pads: Vec<u64>,
}

/// The part of a common entry that holds for all entries that refer to it.
#[derive(Clone, Copy)]
struct Common {
    pointer: u8,
    lsda: Option<u8>,
    has_data: bool,
}

const OMITTED: u8 = 0xff;

struct Reader<'a> {
    bytes: Bytes<'a>,
    address: u64,
    at: u64,
}

impl Reader<'_> {
    fn u8(&mut self) -> Option<u8> {
        self.at += 1;
        self.bytes.u8(self.at - 1)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn pointer(&mut self, encoding: u8) -> Option<u64> {
        let here = self.address.wrapping_add(self.at);
        let (value, size) = match encoding & 15 {
            1 => (self.number()?, 0),
            3 => (self.bytes.u32(self.at)?.into(), 4),
            11 => (i64::from(self.bytes.u32(self.at)? as i32) as u64, 4),
            0 | 4 | 12 => (self.bytes.u64(self.at)?, 8),
            _ => return None,
        };
        self.at += size;
        Some(if encoding & 0x70 == 0x10 && value != 0 { here.wrapping_add(value) } else { value })
    }
}

pub(super) fn read(file: &Loaded<'_>) -> Frames {
    let mut frames = Frames::default();
    let Some((address, section)) = file.section(".eh_frame") else { return frames };
    let bytes = Bytes(section);
    let mut at = 0_u64;
    while let Some(length) =
        bytes.u32(at).map(u64::from).filter(|&length| length != 0 && length != 0xffff_ffff)
    {
        let id = at + 4;
        if let Some(back) = bytes.u32(id).filter(|&back| back != 0)
            && let Some(common) = id.checked_sub(u64::from(back)).and_then(|at| common(bytes, at))
        {
            let reader = Reader { bytes, address, at: id + 4 };
            // An unreadable entry has no effect.
            let _ = entry(file, reader, common, &mut frames);
        }
        at = id + length;
    }
    frames
}

fn common(bytes: Bytes<'_>, at: u64) -> Option<Common> {
    let mut reader = Reader { bytes, address: 0, at: at + 9 };
    let mut letters = Vec::new();
    loop {
        match reader.u8()? {
            0 => break,
            letter => letters.push(letter),
        }
    }
    let mut common = Common { pointer: 0, lsda: None, has_data: letters.first() == Some(&b'z') };
    reader.number()?;
    reader.number()?;
    reader.number()?;
    for letter in letters {
        match letter {
            b'z' => drop(reader.number()?),
            b'R' => common.pointer = reader.u8()?,
            b'L' => common.lsda = Some(reader.u8()?),
            b'P' => {
                let encoding = reader.u8()?;
                reader.pointer(encoding)?;
            }
            _ => {}
        }
    }
    Some(common)
}

fn entry(file: &Loaded<'_>, mut reader: Reader<'_>, common: Common, frames: &mut Frames) -> Option<()> {
    let start = reader.pointer(common.pointer)?;
    let size = reader.pointer(common.pointer & 15)?;
    frames.functions.push((start, size));
    if !common.has_data {
        return Some(());
    }
    reader.number()?;
    let lsda = reader.pointer(common.lsda.filter(|&encoding| encoding != OMITTED)?)?;
    if lsda == 0 {
        return Some(());
    }
    let mut table = Reader { bytes: Bytes(file.from(lsda)), address: lsda, at: 0 };
    let base = match table.u8()? {
        OMITTED => start,
        encoding => table.pointer(encoding)?,
    };
    if table.u8()? != OMITTED {
        table.number()?;
    }
    let encoding = table.u8()?;
    let length = table.number()?;
    let end = table.at.checked_add(length)?;
    while table.at < end {
        table.pointer(encoding)?;
        table.pointer(encoding)?;
        let pad = table.pointer(encoding)?;
        table.number()?;
        if pad != 0 {
            frames.pads.push(base.wrapping_add(pad));
        }
    }
    Some(())
}
