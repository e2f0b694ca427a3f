//! The loaded modules, and whether their sites are off or on.
//!
//! Which sites should be on follows from the state of the process and the sites' marks
//! ([`crate::features::marks`]): [`mark_functions`] and [`mark_sites`] switch single functions.
//!
//! A thread that switches tracing, or registers a module, brings the sites into line, unless
//! another thread is already doing so. That thread holds the module lock, and checks again after it
//! has released it. So no thread waits for another.

#![allow(unsafe_code)] // Descriptors of modules that are loaded.

use crate::features::bits::Bits;
use crate::features::marks::{self, Change, Marks, Whole};
use crate::features::plain_exits::PlainExits;
use crate::features::sites::Sites;
use crate::features::switch::{self, Counts, Means, Pages, SiteList};
use crate::features::{captures, frame_bits, frames};
use crate::state::arena::Arena;
use crate::state::capture_sets;
use crate::state::captures::Captures;
use crate::state::dropped;
use crate::state::live_areas;
use crate::state::module_table::NOT_REGISTERED;
use crate::state::off_ranges::{self, OffRanges};
use crate::state::process::Process;
use crate::state::recording;
use crate::state::selection::{self, InModule, Selection};
use crate::state::stamps;
use crate::state::trigger_table::Triggers;
use crate::sys::image::Image;
use crate::sys::lock::Lock;
use crate::sys::{system, unwind_table};
use core::ops::Range;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst, fence,
};
use everycall_format::arena::{MODULE_CAPACITY, ModuleEntry, counter};
use everycall_format::frame::{FIRST, STEP, is_frame};
use everycall_hooks::{CAPTURES, COUNT_ALL, COUNTS, ModuleDescriptor};
use everycall_patch::Switch;

/// A loaded module.
struct LoadedModule {
    module: AtomicPtr<ModuleDescriptor>,
    /// An upper bound for the number of its sites that couldn't be switched on.
    unpatched: AtomicU32,
    /// Which of its functions are off or on by themselves.
    marks: Marks,
    /// Which of its functions are selected, for hooks that are always called.
    bits: Bits,
}

impl LoadedModule {
    const fn none() -> LoadedModule {
        LoadedModule {
            module: AtomicPtr::new(core::ptr::null_mut()),
            unpatched: AtomicU32::new(0),
            marks: Marks::none(),
            bits: Bits::none(),
        }
    }
}

/// Used while holding the module lock. A forked child has its parent's modules.
static MODULES: [LoadedModule; MODULE_CAPACITY as usize] =
    [const { LoadedModule::none() }; MODULE_CAPACITY as usize];

/// The largest number of modules that were loaded at once.
static USED: AtomicU32 = AtomicU32::new(0);

/// Changes whenever sites are to be brought into line with something else.
static REQUESTED: AtomicU32 = AtomicU32::new(0);
/// The value of [`REQUESTED`] that the sites were last brought into line with.
static APPLIED: AtomicU32 = AtomicU32::new(0);
/// Not 0 while that is being done.
static CHANGING: AtomicU32 = AtomicU32::new(0);

/// [`Triggers::generation`] of the functions whose tail exits have their own hook.
static FOLLOWED: AtomicU32 = AtomicU32::new(0);

/// Not 0 in a forked child whose parent had triggers that aren't the child's: tail exits may have
/// their hook.
static IS_LEFT: AtomicU32 = AtomicU32::new(0);

/// The result of the last update of all modules' sites.
pub(crate) struct Outcome {
    /// Sites that are on.
    pub(crate) on: AtomicU32,
    /// Sites that are off.
    pub(crate) off: AtomicU32,
    pub(crate) foreign: AtomicU32,
    pub(crate) failed: AtomicU32,
    /// How long that took, ticks.
    pub(crate) took: AtomicU64,
}

/// Used while holding the module lock.
pub(crate) static OUTCOME: Outcome = Outcome {
    on: AtomicU32::new(0),
    off: AtomicU32::new(0),
    foreign: AtomicU32::new(0),
    failed: AtomicU32::new(0),
    took: AtomicU64::new(0),
};

impl Outcome {
    fn clear(&self) {
        for count in [&self.on, &self.off, &self.foreign, &self.failed] {
            count.store(0, Relaxed);
        }
    }

    fn add(&self, line: Line) {
        let Line { on, off } = line;
        self.on.fetch_add(on.switched + on.already, Relaxed);
        self.off.fetch_add(off.switched + off.already, Relaxed);
        self.foreign.fetch_add(on.foreign + off.foreign, Relaxed);
        self.failed.fetch_add(on.failed + off.failed, Relaxed);
    }
}

