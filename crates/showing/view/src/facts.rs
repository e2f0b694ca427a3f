//! Facts that the library keeps: of files, processes and tracks before all events were read, and
//! sources that were shown.

use serde::Serialize;

/// A file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileFacts {
    /// Its path.
    pub name: String,
    /// The program with its arguments.
    pub command: String,
    /// The machine that it ran on.
    pub host: String,
    /// The version of everycall that wrote it.
    pub everycall_version: String,
    /// Until its last event.
    pub duration_ns: u64,
    /// Its size.
    pub bytes: u64,
}

/// A process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessFacts {
    /// Place of its file among the files.
    pub file: usize,
    /// Its number.
    pub pid: Option<u32>,
    /// Its name.
    pub name: Option<String>,
    /// Its threads, fibers, tasks and counters.
    pub tracks: Vec<TrackFacts>,
}

/// A thread, fiber or task, or the counters of a process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrackFacts {
    /// The number of the track.
    pub id: u32,
    /// The number of its process.
    pub pid: u32,
    /// Its own number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// `thread`, `fiber`, `task` or `counter`.
    pub kind: &'static str,
    /// Levels of nesting, as far as it was read.
    pub depth: usize,
    /// Its first event, in nanoseconds since the trace's begin.
    pub from: u64,
    /// Its last event.
    pub to: u64,
    /// Its events.
    pub events: u64,
    /// Whether it was read.
    pub complete: bool,
    /// The time up to which it was read.
    pub read_ns: Option<u64>,
    /// Whether there are marks.
    pub has_marks: bool,
    /// Whether its states are known.
    pub has_states: bool,
    /// Whether there are sampled stacks.
    pub has_samples: bool,
}
