//! XRay's own interface: objects, function ids, and handlers that the program sets.
//!
//! Function ids are LLVM's: the order of section `xray_fn_idx`, from 1 in each object; the
//! executable is object 0, and shared objects follow in the order in which they are loaded. Only
//! objects take part that contain the kit's interface (`wrappers/xray.c`).
//!
//! Whether the program has patched a function is a mark on its sleds ([`marks::PATCHED`]). Handlers
//! are called for these, and whoever unpatches a function doesn't want it recorded, either
//! ([`marks::UNWANTED`]).
#![allow(unsafe_code)] // Objects that are loaded, and lists that their linkers made.

use crate::features::loaded_modules::{self, Marked, Refused};
use crate::features::marks::{self, Change, PATCHED, UNWANTED};
use crate::features::sites::Sites;
use crate::state::process::Process;
use core::ops::Range;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst,
};
use everycall_format::Wire;
use everycall_format::site::{XrayFunction, XraySled, sled_kind};
use everycall_hooks::{ModuleDescriptor, XrayObject};

/// Objects have numbers of eight bits.
const OBJECTS: usize = 256;
/// Function ids have 24 bits.
const FUNCTION_BITS: u32 = 24;

/// The objects. A number is never given to another object. A forked child has its parent's objects.
static TABLE: [AtomicPtr<XrayObject>; OBJECTS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; OBJECTS];
/// How many numbers were given. The first one is the executable's, whether it takes part or not.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The program's handlers: of functions, of functions with their first argument, of custom and of
/// typed events.
static HANDLERS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Which handler.
pub(crate) mod handler {
    pub const FUNCTION: usize = 0;
    pub const ARGUMENT: usize = 1;
    pub const CUSTOM: usize = 2;
    pub const TYPED: usize = 3;
}

/// Makes an object known.
pub(crate) fn register(object: &XrayObject, is_executable: bool) {
    let number = if is_executable {
        COUNT.fetch_max(1, SeqCst);
        0
    } else {
        let next = |count: u32| ((count as usize) < OBJECTS).then(|| count.max(1) + 1);
        match COUNT.fetch_update(SeqCst, SeqCst, next) {
            Ok(count) => count.max(1),
            Err(_) => return,
        }
    };
    if let Some(place) = TABLE.get(number as usize) {
        object.number.store(u64::from(number) + 1, Relaxed);
        place.store(core::ptr::from_ref(object).cast_mut(), SeqCst);
        activate();
    }
}

/// An object is about to be unloaded.
pub(crate) fn unregister(object: &XrayObject) {
    let number = object.number.load(Relaxed).wrapping_sub(1);
    if let Some(place) = TABLE.get(number as usize) {
        let object = core::ptr::from_ref(object).cast_mut();
        let _ = place.compare_exchange(object, core::ptr::null_mut(), SeqCst, Relaxed);
    }
}

/// How many objects there have been.
pub(crate) fn objects() -> u32 {
    COUNT.load(SeqCst)
}

/// An object that is loaded.
pub(crate) fn object(number: u64) -> Option<&'static XrayObject> {
    let place = TABLE.get(usize::try_from(number).ok()?)?;
    // SAFETY: objects leave the table before they are unloaded. (A program that unloads a library
    // while it asks for its functions has the same race with XRay's own runtime.)
    unsafe { place.load(Acquire).as_ref() }
}

fn loaded() -> impl Iterator<Item = &'static XrayObject> {
    (0..u64::from(objects())).filter_map(object)
}

/// Sets a handler, or removes it (0).
pub(crate) fn set_handler(process: &'static Process, which: usize, address: u64) -> bool {
    let Some(handler) = HANDLERS.get(which) else { return false };
    handler.store(address, SeqCst);
    activate();
    loaded_modules::set_handled(process, is_handled());
    // Another thread may have changed another handler meanwhile.
    activate();
    true
}

pub(crate) fn handler(which: usize) -> u64 {
    HANDLERS.get(which).map_or(0, |handler| handler.load(Acquire))
}

fn is_handled() -> bool {
    HANDLERS.iter().any(|handler| handler.load(SeqCst) != 0)
}