/// Not 0: the program has a handler for events of functions that are marked as patched.
static IS_HANDLED: AtomicU32 = AtomicU32::new(0);

/// The program has set its first handler, or removed the last one.
pub(crate) fn set_handled(process: &'static Process, is_handled: bool) {
    if IS_HANDLED.swap(is_handled.into(), SeqCst) != u32::from(is_handled) {
        request();
        follow(process);
    }
}

/// The state that holds for all sites.
fn whole() -> Whole {
    Whole { is_on: recording::are_sites_on(), is_handled: IS_HANDLED.load(SeqCst) != 0 }
}

/// The sites are to be brought into line: what is recorded has changed. [`follow`] does it.
pub(crate) fn request() {
    REQUESTED.fetch_add(1, SeqCst);
}

/// In a forked child, nothing continues what a thread of the parent was doing at the fork.
pub(crate) fn begin_child() {
    switch::begin_child();
    let had_sessions = selection::begin_child() | capture_sets::begin_child();
    if live_areas::begin_child() {
        IS_LEFT.store(1, Relaxed);
    }
    let was_changing = CHANGING.swap(0, SeqCst) != 0;
    if was_changing || had_sessions {
        request();
    }
    if was_changing {
        for known in used() {
            // SAFETY: registered modules, which are loaded here, too.
            if let Some(module) = unsafe { known.module.load(Acquire).as_ref() } {
                // If its calls reach the hooks, the hooks check this.
                let on = match module.on.load(Relaxed) {
                    OFF => as_counted(ON),
                    on => on,
                };
                module.on.store(if recording::is_disabled() { OFF } else { on }, Release);
            }
        }
    }
}

fn used() -> &'static [LoadedModule] {
    MODULES.get(..USED.load(Relaxed) as usize).unwrap_or(&MODULES)
}

/// Whether a selection says something about a loaded module. The caller holds the module lock.
pub(crate) fn has_module_of(selection: &Selection) -> bool {
    used().iter().any(|known| {
        // SAFETY: registered modules stay loaded while the lock is held.
        let module = unsafe { known.module.load(Acquire).as_ref() };
        let image = module.and_then(Image::of_module);
        let is_named = |image: Image| selection.names(image.build_id_length, &image.build_id);
        selection.has_others() || image.is_some_and(is_named)
    })
}

/// The module of an entry of the module table. The caller holds the module lock.
pub(crate) fn module_of(entry: &ModuleEntry) -> Option<&'static ModuleDescriptor> {
    let all = used().iter().filter_map(|known| {
        // SAFETY: registered modules stay loaded while the lock is held.
        unsafe { known.module.load(Acquire).as_ref() }
    });
    all.into_iter().find(|module| module.start.load(Relaxed) == entry.start)
}

/// Adds a module none of whose code has run yet, and switches its sites as the selections require.
/// The caller holds the module lock. Returns the result for its sites, and the new value of its
/// [`ModuleDescriptor::on`].
pub(crate) fn add(module: &ModuleDescriptor, image: &Image) -> (Counts, u64) {
    let free = MODULES.iter().position(|known| known.module.load(Relaxed).is_null());
    let (place, known) = match free.and_then(|place| Some((place, MODULES.get(place)?))) {
        Some((place, known)) => (Some(place), known),
        // It can't be remembered, so it stays as it begins.
        None => (None, &FORGOTTEN),
    };
    let whole = whole();
    // SAFETY: the module is loaded, by contract of `register`.
    let sites = unsafe { Sites::of(module, &image.text) };
    let on = if whole.is_on { selected(known, &sites, module, image) } else { OFF };
    let line = bring_into_line(known, &sites, sites.numbers(), whole, Means::BEFORE_ANYBODY);
    OUTCOME.add(line);
    match place {
        None => {
            // Its bits are leaked: its hooks read them.
            known.marks.forget();
        }
        Some(place) => {
            known.unpatched.store(line.on.wrong(), Relaxed);
            known.module.store(core::ptr::from_ref(module).cast_mut(), Release);
            USED.fetch_max(place as u32 + 1, Relaxed);
        }
    }
    (line.all(), on)
}

/// Switches the sites of a module that was just added, and none of whose code has run yet, as the
/// selections now require. Returns the new value of its [`ModuleDescriptor::on`]. The caller holds
/// the module lock, and has all modules brought into line afterwards, which counts the sites.
pub(crate) fn select_again(module: &ModuleDescriptor, image: &Image) -> Option<u64> {
    let known = used().iter().find(|known| core::ptr::eq(known.module.load(Relaxed), module))?;
    let whole = whole();
    // SAFETY: the module is loaded, by contract of `register`.
    let sites = unsafe { Sites::of(module, &image.text) };
    let on = if whole.is_on { selected(known, &sites, module, image) } else { OFF };
    bring_into_line(known, &sites, sites.numbers(), whole, Means::BEFORE_ANYBODY);
    Some(on)
}

