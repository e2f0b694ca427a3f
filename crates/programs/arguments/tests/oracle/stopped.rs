//! A process that stops at addresses: by breakpoints, with ptrace.
//!
//! # Safety
//!
//! ptrace takes plain numbers and structures of the C library, and touches the traced child alone.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use everycall_capture::Machine;
use everycall_format::capture::register;

/// Why the process has stopped.
pub enum Stop {
    At(u64),
    Signal(i32),
}

pub struct Stopped {
    pid: i32,
    breakpoints: HashMap<u64, (i64, usize)>,
    registers: libc::user_regs_struct,
    floating: libc::user_fpregs_struct,
    is_at: Option<u64>,
    has_ended: bool,
}

impl Stopped {
    pub fn start(program: &Path, output: &Path, addresses: &[u64]) -> Self {
        let name = CString::new(program.as_os_str().as_bytes()).unwrap();
        let out = File::create(output).unwrap();
        let arguments = [name.as_ptr(), std::ptr::null()];
        // SAFETY: between fork and exec, the child calls only system calls.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; the strings live until exec.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::dup2(out.as_raw_fd(), 1);
                libc::execv(name.as_ptr(), arguments.as_ptr());
                libc::_exit(127);
            }
        }
        assert!(pid > 0);
        let mut it = Self {
            pid,
            breakpoints: HashMap::new(),
            // SAFETY: both are plain numbers.
            registers: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            floating: unsafe { std::mem::zeroed() },
            is_at: None,
            has_ended: false,
        };
        assert!(libc::WIFSTOPPED(it.wait()));
        for address in addresses {
            it.also_at(*address);
        }
        it
    }

    fn wait(&self) -> i32 {
        let mut status = 0;
        // SAFETY: the pointer is to a local variable.
        let found = unsafe { libc::waitpid(self.pid, &mut status, 0) };
        assert_eq!(found, self.pid);
        status
    }

    fn request(&self, request: libc::c_uint, address: u64, data: i64) -> i64 {
        // SAFETY: PEEK and POKE take numbers.
        unsafe { libc::ptrace(request, self.pid, address, data) }
    }

    fn registers_by(&mut self, request: libc::c_uint) {
        // SAFETY: the structures are those that the kernel reads or writes.
        let result = unsafe { libc::ptrace(request, self.pid, 0, &mut self.registers) };
        assert_eq!(result, 0);
    }

    pub fn also_at(&mut self, address: u64) {
        if let Some((_, count)) = self.breakpoints.get_mut(&address) {
            *count += 1;
            return;
        }
        let word = self.request(libc::PTRACE_PEEKTEXT, address, 0);
        self.request(libc::PTRACE_POKETEXT, address, (word & !0xff) | 0xcc);
        self.breakpoints.insert(address, (word, 1));
    }

    pub fn no_longer_at(&mut self, address: u64) {
        let Some((word, count)) = self.breakpoints.get_mut(&address) else { return };
        *count -= 1;
        if *count == 0 {
            let first = *word & 0xff;
            self.breakpoints.remove(&address);
            self.put_byte(address, first);
            if self.is_at == Some(address) {
                self.is_at = None;
            }
        }
    }

    /// Breakpoints may lie in one another's words, so only a byte is changed.
    fn put_byte(&self, address: u64, byte: i64) {
        let word = self.request(libc::PTRACE_PEEKTEXT, address, 0);
        self.request(libc::PTRACE_POKETEXT, address, (word & !0xff) | byte);
    }

    /// Continues until the next breakpoint; `None` when the process has ended.
    pub fn next(&mut self) -> Option<Stop> {
        if let Some(address) = self.is_at.take()
            && let Some((word, _)) = self.breakpoints.get(&address)
        {
            self.put_byte(address, word & 0xff);
            self.request(libc::PTRACE_SINGLESTEP, 0, 0);
            let status = self.wait();
            assert!(libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP);
            self.put_byte(address, 0xcc);
        }
        self.request(libc::PTRACE_CONT, 0, 0);
        let status = self.wait();
        if libc::WIFEXITED(status) {
            self.has_ended = true;
            assert_eq!(libc::WEXITSTATUS(status), 0);
            return None;
        }
        if !libc::WIFSTOPPED(status) || libc::WSTOPSIG(status) != libc::SIGTRAP {
            self.has_ended = !libc::WIFSTOPPED(status);
            return Some(Stop::Signal(status));
        }
        self.registers_by(libc::PTRACE_GETREGS);
        // SAFETY: the structure is the one that the kernel writes.
        let result = unsafe { libc::ptrace(libc::PTRACE_GETFPREGS, self.pid, 0, &mut self.floating) };
        assert_eq!(result, 0);
        self.registers.rip -= 1;
        self.registers_by(libc::PTRACE_SETREGS);
        self.is_at = Some(self.registers.rip);
        Some(Stop::At(self.registers.rip))
    }

    /// At an entry.
    pub fn return_address(&self) -> u64 {
        let mut bytes = [0; 8];
        assert_eq!(self.read(self.registers.rsp, &mut bytes), 8);
        u64::from_le_bytes(bytes)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if !self.has_ended {
            // SAFETY: the child hasn't been waited for, so its number is its own.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.wait();
        }
    }
}

impl Machine for Stopped {
    fn register(&self, number: u32) -> Option<u64> {
        let it = &self.registers;
        let general = [
            it.rax, it.rdx, it.rcx, it.rbx, it.rsi, it.rdi, it.rbp, it.rsp, it.r8, it.r9, it.r10, it.r11,
            it.r12, it.r13, it.r14, it.r15,
        ];
        let word = |words: &[u32], at: usize| u64::from(words[at]) | u64::from(words[at + 1]) << 32;
        let index = |first: u32| (number - first) as usize;
        Some(match number {
            0..=15 => general[number as usize],
            register::FLOATING.. => {
                let at = index(register::FLOATING);
                let value = word(&self.floating.st_space, 4 * (at / 2) + 2 * (at % 2));
                if at % 2 == 1 { value & 0xffff } else { value }
            }
            register::VECTOR_UPPER.. => word(&self.floating.xmm_space, 4 * index(register::VECTOR_UPPER) + 2),
            register::VECTOR.. => word(&self.floating.xmm_space, 4 * index(register::VECTOR)),
            _ => return None,
        })
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let from = address.wrapping_add(done as u64);
            let piece = (4096 - from as usize % 4096).min(into.len() - done);
            let here = libc::iovec { iov_base: into[done..].as_mut_ptr().cast(), iov_len: piece };
            let there = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: piece };
            // SAFETY: the local piece is part of `into`; the other one is the child's.
            let read = unsafe { libc::process_vm_readv(self.pid, &here, 1, &there, 1, 0) };
            if read <= 0 {
                break;
            }
            done += read as usize;
        }
        done
    }
}
