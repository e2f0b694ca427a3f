//! Tasks: what threads do in the steps of a task is on a track of its own, where the steps follow
//! each other and calls that were suspended between them go on.
//!
//! A thread's events are divided by their place among the marks of steps
//! ([`everycall_format::label::TASK_BEGIN`]). So a source in which tasks are further threads is all
//! that is needed: each of them reads the segments of its thread, and leaves out what isn't its
//! own.

mod lane;
mod track;

use std::collections::HashMap;

use everycall_reader::{OpenCall, Recording, SegmentCursor, SegmentPlace, Source, ThreadKey};

use crate::scan::ThreadScan;
use crate::task_list::{Task, Tasks};
use crate::thread_info::TASKS_FROM;
use lane::{Lane, scan_tracks};

/// A thread of a [`Divided`] source that is a task.
struct TaskTrack {
    /// The thread that ran it.
    host: ThreadKey,
    task: Task,
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
        for (key, tasks) in hosts {
            divided.add(key, tasks, scans);
        }
        divided
    }

    fn add(&mut self, key: ThreadKey, tasks: Tasks, scans: &mut Vec<(ThreadKey, ThreadScan)>) {
        let threads = &mut self.recording.snapshots[key.snapshot].threads;
        let tid = threads[key.thread].tid;
        let (mut scanned, open_step) = scan_tracks(self.source.segments(key), &tasks, tid, key);
        for task in &tasks.all {
            let Some(own) = scanned.remove(&Some(task.number)) else { continue };
            let mut thread = threads[key.thread].clone();
            thread.name.clone_from(&task.name);
            thread.fiber = Some(TASKS_FROM.saturating_add(task.number));
            thread.start_ticks = task.begun_ticks;
            (thread.first_segment, thread.segments) = (0, 0);
            (thread.unwound, thread.orphan_exits, thread.lost_busy, thread.deep) = (0, 0, 0, 0);
            thread.dropped = 0;
            let track = ThreadKey { snapshot: key.snapshot, thread: threads.len() };
            threads.push(thread);
            self.tracks.insert(track, TaskTrack { host: key, task: task.clone(), open: own.open });
            scans.push((track, own.scan));
        }
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
    }

    fn lane<'s>(
        &'s self,
        key: ThreadKey,
        segments: Box<dyn SegmentCursor + 's>,
    ) -> Box<dyn SegmentCursor + 's> {
        let track = self.tracks.get(&key);
        let Some(host) = self.hosts.get(&track.map_or(key, |track| track.host)) else { return segments };
        let own = track.map(|track| track.task.number);
        let last = track.map_or(u64::MAX, |track| track.task.last);
        Box::new(Lane::new(segments, &host.tasks, host.tid, own, last))
    }
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
        let track = self.tracks.get(&key);
        let host = track.map_or(key, |track| track.host);
        let first = track.and_then(|track| self.source.segments_from(host, track.task.first?));
        self.lane(key, first.unwrap_or_else(|| self.source.segments(host)))
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
