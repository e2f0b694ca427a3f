//! The processes of a recording: each gets an arena on request, and is observed until its end.
//!
//! A member is a process that has claimed its arena. It lives, ends, is written into the file, and
//! is then removed.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use everycall_format::arch::Machine;
use everycall_format::arena::{ArenaHeader, ChildEntry};
use everycall_format::ect::image_end;
use everycall_format::hub::origin;
use everycall_machine::clock::{self, ticks};
use everycall_machine::proc_files;

use crate::memory::arena::Arena;
use crate::memory::capacity::Capacity;
use crate::memory::frame_rules::Rules;
use crate::memory::hub::Hub;
use crate::process::armed::Armed;
use crate::process::member::{Life, Member};
use crate::process::module_files::Files;
use crate::process::selector::{Choosers, SelectFunctions};
use crate::process::triggers::{FindSites, TriggeredProcess};
use crate::tree::arenas::Arenas;
use crate::tree::ends::Ends;
use crate::tree::lineage::{ancestry, is_stranger};
use crate::tree::silent;

/// Number of thread names that are read at once, 5 us each: new processes wait for the tree
/// meanwhile.
const NAMES_AT_ONCE: u32 = 128;
/// Number of thread names of one process that are read at once at the end.
const NAMES_AT_ONCE_OF_ONE: u32 = 1024;

/// All processes, and the arenas for new ones.
pub(crate) struct ProcessTree {
    hub: Arc<Hub>,
    arenas: Arenas,
    /// When the recording began, in ticks: none of its processes began earlier.
    began: u64,
    /// Id of the started process, and its member number.
    started: Option<(u32, Option<u32>)>,
    living: Vec<Member>,
    ended: Vec<Member>,
    /// Number of the newest member with a process id.
    numbers: HashMap<u32, u32>,
    files: Files,
    next_number: u32,
    /// Processes that were left out, as their hooks read another counter than the first one's.
    of_other_clocks: u32,
    ends: Ends,
    choosers: Choosers,
    /// File names of libraries that each process should have loaded.
    libraries: Vec<Vec<u8>>,
    /// Processes that are no longer members, and that the keeper hasn't seen since.
    forgotten: Vec<TriggeredProcess>,
}

impl std::fmt::Debug for ProcessTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessTree").field("living", &self.living).finish_non_exhaustive()
    }
}

impl ProcessTree {
    /// An empty tree. Fails if not even one arena can be created.
    pub fn new(
        hub: Hub,
        capacity: Capacity,
        follow: bool,
        finder: Option<Box<dyn FindSites>>,
    ) -> io::Result<ProcessTree> {
        let hub = Arc::new(hub);
        let rules = finder.as_ref().map(|finder| Rules::of(&finder.frames())).unwrap_or_default();
        Ok(ProcessTree {
            arenas: Arenas::new(Arc::clone(&hub), capacity, follow, rules)?,
            hub,
            began: ticks(),
            started: None,
            living: Vec::new(),
            ended: Vec::new(),
            numbers: HashMap::new(),
            files: Files::default(),
            next_number: 0,
            of_other_clocks: 0,
            ends: Ends::new(),
            choosers: Choosers { finder, selectors: Vec::new() },
            libraries: Vec::new(),
            forgotten: Vec::new(),
        })
    }

    /// Passes each module that a process loads to `selector`.
    pub fn select_with(&mut self, selector: Box<dyn SelectFunctions>) {
        self.choosers.selectors.push(selector);
        self.hub.page().selects().store(1, Ordering::Relaxed);
    }

    /// Passes each module that a process loads to `capturer`, which adds to the capture set.
    pub fn capture_with(&mut self, capturer: Box<dyn SelectFunctions>) {
        self.choosers.selectors.push(capturer);
        self.hub.page().captures().store(1, Ordering::Relaxed);
    }

    /// Processes should have loaded libraries with these file names when they join.
    pub fn expect_libraries(&mut self, names: Vec<Vec<u8>>) {
        self.libraries = names;
    }

    /// The hub by which processes join.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Processes all messages from the runtimes.
    pub fn attend(&mut self) {
        let claimed = self.arenas.attend();
        let has_new = !claimed.is_empty();
        claimed.into_iter().for_each(|arena| self.adopt(arena));
        if has_new {
            self.find_parents();
        }
        for member in &mut self.living {
            member.look(&mut self.files, &mut self.choosers);
        }
        if has_new {
            self.ends.announce();
        }
    }

    /// Forked children may be found before their parents.
    fn find_parents(&mut self) {
        let forked = |member: &&mut Member| member.origin == origin::FORK && member.parent.is_none();
        for member in self.living.iter_mut().chain(&mut self.ended).filter(forked) {
            let parent = self.numbers.get(&member.forked_from).copied();
            member.parent = parent.filter(|parent| *parent != member.number);
        }
    }