/// Marks for a module that has no place among the known ones.
static FORGOTTEN: LoadedModule = LoadedModule::none();

/// [`ModuleDescriptor::on`]: nothing, everything.
const OFF: u64 = 0;
const ON: u64 = 1;

/// The value of [`ModuleDescriptor::on`] in this process, which may count where others record.
fn as_counted(on: u64) -> u64 {
    match on {
        OFF => OFF,
        _ if !dropped::is_counting() => on,
        ON => COUNT_ALL,
        bits => bits | COUNTS,
    }
}

/// Marks the sites of a module's functions that no selection contains. The caller holds the module
/// lock. Returns the new value of the module's [`ModuleDescriptor::on`] while tracing is on.
fn selected(known: &LoadedModule, sites: &Sites<'_>, module: &ModuleDescriptor, image: &Image) -> u64 {
    let on = as_counted(select(known, sites, image));
    let captures = Captures::of(module).filter(|captures| captures.has_called() && on != OFF);
    let Some(captures) = captures else { return on };
    // Hooks that are always called look at bits for what is copied, too.
    let everything = || known.bits.set(image, core::iter::once((0, u64::MAX)), core::iter::empty());
    let bits = if on == ON { everything() } else { Some(on) };
    match bits {
        Some(bits) => {
            known.bits.set_second(image, captures::called_ranges(captures, image));
            bits | CAPTURES
        }
        None => on,
    }
}

/// Marks the sites of a module's functions that no selection contains. The caller holds the module
/// lock. Returns the value of the module's [`ModuleDescriptor::on`] while tracing is on.
fn select(known: &LoadedModule, sites: &Sites<'_>, image: &Image) -> u64 {
    let clear = Change { set: 0, clear: marks::NOT_SELECTED };
    if selection::is_everything() {
        if known.marks.are_there() {
            sites.numbers().for_each(|number| known.marks.change(number, clear));
        }
        return match sites.are_apart() {
            true => ON,
            false => without_off(known, image, core::iter::once((0, u64::MAX))),
        };
    }
    let selected = InModule::of(image.build_id_length, &image.build_id);
    // Without memory for marks, more is recorded than is wanted, which can be seen.
    if known.marks.make_room(sites.numbers().end) {
        for number in sites.numbers() {
            if let Some(Ok((site, _))) = sites.get(number) {
                let is_wanted = selected.wants(sites.place(number, &site).wrapping_sub(image.base));
                let leave_out = Change { set: marks::NOT_SELECTED, clear: 0 };
                known.marks.change(number, if is_wanted { clear } else { leave_out });
            }
        }
    }
    match selected.is_anything() {
        false => OFF,
        // Bits are for hooks that are always called.
        true if sites.are_apart() => ON,
        true if selected.is_all() => without_off(known, image, core::iter::once((0, u64::MAX))),
        true => {
            let off = off_ranges::within(image.start, image.end);
            known.bits.set(image, selected.ranges(), off).unwrap_or(ON)
        }
    }
}

/// The value of [`ModuleDescriptor::on`] for a module in which all of `selected` is wanted, but for
/// functions that are off by themselves.
fn without_off(known: &LoadedModule, image: &Image, selected: impl Iterator<Item = (u64, u64)>) -> u64 {
    let off = || off_ranges::within(image.start, image.end);
    match off().next() {
        None => ON,
        Some(_) => known.bits.set(image, selected, off()).unwrap_or(ON),
    }
}

/// Sends the tail exits of functions that triggers follow to their own hook, in a module none of
/// whose code has run yet. Returns how many that couldn't be done for. The caller holds the module
/// lock.
pub(crate) fn follow_tails(arena: &Arena, module: &ModuleDescriptor, image: &Image) -> u32 {
    follow_tails_of(arena, module, image, Means::BEFORE_ANYBODY)
}

fn follow_tails_of(arena: &Arena, module: &ModuleDescriptor, image: &Image, means: Means) -> u32 {
    if !Triggers::all(arena).any(|triggers| triggers.ranges_with_tails().next().is_some()) {
        return 0;
    }
    // SAFETY: the module is loaded.
    let sites = unsafe { Sites::of(module, &image.text) };
    let whole = whole();
    let known = used().iter().find(|known| core::ptr::eq(known.module.load(Relaxed), module));
    // Sites that are off get their hook when they are switched on.
    let is_on = |number: &u32| known.is_some_and(|known| marks::is_on(known.marks.of(*number), whole));
    let wrong = switch::switch(&sites, sites.followed().filter(is_on), Switch::On, means).wrong();
    // SAFETY: as above.
    let calls = unsafe { PlainExits::of(module, &image.text, *arena) };
    wrong + switch::switch(&calls, calls.numbers(), Switch::On, means).wrong()
}

