//! Tasks: what threads do in the steps of a task is on a track of its own, where the steps follow
//! each other and calls that were suspended between them go on.
//!
//! A thread's events are divided by their place among the marks of steps
//! ([`everycall_format::label::TASK_BEGIN`]). So a source in which tasks are further threads is all
//! that is needed: each of them reads the segments of the threads that ran it, and leaves out what
//! isn't its own.
//!
//! ```text
//! track   what of its words a track gets, and which calls are open on it
//! lane    a thread's own track; what is known of all of its tracks, in one pass
//! joined  a task's track, from all threads that ran it
//! ```

mod joined;
mod lane;
mod track;

use std::collections::{BTreeMap, HashMap, HashSet};

use everycall_calls::TASKS_FROM;
use everycall_reader::{OpenCall, Recording, SegmentCursor, SegmentPlace, Source, ThreadKey};

use crate::scan::ThreadScan;
use crate::task_list::{Task, Tasks};
use joined::{Joined, merged};
use lane::{Lane, Scanned, scan_tracks};

/// A thread of a [`Divided`] source that is a task.
#[derive(Default)]
struct TaskTrack {
    /// The threads that ran it, and the task in each.
    hosts: Vec<(ThreadKey, Task)>,
    open: Vec<OpenCall>,
}

/// A thread that runs tasks.
struct Host {
    tasks: Tasks,
    tid: u32,
    /// When the outermost step began that is open at the end.
    open_step: Option<u64>,
}

/// A source whose tasks are threads.
pub(crate) struct Divided<'a> {
    source: Box<dyn Source + 'a>,
    recording: Recording,
    hosts: HashMap<ThreadKey, Host>,
    tracks: HashMap<ThreadKey, TaskTrack>,
}

impl<'a> Divided<'a> {
    /// Divides the threads with tasks, and looks through them once more. `scans` has all threads:
    /// those of the tasks are added, and the ones that run them changed.
    pub fn new(
        source: Box<dyn Source + 'a>,
        hosts: Vec<(ThreadKey, Tasks)>,
        scans: &mut Vec<(ThreadKey, ThreadScan)>,
    ) -> Divided<'a> {
        let recording = source.recording().clone();
        let mut divided = Divided { source, recording, hosts: HashMap::new(), tracks: HashMap::new() };
        let shared = shared(&hosts);
        // By snapshot and number, as the order of tracks is that.
        let mut by_number: BTreeMap<(usize, u32), (TaskTrack, Vec<Scanned>)> = BTreeMap::new();
        for (key, tasks) in hosts {
            let none = HashSet::new();
            let shared = shared.get(&key.snapshot).unwrap_or(&none);
            let mut scanned = divided.add_host(key, (tasks, shared), scans);
            let Some(host) = divided.hosts.get(&key) else { continue };
            for task in &host.tasks.all {
                let Some(own) = scanned.remove(&Some(task.number)) else { continue };
                let (track, known) = by_number.entry((key.snapshot, task.number)).or_default();
                track.hosts.push((key, task.clone()));
                known.push(own);
            }
        }
        for (track, mut known) in by_number.into_values() {
            let scanned = if known.len() == 1 { known.pop() } else { merged(known) };
            divided.add_track(track, scanned, scans);
        }
        divided
    }

    /// Looks through a thread. Returns what is known of the tasks that it ran.
    fn add_host(
        &mut self,
        key: ThreadKey,
        (tasks, shared): (Tasks, &HashSet<u32>),
        scans: &mut [(ThreadKey, ThreadScan)],
    ) -> HashMap<Option<u32>, Scanned> {
        let tid = self.recording.snapshots[key.snapshot].threads[key.thread].tid;
        let (mut scanned, open_step) = scan_tracks(self.source.segments(key), (&tasks, shared), tid, key);
        self.hosts.insert(key, Host { tasks, tid, open_step });
        let open_calls = self.open_calls(key).len() as u64;
        let of_thread = scans.iter_mut().find(|(of, _)| *of == key).map(|(_, scan)| scan);
        if let Some(scan) = of_thread {
            let own = scanned.remove(&None).map(|scanned| scanned.scan).unwrap_or_default();
            (scan.events, scan.entries, scan.losses) = (own.events, own.entries, own.losses);
            (scan.gaps, scan.gaps_ticks) = (own.gaps, own.gaps_ticks);
            (scan.suspended, scan.suspended_ticks) = (own.suspended, own.suspended_ticks);
            (scan.malformed_words, scan.open_calls) = (own.malformed_words, open_calls);
        }
        scanned
    }

    /// Makes a task a thread. `scanned`: what is known of it, unless it has to be looked through.
    fn add_track(
        &mut self,
        mut track: TaskTrack,
        scanned: Option<Scanned>,
        scans: &mut Vec<(ThreadKey, ThreadScan)>,
    ) {
        track.hosts.sort_by_key(|(_, task)| task.begun_ticks);
        let Some((host, task)) = track.hosts.first() else { return };
        let threads = &self.recording.snapshots[host.snapshot].threads;
        let mut thread = threads[host.thread].clone();
        thread.name.clone_from(&task.name);
        thread.fiber = Some(TASKS_FROM.saturating_add(task.number));
        thread.start_ticks = task.begun_ticks;
        (thread.first_segment, thread.segments) = (0, 0);
        (thread.unwound, thread.orphan_exits, thread.lost_busy, thread.deep) = (0, 0, 0, 0);
        thread.dropped = 0;
        let key = ThreadKey { snapshot: host.snapshot, thread: threads.len() };
        let scanned = scanned.or_else(|| Some(self.joined(&track)?.scan(key)));
        let Some(scanned) = scanned else { return };
        track.open = scanned.open;
        scans.push((key, scanned.scan));
        self.recording.snapshots[key.snapshot].threads.push(thread);
        self.tracks.insert(key, track);
    }

    fn joined<'s>(&'s self, track: &'s TaskTrack) -> Option<Joined<'s>> {
        Joined::new(track.hosts.iter().filter_map(|(key, task)| {
            let host = self.hosts.get(key)?;
            let first = task.first.and_then(|first| self.source.segments_from(*key, first));
            let segments = first.unwrap_or_else(|| self.source.segments(*key));
            Some((segments, &host.tasks, host.tid, task))
        }))
    }

    /// Leaves in a thread's segments what is no task's.
    fn lane<'s>(
        &'s self,
        key: ThreadKey,
        segments: Box<dyn SegmentCursor + 's>,
    ) -> Box<dyn SegmentCursor + 's> {
        match self.hosts.get(&key) {
            Some(host) => Box::new(Lane::new(segments, &host.tasks, host.tid)),
            None => segments,
        }
    }
}

