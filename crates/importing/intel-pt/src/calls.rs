//! Calls of a thread, from its branches.

use crate::clock::Time;
use crate::code::{Kind, Place};

/// The most open calls of a thread.
const DEPTH_MAX: usize = 1 << 16;

/// Receives the calls.
pub trait CallSink {
    /// A function was entered, at this address.
    fn entry(&mut self, at: Time, address: u64);
    /// The function at this address was left.
    fn exit(&mut self, at: Time, address: u64);
    /// So many of the innermost calls were left without a return.
    fn unwound(&mut self, at: Time, count: u32);
    /// Events are missing here, and so is what is open.
    fn lose(&mut self, at: Time);
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Where it returns to; 0 if that isn't known.
    return_to: u64,
    /// Where it was entered.
    entered: u64,
    /// The function that runs in it: tail calls change it.
    function: u64,
    /// A stub of the linker's, which jumps to the function that was called: it isn't shown.
    is_stub: bool,
}

/// Where the program was when it was left.
#[derive(Clone, Copy, Debug, Default)]
enum LastPlace {
    /// It isn't known.
    #[default]
    Unknown,
    /// At an address, and where it would go on.
    At(u64, u64),
    /// In code that isn't known.
    Missing,
}

/// The open calls of a thread.
#[derive(Debug, Default)]
pub struct Calls {
    frames: Vec<Frame>,
    left: LastPlace,
    /// Where signals interrupted the program, and how many calls were open there.
    interrupted: Vec<(u64, u64, usize)>,
    /// Something was shown since the beginning or the last gap.
    has_begun: bool,
}

impl Calls {
    /// A call.
    pub fn call(&mut self, at: Time, to: &Place, return_to: u64, sink: &mut impl CallSink) {
        self.push(at, to, return_to, sink);
    }

    fn push(&mut self, at: Time, to: &Place, return_to: u64, sink: &mut impl CallSink) {
        if self.frames.len() >= DEPTH_MAX {
            self.gap(at, sink);
        }
        let is_stub = to.function == 0 && to.kind == Kind::IndirectJump;
        self.frames.push(Frame { return_to, entered: to.start, function: to.function, is_stub });
        if !is_stub {
            self.has_begun = true;
            sink.entry(at, to.start);
        }
    }

    fn pop(&mut self, at: Time, sink: &mut impl CallSink) {
        if let Some(frame) = self.frames.pop()
            && !frame.is_stub
        {
            sink.exit(at, frame.entered);
        }
    }

    /// Only this many calls stay open.
    fn unwind_to(&mut self, at: Time, depth: usize, sink: &mut impl CallSink) {
        if depth >= self.frames.len() {
            return;
        }
        let count = self.frames.drain(depth..).filter(|frame| !frame.is_stub).count();
        self.interrupted.retain(|(_, _, open)| *open <= depth);
        if count > 0 {
            sink.unwound(at, count as u32);
        }
    }

    /// A return.
    pub fn ret(&mut self, at: Time, from: &Place, to: &Place, sink: &mut impl CallSink) {
        match self.frames.last() {
            Some(frame) if frame.return_to == to.start || frame.return_to == 0 => self.pop(at, sink),
            None if to.begins_function() => self.tail(at, from, to, sink),
            None => {
                // Its entry was before the trace.
                self.has_begun = true;
                sink.exit(at, if from.function == 0 { from.start } else { from.function });
            }
            Some(_) => {
                if let Some(index) = self.frames.iter().rposition(|frame| frame.return_to == to.start) {
                    self.unwind_to(at, index + 1, sink);
                    self.pop(at, sink);
                } else {
                    self.land(at, from, to, sink);
                }
            }
        }
    }

    /// A jump to another function, or by a register.
    pub fn jump(&mut self, at: Time, from: &Place, to: &Place, sink: &mut impl CallSink) {
        if to.function != from.function {
            self.land(at, from, to, sink);
        }
    }

