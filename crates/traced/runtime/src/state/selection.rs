//! Which functions are recorded: the base selection, and the selections of sessions.
//!
//! A selection is a site set in memory of its own, after a head with its owner. Pointers to
//! selections are swapped atomically, so a forked child, which inherits them, never finds a
//! half-changed one. Only the holder of the module lock dereferences or replaces them.
#![allow(unsafe_code)] // Selections in memory that is mapped here, by their addresses.

use crate::sys::block::Block;
use crate::sys::crc::Crc;
use crate::sys::system;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use everycall_format::Wire;
use everycall_format::control_socket::{CONNECTIONS, NAME_MAX};
use everycall_format::frame_pattern::rule_says;
use everycall_format::site_set::{SetModule, SetSite, SiteSet};

/// Bytes before the set.
pub(crate) const HEAD: usize = size_of::<Selection>().next_multiple_of(64);

/// A selection of functions.
pub(crate) struct Selection {
    set: SiteSet<'static>,
    bytes: &'static [u8],
    /// Bytes of its memory.
    size: u64,
    /// The process that owns the session.
    pub(crate) owner: u32,
    pub(crate) name: [u8; NAME_MAX],
    /// 1 once the session is active.
    active: AtomicU32,
    /// When the session became active, ticks.
    pub(crate) since: AtomicU64,
    /// Number of sites that it named when sites were last switched.
    pub(crate) sites: AtomicU64,
}

/// The base selection; null for all functions.
static BASE: AtomicPtr<Selection> = AtomicPtr::new(core::ptr::null_mut());
/// The sessions, by connection.
static SESSIONS: [AtomicPtr<Selection>; CONNECTIONS as usize] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; CONNECTIONS as usize];
/// The base selection while its bytes are sent to a client, and whether it has been replaced
/// meanwhile. Used while holding the module lock.
static SENT: AtomicPtr<Selection> = AtomicPtr::new(core::ptr::null_mut());
static IS_SENT_REPLACED: AtomicU32 = AtomicU32::new(0);
/// Whether the base selection is recorded.
static IS_BASE_ON: AtomicU32 = AtomicU32::new(1);
/// Whether the program itself lets tracing be on.
static IS_ALLOWED: AtomicU32 = AtomicU32::new(1);

impl Selection {
    /// Makes a selection from `block`: the first [`HEAD`] bytes are free, and the set follows.
    /// `None` if it isn't a valid selection.
    pub(crate) fn new(block: Block, owner: u32, name: [u8; NAME_MAX]) -> Option<&'static Selection> {
        let size = block.bytes().len() as u64;
        SiteSet::parse(block.bytes().get(HEAD..)?, Crc::of).ok().filter(SiteSet::is_selection)?;
        let base = block.leak();
        // SAFETY: the block's memory, which stays until `free`, and of which only the head is
        // written from here on.
        let bytes: &'static [u8] =
            unsafe { core::slice::from_raw_parts(base.wrapping_add(HEAD), size as usize - HEAD) };
        let set = SiteSet::parse(bytes, Crc::of).ok()?;
        let selection = Selection {
            set,
            bytes,
            size,
            owner,
            name,
            active: AtomicU32::new(0),
            since: AtomicU64::new(0),
            sites: AtomicU64::new(0),
        };
        let place = base.cast::<Selection>();
        // SAFETY: a page's beginning, with room for it before the set.
        unsafe {
            place.write(selection);
            Some(&*place)
        }
    }

    /// The set's bytes, as they came.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Relaxed) != 0
    }

    pub(crate) fn activate(&self) {
        self.active.store(1, Relaxed);
    }

    /// Whether it names a module with this build id.
    pub(crate) fn names(&self, build_id_length: u32, build_id: &[u8; 32]) -> bool {
        let is_same =
            |module: SetModule| (module.build_id_length, &module.build_id) == (build_id_length, build_id);
        self.set.modules().any(is_same)
    }

    /// Whether functions of modules are recorded that it doesn't name.
    pub(crate) fn has_others(&self) -> bool {
        self.set.header().others != 0
    }

    /// Whether it names the frame by id with this name and file. Its last rule that means it
    /// decides.
    fn wants_frame(&self, name: &[u8], file: &[u8]) -> bool {
        let says = |index: u32| {
            let rule = self.set.rule(index)?;
            rule_says(self.set.text(rule.text_offset, rule.text_length), name, file)
        };
        (0..self.set.rule_count()).rev().find_map(says).unwrap_or_else(|| self.has_others())
    }

    /// Unmaps one that was never put into a place.
    pub(crate) fn discard(selection: &'static Selection) {
        Selection::free(core::ptr::from_ref(selection).cast_mut());
    }

    /// Unmaps it. It must no longer be reachable.
    fn free(selection: *mut Selection) {
        // SAFETY: made by `new`, and taken out of its place by the caller.
        if let Some(size) = unsafe { selection.as_ref() }.map(|selection| selection.size) {
            system::unmap(selection.cast(), size);
        }
    }
}

