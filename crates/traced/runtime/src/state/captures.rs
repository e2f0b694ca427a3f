//! Which values are copied at the functions of a module: checked programs in private memory, found
//! by what hooks report.
//!
//! ```text
//! Captures | functions, by address | places, a hash table | programs | their bytes | copies
//! ```
//!
//! It is made when the module is registered, before any thread runs its code, or when clients of
//! the control socket want other values, and never written afterwards. A thread may still use one
//! that was replaced: it stays in memory until the module is unloaded, and comes into use again if
//! the same values are wanted again. A forked child has its parent's.
#![allow(unsafe_code)] // Tables in memory that is mapped here, by their addresses.

use crate::state::constants;
use crate::sys::block::Block;
use crate::sys::system::{self, PROT_READ};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed, Ordering::Release};
use everycall_capture::{Item, Origin, Plain, Program};
use everycall_format::arena::PAGE;
use everycall_format::event::{kind, record_word, values};
use everycall_hooks::arch::{capture, code};
use everycall_hooks::{
    COPY_ROOM, CapturePlace, CapturePlaces, Copies, CopyItem, CopyTest, ModuleDescriptor, copied, copies,
};

/// All that were made and are in memory, also those that were replaced. Used by the holder of the
/// module lock.
static ALL: AtomicPtr<Captures> = AtomicPtr::new(core::ptr::null_mut());
/// Bytes of all.
static ALL_BYTES: AtomicU64 = AtomicU64::new(0);
/// Bytes in a word of a record of values.
pub(crate) const IN_WORD: usize = size_of::<u32>();
/// Words of such a record before those.
pub(crate) const HEAD_WORDS: usize = 3;

/// Limit on the bytes of all, where values are chosen again and again.
const ALL_BYTES_MAX: u64 = 64 << 20;

/// The module that is being registered: no thread runs its code yet. Used by the holder of the
/// module lock.
static REGISTERING: AtomicPtr<ModuleDescriptor> = AtomicPtr::new(core::ptr::null_mut());

/// A module is being registered as long as this exists.
pub(crate) struct Registering;

impl Registering {
    pub(crate) fn new(module: &ModuleDescriptor) -> Registering {
        REGISTERING.store(core::ptr::from_ref(module).cast_mut(), Relaxed);
        Registering
    }
}

impl Drop for Registering {
    fn drop(&mut self) {
        REGISTERING.store(core::ptr::null_mut(), Relaxed);
    }
}

/// Whether a module is being registered. The caller holds the module lock.
pub(crate) fn is_registering(module: &ModuleDescriptor) -> bool {
    core::ptr::eq(REGISTERING.load(Relaxed), module)
}

/// Bits of [`Programs::word`]: the first one's number plus 1, how many there are, whether they are
/// slow.
const FIRST: u32 = (1 << COUNT_SHIFT) - 1;
const COUNT_SHIFT: u32 = 24;
const SLOW_SHIFT: u32 = 31;

/// Programs of one place, which follow each other among all.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) struct Programs {
    first: u32,
    count: u32,
    /// Whether they run in the slow path: there are several, or one whose condition says nothing
    /// about whether the call is recorded.
    are_slow: bool,
}

impl Programs {
    pub(crate) fn are_any(self) -> bool {
        self.count != 0
    }

    pub(crate) fn count(self) -> usize {
        self.count as usize
    }

    /// As a place of hooks has them, which don't look at it: 0 if there are none.
    pub(crate) fn word(self) -> u32 {
        match self.count {
            0 => 0,
            count => {
                (self.first + 1) & FIRST | (count << COUNT_SHIFT) | u32::from(self.are_slow) << SLOW_SHIFT
            }
        }
    }

    fn of_word(word: u32) -> Programs {
        match (word & FIRST).checked_sub(1) {
            None => Programs::default(),
            Some(first) => Programs {
                first,
                count: (word >> COUNT_SHIFT) & ((1 << (SLOW_SHIFT - COUNT_SHIFT)) - 1),
                are_slow: word >> SLOW_SHIFT != 0,
            },
        }
    }

    /// Their numbers among all.
    pub(crate) fn numbers(self) -> core::ops::Range<usize> {
        self.first as usize..self.first as usize + self.count as usize
    }
}

