//! The tasks that the marks of a thread's events name
//! ([`everycall_format::label::TASK_BEGIN`]).

use std::collections::HashMap;

use everycall_format::label;
use everycall_reader::SegmentPlace;
use everycall_reader::event::label_name;

/// Tasks of a thread that get tracks; the calls of further ones stay on the thread's.
pub(crate) const TASKS_MAX: usize = 4096;

/// A task in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub number: u32,
    /// The one it had last.
    pub name: Vec<u8>,
    pub begun_ticks: u64,
    /// Where to begin to read.
    pub first: Option<SegmentPlace>,
    /// Number of the last segment with a step of it; the highest number while a step hasn't ended,
    /// because what the thread does until its last segment belongs to that step.
    pub last: u64,
}

/// The tasks that a thread's events name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tasks {
    pub all: Vec<Task>,
    by_number: HashMap<u32, usize>,
    /// Whether there were more than get tracks.
    pub are_too_many: bool,
    /// The segment that is looked through.
    number: u64,
    place: Option<SegmentPlace>,
}

impl Tasks {
    /// Begins segment `number`. `is_behind_loss`: what came before it isn't there, so steps that
    /// were open there aren't known to go on.
    pub fn begin_segment(&mut self, number: u64, place: Option<SegmentPlace>, is_behind_loss: bool) {
        if is_behind_loss {
            let before = self.number;
            self.all.iter_mut().filter(|task| task.last == u64::MAX).for_each(|task| task.last = before);
        }
        (self.number, self.place) = (number, place);
    }

    /// A mark of the segment, if it is one of a step.
    pub fn mark(&mut self, words: &[u64], slot: u32, detail: u8, value: u64, ticks: u64) {
        let number = value as u32;
        match detail & label::CLASS_MASK {
            label::TASK_BEGIN => {
                let name = label_name(words, slot);
                if let Some(task) = self.task(number) {
                    task.last = u64::MAX;
                    if task.name != name.bytes() {
                        task.name = name.bytes().to_vec();
                    }
                } else if self.all.len() < TASKS_MAX {
                    self.by_number.insert(number, self.all.len());
                    self.all.push(Task {
                        number,
                        name: name.bytes().to_vec(),
                        begun_ticks: ticks,
                        first: self.place,
                        last: u64::MAX,
                    });
                } else {
                    self.are_too_many = true;
                }
            }
            label::TASK_END => {
                let last = self.number;
                if let Some(task) = self.task(number) {
                    task.last = last;
                }
            }
            _ => {}
        }
    }

    fn task(&mut self, number: u32) -> Option<&mut Task> {
        self.all.get_mut(*self.by_number.get(&number)?)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn has(&self, number: u32) -> bool {
        self.by_number.contains_key(&number)
    }
}
