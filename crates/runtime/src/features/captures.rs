//! The capture set in the file that `EVERYCALL_ARGS` names: functions whose arguments and results
//! are recorded. What it says of a module is checked and copied when that is registered.
#![allow(unsafe_code)] // Memory that is mapped here; code of a module that is loaded.

use crate::features::frames;
use crate::features::set_file::{self, Trouble};
use crate::features::sites::Sites;
use crate::state::captures::{Builder, Captures, Function, Room};
use crate::state::process::Process;
use crate::state::{captures, dropped, hub};
use crate::sys::crc::Crc;
use crate::sys::folder::FOLDER_MAX;
use crate::sys::image::{Image, Text};
use crate::sys::kept_path::KeptPath;
use crate::sys::system;
use crate::threads::quick_values;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::counter;
use everycall_format::capture_set::{CaptureModule, CaptureSet, CaptureSetError};
use everycall_format::env;
use everycall_hooks::ModuleDescriptor;
use everycall_hooks::arch::jump;

/// A set in memory of its own, in front of its bytes.
struct Loaded {
    set: CaptureSet<'static>,
    /// Bytes of the memory.
    size: u64,
}

/// Bytes before the set.
const HEAD: usize = size_of::<Loaded>().next_multiple_of(64);

/// The set; null if there is none. Used by the holder of the module lock.
static SET: AtomicPtr<Loaded> = AtomicPtr::new(core::ptr::null_mut());
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
            SET.store(set, Release);
        }
        Err(trouble) => {
            set_file::refuse(env::ARGS, path, &trouble, b"Going on without arguments and results.\n");
        }
    }
}

fn read(path: &[u8]) -> Result<*mut Loaded, Trouble> {
    let block = set_file::read(path, HEAD)?;
    let size = block.bytes().len() as u64;
    let base = block.leak();
    // SAFETY: the block's bytes, of which only the head is written from here on.
    let bytes: &'static [u8] =
        unsafe { core::slice::from_raw_parts(base.wrapping_add(HEAD), size as usize - HEAD) };
    let trouble = match CaptureSet::parse(bytes, Crc::of) {
        Ok(set) => {
            let place = base.cast::<Loaded>();
            // SAFETY: a page's beginning, with room for it before the set.
            unsafe { place.write(Loaded { set, size }) };
            return Ok(place);
        }
        Err(CaptureSetError::NoSet) => Trouble::NoSet,
        Err(CaptureSetError::Version(_)) => Trouble::OtherVersion,
        Err(CaptureSetError::Damaged) => Trouble::Damaged,
    };
    system::unmap(base, size);
    Err(trouble)
}

/// The caller holds the module lock.
fn set() -> Option<&'static CaptureSet<'static>> {
    // SAFETY: null or made by `read`; it isn't freed while the module lock is held.
    unsafe { SET.load(Acquire).as_ref() }.map(|loaded| &loaded.set)
}

/// The module with this build id, as it is in the set.
fn module_in(set: &CaptureSet<'static>, build_id_length: u32, build_id: &[u8; 32]) -> Option<CaptureModule> {
    set.modules().find(|module| (module.build_id_length, &module.build_id) == (build_id_length, build_id))
}

/// Whether the recorder may add captures of a module to the set. The caller holds the module lock.
pub(crate) fn may_be_added(build_id_length: u32, build_id: &[u8; 32]) -> bool {
    build_id_length != 0
        && !PATH.is_empty()
        && set().is_some_and(|set| module_in(set, build_id_length, build_id).is_none())
        && hub::hub().is_some_and(|hub| hub.captures())
}

/// Reads the set again, to which the recorder has added captures. Returns whether it is there; if
/// not, the one before stays. The caller holds the module lock.
pub(crate) fn load_again() -> bool {
    let Ok(new) = read(PATH.read(&mut [0; FOLDER_MAX])) else { return false };
    let old = SET.swap(new, Release);
    // SAFETY: null or made by `read`; only the holder of the lock uses it.
    if let Some(size) = unsafe { old.as_ref() }.map(|loaded| loaded.size) {
        system::unmap(old.cast(), size);
    }
    true
}