/// A function whose values are copied. Process addresses.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Function {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Those at its entry.
    pub(crate) entry: Programs,
    /// Those at its returns.
    pub(crate) exit: Programs,
    /// Whether its hooks are always called, so that there are no [`CapturePlace`]s.
    pub(crate) is_called: bool,
    /// Whether it has hooks at all that can copy values.
    pub(crate) has_hooks: bool,
    /// Whether calls are left out for which the conditions of all programs at the entry are false.
    pub(crate) is_conditional: bool,
}

/// The programs and the condition of a hook that was called.
#[derive(Clone, Copy)]
pub(crate) struct FoundAll {
    /// The programs that copy values there or judge the call, in the order of precedence.
    pub(crate) programs: &'static [Program<'static>],
    /// Whether the function's calls are left out for which all their conditions are false.
    pub(crate) is_conditional: bool,
}

/// The program and the condition of a hook that was called.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// The program that copies values there.
    pub(crate) program: Option<&'static Program<'static>>,
    /// Whether the function's calls are left out for which its condition is false.
    pub(crate) is_conditional: bool,
}

/// The programs that copy values at the functions of a module.
#[repr(C)]
pub(crate) struct Captures {
    /// For hooks.
    table: CapturePlaces,
    /// Bytes of the memory. The first page has this structure, the others are never written again.
    size: u64,
    /// The module's descriptor.
    module: u64,
    /// The next one of all.
    next: AtomicPtr<Captures>,
    functions: &'static [Function],
    places: &'static [CapturePlace],
    programs: &'static [Program<'static>],
    has_called: bool,
}

impl Captures {
    /// Whether they copy the same values of the same module.
    fn is_like(&self, other: &Captures) -> bool {
        (self.module, self.functions, self.places) == (other.module, other.functions, other.places)
            && self.programs == other.programs
    }

    /// Those of a module.
    pub(crate) fn of(module: &ModuleDescriptor) -> Option<&'static Captures> {
        // SAFETY: 0, or what `install` has stored. It is freed when no hook of the module runs.
        unsafe { (module.captures.load(Relaxed) as *const Captures).as_ref() }
    }

    /// The function that begins here, with its programs at the entry and at the returns.
    pub(crate) fn at(&self, start: u64) -> Option<&Function> {
        let found = self.functions.binary_search_by_key(&start, |function| function.start);
        self.functions.get(found.ok()?)
    }

    /// Whether there are functions whose hooks are always called.
    pub(crate) fn has_called(&self) -> bool {
        self.has_called
    }

    /// The functions whose hooks are always called.
    pub(crate) fn called(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.is_called)
    }

    /// The hook that was called before this address; `None` if it has no program and no condition,
    /// or if its programs run in the slow path.
    pub(crate) fn look_up(&self, behind: u64, is_exit: bool) -> Option<Found> {
        let (programs, is_conditional) = self.at_hook(behind, is_exit)?;
        if programs.are_slow {
            return None;
        }
        let program = self.programs.get(programs.numbers()).and_then(<[_]>::first);
        Some(Found { program, is_conditional })
    }

    /// As [`Captures::look_up`], with all programs.
    pub(crate) fn look_up_all(&self, behind: u64, is_exit: bool) -> Option<FoundAll> {
        let (programs, is_conditional) = self.at_hook(behind, is_exit)?;
        Some(FoundAll { programs: self.programs.get(programs.numbers()).unwrap_or(&[]), is_conditional })
    }

    fn at_hook(&self, behind: u64, is_exit: bool) -> Option<(Programs, bool)> {
        match self.find(behind) {
            Some(place) => {
                (place.is_exit == is_exit).then_some((Programs::of_word(place.program), place.is_conditional))
            }
            None if self.has_called => self.called_at(behind, is_exit),
            None => None,
        }
    }

    fn find(&self, behind: u64) -> Option<&CapturePlace> {
        let first = CapturePlaces::first(behind, self.table.mask) as usize;
        let (before, from) = self.places.split_at_checked(first).unwrap_or_default();
        from.iter().chain(before).take_while(|place| place.behind != 0).find(|place| place.behind == behind)
    }

    fn called_at(&self, behind: u64, is_exit: bool) -> Option<(Programs, bool)> {
        let next = self.functions.partition_point(|function| function.start < behind);
        let function = self.functions.get(next.checked_sub(1)?)?;
        if !function.is_called || behind >= function.end {
            return None;
        }
        let programs = match is_exit {
            // A tail exit has no result yet.
            true if !is_return(behind) => Programs::default(),
            true => function.exit,
            false => function.entry,
        };
        Some((programs, function.is_conditional))
    }
}

