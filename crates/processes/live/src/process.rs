//! Facts about a process from `/proc`.

use std::collections::HashMap;
use std::io;

use everycall_format::arena::{ThreadHeader, thread_state};
use everycall_machine::proc_files::{stat, thread_began, thread_name};

use crate::error::LiveError;

/// How far two readings of clocks may be apart on a busy machine.
const THREAD_AGE_SLACK_NS: u64 = 100_000_000;

/// A process, according to the kernel.
#[derive(Clone, Debug, Default)]
pub struct ProcessFacts {
    /// Its id, as we see it.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Its name: at most 15 bytes.
    pub name: Vec<u8>,
    /// The words of the command line that it was started with, if its arena contains them;
    /// otherwise those that the kernel shows now, which may be a title.
    pub command: Vec<Vec<u8>>,
    /// The title that it has written over its command line since, as servers do for each process.
    pub title: Option<Vec<u8>>,
    /// The folder that it was started in; empty where that isn't known.
    pub folder: Vec<u8>,
    /// When it began, in the kernel's ticks since boot.
    pub started: u64,
    /// Its ids in all namespaces that it is in.
    pub ids: Vec<u32>,
    /// Whether it has ended and only its parent hasn't noticed.
    pub has_ended: bool,
}

impl ProcessFacts {
    /// Looks at process `pid`.
    ///
    /// # Errors
    ///
    /// It doesn't exist, or this process may not read it.
    pub fn of(pid: u32) -> Result<ProcessFacts, LiveError> {
        let stat = stat(pid).map_err(refused)?;
        let status = read(pid, "status").unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let mut ids: Vec<u32> = ids
            .map(|ids| ids.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect())
            .unwrap_or_default();
        if ids.is_empty() {
            ids.push(pid);
        }
        let words = read(pid, "cmdline").unwrap_or_default();
        Ok(ProcessFacts {
            pid,
            parent: stat.parent,
            name: stat.name,
            command: words_of(&words),
            title: None,
            folder: Vec::new(),
            started: stat.started,
            ids,
            has_ended: stat.has_ended,
        })
    }

    /// Takes the command line that it was started with; another one that it shows is its title.
    pub(crate) fn set_command(&mut self, words: Vec<Vec<u8>>) {
        let shown = std::mem::replace(&mut self.command, words);
        self.title = self.title_of(&shown);
    }

    /// Its title now; of a process that has ended, the last one that is known.
    pub(crate) fn newest_title(&self) -> Option<Vec<u8>> {
        let is_there = began(self.pid) == Some(self.started);
        let shown =
            if is_there { words_of(&read(self.pid, "cmdline").unwrap_or_default()) } else { Vec::new() };
        if shown.is_empty() { self.title.clone() } else { self.title_of(&shown) }
    }

    /// The title that the kernel shows in the place of the command line, if it isn't that.
    fn title_of(&self, shown: &[Vec<u8>]) -> Option<Vec<u8>> {
        let title = shown.join(&b' ').trim_ascii().to_vec();
        (shown != self.command && !title.is_empty()).then_some(title)
    }

    /// The name of its program: the file's, where it is known.
    #[must_use]
    pub fn program(&self) -> String {
        let first = self.command.first().map_or(&[][..], |word| word.as_slice());
        let file = first.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        String::from_utf8_lossy(if file.is_empty() { &self.name } else { file }).into_owned()
    }
}

/// The words of a command line as the kernel shows it. A title that is shorter than the original
/// command line leaves zeros behind it.
fn words_of(line: &[u8]) -> Vec<Vec<u8>> {
    let end = line.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let words = line[..end].split(|byte| *byte == 0).map(<[u8]>::to_vec);
    if end == 0 { Vec::new() } else { words.collect() }
}

/// The names of all threads of process `pid`, by their ids in the process's own namespace. If these
/// differ from our ids, each thread's `status` gives them.
pub(crate) struct ThreadNames {
    pid: u32,
    /// Our id of each of its ids, where these differ.
    ours: Option<HashMap<u32, u32>>,
    /// Now, in the kernel's ticks since boot, and how many of these there are in a second.
    now: (u64, u64),
}