/// Has the hooks of all objects ask for handlers, or not.
fn activate() {
    for object in loaded() {
        object.active.store(is_handled().into(), SeqCst);
    }
}

/// The sleds and functions of an object.
pub(crate) struct Functions<'a> {
    module: &'a ModuleDescriptor,
    sleds: &'a [u8],
    /// Empty: the object was compiled without an index.
    index: &'a [u8],
}

/// An entry of a list.
fn entry<T: Wire>(list: &[u8], number: usize) -> Option<T> {
    T::read(list.get(number.checked_mul(T::SIZE)?..)?.get(..T::SIZE)?)
}

fn list(bounds: &[AtomicU64; 2]) -> &'static [u8] {
    let (first, end) = (bounds[0].load(Relaxed), bounds[1].load(Relaxed));
    if first == 0 || end <= first {
        return &[];
    }
    // SAFETY: the linker's bounds of a section that is loaded and never written.
    unsafe { core::slice::from_raw_parts(first as *const u8, (end - first) as usize) }
}

impl Functions<'static> {
    pub(crate) fn of(object: &'static XrayObject) -> Option<Functions<'static>> {
        // SAFETY: null or the descriptor of the object, which is loaded.
        let module = unsafe { (object.module.load(Relaxed) as *const ModuleDescriptor).as_ref() }?;
        Some(Functions { module, sleds: list(&module.sleds), index: list(&object.functions) })
    }
}

