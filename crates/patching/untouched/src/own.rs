//! Memory of ours in a process: found by its contents, as it may have come with a fork, or from
//! another run of everycall.

use everycall_format::Wire;
use everycall_format::trampoline::Adopted;
use everycall_inject::{InjectError, Mapping, PatchSet, Process, mappings};
use everycall_kit::DESCRIPTOR_BEFORE;

const PAGE: usize = 4096;
/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;
/// Where the runtime's argument is on a descriptor's page.
pub(crate) const ADOPTED_AT: usize = 2048;
/// Where a [`Witness`] is behind it.
const WITNESS_AT: usize = ADOPTED_AT + Adopted::SIZE;

/// One patch of a module, and its plan's number: whether the patch is there tells whether the
/// module's code leads to hooks, or was loaded anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Witness {
    at: u64,
    bytes: [u8; 4],
    pub(crate) number: u32,
}

impl Witness {
    pub(crate) const SIZE: usize = 16;

    pub(crate) fn of(sets: &[PatchSet], number: u32) -> Witness {
        let mut patches = sets.iter().flat_map(|set| &set.patches);
        let witness = patches.find_map(|patch| {
            let bytes = *patch.new.first_chunk()?;
            (!patch.old.starts_with(&bytes)).then_some(Witness { at: patch.at, bytes, number })
        });
        witness.unwrap_or(Witness { number, ..Witness::default() })
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let first = u64::from(u32::from_le_bytes(self.bytes)) | u64::from(self.number) << u32::BITS;
        let mut bytes = [0; Self::SIZE];
        let words = self.at.to_le_bytes().into_iter().chain(first.to_le_bytes());
        bytes.iter_mut().zip(words).for_each(|(place, byte)| *place = byte);
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Witness> {
        let [at, patch, number] = [bytes.get(..8)?, bytes.get(8..12)?, bytes.get(12..16)?];
        let at = u64::from_le_bytes(*at.first_chunk()?);
        let number = u32::from_le_bytes(*number.first_chunk()?);
        Some(Witness { at, bytes: *patch.first_chunk()?, number })
    }

    pub(crate) fn is_there(&self, process: &Process) -> bool {
        process.read(self.at, self.bytes.len()).is_ok_and(|bytes| bytes == self.bytes)
    }
}

/// Pages of code that no file has and that begin with `mark`: their addresses and first bytes.
pub(crate) fn marked(process: &Process, maps: &[Mapping], mark: &[u8], size: usize) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    for mapping in maps.iter().filter(|mapping| mapping.is_executable && is_own(mapping)) {
        let mut start = mapping.range.start;
        while start < mapping.range.end {
            let chunk = ((mapping.range.end - start) as usize).min(CHUNK);
            let Ok(bytes) = process.read(start, chunk) else { break };
            // Neighbouring regions are one mapping to the kernel.
            for (page, bytes) in bytes.chunks(PAGE).enumerate() {
                if bytes.starts_with(mark) {
                    let first = bytes.get(..size).unwrap_or(bytes).to_vec();
                    found.push((start + (page * PAGE) as u64, first));
                }
            }
            start += chunk as u64;
        }
    }
    found
}

/// Memory without a file, or of one that lies in memory.
fn is_own(mapping: &Mapping) -> bool {
    mapping.name.is_empty() || mapping.name.starts_with("/memfd:")
}

/// A module's region in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Where the region begins.
    pub region: u64,
    /// The module's first page.
    pub module: u64,
    /// The number of its trampolines.
    pub(crate) number: u32,
    /// Whether the module's code leads there. It doesn't after it was unloaded and loaded again, or
    /// after `detach`.
    pub is_led: bool,
}

/// The regions with hooks in a process.
///
/// # Errors
///
/// The process can't be read.
pub fn installed(process: &Process) -> Result<Vec<Installed>, InjectError> {
    let maps = mappings(process.pid())?;
    let mark = everycall_kit::HOOKS.get(..64).unwrap_or(everycall_kit::HOOKS);
    let regions = marked(process, &maps, mark, mark.len()).into_iter();
    Ok(regions.filter_map(|(region, _)| of_region(process, region)).collect())
}

fn of_region(process: &Process, region: u64) -> Option<Installed> {
    let page = process.read(region.checked_sub(DESCRIPTOR_BEFORE)?, PAGE).ok()?;
    let adopted = Adopted::read(page.get(ADOPTED_AT..)?)?;
    let witness = Witness::read(page.get(WITNESS_AT..)?)?;
    let installed = Installed {
        region,
        module: adopted.elf_header,
        number: witness.number,
        is_led: witness.is_there(process),
    };
    (adopted.start == region && adopted.record_size as usize == Adopted::SIZE).then_some(installed)
}
