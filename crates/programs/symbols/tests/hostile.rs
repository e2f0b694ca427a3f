//! Damaged and hostile files: never a panic, a hang, or more memory than the file is worth.
#![allow(unsafe_code, reason = "an allocator that counts can only be written so")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::Workshop;
use everycall_symbols::{
    MEMORY_BASE_BYTES, ModuleIdentity, ModuleSymbols, SymbolOptions, site_report_of_image,
};

/// Counts the bytes that are allocated, and the most that ever were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
/// Tests that measure memory run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: every call goes to the system's allocator with what the caller gave.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as for this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as for this function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Resolves everything in an image; checks time and memory.
fn resolve(image: &[u8]) -> usize {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let begin = Instant::now();
    let count = {
        let identity =
            ModuleIdentity { image: Some(Arc::from(image)), ..ModuleIdentity::new(Path::new("/x/app"), &[]) };
        let mut symbols = ModuleSymbols::open(&identity, &SymbolOptions::bare());
        let functions = common::functions(&mut symbols);
        for id in symbols.functions().map(|entry| entry.id).collect::<Vec<_>>() {
            let _ = (symbols.inlined(id), symbols.twins(id));
            let start = symbols.function(id).start;
            let _ = (symbols.leave(start), symbols.leave(start.wrapping_add(5)));
        }
        for address in [0, 0x1000, 0x1234, u64::MAX] {
            let id = symbols.function_at(address);
            assert!(!symbols.function(id).name.is_empty());
        }
        for warning in symbols.take_warnings() {
            assert!(!warning.to_string().is_empty());
        }
        let _ = site_report_of_image(image, Path::new("app"));
        functions.len()
    };
    let most = MOST.load(Ordering::Relaxed) - before;
    let allowed = MEMORY_BASE_BYTES as usize + 4 * image.len();
    assert!(most <= allowed, "{most} bytes for an image of {}", image.len());
    // Against work that grows without bounds; no measure of speed.
    assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
    count
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

fn small_program(workshop: &Workshop, flags: &[&str]) -> Vec<u8> {
    std::fs::write(
        workshop.path("small.cpp"),
        "extern \"C\" int puts(const char*);\nnamespace n { template <class T> __attribute__((noinline)) T twice(T x) { return x + x; } }\n\
         struct S { virtual int f(int); int v; }; int S::f(int x) { return n::twice(x) + v; }\n\
         int main(int c, char**) { S s{}; puts(\"x\"); return s.f(c); }\n",
    )
    .unwrap();
    workshop.run(&[&["g++", "-O1", "-g", "small.cpp", "-o", "small"], flags].concat());
    std::fs::read(workshop.path("small")).unwrap()
}

/// The section's place in the file.
fn section_range(image: &[u8], name: &str) -> std::ops::Range<usize> {
    use object::{Object, ObjectSection};
    let file = object::File::parse(image).unwrap();
    let (offset, size) = file.section_by_name(name).unwrap().file_range().unwrap();
    offset as usize..(offset + size) as usize
}

#[test]
fn mutated_files() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for flags in [&[][..], &["-gdwarf-4"], &["-gz=zlib"]] {
        let workshop = Workshop::new();
        let image = small_program(&workshop, flags);
        assert!(resolve(&image) > 5);
        let targets = [
            ".debug_info",
            ".debug_abbrev",
            ".debug_line",
            ".debug_str",
            ".symtab",
            ".strtab",
            ".eh_frame",
            ".rela.plt",
            ".dynsym",
        ];
        let ranges: Vec<_> = targets
            .iter()
            .map(|name| section_range(&image, name))
            .filter(|range| !range.is_empty())
            .collect();
        let section_headers = image.len() - 40 * 64..image.len();
        for round in 0..2500 {
            let mut bad = image.clone();
            let range = match round % 4 {
                0 => 0..image.len(),
                1 if round % 8 == 1 => 0..0x300,
                1 => section_headers.clone(),
                _ => ranges[random.below(ranges.len())].clone(),
            };
            for _ in 0..=random.below(8) {
                let at = range.start + random.below(range.len());
                bad[at] = match random.below(4) {
                    0 => 0xff,
                    1 => 0,
                    2 => bad[at] ^ 1 << random.below(8),
                    _ => random.below(256) as u8,
                };
            }
            resolve(&bad);
        }
    }
}

#[test]
fn truncated_files() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let workshop = Workshop::new();
    let image = small_program(&workshop, &[]);
    for length in (0..image.len()).step_by(37) {
        resolve(&image[..length]);
    }
}

