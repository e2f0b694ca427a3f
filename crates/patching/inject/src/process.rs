//! A process that is changed.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{InjectError, failed};
use crate::function::Caller;
use crate::library;
use crate::memory::Memory;
use crate::refusal::{check, check_goes_on};
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
        self.lend(borrowed, is_held, work)
    }

    fn lend<T>(
        &mut self,
        borrowed: Borrowed,
        is_held: bool,
        work: impl FnOnce(&mut Remote<'_>) -> Result<T, InjectError>,
    ) -> Result<T, InjectError> {
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

    /// Lends a thread that holds no lock of the C library, as [`Remote::load_library`] needs it.
    /// One that waits for something; else the first one that makes a system call at which it holds
    /// none.
    ///
    /// # Errors
    ///
    /// If no thread makes such a call within `timeout`, or those of [`Process::with_thread`].
    pub fn with_calm_thread<T>(
        &mut self,
        timeout: Duration,
        work: impl FnOnce(&mut Remote<'_>) -> Result<T, InjectError>,
    ) -> Result<T, InjectError> {
        if self.held.is_some() {
            // At the entry point nothing has begun.
            return self.with_thread(timeout, work);
        }
        check_goes_on(self.pid)?;
        let borrowed = Borrowed::calm(self.pid, &self.memory, Instant::now() + timeout)?;
        self.lend(borrowed, false, work)
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
        self.with_caller(|memory, borrowed, caller| caller.call(memory, borrowed, function, arguments))
    }

    /// Loads a library with these contents by the process's own `dlopen`, for good. Returns where
    /// its first page is mapped. `name` is what the process's list of libraries shows for it: a
    /// file with the same symbols, for debuggers.
    ///
    /// Only for a thread of [`Process::with_calm_thread`], or at the entry point.
    ///
    /// # Errors
    ///
    /// If the process has no loader that can be used (statically linked, musl), or it refuses the
    /// library. Those of [`Remote::call_function`].
    pub fn load_library(&mut self, contents: &[u8], name: &Path) -> Result<u64, InjectError> {
        let pid = self.pid;
        self.with_caller(|memory, borrowed, caller| {
            library::load(pid, memory, borrowed, caller, contents, name)
        })
    }

    fn with_caller<T>(
        &mut self,
        work: impl FnOnce(&Memory, &mut Borrowed, &Caller) -> Result<T, InjectError>,
    ) -> Result<T, InjectError> {
        let caller = match self.caller.take() {
            Some(caller) => caller,
            None => Caller::map(self.pid, self.memory, &mut self.borrowed)?,
        };
        let result = work(self.memory, &mut self.borrowed, &caller);
        self.caller = Some(caller);
        result
    }

    /// The thread, stopped where it was.
    fn finish(mut self) -> Result<Thread, InjectError> {
        if let Some(caller) = self.caller.take().filter(|_| !self.borrowed.is_left()) {
            caller.unmap(&mut self.borrowed)?;
        }
        let frame_at = self.borrowed.frame_at();
        let thread = self.borrowed.finish()?;
        // Or the frame would be found on the stack later, as one of a signal handler.
        self.memory.write(frame_at, &[0; 8]).map_err(failed("writing to a thread's stack"))?;
        Ok(thread)
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
