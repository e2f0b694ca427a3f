//! Functions by which calls are left without an exit: by exceptions, jumps and the end of threads.
//!
//! ```text
//! area     | stubs            | trampolines                                 | unwind
//! pointers | push its number  | ... call stub; first instructions; jmp back | information
//!          | jump to runtime  |                                             |
//! ```
//!
//! Objects that are built with everycall have such calls wrapped at the link. Here, the entries of
//! the functions themselves lead to the runtime, in whichever library they are. So does the
//! unwinder's search for unwind information: the runtime knows that of regions ([`crate::frames`]).

use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everycall_inject::{Access, InjectError, Mapping, Process, mappings};
use everycall_rewrite::Plan;

use crate::changes::{Lead, island_pages, lead, patch_sets, placed};
use crate::frames::Frames;
use crate::modules::{first_page, has_own_hooks, range_of};
use crate::own::{Witness, marked};
use crate::recording::{Runtime, number_of};

/// The functions, with the numbers that `kit/wrappers/leaving.c` gives them.
const FUNCTIONS: [(&str, u8); 9] = [
    ("_Unwind_SetGR", 1),
    ("longjmp", 2),
    ("__longjmp_chk", 2),
    ("pthread_exit", 3),
    ("pthread_cancel", 4),
    ("__cxa_throw", 5),
    ("_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE", 6),
    ("_ZSt17rethrow_exceptionSt13exception_ptr", 6),
    ("_Unwind_Find_FDE", 8),
];
/// Functions of the unwinder that the runtime calls; the area has their addresses.
const UNWINDER: [&str; 2] = ["_Unwind_GetCFA", "_Unwind_GetRegionStart"];
/// An area begins with it.
const MARK: [u8; 16] = *b"everycall leaves";
const AREA: usize = 64;
/// Where the runtime's address is in it, that of the module, and the witness.
const RUNTIME_AT: usize = 16;
const MODULE_AT: usize = 40;
const WITNESS_AT: usize = 48;
const STUB: usize = 16;
const PAGE: u64 = 4096;
const INT3: u8 = 0xcc;

/// A library with such functions.
struct Library {
    path: PathBuf,
    plan: Plan,
    /// Where its first page is.
    start: u64,
    /// Of `plan.functions`.
    numbers: Vec<u8>,
    unwinder: [u64; UNWINDER.len()],
}

impl Library {
    /// Plans a file's functions of this kind; `None` if it has none. Or why they can't be planned.
    fn of(process: &Process, maps: &[Mapping], path: &Path) -> Option<Result<Library, String>> {
        let start = first_page(maps, path)?;
        let found =
            FUNCTIONS.iter().filter_map(|(name, number)| Some((process.symbol(start, name)?, *number)));
        let found: Vec<(u64, u8)> = found.collect();
        // Those that are built with everycall call wrappers.
        if found.is_empty() || has_own_hooks(path) {
            return None;
        }
        let inode = maps.iter().find(|mapping| mapping.range.start == start).map(|mapping| mapping.inode);
        if std::fs::metadata(path).map(|now| now.ino()).ok() != inode {
            return Some(Err("was deleted or replaced since it was loaded".to_owned()));
        }
        let mut plan = match everycall_plans::of_file(path) {
            Ok(plan) => plan,
            Err(error) => return Some(Err(error.to_string())),
        };
        let base = plan.base(start);
        let numbers: BTreeMap<u64, u8> =
            found.into_iter().map(|(address, number)| (address.wrapping_sub(base), number)).collect();
        plan.keep(|function| numbers.contains_key(&function.start));
        let numbers: Vec<u8> =
            plan.functions.iter().filter_map(|function| numbers.get(&function.start).copied()).collect();
        if numbers.is_empty() {
            return Some(Err("its functions for that can't get hooks".to_owned()));
        }
        let unwinder = UNWINDER.map(|name| process.symbol(start, name).unwrap_or(0));
        Some(Ok(Library { path: path.to_owned(), plan, start, numbers, unwinder }))
    }

    fn install(
        mut self,
        process: &mut Process,
        maps: &[Mapping],
        runtime: &Runtime,
        leaving: u64,
        patience: Duration,
    ) -> Result<(), InjectError> {
        let module = range_of(maps, &self.path).unwrap_or(self.start..self.start);
        let frames = Frames::of(&self.plan, 0, 0, 0, false).bytes.len() as u64;
        let size = self.plan.region_size() + frames.next_multiple_of(PAGE);
        self.plan = placed(self.plan, maps, module, 0, size);
        let base = self.plan.base(self.start);
        let sets = patch_sets(&self.plan, base);
        let start = base.wrapping_add_signed(self.plan.region);
        let mut region = self.region(leaving, Witness::of(&sets, number_of(&self.plan)));
        let size = self.plan.region_size();
        let frames = Frames::of(&self.plan, start, size, start + size, false);
        region.resize(size as usize, INT3);
        region.extend(&frames.bytes);
        process.with_thread(patience, |thread| {
            thread.map_at(start, &region, Access::Execute)?;
            for (page, bytes) in island_pages(&self.plan, base) {
                thread.map_at(page, &bytes, Access::Execute)?;
            }
            frames.register(thread, runtime.frames, [start, size, start + size])
        })?;
        lead(process, sets, Lead::ToTrampolines, patience).map(|_| ())
    }