/// An ELF file made of named sections.
fn elf_of(sections: &[(&str, &[u8], u64)]) -> Vec<u8> {
    let mut names = vec![0];
    let mut body = Vec::new();
    let mut headers = vec![[0_u64; 8]];
    let text = (".text", &[0x90_u8; 64][..], 6);
    for (name, data, flags) in [text].iter().chain(sections) {
        let name_at = names.len() as u64;
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        let address = if *flags & 2 != 0 { 0x1000 } else { 0 };
        headers.push([
            name_at | 1 << 32,
            *flags,
            address,
            64 + body.len() as u64,
            data.len() as u64,
            0,
            1,
            0,
        ]);
        body.extend_from_slice(data);
    }
    let name_at = names.len() as u64;
    names.extend_from_slice(b".shstrtab\0");
    headers.push([name_at | 3 << 32, 0, 0, 64 + body.len() as u64, names.len() as u64, 0, 1, 0]);
    body.extend_from_slice(&names);
    let mut elf = Vec::new();
    elf.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0");
    elf.extend_from_slice(&[0; 16]);
    elf.extend_from_slice(&(64 + body.len() as u64).to_le_bytes());
    elf.extend_from_slice(&[0, 0, 0, 0, 64, 0, 56, 0, 0, 0, 64, 0]);
    elf.extend_from_slice(&(headers.len() as u16).to_le_bytes());
    elf.extend_from_slice(&(headers.len() as u16 - 1).to_le_bytes());
    elf.extend_from_slice(&body);
    for header in &headers {
        for word in header {
            elf.extend_from_slice(&word.to_le_bytes());
        }
    }
    elf
}

/// A unit header of DWARF 4 and one root entry with abbreviation 1.
fn unit(abbreviations: u32, entries: &[u8]) -> Vec<u8> {
    let mut unit = (7 + entries.len() as u32).to_le_bytes().to_vec();
    unit.extend_from_slice(&4_u16.to_le_bytes());
    unit.extend_from_slice(&abbreviations.to_le_bytes());
    unit.push(8);
    unit.extend_from_slice(entries);
    unit
}

/// Many units that each use their own part of one long abbreviation table.
#[test]
fn overlapping_abbreviation_tables() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let abbreviations: Vec<u8> = (0..400_000_u32).flat_map(|_| [1, 0x11, 0, 0, 0]).collect();
    let info: Vec<u8> = (0..100_000).flat_map(|index| unit(index * 5, &[1])).collect();
    resolve(&elf_of(&[(".debug_info", &info, 0), (".debug_abbrev", &abbreviations, 0)]));
}

/// Abbreviations whose thousands of attributes take no bytes, in an entry for each byte.
#[test]
fn attributes_without_bytes() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut abbreviations = vec![1, 0x11, 1];
    abbreviations.extend([0x11, 0x01, 0x12, 0x07, 0, 0]);
    abbreviations.extend([2, 0x2e, 0, 0x11, 0x01]);
    for _ in 0..60_000 {
        abbreviations.extend([0x3f, 0x19]);
    }
    abbreviations.extend([0, 0, 0]);
    let mut entries = vec![1];
    entries.extend(0x1000_u64.to_le_bytes());
    entries.extend(64_u64.to_le_bytes());
    for _ in 0..100_000 {
        entries.push(2);
        entries.extend(0x1000_u64.to_le_bytes());
    }
    resolve(&elf_of(&[(".debug_info", &unit(0, &entries), 0), (".debug_abbrev", &abbreviations, 0)]));
}

/// A function that is declared by itself.
#[test]
fn declarations_in_a_circle() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut abbreviations = vec![1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0, 0];
    abbreviations.extend([2, 0x2e, 0, 0x11, 0x01, 0x12, 0x07, 0x47, 0x13, 0, 0, 0]);
    let mut entries = vec![1];
    entries.extend(0x1000_u64.to_le_bytes());
    entries.extend(64_u64.to_le_bytes());
    let own_offset = 11 + entries.len() as u32;
    entries.push(2);
    entries.extend(0x1000_u64.to_le_bytes());
    entries.extend(64_u64.to_le_bytes());
    entries.extend(own_offset.to_le_bytes());
    entries.push(0);
    let site = [0_i32.to_le_bytes(), (-4_i32).to_le_bytes(), [0; 4]].concat();
    let image = elf_of(&[
        (".debug_info", &unit(0, &entries), 0),
        (".debug_abbrev", &abbreviations, 0),
        ("everycall_sites", &site, 2),
    ]);
    resolve(&image);
}

