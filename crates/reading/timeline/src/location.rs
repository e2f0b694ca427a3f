//! From code offset and time to module and image address.

use everycall_format::arena::module_flags;
use everycall_format::frame::STEP;
use everycall_reader::{CodeRange, Module, Trampolines};
use std::sync::Arc;

use everycall_calls::Location;

/// How many codes before an address are looked at: as many functions may have had it in turn.
const CODES_LOOKED_AT: usize = 1024;

/// From offsets in a region of trampolines to functions.
#[derive(Debug)]
struct Functions {
    /// The lowest offset.
    first: u32,
    /// By the distance from there divided by [`Functions::STEP`]: the entry's index plus 1, or 0.
    places: Vec<u32>,
    /// Offset and image address.
    entries: Vec<(u32, u64)>,
}

impl Functions {
    /// Calls are 5 bytes, so no two entries share a place.
    const STEP: u32 = 4;
    /// The most places for each entry: real tables have some 10.
    const PLACES_MAX: usize = 1024;

    fn new(table: &Trampolines) -> Functions {
        let entries = table.entries.clone();
        let first = entries.first().map_or(0, |(first, _)| *first);
        let count = entries.last().map_or(0, |(last, _)| ((last - first) / Self::STEP) as usize + 1);
        let mut places = vec![0; count.min(entries.len().saturating_mul(Self::PLACES_MAX))];
        for (number, (offset, _)) in (1..).zip(&entries) {
            if let Some(place) = places.get_mut(((offset - first) / Self::STEP) as usize) {
                *place = number;
            }
        }
        Functions { first, places, entries }
    }

    fn at(&self, offset: u32) -> Option<u64> {
        let place = offset.checked_sub(self.first)? / Self::STEP;
        let number = *self.places.get(place as usize)?;
        let (found, address) = self.entries.get(number.checked_sub(1)? as usize)?;
        (*found == offset).then_some(*address)
    }
}

/// One module's stay in the code space.
#[derive(Clone, Debug)]
struct Stay {
    /// First code offset.
    first: u32,
    /// Code offsets.
    length: u32,
    /// In ticks.
    loaded: u64,
    /// In ticks; `u64::MAX` while it is loaded.
    unloaded: u64,
    module: u32,
    /// Image address = code offset + this, wrapping.
    shift: u64,
    /// Others may have had the range before it, of which the trace doesn't know.
    is_reused: bool,
    /// If hooks are called by trampolines.
    functions: Option<Arc<Functions>>,
}

impl Stay {
    fn holds(&self, offset: u32, ticks: u64) -> bool {
        offset.wrapping_sub(self.first) < self.length && self.loaded <= ticks && ticks < self.unloaded
    }
}

/// All modules of a process by their ranges of code offsets, which are reused after unloading.
#[derive(Clone, Debug, Default)]
pub struct ModuleMap {
    /// By first offset, then by time.
    stays: Vec<Stay>,
    /// The longest of them: how far back a search has to look.
    longest: u32,
    /// Code of just-in-time compilers, by address, then by time.
    codes: Vec<CodeRange>,
    /// The index of the module whose functions they are.
    codes_module: u32,
}

impl ModuleMap {
    /// The map of an unknown process.
    pub(crate) const EMPTY: &'static ModuleMap =
        &ModuleMap { stays: Vec::new(), longest: 0, codes: Vec::new(), codes_module: 0 };

    /// The map of one process's modules; `tables` are those of the recording's trampolines.
    #[must_use]
    pub fn new(modules: &[Module], tables: &[Trampolines]) -> ModuleMap {
        let functions = |module: &Module| {
            let table = tables.iter().find(|table| table.number == module.trampolines);
            let none = Trampolines::default();
            // Without its table, nothing is known of the module's calls.
            (module.trampolines != 0).then(|| Arc::new(Functions::new(table.unwrap_or(&none))))
        };
        let mut stays: Vec<Stay> = modules
            .iter()
            .filter(|module| module.is_complete() && module.same_file < Location::LOST_MODULE as usize)
            .map(|module| Stay {
                first: module.code_start,
                length: u32::try_from(module.end - module.start).unwrap_or(u32::MAX),
                loaded: module.loaded_ticks,
                unloaded: module.unloaded_ticks.unwrap_or(u64::MAX),
                module: module.same_file as u32,
                is_reused: module.flags & module_flags::REUSED_CODE != 0,
                functions: functions(module),
                shift: module.start.wrapping_sub(module.base).wrapping_sub(u64::from(module.code_start)),
            })
            .collect();
        stays.sort_by_key(|stay| (stay.first, stay.loaded));
        let longest = stays.iter().map(|stay| stay.length).max().unwrap_or(0);
        ModuleMap { stays, longest, codes: Vec::new(), codes_module: 0 }
    }