    /// Leads to a region that is there already, or back.
    fn lead(
        mut self,
        process: &mut Process,
        region: u64,
        to: Lead,
        patience: Duration,
    ) -> Result<(), InjectError> {
        let base = self.plan.base(self.start);
        let moved = self.plan.move_region(region.wrapping_sub(base).cast_signed());
        moved.map_err(|error| InjectError::Refused(error.to_string()))?;
        lead(process, patch_sets(&self.plan, base), to, patience).map(|_| ())
    }

    /// The bytes of area, stubs and trampolines.
    fn region(&self, leaving: u64, witness: Witness) -> Vec<u8> {
        let mut region = MARK.to_vec();
        for pointer in [leaving].into_iter().chain(self.unwinder).chain([self.start]) {
            region.extend(pointer.to_le_bytes());
        }
        region.extend(witness.to_bytes());
        region.resize(AREA, 0);
        for number in &self.numbers {
            let at = region.len();
            // push number; lea area(%rip), %r11; jmp *runtime(%rip)
            let [a, b, c, d] = (-(at as i32 + 9)).to_le_bytes();
            let [e, f, g, h] = (RUNTIME_AT as i32 - (at as i32 + 15)).to_le_bytes();
            region.extend([0x6a, *number, 0x4c, 0x8d, 0x1d, a, b, c, d, 0xff, 0x25, e, f, g, h, INT3]);
        }
        region.resize(self.plan.hooks.reserved as usize, INT3);
        region.extend(self.plan.code_with_stubs(|function| (AREA + STUB * function as usize) as u32));
        region
    }
}

/// Leads the functions by which calls are left to the runtime, in all libraries of a process that
/// have some, and in which they don't lead there yet. Returns libraries where that isn't possible,
/// with the reason: there, calls end late.
///
/// # Errors
///
/// The process can't be read.
pub fn watch_leaving(
    process: &mut Process,
    runtime: &Runtime,
    patience: Duration,
) -> Result<Vec<(PathBuf, String)>, InjectError> {
    let Some(leaving) = runtime.leaving else { return Ok(Vec::new()) };
    let maps = mappings(process.pid())?;
    let paths = maps.iter().filter(|mapping| mapping.is_executable).map(|mapping| Path::new(&mapping.name));
    let areas = areas(process, &maps);
    let (mut seen, mut failed) = (HashSet::new(), Vec::new());
    for path in paths.filter(|path| path.is_absolute()) {
        if !seen.insert(path) {
            continue;
        }
        let start = first_page(&maps, path);
        let own: Vec<&Area> = areas.iter().filter(|area| Some(area.module) == start).collect();
        if own.iter().any(|area| area.is_led) {
            continue;
        }
        let done = match Library::of(process, &maps, path) {
            None => continue,
            Some(Ok(library)) => match own.iter().find(|area| area.number == number_of(&library.plan)) {
                Some(area) => library.lead(process, area.region, Lead::ToTrampolines, patience),
                None => {
                    // With the regions of those before.
                    let maps = mappings(process.pid())?;
                    library.install(process, &maps, runtime, leaving, patience)
                }
            }
            .map_err(|error| error.to_string()),
            Some(Err(why)) => Err(why),
        };
        if let Err(why) = done {
            failed.push((path.to_owned(), why));
        }
    }
    Ok(failed)
}

/// Leads those functions of a process in which they led to the runtime there again, or back.
///
/// # Errors
///
/// The process can't be read or changed.
pub fn lead_leaving(process: &mut Process, to: Lead, patience: Duration) -> Result<(), InjectError> {
    let maps = mappings(process.pid())?;
    for area in areas(process, &maps) {
        let name =
            maps.iter().find(|mapping| mapping.range.start == area.module).map(|mapping| &mapping.name);
        let library = name.and_then(|name| Library::of(process, &maps, Path::new(name)));
        // Another library may be there now, or another version of everycall have made the plan.
        if let Some(Ok(library)) = library
            && area.number == number_of(&library.plan)
        {
            library.lead(process, area.region, to, patience)?;
        }
    }
    Ok(())
}

/// An area that was found in a process.
struct Area {
    /// Where it is, and so its region.
    region: u64,
    /// The first page of the library.
    module: u64,
    /// Of its plan.
    number: u32,
    /// Whether the library's functions lead there.
    is_led: bool,
}

fn areas(process: &Process, maps: &[Mapping]) -> Vec<Area> {
    let found = marked(process, maps, &MARK, AREA).into_iter();
    found
        .filter_map(|(region, bytes)| {
            let module = u64::from_le_bytes(*bytes.get(MODULE_AT..)?.first_chunk()?);
            let witness = Witness::read(bytes.get(WITNESS_AT..)?)?;
            Some(Area { region, module, number: witness.number, is_led: witness.is_there(process) })
        })
        .collect()
}
