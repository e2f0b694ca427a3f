//! Plans whose hooks record.
//!
//! ```text
//! descriptor | hooks, trampolines, lists | unwind information
//! rw         | r-x
//! ```
//!
//! Each module gets a copy of the hooks, as each object that is built with hooks has one.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everycall_format::Wire as _;
use everycall_format::site::{Site, site_kind};
use everycall_format::trampoline::{ADOPT_OFFSET, Adopted, RUNTIME_SYMBOL, Trampoline, hook};
use everycall_inject::{Access, InjectError, Mapping, Process, mappings};
use everycall_kit::{DESCRIPTOR_BEFORE, HOOK_PLACES, HOOKS};
use everycall_patterns::{FunctionTable, Instrumented, NamePattern, Names, Rule, Selection};
use everycall_rewrite::{HookCall, HookKind, HookLayout, Plan, PlannedFunction, Refusal};

use crate::changes::{Lead, island_pages, lead, patch_sets, placed};
use crate::frames::Frames;
use crate::modules::{first_page, has_own_hooks, range_of};
use crate::own::{ADOPTED_AT, Installed, Witness};

const PAGE: u64 = 4096;
/// Lists begin at multiples of this.
const ALIGN: usize = 64;
/// Bytes of a call.
const CALL: u32 = 5;
/// Of the runtime's library (`kit/wrappers/leaving.c`).
const LEAVING_SYMBOL: &str = "everycall_leaving";
/// Of the runtime's library (`kit/wrappers/frames.h`).
const FRAMES_SYMBOL: &str = "everycall_frames";

/// Which functions of a file get hooks.
pub struct Functions<'a> {
    /// Smaller ones get none; in bytes.
    pub least_size: u64,
    /// Others get none, unless `are_others_kept`; `None` if all are wanted.
    pub selection: Option<&'a Selection>,
    /// The selection is only looked for.
    pub are_others_kept: bool,
    /// Those whose name matches one of these get some in any case.
    pub always: &'a [NamePattern],
}

/// A file with a plan for it.
pub struct Planned {
    /// The file.
    pub path: PathBuf,
    /// Of the file system, and in it.
    place: (u64, u64),
    /// All functions of the file.
    pub functions: u64,
    /// Those that are left out because they are small.
    pub small: u64,
    /// Whether each rule of the selection matches a function that could get hooks.
    pub matched: Vec<bool>,
    /// Whether each name of those that get some in any case matches one.
    pub always: Vec<bool>,
    /// Functions that were named and can't get hooks, with the reason: those that get some in any
    /// case, and those that a rule of the selection matches if it matches no others.
    pub refused: Vec<(String, Refusal)>,
    /// Start and size of those that could get hooks.
    sizes: Vec<(u64, u64)>,
    plan: Plan,
    /// Of the table of its trampolines.
    number: u32,
    /// The lowest address in that table.
    first: u64,
}

fn layout() -> HookLayout {
    let (entry, exit) = (HOOK_PLACES[hook::ENTRY], HOOK_PLACES[hook::EXIT]);
    // Those of functions that triggers follow get another one by the runtime.
    HookLayout { reserved: HOOKS.len().next_multiple_of(PAGE as usize) as u32, entry, exit, tail_exit: exit }
}

