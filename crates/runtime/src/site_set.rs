//! The set of functions that triggers name (`EVERYCALL_TRIGGERS`): read at the start, and compared with each module that comes.
//!
//! Its thresholds are nanoseconds, and ticks are compared. Nobody waits until the clock's rate is known well: sites get what the threshold
//! can't be less than, and a call that took longer than that is compared once more, with a rate that was measured for at least half as long as
//! the process runs. So it is exact to a fraction of a microsecond for each call, from the first one on.

use crate::arena::Arena;
use crate::disk;
use crate::file::{File, errno};
use crate::folder::FOLDER_MAX;
use crate::lock::Lock;
use crate::mapped_file::MappedFile;
use crate::process::Process;
use crate::snapshot::Crc;
use crate::start;
use crate::system::{
    self, CLOCK_MONOTONIC_RAW, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE,
};
use crate::triggers::Triggers;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use everycall_format::arena::{ClockReading, ModuleEntry};
use everycall_format::env;
use everycall_format::site_set::{SIZE_MAX, SetError, SetModule, SiteSet};
use everycall_format::trigger::{NEVER, RULES, TriggerSite};

/// Nanoseconds for which the clock is measured before anything else: its rate is known to some thousandths then.
const FIRST_NS: u64 = 300_000;
/// Bits of a rate behind the point.
const RATE_BITS: u32 = 28;

/// What is known of the set. Written at the start, before there is anybody else.
struct Known {
    set: UnsafeCell<Option<SiteSet<'static>>>,
    /// The clocks at the start.
    first: UnsafeCell<ClockReading>,
    /// Standard error as it was at the start: device and inode.
    messages: UnsafeCell<Option<(u64, u64)>>,
}

// SAFETY: written at the start alone, before there is anybody else to read it.
unsafe impl Sync for Known {}

static KNOWN: Known = Known {
    set: UnsafeCell::new(None),
    first: UnsafeCell::new(ClockReading {
        ticks: 0,
        monotonic_ns: 0,
        monotonic_raw_ns: 0,
        realtime_ns: 0,
        bracket: 0,
    }),
    messages: UnsafeCell::new(None),
};
static IS_THERE: AtomicBool = AtomicBool::new(false);
/// The triggers' thresholds as exactly as they are known, in ticks.
static EXACT: [AtomicU64; RULES as usize] = [const { AtomicU64::new(NEVER) }; RULES as usize];
/// When they are to be computed anew, ticks; held while they are.
static DUE: AtomicU64 = AtomicU64::new(0);
static LOCK: AtomicU32 = AtomicU32::new(0);
/// Whether somebody was told that a module isn't the one of the set.
static IS_TOLD: AtomicBool = AtomicBool::new(false);
/// That there is no room for all functions was said.
static IS_FULL_TOLD: AtomicBool = AtomicBool::new(false);

/// Why there is no set.
enum Trouble {
    Path,
    NotThere,
    NotAllowed,
    NoFile,
    NotOwn,
    NoSet,
    OtherVersion,
    Damaged,
    NoMemory,
}

impl Trouble {
    fn text(&self) -> &'static [u8] {
        match self {
            Trouble::Path => b"is no path of 1 to 1023 bytes; name a file that everycall resolve wrote",
            Trouble::NotThere => b"isn't there; name a file that everycall resolve wrote, by its whole path",
            Trouble::NotAllowed => b"can't be read by this program's user; make it that user's own with chown",
            Trouble::NoFile => b"is no regular file; name a file that everycall resolve wrote",
            Trouble::NotOwn => {
                b"may be written by others than this program's user and root; chown it to one of these, and chmod go-w"
            }
            Trouble::NoSet => b"is none of the files that everycall resolve writes",
            Trouble::OtherVersion => {
                b"was written by another version of everycall than the program was built with; write it again with that one's everycall resolve"
            }
            Trouble::Damaged => b"is damaged; write it again with everycall resolve",
            Trouble::NoMemory => b"has no room in memory",
        }
    }
}

/// Reads the set that `path` names. Where that can't be, it is said why, and the program goes on. For the start alone.
pub(crate) fn load(path: &[u8]) -> Option<&'static SiteSet<'static>> {
    match read(path) {
        Ok(set) => {
            let first = start::clock_reading();
            while system::clock_ns(CLOCK_MONOTONIC_RAW).saturating_sub(first.monotonic_raw_ns) < FIRST_NS {}
            // SAFETY: at the start there is nobody else.
            unsafe {
                *KNOWN.set.get() = Some(set);
                *KNOWN.first.get() = first;
                *KNOWN.messages.get() = disk::identity_of(2);
            }
            IS_THERE.store(true, Release);
            self::set()
        }
        Err(trouble) => {
            let shown = path.get(..path.len().min(200)).unwrap_or(path);
            system::warn(&[
                b"everycall: ",
                env::TRIGGERS.as_bytes(),
                b"=",
                shown,
                b" ",
                trouble.text(),
                b". Going on without triggers.\n",
            ]);
            None
        }
    }
}

