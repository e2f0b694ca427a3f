//! Exceptions on their way, and the calls that they leave.
//!
//! An exception is on its way from its throw, in the innermost open call, until its handler begins.
//! So the steps that follow a throw are looked through for its catch. Until then, the calls that
//! were open at the throw may only be unwound, and make calls, which their cleanups do. If one of
//! them returns or throws again, or if stack pointers alone show that it is gone, code that isn't
//! traced has caught the exception, and the calls that it has left aren't known.

use everycall_calls::{Returned, TimelineEvent, ValuesNumber};
use everycall_format::event::unwound;
use everycall_format::label;

use super::{Pairing, Thrown};
use crate::order::AHEAD;
use crate::slots::{Step, StepKind};
use crate::values::Exception;

/// Exceptions that are on their way at once; damaged files may have any number.
const THROWN_MAX: usize = 64;
impl Pairing<'_> {
    /// Before a step: `ahead` are those that follow it.
    #[cold]
    pub fn look_ahead<'s>(&mut self, step: &Step, ahead: impl Iterator<Item = &'s Step>) {
        if let StepKind::Throw(_, Exception { of_type: Some(of_type), .. }) = step.kind {
            self.is_caught = is_caught(of_type, ahead.take(AHEAD));
        }
    }

    /// The innermost call throws.
    pub(super) fn throw(&mut self, exception: Exception) {
        let is_caught = std::mem::take(&mut self.is_caught);
        if let Some(exception) = exception.whole.filter(|_| is_caught)
            && self.state.thrown.len() < THROWN_MAX
        {
            self.state.thrown.push(Thrown { exception, frames: self.state.stack.len() });
        }
    }

    /// The innermost call catches.
    pub(super) fn catch(&mut self) {
        let frames = self.state.stack.len();
        self.state.thrown.pop_if(|last| last.frames >= frames);
    }

    /// The call that was innermost was unwound, and its end follows.
    #[cold]
    pub(super) fn left_by_exception(&mut self, at_ns: u64, out: &mut Vec<TimelineEvent>) {
        let frames = self.state.stack.len();
        if let Some(last) = self.state.thrown.last_mut().filter(|last| last.frames > frames) {
            last.frames = frames;
            out.push(TimelineEvent::Returned(Returned { at_ns, result: last.exception }));
        }
    }
}

/// Whether a traced call catches an exception of this type that was thrown before these steps.
fn is_caught<'s>(of_type: ValuesNumber, steps: impl Iterator<Item = &'s Step>) -> bool {
    // Calls that were made since, and are open; exits that are part of the present cleanup.
    let (mut made, mut cleanup_exits) = (0_u32, 0);
    for step in steps {
        match step.kind {
            StepKind::Entry(_) | StepKind::UnknownEntry(_) => made += 1,
            StepKind::Exit(_) | StepKind::UnknownExit(_) if made > 0 => made -= 1,
            StepKind::Exit(_) | StepKind::UnknownExit(_) if cleanup_exits > 0 => cleanup_exits -= 1,
            StepKind::Exit(_) | StepKind::UnknownExit(_) => return false,
            StepKind::Unwound(count, unwound::KNOWN) => made = made.saturating_sub(count),
            StepKind::Unwound(count, unwound::NOTICED) if count <= made => made -= count,
            StepKind::Catch(_, caught) if made == 0 => return caught == Some(of_type),
            StepKind::Throw(..) if made == 0 => return false,
            StepKind::Label(detail, _, value) => match detail & label::CLASS_MASK {
                label::CLEANUP if made == 0 => cleanup_exits = value,
                label::THREAD_END => return false,
                _ => {}
            },
            StepKind::Unwound(..) | StepKind::Loss(..) | StepKind::Gap(..) | StepKind::Resumed(..) => {
                return false;
            }
            StepKind::OrphanExit(_)
            | StepKind::Throw(..)
            | StepKind::Catch(..)
            | StepKind::Log(_)
            | StepKind::Output(..)
            | StepKind::Values(..)
            | StepKind::Caller(..) => {}
        }
    }
    false
}