impl Planned {
    /// Plans hooks for a file.
    ///
    /// # Errors
    ///
    /// A sentence, without the file's name.
    pub fn of(path: &Path, functions: &Functions<'_>) -> Result<Planned, String> {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let metadata = fs::metadata(path).map_err(|error| said(&error))?;
        if has_own_hooks(path) {
            return Err("was built with everycall".to_owned());
        }
        let mut plan = everycall_plans::of_file(path).map_err(|error| said(&error))?;
        let all = (plan.functions.len() + plan.left_out.len()) as u64;
        let is_chosen = functions.selection.is_some() || !functions.always.is_empty();
        let sizes: Vec<(u64, u64)> =
            plan.functions.iter().map(|function| (function.start, function.size)).collect();
        let mut table = is_chosen
            .then(|| FunctionTable::of_functions(path, sizes.iter().copied()))
            .transpose()
            .map_err(|error| said(&error))?;
        let is_always = |function: &&Instrumented| {
            let names = Names::of(&function.linkage_name);
            functions.always.iter().any(|pattern| pattern.matches_names(&names))
        };
        let (mut selected, mut always, mut matched) = (None, HashSet::new(), Vec::new());
        let (mut refused, mut is_named) = (Vec::new(), vec![false; functions.always.len()]);
        if let Some(table) = &mut table {
            for function in table.functions() {
                let names = Names::of(&function.linkage_name);
                for (is_named, pattern) in is_named.iter_mut().zip(functions.always) {
                    *is_named |= pattern.matches_names(&names);
                }
            }
            always.extend(table.functions().iter().filter(is_always).map(|function| function.start));
            let mut unmatched = Selection::all_or_none(false);
            if let Some(selection) = functions.selection {
                let resolved = selection.resolve(table);
                let on = table.functions().iter().zip(&resolved.is_on).filter(|(_, is_on)| **is_on);
                selected = Some(on.map(|(function, _)| function.start).collect::<HashSet<u64>>());
                matched.extend(resolved.matched.iter().map(|matched| matched.functions > 0));
                let rules = selection.rules().iter().zip(&matched).filter(|(_, is_matched)| !**is_matched);
                rules.for_each(|(rule, _)| unmatched.push(Rule { is_in: true, ..rule.clone() }));
            }
            let starts = plan.left_out.iter().map(|function| (function.start, 0));
            let mut table = FunctionTable::of_functions(path, starts).map_err(|error| said(&error))?;
            let named = unmatched.resolve(&mut table).is_on;
            for ((left_out, function), is_named) in plan.left_out.iter().zip(table.functions()).zip(named) {
                if is_named || is_always(&function) {
                    refused.push((function.name(), left_out.refusal));
                }
            }
        }
        let is_small = |function: &PlannedFunction| {
            function.size < functions.least_size && !always.contains(&function.start)
        };
        let small = plan.functions.iter().filter(|function| is_small(function)).count();
        plan.keep(|function| {
            let is_selected = functions.are_others_kept
                || selected.as_ref().is_none_or(|selected| selected.contains(&function.start));
            always.contains(&function.start) || is_selected && !is_small(function)
        });
        plan.set_hooks(layout()).map_err(|error| said(&error))?;
        let number = number_of(&plan);
        let first = plan.calls.iter().map(|call| origin_of(&plan, call)).min().unwrap_or(0);
        Ok(Planned {
            path: path.to_owned(),
            place: (metadata.dev(), metadata.ino()),
            functions: all,
            small: small as u64,
            matched,
            always: is_named,
            refused,
            sizes,
            number,
            first,
            plan,
        })
    }

    /// Functions that get hooks if nothing is in the way.
    pub fn planned(&self) -> u64 {
        self.plan.functions.len() as u64
    }

    /// The functions that could get hooks, with names.
    ///
    /// # Errors
    ///
    /// The file can't be read any more.
    pub fn table(&self) -> Result<FunctionTable, String> {
        FunctionTable::of_functions(&self.path, self.sizes.iter().copied()).map_err(|error| error.to_string())
    }

    /// The number of its trampolines, and for each function the code offsets that its hooks report,
    /// from the region's start on: the first one, and the one behind the last.
    pub fn trampolines(&self) -> (u32, HashMap<u64, (u32, u32)>) {
        let mut places: HashMap<u64, (u32, u32)> = HashMap::new();
        for call in &self.plan.calls {
            let Some(function) = self.plan.functions.get(call.function as usize) else { continue };
            let place = call.at + CALL;
            let (first, end) = places.entry(function.start).or_insert((place, place + 1));
            (*first, *end) = ((*first).min(place), (*end).max(place + 1));
        }
        (self.number, places)
    }

    /// Whether the file of this device and inode was planned.
    pub fn is_file(&self, metadata: &fs::Metadata) -> bool {
        self.place == (metadata.dev(), metadata.ino())
    }