/// Inlined calls: one in the other, 200,000 levels deep, of functions whose long names overlap.
#[test]
fn inlined_calls_without_end() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut abbreviations = vec![1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0, 0];
    abbreviations.extend([2, 0x2e, 1, 0x11, 0x01, 0x12, 0x07, 0, 0]);
    abbreviations.extend([3, 0x1d, 1, 0x11, 0x01, 0x31, 0x13, 0, 0]);
    abbreviations.extend([4, 0x2e, 0, 0x03, 0x0e, 0, 0, 0]);
    let text: Vec<u8> = (0..64_000_u32).map(|at| if at % 4000 == 3999 { 0 } else { b'x' }).collect();
    let root = |entries: &mut Vec<u8>| {
        entries.extend(0x1000_u64.to_le_bytes());
        entries.extend(64_u64.to_le_bytes());
    };
    let mut entries = vec![1];
    root(&mut entries);
    let first_name = 11 + entries.len() as u32;
    for at in 0..60_000_u32 {
        entries.push(4);
        entries.extend(at.to_le_bytes());
    }
    entries.push(2);
    root(&mut entries);
    for index in 0..200_000_u32 {
        entries.push(3);
        entries.extend(0x1000_u64.to_le_bytes());
        entries.extend((first_name + 5 * (index % 60_000)).to_le_bytes());
    }
    let site = [0_i32.to_le_bytes(), (-4_i32).to_le_bytes(), [0; 4]].concat();
    let image = elf_of(&[
        (".debug_info", &unit(0, &entries), 0),
        (".debug_abbrev", &abbreviations, 0),
        (".debug_str", &text, 0),
        ("everycall_sites", &site, 2),
    ]);
    resolve(&image);
    let identity =
        ModuleIdentity { image: Some(Arc::from(image)), ..ModuleIdentity::new(Path::new("/x/app"), &[]) };
    let mut symbols = ModuleSymbols::open(&identity, &SymbolOptions::bare());
    let id = symbols.function_at(0x1000);
    let (calls, more) = symbols.inlined(id);
    assert!(calls.len() == 256 && calls.last().unwrap().level == 255, "{} calls, {more} more", calls.len());
    // Where the work isn't worth the file, the rest isn't even counted.
    assert!(more > 1_000, "{more}");
}

/// Every symbol has the same, long name.
#[test]
fn names_that_overlap() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let workshop = Workshop::new();
    let mut source = String::from(".text\n");
    for index in 0..20_000 {
        source += &format!(".type s{index:0>30},@function\ns{index:0>30}: nop\n.size s{index:0>30},1\n");
    }
    std::fs::write(workshop.path("a.s"), source).unwrap();
    workshop.run(&["gcc", "-shared", "-nostdlib", "a.s", "-o", "a.so"]);
    let mut image = std::fs::read(workshop.path("a.so")).unwrap();
    let strings = section_range(&image, ".strtab");
    let end = strings.end - 1;
    image[strings.start + 1..end].fill(b'x');
    let symbols = section_range(&image, ".symtab");
    for symbol in image[symbols].chunks_exact_mut(24).skip(1) {
        let at = strings.len() as u32 - 30_000 + u32::from(symbol[8]);
        symbol[..4].copy_from_slice(&at.to_le_bytes());
    }
    assert!(resolve(&image) > 10_000);
}

/// Sections that claim to be huge when decompressed, or are.
#[test]
fn decompression_bombs() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let workshop = Workshop::new();
    std::fs::write(workshop.path("zero"), vec![0; 200 << 20]).unwrap();
    for kind in ["zlib", "zstd"] {
        std::fs::write(workshop.path("a.c"), "int f(void) { return 1; }\n").unwrap();
        workshop.run(&["gcc", "-shared", "-fPIC", "a.c", "-o", "a.so"]);
        workshop.run(&["objcopy", "--add-section", ".debug_info=zero", "a.so", "b.so"]);
        workshop.run(&["objcopy", &format!("--compress-debug-sections={kind}"), "b.so", "c.so"]);
        let image = std::fs::read(workshop.path("c.so")).unwrap();
        assert!(image.len() < 1 << 20, "{kind}: {}", image.len());
        resolve(&image);
        let identity = ModuleIdentity {
            image: Some(Arc::from(image)),
            ..ModuleIdentity::new(Path::new("/x/c.so"), &[])
        };
        let mut symbols = ModuleSymbols::open(&identity, &SymbolOptions::bare());
        common::functions(&mut symbols);
        assert!(
            symbols.warnings().iter().any(|warning| warning.to_string().contains("claims")),
            "{:?}",
            symbols.warnings()
        );
    }
}
