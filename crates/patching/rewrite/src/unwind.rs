//! Unwind information: where functions are, how deep the stack is at each instruction, and where
//! exceptions continue.

use gimli::{BaseAddresses, CfaRule, CieOrFde, EhFrame, FrameDescriptionEntry, LittleEndian, RegisterRule};
use gimli::{EndianSlice, Pointer, UnwindContext, UnwindSection as _, X86_64};
use rustc_hash::FxHashMap;

use crate::bytes::Cursor;
use crate::image::Image;
use crate::parallel;

/// How to find a frame's caller, in DWARF's numbers of registers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnwindState {
    /// The canonical frame address is this register plus [`Self::cfa_offset`].
    pub cfa_register: u16,
    /// See [`Self::cfa_register`].
    pub cfa_offset: i64,
    /// Registers of the caller, and where they are, from the canonical frame address on.
    pub saved: Vec<(u16, i64)>,
}

impl UnwindState {
    fn is_at_entry_level(&self) -> bool {
        self.cfa_register == X86_64::RSP.0 && self.cfa_offset == 8
    }
}

/// One entry of `.eh_frame`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) lsda: Option<u64>,
    /// The kernel returns into it from signal handlers.
    pub(crate) is_signal: bool,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    start: u64,
    end: u64,
    state: u32,
}

/// All of a file.
#[derive(Default)]
pub(crate) struct Unwind {
    /// Sorted.
    pub(crate) frames: Vec<Frame>,
    /// A function, and where an exception continues in it or in a part of it.
    pub(crate) landing_pads: Vec<(u64, u64)>,
    /// Sorted.
    rows: Vec<Row>,
    /// `None`: not expressible as an [`UnwindState`].
    states: Vec<Option<UnwindState>>,
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

impl Unwind {
    pub(crate) fn parse(image: &Image<'_>) -> Self {
        let Some(section) = image.named(".eh_frame") else { return Self::default() };
        let mut bases = BaseAddresses::default().set_eh_frame(section.start);
        for other in &image.sections {
            match other.name {
                ".text" => bases = bases.set_text(other.start),
                ".got" => bases = bases.set_got(other.start),
                _ => {}
            }
        }
        let section = EhFrame::new(section.bytes, LittleEndian);
        let entries = fdes(&section, &bases);
        let parsed = parallel::chunks(&entries, |_, entries| rows_of(&section, &bases, entries));
        let mut all = Self::default();
        let mut known: FxHashMap<Option<UnwindState>, u32> = FxHashMap::default();
        for (rows, states) in parsed {
            let numbers: Vec<u32> = states
                .into_iter()
                .map(|state| {
                    *known.entry(state).or_insert_with_key(|state| {
                        all.states.push(state.clone());
                        all.states.len() as u32 - 1
                    })
                })
                .collect();
            let renumbered =
                |row: Row| Row { state: numbers.get(row.state as usize).copied().unwrap_or(0), ..row };
            all.rows.extend(rows.into_iter().map(renumbered));
        }
        all.rows.sort_by_key(|row| row.start);
        all.frames = entries.iter().filter_map(frame).filter(|frame| image.is_code(frame.start)).collect();
        all.frames.sort_by_key(|frame| (frame.start, frame.end));
        let pads = parallel::chunks(&all.frames, |_, frames| {
            let mut pads = Vec::new();
            for frame in frames {
                if let Some(lsda) = frame.lsda {
                    // An unreadable table has no further landing pads.
                    let _ = landing_pads(image, frame.start, lsda, &mut pads);
                }
            }
            pads
        });
        all.landing_pads = pads.concat();
        all
    }

    /// The number of the state at an instruction.
    pub(crate) fn state_at(&self, at: u64) -> Option<u32> {
        let index = self.rows.partition_point(|row| row.start <= at).checked_sub(1)?;
        self.rows.get(index).filter(|row| at < row.end).map(|row| row.state)
    }

    pub(crate) fn states(&self) -> &[Option<UnwindState>] {
        &self.states
    }

    /// Whether the stack is as deep as at the entry; `None` without unwind information.
    pub(crate) fn is_at_entry_level(&self, at: u64) -> Option<bool> {
        let state = self.states.get(self.state_at(at)? as usize)?;
        Some(state.as_ref().is_some_and(UnwindState::is_at_entry_level))
    }
}

fn fdes<'a>(section: &EhFrame<Slice<'a>>, bases: &BaseAddresses) -> Vec<FrameDescriptionEntry<Slice<'a>>> {
    let mut cies = FxHashMap::default();
    let mut all = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(|section, bases, offset| {
            cies.entry(offset.0).or_insert_with(|| section.cie_from_offset(bases, offset)).clone()
        });
        all.extend(fde);
    }
    all
}

fn frame(fde: &FrameDescriptionEntry<Slice<'_>>) -> Option<Frame> {
    let start = fde.initial_address();
    let end = start.checked_add(fde.len())?;
    let lsda = match fde.lsda() {
        Some(Pointer::Direct(at)) => Some(at),
        _ => None,
    };
    (end > start).then_some(Frame { start, end, lsda, is_signal: fde.is_signal_trampoline() })
}

/// Rows, and their states by number.
fn rows_of(
    section: &EhFrame<Slice<'_>>,
    bases: &BaseAddresses,
    entries: &[FrameDescriptionEntry<Slice<'_>>],
) -> (Vec<Row>, Vec<Option<UnwindState>>) {
    let mut context = UnwindContext::new();
    let (mut rows, mut states) = (Vec::new(), Vec::new());
    let mut known: FxHashMap<Option<UnwindState>, u32> = FxHashMap::default();
    for fde in entries {
        let Ok(mut table) = fde.rows(section, bases, &mut context) else { continue };
        while let Ok(Some(row)) = table.next_row() {
            let state = *known.entry(state_of(row)).or_insert_with_key(|state| {
                states.push(state.clone());
                states.len() as u32 - 1
            });
            rows.push(Row { start: row.start_address(), end: row.end_address(), state });
        }
    }
    (rows, states)
}

fn state_of(row: &gimli::UnwindTableRow<usize>) -> Option<UnwindState> {
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let mut saved = Vec::new();
    for (number, rule) in row.registers() {
        match rule {
            RegisterRule::Offset(offset) => saved.push((number.0, *offset)),
            RegisterRule::Undefined | RegisterRule::SameValue => {}
            _ => return None,
        }
    }
    saved.sort_unstable();
    Some(UnwindState { cfa_register: register.0, cfa_offset: *offset, saved })
}

/// The landing pads in a function's table of exceptions at `lsda`.
fn landing_pads(image: &Image<'_>, function: u64, lsda: u64, pads: &mut Vec<(u64, u64)>) -> Option<()> {
    const OMITTED: u8 = 0xff;
    let mut cursor = Cursor::new(image.bytes(lsda, u64::MAX));
    let encoding = cursor.byte()?;
    let base = if encoding == OMITTED { function } else { cursor.pointer(encoding, lsda)? };
    if cursor.byte()? != OMITTED {
        cursor.uleb()?;
    }
    let encoding = cursor.byte()?;
    let length = usize::try_from(cursor.uleb()?).ok()?;
    let end = cursor.position().checked_add(length)?;
    while cursor.position() < end {
        cursor.pointer(encoding, lsda)?;
        cursor.pointer(encoding, lsda)?;
        let pad = cursor.pointer(encoding, lsda)?;
        cursor.uleb()?;
        if pad != 0 {
            pads.push((function, base.wrapping_add(pad)));
        }
    }
    Some(())
}
