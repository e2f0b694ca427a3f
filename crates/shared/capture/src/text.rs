//! Texts in the program's memory: copied, and compared.

use everycall_format::Wire;
use everycall_format::capture::{COPY_MAX, TextHeader, likeness, text_flag};

use crate::machine::Machine;
use crate::output::Output;

/// How far a text goes.
#[derive(Clone, Copy)]
pub(crate) enum Length {
    UntilZero,
    Bytes(u64),
}

/// Copies at most `size` bytes of a text into the output, behind a header. `false` if they don't
/// fit.
pub(crate) fn copy(
    machine: &impl Machine,
    address: u64,
    length: Length,
    size: usize,
    output: &mut Output<'_>,
) -> bool {
    let header_at = output.length();
    if !output.put(&[0; TextHeader::SIZE]) {
        return false;
    }
    let wanted = match length {
        Length::UntilZero => size,
        Length::Bytes(length) => usize::try_from(length).unwrap_or(size).min(size),
    };
    let Some(place) = output.reserve(wanted) else { return false };
    let header = if address == 0 && !matches!(length, Length::Bytes(0)) {
        TextHeader { length: 0, copied: 0, flags: text_flag::NULL }
    } else {
        let read = if wanted == 0 { 0 } else { machine.read(address, place).min(wanted) };
        header_of(place.get(..read).unwrap_or_default(), wanted, length)
    };
    output.keep(usize::from(header.copied));
    let bytes = header.to_bytes();
    output.overwrite(header_at, &bytes);
    true
}

/// Describes what was read of a text, of which `wanted` bytes were requested.
fn header_of(read: &[u8], wanted: usize, length: Length) -> TextHeader {
    let is_short = read.len() < wanted;
    let (copied, whole, has_more) = match length {
        Length::UntilZero => match read.iter().position(|byte| *byte == 0) {
            Some(end) => (end, end as u64, false),
            None => (read.len(), read.len() as u64, true),
        },
        Length::Bytes(length) => (read.len(), length, read.len() as u64 != length),
    };
    let mut flags = 0;
    if has_more {
        flags = if is_short { text_flag::UNREADABLE } else { text_flag::CUT };
    }
    TextHeader {
        length: u32::try_from(whole).unwrap_or(u32::MAX),
        copied: u16::try_from(copied).unwrap_or(u16::MAX),
        flags,
    }
}

/// Whether a text is like another one; `None` if it can't be read.
pub(crate) fn is_like(
    machine: &impl Machine,
    address: u64,
    length: Length,
    other: &[u8],
    how: u32,
) -> Option<bool> {
    let mut buffer = [0; COPY_MAX];
    // One byte more than the other text shows that it doesn't end there.
    let most = if how == likeness::CONTAINS { COPY_MAX } else { (other.len() + 1).min(COPY_MAX) };
    let wanted = match length {
        Length::UntilZero => most,
        Length::Bytes(length) => usize::try_from(length).unwrap_or(most).min(most),
    };
    let read = match (address, wanted) {
        (_, 0) => 0,
        (0, _) => return None,
        _ => machine.read(address, buffer.get_mut(..wanted)?).min(wanted),
    };
    let seen = buffer.get(..read)?;
    let (text, is_whole) = match length {
        Length::UntilZero => match seen.iter().position(|byte| *byte == 0) {
            Some(end) => (seen.get(..end)?, true),
            None => (seen, false),
        },
        Length::Bytes(length) => (seen, read as u64 == length),
    };
    let is_unreadable = !is_whole && read < wanted;
    let is_true = match how {
        likeness::EQUAL => is_whole && text == other,
        likeness::PREFIX => text.starts_with(other),
        _ => other.is_empty() || text.windows(other.len()).any(|part| part == other),
    };
    // What was read may decide it already.
    let is_decided =
        is_true || text.iter().zip(other).any(|(one, two)| one != two) && how != likeness::CONTAINS;
    if is_unreadable && !is_decided { None } else { Some(is_true) }
}
