//! The function table of a module: every function with its range and linker name, sorted by
//! address.
//!
//! Rows come, in this order of trust, from symbols with a size, symbols without one, stubs of the
//! procedure linkage table, unwind entries, and the site lists of traced modules. One start address
//! has one row.

use everycall_format::site::{SITES_SECTION, XRAY_SECTION};
use object::elf;

use crate::address_ranges::AddressRanges;
use crate::elf::{CodeSections, CodeSymbol, Elf, code_symbols};
use crate::function::{FunctionEntry, FunctionId};
use crate::sites::{SiteEntry, entries};
use crate::{frames, plt};

/// Bytes of a name that decide between aliases.
const NAME_COMPARED_SIZE: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Symbol,
    Plt,
    Frame,
    Site,
}

/// A row in the making.
struct Candidate<'d> {
    start: u64,
    size: u64,
    /// Lower is better, among symbols with the same start address.
    rank: u8,
    origin: Origin,
    name: &'d [u8],
}

impl Candidate<'_> {
    /// By address, best first. The beginnings of names are enough to make the order the same each
    /// time.
    fn order(&self) -> (u64, u8, usize, &[u8]) {
        let length = self.name.len();
        (self.start, self.rank, length, &self.name[..length.min(NAME_COMPARED_SIZE)])
    }
}

struct Row {
    start: u64,
    size: u64,
    name_start: usize,
    name_size: u32,
    is_plt: bool,
    /// The function that the module's lists of sites give this code to.
    owner: Option<FunctionId>,
}

/// The table; see the file's head.
#[derive(Default)]
pub(crate) struct FunctionTable {
    rows: Vec<Row>,
    names: Vec<u8>,
    ranges: AddressRanges,
}