/// Does the same in all modules, if triggers have come since that was last done.
pub(crate) fn follow_new_tails(process: &'static Process) {
    let arena = process.arena();
    let generation = Triggers::of(arena).map_or(0, |triggers| triggers.generation());
    if FOLLOWED.load(Relaxed) == generation && IS_LEFT.load(Relaxed) == 0 {
        return;
    }
    let mask = system::block_signals();
    if let Some(_lock) = Lock::try_take(&process.module_lock) {
        FOLLOWED.store(generation, Relaxed);
        if IS_LEFT.swap(0, Relaxed) != 0 {
            switch_tails(arena, None);
        }
        let means = Means::live();
        for known in used() {
            // SAFETY: registered modules stay loaded while the lock is held.
            let Some(module) = (unsafe { known.module.load(Acquire).as_ref() }) else { continue };
            if let Some(image) = Image::of_module(module) {
                let wrong = follow_tails_of(arena, module, &image, means);
                arena.count(counter::SITES_UNPATCHED, wrong.into());
            }
        }
    }
    system::set_signal_mask(mask);
}

/// Gives the tail exits of functions the hooks that triggers now want: those of functions that these
/// triggers name, or all. The caller holds the module lock.
pub(crate) fn switch_tails(arena: &Arena, triggers: Option<Triggers>) {
    let (whole, means) = (whole(), Means::live());
    for known in used() {
        // SAFETY: registered modules stay loaded while the lock is held.
        let Some(module) = (unsafe { known.module.load(Acquire).as_ref() }) else { continue };
        let Some(image) = Image::of_module(module) else { continue };
        // SAFETY: as above.
        let (sites, calls) =
            unsafe { (Sites::of(module, &image.text), PlainExits::of(module, &image.text, *arena)) };
        // Sites that are off get their hook when they are switched on.
        let is_on = |number: &u32| marks::is_on(known.marks.of(*number), whole);
        let counts = match triggers {
            Some(triggers) => {
                let mut counts =
                    switch::switch(&sites, sites.tail_exits_of(triggers).filter(is_on), Switch::On, means);
                counts.add(switch::switch(&calls, calls.numbers_of(triggers), Switch::On, means));
                counts
            }
            None => {
                let mut counts = switch::switch(&sites, sites.tail_exits().filter(is_on), Switch::On, means);
                counts.add(switch::switch(&calls, calls.all_changed(), Switch::On, means));
                counts
            }
        };
        arena.count(counter::SITES_UNPATCHED, counts.wrong().into());
    }
}

/// The module is about to be unloaded. The caller holds the module lock.
pub(crate) fn remove(module: &ModuleDescriptor) {
    for known in used() {
        if core::ptr::eq(known.module.load(Relaxed), module) {
            known.module.store(core::ptr::null_mut(), Relaxed);
            known.marks.forget();
            known.bits.forget();
            let start = module.start.load(Relaxed);
            off_ranges::forget(start, start.saturating_add(module.size.load(Relaxed)));
        }
    }
}

/// Brings the sites of all modules into line with what is to be recorded. If another thread is
/// doing so, it will see the change.
pub(crate) fn follow(process: &'static Process) {
    // Either the thread that has just released the lock sees the new request here, or the
    // requesting thread gets the lock.
    while !is_followed() {
        let mask = system::block_signals();
        let lock = Lock::try_take(&process.module_lock);
        if lock.is_some() {
            apply(process);
        }
        let had_lock = lock.is_some();
        drop(lock);
        system::set_signal_mask(mask);
        if !had_lock {
            return;
        }
    }
}

/// As [`follow`], and waits while another thread does it, unless that is the one that a signal
/// handler has interrupted here.
pub(crate) fn follow_to_end(process: &'static Process) {
    for _ in 0..TRIES {
        follow(process);
        if is_followed() {
            return;
        }
        system::yield_now();
    }
}

/// Whether the program has installed a filter of system calls since its start.
pub(crate) fn is_filtered() -> bool {
    Means::live().pages == Pages::Never
}

/// Whether all sites are as they were last requested.
pub(crate) fn is_followed() -> bool {
    fence(SeqCst);
    APPLIED.load(SeqCst) == REQUESTED.load(SeqCst)
}