    /// Maps hooks and trampolines into a process that has loaded the file, registers them with its
    /// runtime, and leads its code there. Returns how many functions have hooks.
    ///
    /// # Errors
    ///
    /// The file isn't mapped, there is no room near it, or the process can't be changed. Then the
    /// module's code is as before.
    pub fn install(
        &self,
        process: &mut Process,
        runtime: &Runtime,
        patience: Duration,
    ) -> Result<u64, InjectError> {
        let (maps, range) = self.loaded_in(process)?;
        let frames = Frames::of(&self.plan, 0, 0, 0, true).bytes.len() as u64;
        let size = DESCRIPTOR_BEFORE
            + self.plan.region_size()
            + lists_size(&self.plan).next_multiple_of(PAGE)
            + frames.next_multiple_of(PAGE);
        let plan = placed(self.plan.clone(), &maps, range.clone(), DESCRIPTOR_BEFORE, size);
        let base = plan.base(range.start);
        let at = |place: i64| base.wrapping_add_signed(place);
        let start = at(plan.region);
        let descriptor = start - DESCRIPTOR_BEFORE;
        let (mut region, sites, table) = self.region(&plan, base);
        let end = start + (region.len() as u64).next_multiple_of(PAGE);
        let adopted = Adopted {
            record_size: Adopted::SIZE as u32,
            trampolines: self.number,
            descriptor,
            elf_header: range.start,
            start,
            end,
            sites: [start + sites, start + table],
            table: [start + table, start + region.len() as u64],
            first: self.first,
            hooks: HOOK_PLACES.map(|place| start + u64::from(place)),
            ..Adopted::default()
        };
        let frames = Frames::of(&plan, start, plan.region_size(), end, true);
        region.resize((end - start) as usize, 0);
        region.extend(&frames.bytes);
        let mut page = vec![0; PAGE as usize];
        let sets = patch_sets(&plan, base);
        if let Some(place) = page.get_mut(ADOPTED_AT..) {
            adopted.write(place);
        }
        if let Some(place) =
            page.get_mut(ADOPTED_AT + Adopted::SIZE..).and_then(|page| page.first_chunk_mut())
        {
            *place = Witness::of(&sets, self.number).to_bytes();
        }
        process.with_thread(patience, |thread| {
            thread.map_at(descriptor, &page, Access::Write)?;
            thread.map_at(start, &region, Access::Execute)?;
            for (page, bytes) in island_pages(&plan, base) {
                thread.map_at(page, &bytes, Access::Execute)?;
            }
            frames.register(thread, runtime.frames, [start, plan.region_size(), end])?;
            thread.call_function(runtime.adopt, [descriptor + ADOPTED_AT as u64, 0, 0, 0, 0, 0]).map(|_| ())
        })?;
        lead(process, sets, Lead::ToTrampolines, patience)
    }

    /// Whether a region is that of this plan.
    pub fn is_of(&self, installed: &Installed) -> bool {
        self.number == installed.number
    }

    /// Whether a region was made for this file, and as it is planned today, whichever functions
    /// were chosen. `origins`: image addresses at which hooks stand there.
    pub fn has_made(&self, installed: &Installed, origins: &HashSet<u64>) -> bool {
        if self.is_of(installed) {
            return true;
        }
        let Ok(mut plan) = everycall_plans::of_file(&self.path) else { return false };
        plan.keep(|function| origins.contains(&function.start));
        plan.set_hooks(layout()).is_ok() && number_of(&plan) == installed.number
    }

    /// The mappings of a process, and from the file's first page to its last one among them.
    fn loaded_in(&self, process: &Process) -> Result<(Vec<Mapping>, Range<u64>), InjectError> {
        let maps = mappings(process.pid())?;
        match range_of(&maps, &self.path) {
            Some(range) => Ok((maps, range)),
            None => Err(InjectError::Refused(format!("{} isn't loaded", self.path.display()))),
        }
    }

    /// Leads a module's code to its trampolines again, or away from them, in a process in which it
    /// was installed. `installed` is its region, `origins` has image addresses at which hooks stand
    /// there: other functions have no trampolines, and are left alone. Returns how many functions
    /// are changed.
    ///
    /// # Errors
    ///
    /// The file isn't mapped where it was, another plan was installed, or the process can't be
    /// changed.
    pub fn lead_again(
        &self,
        process: &mut Process,
        installed: &Installed,
        origins: &HashSet<u64>,
        to: Lead,
        patience: Duration,
    ) -> Result<u64, InjectError> {
        let (_, range) = self.loaded_in(process)?;
        let refused = |why: &str| InjectError::Refused(format!("the hooks in {} {why}", self.path.display()));
        if range.start != installed.module {
            return Err(refused("are for another place"));
        }
        let others = || refused("were written by another version of everycall");
        // Bytes that aren't ours stay; but code that leads to other trampolines goes astray.
        if to == Lead::ToTrampolines && !self.has_made(installed, origins) {
            return Err(others());
        }
        let base = self.plan.base(range.start);
        let mut plan = self.plan.clone();
        plan.keep(|function| origins.contains(&function.start));
        plan.move_region(installed.region.wrapping_sub(base).cast_signed()).map_err(|_| others())?;
        lead(process, patch_sets(&plan, base), to, patience)
    }