fn put(place: &AtomicPtr<Selection>, selection: Option<&'static Selection>) {
    let new = selection.map_or(core::ptr::null_mut(), |selection| core::ptr::from_ref(selection).cast_mut());
    let old = place.swap(new, Release);
    if !old.is_null() && old == SENT.load(Relaxed) {
        IS_SENT_REPLACED.store(1, Relaxed);
    } else {
        Selection::free(old);
    }
}

/// The base selection, which stays in memory until [`end_sending`], also when the program replaces
/// it. Only one thread sends. The caller holds the module lock.
pub(crate) fn begin_sending() -> Option<&'static Selection> {
    SENT.store(BASE.load(Relaxed), Relaxed);
    base()
}

/// The caller holds the module lock.
pub(crate) fn end_sending() {
    let sent = SENT.swap(core::ptr::null_mut(), Relaxed);
    if IS_SENT_REPLACED.swap(0, Relaxed) != 0 {
        Selection::free(sent);
    }
}

fn at(place: &AtomicPtr<Selection>) -> Option<&Selection> {
    // SAFETY: null or made by `Selection::new`. It isn't freed while the module lock is held.
    unsafe { place.load(Acquire).as_ref() }
}

/// The base selection; `None` for all functions. The caller holds the module lock.
pub(crate) fn base() -> Option<&'static Selection> {
    at(&BASE)
}

/// Whether the base selection is the one that `EVERYCALL_ONLY` names.
static IS_FROM_START: AtomicU32 = AtomicU32::new(0);

/// The base selection, if it is still the one that `EVERYCALL_ONLY` names. The caller holds the
/// module lock.
pub(crate) fn base_from_start() -> Option<&'static Selection> {
    base().filter(|_| IS_FROM_START.load(Relaxed) != 0)
}

/// Makes the selection that `EVERYCALL_ONLY` names the base selection. The caller holds the module
/// lock, or no other thread runs yet.
pub(crate) fn set_base_from_start(selection: &'static Selection) {
    set_base(Some(selection));
    IS_FROM_START.store(1, Relaxed);
}

/// Replaces the base selection. The caller holds the module lock.
pub(crate) fn set_base(selection: Option<&'static Selection>) {
    HAS_CHANGED.store(1, Relaxed);
    IS_FROM_START.store(0, Relaxed);
    put(&BASE, selection);
}

/// A connection's session. The caller holds the module lock.
pub(crate) fn session(connection: usize) -> Option<&'static Selection> {
    at(SESSIONS.get(connection)?)
}

/// Replaces a connection's session. The caller holds the module lock.
pub(crate) fn set_session(connection: usize, selection: Option<&'static Selection>) {
    if let Some(place) = SESSIONS.get(connection) {
        put(place, selection);
    }
}

fn active() -> impl Iterator<Item = &'static Selection> {
    SESSIONS.iter().filter_map(at).filter(|session| session.is_active())
}

/// How many sessions are active. The caller holds the module lock.
pub(crate) fn active_sessions() -> u32 {
    active().count() as u32
}

pub(crate) fn is_base_on() -> bool {
    IS_BASE_ON.load(Relaxed) != 0
}

pub(crate) fn set_base_on(on: bool) {
    IS_BASE_ON.store(on.into(), Relaxed);
}

/// Whether the program itself lets tracing be on.
pub(crate) fn is_allowed() -> bool {
    IS_ALLOWED.load(Relaxed) != 0
}

pub(crate) fn allow(yes: bool) {
    IS_ALLOWED.store(yes.into(), Relaxed);
}

/// Whether anything is recorded.
pub(crate) fn is_anything_wanted() -> bool {
    let is_session = || {
        SESSIONS.iter().any(|place| !place.load(Relaxed).is_null()) && IS_SESSION_ACTIVE.load(Relaxed) != 0
    };
    is_allowed() && (is_base_on() || is_session())
}

/// Whether a session is active. Written by the holder of the module lock.
static IS_SESSION_ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Whether there was ever a selection. Only then, exits may be recorded whose entries weren't.
static HAS_CHANGED: AtomicU32 = AtomicU32::new(0);

/// Whether entries of single functions may be missing because their functions weren't selected.
pub(crate) fn may_have_left_out_entries() -> bool {
    HAS_CHANGED.load(Relaxed) != 0
}

/// Notes that calls are left out for which a condition is false.
pub(crate) fn note_conditions() {
    HAS_CHANGED.store(1, Relaxed);
}

/// Updates whether a session is active. The caller holds the module lock.
pub(crate) fn note_sessions() {
    HAS_CHANGED.store(1, Relaxed);
    IS_SESSION_ACTIVE.store(u32::from(active_sessions() > 0), Relaxed);
}

