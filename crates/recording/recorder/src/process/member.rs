//! A traced process: one execution of a program in it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use everycall_format::arena::{ArenaHeader, counter};
use everycall_format::frame::Records;
use everycall_format::hub::origin;
use everycall_machine::clock::Readings;
use everycall_machine::proc_files::{self, Name};
use everycall_machine::{CodeFiles, CodeNames, NameSet};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

use crate::memory::arena::Arena;
use crate::memory::contents::ArenaContents;
use crate::process::armed::Armed;
use crate::process::module_files::Files;
use crate::process::modules::Modules;
use crate::process::names::Names;
use crate::process::selector::Choosers;
use crate::process::triggers::TriggeredProcess;

/// A member of the process tree.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its number in the file.
    pub number: u32,
    pub arena: Arc<Arena>,
    pub pid: u32,
    pub parent_pid: u32,
    /// The process that it was forked from, if any.
    pub forked_from: u32,
    /// Number of its parent member.
    pub parent: Option<u32>,
    /// One of [`origin`].
    pub origin: u32,
    /// When tracing of it began, in ticks.
    pub start_ticks: u64,
    pub name: Name,
    /// Words of its command line, each ended by a zero byte.
    pub command: Vec<u8>,
    /// The title that a forked process has given itself, ended by a zero byte.
    title: Option<Vec<u8>>,
    pub names: Names,
    pub modules: Modules,
    /// When its threads' names are read next.
    pub names_due: Instant,
    /// Signals its end; `None` if the kernel doesn't support that.
    pub pidfd: Option<OwnedFd>,
    /// Whether its id belongs to another process, because the arena was overwritten or the id is
    /// from another namespace: its end can't be detected.
    pub is_stranger: bool,
    /// One of [`image_end`](everycall_format::ect::image_end) and the time in ticks, after its end.
    pub end: Option<(u32, u64)>,
    /// CPU time that it took in all, nanoseconds, if known.
    pub cpu_ns: Option<u64>,
    pub armed: Armed,
    /// Libraries that record something weren't loaded into it.
    pub lacks_libraries: bool,
    /// The names of its just-in-time compilers' code.
    code_files: CodeFiles,
    /// Number of its modules that the selector has got.
    pub selected: usize,
    /// Bytes of names of its frames by id that the selector has got.
    names_selected: u64,
}

impl Member {
    /// The process that has claimed `arena`, whose header is `header`. `parent` and `forked_from`
    /// are given as far as they are known.
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
            title: None,
            names: Names::default(),
            modules: Modules::default(),
            names_due: Instant::now(),
            pidfd: None,
            is_stranger: false,
            end: None,
            cpu_ns: None,
            armed: Armed::default(),
            lacks_libraries: false,
            code_files: CodeFiles::new(header.target_pid, forked_from.map(|parent| &parent.code_files)),
            selected: 0,
            names_selected: 0,
        }
    }

    /// Its triggers, if it has any.
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

    /// The process with its triggers, for the last time: with its end.
    pub fn triggered_last(&self) -> Option<TriggeredProcess> {
        let over = self.end.map_or_else(everycall_machine::clock::ticks, |(_, ticks)| ticks);
        Some(TriggeredProcess { over: Some(over), ..self.triggered()? })
    }

    /// Opens the files of new modules, arms their functions that triggers name, and selects
    /// functions.
    pub fn look(&mut self, files: &mut Files, choosers: &mut Choosers) {
        // Read first: a process that stopped waiting by then has its module in the table.
        let given_up = self.armed.given_up();
        self.modules.look(&self.arena, files);
        if let Some(finder) = choosers.finder.as_deref_mut() {
            self.armed.look(&self.modules, finder);
        }
        if !choosers.selectors.is_empty() {
            for (module, path, file) in self.modules.since(self.selected) {
                choosers.selectors.iter_mut().for_each(|selector| selector.look(module, path, file));
            }
            self.selected = self.modules.count();
            let records = ArenaContents::frame_names_since(&*self.arena, self.names_selected);
            if !records.is_empty() {
                choosers.selectors.iter_mut().for_each(|selector| selector.look_at_frames(&records));
                let mut complete = Records::of(&records);
                complete.by_ref().for_each(drop);
                self.names_selected += complete.read() as u64;
            }
        }
        self.armed.hear_of(given_up);
    }

    /// Its title, or the words of its command line, each ended by a zero byte.
    pub fn title_or_command(&self) -> &[u8] {
        self.title.as_deref().unwrap_or(&self.command)
    }

    /// Servers write the task of a forked process over its command line, which is its parent's.
    /// The newest title counts: the kernel has none any more when the process has ended.
    fn look_at_title(&mut self) {
        let is_forked = self.origin == origin::FORK && !self.is_stranger;
        let Some(shown) = proc_files::command_line(self.pid).filter(|_| is_forked) else { return };
        let words = |line: &[u8]| line.len() - line.iter().rev().take_while(|byte| **byte == 0).count();
        let (title, command) = (shown.get(..words(&shown)), self.command.get(..words(&self.command)));
        self.title = title.filter(|title| !title.is_empty() && Some(*title) != command).map(|title| {
            let mut title = title.to_vec();
            title.push(0);
            title
        });
    }

    /// Reads the names of its threads, at most `most`, and its title, and finds files with names
    /// of code. Returns how many threads were read.
    pub fn look_at_names(&mut self, most: u32) -> u32 {
        self.look_at_title();
        if self.calls_unknown_code() {
            self.code_files.look();
        }
        self.names.poll(&self.arena, most)
    }

    /// The names of code of its just-in-time compilers, if it has called any.
    pub fn code_names(&self, readings: &Readings) -> Option<CodeNames> {
        let wanted = if self.calls_unknown_code() { NameSet::All } else { NameSet::Ids };
        let is_any = wanted == NameSet::All || self.arena.has_frames();
        if is_any { self.code_files.read(wanted, readings.all()) } else { None }
    }

    fn calls_unknown_code(&self) -> bool {
        self.arena.header().counters[counter::UNKNOWN_CODE] > 0
    }

    /// Whether the kernel doesn't signal its end.
    pub fn is_to_be_asked(&self) -> bool {
        self.pidfd.is_none() && !self.is_stranger
    }

    /// Whether the process has ended, for kernels that don't signal it.
    pub fn is_over(&self) -> bool {
        process(self.pid).is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }
}

/// The name and command that the process itself stored: they exist after its end, and show the
/// original command line even if the process has changed its title.
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

/// Whether a process lives, and whether its end is signalled.
pub(crate) enum Life {
    /// It lives, and its descriptor signals its end.
    Told(OwnedFd),
    /// It lives as far as known: an old kernel, or no free descriptor.
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

/// The process with this untrusted number.
fn process(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
