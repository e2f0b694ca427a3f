//! Capture sets, which say whose values are recorded: the one from the start, one that has replaced
//! it, and those of the control socket's clients.
//!
//! Their union is recorded. Where several name a function, all their programs run, one after the
//! other. An event has one record of values: those of the first program that doesn't reject the
//! call. The others' owners learn how many functions that are.
#![allow(unsafe_code)] // Sets in memory that is mapped here, by their addresses.

use crate::state::selection;
use crate::sys::block::Block;
use crate::sys::crc::Crc;
use crate::sys::system;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::capture_set::{
    CaptureEntry, CaptureFunction, CaptureModule, CaptureSet, CaptureSetError,
};
use everycall_format::control_socket::CAPTURE_SETS;

/// Free bytes in front of a set: those of a request's body.
pub(crate) const HEAD: usize = selection::HEAD;

const _: () = assert!(size_of::<Loaded>() <= HEAD);

/// A set in memory of its own, in front of its bytes.
struct Loaded {
    set: CaptureSet<'static>,
    /// Bytes of the memory.
    size: u64,
}

/// A set that isn't in use.
pub(crate) struct Unused(*mut Loaded);

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for Unused {}

impl Unused {
    /// The set in `block`, whose first [`HEAD`] bytes are free.
    pub(crate) fn parse(block: Block) -> Result<Unused, CaptureSetError> {
        CaptureSet::parse(block.bytes().get(HEAD..).unwrap_or(&[]), Crc::of)?;
        let size = block.bytes().len() as u64;
        let base = block.leak();
        // SAFETY: the block's bytes, of which only the head is written from here on.
        let bytes: &'static [u8] =
            unsafe { core::slice::from_raw_parts(base.wrapping_add(HEAD), size as usize - HEAD) };
        let set = CaptureSet::parse(bytes, Crc::of).inspect_err(|_| system::unmap(base, size))?;
        let place = base.cast::<Loaded>();
        // SAFETY: a page's beginning, with room for it before the set.
        unsafe { place.write(Loaded { set, size }) };
        Ok(Unused(place))
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        free(self.0);
    }
}

/// Unmaps a set, which must no longer be reachable.
fn free(set: *mut Loaded) {
    // SAFETY: null or made by `Unused::parse`.
    if let Some(size) = unsafe { set.as_ref() }.map(|loaded| loaded.size) {
        system::unmap(set.cast(), size);
    }
}

/// A set in use. Only the holder of the module lock follows or replaces it.
pub(crate) struct Chosen {
    set: AtomicPtr<Loaded>,
    /// Of a client's: its connection's number, plus 1.
    client: AtomicU32,
    /// Functions whose values can't be recorded.
    refused: AtomicU32,
    /// Functions of which a set before this one has other values.
    shadowed: AtomicU32,
    /// Whether the refused functions of all modules that are loaded have been counted.
    is_counted: AtomicU32,
}

impl Chosen {
    const fn none() -> Chosen {
        Chosen {
            set: AtomicPtr::new(core::ptr::null_mut()),
            client: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            shadowed: AtomicU32::new(0),
            is_counted: AtomicU32::new(0),
        }
    }

    fn put(&self, set: Option<Unused>) {
        let new = set.map_or(core::ptr::null_mut(), |set| {
            let new = set.0;
            core::mem::forget(set);
            new
        });
        self.is_counted.store(0, Relaxed);
        free(self.set.swap(new, Release));
    }

    fn set(&self) -> Option<&'static CaptureSet<'static>> {
        // SAFETY: null or made by `Unused::parse`; it isn't freed while the module lock is held.
        unsafe { self.set.load(Acquire).as_ref() }.map(|loaded| &loaded.set)
    }

    /// Whether what it is for is recorded.
    fn is_active(&self) -> bool {
        match self.client.load(Relaxed).checked_sub(1) {
            None => true,
            Some(client) => selection::session(client as usize).is_some_and(selection::Selection::is_active),
        }
    }

    /// Counts a function of which another set's values are recorded.
    pub(crate) fn shadow(&self) {
        self.shadowed.fetch_add(1, Relaxed);
    }

    /// Counts a function whose values can't be recorded. Returns whether that is new.
    pub(crate) fn refuse(&self) -> bool {
        self.refused.fetch_add(1, Relaxed);
        self.is_counted.load(Relaxed) == 0
    }

    /// Of this set: functions with other values, and functions without.
    fn missing(&self) -> (u32, u32) {
        (self.shadowed.load(Relaxed), self.refused.load(Relaxed))
    }
}

/// The one from the start: `EVERYCALL_ARGS`.
static START: Chosen = Chosen::none();
/// The one that has replaced it.
static BASE: Chosen = Chosen::none();
static CLIENTS: [Chosen; CAPTURE_SETS as usize] = [const { Chosen::none() }; CAPTURE_SETS as usize];
/// Not 0 if sets have changed since their union was made.
static HAVE_CHANGED: AtomicU32 = AtomicU32::new(0);
/// Not 0 once a set had programs that leave out calls: whether they may depends on who else records
/// the function, so the union is made again whenever that changes.
static HAVE_CONDITIONS: AtomicU32 = AtomicU32::new(0);

