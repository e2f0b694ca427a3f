//! Waits for the program, which must not be affected by its recorder.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use everycall_format::arena::ChildEntry;
use everycall_format::ect::{ProcessEnd, end};
use everycall_machine::clock::{self, Readings};
use everycall_sched::Sched;
use everycall_stacks::Stacks;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use crate::memory::arena::Arena;
use crate::output::trace_writer::{Beside, TraceWriter};
use crate::session::ended::Ended;
use crate::session::options::KeepBox;
use crate::session::serving::Serving;
use crate::session::sharing::Sharing;
use crate::sys::error::RecordError;
use crate::sys::lock::lock;
use crate::sys::signals::{Received, Signals, send};
use crate::sys::usage;
use crate::tree::doorbell::Doorbell;
use crate::tree::hooking::Hooking;
use crate::tree::keeper::Keeper;
use crate::tree::process_tree::ProcessTree;
use crate::tree::sampler::Sampler;

/// A signal to the whole process group reaches the program within this time, and may end it.
pub(super) const FORWARD_DELAY: Duration = Duration::from_millis(10);
/// Longest time between two checks of all processes.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Longest time between two checks if the kernel doesn't signal ends.
const PAUSE_ASKING: Duration = Duration::from_millis(20);
/// Longest time between two checks of all processes if only forked children without traced calls
/// are waited for.
const PAUSE_SILENT: Duration = Duration::from_millis(50);
/// Longest time between two checks if no thread could be started to answer programs, which wait
/// some milliseconds for that.
const PAUSE_WITHOUT_THREAD: Duration = Duration::from_millis(1);
/// Largest number of ended processes that are kept until the file is written; beyond it, the oldest
/// are written at once.
const ENDED_KEPT: usize = 64;
/// Bytes of memory that they may keep.
const ENDED_BYTES_KEPT: u64 = 64 << 20;

/// A program that is being recorded.
#[derive(Debug)]
pub struct Running {
    pub(super) tree: Arc<Mutex<ProcessTree>>,
    pub(super) child: Child,
    pub(super) signals: Signals,
    pub(super) readings: Readings,
    pub(super) doorbell: Doorbell,
    pub(super) keeper: Option<Keeper>,
    pub(super) hooking: Option<Hooking>,
    pub(super) sched: Option<Sched>,
    pub(super) stacks: Option<Stacks>,
    pub(super) sharing: Sharing,
    pub(super) sampler: Option<Sampler>,
    /// Where others ask for scheduling events.
    pub(super) serving: Option<Serving>,
}

/// How the program ended.
type End = (ExitStatus, ProcessEnd);

/// The result of one check of the processes.
enum Look {
    /// No process is waited for. Contains forked children that have made no traced call.
    Over(Vec<ChildEntry>),
    /// The longest time until the next check.
    Again(Duration),
}

/// The arena of the first process that claims one, for whoever reads it while it is written.
#[derive(Clone, Debug)]
pub struct FirstArena {
    tree: Arc<Mutex<ProcessTree>>,
}

impl FirstArena {
    /// It, once there is one.
    #[must_use]
    pub fn get(&self) -> Option<Arc<Arena>> {
        lock(&self.tree).members().next().map(|member| Arc::clone(&member.arena))
    }
}

impl Running {
    /// Where the program's arena is found while it runs. When it has ended, [`Ended::first_arena`] has it.
    #[must_use]
    pub fn first_arena(&self) -> FirstArena {
        FirstArena { tree: Arc::clone(&self.tree) }
    }

