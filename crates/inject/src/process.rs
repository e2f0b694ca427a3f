//! A process that is changed.

use std::fs::File;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::error::{InjectError, failed};
use crate::function::Caller;
use crate::memory::Memory;
use crate::refusal::check;
use crate::region::{self, Access};
use crate::remote::Borrowed;
use crate::stopped::Stopped;
use crate::symbols;
use crate::thread::Thread;

/// A process that may be changed. Inside of [`crate::on_tracer`] only.
pub struct Process {
    pid: i32,
    memory: Memory,
    /// A thread that stays stopped between the steps: at the program's start.
    held: Option<Thread>,
}

impl Process {
    /// Checks that the process may be changed, and touches nothing.
    ///
    /// # Errors
    ///
    /// Those of [`check`].
    pub fn open(pid: i32) -> Result<Self, InjectError> {
        check(pid)?;
        let memory = Memory::open(pid).map_err(|error| {
            InjectError::Refused(format!("the memory of process {pid} can't be opened: {error}"))
        })?;
        Ok(Self { pid, memory, held: None })
    }

    pub(crate) fn held(pid: i32, memory: Memory, thread: Thread) -> Self {
        Self { pid, memory, held: Some(thread) }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lends one thread, which is stopped meanwhile; the others run on.
    ///
    /// After an error, a program that was stopped at its entry runs on.
    ///
    /// # Errors
    ///
    /// If no thread is fit for it within `timeout`, or those of `work`.
    pub fn with_thread<T>(
        &mut self,
        timeout: Duration,
        work: impl FnOnce(&mut Remote<'_>) -> Result<T, InjectError>,
    ) -> Result<T, InjectError> {
        let deadline = Instant::now() + timeout;
        let is_held = self.held.is_some();
        let borrowed = Borrowed::new(self.pid, &self.memory, self.held.take(), deadline)?;
        let mut remote = Remote { pid: self.pid, memory: &self.memory, borrowed, caller: None };
        let result = work(&mut remote);
        let thread = remote.finish();
        match thread {
            Ok(thread) if is_held => self.held = Some(thread),
            // The first error is the cause of the other one.
            Err(error) if result.is_ok() => return Err(error),
            _ => {}
        }
        result
    }

    /// Stops all threads while `work` is done.
    ///
    /// # Errors
    ///
    /// If not all stop within `timeout`: they go on as before. Or those of `work`.
    pub fn with_all_stopped<T>(
        &mut self,
        timeout: Duration,
        work: impl FnOnce(&Stopped<'_>) -> Result<T, InjectError>,
    ) -> Result<T, InjectError> {
        let held = self.held.take();
        let tid = held.as_ref().map(|thread| thread.tid);
        let stopped = Stopped::new(self.pid, &self.memory, held, Instant::now() + timeout)?;
        let result = work(&stopped);
        self.held = stopped.release(tid);
        result
    }

    /// The address of a dynamic symbol of a file that is mapped, whose first page is at `start`.
    /// `None` if it defines no such symbol, or one that is chosen when it is used (an ifunc).
    pub fn symbol(&self, start: u64, name: &str) -> Option<u64> {
        symbols::address(&self.memory, start, name)
    }

    /// Reads memory.
    ///
    /// # Errors
    ///
    /// If nothing is mapped there, or the process has ended.
    pub fn read(&self, at: u64, size: usize) -> Result<Vec<u8>, InjectError> {
        self.memory.read(at, size).map_err(failed("reading the process's memory"))
    }

    /// Writes memory of our own in the process.
    ///
    /// # Errors
    ///
    /// If nothing is mapped there, or the process has ended.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), InjectError> {
        self.memory.write(at, bytes).map_err(failed("writing to the process's memory"))
    }
}

/// A thread that makes system calls and calls functions in the process.
pub struct Remote<'a> {
    pid: i32,
    memory: &'a Memory,
    borrowed: Borrowed,
    caller: Option<Caller>,
}

impl Remote<'_> {
    /// Makes any system call that neither blocks nor ends or changes the thread.
    ///
    /// # Errors
    ///
    /// The call's own error, with `what` was attempted; or the process has ended.
    pub fn call(&mut self, what: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64, InjectError> {
        self.borrowed.call(what, number, arguments)
    }

    /// Calls a function of the process, with integers or addresses as its arguments, and returns
    /// what it returns.
    ///
    /// It runs on a stack of its own (1 MiB), with signals blocked. `errno` stays as it was, unless
    /// the program has its C library in itself. If this process is killed meanwhile, the function
    /// runs to its end, and the thread goes back to what it did.
    ///
    /// The function must not need a lock that the borrowed thread may hold.
    ///
    /// # Errors
    ///
    /// If the function doesn't return in time: then the thread goes on in it, and does nothing more
    /// for us. If it fails. Or the process has ended.
    pub fn call_function(&mut self, function: u64, arguments: [u64; 6]) -> Result<u64, InjectError> {
        let caller = match self.caller.take() {
            Some(caller) => caller,
            None => Caller::map(self.pid, self.memory, &mut self.borrowed)?,
        };
        let result = caller.call(self.memory, &mut self.borrowed, function, arguments);
        self.caller = Some(caller);
        result
    }

    /// The thread, stopped where it was.
    fn finish(mut self) -> Result<Thread, InjectError> {
        if let Some(caller) = self.caller.take().filter(|_| !self.borrowed.is_left()) {
            caller.unmap(&mut self.borrowed)?;
        }
        self.borrowed.finish()
    }

    /// Maps and fills memory within 2 GiB of all of `module`. No page is writable and executable.
    ///
    /// # Errors
    ///
    /// If there is no gap, or the system allows no executable memory.
    pub fn map_near(
        &mut self,
        module: Range<u64>,
        contents: &[u8],
        access: Access,
    ) -> Result<u64, InjectError> {
        region::map_near(self.pid, self.memory, &mut self.borrowed, module, contents, access)
    }

    /// Maps and fills memory at a free place.
    ///
    /// # Errors
    ///
    /// If something is there already (EEXIST), or the system allows no executable memory.
    pub fn map_at(&mut self, at: u64, contents: &[u8], access: Access) -> Result<(), InjectError> {
        region::map_at(self.pid, self.memory, &mut self.borrowed, at, contents, access)
    }

    /// Maps zeros at a free place that the process may write, and that its forked children share.
    /// The file has them, also when the process has ended.
    ///
    /// # Errors
    ///
    /// If something is there already (EEXIST), or there is no memory.
    pub fn map_shared(&mut self, at: u64, size: u64) -> Result<File, InjectError> {
        region::map_shared(self.pid, &mut self.borrowed, at, size)
    }

    /// Unmaps what was mapped.
    ///
    /// # Errors
    ///
    /// The kernel's, or the process has ended.
    pub fn unmap(&mut self, at: u64, size: u64) -> Result<(), InjectError> {
        self.call("unmapping memory in the process", libc::SYS_munmap, [at, size, 0, 0, 0, 0]).map(|_| ())
    }
}
