//! What `/proc` tells of a process.

use std::io;

use everycall_recorder::proc_files::stat;

use crate::error::LiveError;

/// A process, as far as the kernel tells of it.
#[derive(Clone, Debug, Default)]
pub struct ProcessFacts {
    /// Its id, as we see it.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Its name: at most 15 bytes.
    pub name: Vec<u8>,
    /// The words of its command line.
    pub command: Vec<Vec<u8>>,
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
    /// There is none, or it isn't ours to look at.
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
        let words = words.strip_suffix(b"\0").unwrap_or(&words);
        let command = words.split(|byte| *byte == 0).map(<[u8]>::to_vec);
        Ok(ProcessFacts {
            pid,
            parent: stat.parent,
            name: stat.name,
            command: if words.is_empty() { vec![] } else { command.collect() },
            started: stat.started,
            ids,
            has_ended: stat.has_ended,
        })
    }

    /// The name of its program: the file's, where it is known.
    #[must_use]
    pub fn program(&self) -> String {
        let first = self.command.first().map_or(&[][..], |word| word.as_slice());
        let file = first.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        String::from_utf8_lossy(if file.is_empty() { &self.name } else { file }).into_owned()
    }
}

/// When process `pid` began, in the kernel's ticks since boot; `None` where it isn't there or has ended.
pub(crate) fn began(pid: u32) -> Option<u64> {
    stat(pid).ok().filter(|stat| !stat.has_ended).map(|stat| stat.started)
}

/// A file of process `pid`.
pub(crate) fn read(pid: u32, name: &str) -> Result<Vec<u8>, LiveError> {
    std::fs::read(format!("/proc/{pid}/{name}")).map_err(refused)
}

/// What an error of `/proc` means.
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
    fn this_process_is_known() {
        let own = ProcessFacts::of(std::process::id()).unwrap();
        assert!(own.ids.contains(&std::process::id()) && !own.has_ended && own.started > 0);
        assert_eq!(began(own.pid), Some(own.started));
        assert!(!own.command.is_empty() && !own.program().contains('/'));
        assert!(matches!(ProcessFacts::of(u32::MAX), Err(LiveError::NoProcess)));
    }
}
