//! The runtime's start: before `main` and before the program's own initialisers.
#![allow(unsafe_code)] // New mappings become arenas; called with the program's environment.

use crate::entry::environment::Environment;
#[cfg(any(feature = "executable", feature = "shared"))]
use crate::features::calibration;
#[cfg(feature = "shared")]
use crate::features::hooks_asked;
use crate::features::{
    budget as governor, captures, control_server, crash, fork, keeper, min_duration, site_set,
    snapshot_signal,
};
use crate::state::arena::Arena;
use crate::state::hub::{self, Spare};
use crate::state::process::{self, process_state};
use crate::state::{beginning, last_error, recording, selection, thresholds};
use crate::sys::disk::NotMemory;
use crate::sys::{clock, filter, own_memory, processes, system};
use crate::threads::stacks;
use core::sync::atomic::{Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::{
    ArenaHeader, EXTRA_SIZE, OPEN_CALL_CAPACITY, PAGE, THREAD_CAPACITY, child_kind,
    process_state as arena_state,
};
use everycall_format::budget;
use everycall_format::crash::OPEN_CALL_CAPACITY as CRASH_OPEN_CALLS;
use everycall_format::dropped::{self, FUNCTIONS, FUNCTIONS_MAX, TIMED_FUNCTIONS_MAX};
use everycall_format::env::{self, KeepEnded};
use everycall_format::hub::origin;
use everycall_format::site_set::SiteSet;
use everycall_format::stamp;
use everycall_format::trigger::{SITES, TriggerSite};

/// Trigger sites that fit into a page.
const SITES_PER_PAGE: u32 = (PAGE as usize / size_of::<TriggerSite>()) as u32;

/// An address at the top of the first thread's stack. The kernel puts the environment there, but a
/// program that has changed it before it loaded the runtime has it elsewhere.
fn top_of_first_stack(variables: u64) -> u64 {
    let own = everycall_hooks::stack_pointer();
    let is_first = system::thread_id() == Some(system::process_id());
    if is_first && own < variables && variables - own <= stacks::MAIN_REACH {
        return variables;
    }
    processes::top_of_first_stack().unwrap_or(own.max(variables))
}

/// Starts the runtime. `thread_slot`: offset of the thread-local slot from the thread pointer.
///
/// # Safety
/// `variables` is the process's environment as the C library passes it to initialisers, or null.
pub(crate) unsafe fn start(variables: *const *const u8, thread_slot: u64) {
    if let Some(process) = process::process() {
        process.arena().count(everycall_format::arena::counter::SECOND_RUNTIMES, 1);
        return;
    }
    stacks::begin(top_of_first_stack(variables as u64));
    // SAFETY: the C library runs this as an initialiser.
    unsafe { last_error::find() };
    let environment = Environment { variables };
    let trusted = !environment.is_secure();
    let variable = |name: &str| environment.get(name).filter(|_| trusted || environment.is_given());

    let kept = variable(env::KEEP_ENDED).map_or(KeepEnded::DEFAULT, |text| {
        env::parse_keep_ended(text).unwrap_or_else(|| {
            complain(env::KEEP_ENDED, text, env::KEEP_ENDED_ALLOWED, "64M");
            KeepEnded::DEFAULT
        })
    });
    let shortest = variable(env::MIN_DURATION).and_then(|text| {
        let parsed = dropped::parse(text);
        if parsed.is_none() {
            complain(env::MIN_DURATION, text, dropped::ALLOWED, "0");
        }
        parsed
    });
    let counted = variable(env::COUNT).map_or(dropped::counting::OFF, |text| {
        dropped::parse_counting(text).unwrap_or_else(|| {
            complain(env::COUNT, text, dropped::COUNTING_ALLOWED, "no counts");
            dropped::counting::OFF
        })
    });
    let stamps = variable(env::CLOCK).map_or(stamp::EXACT, |text| {
        stamp::parse(text).unwrap_or_else(|| {
            complain(env::CLOCK, text, stamp::ALLOWED, "exact");
            stamp::EXACT
        })
    });
    if let Some(text) = variable(env::BUDGET) {
        match budget::parse(text) {
            Some(millionths) => governor::set(millionths),
            None => complain(env::BUDGET, text, budget::ALLOWED, "no budget"),
        }
    }
    // Only for an arena of the process's own: a recorder's arena already has its size.
    let own = || {
        let ring_size = variable(env::RING_SIZE).map_or(env::RING_SIZE_DEFAULT, |text| {
            env::parse_ring_size(text).unwrap_or_else(|| {
                complain(env::RING_SIZE, text, env::RING_SIZE_ALLOWED, "1M");
                env::RING_SIZE_DEFAULT
            })
        });
        let sites = variable(env::TRIGGERS).and_then(site_set::load).map_or(0, room_for_sites);
        let size = Size { ring_size, sites, has_times: dropped::counting::has_times(counted) };
        let in_file = variable(env::CRASH).and_then(|folder| in_file(folder, size));
        in_file.or_else(|| private(size).map(|arena| (arena, None)))
    };
    beginning::note();
    if trusted {
        own_memory::remember_user();
    }
    let arena = match variable(env::RECORDER).map(|path| (path, hub::open(path))) {
        Some((_, Ok(hub))) => match hub.take().and_then(given) {
            Some(arena) => Some((arena, None)),
            None => return fork::leave_out(&hub, child_kind::EXEC),
        },
        // The recorder has ended, or it belongs to another user and is invisible here.
        None | Some((_, Err(NotMemory::NotThere))) => own(),
        Some((path, Err(NotMemory::NotTrusted))) => {
            refuse_recorder(
                path,
                b" isn't a recorder of this program's user or root; start record as that user. Going on without it.\n",
            );
            own()
        }
        Some((path, Err(NotMemory::OtherVersion))) => {
            refuse_recorder(
                path,
                b" isn't a recorder of this version of everycall; use the one that built the program, or rebuild it. Going on without it.\n",
            );
            own()
        }
    };
    let Some((arena, file)) = arena else { return };
    if !process::begin(&arena, thread_slot) {
        if let Some(file) = &file {
            crash::give_up(file);
        }
        return;
    }
    match (&file, process::process()) {
        (Some(file), Some(process)) => crash::own(process, file),
        _ => beginning::put(&arena),
    }
    crate::state::dropped::begin_counting(&arena, counted);
    crate::state::memory::begin(&arena);
    crate::state::stamps::begin(&arena, stamps);
    if let Some(shortest) = shortest.filter(|_| crate::state::dropped::thresholds_ns(&arena).0 == 0) {
        min_duration::set(&arena, shortest);
    }
    let folder = variable(env::SNAPSHOT_FOLDER).unwrap_or(b".");
    let no_folder = |used| complain(env::SNAPSHOT_FOLDER, folder, "a folder that is there", used);
    if let Some(text) = variable(env::SNAPSHOT_SIGNAL) {
        match env::parse_signal(text) {
            None => complain(env::SNAPSHOT_SIGNAL, text, env::SNAPSHOT_SIGNAL_ALLOWED, "none"),
            Some(number) if !snapshot_signal::arm(number, folder) => no_folder("no signal for snapshots"),
            Some(_) => {}
        }
    }
    if thresholds::set().is_some() {
        keeper::begin(&arena);
        if !keeper::arm(folder) {
            no_folder("no triggers");
            thresholds::forget();
        }
    }
    if let Some(path) = variable(env::ONLY) {
        site_set::load_selection(path);
    }
    if let Some(path) = variable(env::ARGS).filter(|_| !crate::state::dropped::is_counting()) {
        captures::load(path);
    }
    // Calls that are counted have another price, and nothing that is to be corrected.
    #[cfg(any(feature = "executable", feature = "shared"))]
    if !crate::state::dropped::is_counting() {
        arena.put_calibration(&calibration::measure(thread_slot));
    }
    let on = match variable(env::START) {
        // `record`, or a variable that asks for something to be recorded, takes precedence over the
        // choice at the link.
        None => {
            hub::hub().is_some()
                || env::RECORDING.into_iter().any(|name| variable(name).is_some())
                || !starts_off()
        }
        Some(b"on") => true,
        Some(b"off") => false,
        Some(other) => {
            complain(env::START, other, "on or off", "on");
            true
        }
    };
    arena.state().store(if on { arena_state::TRACING } else { arena_state::OFF }, Relaxed);
    if let Some(hub) = hub::hub() {
        hub.ring();
    }
    if let Some(process) = process::process() {
        process.retired.keep(kept);
        if !on {
            recording::begin_off();
            selection::set_base_on(false);
        }
        filter::begin();
        process.state.store(process_state::ON, Release);
        #[cfg(any(feature = "executable", feature = "shared"))]
        // SAFETY: the runtime starts in an initialiser, and stays. Without such a C library, what
        // is forked while tracing is off can't be reached.
        let _ = unsafe { everycall_hooks::arch::call_in_forked_children(control_server::in_forked_child) };
        if !on || crate::state::dropped::is_counting() {
            // Hooks that don't record never detect a client's request, so the process listens from
            // the start.
            control_server::start(process);
        }
        if !governor::start(process) {
            system::warn(&[
                b"everycall: ",
                env::BUDGET.as_bytes(),
                b" needs a thread, and the system refuses one. Going on without a budget.\n",
            ]);
        }
    }
    // In a program that was built without hooks.
    #[cfg(feature = "shared")]
    hooks_asked::ask();
}

/// Whether the link of the program said that tracing is off at the start.
fn starts_off() -> bool {
    #[cfg(feature = "executable")]
    return everycall_hooks::starts_off();
    #[cfg(not(feature = "executable"))]
    false
}

/// The room for the sites of a set, in both halves. It allows for libraries that are loaded twice.
fn room_for_sites(set: &SiteSet<'_>) -> u32 {
    set.header().sites.saturating_mul(4).clamp(SITES_PER_PAGE, SITES).next_multiple_of(SITES_PER_PAGE)
}

/// Warns about a variable with an invalid value.
fn complain(name: &str, value: &[u8], allowed: &str, used: &str) {
    let shown = value.get(..value.len().min(100)).unwrap_or(value);
    system::warn(&[
        b"everycall: ",
        name.as_bytes(),
        b"=",
        shown,
        b" isn't understood; allowed is ",
        allowed.as_bytes(),
        b". Using ",
        used.as_bytes(),
        b".\n",
    ]);
}

/// Warns that `record` isn't accepted as the recorder, and why.
fn refuse_recorder(path: &[u8], why: &[u8]) {
    let shown = path.get(..path.len().min(100)).unwrap_or(path);
    system::warn(&[b"everycall: ", env::RECORDER.as_bytes(), b"=", shown, why]);
}

/// Maps one of the recorder's arenas and claims it.
fn given(spare: Spare) -> Option<Arena> {
    let Spare { file, header } = spare;
    let base = file.map_shared(header.arena_size)?;
    // SAFETY: just mapped and consistent; unmapped only below, where it isn't used any more.
    let arena = unsafe { Arena::new(base, header) };
    arena.put_origin(origin::START, system::parent_id(), 0);
    arena.put_start(&clock::reading());
    if arena.target_pid().compare_exchange(0, system::process_id(), AcqRel, Relaxed).is_err() {
        system::unmap(base, header.arena_size);
        return None;
    }
    arena.leave_out_of_dumps();
    Some(arena)
}

/// The facts that determine the size of an arena of the process's own.
#[derive(Clone, Copy)]
struct Size {
    ring_size: u64,
    /// Room for sites of triggers.
    sites: u32,
    /// Whether calls are timed.
    has_times: bool,
}

impl Size {
    /// The header of such an arena, with `functions` places of functions that are counted.
    fn layout(self, threads: u32, open_calls: u32, functions: u32) -> ArenaHeader {
        let (ring, sites) = (self.ring_size, self.sites);
        let header = ArenaHeader::with_stacks(ring, threads, EXTRA_SIZE, sites, open_calls, functions);
        if self.has_times { header.with_times() } else { header }
    }
}

/// Makes an arena of the process's own, for fewer functions and threads if memory is limited. It
/// takes at most
/// half of what the limit allows, because the program's own threads need memory, too.
fn private(size: Size) -> Option<Arena> {
    let allowed = system::address_space_limit() / 2;
    let mut threads = THREAD_CAPACITY;
    let mut functions = if size.has_times { TIMED_FUNCTIONS_MAX } else { FUNCTIONS_MAX };
    while threads > 0 {
        let header = size.layout(threads, OPEN_CALL_CAPACITY, functions);
        let fits = header.arena_size <= allowed;
        let mapped = if fits { own_memory::map(header.arena_size) } else { None };
        if let Some(base) = mapped {
            // SAFETY: just mapped, never unmapped; consistent by construction.
            let arena = unsafe { Arena::new(base, header) };
            arena.leave_out_of_dumps();
            begin_own(&arena);
            return Some(arena);
        }
        if functions == FUNCTIONS {
            threads /= 2;
        }
        functions = FUNCTIONS;
    }
    None
}

/// Makes an arena of the process's own in a crash file in `folder`. If that fails, warns why.
fn in_file(folder: &[u8], size: Size) -> Option<(Arena, Option<crash::Mapped>)> {
    let allowed = (system::address_space_limit() / 2).min(system::file_size_limit());
    let mut threads = THREAD_CAPACITY;
    let header = loop {
        let header = size.layout(threads, CRASH_OPEN_CALLS, FUNCTIONS);
        if header.arena_size <= allowed || threads == 1 {
            break header;
        }
        threads /= 2;
    };
    match crash::set_folder(folder).and_then(|()| crash::map(&header)) {
        Ok(mapped) => {
            // SAFETY: just mapped, consistent by construction, and unmapped only if the process
            // doesn't start to trace.
            let arena = unsafe { Arena::new(mapped.base, header) };
            begin_own(&arena);
            crash::begin(&arena);
            Some((arena, Some(mapped)))
        }
        Err(trouble) => {
            crash::forget();
            let shown = folder.get(..folder.len().min(200)).unwrap_or(folder);
            system::warn(&[
                b"everycall: ",
                env::CRASH.as_bytes(),
                b"=",
                shown,
                b" ",
                trouble.text(),
                b". Going on without a crash file.\n",
            ]);
            None
        }
    }
}

fn begin_own(arena: &Arena) {
    arena.put_header(arena.layout());
    arena.put_start(&clock::reading());
    arena.target_pid().store(system::process_id(), Relaxed);
}