/// Whether the code here returns.
fn is_return(address: u64) -> bool {
    // SAFETY: code behind the call of a hook that runs.
    code::is_return(|offset| unsafe { ((address + offset) as *const u8).read_volatile() })
}

/// A module's captures while they are made.
pub(crate) struct Builder {
    block: Block,
    functions: usize,
    function_count: usize,
    places: usize,
    place_count: usize,
    programs: usize,
    program_count: usize,
    free: usize,
    has_called: bool,
}

/// How much there may be.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) functions: usize,
    /// Calls of hooks.
    pub(crate) places: usize,
    pub(crate) programs: usize,
    /// Bytes of all programs.
    pub(crate) bytes: usize,
}

impl Builder {
    /// `None` if there is no memory.
    pub(crate) fn new(room: Room) -> Option<Builder> {
        let aligned = |size: usize| size.next_multiple_of(16);
        let places_size = (2 * room.places).next_power_of_two();
        let functions = aligned(size_of::<Captures>()).max(PAGE as usize);
        let places = aligned(functions + room.functions * size_of::<Function>());
        let programs = aligned(places + places_size * size_of::<CapturePlace>());
        let bytes = aligned(programs + room.programs * size_of::<Program<'static>>());
        // Copies take less than the programs, but for their heads.
        let copies = room.bytes + 3 * room.functions * size_of::<Copies>();
        let size = bytes + room.bytes + 16 * room.programs + copies;
        let block = Block::new(size as u64)?;
        Some(Builder {
            block,
            functions,
            function_count: 0,
            places,
            place_count: places_size,
            programs,
            program_count: 0,
            free: bytes,
            has_called: false,
        })
    }

    fn base(&mut self) -> *mut u8 {
        self.block.bytes_mut().as_mut_ptr()
    }

    /// Copies a program and checks it. Returns false if it is refused.
    pub(crate) fn add_program(&mut self, bytes: &[u8], id: u32) -> bool {
        self.try_to_add(bytes, id).is_some()
    }

    fn try_to_add(&mut self, bytes: &[u8], id: u32) -> Option<()> {
        let at = self.free;
        let copy = self.block.bytes_mut().get_mut(at..at.checked_add(bytes.len())?)?;
        copy.copy_from_slice(bytes);
        let place = self.base();
        // SAFETY: just written; it isn't written again, and the memory stays until `remove`.
        let copy: &'static [u8] = unsafe { core::slice::from_raw_parts(place.wrapping_add(at), bytes.len()) };
        let program = Program::check(copy).ok().filter(|program| program.id() == id)?;
        self.free = (at + bytes.len()).next_multiple_of(16);
        let place = place.wrapping_add(self.programs).cast::<Program<'static>>();
        // SAFETY: within the room for programs, by the caller's counts.
        unsafe { place.wrapping_add(self.program_count).write(program) };
        self.program_count += 1;
        Some(())
    }

    /// How many programs there are.
    pub(crate) fn program_count(&self) -> usize {
        self.program_count
    }

    /// The programs of one place: those from number `first` on.
    pub(crate) fn programs_since(&self, first: usize, may_leave_out: bool) -> Programs {
        let count = self.program_count - first;
        let rejects = || self.program(first).is_some_and(Program::may_reject);
        let are_slow = count > 1 || !may_leave_out && rejects();
        Programs { first: first as u32, count: count as u32, are_slow }
    }

    /// Adds a function; in the order of their addresses.
    pub(crate) fn add_function(&mut self, function: Function) {
        self.has_called |= function.is_called;
        let place = self.base().wrapping_add(self.functions).cast::<Function>();
        // SAFETY: within the room for functions, by the caller's counts.
        unsafe { place.wrapping_add(self.function_count).write(function) };
        self.function_count += 1;
    }

    /// Adds the call of a hook. `copies`: see [`Self::add_copies`].
    pub(crate) fn add_place(&mut self, place: CapturePlace) {
        let first = self.base().wrapping_add(self.places).cast::<CapturePlace>();
        // SAFETY: the room for places, all zero at first.
        let places = unsafe { core::slice::from_raw_parts_mut(first, self.place_count) };
        let start = CapturePlaces::first(place.behind, places.len() as u32 - 1) as usize;
        let (before, from) = places.split_at_mut_checked(start).unwrap_or_default();
        if let Some(free) = from.iter_mut().chain(before).find(|free| free.behind == 0) {
            *free = place;
        }
    }

    /// Adds the [`Copies`] of the hooks at a function's entry or returns. Returns where they are, or
    /// 0 if the programs do more than that.
    pub(crate) fn add_copies(&mut self, programs: Programs, is_exit: bool, is_conditional: bool) -> u32 {
        if programs.are_slow {
            return 0;
        }
        let program = programs.numbers().next().and_then(|number| self.program(number)).copied();
        let plain = match program {
            None => None,
            Some(program) if program.output_max() > COPY_ROOM => return 0,
            Some(program) => match Plain::of(&program) {
                // A result that is rejected is an exit without values.
                Some(plain) if !is_exit || plain.tests().next().is_none() => Some(plain),
                _ => return 0,
            },
        };
        let at = self.free.next_multiple_of(align_of::<Copies>());
        match self.write_copies(at, program.as_ref(), plain.as_ref(), is_exit, is_conditional) {
            Some(end) => {
                self.free = end;
                at as u32
            }
            None => 0,
        }
    }

    /// Returns where it ends; `None` if there is a register that hooks don't save.
    fn write_copies(
        &mut self,
        at: usize,
        program: Option<&Program<'_>>,
        plain: Option<&Plain>,
        is_exit: bool,
        is_conditional: bool,
    ) -> Option<usize> {
        let detail = if is_exit { values::RESULT } else { values::ARGUMENTS };
        let mut head = Copies {
            first_word: record_word(0, kind::VALUES, 0, detail) as u32,
            id: program.map_or(0, Program::id),
            flags: if is_exit { copies::EXIT } else { 0 },
            tests: 0,
            items: 0,
            words: 0,
            bytes: 0,
            reserved: 0,
            pages: constants::pages_address(),
        };
        if is_conditional {
            head.flags |= copies::CONDITIONAL;
        }
        let mut end = at + size_of::<Copies>();
        for test in plain.into_iter().flat_map(Plain::tests) {
            let up = u64::BITS - test.bits;
            let test = CopyTest {
                at: saved_at(Origin::Register(test.register), &mut head.flags)?.0,
                reserved: 0,
                factor: 1 << up,
                first: test.first << up,
                span: test.span << up,
            };
            head.tests += 1;
            end = self.put(end, test)?;
        }
        let items = || plain.into_iter().flat_map(Plain::items);
        if items().all(|item| matches!(item, Item::Word { origin: Origin::Register(_), .. })) {
            head.flags |= copies::WORDS;
            for item in items() {
                let Item::Word { origin, size } = *item else { return None };
                let (at, _) = saved_at(origin, &mut head.flags)?;
                for part in (0..size).step_by(IN_WORD) {
                    end = self.put(end, (at + part) as u16)?;
                    head.bytes += IN_WORD as u32;
                }
            }
            if head.bytes > 0 {
                head.words = HEAD_WORDS as u32 + head.bytes / IN_WORD as u32;
                head.first_word = record_word(0, kind::VALUES, (head.words - 1) as u8, detail) as u32;
            }
            self.put(at, head)?;
            return Some(end);
        }
        for item in items() {
            let (origin, size, wanted) = match *item {
                Item::Word { origin, size } => (origin, size, copied::WORD),
                Item::Value { origin, size } => (origin, size, copied::SAVED),
                Item::Text { origin, size } => (origin, size, copied::TEXT),
            };
            let (at, found) = saved_at(origin, &mut head.flags)?;
            let what = match (wanted, found) {
                (copied::SAVED, _) => found,
                (_, copied::SAVED) => wanted,
                // Texts whose addresses lie on the stack.
                _ => return None,
            };
            head.items += 1;
            end = self.put(end, CopyItem { at, size: size as u16, what })?;
        }
        self.put(at, head)?;
        Some(end)
    }

    /// Writes a value, and returns where it ends. `None` if there is no room.
    fn put<T: Copy>(&mut self, at: usize, value: T) -> Option<usize> {
        let place = self.block.bytes_mut().get_mut(at..at.checked_add(size_of::<T>())?)?;
        let end = at + place.len();
        // SAFETY: so many bytes are there.
        unsafe { place.as_mut_ptr().cast::<T>().write_unaligned(value) };
        Some(end)
    }

    /// A program, by its number.
    pub(crate) fn program(&self, index: usize) -> Option<&Program<'static>> {
        let place = self.block.bytes().as_ptr().wrapping_add(self.programs).cast::<Program<'static>>();
        // SAFETY: so many have been written.
        (index < self.program_count).then(|| unsafe { &*place.wrapping_add(index) })
    }