    /// The program's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program's end, with `all` for that of every process that is recorded or was forked by one that is. Meanwhile SIGINT and SIGQUIT are
    /// the program's matter, as the terminal sends them to both; SIGTERM and SIGHUP are passed on. Processes that end early
    /// may be written into `file`.
    ///
    /// # Errors
    ///
    /// The system can't tell how it ended.
    pub fn wait<W: Write>(mut self, all: bool, file: &mut TraceWriter<W>) -> Result<Ended, RecordError> {
        self.sampler.iter().for_each(|sampler| file.sampled(sampler.samples()));
        let mut ended = None;
        // After the program's end, others are waited for until a signal ends that.
        let mut is_asked_to_end = false;
        let silent = loop {
            // Before checking whether the program lives: the signal that ended it may have been
            // sent to both.
            while let Some(received) = self.signals.next() {
                self.pass_on(received, ended.is_none());
                is_asked_to_end |= ended.is_some() && received.ends();
            }
            let has_threads = self.poll_threads();
            if ended.is_none() {
                ended = self.end_of_program().map_err(cant_wait)?;
            }
            match self.look(ended.is_some(), all && !is_asked_to_end, file) {
                Look::Over(silent) => break silent,
                Look::Again(pause) if has_threads => self.store_and_sleep(pause, file),
                Look::Again(_) => self.store_and_sleep(PAUSE_WITHOUT_THREAD, file),
            }
        };
        match ended {
            Some(end) => Ok(self.end(silent, end)),
            None => Err(cant_wait(io::ErrorKind::NotFound.into())),
        }
    }

    /// Does the work of threads that couldn't be started. Returns whether there was any.
    fn poll_threads(&mut self) -> bool {
        let has_no_answerer = self.doorbell.poll();
        let has_no_keeper = self.keeper.as_mut().is_some_and(Keeper::poll);
        !has_no_answerer && !has_no_keeper
    }

