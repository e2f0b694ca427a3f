//! Functions whose arguments and results are recorded: by the capture set in the file that
//! `EVERYCALL_ARGS` names, and those of clients. What they say of a module is checked and copied
//! when that is registered, and when they change.
#![allow(unsafe_code)] // Code of a module that is loaded.

use crate::features::frames;
use crate::features::set_file::{self, Trouble};
use crate::features::sites::Sites;
use crate::state::capture_sets::{self, Union, Unused, WantedFunction};
use crate::state::captures::{Builder, Captures, Function, Programs, Room};
use crate::state::process::Process;
use crate::state::selection::{self, InModule};
use crate::state::value_counts::ValueCounts;
use crate::state::{captures, constants, dropped, hub};
use crate::sys::folder::FOLDER_MAX;
use crate::sys::image::{Image, Text};
use crate::sys::kept_path::KeptPath;
use crate::threads::quick_values;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use everycall_capture::Program;
use everycall_format::arena::counter;
use everycall_format::capture_set::CaptureSetError;
use everycall_format::env;
use everycall_hooks::arch::jump;
use everycall_hooks::{CapturePlace, ModuleDescriptor};

/// The path in `EVERYCALL_ARGS`.
static PATH: KeptPath = KeptPath::none();

/// Ids of captures whose layouts are in the arena, a hash table: 0 is a free place. A forked
/// child's arena has its parent's layouts. Those that find no place are written again.
static TOLD: [AtomicU32; 1 << 12] = [const { AtomicU32::new(0) }; 1 << 12];
/// Places that are looked at for an id.
const TRIES: usize = 32;

/// Reads the set in the file at `path`. On failure, it prints why, and no values are recorded. Call
/// it only at the start.
pub(crate) fn load(path: &[u8]) {
    match read(path) {
        Ok(set) => {
            PATH.keep(path);
            capture_sets::put_start(set);
        }
        Err(trouble) => {
            set_file::refuse(env::ARGS, path, &trouble, b"Going on without arguments and results.\n");
        }
    }
}

fn read(path: &[u8]) -> Result<Unused, Trouble> {
    Unused::parse(set_file::read(path, capture_sets::HEAD)?).map_err(|error| match error {
        CaptureSetError::NoSet => Trouble::NoSet,
        CaptureSetError::Version(_) => Trouble::OtherVersion,
        CaptureSetError::Damaged => Trouble::Damaged,
    })
}

/// Whether the recorder may add captures of a module to the set. The caller holds the module lock.
pub(crate) fn may_be_added(build_id_length: u32, build_id: &[u8; 32]) -> bool {
    let is_unnamed = |set| capture_sets::module_in(set, build_id_length, build_id).is_none();
    build_id_length != 0
        && !PATH.is_empty()
        && capture_sets::from_start().is_some_and(is_unnamed)
        && hub::hub().is_some_and(|hub| hub.captures())
}

/// Reads the set again, to which the recorder has added captures. Returns whether it is there; if
/// not, the one before stays. The caller holds the module lock.
pub(crate) fn load_again() -> bool {
    let Ok(new) = read(PATH.read(&mut [0; FOLDER_MAX])) else { return false };
    capture_sets::put_start(new);
    true
}

/// Lets the hooks of a module copy what the sets say. The caller holds the module lock, and has the
/// sites led to the right hooks afterwards. Returns whether there is anything to copy.
pub(crate) fn install(process: &'static Process, module: &ModuleDescriptor, image: &Image) -> bool {
    if dropped::is_counting() || image.build_id_length == 0 {
        return false;
    }
    let wanted = || Union::of(image.build_id_length, &image.build_id);
    if wanted().next().is_none() {
        captures::clear(module);
        return false;
    }
    // SAFETY: the module is loaded.
    let sites = unsafe { Sites::of(module, &image.text) };
    constants::learn(module, image);
    let is_there = build(process, module, image, &sites, &wanted) == Some(());
    if !is_there {
        captures::clear(module);
        wanted().for_each(|function| refuse(process, module, &function));
    }
    is_there
}

/// Counts a function whose values can't be recorded.
fn refuse(process: &Process, module: &ModuleDescriptor, function: &WantedFunction) {
    let new = function.shares().filter(|share| share.chosen.refuse()).count();
    let is_new = new > 0 || captures::is_registering(module);
    process.arena().count(counter::CAPTURES_REFUSED, is_new.into());
}

/// The module is about to be unloaded.
pub(crate) fn remove(module: &ModuleDescriptor) {
    captures::remove(module);
    constants::forget(module);
}