impl FunctionTable {
    /// Builds the table from a module and the files with its debugging information, best first;
    /// either may be missing.
    pub(crate) fn build(module: Option<&Elf<'_>>, debug_files: &[Elf<'_>]) -> Self {
        let mut candidates = Vec::new();
        let mut sites = Vec::new();
        let mut string_size = 0;
        // Symbols of a module and of its debugging information are the same: the first full table
        // is enough.
        for elf in module.into_iter().chain(debug_files) {
            let code = CodeSections::of(elf);
            candidates.extend(code_symbols(elf, &code, false).map(|symbol| from_symbol(&symbol)));
            if !candidates.is_empty() {
                string_size += elf.data().len();
                break;
            }
        }
        let Some(elf) = module.or(debug_files.first()) else { return Self::default() };
        let code = CodeSections::of(elf);
        if let Some(module) = module {
            string_size += module.data().len();
            candidates.extend(code_symbols(module, &code, true).map(|symbol| from_symbol(&symbol)));
            let stubs = plt::stubs(module);
            candidates.extend(stubs.iter().map(|stub| Candidate {
                start: stub.start,
                size: stub.size,
                rank: 20,
                origin: Origin::Plt,
                name: stub.target,
            }));
            let in_code = |start: u64| code.holding(start).is_some();
            let stub_sections = plt::section_ranges(module);
            let in_stubs = |start: u64| stub_sections.iter().any(|section| section.contains(&start));
            for range in frames::function_ranges(module) {
                if in_code(range.start) && !in_stubs(range.start) {
                    let size = range.end - range.start;
                    let origin = Origin::Frame;
                    candidates.push(Candidate { start: range.start, size, rank: 21, origin, name: &[] });
                }
            }
            sites = [SITES_SECTION, XRAY_SECTION].map(|section| entries(module, section)).concat();
            let mut starts: Vec<u64> = sites.iter().map(|site| site.function).collect();
            starts.sort_unstable();
            starts.dedup();
            // Sites give the start of a part at another address if nothing else does.
            let is_elsewhere = |site: &&SiteEntry| {
                let following = starts.partition_point(|start| *start <= site.address);
                starts[..following].last() != Some(&site.function)
            };
            let parts = sites.iter().filter(is_elsewhere).map(|site| site.address);
            candidates.extend(
                (starts.iter().copied().chain(parts))
                    .filter(|&start| in_code(start))
                    .map(|start| Candidate { start, size: 0, rank: 22, origin: Origin::Site, name: &[] }),
            );
        }
        let mut table = Self::from_candidates(candidates, &code, string_size);
        table.note_owners(&sites);
        table
    }

    /// Sites in a part of a function at another address refer to the function's beginning.
    fn note_owners(&mut self, sites: &[SiteEntry]) {
        for site in sites {
            let (Some(row), Some(owner)) = (self.find(site.address), self.find(site.function)) else {
                continue;
            };
            if self.start(owner.index()) != Some(site.function) {
                continue;
            }
            let known = &mut self.rows[row.index()].owner;
            // A row with sites of several functions is no part of one.
            *known = Some(if known.is_none_or(|known| known == owner) { owner } else { row });
        }
    }

    /// `name_size_max` bounds the memory for names in bytes: symbols of a hostile file may share
    /// one long name.
    fn from_candidates(
        mut candidates: Vec<Candidate<'_>>,
        code: &CodeSections,
        name_size_max: usize,
    ) -> Self {
        candidates.sort_by(|a, b| a.order().cmp(&b.order()));
        let mut names = Vec::new();
        let mut rows: Vec<Row> = Vec::new();
        // The end of code known to belong to an earlier function: a label inside isn't a function.
        let mut covered_until = 0;
        for group in candidates.chunk_by(|a, b| a.start == b.start) {
            let best = &group[0];
            let size = match best.size {
                0 => group.iter().map(|candidate| candidate.size).max().unwrap_or(0),
                size => size,
            };
            let is_label = best.size == 0 || best.origin > Origin::Plt;
            if is_label && best.start < covered_until {
                continue;
            }
            covered_until = covered_until.max(best.start.saturating_add(size));
            let fits = names.len() + best.name.len() <= name_size_max;
            let name = if fits { best.name } else { &[] };
            rows.push(Row {
                start: best.start,
                size,
                name_start: names.len(),
                name_size: name.len() as u32,
                is_plt: best.origin == Origin::Plt,
                owner: None,
            });
            names.extend_from_slice(name);
        }
        // Ids are 32 bits; more functions than that don't fit into any address space that we trace.
        rows.truncate(u32::MAX as usize / 2);
        fill_sizes(&mut rows, code);
        let ranges = AddressRanges::from_sorted(
            rows.iter()
                .enumerate()
                .map(|(index, row)| (row.start, row.start.saturating_add(row.size.max(1)), index as u32)),
        );
        Self { rows, names, ranges }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The row that contains `address`.
    pub(crate) fn find(&self, address: u64) -> Option<FunctionId> {
        self.ranges.find(address).map(FunctionId)
    }

    /// The index of the first row that starts at or after `address`.
    pub(crate) fn first_from(&self, address: u64) -> usize {
        self.rows.partition_point(|row| row.start < address)
    }

    pub(crate) fn start(&self, index: usize) -> Option<u64> {
        self.rows.get(index).map(|row| row.start)
    }

    /// The function that a row's code belongs to, itself or another one, as far as its sites show.
    pub(crate) fn owner(&self, id: FunctionId) -> Option<FunctionId> {
        let owner = self.rows.get(id.index())?.owner?;
        (self.rows[owner.index()].owner == Some(owner)).then_some(owner)
    }

    pub(crate) fn entry(&self, id: FunctionId) -> Option<FunctionEntry<'_>> {
        let row = self.rows.get(id.index())?;
        Some(FunctionEntry {
            id,
            start: row.start,
            size: row.size,
            linkage_name: &self.names[row.name_start..][..row.name_size as usize],
            is_plt: row.is_plt,
        })
    }

    #[expect(clippy::expect_used, reason = "each index is one of a row")]
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = FunctionEntry<'_>> {
        (0..self.rows.len()).map(|index| self.entry(FunctionId(index as u32)).expect("index below length"))
    }
}

/// Functions without a size reach to the next one, at most to the end of their section.
fn fill_sizes(rows: &mut [Row], code: &CodeSections) {
    for index in 0..rows.len() {
        if rows[index].size == 0 {
            let start = rows[index].start;
            let section_end = code.holding(start).map_or(start, |section| section.end);
            let next = rows.get(index + 1).map_or(section_end, |row| row.start.min(section_end));
            rows[index].size = next.saturating_sub(start);
        }
    }
}

fn from_symbol<'d>(symbol: &CodeSymbol<'d>) -> Candidate<'d> {
    let bind = match symbol.bind {
        elf::STB_GLOBAL | elf::STB_GNU_UNIQUE => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    };
    // An indirect function and its resolver share an address; the one that runs there is the
    // resolver.
    let kind = match symbol.kind {
        elf::STT_FUNC => 0,
        elf::STT_GNU_IFUNC => 3,
        _ => 6,
    };
    let size = if symbol.size == 0 { 9 } else { 0 };
    Candidate {
        start: symbol.start,
        size: symbol.size,
        rank: size + kind + bind,
        origin: Origin::Symbol,
        name: symbol.name,
    }
}
