//! A program that is stopped at its entry point.
//!
//! All its initial libraries are mapped, relocated and initialised then. It gets there without a
//! breakpoint, which would end the program if the tracer were killed: the loader takes the entry's
//! address from the auxiliary vector on the stack. That one is changed, before the loader runs, to a
//! few instructions in an unused end of executable memory. They make a system call, at which the
//! tracer stops the thread, and jump to the entry, tracer or not.
//!
//! # Safety
//!
//! Between `fork` and `exec`, the child closes, reads and writes pipes, and nothing else.
#![allow(unsafe_code)]

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::error::{InjectError, failed};
use crate::maps::mappings;
use crate::memory::Memory;
use crate::process::Process;
use crate::refusal::check_traced;
use crate::sys::{Event, Registers, SYSCALL};
use crate::thread::Thread;

/// A program that was started.
pub struct Started {
    /// The child. Who started it waits for it.
    pub child: Child,
    /// Stopped at its entry point; or why it runs on untraced.
    pub process: Result<Process, InjectError>,
}

const AT_ENTRY: u64 = 9;
const AT_NULL: u64 = 0;

/// Starts a program and stops it at its entry point. Inside of [`crate::on_tracer`] only.
///
/// A setuid program gets no privileges if the tracer has none.
///
/// # Errors
///
/// If the program can't be started.
pub fn start(mut command: Command, timeout: Duration) -> Result<Started, InjectError> {
    let deadline = Instant::now() + timeout;
    let (mut ready, child_ready) = io::pipe().map_err(failed("making a pipe"))?;
    let (child_go, go) = io::pipe().map_err(failed("making a pipe"))?;
    let parents_end = go.as_raw_fd();
    // SAFETY: only system calls, on descriptors that the child has.
    unsafe {
        command.pre_exec(move || {
            libc::close(parents_end);
            wait_for_tracer(&child_ready, &child_go).map_err(|_| libc::_exit(127))
        });
    }
    std::thread::scope(|scope| {
        // It returns when the program is executed.
        let spawning = std::thread::Builder::new()
            .spawn_scoped(scope, move || command.spawn())
            .map_err(failed("starting a thread"))?;
        let mut pid = [0; 4];
        let traced = ready.read_exact(&mut pid).ok().map(|()| {
            let pid = i32::from_le_bytes(pid);
            let thread = Thread::seize_start(pid);
            (pid, thread)
        });
        let mut go = go;
        let _ = go.write_all(&[1]);
        drop(go);
        let process = traced.map(|(pid, thread)| to_entry(pid, thread?, deadline));
        let child = spawning
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread ended by a defect of its own")))
            .map_err(failed("starting the program"))?;
        let pid = child.id().cast_signed();
        Ok(Started { child, process: process.unwrap_or(Err(InjectError::Ended { pid })) })
    })
}

/// In the child: sends its process id, and waits until it is traced. An error if the tracer is
/// gone.
fn wait_for_tracer(mut ready: &PipeWriter, mut go: &PipeReader) -> io::Result<()> {
    ready.write_all(&std::process::id().to_le_bytes())?;
    go.read_exact(&mut [0])
}

/// From the program's execution to its entry point.
fn to_entry(pid: i32, mut thread: Thread, deadline: Instant) -> Result<Process, InjectError> {
    let mut landing: Option<Landing> = None;
    loop {
        match thread.next_event(deadline)? {
            Event::Ended => return Err(InjectError::Ended { pid }),
            Event::Stopped { event: libc::PTRACE_EVENT_EXEC, .. } => {
                check_traced(pid)?;
                let memory = Memory::open(pid).map_err(failed("opening the program's memory"))?;
                let entry = entry_of(pid)?;
                stop_here(&mut thread, deadline)?;
                let registers = thread.registers()?;
                if registers.rip == entry {
                    // Without a loader.
                    return Ok(Process::held(pid, memory, thread));
                }
                landing = Some(Landing::prepare(pid, memory, entry, &registers)?);
                thread.resume_to_system_call(0)?;
            }
            Event::Stopped { signal: SYSCALL, event: 0 } => {
                let registers = thread.registers()?;
                match landing.take() {
                    Some(there) if there.is_reached(&registers) => return there.leave(pid, thread, deadline),
                    elsewhere => landing = elsewhere,
                }
                thread.resume_to_system_call(0)?;
            }
            Event::Stopped { signal, event } => {
                let signal = if event == 0 { signal } else { 0 };
                if landing.is_some() {
                    thread.resume_to_system_call(signal)?;
                } else {
                    thread.resume(signal)?;
                }
            }
        }
    }
}