fn apply(process: &'static Process) {
    let arena = process.arena();
    let began = everycall_hooks::ticks();
    CHANGING.store(1, SeqCst);
    let request = REQUESTED.load(SeqCst);
    let whole = whole();
    let is_on = whole.is_on;
    let means = Means::live();
    OUTCOME.clear();
    selection::begin_count();
    let are_values_new = capture_sets::begin_change();
    for known in used() {
        // SAFETY: registered modules stay loaded while the lock is held.
        let Some(module) = (unsafe { known.module.load(Acquire).as_ref() }) else { continue };
        let image = Image::of_module(module);
        // SAFETY: as above.
        let sites = image.as_ref().map(|image| unsafe { Sites::of(module, &image.text) });
        let (Some(image), Some(sites)) = (&image, &sites) else { continue };
        if are_values_new {
            captures::install(process, module, image);
        }
        let on = if is_on { selected(known, sites, module, image) } else { OFF };
        if on == OFF {
            module.on.store(OFF, Release);
        }
        let line = bring_into_line(known, sites, sites.numbers(), whole, means);
        OUTCOME.add(line);
        if is_on {
            count(arena, known, module, line.on);
        }
        if on != OFF {
            module.on.store(on, Release);
        }
    }
    if are_values_new {
        capture_sets::end_change();
    }
    frames::switch(arena);
    OUTCOME.took.store(everycall_hooks::ticks().saturating_sub(began), Relaxed);
    count_not_selected(arena);
    CHANGING.store(0, SeqCst);
    APPLIED.store(request, SeqCst);
}

/// Chooses which events have stamps (`wanted`: one of [`everycall_format::stamp`], or what the
/// process began with). Returns false if something is recorded with another choice: hooks of one
/// kind don't expect events of the other's. `None` is satisfied with that. The caller holds the
/// module lock.
pub(crate) fn choose_stamps(process: &'static Process, wanted: Option<u32>) -> bool {
    let chosen = wanted.unwrap_or_else(stamps::first);
    if chosen == stamps::mode() {
        return true;
    }
    let modules = || {
        used().iter().filter_map(|known| {
            // SAFETY: registered modules stay loaded while the lock is held.
            let module = unsafe { known.module.load(Acquire).as_ref() };
            module.map(|module| (known, module))
        })
    };
    let whole = whole();
    let is_on = |(known, module): (&LoadedModule, &ModuleDescriptor)| {
        // SAFETY: as above.
        let sites = unsafe { Sites::of(module, &[]) };
        module.on.load(Relaxed) != OFF
            || sites.numbers().any(|number| marks::is_on(known.marks.of(number), whole))
    };
    if modules().any(is_on) {
        return wanted.is_none();
    }
    stamps::choose(process, chosen);
    for (_, module) in modules() {
        let index = module.index.load(Relaxed);
        stamps::prepare(process, module, (index != NOT_REGISTERED).then_some(index));
    }
    true
}

/// Stores how many sites are off because no selection contains their functions. The caller holds
/// the module lock.
pub(crate) fn count_not_selected(arena: &Arena) {
    let is_on = recording::are_sites_on();
    let not_selected = if is_on { OUTCOME.off.load(Relaxed) } else { 0 };
    arena.set_count(counter::SITES_NOT_SELECTED, not_selected.into());
}

/// Results for sites that should be on, and for those that should be off.
#[derive(Clone, Copy, Default)]
struct Line {
    on: Counts,
    off: Counts,
}

impl Line {
    fn all(self) -> Counts {
        let mut all = self.on;
        all.add(self.off);
        all
    }
}

/// Switches some of a module's sites as their marks say.
fn bring_into_line(
    known: &LoadedModule,
    sites: &Sites<'_>,
    range: Range<u32>,
    whole: Whole,
    means: Means,
) -> Line {
    if sites.are_counted() {
        // Exits are off, which means nothing.
        let (entries, exits) = (
            range.clone().filter(|number| sites.is_entry(*number)),
            range.filter(|number| !sites.is_entry(*number)),
        );
        let is_on = |number: &u32| marks::is_on(known.marks.of(*number), whole);
        switch::switch(sites, exits, Switch::Off, means);
        return Line {
            on: switch::switch(sites, entries.clone().filter(is_on), Switch::On, means),
            off: switch::switch(sites, entries.filter(|number| !is_on(number)), Switch::Off, means),
        };
    }
    if !known.marks.are_there() {
        let to = if whole.is_on { Switch::On } else { Switch::Off };
        let counts = switch::switch(sites, range, to, means);
        let (on, off) = if whole.is_on { (counts, Counts::default()) } else { (Counts::default(), counts) };
        return Line { on, off };
    }
    let is_on = |number: &u32| marks::is_on(known.marks.of(*number), whole);
    Line {
        on: switch::switch(sites, range.clone().filter(is_on), Switch::On, means),
        off: switch::switch(sites, range.filter(|number| !is_on(number)), Switch::Off, means),
    }
}

