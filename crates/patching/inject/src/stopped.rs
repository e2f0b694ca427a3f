//! All threads of a process, stopped.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use crate::error::{InjectError, failed};
use crate::maps::mappings;
use crate::memory::Memory;
use crate::pages::{Found, Pages, is_on_one};
use crate::patches::{Outcome, PatchSet};
use crate::procfs::threads;
use crate::stacks::Stacks;
use crate::sys::Registers;
use crate::thread::{SYSCALL_SIZE, Thread, is_restarted};

/// A process none of whose threads runs. They go on when this is dropped.
pub struct Stopped<'a> {
    pid: i32,
    memory: &'a Memory,
    threads: Vec<Thread>,
}

impl<'a> Stopped<'a> {
    /// Stops threads until no new one appears.
    pub(crate) fn new(
        pid: i32,
        memory: &'a Memory,
        held: Option<Thread>,
        deadline: Instant,
    ) -> Result<Self, InjectError> {
        let mut known: BTreeSet<i32> = held.iter().map(|thread| thread.tid).collect();
        let mut stopped: Vec<Thread> = held.into_iter().collect();
        loop {
            let mut new = Vec::new();
            for tid in threads(pid) {
                if !known.insert(tid) {
                    continue;
                }
                if let Some(thread) = Thread::seize(pid, tid)? {
                    thread.request_stop()?;
                    new.push(thread);
                }
            }
            if new.is_empty() {
                break;
            }
            // A thread that runs yet may start another one: hence the next look.
            for mut thread in new {
                if thread.wait_for_stop(deadline)? {
                    thread.hide_the_stop()?;
                    stopped.push(thread);
                }
            }
            if Instant::now() >= deadline {
                return Err(InjectError::Refused(format!(
                    "process {pid} starts threads faster than they can be stopped"
                )));
            }
        }
        if stopped.is_empty() {
            return Err(InjectError::Ended { pid });
        }
        Ok(Self { pid, memory, threads: stopped })
    }

    /// How many threads are stopped.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Lets all threads go on but the one that was held before.
    pub(crate) fn release(mut self, held: Option<i32>) -> Option<Thread> {
        let index = self.threads.iter().position(|thread| Some(thread.tid) == held)?;
        Some(self.threads.swap_remove(index))
    }

    /// Writes patches; threads inside of replaced bytes are moved. One answer for each set.
    ///
    /// If the tracer is killed meanwhile, each patch is written or not, and the process goes on.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to write: what was written is written back. Or the process has ended,
    /// or a patch is on two pages.
    pub fn apply(&self, sets: &[PatchSet]) -> Result<Vec<Outcome>, InjectError> {
        let mut places = self.places()?;
        let mut pages = Pages::new(self.memory);
        let mut done: Vec<&PatchSet> = Vec::new();
        let mut outcomes = Vec::with_capacity(sets.len());
        for set in sets {
            if !set.patches.is_empty() && set.patches.iter().all(|patch| pages.find(patch) == Found::New) {
                outcomes.push(Outcome::Done);
                continue;
            }
            let outcome = self.prepare(set, &mut places, &mut pages)?;
            if outcome == Outcome::Done {
                done.push(set);
            }
            outcomes.push(outcome);
        }
        // After an error, threads that were moved are outside: where they are works with and
        // without the patches.
        pages.apply(&done).map_err(failed("writing to the process's code"))?;
        Ok(outcomes)
    }