/// The numbers of tasks that several threads have run, by snapshot.
fn shared(hosts: &[(ThreadKey, Tasks)]) -> HashMap<usize, HashSet<u32>> {
    let mut seen = HashSet::new();
    let mut shared: HashMap<usize, HashSet<u32>> = HashMap::new();
    for (key, tasks) in hosts {
        for task in &tasks.all {
            if !seen.insert((key.snapshot, task.number)) {
                shared.entry(key.snapshot).or_default().insert(task.number);
            }
        }
    }
    shared
}

impl Source for Divided<'_> {
    fn recording(&self) -> &Recording {
        &self.recording
    }

    fn open_calls(&self, key: ThreadKey) -> Vec<OpenCall> {
        if let Some(track) = self.tracks.get(&key) {
            return track.open.clone();
        }
        let mut calls = self.source.open_calls(key);
        // Those of a step that wasn't over are the task's.
        if let Some(begun) = self.hosts.get(&key).and_then(|host| host.open_step) {
            calls.retain(|call| call.ticks < begun);
        }
        calls
    }

    fn segments(&self, key: ThreadKey) -> Box<dyn SegmentCursor + '_> {
        match self.tracks.get(&key).and_then(|track| self.joined(track)) {
            Some(joined) => Box::new(joined),
            None => self.lane(key, self.source.segments(key)),
        }
    }

    fn segments_from(&self, key: ThreadKey, first: SegmentPlace) -> Option<Box<dyn SegmentCursor + '_>> {
        if self.tracks.contains_key(&key) {
            return None;
        }
        Some(self.lane(key, self.source.segments_from(key, first)?))
    }

    fn parts(&self, key: ThreadKey) -> usize {
        let is_divided = self.tracks.contains_key(&key) || self.hosts.contains_key(&key);
        if is_divided { 0 } else { self.source.parts(key) }
    }

    fn part(&self, key: ThreadKey, part: usize) -> Option<Box<dyn SegmentCursor + '_>> {
        if part < self.parts(key) { self.source.part(key, part) } else { None }
    }

    fn part_begin(&self, key: ThreadKey, part: usize) -> Option<u64> {
        if part < self.parts(key) { self.source.part_begin(key, part) } else { None }
    }
}