    /// Adds the code of just-in-time compilers.
    #[must_use]
    pub(crate) fn with_codes(self, modules: &[Module], codes: &[CodeRange]) -> ModuleMap {
        match modules.iter().find(|module| module.is_frames()) {
            Some(module) => {
                ModuleMap { codes: codes.to_vec(), codes_module: module.same_file as u32, ..self }
            }
            None => self,
        }
    }

    /// The place of a process address outside all modules: that of code of a just-in-time compiler,
    /// if its name is known.
    #[must_use]
    pub fn locate_outside(&self, address: u64, ticks: u64) -> Location {
        let behind = self.codes.partition_point(|code| code.start <= address);
        let before = self.codes.get(..behind).unwrap_or_default().iter().rev().take(CODES_LOOKED_AT);
        let mut holding = before.filter(|code| address - code.start < code.size);
        // Times of other clocks aren't exact, and code may run before its record is written. So where
        // none was there at that time, the nearest counts: later code comes first here.
        let mut nearest: Option<(u64, &CodeRange)> = None;
        let found = holding.find(|code| {
            let distance = match () {
                () if ticks < code.loaded => code.loaded - ticks,
                () if ticks >= code.replaced => ticks - code.replaced,
                () => return true,
            };
            if nearest.is_none_or(|(least, _)| distance < least) {
                nearest = Some((distance, code));
            }
            false
        });
        match found.or(nearest.map(|(_, code)| code)) {
            Some(code) => {
                Location { module: self.codes_module, image_address: u64::from(code.id) * u64::from(STEP) }
            }
            None => Location { module: Location::NO_MODULE, image_address: address },
        }
    }

    /// Finds the module that was at `offset` at `ticks`. `cursor` belongs to the caller, begins at
    /// 0 and makes repeated searches cheap.
    #[must_use]
    #[inline]
    pub fn locate(&self, cursor: &mut usize, offset: u32, ticks: u64) -> Location {
        if let Some(stay) = self.stays.get(*cursor)
            && stay.holds(offset, ticks)
        {
            return located(stay, offset);
        }
        self.search(cursor, offset, ticks)
    }

    #[cold]
    fn search(&self, cursor: &mut usize, offset: u32, ticks: u64) -> Location {
        let behind = self.stays.partition_point(|stay| stay.first <= offset);
        let mut before: Option<&Stay> = None;
        let mut after: Option<&Stay> = None;
        for (index, stay) in self.stays[..behind].iter().enumerate().rev() {
            let distance = offset - stay.first;
            if distance >= self.longest {
                break;
            }
            if distance >= stay.length {
                continue;
            }
            if stay.holds(offset, ticks) {
                *cursor = index;
                return located(stay, offset);
            }
            if stay.unloaded <= ticks {
                if before.is_none_or(|other| other.unloaded < stay.unloaded) {
                    before = Some(stay);
                }
            } else if !stay.is_reused && after.is_none_or(|other| stay.loaded < other.loaded) {
                after = Some(stay);
            }
        }
        // A module's last events may come after its unloading was noted, and its first ones before
        // its registration was. No other module has the range at that time, unless it was passed on
        // directly.
        match before.or(after) {
            Some(stay) => located(stay, offset),
            None => Location { module: Location::LOST_MODULE, image_address: u64::from(offset) },
        }
    }
}