/// There is no set, after all.
pub(crate) fn forget() {
    IS_THERE.store(false, Release);
}

/// The set, where there is one.
pub(crate) fn set() -> Option<&'static SiteSet<'static>> {
    if !IS_THERE.load(Acquire) {
        return None;
    }
    // SAFETY: written before the mark that was looked at.
    unsafe { (*KNOWN.set.get()).as_ref() }
}

fn read(path: &[u8]) -> Result<SiteSet<'static>, Trouble> {
    let mut name = [0; FOLDER_MAX + 1];
    if path.is_empty() || path.len() > FOLDER_MAX {
        return Err(Trouble::Path);
    }
    name.get_mut(..path.len()).ok_or(Trouble::Path)?.copy_from_slice(path);
    let file = File::open_to_read(name.get(..=path.len()).unwrap_or(&[])).map_err(|error| match error {
        errno::ENOENT | errno::ENOTDIR | errno::ELOOP => Trouble::NotThere,
        _ => Trouble::NotAllowed,
    })?;
    let facts = disk::facts_of(&file).filter(|facts| facts.is_regular).ok_or(Trouble::NoFile)?;
    if !facts.is_trusted {
        return Err(Trouble::NotOwn);
    }
    if facts.size == 0 || facts.size > SIZE_MAX {
        return Err(Trouble::NoSet);
    }
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // A copy: what is mapped would go with a file that is cut, and the program with it.
    let memory = system::map(facts.size, PROT_READ | PROT_WRITE, flags, -1).ok_or(Trouble::NoMemory)?;
    // SAFETY: just mapped, of this size.
    let place = unsafe { core::slice::from_raw_parts_mut(memory, facts.size as usize) };
    let mut length = 0;
    while let Some(free) = place.get_mut(length..).filter(|free| !free.is_empty()) {
        match file.read(free) {
            0 => break,
            count => length += count,
        }
    }
    // SAFETY: as above; it stays, and nobody writes there from here on.
    let bytes: &'static [u8] = unsafe { core::slice::from_raw_parts(memory, length) };
    let set = SiteSet::parse(bytes, Crc::of).map_err(|error| match error {
        SetError::NoSet => Trouble::NoSet,
        SetError::Version(_) => Trouble::OtherVersion,
        SetError::Damaged => Trouble::Damaged,
    });
    match set {
        Ok(_) => {
            let _ = system::protect(memory as u64, facts.size, PROT_READ);
        }
        Err(_) => system::unmap(memory, facts.size),
    }
    set
}

/// A module has come: its functions that triggers name are told to the hooks' slow path. For whoever holds the module lock.
pub(crate) fn add(process: &Process, arena: &Arena, entry: &ModuleEntry, file: &MappedFile) {
    let (Some(set), Some(triggers)) = (set(), Triggers::of(arena)) else { return };
    let size = entry.end.saturating_sub(entry.start);
    let Some(code_end) = u32::try_from(size).ok().and_then(|size| entry.code_start.checked_add(size)) else {
        return;
    };
    let module = set.modules().find(|module| is_same(module, entry));
    if module.is_none() {
        // SAFETY: the scratch buffer is the lock holder's.
        compare_names(set, file.path(unsafe { &*process.scratch() }));
    }
    let mut thresholds = [NEVER; RULES as usize];
    for (threshold, rule) in thresholds.iter_mut().zip(0..set.rule_count()) {
        *threshold = set.rule(rule).map_or(NEVER, |rule| ticks(rule.threshold_ns, Bound::Lower));
    }
    let code = |address: u64| {
        let offset = address.wrapping_add(entry.base).checked_sub(entry.start)?;
        (offset < size).then(|| u32::try_from(offset).ok()?.checked_add(entry.code_start)).flatten()
    };
    let sites = module.iter().flat_map(|module| set.sites_of(module)).filter_map(|site| {
        Some(TriggerSite {
            first: code(site.start)?,
            end: code(site.end - 1)?.checked_add(1)?,
            rule: site.rule,
            threshold: *thresholds.get(site.rule as usize)?,
            ..TriggerSite::default()
        })
    });
    if triggers.replace(entry.code_start, code_end, sites) > 0
        && is_heard()
        && !IS_FULL_TOLD.swap(true, Relaxed)
    {
        system::warn(&[
            b"everycall: ",
            env::TRIGGERS.as_bytes(),
            b" names more functions than there is room for, in libraries that are loaded several times; calls of some aren't looked at.\n",
        ]);
    }
}