    /// Adds the process that has claimed `arena`.
    fn adopt(&mut self, arena: Arc<Arena>) {
        // Can't fail, because the memory is ours.
        let _ = arena.unmark_spare();
        let header = arena.header();
        let machine = Machine::of_record(header.machine);
        if self.next_number == 0 {
            clock::count_as(machine);
        }
        if !clock::counts(machine) {
            // Its times can't be told beside those of the others.
            self.of_other_clocks += 1;
            return;
        }
        let now = ticks();
        // The header may have been overwritten.
        let is_possible = (self.began..now).contains(&header.start.ticks);
        let start_ticks = if is_possible { header.start.ticks } else { now };
        let parent = self.parent_of(&header, start_ticks);
        let forked_from = parent.filter(|_| header.origin == origin::FORK);
        let forked_from =
            forked_from.and_then(|number| self.members().find(|member| member.number == number));
        let number = self.next_number;
        let mut member = Member::new(number, arena, &header, start_ticks, parent, forked_from);
        // One that has ended meanwhile had them, as far as is known.
        member.lacks_libraries = match forked_from {
            _ if self.libraries.is_empty() => false,
            Some(parent) => parent.lacks_libraries,
            None => proc_files::has_mapped(member.pid, &self.libraries) == Some(false),
        };
        if self.choosers.finder.is_some() {
            member.armed = Armed::of(&member.arena, forked_from.map(|parent| &parent.armed));
        }
        self.next_number += 1;
        self.numbers.insert(member.pid, number);
        if let Some((_, known @ None)) = self.started.as_mut().filter(|(started, _)| *started == member.pid) {
            *known = Some(number);
        }
        match Life::of(member.pid) {
            Life::Over => return self.end_member(member, now),
            // The id may have been overwritten by that of a thread, for which there is no
            // descriptor.
            Life::Told(_) | Life::Unknown if is_stranger(member.pid, member.arena.inode()) => {
                member.is_stranger = true;
            }
            Life::Told(pidfd) => member.pidfd = self.ends.add(pidfd, number),
            // Its end is checked regularly.
            Life::Unknown => {}
        }
        self.living.push(member);
    }

    /// The number of the parent member of a new process, which replaced its program at
    /// `start_ticks` if it has the same id.
    fn parent_of(&mut self, header: &ArenaHeader, start_ticks: u64) -> Option<u32> {
        let forked = header.origin == origin::FORK;
        let replaced = self.living.iter().position(|member| member.pid == header.target_pid).map(|place| {
            // A forked child that reuses the id of a process whose end wasn't found yet; otherwise
            // the process executed another program.
            let ending = if forked { image_end::ENDED } else { image_end::EXEC };
            let mut old = self.living.swap_remove(place);
            old.end = Some((ending, start_ticks));
            old.pidfd = None;
            let number = old.number;
            self.ended.push(old);
            number
        });
        if forked {
            return self.numbers.get(&header.forked_from).copied();
        }
        // Processes in between may have ended. If the started process is traced, all others descend
        // from it.
        replaced
            .or_else(|| self.ancestor(header.parent_pid))
            .or_else(|| self.started.and_then(|(_, number)| number))
    }

    /// The member that a process descends from, according to its parent's id.
    fn ancestor(&self, pid: u32) -> Option<u32> {
        ancestry(pid)
            .take_while(|pid| *pid > 1)
            .find_map(|pid| self.living.iter().find(|member| member.pid == pid).map(|member| member.number))
    }

    /// Records that a member's process has ended at `now`.
    fn end_member(&mut self, mut member: Member, now: u64) {
        member.look(&mut self.files, &mut self.choosers);
        member.end = Some((image_end::ENDED, now));
        // Closes it, which also unregisters it.
        member.pidfd = None;
        self.ended.push(member);
    }

    /// Process `pid` has ended, and took this CPU time in all, nanoseconds.
    pub fn took(&mut self, pid: u32, cpu_ns: Option<u64>) {
        let members = self.ended.iter_mut().chain(&mut self.living);
        // Of several programs that it ran one after the other, the last one has it all.
        if let Some(member) = members.filter(|member| member.pid == pid).max_by_key(|member| member.number) {
            member.cpu_ns = cpu_ns;
        }
    }

    /// The program has been started as process `pid`.
    pub fn has_started(&mut self, pid: u32) {
        let number = self.members().find(|member| member.pid == pid).map(|member| member.number);
        self.started = Some((pid, number));
    }

    /// Number of processes that ran untraced although they should have been recorded, as far as
    /// they could report it.
    pub fn untraced(&self) -> u32 {
        self.hub.header().untraced.saturating_add(self.arenas.dropped()).saturating_add(self.of_other_clocks)
    }

