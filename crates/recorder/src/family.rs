//! The processes of a recording: each gets an arena when it asks for one, and is looked after until its end.
//!
//! ```text
//! spares   in the hub, nobody's            -- a process takes one: its place is 0 -->
//! taken    on its way to somebody          -- it is claimed: `target_pid` is set  -->
//! members  claimed; living, then ended     -- written into the file, forgotten    -->
//! ```

use std::collections::HashMap;
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use everycall_format::arena::ChildEntry;
use everycall_format::ect::image_end;
use everycall_format::hub::{SPARES, origin, silence};
use everycall_format::trigger::TriggerSite;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

use crate::arena::{Arena, Capacity};
use crate::counter::ticks;
use crate::hub::Hub;
use crate::modules::{Files, Modules};
use crate::names::Names;
use crate::proc_files::Name;
use crate::shared_triggers::SharedTriggers;
use crate::triggers::{FindSites, Watched};
use crate::{proc_files, silent};

/// A traced process: one program's run in it.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its number in the file.
    pub number: u32,
    pub arena: Arc<Arena>,
    pub pid: u32,
    pub parent_pid: u32,
    /// Process that it was forked from, where it was.
    forked_from: u32,
    /// Number of the member that it comes from.
    pub parent: Option<u32>,
    /// One of [`origin`].
    pub origin: u32,
    /// When it began to be traced, in ticks.
    pub start_ticks: u64,
    pub name: Name,
    /// Words of its command line, each ended by a zero byte.
    pub command: Vec<u8>,
    pub names: Names,
    pub modules: Modules,
    /// When its threads' names are looked at again.
    names_due: Instant,
    /// Tells of its end; none where the kernel has none to give.
    pidfd: Option<OwnedFd>,
    /// Whether the process with its id is another one, as the arena was written over or the id is that of another namespace: nobody
    /// knows when it ends.
    is_stranger: bool,
    /// [`image_end`] and ticks, once it is over.
    pub end: Option<(u32, u64)>,
    /// The triggers in its arena.
    triggers: Option<Arc<SharedTriggers>>,
    /// What triggers name in each module, shared with forked children: there may be a million.
    sites: Vec<(Whose, Arc<[TriggerSite]>)>,
    /// [`SharedTriggers::generation`] that goes with them.
    generation: u32,
    /// Those of them that had no room in its arena at some time: their first code offset and trigger.
    left_out: Arc<HashSet<(u32, u32)>>,
}

/// Which module an entry of the module table has: how many had the entry before, where its code begins, when it was loaded.
type Whose = (u32, u32, u64);

/// What a forked child has of its parent.
#[derive(Default)]
struct OfParent {
    command: Vec<u8>,
    name: Name,
    sites: Vec<(Whose, Arc<[TriggerSite]>)>,
    generation: u32,
    left_out: Arc<HashSet<(u32, u32)>>,
}

/// All processes, and the arenas for those to come.
pub(crate) struct Family {
    pub hub: Arc<Hub>,
    capacity: Capacity,
    /// When the recording began, in ticks: no process of it began earlier.
    began: u64,
    /// How many spare arenas there are to be.
    spares_wanted: usize,
    spares: [Option<Arc<Arena>>; SPARES],
    /// Each with the time at which it was missing from the hub.
    taken: Vec<(Arc<Arena>, Instant)>,
    /// Arenas that were taken and never claimed.
    dropped: u32,
    /// The process that was started, and the number of the member that it is.
    started: Option<(u32, Option<u32>)>,
    living: Vec<Member>,
    ended: Vec<Member>,
    /// Number of the newest member with a process id.
    numbers: HashMap<u32, u32>,
    files: Files,
    next_number: u32,
    /// Readable when somebody has ended, or is new; none where the kernel has none to give.
    ends: Option<Arc<OwnedFd>>,
    news: Option<OwnedFd>,
    /// Knows which functions triggers name.
    sites: Option<Box<dyn FindSites>>,
    /// Processes that aren't members any more, and that whoever keeps calls hasn't seen since.
    retired: Vec<Watched>,
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family").field("living", &self.living).finish_non_exhaustive()
    }
}

