//! One traced thread.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::error::{InjectError, failed};
use crate::procfs::Status;
use crate::sys::{self, EVENT_STOP, Event, Registers};

/// A thread that this thread traces. When it is dropped, the traced thread goes on untraced.
///
/// A thread that couldn't be stopped stays traced until the tracing thread ends: that is why
/// everything happens inside [`crate::on_tracer`].
pub(crate) struct Thread {
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    is_stopped: bool,
    /// Only the thread that traces may make requests.
    not_send: PhantomData<*const ()>,
}

/// System calls that end with EINTR when a tracer stops them, although no signal handler ran
/// (signal(7)): the kernel restarts all others.
const NOT_RESTARTED: [i64; 8] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    // io_pgetevents
    333,
];

impl Thread {
    /// Traces a thread, which runs on.
    pub(crate) fn seize(pid: i32, tid: i32) -> Result<Option<Self>, InjectError> {
        match sys::seize(tid, libc::PTRACE_O_TRACESYSGOOD) {
            Ok(()) => Ok(Some(Self { pid, tid, is_stopped: false, not_send: PhantomData })),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            // It is ending, or traced by another one since the check.
            Err(_) if Status::of(pid, tid).is_none_or(|status| status.has_ended()) => Ok(None),
            Err(error) => {
                Err(InjectError::Refused(format!("thread {tid} of process {pid} can't be traced: {error}")))
            }
        }
    }

    /// Traces a process that is about to execute a program.
    pub(crate) fn seize_start(pid: i32) -> Result<Self, InjectError> {
        sys::seize(pid, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC)
            .map_err(|error| InjectError::Refused(format!("the program can't be traced: {error}")))?;
        Ok(Self { pid, tid: pid, is_stopped: false, not_send: PhantomData })
    }

    /// Takes the thread out, and leaves one behind that nothing is done with.
    pub(crate) fn take(&mut self) -> Self {
        let gone = Self { pid: self.pid, tid: self.tid, is_stopped: false, not_send: PhantomData };
        std::mem::replace(self, gone)
    }

    pub(crate) fn request_stop(&self) -> Result<(), InjectError> {
        match sys::interrupt(self.tid) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                Err(failed("stopping a thread")(error))
            }
            _ => Ok(()),
        }
    }

    /// Waits until a thread stops that was asked to; false if it has ended.
    ///
    /// Signals that arrive first are delivered.
    pub(crate) fn wait_for_stop(&mut self, deadline: Instant) -> Result<bool, InjectError> {
        while let Event::Stopped { signal, event } = self.next_event(deadline)? {
            if event == EVENT_STOP {
                return Ok(true);
            }
            // Any stop takes the place of the one that was asked for.
            self.request_stop()?;
            self.resume(if event == 0 && signal != sys::SYSCALL { signal } else { 0 })?;
        }
        Ok(false)
    }

    /// Events since the last look.
    pub(crate) fn poll(&mut self) -> Result<Option<Event>, InjectError> {
        let event = sys::poll(self.tid, self.tid == self.pid).map_err(failed("waiting for a thread"))?;
        match event {
            Some(event) => self.is_stopped = event != Event::Ended,
            // The first thread's end isn't reported while others live.
            None if self.tid == self.pid
                && Status::of(self.pid, self.tid).is_none_or(|status| status.has_ended()) =>
            {
                return Ok(Some(Event::Ended));
            }
            None => {}
        }
        Ok(event)
    }

    /// Waits for whatever happens next.
    pub(crate) fn next_event(&mut self, deadline: Instant) -> Result<Event, InjectError> {
        let mut pause = Duration::from_micros(20);
        loop {
            if let Some(event) =
                sys::poll(self.tid, self.tid == self.pid).map_err(failed("waiting for a thread"))?
            {
                self.is_stopped = event != Event::Ended;
                return Ok(event);
            }
            let status = Status::of(self.pid, self.tid);
            // The first thread's end isn't reported while others live.
            if status.as_ref().is_none_or(Status::has_ended) {
                // That of others has to be taken note of, or they stay in the process's list.
                let _ = sys::poll(self.tid, self.tid == self.pid);
                return Ok(Event::Ended);
            }
            if Instant::now() >= deadline {
                let state = status.map_or('?', |status| status.state());
                return Err(InjectError::NotStopped { tid: self.tid, state });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }

    /// Undoes what the stop itself did: a system call that ended with EINTR because of it is made
    /// again. A timeout that the call has begins anew.
    ///
    /// True if it did that.
    pub(crate) fn hide_the_stop(&self) -> Result<bool, InjectError> {
        let mut registers = self.registers()?;
        let number = registers.orig_rax.cast_signed();
        let was_interrupted = registers.rax.cast_signed() == -i64::from(libc::EINTR);
        if !was_interrupted || !NOT_RESTARTED.contains(&number) {
            return Ok(false);
        }
        // A signal that waits has interrupted it rightly.
        if Status::of(self.pid, self.tid).is_none_or(|status| status.has_signal()) {
            return Ok(false);
        }
        registers.rip = registers.rip.wrapping_sub(SYSCALL_SIZE);
        registers.rax = registers.orig_rax;
        registers.orig_rax = u64::MAX;
        self.set_registers(&registers).map(|()| true)
    }

    pub(crate) fn registers(&self) -> Result<Registers, InjectError> {
        sys::registers(self.tid).map_err(|error| self.lost("reading a thread's registers", error))
    }

    pub(crate) fn set_registers(&self, registers: &Registers) -> Result<(), InjectError> {
        sys::set_registers(self.tid, registers)
            .map_err(|error| self.lost("writing a thread's registers", error))
    }

    pub(crate) fn resume(&mut self, signal: i32) -> Result<(), InjectError> {
        self.is_stopped = false;
        sys::resume(self.tid, signal).map_err(|error| self.lost("resuming a thread", error))
    }

    pub(crate) fn resume_to_system_call(&mut self, signal: i32) -> Result<(), InjectError> {
        self.is_stopped = false;
        sys::resume_to_system_call(self.tid, signal).map_err(|error| self.lost("resuming a thread", error))
    }

    /// A stopped thread that can't be found was killed.
    pub(crate) fn lost(&self, what: &'static str, error: std::io::Error) -> InjectError {
        match error.raw_os_error() {
            Some(libc::ESRCH) => InjectError::Ended { pid: self.pid },
            _ => InjectError::System { what, error },
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.is_stopped {
            // It fails only if the thread was killed.
            let _ = sys::detach(self.tid);
        }
    }
}

/// Bytes of a `syscall` instruction.
pub(crate) const SYSCALL_SIZE: u64 = 2;

/// The kernel will make this thread's interrupted system call again.
pub(crate) fn is_restarted(registers: &Registers) -> bool {
    // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK.
    registers.orig_rax.cast_signed() >= 0 && matches!(registers.rax.cast_signed(), -516 | -514 | -513 | -512)
}