    /// The functions so far.
    pub(crate) fn functions(&mut self) -> &mut [Function] {
        let first = self.base().wrapping_add(self.functions).cast::<Function>();
        // SAFETY: so many have been written.
        unsafe { core::slice::from_raw_parts_mut(first, self.function_count) }
    }

    /// Gives them to the module. Returns false if that would take too much memory.
    pub(crate) fn install(mut self, module: &ModuleDescriptor) -> bool {
        let size = self.block.bytes().len() as u64;
        let base = self.base();
        let table = CapturePlaces {
            table: base.wrapping_add(self.places) as u64,
            mask: u32::try_from(self.place_count.saturating_sub(1)).unwrap_or(u32::MAX),
        };
        let captures = Captures {
            table,
            size,
            module: core::ptr::from_ref(module) as u64,
            next: AtomicPtr::new(ALL.load(Relaxed)),
            // SAFETY: so many have been written, and the memory stays until `remove`.
            functions: unsafe { list(base, self.functions, self.function_count) },
            // SAFETY: as above; the table was zero at first.
            places: unsafe { list(base, self.places, self.place_count) },
            // SAFETY: as above.
            programs: unsafe { list(base, self.programs, self.program_count) },
            has_called: self.has_called,
        };
        if let Some(same) = all().find(|other| other.is_like(&captures)) {
            module.captures.store(core::ptr::from_ref(same) as u64, Release);
            return true;
        }
        if ALL_BYTES.load(Relaxed).saturating_add(size) > ALL_BYTES_MAX && all().next().is_some() {
            return false;
        }
        let base = self.block.leak();
        // SAFETY: the beginning of the memory is for this.
        unsafe { base.cast::<Captures>().write(captures) };
        let _ = system::protect(base as u64 + PAGE, size - PAGE, PROT_READ);
        ALL_BYTES.fetch_add(size, Relaxed);
        ALL.store(base.cast(), Relaxed);
        module.captures.store(base as u64, Release);
        true
    }
}