/// Returns `None` if nothing can be copied in this module.
fn build(
    process: &'static Process,
    module: &ModuleDescriptor,
    image: &Image,
    sites: &Sites<'_>,
    wanted: &impl Fn() -> Union,
) -> Option<()> {
    if module.capture_entry_hook.load(Relaxed) == module.entry_hook.load(Relaxed) {
        // Its hooks call XRay's handlers first.
        return None;
    }
    let mut room = Room { functions: 0, places: 0, programs: 0, bytes: 0 };
    for function in wanted() {
        room.functions += 1;
        for wanted in function.all() {
            room.programs += 1;
            room.bytes += wanted.program().len();
        }
    }
    // A function's sites follow each other.
    let named = wanted();
    let is_named = |start: u64| named.names(start.wrapping_sub(image.base));
    let (mut last, mut is_last_named) = (0, false);
    for number in sites.numbers() {
        let function = sites.function(number);
        if function != last {
            (last, is_last_named) = (function, is_named(function));
        }
        room.places += usize::from(is_last_named);
    }
    let mut builder = Builder::new(room)?;
    let selected = InModule::of(image.build_id_length, &image.build_id);
    let is_counted = ValueCounts::of(process.arena()).is_some();
    for function in wanted() {
        let entries = add_programs(process, &mut builder, function.entry);
        let is_conditional = is_conditional(&builder, &function, entries, &selected, is_counted);
        let entry = builder.programs_since(entries, is_conditional);
        let exits = add_programs(process, &mut builder, function.exit);
        // At an exit, a condition says nothing about whether it is recorded.
        let exit = builder.programs_since(exits, true);
        let start = image.base.wrapping_add(function.start);
        let is_called = !sites.are_apart() && is_called(module, image, start);
        builder.add_function(Function {
            start,
            end: image.base.wrapping_add(function.end),
            entry,
            exit,
            is_called,
            has_hooks: is_called,
            is_conditional,
        });
    }
    let mut copies_of = LastCopies::default();
    for number in sites.numbers() {
        let start = sites.function(number);
        let Some((is_exit, behind)) = sites.hook_returns_to(number) else { continue };
        let functions = builder.functions();
        let Ok(at) = functions.binary_search_by_key(&start, |function| function.start) else { continue };
        let Some(function) = functions.get_mut(at) else { continue };
        let programs = match is_exit {
            // A tail exit has no result yet.
            true if sites.is_tail_exit(number) => Programs::default(),
            true => function.exit,
            false => function.entry,
        };
        let is_pushed = || !sites.are_apart() && has_pushed(behind, start);
        if !is_exit && (sites.keeps_other_hook(number) || is_pushed()) {
            (function.entry, function.is_conditional) = (Programs::default(), false);
            continue;
        }
        function.has_hooks = true;
        let is_conditional = function.is_conditional;
        if programs.are_any() || is_conditional {
            let program = programs.word();
            // Hooks can't count values by themselves.
            let copies = match is_counted && !is_exit {
                true => 0,
                false => copies_of.find(&mut builder, (start, programs, is_exit, is_conditional)),
            };
            builder.add_place(CapturePlace { behind, copies, program, is_exit, is_conditional });
        }
    }
    if builder.functions().iter().any(|function| function.is_conditional) {
        selection::note_conditions();
    }
    for (index, function) in wanted().enumerate() {
        let Some(built) = builder.functions().get(index).copied() else { break };
        let is_whole =
            built.entry.count() == function.entry.count() && built.exit.count() == function.exit.count();
        if !built.has_hooks || !is_whole {
            refuse(process, module, &function);
        } else {
            count_shadowed(&builder, &function, &built);
        }
    }
    if !builder.install(module) {
        return None;
    }
    module.capture.store(quick_values::record as *const () as u64, Relaxed);
    Some(())
}

/// Function, programs, whether at an exit, and whether calls may be left out.
type CopiesOf = (u64, Programs, bool, bool);

/// The copies of the last sites, of which those of a function follow each other.
#[derive(Default)]
struct LastCopies {
    last: [Option<(CopiesOf, u32)>; 3],
    next: usize,
}

impl LastCopies {
    fn find(&mut self, builder: &mut Builder, wanted: CopiesOf) -> u32 {
        let known = self.last.iter().flatten().find(|(of, _)| *of == wanted);
        if let Some((_, copies)) = known {
            return *copies;
        }
        let (_, programs, is_exit, is_conditional) = wanted;
        let copies = builder.add_copies(programs, is_exit, is_conditional);
        if let Some(place) = self.last.get_mut(self.next) {
            *place = Some((wanted, copies));
        }
        self.next = (self.next + 1) % self.last.len();
        copies
    }
}

/// Adds the programs of one place, as far as they are accepted. Returns the first one's number.
fn add_programs(process: &'static Process, builder: &mut Builder, programs: capture_sets::Programs) -> usize {
    let first = builder.program_count();
    for wanted in programs.iter() {
        if builder.add_program(wanted.program(), wanted.capture.id) {
            tell(process, wanted.capture.id, wanted.layout());
        }
    }
    first
}