    /// How the program ended, if it has.
    fn end_of_program(&mut self) -> io::Result<Option<End>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // A thread of ours that traces the program has it stop, which the kernel tells here, too.
        let is_over = |status: &WaitIdStatus| status.exited() || status.killed() || status.dumped();
        if waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?.filter(is_over).is_none() {
            return Ok(None);
        }
        // It stays a zombie for now, so that its main thread's name and its process id remain
        // valid.
        let ticks = self.readings.take();
        lock(&self.tree).attend();
        self.sampler.iter().for_each(|sampler| sampler.last_of(self.child.id()));
        let mut tree = lock(&self.tree);
        tree.look_at_names(true);
        tree.notice_ends();
        tree.took(self.child.id(), usage::cpu_time(self.child.id()));
        drop(tree);
        let status = self.child.wait()?;
        Ok(Some((status, process_end(self.child.id(), status, ticks))))
    }

    /// Checks which processes have ended, and whether some are still waited for: the program,
    /// unless it `has_ended`, and others if requested.
    fn look<W: Write>(&mut self, has_ended: bool, waits_for_others: bool, file: &mut TraceWriter<W>) -> Look {
        let mut tree = lock(&self.tree);
        tree.notice_ends();
        let mut pause = if tree.has_members_to_ask() { PAUSE_ASKING } else { PAUSE_MAX };
        if has_ended && !(waits_for_others && tree.has_living()) {
            let silent = tree.silent_children();
            if silent.is_empty() || !waits_for_others {
                return Look::Over(silent);
            }
            pause = pause.min(PAUSE_SILENT);
        }
        let names_due = tree.look_at_names(false);
        if file.is_streaming() {
            file.join(tree.members());
        }
        let until_names = names_due.map_or(pause, |due| due.saturating_duration_since(Instant::now()));
        Look::Again(pause.min(until_names))
    }

    /// Writes what can be written already, then sleeps for `pause` at most.
    fn store_and_sleep<W: Write>(&mut self, mut pause: Duration, file: &mut TraceWriter<W>) {
        let (kept, bytes_kept) = if file.is_streaming() { (0, 0) } else { (ENDED_KEPT, ENDED_BYTES_KEPT) };
        if let Some(due) = self.sampler.as_mut().and_then(Sampler::poll) {
            pause = pause.min(due);
        }
        let over = lock(&self.tree).take_ended(kept, bytes_kept);
        self.readings.poll();
        self.read_states();
        if let (Some(serving), Some(sched)) = (&self.serving, &self.sched) {
            serving.serve(sched, &self.tree);
        }
        if file.is_streaming() {
            if self.sampler.is_some() {
                // The tree isn't locked meanwhile: the disk may be slow.
                let processes: Vec<_> =
                    lock(&self.tree).members().map(|member| (member.number, member.pid)).collect();
                file.pass_samples(processes);
            }
            let beside = Beside { sched: self.sched.as_mut(), stacks: self.stacks.as_mut() };
            pause = pause.min(file.pass(&self.readings, beside));
        }
        if over.is_empty() {
            self.sleep(pause);
        } else {
            let beside = Beside { sched: self.sched.as_mut(), stacks: self.stacks.as_mut() };
            file.early(over, &self.readings, beside);
        }
    }

    /// Reads the scheduling events so far, and copies them to where a core has them.
    fn read_states(&mut self) {
        let Some(sched) = &mut self.sched else { return };
        let reading = clock::read();
        sched.drain();
        self.sharing.pass(sched, &self.tree, reading);
    }

    fn sleep(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let has_states = self.sched.as_ref().is_some_and(|sched| sched.kept_header().is_some());
            let turn = if has_states { left.min(self.sharing.pause()) } else { left };
            if self.is_woken(turn) || turn == left {
                return;
            }
            self.read_states();
        }
    }

    /// Waits for `time` at most. Whether something has happened.
    fn is_woken(&self, time: Duration) -> bool {
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let ends = lock(&self.tree).ends();
        let mut waited = vec![PollFd::new(self.signals.descriptor(), PollFlags::IN)];
        let sched = self.sched.iter().flat_map(Sched::descriptors);
        waited.extend(sched.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)));
        let serving = self.serving.iter().map(Serving::descriptor);
        waited.extend(serving.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)));
        waited.extend(ends.as_deref().map(|ends| PollFd::new(ends, PollFlags::IN)));
        // An interrupted sleep is just shorter.
        poll(&mut waited, Some(&timeout)) != Ok(0)
    }

    fn pass_on(&mut self, received: Received, lives: bool) {
        if let (Received::Sent(signal @ (libc::SIGUSR1 | libc::SIGUSR2)), Some(keeper)) =
            (received, &mut self.keeper)
        {
            keeper.signal(signal);
        }
        if let Received::Sent(signal @ (libc::SIGTERM | libc::SIGHUP)) = received
            && lives
        {
            std::thread::sleep(FORWARD_DELAY);
            send(self.child.id(), signal);
        }
    }

    /// Ends the recording.
    fn end(mut self, mut silent: Vec<ChildEntry>, (status, end): End) -> Ended {
        // Slow steps from now on, such as a full disk, don't delay the program.
        self.signals.let_end();
        // It may need answers.
        self.hooking.into_iter().for_each(Hooking::stop);
        self.doorbell.stop();
        self.sampler.into_iter().for_each(Sampler::stop);
        let mut keep = self.keeper.and_then(Keeper::stop);
        let mut tree = lock(&self.tree);
        let processes = tree.triggered_last();
        let now = self.readings.take();
        let members = tree.end(now);
        self.readings.take();
        let (mut children, untraced) = (tree.hub().children(), tree.untraced());
        drop(tree);
        // They may have made traced calls since.
        silent.retain(|child| members.iter().all(|member| member.pid != child.pid));
        children.append(&mut silent);
        if let Some(keep) = &mut keep {
            keep.look(&processes, &[]);
        }
        let keep = keep.map(KeepBox);
        self.sched.iter_mut().for_each(Sched::finish);
        self.stacks.iter_mut().for_each(Stacks::finish);
        let (readings, sched, stacks) = (self.readings, self.sched, self.stacks);
        Ended { members, children, untraced, end, readings, status, keep, sched, stacks }
    }
}

pub(super) fn cant_wait(source: io::Error) -> RecordError {
    RecordError::System { attempt: "wait for the program", source }
}

fn process_end(pid: u32, status: ExitStatus, ticks: u64) -> ProcessEnd {
    let (how, code) = match (status.code(), status.signal()) {
        (Some(code), _) => (end::EXITED, code),
        (None, signal) => (end::SIGNALED, signal.unwrap_or(0)),
    };
    ProcessEnd { pid, how, code: code.unsigned_abs(), core_dumped: status.core_dumped().into(), ticks }
}
