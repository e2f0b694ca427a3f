//! A recording that has ended.

use std::io::{self, Write};
use std::process::ExitStatus;
use std::sync::Arc;

use everycall_format::arena::ChildEntry;
use everycall_format::ect::ProcessEnd;
use everycall_machine::clock::Readings;
use everycall_sched::Sched;
use everycall_stacks::Stacks;
use everycall_tracefile::Summary;

use crate::memory::arena::Arena;
use crate::output::trace_writer::{Beside, TraceWriter};
use crate::process::member::Member;
use crate::session::options::KeepBox;

/// A recording that has ended, with its results.
#[derive(Debug)]
pub struct Ended {
    pub(super) members: Vec<Member>,
    pub(super) children: Vec<ChildEntry>,
    pub(super) untraced: u32,
    pub(super) end: ProcessEnd,
    pub(super) readings: Readings,
    pub(super) status: ExitStatus,
    pub(super) keep: Option<KeepBox>,
    pub(super) sched: Option<Sched>,
    pub(super) stacks: Option<Stacks>,
}

impl Ended {
    /// How the program ended.
    #[must_use]
    pub fn status(&self) -> ExitStatus {
        self.status
    }

    /// The arena of the process that claimed one first.
    #[must_use]
    pub fn first_arena(&self) -> Option<Arc<Arena>> {
        self.members.first().map(|member| Arc::clone(&member.arena))
    }

    /// Writes the rest of the file and ends it. Returns the output, flushed.
    ///
    /// # Errors
    ///
    /// Those of the output, including errors of earlier writes.
    pub fn write<W: Write>(self, mut file: TraceWriter<W>) -> io::Result<(Summary, W)> {
        let Ended { mut members, children, untraced, end, readings, keep, mut sched, mut stacks, .. } = self;
        file.clock(&readings, members.first())?;
        for member in &mut members {
            file.member(member, &readings, Beside { sched: sched.as_mut(), stacks: stacks.as_mut() })?;
        }
        file.log_files(members.first(), end.ticks)?;
        file.sched(sched.as_mut())?;
        file.stacks(stacks.as_mut(), true)?;
        if let Some(KeepBox(mut keep)) = keep {
            keep.write(&mut |process, kind, payload| file.chunk(process, kind, payload))?;
        }
        file.end(&children, untraced, &end, &readings)
    }
}