/// From a stop inside of the kernel to one before the next instruction.
fn stop_here(thread: &mut Thread, deadline: Instant) -> Result<(), InjectError> {
    thread.request_stop()?;
    thread.resume(0)?;
    if thread.wait_for_stop(deadline)? { Ok(()) } else { Err(InjectError::Ended { pid: thread.pid }) }
}

fn entry_of(pid: i32) -> Result<u64, InjectError> {
    let vector = std::fs::read(format!("/proc/{pid}/auxv"))
        .map_err(failed("reading the program's auxiliary vector"))?;
    let words: Vec<u64> = vector.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let entry = words.as_chunks::<2>().0.iter().find(|pair| pair[0] == AT_ENTRY).map(|pair| pair[1]);
    entry.ok_or_else(|| InjectError::Refused(format!("process {pid} has no entry point")))
}

/// Where the loader jumps instead of the entry.
struct Landing {
    memory: Memory,
    entry: u64,
    at: u64,
    /// Where the stack has the entry's address.
    slot: u64,
    code: Vec<u8>,
}

/// `endbr64; mov $getpid, %eax; syscall`
const CALL: [u8; 11] = [0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 39, 0, 0, 0, 0x0f, 0x05];
/// `jmp *(%rip)`, before the address.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];

impl Landing {
    fn prepare(pid: i32, memory: Memory, entry: u64, registers: &Registers) -> Result<Self, InjectError> {
        let mut code = CALL.to_vec();
        code.extend(JUMP);
        code.extend(entry.to_le_bytes());
        let what = "preparing the program's start";
        let slot = entry_slot(&memory, registers.rsp).map_err(failed(what))?.ok_or_else(|| {
            InjectError::Refused(format!("the stack of process {pid} has no auxiliary vector"))
        })?;
        // One more word stays zero before it: code may end in zeros.
        let size = code.len().next_multiple_of(16) + 16;
        let at = mappings(pid)?
            .iter()
            .filter(|mapping| mapping.is_executable && mapping.range.end < 1 << 63)
            .map(|mapping| mapping.range.end - size as u64)
            .find(|start| memory.read(*start, size).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0)))
            .map(|start| start + 16)
            .ok_or_else(|| {
                InjectError::Refused(format!("process {pid} has no unused end of executable memory"))
            })?;
        memory.write(at, &code).map_err(failed(what))?;
        memory.write(slot, &at.to_le_bytes()).map_err(failed(what))?;
        Ok(Self { memory, entry, at, slot, code })
    }

    fn is_reached(&self, registers: &Registers) -> bool {
        registers.rip == self.at + CALL.len() as u64
    }

    /// At the begin of the system call: to the entry, and everything as it was.
    fn leave(self, pid: i32, mut thread: Thread, deadline: Instant) -> Result<Process, InjectError> {
        thread.resume_to_system_call(0)?;
        while !matches!(thread.next_event(deadline)?, Event::Stopped { signal: SYSCALL, event: 0 }) {
            thread.resume_to_system_call(0)?;
        }
        stop_here(&mut thread, deadline)?;
        let mut registers = thread.registers()?;
        if registers.rip == self.at + CALL.len() as u64 {
            registers.rip = self.entry;
            registers.orig_rax = u64::MAX;
            thread.set_registers(&registers)?;
        }
        let what = "restoring the program's start";
        self.memory.write(self.slot, &self.entry.to_le_bytes()).map_err(failed(what))?;
        self.memory.write(self.at, &vec![0; self.code.len()]).map_err(failed(what))?;
        Ok(Process::held(pid, self.memory, thread))
    }
}

/// The value of `AT_ENTRY` behind arguments and environment.
fn entry_slot(memory: &Memory, rsp: u64) -> io::Result<Option<u64>> {
    let mut at = rsp + 8;
    for _ in 0..2 {
        while memory.number(at)? != 0 {
            at += 8;
        }
        at += 8;
    }
    loop {
        match memory.number(at)? {
            AT_ENTRY => return Ok(Some(at + 8)),
            AT_NULL => return Ok(None),
            _ => at += 16,
        }
    }
}
