//! How long a query may run, and how much it may write into temporary files.
//!
//! SQLite has no limit of its own for temporary files. They have no names, but they are open: their
//! sizes are added up while a query runs.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Limits of a query.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long it may run.
    pub time: Option<Duration>,
    /// Bytes of temporary files.
    pub temporary: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { time: None, temporary: 8 << 30 }
    }
}

/// Instructions of SQLite between two checks.
pub(crate) const INSTRUCTIONS: i32 = 10_000;
/// Time between two looks at the files.
const PAUSE: Duration = Duration::from_millis(50);

const TIME: u8 = 1;
const TEMPORARY: u8 = 2;

/// Why a query was ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached(Arc<AtomicU8>);

impl Reached {
    /// The sentence, if a limit was reached since the last call.
    pub fn take(&self, limits: &Limits) -> Option<String> {
        match self.0.swap(0, Ordering::Relaxed) {
            TIME => Some(format!(
                "the query took longer than --timeout {}; a longer time, or less of the trace \
                 (--since, --until, --function), helps",
                everycall_units::Duration { ns: limits.time.unwrap_or_default().as_nanos() as u64 }
            )),
            TEMPORARY => Some(format!(
                "the query wrote more than {} into temporary files; sort or join fewer rows or columns, or allow more with \
                 --temp-size",
                everycall_units::Size(limits.temporary)
            )),
            _ => None,
        }
    }
}

/// Returns what ends a query that exceeds `limits`, by returning true.
pub(crate) fn watch(limits: Limits, reached: Reached) -> impl FnMut() -> bool + Send + 'static {
    let begin = Instant::now();
    let before = files().map(|file| file.identity).collect::<HashSet<_>>();
    let mut due = begin;
    move || {
        let now = Instant::now();
        if limits.time.is_some_and(|time| now.duration_since(begin) >= time) {
            reached.0.store(TIME, Ordering::Relaxed);
            return true;
        }
        if now < due {
            return false;
        }
        due = now + PAUSE;
        // Files that were open before are outputs.
        let new = files().filter(|file| !before.contains(&file.identity));
        let is_too_much = new.map(|file| file.bytes).sum::<u64>() > limits.temporary;
        if is_too_much {
            reached.0.store(TEMPORARY, Ordering::Relaxed);
        }
        is_too_much
    }
}

struct OpenFile {
    identity: (u64, u64),
    bytes: u64,
}

/// The regular files without a name that this process has open.
fn files() -> impl Iterator<Item = OpenFile> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let facts = fs::metadata(entry.path()).ok()?;
        let is_temporary = facts.is_file() && facts.nlink() == 0;
        is_temporary.then(|| OpenFile {
            identity: (facts.dev(), facts.ino()),
            bytes: facts.blocks().saturating_mul(512),
        })
    })
}