/// Generations of processes that are looked at.
const GENERATIONS: usize = 16;
/// In the place of a member's number, for news.
const NEWS: u64 = u64::MAX;
/// Ends that are heard of together.
const ENDS_AT_ONCE: usize = 64;
/// Arenas that were taken and not claimed yet. Claiming takes some microseconds, so there are few, unless the hub was written over:
/// beyond this number there are no new ones until some are claimed or dropped.
const TAKEN_MAX: usize = 32 * SPARES;
/// An arena that isn't claimed for so long never will be: its process has ended, or the hub was written over.
const CLAIM_TIME: Duration = Duration::from_secs(10);
/// Names of threads that are read in one go, some 5 us each: processes that start wait for the family.
const NAMES_AT_ONCE: u32 = 128;
/// The same at the end, for one process.
const NAMES_AT_ONCE_OF_ONE: u32 = 1024;
/// Spare arenas where one process alone is followed.
const SPARES_ALONE: usize = 1;

impl Family {
    /// A family without members. Not even one arena is an error.
    pub fn new(
        hub: Hub,
        capacity: Capacity,
        follow: bool,
        sites: Option<Box<dyn FindSites>>,
    ) -> io::Result<Family> {
        let mut family = Family {
            hub: Arc::new(hub),
            capacity,
            began: ticks(),
            spares_wanted: if follow { SPARES } else { SPARES_ALONE },
            spares: [const { None }; SPARES],
            taken: Vec::new(),
            dropped: 0,
            started: None,
            living: Vec::new(),
            ended: Vec::new(),
            numbers: HashMap::new(),
            files: Files::default(),
            next_number: 0,
            ends: epoll::create(CreateFlags::CLOEXEC).ok().map(Arc::new),
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok(),
            sites,
            retired: Vec::new(),
        };
        if let (Some(ends), Some(news)) = (&family.ends, &family.news) {
            let flags = EventFlags::IN | EventFlags::ET;
            let _ = epoll::add(ends, news, EventData::new_u64(NEWS), flags);
        }
        family.refill()?;
        if !follow {
            // Whoever comes first is the one.
            family.spares_wanted = 0;
        }
        Ok(family)
    }

    /// Deals with all that processes have told.
    pub fn attend(&mut self) {
        let hub = Arc::clone(&self.hub);
        let now = Instant::now();
        for (place, spare) in hub.page().spares().zip(&mut self.spares) {
            if place.load(Ordering::Acquire) == 0 {
                self.taken.extend(spare.take().map(|arena| (arena, now)));
            }
        }
        // Without an arena left to give, those that come run untraced and are counted.
        if self.taken.len() < TAKEN_MAX {
            let _ = self.refill();
        }
        let before = self.next_number;
        let is_claimed = |(arena, _): &mut (Arc<Arena>, Instant)| arena.header().target_pid != 0;
        let claimed: Vec<_> = self.taken.extract_if(.., is_claimed).collect();
        let before_drop = self.taken.len();
        self.taken.retain(|(_, since)| now.saturating_duration_since(*since) < CLAIM_TIME);
        self.dropped = self.dropped.saturating_add((before_drop - self.taken.len()) as u32);
        claimed.into_iter().for_each(|(arena, _)| self.adopt(arena));
        if self.next_number != before {
            self.find_parents();
        }
        for member in &mut self.living {
            member.look(&mut self.files, self.sites.as_deref_mut());
        }
        if self.next_number != before
            && let Some(news) = &self.news
        {
            let _ = rustix::io::write(news, &1_u64.to_ne_bytes());
        }
    }