    /// Image addresses at which its hooks stand.
    pub fn origins(&self) -> HashSet<u64> {
        self.plan.calls.iter().map(|call| origin_of(&self.plan, call)).collect()
    }

    /// The region's bytes, and where in it the sites and the table begin.
    fn region(&self, plan: &Plan, base: u64) -> (Vec<u8>, u64, u64) {
        let mut bytes = HOOKS.to_vec();
        bytes.resize(plan.hooks.reserved as usize, 0xcc);
        bytes.extend(&plan.code);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0xcc);
        let first = bytes.len() as u64;
        let mut calls: Vec<_> = plan.calls.iter().collect();
        // By function, as the runtime wants them.
        calls.sort_by_key(|call| (call.function, call.at));
        let start = base.wrapping_add_signed(plan.region);
        for call in calls {
            let function = plan.functions.get(call.function as usize).map_or(0, |function| function.start);
            let place = start + bytes.len() as u64;
            let distance = |to: u64, field: u64| to.wrapping_sub(place + field) as i32;
            let site = Site {
                site: distance(start + u64::from(call.at), 0),
                function: distance(base.wrapping_add(function), 4),
                kind: match call.kind {
                    HookKind::Entry => site_kind::ENTRY,
                    HookKind::Exit => site_kind::EXIT,
                    HookKind::TailExit => site_kind::TAIL_EXIT,
                },
            };
            bytes.extend(site.to_bytes());
        }
        let table = bytes.len() as u64;
        for call in &plan.calls {
            let origin = origin_of(plan, call).wrapping_sub(self.first) as u32;
            bytes.extend(Trampoline { returns_to: call.at + CALL, origin }.to_bytes());
        }
        (bytes, first, table)
    }
}

/// A number that differs between plans.
pub(crate) fn number_of(plan: &Plan) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&plan.build_id);
    for call in &plan.calls {
        hasher.update(&call.at.to_le_bytes());
        hasher.update(&origin_of(plan, call).to_le_bytes());
    }
    hasher.finalize().max(1)
}

/// The instruction that a call of a hook stands before.
fn origin_of(plan: &Plan, call: &HookCall) -> u64 {
    match (call.kind, plan.functions.get(call.function as usize)) {
        (HookKind::Entry, Some(function)) => function.start,
        _ => call.from,
    }
}

fn lists_size(plan: &Plan) -> u64 {
    (ALIGN + plan.calls.len() * (Site::SIZE + Trampoline::SIZE)) as u64
}

/// The runtime in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Its function that takes an [`Adopted`].
    adopt: u64,
    /// Where functions lead by which calls are left.
    pub(crate) leaving: Option<u64>,
    /// Its function that takes unwind information.
    pub(crate) frames: Option<u64>,
}

impl Runtime {
    /// Finds the runtime that was preloaded as `library`; `None` if it isn't there.
    ///
    /// # Errors
    ///
    /// The process can't be read.
    pub fn find(process: &Process, library: &Path) -> Result<Option<Runtime>, InjectError> {
        match first_page(&mappings(process.pid())?, library) {
            Some(start) => Runtime::at(process, start),
            None => Ok(None),
        }
    }

    /// The runtime in a library whose first page is at `start`; `None` if it is none.
    ///
    /// # Errors
    ///
    /// The process can't be read.
    pub fn at(process: &Process, start: u64) -> Result<Option<Runtime>, InjectError> {
        let Some(table) = process.symbol(start, RUNTIME_SYMBOL) else { return Ok(None) };
        let pointer = process.read(table + ADOPT_OFFSET, size_of::<u64>())?;
        let adopt = pointer.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let leaving = process.symbol(start, LEAVING_SYMBOL);
        let frames = process.symbol(start, FRAMES_SYMBOL);
        Ok(adopt.map(|adopt| Runtime { adopt, leaving, frames }))
    }
}