impl ThreadNames {
    /// Of the process with these facts.
    pub fn of(process: &ProcessFacts) -> ThreadNames {
        let pid = process.pid;
        let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let rate = rustix::param::clock_ticks_per_second().max(1);
        let seconds = u64::try_from(uptime.tv_sec).unwrap_or(0);
        let part = u64::try_from(uptime.tv_nsec).unwrap_or(0).saturating_mul(rate) / 1_000_000_000;
        ThreadNames {
            pid,
            ours: (process.ids.len() > 1).then(|| inner_ids(pid)),
            now: (seconds.saturating_mul(rate).saturating_add(part), rate),
        }
    }

    /// The name of a thread that has existed for at least `age_ns`: the newest one of those that
    /// live, and otherwise the one that is known.
    pub fn name_now(&self, header: &ThreadHeader, age_ns: u64) -> [u8; 16] {
        let is_living = header.state == thread_state::USED && header.fiber == 0;
        let new_name = if is_living { self.new_name(header.tid, age_ns, &header.name) } else { None };
        new_name.unwrap_or(header.name)
    }

    /// The name of the thread with the process's id `tid` that has existed for at least `age_ns`,
    /// if it isn't in `known`; `None` if it has ended, even if another thread has its id now.
    pub fn new_name(&self, tid: u32, age_ns: u64, known: &[u8; 16]) -> Option<[u8; 16]> {
        let tid = match &self.ours {
            Some(ours) => *ours.get(&tid)?,
            None => tid,
        };
        let name = thread_name(self.pid, tid).filter(|name| name != known)?;
        let began = thread_began(self.pid, tid)?;
        let (now, rate) = self.now;
        // Both clocks are read at their own moments.
        let slack_ns = 1_000_000_000 / rate + THREAD_AGE_SLACK_NS;
        let there_ns = u128::from(now.saturating_sub(began)) * 1_000_000_000 / u128::from(rate);
        (there_ns + u128::from(slack_ns) >= u128::from(age_ns)).then_some(name)
    }
}

/// Our ids of a process's threads, by their ids in the innermost namespace.
fn inner_ids(pid: u32) -> HashMap<u32, u32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return HashMap::new() };
    let tids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let pair = |tid: u32| {
        let status = read(pid, &format!("task/{tid}/status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        Some((ids.split_ascii_whitespace().last()?.parse().ok()?, tid))
    };
    tids.filter_map(pair).collect()
}

/// When process `pid` began, in the kernel's ticks since boot; `None` if it doesn't exist or has
/// ended.
pub(crate) fn began(pid: u32) -> Option<u64> {
    stat(pid).ok().filter(|stat| !stat.has_ended).map(|stat| stat.started)
}

/// Whether process `pid` is stopped, by a signal or by a debugger.
pub(crate) fn is_stopped(pid: u32) -> bool {
    stat(pid).is_ok_and(|stat| stat.is_stopped)
}

/// A file of process `pid`.
pub(crate) fn read(pid: u32, name: &str) -> Result<Vec<u8>, LiveError> {
    std::fs::read(format!("/proc/{pid}/{name}")).map_err(refused)
}

/// The meaning of an error of `/proc`.
pub(crate) fn refused(error: io::Error) -> LiveError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => LiveError::NotOurs(error),
        _ => LiveError::NoProcess,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_titles_are_distinguished_from_arguments() {
        let words = |line: &[u8]| {
            words_of(line).iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words(b"redis-server *:7394\0\0\0\0"), ["redis-server *:7394"]);
        assert_eq!(words(b"app\0\0-x\0"), ["app", "", "-x"]);
        assert_eq!(words(b""), [""; 0]);
        assert_eq!(words(b"\0\0"), [""; 0]);
    }

    #[test]
    fn this_process_is_known() {
        let own = ProcessFacts::of(std::process::id()).unwrap();
        assert!(own.ids.contains(&std::process::id()) && !own.has_ended && own.started > 0);
        assert_eq!(began(own.pid), Some(own.started));
        assert!(!own.command.is_empty() && !own.program().contains('/'));
        assert!(matches!(ProcessFacts::of(u32::MAX), Err(LiveError::NoProcess)));
    }
}