    fn refill(&mut self) -> io::Result<()> {
        let hub = Arc::clone(&self.hub);
        for (place, spare) in hub.page().spares().zip(&mut self.spares).take(self.spares_wanted) {
            if spare.is_none() {
                let arena = Arc::new(self.capacity.arena()?);
                place.store(arena.number(), Ordering::Release);
                *spare = Some(arena);
            }
        }
        Ok(())
    }

    /// Forked children may be noticed before their parents.
    fn find_parents(&mut self) {
        let forked = |member: &&mut Member| member.origin == origin::FORK && member.parent.is_none();
        for member in self.living.iter_mut().chain(&mut self.ended).filter(forked) {
            let parent = self.numbers.get(&member.forked_from).copied();
            member.parent = parent.filter(|parent| *parent != member.number);
        }
    }

    fn adopt(&mut self, arena: Arc<Arena>) {
        // It can't fail: the memory is ours.
        let _ = arena.unmark_spare();
        let header = arena.header();
        let pid = header.target_pid;
        let now = ticks();
        // Somebody may have written over it.
        let start_ticks =
            if (self.began..now).contains(&header.start.ticks) { header.start.ticks } else { now };
        let forked = header.origin == origin::FORK;
        let mut replaced = None;
        if let Some(place) = self.living.iter().position(|member| member.pid == pid) {
            // A forked child with the process id of somebody who hasn't been buried yet; else it executed another program.
            let ending = if forked { image_end::ENDED } else { image_end::EXEC };
            let mut old = self.living.swap_remove(place);
            old.end = Some((ending, start_ticks));
            old.pidfd = None;
            replaced = (!forked).then_some(old.number);
            self.ended.push(old);
        }
        let parent = match replaced {
            Some(number) => Some(number),
            None if forked => self.numbers.get(&header.forked_from).copied(),
            // Processes in between may have ended by now.
            None => self.ancestor(header.parent_pid).or_else(|| self.started_member()),
        };
        let of_parent = self.of_parent(parent.filter(|_| forked)).unwrap_or_default();
        // What the process itself says is there though it has ended by now, and what it was started with though the kernel shows a title.
        let (began, named) = arena.beginning().unzip();
        let (command, name) = began
            .flatten()
            .or_else(|| proc_files::command_line(pid))
            .zip(proc_files::name(pid).or(named))
            .unwrap_or((of_parent.command, of_parent.name));
        let pidfd = process(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let number = self.next_number;
        self.next_number += 1;
        self.numbers.insert(pid, number);
        let mut member = Member {
            number,
            arena,
            pid,
            parent_pid: header.parent_pid,
            forked_from: header.forked_from,
            parent,
            origin: match (forked, parent) {
                (true, _) => origin::FORK,
                (false, Some(_)) => origin::EXEC,
                (false, None) => origin::START,
            },
            start_ticks,
            name,
            command,
            names: Names::default(),
            modules: Modules::default(),
            names_due: Instant::now(),
            pidfd: None,
            is_stranger: false,
            end: None,
            triggers: None,
            sites: Vec::new(),
            generation: 0,
            left_out: Arc::default(),
        };
        if let Some((_, known @ None)) = self.started.as_mut().filter(|(started, _)| *started == pid) {
            *known = Some(number);
        }
        if self.sites.is_some() {
            member.triggers = SharedTriggers::map(&member.arena).ok().flatten().map(Arc::new);
            let generation = member.triggers.as_ref().map_or(0, |triggers| triggers.generation());
            // A forked child has copied its parent's sites, unless they were being replaced.
            if generation != 0 && generation == of_parent.generation {
                member.sites = of_parent.sites;
                member.generation = generation;
                member.left_out = of_parent.left_out;
            }
        }
        match pidfd {
            None | Some(Err(Errno::SRCH)) => {
                member.look(&mut self.files, self.sites.as_deref_mut());
                member.end = Some((image_end::ENDED, now));
                return self.ended.push(member);
            }
            // Somebody may have written the number of a thread, which no descriptor can be had of.
            Some(_) if self.is_stranger(pid, member.arena.inode()) => member.is_stranger = true,
            Some(Ok(pidfd)) => {
                let number = EventData::new_u64(number.into());
                let added = self.ends.as_ref().map(|ends| epoll::add(ends, &pidfd, number, EventFlags::IN));
                member.pidfd = Some(pidfd).filter(|_| matches!(added, Some(Ok(()))));
            }
            // An old kernel, or no descriptor left: it is asked for from time to time.
            Some(Err(_)) => {}
        }
        self.living.push(member);
    }

    /// What a child forked from member `number` has of it.
    fn of_parent(&self, number: Option<u32>) -> Option<OfParent> {
        let number = number?;
        let parent = self.members().find(|member| member.number == number)?;
        Some(OfParent {
            command: parent.command.clone(),
            name: parent.name,
            sites: parent.sites.clone(),
            generation: parent.generation,
            left_out: Arc::clone(&parent.left_out),
        })
    }

    /// The process that was started. If it is traced, all others descend from it.
    fn started_member(&self) -> Option<u32> {
        self.started.and_then(|(_, number)| number)
    }

    /// The program runs, as process `pid`.
    pub fn has_started(&mut self, pid: u32) {
        let number = self.members().find(|member| member.pid == pid).map(|member| member.number);
        self.started = Some((pid, number));
    }

    /// Processes that ran untraced though they should have been followed, as far as they could say so.
    pub fn untraced(&self) -> u32 {
        self.hub.header().untraced.saturating_add(self.dropped)
    }

    /// Whether process `pid`, which lives, can't be the one that has claimed the arena in memory file `inode`.
    fn is_stranger(&self, pid: u32, inode: u64) -> bool {
        let own = std::process::id();
        let began = |pid| proc_files::stat(pid).map(|stat| stat.started);
        let is_older = matches!((began(pid), began(own)), (Ok(its), Ok(ours)) if its < ours);
        pid == own || is_older || !descends_from(pid, own) && silent::maps_arena(pid, inode) == Some(false)
    }

    /// The member that a process descends from, by its parent's process id.
    fn ancestor(&self, mut pid: u32) -> Option<u32> {
        for _ in 0..GENERATIONS {
            if pid <= 1 {
                return None;
            }
            if let Some(member) = self.living.iter().find(|member| member.pid == pid) {
                return Some(member.number);
            }
            pid = proc_files::stat(pid).ok()?.parent;
        }
        None
    }

    /// The processes with triggers, and those that have gone since the last call.
    pub fn watched(&mut self) -> Vec<Watched> {
        let mut watched = std::mem::take(&mut self.retired);
        watched.extend(self.members().filter_map(Member::watched));
        watched
    }

    /// Opens the program at `path`, which is about to be started.
    pub fn open_started(&mut self, path: &Path) {
        self.files.open_started(path);
    }

    /// What is readable when somebody has ended, or is new.
    pub fn ends(&self) -> Option<Arc<OwnedFd>> {
        self.ends.clone()
    }

    /// Whether the end of a member has to be asked for.
    pub fn has_members_to_ask(&self) -> bool {
        self.living.iter().any(Member::is_to_be_asked)
    }

    /// Finds out who has ended.
    pub fn bury(&mut self) {
        let now = ticks();
        let mut gone = Vec::new();
        if let Some(ends) = &self.ends {
            let mut events = Vec::with_capacity(ENDS_AT_ONCE);
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            if epoll::wait(ends, spare_capacity(&mut events), Some(&at_once)).is_ok() {
                gone.extend(events.iter().map(|event| event.data.u64()));
            }
        }
        let asked = self.living.iter().filter(|member| member.is_to_be_asked() && member.is_over());
        gone.extend(asked.map(|member| u64::from(member.number)));
        if !gone.is_empty() {
            // Before its end one of them may have executed another program, which then is what has ended.
            self.attend();
        }
        for number in gone {
            let Some(place) = self.living.iter().position(|member| u64::from(member.number) == number) else {
                continue;
            };
            let mut member = self.living.swap_remove(place);
            member.look(&mut self.files, self.sites.as_deref_mut());
            member.end = Some((image_end::ENDED, now));
            // Closes it, and so ends its place among those that are waited for.
            member.pidfd = None;
            self.ended.push(member);
        }
    }

    fn ended_now(&mut self) -> usize {
        let before = self.living.len();
        self.bury();
        before - self.living.len()
    }

    /// Looks at the names of threads where it is time to.
    pub fn look_at_names(&mut self, all: bool) -> Option<Instant> {
        let now = Instant::now();
        // The others stay due: whoever waits for the family gets it in between.
        let mut left = if all { u32::MAX } else { NAMES_AT_ONCE };
        for member in &mut self.living {
            if all || left > 0 && member.names_due <= now {
                left -= member.names.poll(&member.arena, left.min(NAMES_AT_ONCE_OF_ONE)).min(left);
                member.names_due = now + member.names.pause();
            }
        }
        self.living.iter().map(|member| member.names_due).min()
    }

    /// Those that were not taken yet.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.living.iter().chain(&self.ended)
    }