impl Functions<'_> {
    /// The number of sleds.
    fn sled_count(&self) -> usize {
        self.sleds.len() / XraySled::SIZE
    }

    /// The number of functions, which is also the highest id.
    pub(crate) fn count(&self) -> u64 {
        match self.index.len() / XrayFunction::SIZE {
            0 => self.runs().count() as u64,
            count => count as u64,
        }
    }

    /// The sleds of the function with this id.
    fn sleds_of(&self, id: u64) -> Option<Range<usize>> {
        let number = usize::try_from(id.checked_sub(1)?).ok()?;
        let range = if self.index.is_empty() { self.runs().nth(number)? } else { self.indexed(number)? };
        (!range.is_empty() && range.end <= self.sled_count()).then_some(range)
    }

    fn indexed(&self, number: usize) -> Option<Range<usize>> {
        let function = entry::<XrayFunction>(self.index, number)?;
        let place = self.index.as_ptr() as u64 + (number * XrayFunction::SIZE) as u64;
        let offset = place.wrapping_add_signed(function.first).wrapping_sub(self.sleds.as_ptr() as u64);
        let first = usize::try_from(offset).ok()? / XraySled::SIZE;
        Some(first..first.checked_add(usize::try_from(function.count).ok()?)?)
    }

    /// Without an index, functions are runs of sleds of the same function.
    fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut first = 0;
        core::iter::from_fn(move || {
            let function = self.function(first)?;
            let rest = first + 1..self.sled_count();
            let end = 1 + first + rest.take_while(|number| self.function(*number) == Some(function)).count();
            Some(core::mem::replace(&mut first, end)..end)
        })
    }

    /// The address of a sled.
    fn address(&self, number: usize) -> Option<u64> {
        let sled = entry::<XraySled>(self.sleds, number)?;
        Some(self.field(number, 0).wrapping_add_signed(sled.sled))
    }

    /// The address of the function to which a sled belongs.
    fn function(&self, number: usize) -> Option<u64> {
        let sled = entry::<XraySled>(self.sleds, number)?;
        Some(self.field(number, 8).wrapping_add_signed(sled.function))
    }

    fn field(&self, number: usize, offset: u64) -> u64 {
        self.sleds.as_ptr() as u64 + (number * XraySled::SIZE) as u64 + offset
    }

    /// The address of the function with this id.
    pub(crate) fn function_address(&self, id: u64) -> Option<u64> {
        self.function(self.sleds_of(id)?.start)
    }

    /// The number and the kind of the sled that is at one of these addresses. Linkers keep the list in
    /// the order of addresses, unless they were told to do otherwise.
    fn find(&self, addresses: impl Iterator<Item = u64> + Clone) -> Option<(usize, u8)> {
        let is_at = |number: usize, address: u64| self.address(number) == Some(address);
        let any = |number: &usize| addresses.clone().any(|address| is_at(*number, address));
        let ordered = addresses.clone().find_map(|address| {
            let number = self.first_from(address)?;
            is_at(number, address).then_some(number)
        });
        let number = ordered.or_else(|| (0..self.sled_count()).find(any))?;
        Some((number, entry::<XraySled>(self.sleds, number)?.kind))
    }

    /// The first sled from an address on, in a list that is in order.
    fn first_from(&self, address: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.sled_count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.address(middle)? < address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// The id of the function to which a sled belongs.
    fn id_of(&self, sled: usize) -> Option<u64> {
        let count = self.index.len() / XrayFunction::SIZE;
        if count == 0 {
            return Some(self.runs().position(|range| range.contains(&sled))? as u64 + 1);
        }
        let is_its = |number: &usize| self.indexed(*number).is_some_and(|range| range.contains(&sled));
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.indexed(middle)?.end <= sled {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let number = Some(low).filter(is_its).or_else(|| (0..count).find(is_its))?;
        Some(number as u64 + 1)
    }

    /// Patches all functions, or one, or takes that back. `None` if there is no such function.
    pub(crate) fn patch(
        &self,
        process: &'static Process,
        function: Option<u64>,
        on: bool,
    ) -> Option<Result<Marked, Refused>> {
        let range = match function {
            Some(id) => self.sleds_of(id)?,
            None => 0..self.sled_count(),
        };
        let change = match on {
            true => Change { set: PATCHED, clear: UNWANTED },
            false => Change { set: UNWANTED, clear: PATCHED },
        };
        // SAFETY: the module is loaded, as its object is.
        let sites = unsafe { Sites::of(self.module, &[]) };
        let first = sites.first_sled();
        let numbers = first + range.start as u32..first + range.end as u32;
        Some(loaded_modules::mark_sites(process, self.module, numbers, change))
    }
}

/// An event at one of the program's sleds.
pub(crate) struct Event {
    /// The function's id, with its object's number.
    pub(crate) id: u32,
    /// The sled's [`sled_kind`].
    pub(crate) kind: u8,
    /// The program has patched the function.
    pub(crate) is_patched: bool,
    /// The function is recorded, if the process is.
    pub(crate) is_recorded: bool,
}

/// From the address to which the hook of an event returns, to its sled. Tail exits may call the hook
/// of exits.
fn sleds_before(address: u64, kind: u8) -> impl Iterator<Item = u64> + Clone {
    let distances = match kind {
        sled_kind::EXIT => [5, 8],
        sled_kind::CUSTOM_EVENT => [15, 15],
        sled_kind::TYPED_EVENT => [19, 19],
        _ => [8, 8],
    };
    distances.into_iter().map(move |distance| address.wrapping_sub(distance))
}

/// The event whose hook returns to this address. `None` if there is no sled before it.
pub(crate) fn event(object: &'static XrayObject, address: u64, kind: u8) -> Option<Event> {
    let functions = Functions::of(object)?;
    let (sled, kind) = functions.find(sleds_before(address, kind))?;
    let number = object.number.load(Relaxed).wrapping_sub(1) as u32;
    let id = functions.id_of(sled)? as u32 | number << FUNCTION_BITS;
    // SAFETY: the module is loaded, as its hook runs.
    let first = unsafe { Sites::of(functions.module, &[]) }.first_sled();
    let its = loaded_modules::marks_of(functions.module, first + sled as u32);
    Some(Event { id, kind, is_patched: its & PATCHED != 0, is_recorded: marks::is_recorded(its) })
}

/// The most types of events.
const TYPES: usize = 1024;
/// The addresses of their descriptions. A type's number is its place.
static EVENT_TYPES: [AtomicU64; TYPES] = [const { AtomicU64::new(0) }; TYPES];

/// The number of an event type. As with XRay's own runtime, a description is known by its address.
/// Types for which there is no room share the last number.
pub(crate) fn event_type(description: u64) -> u16 {
    for (number, place) in EVENT_TYPES.iter().enumerate() {
        match place.compare_exchange(0, description, SeqCst, SeqCst) {
            Ok(_) => return number as u16,
            Err(there) if there == description => return number as u16,
            Err(_) => {}
        }
    }
    u16::MAX
}
