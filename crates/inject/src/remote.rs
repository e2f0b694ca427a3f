//! System calls that a thread of the process makes for us.

use std::time::Instant;

use crate::error::{InjectError, failed};
use crate::frame::Frame;
use crate::gadget::Gadgets;
use crate::maps::{Mapping, holding, mappings};
use crate::memory::Memory;
use crate::procfs::threads;
use crate::sys::{self, EVENT_STOP, Event, Registers, SYSCALL};
use crate::thread::Thread;

/// The largest error number.
const ERRNO_MAX: u64 = 4095;
/// Bytes that must be free on a stack besides the frame.
const STACK_LEFT: u64 = 4096;

/// A stopped thread that makes system calls, and goes on as if nothing had been when dropped.
///
/// Its signals wait meanwhile. If the tracer is killed, the thread gets back to what it did by
/// itself; a timeout of the system call that it was in may begin anew then.
pub(crate) struct Borrowed {
    thread: Thread,
    own: Registers,
    own_mask: u64,
    frame_at: u64,
    syscall_ret: u64,
    deadline: Instant,
    is_changed: bool,
}

impl Borrowed {
    /// Stops the first thread that is on a stack of its own and may be interrupted.
    ///
    /// Or takes the one that is stopped already.
    pub(crate) fn new(
        pid: i32,
        memory: &Memory,
        held: Option<Thread>,
        deadline: Instant,
    ) -> Result<Self, InjectError> {
        let maps = mappings(pid)?;
        let gadgets = Gadgets::find(pid, memory, &maps)?;
        if let Some(thread) = held {
            let borrowed = Self::of(thread, memory, &maps, &gadgets, deadline)?;
            return borrowed.ok_or_else(|| no_thread(pid));
        }
        loop {
            for tid in threads(pid) {
                let Some(mut thread) = Thread::seize(pid, tid)? else { continue };
                thread.request_stop()?;
                if !thread.wait_for_stop(deadline)? {
                    continue;
                }
                thread.hide_the_stop()?;
                // Stacks of threads that are new since.
                let maps = mappings(pid)?;
                if let Some(borrowed) = Self::of(thread, memory, &maps, &gadgets, deadline)? {
                    return Ok(borrowed);
                }
            }
            if threads(pid).is_empty() {
                return Err(InjectError::Ended { pid });
            }
            if Instant::now() >= deadline {
                return Err(no_thread(pid));
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// A thread that is stopped already; `None` if it isn't fit for it now.
    pub(crate) fn of(
        thread: Thread,
        memory: &Memory,
        maps: &[Mapping],
        gadgets: &Gadgets,
        deadline: Instant,
    ) -> Result<Option<Self>, InjectError> {
        let own = thread.registers()?;
        let vectors = sys::vector_state(thread.tid).map_err(failed("reading vector registers"))?;
        let own_mask = sys::signal_mask(thread.tid).map_err(failed("reading a signal mask"))?;
        let Some(frame) = Frame::new(&own, &vectors, own_mask, gadgets.restorer) else { return Ok(None) };
        if !is_own_stack(maps, &own, frame.at) || is_in_rseq(&thread, memory, own.rip) {
            return Ok(None);
        }
        memory.write(frame.at, &frame.bytes).map_err(failed("writing to a thread's stack"))?;
        Ok(Some(Self {
            thread,
            own,
            own_mask,
            frame_at: frame.at,
            syscall_ret: gadgets.syscall_ret,
            deadline,
            is_changed: false,
        }))
    }

    /// Makes a system call in the process; its error is that of the process.
    ///
    /// # Errors
    ///
    /// The call's error, or the process ended.
    ///
    /// The call must not block, and must not end or change the thread itself.
    pub(crate) fn call(
        &mut self,
        what: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, InjectError> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = Registers {
            rip: self.syscall_ret,
            rsp: self.frame_at,
            rax: number.cast_unsigned(),
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.own
        };
        self.thread.set_registers(&registers)?;
        if !self.is_changed {
            self.is_changed = true;
            // From here on the thread has a frame that brings its mask back.
            sys::set_signal_mask(self.thread.tid, u64::MAX)
                .map_err(|error| self.thread.lost("blocking a thread's signals", error))?;
        }
        // To the begin, to the end.
        self.run_to_system_call()?;
        self.run_to_system_call()?;
        let result = self.thread.registers()?.rax;
        if result > u64::MAX - ERRNO_MAX {
            let error = std::io::Error::from_raw_os_error(result.wrapping_neg() as i32);
            return Err(InjectError::System { what, error });
        }
        Ok(result)
    }

    /// Where the process has an empty text, as an argument of calls that want one.
    pub(crate) fn empty_text(&self) -> u64 {
        // `uc_link` of the frame.
        self.frame_at + 16
    }

    /// Stops the thread where it was.
    fn give_back(&mut self) -> Result<(), InjectError> {
        if !self.is_changed {
            return Ok(());
        }
        // Only from such a stop does the kernel restart the system call that the thread was in.
        sys::interrupt(self.thread.tid).map_err(|error| self.thread.lost("stopping a thread", error))?;
        self.thread.resume(0)?;
        if !self.thread.wait_for_stop(self.deadline)? {
            return Err(InjectError::Ended { pid: self.thread.pid });
        }
        // In this order: until the last request, the thread gets back by itself.
        sys::set_signal_mask(self.thread.tid, self.own_mask)
            .map_err(|error| self.thread.lost("restoring a thread's signal mask", error))?;
        self.thread.set_registers(&self.own)?;
        self.is_changed = false;
        Ok(())
    }

    /// The thread, stopped where it was.
    pub(crate) fn finish(mut self) -> Result<Thread, InjectError> {
        self.give_back()?;
        Ok(self.thread.take())
    }

    fn run_to_system_call(&mut self) -> Result<(), InjectError> {
        let mut signal = 0;
        loop {
            self.thread.resume_to_system_call(signal)?;
            match self.thread.next_event(self.deadline)? {
                Event::Stopped { signal: SYSCALL, event: 0 } => return Ok(()),
                // Job control stops it: it waits until it has been given back.
                Event::Stopped { event: EVENT_STOP, .. } => signal = 0,
                Event::Stopped { signal: arrived, event: 0 } => signal = arrived,
                Event::Stopped { .. } => signal = 0,
                Event::Ended => return Err(InjectError::Ended { pid: self.thread.pid }),
            }
        }
    }
}

fn no_thread(pid: i32) -> InjectError {
    InjectError::Refused(format!(
        "no thread of process {pid} was found on a stack of the system's making (all run coroutines?)"
    ))
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // If it fails, the thread was killed, or goes on by its frame when the tracer detaches.
        let _ = self.give_back();
    }
}

/// The thread runs on the stack that the system or the C library made for it, with room for a
/// frame.
///
/// Coroutines have small stacks, with other memory below.
fn is_own_stack(maps: &[Mapping], own: &Registers, frame_at: u64) -> bool {
    let Some(stack) = holding(maps, own.rsp) else { return false };
    // C libraries keep a thread's own data at the top of its stack's mapping.
    let is_own = stack.name == "[stack]" || (stack.range.contains(&own.fs_base) && own.rsp < own.fs_base);
    is_own && stack.is_writable && frame_at >= stack.range.start.saturating_add(STACK_LEFT)
}

/// The thread is inside a restartable sequence: if its rip were elsewhere when it goes on, the
/// kernel would forget to restart it.
fn is_in_rseq(thread: &Thread, memory: &Memory, rip: u64) -> bool {
    // `rseq_cs` in `struct rseq`; there: start, length, abort address behind two 32-bit numbers.
    let Some(section) = sys::rseq_of(thread.tid).and_then(|rseq| memory.number(rseq + 8).ok()) else {
        return false;
    };
    if section == 0 {
        return false;
    }
    match (memory.number(section.wrapping_add(8)), memory.number(section.wrapping_add(16))) {
        (Ok(start), Ok(length)) => rip.wrapping_sub(start) < length,
        _ => true,
    }
}