/// Where hooks find a value, and what of it is there.
fn saved_at(origin: Origin, flags: &mut u32) -> Option<(u32, u16)> {
    match origin {
        Origin::Stack(above) => Some((capture::stack_at() + above, copied::STACK)),
        Origin::Register(number) => {
            if capture::is_vector(number) {
                *flags |= copies::VECTORS;
            }
            Some((capture::saved_at(number)?, copied::SAVED))
        }
    }
}

/// Whether values of any module are copied, or were.
pub(crate) fn are_any() -> bool {
    !ALL.load(Relaxed).is_null()
}

/// All that are in memory. The caller holds the module lock.
fn all() -> impl Iterator<Item = &'static Captures> {
    // SAFETY: null or stored by `install`; unmapped only by the holder of the module lock.
    let at = |place: &AtomicPtr<Captures>| unsafe { place.load(Relaxed).as_ref() };
    core::iter::successors(at(&ALL), move |captures| at(&captures.next))
}

/// # Safety
/// `count` values of this type are at `offset`, and are never written again.
unsafe fn list<T>(base: *mut u8, offset: usize, count: usize) -> &'static [T] {
    // SAFETY: by contract.
    unsafe { core::slice::from_raw_parts(base.wrapping_add(offset).cast::<T>(), count) }
}

/// No values of a module are copied from now on. Threads may still be doing so.
pub(crate) fn clear(module: &ModuleDescriptor) {
    module.captures.store(0, Release);
}

/// Frees a module's captures. None of its hooks runs. The caller holds the module lock.
pub(crate) fn remove(module: &ModuleDescriptor) {
    module.captures.store(0, Relaxed);
    let mut place: &AtomicPtr<Captures> = &ALL;
    loop {
        let at = place.load(Relaxed);
        // SAFETY: null or stored by `install`, and not unmapped yet.
        let Some(captures) = (unsafe { at.as_ref() }) else { return };
        if captures.module == core::ptr::from_ref(module) as u64 {
            let size = captures.size;
            place.store(captures.next.load(Relaxed), Relaxed);
            ALL_BYTES.fetch_sub(size, Relaxed);
            system::unmap(at.cast(), size);
        } else {
            place = &captures.next;
        }
    }
}