fn active() -> impl Iterator<Item = &'static Chosen> {
    let base = if BASE.set().is_some() { &BASE } else { &START };
    core::iter::once(base).chain(&CLIENTS).filter(|chosen| chosen.set().is_some() && chosen.is_active())
}

/// Puts the set from the start there, or one to which the recorder has added functions. The caller
/// holds the module lock, or no other thread runs yet.
pub(crate) fn put_start(set: Unused) {
    START.put(Some(set));
    // Module by module, as they are registered.
    START.is_counted.store(1, Relaxed);
}

/// The set from the start. The caller holds the module lock.
pub(crate) fn from_start() -> Option<&'static CaptureSet<'static>> {
    START.set()
}

/// Replaces the set of the base selection; `None`: by that from the start. The caller holds the
/// module lock.
pub(crate) fn put_base(set: Option<Unused>) {
    BASE.put(set);
    HAVE_CHANGED.store(1, Relaxed);
}

/// Replaces the set of a client. Returns whether there was room. The caller holds the module lock.
pub(crate) fn put_client(connection: usize, set: Option<Unused>) -> bool {
    let client = connection as u32 + 1;
    let its = |chosen: &&Chosen| chosen.client.load(Relaxed) == client;
    let is_free = |chosen: &&Chosen| chosen.client.load(Relaxed) == 0;
    let place = CLIENTS.iter().find(its);
    if place.is_none() && set.is_none() {
        return true;
    }
    let Some(place) = place.or_else(|| CLIENTS.iter().find(is_free)) else { return false };
    place.client.store(if set.is_some() { client } else { 0 }, Relaxed);
    place.put(set);
    HAVE_CHANGED.store(1, Relaxed);
    true
}

/// The session of a client has become active. The caller holds the module lock.
pub(crate) fn activate(connection: usize) {
    if CLIENTS.iter().any(|chosen| chosen.client.load(Relaxed) == connection as u32 + 1) {
        HAVE_CHANGED.store(1, Relaxed);
    }
}

/// Functions of which another set has other values, and functions whose values can't be recorded:
/// of a client's set, or of the base selection's. The caller holds the module lock.
pub(crate) fn missing(connection: Option<usize>) -> (u32, u32) {
    let its = |chosen: &&Chosen| match connection {
        Some(connection) => chosen.client.load(Relaxed) == connection as u32 + 1,
        None => chosen.client.load(Relaxed) == 0,
    };
    active().find(its).map_or((0, 0), Chosen::missing)
}

/// Whether the union has to be made again; if so, begins with that. The caller holds the module
/// lock.
pub(crate) fn begin_change() -> bool {
    let have_changed = HAVE_CHANGED.swap(0, Relaxed) != 0 || HAVE_CONDITIONS.load(Relaxed) != 0;
    for chosen in active().filter(|_| have_changed) {
        chosen.refused.store(0, Relaxed);
        chosen.shadowed.store(0, Relaxed);
    }
    have_changed
}

/// Notes that a set has programs that leave out calls.
pub(crate) fn note_conditions() {
    HAVE_CONDITIONS.store(1, Relaxed);
}

/// All modules that are loaded have the union.
pub(crate) fn end_change() {
    active().for_each(|chosen| chosen.is_counted.store(1, Relaxed));
}

/// In a forked child: clients are the parent's. Returns whether there were any.
pub(crate) fn begin_child() -> bool {
    let mut were_some = false;
    for chosen in &CLIENTS {
        // The memory isn't freed: the fork may have come while the parent was freeing it.
        were_some |= !chosen.set.swap(core::ptr::null_mut(), Relaxed).is_null();
        chosen.client.store(0, Relaxed);
    }
    if were_some {
        HAVE_CHANGED.store(1, Relaxed);
    }
    were_some
}

/// The part of one set that is about a module.
struct Part {
    chosen: &'static Chosen,
    set: &'static CaptureSet<'static>,
    module: CaptureModule,
    /// Number of the function after the current one.
    next: u32,
    current: Option<CaptureFunction>,
}

impl Part {
    fn advance(&mut self) {
        self.current = self.set.function(&self.module, self.next);
        self.next += 1;
    }

    fn wanted(&self, number: u32) -> Option<Wanted> {
        Some(Wanted { set: self.set, capture: self.set.capture(number)? })
    }
}

/// A program with its layout.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    set: &'static CaptureSet<'static>,
    pub(crate) capture: CaptureEntry,
}

impl Wanted {
    pub(crate) fn program(&self) -> &'static [u8] {
        self.set.program(&self.capture)
    }

    pub(crate) fn layout(&self) -> &'static [u8] {
        self.set.layout(&self.capture)
    }
}

