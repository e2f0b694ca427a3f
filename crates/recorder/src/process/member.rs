//! A traced process: one program's run in it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use everycall_format::arena::ArenaHeader;
use everycall_format::hub::origin;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

use crate::memory::arena::Arena;
use crate::process::armed::Armed;
use crate::process::module_files::Files;
use crate::process::modules::Modules;
use crate::process::names::Names;
use crate::process::triggers::{FindSites, TriggeredProcess};
use crate::sys::proc_files::{self, Name};

/// A member of the process tree.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its number in the file.
    pub number: u32,
    pub arena: Arc<Arena>,
    pub pid: u32,
    pub parent_pid: u32,
    /// Process that it was forked from, where it was.
    pub forked_from: u32,
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
    pub names_due: Instant,
    /// Tells of its end; none where the kernel has none to give.
    pub pidfd: Option<OwnedFd>,
    /// Whether the process with its id is another one, as the arena was written over or the id is that of another namespace: nobody
    /// knows when it ends.
    pub is_stranger: bool,
    /// One of [`image_end`](everycall_format::ect::image_end), and ticks, once it is over.
    pub end: Option<(u32, u64)>,
    pub armed: Armed,
}

impl Member {
    /// The process that has claimed `arena`, whose header was read as `header`. It comes from member number `parent`, and
    /// was forked from `forked_from`, as far as that is known.
    pub fn new(
        number: u32,
        arena: Arc<Arena>,
        header: &ArenaHeader,
        start_ticks: u64,
        parent: Option<u32>,
        forked_from: Option<&Member>,
    ) -> Member {
        let (name, command) = name_and_command(&arena, header.target_pid, forked_from);
        Member {
            number,
            arena,
            pid: header.target_pid,
            parent_pid: header.parent_pid,
            forked_from: header.forked_from,
            parent,
            origin: match (header.origin, parent) {
                (origin::FORK, _) => origin::FORK,
                (_, Some(_)) => origin::EXEC,
                (_, None) => origin::START,
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
            armed: Armed::default(),
        }
    }

    /// Its triggers, where it has any.
    pub fn triggered(&self) -> Option<TriggeredProcess> {
        let triggers = Arc::clone(self.armed.triggers()?);
        Some(TriggeredProcess {
            number: self.number,
            pid: self.pid,
            arena: Arc::<Arena>::clone(&self.arena),
            triggers,
            over: None,
        })
    }

    /// The same, for the last time.
    pub fn triggered_last(&self) -> Option<TriggeredProcess> {
        let over = self.end.map_or_else(crate::sys::clock::ticks, |(_, ticks)| ticks);
        Some(TriggeredProcess { over: Some(over), ..self.triggered()? })
    }

    /// Opens the files of new modules, and arms their functions that triggers name.
    pub fn look(&mut self, files: &mut Files, finder: Option<&mut (dyn FindSites + 'static)>) {
        // Before: who gave up by then has its module in the table.
        let given_up = self.armed.given_up();
        self.modules.look(&self.arena, files);
        if let Some(finder) = finder {
            self.armed.look(&self.modules, finder);
        }
        self.armed.hear_of(given_up);
    }

    /// Whether the kernel doesn't tell of its end.
    pub fn is_to_be_asked(&self) -> bool {
        self.pidfd.is_none() && !self.is_stranger
    }

    /// Whether the process is gone, for kernels that don't tell.
    pub fn is_over(&self) -> bool {
        process(self.pid).is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }
}

/// What the process itself says is there though it has ended by now, and what it was started with though the kernel shows a title.
fn name_and_command(arena: &Arena, pid: u32, forked_from: Option<&Member>) -> (Name, Vec<u8>) {
    let (began, named) = arena.beginning().unzip();
    let (whole, cut) = match began {
        Some(command) if command.last() == Some(&0) => (Some(command), None),
        cut => (None, cut.filter(|command| !command.is_empty())),
    };
    let command = whole
        .or_else(|| proc_files::command_line(pid))
        .or_else(|| forked_from.map(|parent| parent.command.clone()))
        .or_else(|| cut.map(proc_files::ended));
    let name = proc_files::name(pid).or(named).or_else(|| forked_from.map(|parent| parent.name));
    (name.unwrap_or_default(), command.unwrap_or_default())
}

/// Whether a process is there whose end the kernel can tell.
pub(crate) enum Life {
    /// It is, and its descriptor tells.
    Told(OwnedFd),
    /// It is, as far as anybody knows: an old kernel, or no descriptor left.
    Unknown,
    /// It has ended.
    Over,
}

impl Life {
    pub fn of(pid: u32) -> Life {
        match process(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            None | Some(Err(Errno::SRCH)) => Life::Over,
            Some(Ok(pidfd)) => Life::Told(pidfd),
            Some(Err(_)) => Life::Unknown,
        }
    }
}

/// The process with a number that may be anything.
fn process(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