/// Results for functions that should be switched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marked {
    /// Functions that were chosen.
    pub(crate) functions: u32,
    /// Their sites.
    pub(crate) sites: u32,
    /// The result for these sites.
    pub(crate) counts: Counts,
}

/// Why no function was switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another thread switches sites, or loads a module, and this may be a signal handler that has
    /// interrupted it.
    Busy,
    /// There is no memory for the marks.
    NoMemory,
    /// So many functions whose hooks are always called can't be off by themselves.
    NoRoom,
}

/// How often the module lock is tried, with a turn for other threads in between.
const TRIES: u32 = 10_000;

/// Marks functions of all modules, and switches their sites accordingly. `choose` gets a function's
/// module and address, and returns how its marks change; `None` if they stay. It is called once for
/// each run of sites of the same function (a cold part lies elsewhere), and must be quick.
pub(crate) fn mark_functions(
    process: &'static Process,
    mut choose: impl FnMut(&ModuleDescriptor, u64) -> Option<Change>,
) -> Result<Marked, Refused> {
    change(process, |known, module, sites, whole, marked| {
        let mut function = 0;
        let mut chosen = None;
        for number in sites.numbers() {
            let its = sites.function(number);
            if its != function {
                function = its;
                chosen = choose(module, function);
            }
            if let Some(change) = chosen {
                marked.functions += u32::from(sites.is_entry(number));
                if !known.marks.make_room(sites.numbers().end) {
                    return Err(Refused::NoMemory);
                }
                known.marks.change(number, change);
                marked.sites += 1;
            }
        }
        if known.marks.are_there() {
            marked.counts.add(bring_into_line(known, sites, sites.numbers(), whole, Means::live()).all());
        }
        Ok(())
    })
}

/// As [`mark_functions`], for some sites of one module: faster, where the caller knows the sites of
/// a function.
pub(crate) fn mark_sites(
    process: &'static Process,
    module: &ModuleDescriptor,
    range: Range<u32>,
    to: Change,
) -> Result<Marked, Refused> {
    change(process, |known, other, sites, whole, marked| {
        if core::ptr::eq(module, other) && !range.is_empty() {
            if !known.marks.make_room(sites.numbers().end) {
                return Err(Refused::NoMemory);
            }
            range.clone().for_each(|number| known.marks.change(number, to));
            marked.functions += 1;
            marked.sites += range.len() as u32;
            marked.counts.add(bring_into_line(known, sites, range.clone(), whole, Means::live()).all());
        }
        Ok(())
    })
}

/// A function that is to go off, or on again, for the budget.
#[derive(Clone, Copy, Default)]
pub(crate) struct Costly {
    /// The code offset of its entries.
    pub(crate) code: u32,
    pub(crate) is_off: bool,
    /// Whether that was done.
    pub(crate) done: bool,
    /// Whether its hooks are called though it is off.
    pub(crate) is_always_called: bool,
}

/// How far behind its function's beginning the code of an entry lies: an instruction for indirect
/// branches, the compiler's own before a site, and the call.
const ENTRY_REACH: u64 = 24;
/// How many functions [`mark_costly`] takes at a time.
pub(crate) const COSTLY_MAX: usize = 32;