/// In a forked child, forgets the parent's sessions. Returns whether there were any.
pub(crate) fn begin_child() -> bool {
    // The thread that was sending it isn't here. What was replaced meanwhile stays in memory.
    SENT.store(core::ptr::null_mut(), Relaxed);
    IS_SENT_REPLACED.store(0, Relaxed);
    let mut were_some = false;
    for place in &SESSIONS {
        // The memory isn't freed: the fork may have come while the parent was freeing it.
        were_some |= !place.swap(core::ptr::null_mut(), Relaxed).is_null();
    }
    IS_SESSION_ACTIVE.store(0, Relaxed);
    were_some
}

/// Whether all functions are wanted. The caller holds the module lock.
pub(crate) fn is_everything() -> bool {
    is_base_on() && base().is_none()
}

/// Whether a frame by id is wanted; without a name if both texts are empty. The caller holds the
/// module lock.
pub(crate) fn wants_frame(name: &[u8], file: &[u8]) -> bool {
    is_everything()
        || base()
            .filter(|_| is_base_on())
            .into_iter()
            .chain(active())
            .any(|selection| selection.wants_frame(name, file))
}

/// Who records: a connection's session, or the base selection.
pub(crate) type Recorder = Option<usize>;

/// The parts of selections that concern one module.
pub(crate) struct InModule {
    /// Everything of it is wanted.
    all: bool,
    parts: [Part; 1 + CONNECTIONS as usize],
    count: usize,
}

#[derive(Clone, Copy)]
struct Part {
    /// Encoded [`SetSite`]s in the order of their addresses.
    sites: &'static [u8],
    /// Everything of the module is wanted.
    is_all: bool,
    selection: Option<&'static Selection>,
    recorder: Recorder,
}

impl InModule {
    /// For the module with this build id. The caller holds the module lock as long as this is used.
    pub(crate) fn of(build_id_length: u32, build_id: &[u8; 32]) -> InModule {
        let nothing = Part { sites: &[], is_all: false, selection: None, recorder: None };
        let mut found = InModule { all: false, parts: [nothing; 1 + CONNECTIONS as usize], count: 0 };
        let base_part = is_base_on().then(|| (None, base()));
        let sessions = SESSIONS.iter().enumerate().filter_map(|(place, session)| {
            let session = at(session).filter(|session| session.is_active())?;
            Some((Some(place), Some(session)))
        });
        for (recorder, selection) in base_part.into_iter().chain(sessions) {
            let is_same = |module: &SetModule| {
                (module.build_id_length, &module.build_id) == (build_id_length, build_id)
            };
            let all = Part { is_all: true, recorder, ..nothing };
            let part = match selection {
                None => all,
                Some(selection) => match selection.set.modules().find(is_same) {
                    None if selection.has_others() => all,
                    None => continue,
                    Some(module) => {
                        let sites = selection.set.raw_sites_of(&module);
                        Part { sites, is_all: false, selection: Some(selection), recorder }
                    }
                },
            };
            found.all |= part.is_all;
            if let Some(place) = found.parts.get_mut(found.count) {
                *place = part;
                found.count += 1;
            }
        }
        found
    }

    /// Who records the function at this image address.
    pub(crate) fn recorders(&self, address: u64) -> impl Iterator<Item = Recorder> + '_ {
        let parts = self.parts.iter().take(self.count);
        parts.filter(move |part| part.is_all || contains(part.sites, address)).map(|part| part.recorder)
    }

    /// Whether a site at this image address is wanted. Counts it for each selection that wants it.
    pub(crate) fn wants(&self, address: u64) -> bool {
        let mut wanted = self.all;
        for part in self.parts.iter().take(self.count) {
            if contains(part.sites, address) {
                wanted = true;
                if let Some(selection) = part.selection {
                    selection.sites.fetch_add(1, Relaxed);
                }
            }
        }
        wanted
    }

    /// Whether everything in the module is wanted.
    pub(crate) fn is_all(&self) -> bool {
        self.all
    }

    /// The image addresses of what is wanted: begins and ends.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let parts = self.parts.iter().take(self.count);
        let sites = parts.flat_map(|part| part.sites.chunks_exact(SetSite::SIZE).filter_map(SetSite::read));
        sites.map(|site| (site.start, site.end))
    }

    /// Whether anything in the module is wanted.
    pub(crate) fn is_anything(&self) -> bool {
        self.all || self.parts.iter().take(self.count).any(|part| !part.sites.is_empty())
    }
}

/// Resets the selections' numbers of sites. The caller holds the module lock.
pub(crate) fn begin_count() {
    for selection in base().into_iter().chain(SESSIONS.iter().filter_map(at)) {
        selection.sites.store(0, Relaxed);
    }
}

fn contains(sites: &[u8], address: u64) -> bool {
    let site = |index: usize| sites.get(index * SetSite::SIZE..).and_then(SetSite::read);
    let (mut low, mut high) = (0, sites.len() / SetSite::SIZE);
    while low < high {
        let middle = low.midpoint(high);
        let Some(site) = site(middle) else { return false };
        if address < site.start {
            high = middle;
        } else if address >= site.end {
            low = middle + 1;
        } else {
            return true;
        }
    }
    false
}