    /// A jump to another function, or a return that none of the open calls expects.
    fn land(&mut self, at: Time, from: &Place, to: &Place, sink: &mut impl CallSink) {
        if to.function == 0 || to.begins_function() {
            return self.tail(at, from, to, sink);
        }
        // An exception or `longjmp`, into the middle of a function that is open.
        match self.frames.iter().rposition(|frame| frame.function == to.function) {
            Some(index) => self.unwind_to(at, index + 1, sink),
            None if from.kind == Kind::Return => self.gap(at, sink),
            // A function whose entry was before the trace.
            None if from.kind == Kind::IndirectJump => self.unwind_to(at, 0, sink),
            // Functions that share code.
            None => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.function = to.function;
                }
            }
        }
    }

    fn tail(&mut self, at: Time, from: &Place, to: &Place, sink: &mut impl CallSink) {
        match self.frames.last().copied() {
            Some(frame) => {
                self.pop(at, sink);
                self.push(at, to, frame.return_to, sink);
            }
            None => {
                self.has_begun = true;
                sink.exit(at, if from.function == 0 { from.start } else { from.function });
                self.push(at, to, 0, sink);
            }
        }
    }

    /// The program was left, and would go on at `next`.
    pub fn leave(&mut self, from: u64, next: u64) {
        self.left = LastPlace::At(from, next);
    }

    /// The program goes on here.
    pub fn enter(&mut self, at: Time, to: &Place, sink: &mut impl CallSink) {
        let address = to.start;
        let left = std::mem::take(&mut self.left);
        if let LastPlace::At(from, next) = left {
            // A system call that is repeated goes on at itself.
            if address == next || address == from {
                return;
            }
            let known = |(from, next, _): &(u64, u64, usize)| address == *from || address == *next;
            if let Some(index) = self.interrupted.iter().rposition(known) {
                // A signal's handler has ended; its return was seen before.
                let depth = self.interrupted.get(index).map_or(0, |(_, _, depth)| *depth);
                self.interrupted.truncate(index);
                return self.unwind_to(at, depth, sink);
            }
        }
        if let Some(index) = self.frames.iter().rposition(|frame| frame.return_to == address) {
            self.unwind_to(at, index + 1, sink);
            return self.pop(at, sink);
        }
        let is_open = self.frames.iter().rposition(|frame| frame.function == to.function);
        match (left, is_open) {
            // The trace begins here.
            (LastPlace::Unknown, _) if !to.begins_function() => {}
            (LastPlace::Unknown, _) => self.push(at, to, 0, sink),
            (LastPlace::At(from, next), _) if to.begins_function() => {
                self.interrupted.push((from, next, self.frames.len()));
                self.push(at, to, 0, sink);
            }
            (LastPlace::Missing, _) if to.begins_function() => self.push(at, to, 0, sink),
            (_, Some(index)) if to.function != 0 => self.unwind_to(at, index + 1, sink),
            // Nothing is open that it could contradict.
            _ if self.frames.is_empty() => {}
            _ => self.gap(at, sink),
        }
    }

    /// Branches are missing, and so is what they did to the open calls.
    pub fn gap(&mut self, at: Time, sink: &mut impl CallSink) {
        self.frames.clear();
        self.interrupted.clear();
        self.left = LastPlace::Unknown;
        if std::mem::take(&mut self.has_begun) {
            sink.lose(at);
        }
    }

    /// The program is in code that isn't known. Where it is seen again, [`Calls::enter`] finds out
    /// what was called and left meanwhile.
    pub fn missing(&mut self) {
        self.left = LastPlace::Missing;
    }

    /// The program has ended, or another one was executed.
    pub fn end(&mut self, at: Time, sink: &mut impl CallSink) {
        self.unwind_to(at, 0, sink);
        self.left = LastPlace::Unknown;
        self.interrupted.clear();
    }

    /// Calls that are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }
}
