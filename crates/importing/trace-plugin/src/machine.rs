//! A thread of the emulated program, as the device sees it. Holds no pointer and no
//! `unsafe`.

use std::time::Instant;

use everycall_trace_device::{Encoder, Event, Parameters, Place, Ring, Thread};

/// Facts about a thread.
pub(crate) struct Machine {
    pub tid: u32,
    begin: Instant,
    encoder: Encoder,
    ring: Ring,
    /// Where the return addresses of calls lie, the innermost last.
    calls: Vec<u64>,
    /// Recorded calls: stack pointer, and whether they are calls of ids.
    open: Vec<(u64, bool)>,
    /// The next return is that of a recorded call.
    is_leaving: bool,
}

/// Distance of a made-up stack pointer, of a signal's handler, from that of what it interrupts.
const HANDLER: u64 = 4;
/// Distance of ids' stack pointers from those of the functions that they are called in.
const ID: u64 = 8;

impl Machine {
    pub(crate) fn new(begin: Instant, blocks: usize, tid: u32) -> Machine {
        Machine {
            tid,
            begin,
            encoder: Encoder::new(Parameters::DEVICE),
            ring: Ring::new(blocks),
            calls: Vec::new(),
            open: Vec::new(),
            is_leaving: false,
        }
    }

    fn put(&mut self, event: Event) {
        let at = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX / 2);
        if let (_, Some(block)) = self.encoder.put(at, event) {
            self.ring.push(block);
        }
    }

    /// A call has written its return address: what lay there or below has ended.
    pub(crate) fn call(&mut self, stack: u64) {
        while self.calls.last().is_some_and(|call| *call <= stack) {
            self.calls.pop();
        }
        self.calls.push(stack);
        while self.open.last().is_some_and(|(open, _)| *open <= stack) {
            self.open.pop();
        }
    }

    /// A return has read its address.
    pub(crate) fn ret(&mut self, stack: u64) {
        while self.calls.last().is_some_and(|call| *call < stack) {
            self.calls.pop();
        }
        if std::mem::take(&mut self.is_leaving) {
            let stack = self.close(stack);
            self.put(Event::Leave { stack });
        }
        if self.calls.last() == Some(&stack) {
            self.calls.pop();
        }
    }

    /// TRACE, enter.
    pub(crate) fn enter(&mut self, address: u64) {
        let mut stack = self.innermost();
        // The kernel calls handlers of signals without a call instruction.
        if let Some((open, false)) = self.open.last()
            && *open <= stack
        {
            stack = *open - HANDLER;
        }
        self.open.push((stack, false));
        self.put(Event::Enter { place: Place::Code(address), stack });
    }

    /// TRACE, leave: it is recorded with the return, which shows the stack pointer.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// TRACE, leave by jump.
    pub(crate) fn leave_by_jump(&mut self) {
        let stack = self.close(self.innermost());
        self.put(Event::LeaveByJump { stack });
    }

    /// TRACE, enter with id.
    pub(crate) fn enter_id(&mut self, id: u64) {
        let stack = self.innermost() - ID;
        self.open.push((stack, true));
        self.put(Event::Enter { place: Place::Id(id), stack });
    }

    /// TRACE, leave with id.
    pub(crate) fn leave_id(&mut self) {
        let stack = self.innermost() - ID;
        while self.open.last().is_some_and(|(open, _)| *open < stack) {
            self.open.pop();
        }
        if self.open.last() == Some(&(stack, true)) {
            self.open.pop();
        }
        self.put(Event::LeaveId { stack });
    }

    /// TRACE, word.
    pub(crate) fn word(&mut self, value: u64) {
        self.put(Event::Word { value });
    }

    /// Where the return address of the innermost call lies.
    fn innermost(&self) -> u64 {
        self.calls.last().copied().unwrap_or(1 << 62)
    }

    /// The stack pointer that the call had at its entry which ends with this one.
    fn close(&mut self, stack: u64) -> u64 {
        match self.open.last() {
            // A handler, whose stack pointer was made up.
            Some((open, false)) if *open > stack => {
                let open = *open;
                self.open.pop();
                return open;
            }
            _ => {}
        }
        while self.open.last().is_some_and(|(open, _)| *open < stack) {
            self.open.pop();
        }
        if self.open.last() == Some(&(stack, false)) {
            self.open.pop();
        }
        stack
    }

    pub(crate) fn thread(&self) -> Thread {
        let mut blocks: Vec<u8> = self.ring.blocks().flatten().copied().collect();
        blocks.extend(self.encoder.block());
        Thread { tid: self.tid, overwritten: self.ring.dropped(), blocks }
    }
}
