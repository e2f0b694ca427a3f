//! System calls that a thread of the process makes for us.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::calm::Place;
use crate::error::{InjectError, failed};
use crate::frame::{Frame, clean_vectors};
use crate::gadget::Gadgets;
use crate::maps::{Mapping, holding, mappings};
use crate::memory::Memory;
use crate::procfs::threads;
use crate::sys::{self, EVENT_STOP, Event, Registers, SYSCALL};
use crate::thread::{SYSCALL_SIZE, Thread, is_restarted};

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
    own_vectors: Vec<u8>,
    own_mask: u64,
    frame_at: u64,
    syscall_ret: u64,
    deadline: Instant,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Stopped where it was.
    Untouched,
    /// It has other registers, and gets back by its frame if nobody gives it back.
    Lent,
    /// Its vector registers are others, too.
    Cleaned,
    /// It is in a function, or waits for a processor in a system call, and gets back by its frame.
    Left,
}

/// Signals by which the kernel says that an instruction failed. If they were blocked, such a
/// failure would reset the program's handler.
const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
/// By which `setuid` of glibc reaches all threads. It waits for each, with a lock that `dlopen`
/// needs.
const SETXID: i32 = 33;
/// How long threads run to their next system calls before all are looked at again.
const FOLLOWED: Duration = Duration::from_millis(200);
/// How long a thread in a function that doesn't return may take to stop.
const LEAVING: Duration = Duration::from_secs(1);

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

    /// Stops a thread that holds no lock of the C library; see [`crate::calm`].
    pub(crate) fn calm(pid: i32, memory: &Memory, deadline: Instant) -> Result<Self, InjectError> {
        let gadgets = Gadgets::find(pid, memory, &mappings(pid)?)?;
        loop {
            if let Some(borrowed) = Self::waiting(pid, memory, &gadgets, deadline)? {
                return Ok(borrowed);
            }
            // Threads that are born meanwhile are found by the next look.
            let slice = deadline.min(Instant::now() + FOLLOWED);
            if let Some(borrowed) = Self::at_next_call(pid, memory, &gadgets, slice, deadline)? {
                return Ok(borrowed);
            }
            if threads(pid).is_empty() {
                return Err(InjectError::Ended { pid });
            }
            if Instant::now() >= deadline {
                return Err(InjectError::Refused(format!(
                    "no thread of process {pid} was at a system call at which a library can be loaded (all compute?)"
                )));
            }
        }
    }

    /// A thread that waits in a system call without a lock.
    fn waiting(
        pid: i32,
        memory: &Memory,
        gadgets: &Gadgets,
        deadline: Instant,
    ) -> Result<Option<Self>, InjectError> {
        for tid in threads(pid) {
            let Some(mut thread) = Thread::seize(pid, tid)? else { continue };
            thread.request_stop()?;
            if !thread.wait_for_stop(deadline)? {
                continue;
            }
            let stopped = thread.registers()?;
            let is_waiting = thread.hide_the_stop()? || is_restarted(&stopped);
            let maps = mappings(pid)?;
            if is_waiting
                && (Place { pid, memory, registers: &stopped }).is_calm(&maps)?
                && let Some(borrowed) = Self::of(thread, memory, &maps, gadgets, deadline)?
            {
                return Ok(Some(borrowed));
            }
        }
        Ok(None)
    }

    /// Lets all threads run until one is about to make a call at which it holds no lock.
    fn at_next_call(
        pid: i32,
        memory: &Memory,
        gadgets: &Gadgets,
        until: Instant,
        deadline: Instant,
    ) -> Result<Option<Self>, InjectError> {
        let mut running = Vec::new();
        for tid in threads(pid) {
            let Some(mut thread) = Thread::seize(pid, tid)? else { continue };
            thread.request_stop()?;
            if thread.wait_for_stop(deadline)? {
                thread.hide_the_stop()?;
                thread.resume_to_system_call(0)?;
                running.push(thread);
            }
        }
        let mut found = None;
        while found.is_none() && !running.is_empty() && Instant::now() < until {
            let mut index = 0;
            let mut has_event = false;
            while let Some(thread) = running.get_mut(index) {
                let Some(event) = thread.poll()? else {
                    index += 1;
                    continue;
                };
                has_event = true;
                let signal = match event {
                    Event::Ended => {
                        running.swap_remove(index);
                        continue;
                    }
                    Event::Stopped { signal: SYSCALL, event: 0 } => {
                        let now = thread.registers()?;
                        let is_begin = now.rax.cast_signed() == -i64::from(libc::ENOSYS);
                        let maps = mappings(pid)?;
                        let is_calm = is_begin && (Place { pid, memory, registers: &now }).is_calm(&maps)?;
                        if is_calm {
                            let thread = running.swap_remove(index);
                            found = Self::before_call(thread, memory, &maps, gadgets, deadline)?;
                            break;
                        }
                        0
                    }
                    Event::Stopped { signal, event: 0 } => signal,
                    Event::Stopped { .. } => 0,
                };
                thread.resume_to_system_call(signal)?;
                index += 1;
            }
            if !has_event {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        // Only stopped threads can be let go.
        for thread in &running {
            thread.request_stop()?;
        }
        for mut thread in running {
            if thread.wait_for_stop(Instant::now() + LEAVING)? {
                thread.hide_the_stop()?;
            }
        }
        Ok(found)
    }

    /// Borrows a thread at the begin of a system call, which it makes when it is given back.
    fn before_call(
        thread: Thread,
        memory: &Memory,
        maps: &[Mapping],
        gadgets: &Gadgets,
        deadline: Instant,
    ) -> Result<Option<Self>, InjectError> {
        let stopped = thread.registers()?;
        let own = Registers {
            rip: stopped.rip.wrapping_sub(SYSCALL_SIZE),
            rax: stopped.orig_rax,
            orig_rax: u64::MAX,
            ..stopped
        };
        let Some(mut borrowed) = Self::at(thread, own, memory, maps, gadgets, deadline)? else {
            return Ok(None);
        };
        // In one step, the call becomes another one, which returns to the frame.
        let instead = Registers {
            orig_rax: libc::SYS_getpid as u64,
            rip: gadgets.syscall_ret + SYSCALL_SIZE,
            rsp: borrowed.frame_at,
            ..stopped
        };
        borrowed.thread.set_registers(&instead)?;
        borrowed.state = State::Lent;
        borrowed.run_to_system_call()?;
        sys::set_signal_mask(borrowed.thread.tid, u64::MAX)
            .map_err(|error| borrowed.thread.lost("blocking a thread's signals", error))?;
        Ok(Some(borrowed))
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
        Self::at(thread, own, memory, maps, gadgets, deadline)
    }

    /// A thread that goes on with these registers when it is given back.
    fn at(
        thread: Thread,
        own: Registers,
        memory: &Memory,
        maps: &[Mapping],
        gadgets: &Gadgets,
        deadline: Instant,
    ) -> Result<Option<Self>, InjectError> {
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
            own_vectors: vectors,
            own_mask,
            frame_at: frame.at,
            syscall_ret: gadgets.syscall_ret,
            deadline,
            state: State::Untouched,
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
        if self.state == State::Left {
            return Err(InjectError::NotReturned { tid: self.thread.tid });
        }
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
        if self.state == State::Untouched {
            self.state = State::Lent;
            // From here on the thread has a frame that brings its mask back.
            sys::set_signal_mask(self.thread.tid, u64::MAX)
                .map_err(|error| self.thread.lost("blocking a thread's signals", error))?;
        }
        // To the begin, to the end.
        let made = self.run_to_system_call().and_then(|()| self.run_to_system_call());
        if let Err(InjectError::NotStopped { .. }) = made {
            self.leave();
        }
        made?;
        let result = self.thread.registers()?.rax;
        if result > u64::MAX - ERRNO_MAX {
            let error = std::io::Error::from_raw_os_error(result.wrapping_neg() as i32);
            return Err(InjectError::System { what, error });
        }
        Ok(result)
    }

    /// Lets the thread run with these registers until it makes the system call that ends at `end`.
    ///
    /// # Errors
    ///
    /// If it doesn't get there in time, it is left to its own. If an instruction fails on the way,
    /// the thread can be given back all the same.
    pub(crate) fn run(&mut self, registers: &Registers, end: u64) -> Result<Registers, InjectError> {
        match self.state {
            State::Left => return Err(InjectError::NotReturned { tid: self.thread.tid }),
            // A harmless call, from which on the thread gets back by itself.
            State::Untouched => {
                self.call("asking for the process's number", libc::SYS_getpid, [0; 6])?;
            }
            State::Lent | State::Cleaned => {}
        }
        let tid = self.thread.tid;
        self.state = State::Cleaned;
        let clean = clean_vectors(&self.own_vectors).unwrap_or_else(|| self.own_vectors.clone());
        sys::set_vector_state(tid, &clean)
            .map_err(|error| self.thread.lost("clearing vector registers", error))?;
        let open = FAULTS.iter().chain(&[SETXID]).fold(0, |set, signal| set | 1u64 << (signal - 1));
        sys::set_signal_mask(tid, !open)
            .map_err(|error| self.thread.lost("blocking a thread's signals", error))?;
        self.thread.set_registers(registers)?;
        let mut signal = 0;
        loop {
            self.thread.resume_to_system_call(signal)?;
            signal = 0;
            match self.thread.next_event(self.deadline) {
                Ok(Event::Stopped { signal: SYSCALL, event: 0 }) => {
                    let now = self.thread.registers()?;
                    if now.rip == end {
                        self.run_to_system_call()?;
                        return Ok(now);
                    }
                }
                Ok(Event::Stopped { signal: arrived, event: 0 }) => {
                    let is_fault = FAULTS.contains(&arrived)
                        && sys::signal_cause(tid)
                            .map_err(|error| self.thread.lost("reading a signal", error))?
                            > 0;
                    if is_fault {
                        return Err(InjectError::Faulted { tid, signal: arrived });
                    }
                    signal = arrived;
                }
                // Job control stops it: it waits until it has been given back.
                Ok(Event::Stopped { .. }) => {}
                Ok(Event::Ended) => return Err(InjectError::Ended { pid: self.thread.pid }),
                Err(InjectError::NotStopped { .. }) => {
                    self.leave();
                    return Err(InjectError::NotReturned { tid });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets the thread go on in the function that it is in.
    fn leave(&mut self) {
        self.state = State::Left;
        // Only a stopped thread can be let go. If it doesn't stop, it stays traced until the
        // tracing thread ends.
        let _ = self.thread.request_stop();
        if let Ok(true) = self.thread.wait_for_stop(Instant::now() + LEAVING) {
            let _ = self.thread.hide_the_stop();
            // Nobody knows how long it stays there: signals, SIGTERM among them, mustn't wait.
            let _ = sys::set_signal_mask(self.thread.tid, self.own_mask);
        }
    }

    pub(crate) fn own(&self) -> Registers {
        self.own
    }

    pub(crate) fn frame_at(&self) -> u64 {
        self.frame_at
    }

    /// Thread-local memory is there.
    pub(crate) fn has_thread_pointer(&self) -> bool {
        self.own.fs_base != 0
    }

    pub(crate) fn pid(&self) -> i32 {
        self.thread.pid
    }

    /// The function that the thread was in goes on.
    pub(crate) fn is_left(&self) -> bool {
        self.state == State::Left
    }

    /// Code that makes system calls.
    pub(crate) fn code_of_c_library(&self) -> Range<u64> {
        self.syscall_ret..self.syscall_ret + 1
    }

    /// Where the process has an empty text, as an argument of calls that want one.
    pub(crate) fn empty_text(&self) -> u64 {
        // `uc_link` of the frame.
        self.frame_at + 16
    }

    /// Stops the thread where it was.
    fn give_back(&mut self) -> Result<(), InjectError> {
        match self.state {
            State::Untouched => return Ok(()),
            State::Left => return Err(InjectError::NotReturned { tid: self.thread.tid }),
            State::Lent | State::Cleaned => {}
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
        if self.state == State::Cleaned {
            sys::set_vector_state(self.thread.tid, &self.own_vectors)
                .map_err(|error| self.thread.lost("restoring vector registers", error))?;
        }
        self.thread.set_registers(&self.own)?;
        self.state = State::Untouched;
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