    /// Whether somebody lives whose end will be heard of.
    pub fn has_living(&self) -> bool {
        self.living.iter().any(|member| !member.is_stranger)
    }

    /// Forked children that may yet become members: they have made no traced call so far.
    pub fn silent_children(&self) -> Vec<ChildEntry> {
        let left_out = self.hub.children();
        let is_known = |pid| {
            self.living.iter().any(|member| member.pid == pid)
                || left_out.iter().any(|child| child.pid == pid)
        };
        silent::children(self.hub.inode(), is_known)
    }

    /// The ended members beyond what may be kept: the oldest ones, in the order of their ends.
    pub fn take_ended(&mut self, kept: usize, bytes_kept: u64) -> Vec<Member> {
        let sizes: Vec<u64> = self.ended.iter().map(|member| member.arena.allocated()).collect();
        let mut bytes = sizes.iter().copied().fold(0, u64::saturating_add);
        let mut count = self.ended.len();
        let mut excess = 0;
        for size in sizes {
            if count <= kept && bytes <= bytes_kept {
                break;
            }
            count -= 1;
            bytes = bytes.saturating_sub(size);
            excess += 1;
        }
        let taken: Vec<Member> = self.ended.drain(..excess).collect();
        self.retired.extend(taken.iter().filter_map(Member::watched));
        taken
    }

