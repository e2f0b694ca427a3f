//! The mappings of a process, and gaps between them.

use std::fs;
use std::ops::Range;

use crate::error::{InjectError, failed};

/// A mapping: a line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Where it is.
    pub range: Range<u64>,
    /// May be read.
    pub is_readable: bool,
    /// May be written.
    pub is_writable: bool,
    /// May be executed.
    pub is_executable: bool,
    /// Of its file; 0 if it has none.
    pub inode: u64,
    /// A path, `[stack]`, `[vdso]`, or empty.
    pub name: String,
}

/// All mappings, sorted.
///
/// # Errors
///
/// If the process has ended or belongs to another user.
pub fn mappings(pid: i32) -> Result<Vec<Mapping>, InjectError> {
    let text = fs::read(format!("/proc/{pid}/maps")).map_err(failed("reading the process's mappings"))?;
    let text = String::from_utf8_lossy(&text);
    let mappings: Vec<Mapping> = text.lines().filter_map(parse).collect();
    if mappings.is_empty() { Err(InjectError::Ended { pid }) } else { Ok(mappings) }
}

fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    Some(Mapping {
        range: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        is_readable: permissions.first() == Some(&b'r'),
        is_writable: permissions.get(1) == Some(&b'w'),
        is_executable: permissions.get(2) == Some(&b'x'),
        inode: fields.nth(2)?.parse().ok()?,
        name: fields.next().unwrap_or("").trim().to_owned(),
    })
}

/// The mapping that holds an address.
pub(crate) fn holding(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.range.end <= address);
    mappings.get(after).filter(|mapping| mapping.range.contains(&address))
}

const PAGE: u64 = 4096;
/// No mapping is put below it: `vm.mmap_min_addr`, and whoever dereferences null.
const LOWEST: u64 = 1 << 20;
/// The end of the lower half of the address space.
const HIGHEST: u64 = 0x7fff_ffff_f000;
/// Reach of 32-bit displacements, less a reserve so that callers need not count bytes.
const REACH: u64 = (1 << 31) - (1 << 20);
/// The heap grows behind a program's last segment, stacks grow down to where they may.
const MARGIN: u64 = 1 << 16;

/// Where `size` bytes fit so that each is within reach of each byte of `module`.
///
/// The nearest gap below the module, so that a heap behind it can grow; else the nearest one
/// above. `None` if there is no gap.
pub fn gap_near(mappings: &[Mapping], module: Range<u64>, size: u64) -> Option<u64> {
    let size = size.checked_next_multiple_of(PAGE)?;
    let lowest = module.end.checked_sub(REACH.min(module.end))?.max(LOWEST).next_multiple_of(PAGE);
    let highest = module.start.checked_add(REACH)?.min(HIGHEST) & !(PAGE - 1);
    let starts = mappings.iter().map(|mapping| mapping.range.start).chain([HIGHEST]);
    let ends = [0].into_iter().chain(mappings.iter().map(|mapping| mapping.range.end));
    let gaps: Vec<Range<u64>> = ends
        .zip(starts)
        .map(|(start, end)| start.saturating_add(MARGIN).max(lowest)..end.saturating_sub(MARGIN).min(highest))
        .filter(|gap| gap.end.checked_sub(gap.start).is_some_and(|room| room >= size))
        .collect();
    let below = gaps.iter().rev().find(|gap| gap.end <= module.start).map(|gap| gap.end - size);
    below.or_else(|| gaps.iter().find(|gap| gap.start >= module.end).map(|gap| gap.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: u64, end: u64) -> Mapping {
        let text = format!("{start:x}-{end:x} r-xp 00000000 08:01 12 /lib/with a blank.so");
        parse(&text).expect("a mapping")
    }

    #[test]
    fn lines_have_names_with_blanks() {
        assert_eq!(at(0x1000, 0x2000).name, "/lib/with a blank.so");
        assert_eq!(parse("1000-2000 rw-p 00000000 00:00 0 ").expect("a mapping").name, "");
        assert_eq!(parse("invalid"), None);
    }

    #[test]
    fn gaps_below_come_first() {
        let module = 0x5555_0000_0000..0x5555_0010_0000;
        let maps = [at(0x5555_0000_0000, 0x5555_0010_0000)];
        let start = gap_near(&maps, module.clone(), 5000).expect("a gap");
        assert_eq!(start, module.start - MARGIN - 8192);
    }

    #[test]
    fn a_module_at_the_bottom_gets_a_gap_above() {
        let module = 0x40_0000..0x50_0000u64;
        let maps = [at(0x10_0000, 0x50_0000), at(0x60_0000, 0x8000_0000)];
        assert_eq!(gap_near(&maps, module.clone(), 0x1000), Some(0x50_0000 + MARGIN));
        assert_eq!(gap_near(&maps, module, 0x40_0000), None);
    }

    #[test]
    fn gaps_out_of_reach_dont_count() {
        let module = 0x10_0000_0000..0x10_0010_0000u64;
        let maps = [at(0xc_0000_0000, 0x14_0000_0000)];
        assert_eq!(gap_near(&maps, module, 4096), None);
    }
}