fn is_same(module: &SetModule, entry: &ModuleEntry) -> bool {
    (module.build_id_length, module.build_id) == (entry.build_id_length, entry.build_id)
}

/// Whether standard error is what it was at the start: the program may have put something else in its place since.
fn is_heard() -> bool {
    // SAFETY: written before the set was there.
    let messages = unsafe { *KNOWN.messages.get() };
    messages.is_some() && disk::identity_of(2) == messages
}

/// Says so where a file has the name of one of the set and isn't it.
fn compare_names(set: &SiteSet<'_>, path: Option<&[u8]>) {
    let name = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let Some(own) = path.and_then(|path| path.get(name(path)..)).filter(|name| !name.is_empty()) else {
        return;
    };
    let is_of_this_name = |module: SetModule| {
        let path = set.text(module.path_offset, module.path_length);
        path.get(name(path)..) == Some(own)
    };
    if set.modules().any(is_of_this_name) && is_heard() && !IS_TOLD.swap(true, Relaxed) {
        let path = path.unwrap_or(&[]);
        system::warn(&[
            b"everycall: ",
            path.get(..path.len().min(200)).unwrap_or(path),
            b" isn't the file that ",
            env::TRIGGERS.as_bytes(),
            b" was made of (another build id), so none of its calls are kept; write the set again with everycall resolve.\n",
        ]);
    }
}

/// The threshold of a trigger in ticks, as exactly as the clock's rate is known by now; `None` where there is no set.
pub(crate) fn exact_threshold(rule: u32) -> Option<u64> {
    let set = set()?;
    let now = everycall_hooks::ticks();
    if now < DUE.load(Acquire) {
        return Some(EXACT.get(rule as usize).map_or(NEVER, |exact| exact.load(Relaxed)));
    }
    if let Some(_lock) = Lock::try_take(&LOCK) {
        for (exact, rule) in EXACT.iter().zip(0..set.rule_count()) {
            exact.store(
                set.rule(rule).map_or(NEVER, |rule| ticks(rule.threshold_ns, Bound::Nearest)),
                Relaxed,
            );
        }
        // SAFETY: written before the set was there.
        let first = unsafe { &*KNOWN.first.get() };
        DUE.store(now.saturating_add(now.saturating_sub(first.ticks)), Release);
    }
    Some(set.rule(rule).map_or(NEVER, |rule| ticks(rule.threshold_ns, Bound::Nearest)))
}

/// Which ticks are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Nearest,
    /// Such as they can't be fewer.
    Lower,
}

/// The ticks of so many nanoseconds, by what was measured since the start.
pub(crate) fn ticks(nanoseconds: u64, bound: Bound) -> u64 {
    // SAFETY: written before the set was there.
    let first = unsafe { &*KNOWN.first.get() };
    let now = start::clock_reading();
    let unsure = if bound == Bound::Lower { first.bracket.saturating_add(now.bracket) } else { 0 };
    let ticks = now.ticks.saturating_sub(first.ticks).saturating_sub(unsure);
    scale(nanoseconds, ticks, now.monotonic_raw_ns.saturating_sub(first.monotonic_raw_ns))
}

/// `value * by / from`, exact to a hundred-millionth of it: without 128 bits, whose division is a library's. Below [`NEVER`].
fn scale(value: u64, by: u64, from: u64) -> u64 {
    let excess = (u64::BITS - by.leading_zeros()).saturating_sub(u64::BITS - 1 - RATE_BITS);
    let Some(rate) = ((by >> excess) << RATE_BITS).checked_div(from >> excess) else { return 0 };
    let whole = (value >> RATE_BITS).saturating_mul(rate);
    let rest = (value & ((1 << RATE_BITS) - 1)).saturating_mul(rate) >> RATE_BITS;
    whole.saturating_add(rest).min(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_scaled_without_wide_numbers() {
        for (value, by, from) in [
            (20_000_000, 750_123, 300_000),
            (1, 2_500_000_000, 1_000_000_000),
            (60_000_000_000, 2_400_000_123_456, 999_999_876_543),
            (1_000, 1, 1),
            (u64::MAX / 8, 3_000_000_000_000_000, 1_000_000_000_000_000),
        ] {
            let exact = u128::from(value) * u128::from(by) / u128::from(from);
            let found = u128::from(scale(value, by, from));
            assert!(found.abs_diff(exact) <= exact / 100_000_000 + 1, "{value} {by} {from}: {found} {exact}");
        }
        assert_eq!(scale(u64::MAX, 4, 1), NEVER - 1);
        assert_eq!(scale(5, 5, 0), 0);
    }
}