    /// Ends the recording: nobody gets an arena any more. All members that are left, in the order of their numbers; those
    /// that still run end at `now`.
    pub fn disband(&mut self, now: u64) -> Vec<Member> {
        self.spares_wanted = 0;
        self.attend();
        let page = self.hub.page();
        page.follow().store(0, Ordering::Relaxed);
        page.silent().store(silence::OVER, Ordering::Relaxed);
        page.spares().for_each(|place| place.store(0, Ordering::Release));
        // As many as there are: ends come in handfuls.
        while self.ended_now() > 0 {}
        let mut all: Vec<Member> = self.ended.drain(..).chain(self.living.drain(..)).collect();
        for member in &mut all {
            member.end.get_or_insert((image_end::RUNNING, now));
        }
        all.sort_by_key(|member| member.number);
        all
    }
}

impl Member {
    fn watched(&self) -> Option<Watched> {
        let triggers = Arc::clone(self.triggers.as_ref()?);
        Some(Watched { number: self.number, pid: self.pid, arena: Arc::clone(&self.arena), triggers })
    }

    /// Takes hold of the files of new modules, and names their functions that triggers want.
    fn look(&mut self, files: &mut Files, finder: Option<&mut (dyn FindSites + 'static)>) {
        // Before: who gave up by then has its module in the table.
        let given_up = self.triggers.as_ref().map_or(0, |triggers| triggers.given_up());
        self.modules.look(&self.arena, files);
        if let Some(finder) = finder {
            self.find_sites(finder);
        }
        if let Some(triggers) = &self.triggers {
            triggers.hear_of(given_up);
        }
    }

    fn find_sites(&mut self, finder: &mut dyn FindSites) {
        let mut new = Vec::new();
        for (place, (module, path, file)) in self.modules.present().enumerate() {
            let whose = (module.predecessors, module.code_start, module.loaded_ticks);
            if self.sites.get(place).is_some_and(|(known, _)| *known == whose) {
                continue;
            }
            let sites = finder.sites(module, path, file);
            if !sites.is_empty() {
                new.push((place, module.loaded_ticks));
            }
            while self.sites.len() <= place {
                self.sites.push((Whose::default(), Arc::default()));
            }
            self.sites[place] = (whose, sites.into());
        }
        if new.is_empty() {
            return;
        }
        let given_up = match &self.triggers {
            None => u64::MAX,
            Some(triggers) => {
                let all = self.sites.iter().flat_map(|(_, sites)| sites.iter());
                self.generation = self.generation.wrapping_add(1).max(1);
                let mut left_out = triggers.replace(all.copied().collect(), self.generation);
                // Those that had no room before are counted already.
                if !left_out.is_empty() {
                    let known = Arc::make_mut(&mut self.left_out);
                    left_out.retain(|site| known.insert((site.first, site.rule)));
                }
                finder.unwatched(&left_out);
                // Afterwards: whoever gives up from now on goes on with these.
                triggers.given_up()
            }
        };
        for (place, _) in new.into_iter().filter(|(_, loaded_ticks)| *loaded_ticks < given_up) {
            finder.late(&self.sites[place].1);
        }
    }

    /// Whether the kernel doesn't tell of its end.
    fn is_to_be_asked(&self) -> bool {
        self.pidfd.is_none() && !self.is_stranger
    }

    /// Whether the process is gone, for kernels that don't tell.
    fn is_over(&self) -> bool {
        process(self.pid).is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }
}

/// Whether `pid` is a descendant of `ancestor`.
fn descends_from(mut pid: u32, ancestor: u32) -> bool {
    for _ in 0..GENERATIONS {
        match proc_files::stat(pid) {
            Ok(stat) if stat.parent == ancestor => return true,
            Ok(stat) if stat.parent > 1 => pid = stat.parent,
            _ => return false,
        }
    }
    false
}

/// The process with a number that may be anything.
fn process(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::sync::mpsc;

    use everycall_format::arena::ArenaHeader;
    use everycall_format::env::RING_SIZE_MIN;

    use super::*;

    /// Programs may write any number in the place of their own.
    #[test]
    fn nobody_waits_for_the_end_of_strangers() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let waits = move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = ended.recv();
        };
        let other = std::thread::Builder::new().spawn(waits).unwrap();
        let thread = told.recv().unwrap();
        for (pid, what) in
            [(std::process::id(), "the recorder"), (1, "the first process"), (thread, "a thread")]
        {
            let capacity = Capacity::find(RING_SIZE_MIN, None, None).unwrap();
            let mut family = Family::new(Hub::create(true).unwrap(), capacity, true, None).unwrap();
            let arena = Arc::clone(family.spares[0].as_ref().unwrap());
            let at = offset_of!(ArenaHeader, target_pid) as u64;
            rustix::io::pwrite(arena.file(), &pid.to_le_bytes(), at).unwrap();
            family.hub.page().spares().next().unwrap().store(0, Ordering::Release);
            family.attend();
            family.bury();
            assert_eq!(family.members().count(), 1, "{what}");
            assert!(!family.has_living(), "{what}, {pid}");
        }
        drop(end);
        other.join().unwrap();
    }
}