/// Lets the hooks of a module, of which no code has run yet, copy what the set says. The caller
/// holds the module lock. Returns whether there is anything to copy.
pub(crate) fn install(process: &'static Process, module: &ModuleDescriptor, image: &Image) -> bool {
    if dropped::is_counting() || image.build_id_length == 0 {
        return false;
    }
    let Some(set) = set() else { return false };
    let Some(part) = module_in(set, image.build_id_length, &image.build_id) else { return false };
    let all = part.functions as usize;
    // SAFETY: the module is loaded, by contract of `register`.
    let sites = unsafe { Sites::of(module, &image.text) };
    let refused = match build(process, module, image, &sites, set, &part) {
        Some(refused) => refused,
        None => all,
    };
    process.arena().count(counter::CAPTURES_REFUSED, refused as u64);
    refused < all
}

/// The module is about to be unloaded.
pub(crate) fn remove(module: &ModuleDescriptor) {
    captures::remove(module);
}

/// Returns how many functions were refused; `None` if there is no memory.
fn build(
    process: &'static Process,
    module: &ModuleDescriptor,
    image: &Image,
    sites: &Sites<'_>,
    set: &CaptureSet<'static>,
    part: &CaptureModule,
) -> Option<usize> {
    if module.capture_entry_hook.load(Relaxed) == module.entry_hook.load(Relaxed) {
        // Its hooks call XRay's handlers first.
        return None;
    }
    let programs_of = |number: u32| set.capture(number).map(|capture| (capture, set.program(&capture)));
    let mut room = Room { functions: part.functions as usize, places: 0, programs: 0, bytes: 0 };
    for function in set.functions_of(part) {
        for (_, program) in [function.entry, function.exit].into_iter().filter_map(programs_of) {
            room.programs += 1;
            room.bytes += program.len();
        }
    }
    // A function's sites follow each other.
    let is_named = |start: u64| set.function_at(part, start.wrapping_sub(image.base)).is_some();
    let (mut last, mut is_last_named) = (0, false);
    for number in sites.numbers() {
        let function = sites.function(number);
        if function != last {
            (last, is_last_named) = (function, is_named(function));
        }
        room.places += usize::from(is_last_named);
    }
    let mut builder = Builder::new(room)?;
    let mut refused = 0;
    for function in set.functions_of(part) {
        let mut is_whole = true;
        let mut number_of = |number: u32| {
            let Some((capture, program)) = programs_of(number) else { return 0 };
            let added = builder.add_program(program, capture.id);
            match added {
                Some(_) => tell(process, capture.id, set.layout(&capture)),
                None => is_whole = false,
            }
            added.unwrap_or(0)
        };
        let (entry, exit) = (number_of(function.entry), number_of(function.exit));
        refused += usize::from(!is_whole);
        let start = image.base.wrapping_add(function.start);
        let is_called = !sites.are_apart() && is_called(module, image, start);
        builder.add_function(Function {
            start,
            end: image.base.wrapping_add(function.end),
            entry,
            exit,
            is_called,
            has_hooks: is_called,
        });
    }
    for number in sites.numbers() {
        let start = sites.function(number);
        let Some((is_exit, behind)) = sites.returns_to(number) else { continue };
        let functions = builder.functions();
        let Ok(at) = functions.binary_search_by_key(&start, |function| function.start) else { continue };
        let Some(function) = functions.get_mut(at) else { continue };
        let program = if is_exit { function.exit } else { function.entry };
        if !is_exit && !sites.are_apart() && has_pushed(behind, start) {
            function.entry = 0;
            continue;
        }
        function.has_hooks = true;
        if program != 0 {
            builder.add_place(behind, program, is_exit);
        }
    }
    refused += builder.functions().iter().filter(|function| !function.has_hooks).count();
    builder.install(module);
    module.capture.store(quick_values::record as *const () as u64, Relaxed);
    Some(refused.min(room.functions))
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