    /// Moves threads out of what a set will replace.
    fn prepare(
        &self,
        set: &PatchSet,
        places: &mut Places,
        pages: &mut Pages<'_>,
    ) -> Result<Outcome, InjectError> {
        let mut moved = Vec::new();
        if places.may_concern(set) {
            if places.interrupted.iter().any(|rip| set.is_to_leave(*rip)) {
                return Ok(Outcome::InUse);
            }
            for (index, registers) in places.registers.iter().enumerate() {
                if is_restarted(registers) && set.touches(registers.rip.wrapping_sub(SYSCALL_SIZE)) {
                    return Ok(Outcome::InUse);
                }
                if set.is_to_leave(registers.rip) {
                    match set.destination(registers.rip) {
                        Some(to) if !is_restarted(registers) => moved.push((index, to)),
                        _ => return Ok(Outcome::InUse),
                    }
                }
            }
        }
        for patch in &set.patches {
            if patch.old.len() != patch.new.len() {
                return Err(InjectError::Refused(format!("the patch at {:#x} changes its length", patch.at)));
            }
            if !is_on_one(patch) {
                return Err(InjectError::Refused(format!("the patch at {:#x} is on two pages", patch.at)));
            }
            if pages.find(patch) != Found::Old {
                return Ok(Outcome::Foreign);
            }
        }
        // Before the patches: a thread that was moved is right with and without them.
        for (index, to) in moved {
            if let (Some(thread), Some(registers)) =
                (self.threads.get(index), places.registers.get_mut(index))
            {
                registers.rip = to;
                thread.set_registers(registers)?;
            }
        }
        Ok(Outcome::Done)
    }

    /// Writes back what patches replaced, the last one first. One answer for each set, in the
    /// order of `sets`.
    ///
    /// The code that the patches jump to has to stay until [`Stopped::is_used`] denies it.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to write, or the process has ended.
    pub fn undo(&self, sets: &[PatchSet]) -> Result<Vec<Outcome>, InjectError> {
        let places = self.places()?;
        let mut pages = Pages::new(self.memory);
        let mut outcomes = Vec::with_capacity(sets.len());
        let mut patches = Vec::new();
        for set in sets {
            let is_in_use = places.may_concern(set)
                && (places.interrupted.iter().any(|rip| set.is_inside(*rip))
                    || places.registers.iter().any(|registers| set.is_inside(registers.rip)));
            if is_in_use {
                outcomes.push(Outcome::InUse);
                continue;
            }
            let mut outcome = Outcome::Done;
            for patch in &set.patches {
                match pages.find(patch) {
                    Found::New => patches.push(patch),
                    // An interrupted apply may have written some only.
                    Found::Old => {}
                    Found::Foreign => outcome = Outcome::Foreign,
                }
            }
            outcomes.push(outcome);
        }
        pages.undo(&patches).map_err(failed("writing to the process's code"))?;
        Ok(outcomes)
    }

    /// A thread is in this code, or may return to it.
    ///
    /// Words on stacks that only look like an address count, too.
    ///
    /// # Errors
    ///
    /// If stacks can't be read, or the process has ended.
    pub fn is_used(&self, code: Range<u64>) -> Result<bool, InjectError> {
        let places = self.places()?;
        Ok(places.registers.iter().any(|registers| code.contains(&registers.rip))
            || places.interrupted.iter().any(|rip| code.contains(rip))
            || places.stacks.point_into(&code))
    }

    fn places(&self) -> Result<Places, InjectError> {
        let maps = mappings(self.pid)?;
        let registers: Vec<Registers> =
            self.threads.iter().map(Thread::registers).collect::<Result<_, _>>()?;
        let mut stacks = Stacks::of(self.memory, &maps, &registers)?;
        let interrupted = std::mem::take(&mut stacks.interrupted);
        let restarted = registers.iter().map(|registers| registers.rip.wrapping_sub(SYSCALL_SIZE));
        let mut sorted: Vec<u64> = registers.iter().map(|registers| registers.rip).chain(restarted).collect();
        sorted.extend(&interrupted);
        sorted.sort_unstable();
        Ok(Places { registers, interrupted, sorted, stacks })
    }
}

/// Where threads are.
struct Places {
    /// In the order of the threads.
    registers: Vec<Registers>,
    interrupted: Vec<u64>,
    /// All places where threads were found, sorted: most sets have none of them.
    sorted: Vec<u64>,
    stacks: Stacks,
}

impl Places {
    /// Some thread was found between a set's first and last instruction.
    fn may_concern(&self, set: &PatchSet) -> bool {
        let starts = set.patches.iter().map(|patch| patch.at).chain(set.moves.iter().map(|one| one.from));
        let ends =
            set.patches.iter().map(|patch| patch.range().end).chain(set.moves.iter().map(|one| one.from));
        let (Some(start), Some(end)) = (starts.min(), ends.max()) else { return false };
        let after = self.sorted.partition_point(|place| *place < start);
        self.sorted.get(after).is_some_and(|place| *place <= end)
    }
}