/// Whether calls of a function are left out for which the conditions at its entry are false:
/// everybody who records the function wants that. `first`: the first of its programs at the entry.
/// `is_counted`: calls are counted by their values, which leaves out all of them.
fn is_conditional(
    builder: &Builder,
    function: &WantedFunction,
    first: usize,
    selected: &InModule,
    is_counted: bool,
) -> bool {
    let count = function.entry.count();
    if builder.program_count() - first != count {
        return false;
    }
    if is_counted {
        return count > 0;
    }
    let may_reject = |index: u32| builder.program(first + index as usize).is_some_and(Program::may_reject);
    if !(0..count as u32).any(may_reject) {
        return false;
    }
    capture_sets::note_conditions();
    selected.recorders(function.start).all(|recorder| {
        let share = function.shares().find(|share| share.is_of(recorder));
        share.and_then(|share| share.entry).is_some_and(may_reject)
    })
}

/// Counts a function for each set of which another one's values are recorded.
fn count_shadowed(builder: &Builder, function: &WantedFunction, built: &Function) {
    // The id of the values that a program copies.
    let copied = |programs: Programs, index: u32| {
        let program = builder.program(programs.numbers().nth(index as usize)?)?;
        (program.output_max() > 0).then_some(program.id())
    };
    let is_shadowed = |programs: Programs, index: Option<u32>| {
        let before = index.and_then(|index| (0..index).find_map(|before| copied(programs, before)));
        let own = index.and_then(|index| copied(programs, index));
        before.zip(own).is_some_and(|(before, own)| before != own)
    };
    for share in function.shares() {
        if is_shadowed(built.entry, share.entry) || is_shadowed(built.exit, share.exit) {
            share.chosen.shadow();
        }
    }
}

/// Puts a capture's layout into the arena, unless it is there.
fn tell(process: &'static Process, id: u32, layout: &[u8]) {
    let first = id as usize % TOLD.len();
    let mut places = TOLD.iter().skip(first).chain(&TOLD).take(TRIES);
    let place = places.find(|place| [0, id].contains(&place.load(Relaxed)));
    if place.is_none_or(|place| place.load(Relaxed) != id) {
        frames::put_layout(process, id, layout);
    }
    if let Some(place) = place {
        place.store(id, Relaxed);
    }
}

fn bytes_at<const SIZE: usize>(address: u64) -> [u8; SIZE] {
    // SAFETY: callers have found the address in a segment that is loaded.
    unsafe { (address as *const [u8; SIZE]).read_volatile() }
}

/// Whether something is pushed before the call of an entry hook: gcc does that with the static
/// chain of nested functions, so the stack pointer isn't the one that programs expect.
fn has_pushed(behind: u64, start: u64) -> bool {
    const CALL: u64 = 5;
    const PUSH_R10: [u8; 2] = [0x41, 0x52];
    let before = behind.saturating_sub(CALL + 2);
    before >= start && bytes_at(before) == PUSH_R10
}

/// Whether a function begins with a call of the module's entry hook, but for instructions without
/// effect and prefixes that linkers put before a call.
fn is_called(module: &ModuleDescriptor, image: &Image, start: u64) -> bool {
    const HEAD: usize = 24;
    const BEFORE: [&[u8]; 4] = [&[0xf3, 0x0f, 0x1e, 0xfa], &[0x67], &[0x66, 0x90], &[0x90]];
    let is_code = |address: u64, size: usize| Text::of(&image.text, address, size).is_some();
    if !is_code(start, HEAD) {
        return false;
    }
    let code: [u8; HEAD] = bytes_at(start);
    let mut rest = &code[..];
    while let Some(after) = BEFORE.iter().find_map(|bytes| rest.strip_prefix(*bytes)) {
        rest = after;
    }
    let behind = start + (HEAD - rest.len() + jump::CALL_SIZE) as u64;
    let hook = rest.first_chunk().and_then(|call| jump::direct_call(*call, behind));
    let entry = module.sled_hooks[0].load(Relaxed);
    hook.is_some_and(|hook| {
        is_code(hook, jump::INSTRUCTION_MAX)
            && jump::is_plain_hook(&bytes_at::<{ jump::INSTRUCTION_MAX }>(hook), hook, entry)
    })
}

/// The functions of a module whose values are copied at hooks that are always called, as ranges of
/// image addresses.
pub(crate) fn called_ranges<'a>(
    captures: &'a Captures,
    image: &'a Image,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    captures
        .called()
        .map(|function| (function.start.wrapping_sub(image.base), function.end.wrapping_sub(image.base)))
}
