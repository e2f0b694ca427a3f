//! XRay's tables in a program's file: which functions its numbers are.

use std::path::{Path, PathBuf};

use object::read::ReadCache;
use object::{Object, ObjectSection, SectionKind};

use crate::error::ImportError;

/// XRay's table of sleds, and that of functions.
const SLEDS: &str = "xray_instr_map";
const FUNCTIONS: &str = "xray_fn_idx";
/// Bytes of a sled's entry.
const SLED: usize = 32;
/// Largest table that is read.
const TABLE_MAX: u64 = 1 << 30;

/// A function that XRay has a number for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct XrayFunction {
    /// Its first address in the file.
    pub address: u64,
    /// The only place in it where it jumps into another function, if there is just one: where the
    /// hook of that exit returns to.
    pub tail_exit: Option<u64>,
}

/// A program with XRay's tables.
#[derive(Clone, Debug, Default)]
pub(super) struct XrayBinary {
    pub build_id: Vec<u8>,
    /// By number, from 1.
    pub functions: Vec<XrayFunction>,
    /// First address of its code, and the address after it.
    pub code: (u64, u64),
}

/// Reads XRay's tables in the file at `path`.
pub(super) fn xray_binary(path: &Path) -> Result<XrayBinary, ImportError> {
    let failed = |reason: &dyn std::fmt::Display| {
        ImportError::Binary(format!("the binary {} can't be used: {reason}", path.display()))
    };
    if !std::fs::metadata(path).map_err(|error| failed(&error))?.is_file() {
        return Err(failed(&"it is not a regular file"));
    }
    let cache = ReadCache::new(everycall_io::infile::open(path).map_err(|error| failed(&error))?);
    let file = object::File::parse(&cache).map_err(|error| failed(&error))?;
    if !file.is_little_endian() || !file.is_64() {
        return Err(failed(&"it is of a 32-bit or big-endian machine"));
    }
    let table = |name: &str| {
        let section = file.section_by_name(name)?;
        let data = if section.size() > TABLE_MAX { None } else { section.data().ok() }?;
        Some((section.address(), data))
    };
    let Some((at, sleds)) = table(SLEDS) else {
        return Err(failed(
            &"it has no table of XRay; name the program that wrote the log (built with -fxray-instrument)",
        ));
    };
    let sleds: Vec<(u64, u64, u8)> =
        sleds.chunks_exact(SLED).zip((at..).step_by(SLED)).filter_map(sled).collect();
    let functions = match table(FUNCTIONS) {
        Some((index_at, index)) => of_index(&sleds, at, index_at, index),
        None => Vec::new(),
    };
    let functions = if functions.is_empty() { of_sleds(&sleds) } else { functions };
    let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
    let code = code.map(|section| (section.address(), section.address().saturating_add(section.size())));
    let code = code.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))).unwrap_or_default();
    let build_id = file.build_id().ok().flatten().unwrap_or_default().to_vec();
    Ok(XrayBinary { build_id, functions, code })
}

/// Address, function and kind of a sled. Version 2 has distances, older ones addresses.
fn sled((entry, at): (&[u8], u64)) -> Option<(u64, u64, u8)> {
    let word = |from: usize| Some(u64::from_le_bytes(*entry.get(from..)?.first_chunk::<8>()?));
    let (kind, version) = (*entry.get(16)?, *entry.get(18)?);
    if version >= 2 {
        Some((at.wrapping_add(word(0)?), at.wrapping_add(8).wrapping_add(word(8)?), kind))
    } else {
        Some((word(0)?, word(8)?, kind))
    }
}

/// Functions in the order of the index: for each, where its sleds are. Distances since clang 18 or
/// so (place, count), addresses before (first, end).
fn of_index(sleds: &[(u64, u64, u8)], at: u64, index_at: u64, index: &[u8]) -> Vec<XrayFunction> {
    let end = at + (sleds.len() * SLED) as u64;
    let mut functions = Vec::new();
    for (entry, entry_at) in index.chunks_exact(16).zip((index_at..).step_by(16)) {
        let word = |from: usize| {
            entry
                .get(from..)
                .and_then(|bytes| bytes.first_chunk())
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let (mut first, mut count) = (entry_at.wrapping_add(word(0)), word(8));
        if !(at..end).contains(&first) {
            (first, count) = (word(0), word(8).wrapping_sub(word(0)) / SLED as u64);
        }
        if !(at..end).contains(&first) {
            return Vec::new();
        }
        let from = ((first - at) / SLED as u64) as usize;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let its = sleds.get(from..from.saturating_add(count).min(sleds.len())).unwrap_or_default();
        functions.push(function(its));
    }
    functions
}

/// Functions as the sleds have them, one after the other.
fn of_sleds(sleds: &[(u64, u64, u8)]) -> Vec<XrayFunction> {
    sleds.chunk_by(|one, other| one.1 == other.1).map(function).collect()
}

fn function(sleds: &[(u64, u64, u8)]) -> XrayFunction {
    /// The kind of a sled before a jump into another function.
    const TAIL: u8 = 2;
    /// Distance from such a sled to the return address of its hook.
    const SLED_RETURN: u64 = 8;
    let mut tails = sleds.iter().filter(|sled| sled.2 == TAIL);
    let first = tails.next().filter(|_| tails.next().is_none());
    XrayFunction {
        address: sleds.first().map_or(0, |sled| sled.1),
        tail_exit: first.map(|sled| sled.0.wrapping_add(SLED_RETURN)),
    }
}

/// A program that may have written an XRay log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBinary(pub PathBuf);

/// The program that wrote the XRay log at `path`, by the log's name: `xray-log.app.Xw6bA1` is of
/// `app`. It is searched for beside the log and in the current folder, and must have XRay's tables.
#[must_use]
pub fn binary_of_log(path: &Path) -> Option<FoundBinary> {
    let name = path.file_name()?.to_str()?;
    let (front, _) = name.rsplit_once('.')?;
    let folders = [path.parent().map(Path::to_path_buf), Some(PathBuf::from(""))];
    // The beginning of the name is chosen by its user.
    let starts = std::iter::once(0).chain(front.match_indices('.').map(|(at, _)| at + 1));
    for start in starts {
        let Some(program) = front.get(start..).filter(|program| !program.is_empty()) else { continue };
        for folder in folders.iter().flatten() {
            let candidate = folder.join(program);
            if xray_binary(&candidate).is_ok() {
                return Some(FoundBinary(candidate));
            }
        }
    }
    None
}