    /// All processes with triggers, when the recording ends.
    pub fn triggered_last(&mut self) -> Vec<TriggeredProcess> {
        let mut processes = std::mem::take(&mut self.forgotten);
        processes.extend(self.members().filter_map(Member::triggered_last));
        processes
    }

    /// The processes with triggers, and those that have ended since the last call.
    pub fn triggered(&mut self) -> Vec<TriggeredProcess> {
        let mut processes = std::mem::take(&mut self.forgotten);
        processes.extend(self.members().filter_map(Member::triggered));
        processes
    }

    /// Opens the program at `path`, which is about to be started.
    pub fn open_started(&mut self, path: &Path) {
        self.files.open_started(path);
    }

    /// The descriptor that is readable when a process has ended or is new.
    pub fn ends(&self) -> Option<Arc<OwnedFd>> {
        self.ends.descriptor()
    }

    /// Whether some members' ends must be checked regularly.
    pub fn has_members_to_ask(&self) -> bool {
        self.living.iter().any(Member::is_to_be_asked)
    }

    /// Finds processes that have ended.
    pub fn notice_ends(&mut self) {
        let now = ticks();
        let mut gone = self.ends.next();
        let asked = self.living.iter().filter(|member| member.is_to_be_asked() && member.is_over());
        gone.extend(asked.map(|member| u64::from(member.number)));
        if !gone.is_empty() {
            // Before its end, one of them may have executed another program, which is then what has
            // ended.
            self.attend();
        }
        for number in gone {
            if let Some(place) = self.living.iter().position(|member| u64::from(member.number) == number) {
                let member = self.living.swap_remove(place);
                self.end_member(member, now);
            }
        }
    }

    fn ended_now(&mut self) -> usize {
        let before = self.living.len();
        self.notice_ends();
        before.saturating_sub(self.living.len())
    }

    /// Reads the names of threads if it is time.
    pub fn look_at_names(&mut self, all: bool) -> Option<Instant> {
        let now = Instant::now();
        // The others stay due: other threads can lock the tree in between.
        let mut left = if all { u32::MAX } else { NAMES_AT_ONCE };
        for member in &mut self.living {
            if all || left > 0 && member.names_due <= now {
                left -= member.look_at_names(left.min(NAMES_AT_ONCE_OF_ONE)).min(left);
                member.names_due = now + member.names.pause();
            }
        }
        self.living.iter().map(|member| member.names_due).min()
    }

    /// The members that were not taken yet.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.living.iter().chain(&self.ended)
    }

    /// The members that run, as far as is known, and are the program's.
    pub fn of_program(&self) -> impl Iterator<Item = &Member> {
        self.members().filter(|member| member.end.is_none() && !member.is_stranger)
    }

    /// Whether a living process's end will be signalled.
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

    /// The ended members that exceed the limits: the oldest ones, in the order of their ends.
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
        self.forgotten.extend(taken.iter().filter_map(Member::triggered_last));
        taken
    }

    /// Ends the recording: no more arenas are given out. Returns all remaining members, sorted by
    /// number; those that still run end at `now`.
    pub fn end(&mut self, now: u64) -> Vec<Member> {
        self.arenas.stop();
        self.attend();
        self.arenas.close();
        // Repeats, because ends are received a few at a time.
        while self.ended_now() > 0 {}
        let mut all: Vec<Member> = self.ended.drain(..).chain(self.living.drain(..)).collect();
        for member in &mut all {
            member.end.get_or_insert((image_end::RUNNING, now));
        }
        all.sort_by_key(|member| member.number);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc;

    use everycall_format::env::RING_SIZE_MIN;

    use super::*;
    use crate::memory::arena::Unrecorded;

    /// Programs may replace their number by any other.
    #[test]
    fn the_end_of_foreign_processes_isnt_awaited() {
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
            let capacity = Capacity::find(RING_SIZE_MIN, None, None, Unrecorded::Nothing, false, 0).unwrap();
            let mut tree = ProcessTree::new(Hub::create(true).unwrap(), capacity, true, None).unwrap();
            let arena = tree.arenas.first_spare().unwrap();
            let at = offset_of!(ArenaHeader, target_pid) as u64;
            rustix::io::pwrite(arena.file(), &pid.to_le_bytes(), at).unwrap();
            tree.hub.page().spares().next().unwrap().store(0, Ordering::Release);
            tree.attend();
            tree.notice_ends();
            assert_eq!(tree.members().count(), 1, "{what}");
            assert!(!tree.has_living(), "{what}, {pid}");
        }
        drop(end);
        other.join().unwrap();
    }
}