/// Switches functions off or on for the budget, by the code offsets of their entries.
pub(crate) fn mark_costly(process: &'static Process, all: &mut [Costly]) -> Result<(), Refused> {
    let mut is_plain = mark_costly_frames(process, all)?;
    change(process, |known, module, sites, whole, _| {
        let (start, size) = (module.start.load(Relaxed), module.size.load(Relaxed));
        let bias = module.bias_entry.load(Relaxed);
        // The address of an entry, and the function with sites that begins right before it.
        let mut found = [(0_u64, 0_u64); COSTLY_MAX];
        let mut is_any = false;
        for (costly, found) in all.iter().zip(&mut found) {
            let offset = u64::from(costly.code.wrapping_add(bias).wrapping_sub(start as u32));
            if offset < size {
                found.0 = start + offset;
                is_any = true;
            }
        }
        if !is_any {
            return Ok(());
        }
        let mut function = 0;
        for number in sites.numbers() {
            let its = sites.function(number);
            if its != function {
                function = its;
                for found in &mut found {
                    if its <= found.0 && found.0 - its <= ENTRY_REACH {
                        found.1 = found.1.max(its);
                    }
                }
            }
        }
        if found.iter().any(|found| found.1 != 0) {
            if !known.marks.make_room(sites.numbers().end) {
                return Err(Refused::NoMemory);
            }
            let (mut function, mut change) = (0, Change::default());
            for number in sites.numbers() {
                let its = sites.function(number);
                if its != function {
                    function = its;
                    let place = found.iter().position(|found| found.1 == its && its != 0);
                    change = match place.and_then(|place| all.get_mut(place)) {
                        None => Change::default(),
                        Some(costly) => {
                            costly.done = true;
                            match costly.is_off {
                                true => Change { set: marks::OVER_BUDGET | marks::CHANGING, clear: 0 },
                                false => Change { set: marks::CHANGING, clear: marks::OVER_BUDGET },
                            }
                        }
                    };
                }
                if change.set != 0 {
                    known.marks.change(number, change);
                }
            }
            let wrong = switch_changing(known, sites, whole).wrong() != 0;
            for (costly, found) in all.iter_mut().zip(&found) {
                costly.done &= found.1 == 0 || !wrong;
            }
        }
        // Hooks that are always called look at bits.
        for (costly, found) in all.iter_mut().zip(&found) {
            let is_here = found.0 != 0 && found.1 == 0;
            let range = if is_here {
                unwind_table::function_at(module.elf_header.load(Relaxed), found.0)
            } else {
                None
            };
            if let Some((first, end)) = range {
                costly.done = if costly.is_off {
                    off_ranges::OVER_BUDGET.add(first, end)
                } else {
                    off_ranges::OVER_BUDGET.remove(first, first + 1);
                    true
                };
                costly.is_always_called = true;
                is_plain |= costly.done;
            }
        }
        Ok(())
    })?;
    if is_plain {
        request();
        follow(process);
    }
    Ok(())
}

/// Marks the costly functions that are frames by id. Returns whether there are any.
fn mark_costly_frames(process: &'static Process, all: &mut [Costly]) -> Result<bool, Refused> {
    if !all.iter().any(|costly| is_frame(costly.code)) {
        return Ok(false);
    }
    let mask = system::block_signals();
    let result = lock_patiently(process).map(|_lock| {
        for costly in all.iter_mut().filter(|costly| is_frame(costly.code)) {
            costly.done = frame_bits::set_over_budget((costly.code - FIRST) / STEP, costly.is_off);
            costly.is_always_called = true;
        }
        true
    });
    system::set_signal_mask(mask);
    result
}

/// Switches the sites that are marked as being switched, as their other marks say, and removes that
/// mark.
fn switch_changing(known: &LoadedModule, sites: &Sites<'_>, whole: Whole) -> Counts {
    let is_changing = |number: &u32| known.marks.of(*number) & marks::CHANGING != 0;
    let is_on = |number: &u32| marks::is_on(known.marks.of(*number), whole);
    let (numbers, means) = (|| sites.numbers().filter(is_changing), Means::live());
    let mut counts = switch::switch(sites, numbers().filter(is_on), Switch::On, means);
    counts.add(switch::switch(sites, numbers().filter(|number| !is_on(number)), Switch::Off, means));
    for number in sites.numbers() {
        known.marks.change(number, Change { set: 0, clear: marks::CHANGING });
    }
    counts
}

/// How many functions [`mark_addresses`] takes at a time.
pub(crate) const ADDRESSES_MAX: usize = 32;

/// Switches the functions that contain these addresses off for one reason, or removes that reason.
/// `mark` and `ranges` are the reason's. At most [`ADDRESSES_MAX`] addresses.
pub(crate) fn mark_addresses(
    process: &'static Process,
    addresses: &[u64],
    is_off: bool,
    (mark, ranges): (u8, &OffRanges),
) -> Result<Marked, Refused> {
    let mut is_any_plain = false;
    let marked = change(process, |known, module, sites, whole, marked| {
        let (start, size) = (module.start.load(Relaxed), module.size.load(Relaxed));
        // Begin and end of the functions here, and whether they have sites.
        let mut found = [(0_u64, 0_u64, false); ADDRESSES_MAX];
        for (place, address) in found.iter_mut().zip(addresses) {
            if (start..start.saturating_add(size)).contains(address) {
                let (first, end) = unwind_table::function_at(module.elf_header.load(Relaxed), *address)
                    .unwrap_or((*address, *address));
                *place = (first, end, false);
            }
        }
        if found.iter().all(|found| found.0 == 0) {
            return Ok(());
        }
        let change = match is_off {
            true => Change { set: mark | marks::CHANGING, clear: 0 },
            false => Change { set: marks::CHANGING, clear: mark },
        };
        let (mut function, mut is_one) = (0, false);
        for number in sites.numbers() {
            let its = sites.function(number);
            if its != function {
                function = its;
                is_one = false;
                for found in found.iter_mut().filter(|found| found.0 == its && its != 0) {
                    (found.2, is_one) = (true, true);
                }
            }
            if is_one {
                if !known.marks.make_room(sites.numbers().end) {
                    return Err(Refused::NoMemory);
                }
                known.marks.change(number, change);
                marked.functions += u32::from(sites.is_entry(number));
                marked.sites += 1;
            }
        }
        if known.marks.are_there() {
            marked.counts.add(switch_changing(known, sites, whole));
        }
        // Hooks that are always called look at bits.
        for (index, (first, end, has_sites)) in found.iter().copied().enumerate() {
            let is_again = found.iter().take(index).any(|before| before.0 == first);
            if first < end && !has_sites && !is_again && sites.numbers().is_empty() {
                match is_off {
                    true if !ranges.add(first, end) => return Err(Refused::NoRoom),
                    true => {}
                    false => ranges.remove(first, first + 1),
                }
                is_any_plain = true;
                marked.functions += 1;
            }
        }
        Ok(())
    });
    if is_any_plain {
        request();
        follow_to_end(process);
    }
    marked
}