fn located(stay: &Stay, offset: u32) -> Location {
    if let Some(functions) = &stay.functions {
        return match functions.at(offset.wrapping_sub(stay.first)) {
            Some(image_address) => Location { module: stay.module, image_address },
            None => Location { module: Location::LOST_MODULE, image_address: u64::from(offset) },
        };
    }
    Location { module: stay.module, image_address: u64::from(offset).wrapping_add(stay.shift) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(code_start: u32, pages: u64, start: u64, loaded: u64, unloaded: Option<u64>) -> Module {
        Module {
            base: start - 0x1000,
            start,
            end: start + pages * 0x1000,
            code_start,
            loaded_ticks: loaded,
            unloaded_ticks: unloaded,
            ..Module::default()
        }
    }

    #[test]
    fn a_reused_range_gives_no_name_before_its_module_is_loaded() {
        let mut only = module(0x3000, 1, 0x7f00_0000, 20, None);
        let at = |only: &Module, ticks| {
            ModuleMap::new(std::slice::from_ref(only), &[]).locate(&mut 0, 0x3010, ticks)
        };
        assert_eq!(at(&only, 10).module, 0);
        only.flags = module_flags::REUSED_CODE;
        assert_eq!(at(&only, 10).module, Location::LOST_MODULE);
        assert_eq!(at(&only, 30).module, 0);
    }

    #[test]
    fn code_of_a_compiler_is_found_by_address_and_time() {
        let code = |start, size, loaded, replaced, id| CodeRange { start, size, loaded, replaced, id };
        let codes = [
            code(0x1000, 0x1000, 0, 10, 100),
            code(0x1000, 0x10, 20, 30, 101),
            code(0x1000, 0x10, 30, u64::MAX, 102),
            code(0x1100, 0x10, 20, u64::MAX, 103),
        ];
        let frames = Module { flags: module_flags::FRAMES, same_file: 3, ..Module::default() };
        let map = ModuleMap::new(&[], &[]).with_codes(&[frames], &codes);
        let at = |address, ticks| {
            let location = map.locate_outside(address, ticks);
            (location.module, location.image_address)
        };
        assert_eq!(at(0x1005, 5), (3, 800));
        assert_eq!(at(0x1105, 5), (3, 800));
        assert_eq!(at(0x1005, 29), (3, 808));
        assert_eq!(at(0x1005, 30), (3, 816));
        assert_eq!(at(0x1105, 100), (3, 824));
        assert_eq!(at(0x1005, 12), (3, 800), "nearer than the one after it");
        assert_eq!(at(0x1005, 19), (3, 808));
        assert_eq!(at(0x2000, 5), (Location::NO_MODULE, 0x2000));
        assert_eq!(at(0xfff, 5), (Location::NO_MODULE, 0xfff));
        let none = ModuleMap::new(&[], &[]).with_codes(&[], &codes);
        assert_eq!(none.locate_outside(0x1000, 5).module, Location::NO_MODULE);
    }

    #[test]
    fn trampolines_lead_to_functions() {
        let entries = vec![(0x1ffe0, 0x5000), (0x1ffe5, 0x5000), (0x1fff0, 0x5040)];
        let table = Trampolines { number: 9, entries };
        let module = Module { trampolines: 9, ..module(0x3000, 32, 0x7f00_0000, 20, None) };
        let map = ModuleMap::new(std::slice::from_ref(&module), &[table]);
        let at = |offset| {
            let location = map.locate(&mut 0, offset, 30);
            (location.module, location.image_address)
        };
        assert_eq!([at(0x22fe0), at(0x22fe5), at(0x22ff0)], [(0, 0x5000), (0, 0x5000), (0, 0x5040)]);
        assert_eq!([at(0x22fe6), at(0x3000)].map(|(module, _)| module), [Location::LOST_MODULE; 2]);
        let lost = ModuleMap::new(&[module], &[]);
        assert_eq!(lost.locate(&mut 0, 0x22fe0, 30).module, Location::LOST_MODULE);
    }

    #[test]
    fn ranges_are_reused_over_time() {
        let mut modules = [
            module(0x1000, 2, 0x40_0000, 10, None),
            module(0x3000, 1, 0x7f00_0000, 20, Some(50)),
            module(0x3000, 4, 0x7e00_0000, 60, None),
        ];
        for (index, module) in modules.iter_mut().enumerate() {
            module.same_file = index;
        }
        let map = ModuleMap::new(&modules, &[]);
        let mut cursor = 0;
        let mut at = |offset, ticks| map.locate(&mut cursor, offset, ticks);
        assert_eq!(at(0x1010, 15), Location { module: 0, image_address: 0x1010 });
        assert_eq!(at(0x3010, 30), Location { module: 1, image_address: 0x1010 });
        assert_eq!(at(0x3010, 55), Location { module: 1, image_address: 0x1010 }, "its last words");
        assert_eq!(at(0x3010, 60), Location { module: 2, image_address: 0x1010 });
        assert_eq!(at(0x6fff, 70), Location { module: 2, image_address: 0x4fff });
        assert_eq!(at(0x2fff, 5), Location { module: 0, image_address: 0x2fff }, "just before it is known");
        for (offset, ticks) in [(0x7000, 70), (0xfff, 70), (0x7eff_ffff, 70)] {
            assert_eq!(
                at(offset, ticks),
                Location { module: Location::LOST_MODULE, image_address: offset.into() }
            );
        }
    }
}