/// The base set and those of clients.
const SETS_MAX: usize = CAPTURE_SETS as usize + 1;

/// The different programs that sets want at one place, in the order of the sets.
#[derive(Clone, Copy)]
pub(crate) struct Programs {
    all: [Option<Wanted>; SETS_MAX],
}

impl Programs {
    const fn none() -> Programs {
        Programs { all: [const { None }; SETS_MAX] }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Wanted> + use<> {
        self.all.into_iter().flatten()
    }

    pub(crate) fn count(&self) -> usize {
        self.iter().count()
    }

    /// Adds a program, unless it is there already. Returns which one it is.
    fn add(&mut self, wanted: Option<Wanted>) -> Option<u32> {
        let wanted = wanted?;
        // Captures with the same id have the same values, and perhaps other conditions.
        let is_same = |known: &Wanted| known.program() == wanted.program();
        let is_it = |place: &Option<Wanted>| place.as_ref().is_none_or(is_same);
        let at = self.all.iter().position(is_it)?;
        *self.all.get_mut(at)? = Some(wanted);
        Some(at as u32)
    }
}

/// The part of one set in a function: which of its [`Programs`] it wants.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    pub(crate) chosen: &'static Chosen,
    pub(crate) entry: Option<u32>,
    pub(crate) exit: Option<u32>,
}

impl Share {
    /// Whether the set belongs to a recorder: see [`selection::Recorder`].
    pub(crate) fn is_of(&self, recorder: selection::Recorder) -> bool {
        self.chosen.client.load(Relaxed) == recorder.map_or(0, |connection| connection as u32 + 1)
    }
}

/// A function, and what is wanted at its entry and at its returns. Addresses in its file.
#[derive(Clone, Copy)]
pub(crate) struct WantedFunction {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) entry: Programs,
    pub(crate) exit: Programs,
    shares: [Option<Share>; SETS_MAX],
}

impl WantedFunction {
    /// The programs that are wanted.
    pub(crate) fn all(&self) -> impl Iterator<Item = Wanted> + use<> {
        self.entry.iter().chain(self.exit.iter())
    }

    /// The sets that name the function.
    pub(crate) fn shares(&self) -> impl Iterator<Item = Share> + use<> {
        self.shares.into_iter().flatten()
    }

    /// Adds what a set wants.
    fn add(&mut self, chosen: &'static Chosen, entry: Option<Wanted>, exit: Option<Wanted>) {
        let share = Share { chosen, entry: self.entry.add(entry), exit: self.exit.add(exit) };
        if let Some(place) = self.shares.iter_mut().find(|place| place.is_none()) {
            *place = Some(share);
        }
    }
}

/// The functions of a module that any set names, by address. The caller holds the module lock.
pub(crate) struct Union {
    parts: [Option<Part>; SETS_MAX],
    /// Where the function before ends.
    end: u64,
}

impl Union {
    pub(crate) fn of(build_id_length: u32, build_id: &[u8; 32]) -> Union {
        let mut union = Union { parts: [const { None }; SETS_MAX], end: 0 };
        let parts = active().filter_map(|chosen| {
            let set = chosen.set()?;
            let module = module_in(set, build_id_length, build_id)?;
            Some(Part { chosen, set, module, next: 0, current: None })
        });
        for (place, mut part) in union.parts.iter_mut().zip(parts) {
            part.advance();
            *place = Some(part);
        }
        union
    }

    /// Whether a function begins here that any set names.
    pub(crate) fn names(&self, start: u64) -> bool {
        self.parts.iter().flatten().any(|part| part.set.function_at(&part.module, start).is_some())
    }

    /// The next function, as all sets together want it.
    fn advance(&mut self) -> Option<WantedFunction> {
        let current = |part: &Part| part.current.map(|function| function.start);
        let start = self.parts.iter().flatten().filter_map(current).min()?;
        let mut found = WantedFunction {
            start,
            end: 0,
            entry: Programs::none(),
            exit: Programs::none(),
            shares: [const { None }; SETS_MAX],
        };
        for part in self.parts.iter_mut().flatten() {
            let Some(function) = part.current.filter(|function| function.start == start) else { continue };
            if found.end == 0 {
                found.end = function.end;
            }
            found.add(part.chosen, part.wanted(function.entry), part.wanted(function.exit));
            part.advance();
        }
        Some(found)
    }
}

impl Iterator for Union {
    type Item = WantedFunction;

    fn next(&mut self) -> Option<WantedFunction> {
        loop {
            let found = self.advance()?;
            // Sets of the same file don't contradict each other, unless they are damaged.
            if found.start >= self.end {
                self.end = found.end;
                return Some(found);
            }
        }
    }
}

/// The module with this build id, as it is in a set.
pub(crate) fn module_in(
    set: &CaptureSet<'static>,
    build_id_length: u32,
    build_id: &[u8; 32],
) -> Option<CaptureModule> {
    set.modules().find(|module| (module.build_id_length, &module.build_id) == (build_id_length, build_id))
}