/// Runs `change` for each module while the module lock is held.
fn change(
    process: &'static Process,
    mut change: impl FnMut(
        &LoadedModule,
        &ModuleDescriptor,
        &Sites<'_>,
        Whole,
        &mut Marked,
    ) -> Result<(), Refused>,
) -> Result<Marked, Refused> {
    let mask = system::block_signals();
    let result = match lock_patiently(process) {
        Err(refused) => Err(refused),
        Ok(_lock) => {
            // A child that is forked meanwhile finishes what is half done.
            CHANGING.store(1, SeqCst);
            let whole = whole();
            let mut marked = Marked::default();
            let result = used().iter().try_for_each(|known| {
                // SAFETY: registered modules stay loaded while the lock is held.
                let module = unsafe { known.module.load(Acquire).as_ref() };
                let image = module.and_then(Image::of_module);
                let (Some(module), Some(image)) = (module, image) else { return Ok(()) };
                // SAFETY: as above.
                let sites = unsafe { Sites::of(module, &image.text) };
                change(known, module, &sites, whole, &mut marked)
            });
            CHANGING.store(0, SeqCst);
            result.map(|()| marked)
        }
    };
    system::set_signal_mask(mask);
    // Another thread may have found the lock taken.
    follow(process);
    result
}

/// The module lock, which is waited for a while.
pub(crate) fn lock_patiently(process: &'static Process) -> Result<Lock<'static>, Refused> {
    (0..TRIES).find_map(|_| lock(process)).ok_or(Refused::Busy)
}

/// The module lock, if it is free.
fn lock(process: &'static Process) -> Option<Lock<'static>> {
    let lock = Lock::try_take(&process.module_lock);
    if lock.is_none() {
        system::yield_now();
    }
    lock
}

/// Calls `see` with each run of sites of the same function: its module, the function's address, the
/// number of sites and their marks. (A cold part of a function is a run of its own.) Modules stay
/// loaded meanwhile.
pub(crate) fn functions(
    process: &'static Process,
    mut see: impl FnMut(&ModuleDescriptor, u64, u32, u8),
) -> Result<(), Refused> {
    let mask = system::block_signals();
    let lock = lock_patiently(process);
    for known in lock.iter().flat_map(|_| used()) {
        // SAFETY: registered modules stay loaded while the lock is held.
        let Some(module) = (unsafe { known.module.load(Acquire).as_ref() }) else { continue };
        // SAFETY: as above.
        let sites = unsafe { Sites::of(module, &[]) };
        let (mut first, end) = (0, sites.numbers().end);
        while first < end {
            let function = sites.function(first);
            let count = (first..end).take_while(|number| sites.function(*number) == function).count() as u32;
            see(module, function, count, known.marks.of(first));
            first += count;
        }
    }
    let result = lock.map(drop);
    system::set_signal_mask(mask);
    follow(process);
    result
}

/// The marks of a site of a module that stays loaded.
pub(crate) fn marks_of(module: &ModuleDescriptor, number: u32) -> u8 {
    let known = used().iter().find(|known| core::ptr::eq(known.module.load(Acquire), module));
    known.map_or(0, |known| known.marks.of(number))
}

/// Counts the sites that couldn't be switched on and haven't been counted yet.
fn count(arena: &Arena, known: &LoadedModule, module: &ModuleDescriptor, counts: Counts) {
    let before = known.unpatched.fetch_max(counts.wrong(), Relaxed);
    let more = counts.wrong().saturating_sub(before);
    if more > 0 {
        arena.count(counter::SITES_UNPATCHED, more.into());
        if let Some(unpatched) = arena.module_sites_unpatched(module.index.load(Relaxed)) {
            unpatched.store(counts.wrong(), Relaxed);
        }
    }
}
