//! Facts about threads from `/proc`.

use std::fs;

/// Fields of `/proc/PID/task/TID/status`.
pub(crate) struct Status {
    text: String,
}

impl Status {
    /// `None` if the thread has ended.
    pub(crate) fn of(pid: i32, tid: i32) -> Option<Self> {
        fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok().map(|text| Self { text })
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.field(name)?.split_whitespace().next()?.parse().ok()
    }

    fn signals(&self, name: &str) -> u64 {
        self.field(name).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0)
    }

    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X`; `?` if unknown.
    pub(crate) fn state(&self) -> char {
        self.field("State").and_then(|text| text.chars().next()).unwrap_or('?')
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state(), 'Z' | 'X')
    }

    /// A signal waits for this thread that it doesn't block and doesn't ignore.
    pub(crate) fn has_signal(&self) -> bool {
        let pending = self.signals("SigPnd") | self.signals("ShdPnd");
        pending & !self.signals("SigBlk") & !self.signals("SigIgn") != 0
    }
}

/// The threads of a process, the first one first.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut tids: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable_by_key(|tid| (*tid != pid, *tid));
    tids
}
