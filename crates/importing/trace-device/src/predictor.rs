//! Facts that encoder and decoder share: the last values, places met lately, open calls.

use std::collections::VecDeque;

use crate::event::{Event, Place};
use crate::parameters::Parameters;

#[derive(Clone, Copy, Debug)]
struct CallPlace {
    place: Place,
    /// From its stack pointer to that of the call that it made last.
    frame: u64,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    stack: u64,
    slot: usize,
}

/// The state that a block begins with empty.
#[derive(Clone, Debug)]
pub(crate) struct Predictor {
    /// Units of time.
    pub units: u64,
    pub stack: u64,
    /// The last address and id that were written out.
    pub code: u64,
    pub id: u64,
    known: Vec<Option<CallPlace>>,
    frames: VecDeque<Frame>,
    frames_max: usize,
}

impl Predictor {
    pub fn new(parameters: &Parameters) -> Predictor {
        Predictor {
            units: 0,
            stack: 0,
            code: 0,
            id: 0,
            known: vec![None; parameters.places],
            frames: VecDeque::with_capacity(parameters.frames),
            frames_max: parameters.frames,
        }
    }

    /// Begins a block: only the values that its head has stay.
    pub fn clear(&mut self) {
        self.known.fill(None);
        self.frames.clear();
        self.code = 0;
        self.id = 0;
    }

    /// The only slot of the table that a place may be in.
    pub fn slot_of(&self, place: Place) -> usize {
        let mixed = place.value().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize & (self.known.len() - 1)
    }

    pub fn known(&self, slot: usize) -> Option<Place> {
        self.known.get(slot).copied().flatten().map(|known| known.place)
    }

    /// The stack pointer that the next entry probably has.
    pub fn next_enter(&self) -> u64 {
        let Some(caller) = self.frames.back() else { return self.stack };
        let frame = self.known.get(caller.slot).copied().flatten().map_or(0, |known| known.frame);
        caller.stack.wrapping_sub(frame)
    }

    /// The stack pointer that the next exit probably has.
    pub fn next_leave(&self) -> u64 {
        self.frames.back().map_or(self.stack, |frame| frame.stack)
    }

    pub fn apply(&mut self, event: &Event) {
        match *event {
            Event::Enter { place, stack } => {
                let is_dead = |frame: &Frame| match place {
                    Place::Code(_) => frame.stack <= stack,
                    Place::Id(_) => frame.stack < stack,
                };
                while self.frames.back().is_some_and(is_dead) {
                    self.frames.pop_back();
                }
                let slot = self.slot_of(place);
                if self.known(slot) != Some(place) {
                    self.known[slot] = Some(CallPlace { place, frame: 0 });
                    match place {
                        Place::Code(code) => self.code = code,
                        Place::Id(id) => self.id = id,
                    }
                }
                if let Some(caller) = self.frames.back()
                    && let Some(Some(known)) = self.known.get_mut(caller.slot)
                {
                    known.frame = caller.stack.wrapping_sub(stack);
                }
                if self.frames.len() == self.frames_max {
                    self.frames.pop_front();
                }
                self.frames.push_back(Frame { stack, slot });
                self.stack = stack;
            }
            Event::Leave { stack } | Event::LeaveByJump { stack } | Event::LeaveId { stack } => {
                while self.frames.back().is_some_and(|frame| frame.stack < stack) {
                    self.frames.pop_back();
                }
                if self.frames.back().is_some_and(|frame| frame.stack == stack) {
                    self.frames.pop_back();
                }
                self.stack = stack;
            }
            Event::Word { .. } | Event::Lost { .. } => {}
        }
    }
}
