//! Samples by `perf_event_open`: one event for each CPU, which is inherited by what the calling
//! thread starts, and begins with the program that is executed.
//!
//! # Safety
//!
//! A sampler's descriptor is borrowed for as long as the sampler is: it is open.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use everycall_sched::{online_cpus, why_refused};
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

use crate::arch;
use crate::unwind::Registers;

/// Bytes of a stack that are copied.
pub const STACK_BYTES: u32 = 8 << 10;
/// Bytes of each CPU's buffer. Users may lock 516 KiB for each CPU (`perf_event_mlock_kb`), of which
/// thread states want some, too. The smallest one has room for 30 samples.
const BUFFERS: [usize; 4] = [8 << 20, 2 << 20, 512 << 10, 256 << 10];
/// Addresses from here on are the kernel's marks in call chains.
const MARKS: u64 = -4095_i64 as u64;
/// Registers of a 64-bit program.
const ABI_64: u64 = 2;

/// Numbers of records, flags of them: those of linux/perf_event.h.
mod record {
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const THROTTLE: u32 = 5;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const LOST_SAMPLES: u32 = 13;
    pub const COMM_EXEC: u16 = 1 << 13;
    /// Bytes at the end of each record but samples: pid, tid, time.
    pub const SAMPLE_ID: usize = 16;
}

/// The meaning of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordKind {
    Sample(Box<Sample>),
    Mapped { pid: u32, begin: u64, end: u64, offset: u64, path: Vec<u8> },
    Forked { parent: u32, child: u32 },
    Executes { pid: u32 },
    Ended { pid: u32 },
    Lost(u64),
    Throttled,
}

/// A sample, before it is unwound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub pid: u32,
    pub tid: u32,
    /// Addresses of the kernel, innermost first.
    pub kernel: Vec<u64>,
    /// The program's registers; none are known of a 32-bit program.
    pub registers: Registers,
    /// The stack from the stack pointer on.
    pub stack: Vec<u8>,
}

/// The events.
pub struct Perf {
    cpus: Vec<Sampler>,
    /// Whether code of the kernel is sampled.
    pub has_kernel: bool,
    buffer: usize,
}

impl std::fmt::Debug for Perf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Perf").field("cpus", &self.cpus.len()).finish_non_exhaustive()
    }
}

impl Perf {
    /// Begins for programs that the calling thread executes. `Err` says why it can't, and what
    /// would help.
    pub fn open(rate: u32) -> Result<Perf, String> {
        let online = online_cpus();
        let mut refused = None;
        for has_kernel in [true, false] {
            for buffer in BUFFERS {
                let opened = online.iter().map(|cpu| sampler(*cpu, rate, buffer, has_kernel));
                match opened.collect::<io::Result<Vec<_>>>() {
                    Ok(cpus) if cpus.is_empty() => refused = None,
                    Ok(cpus) => return Ok(Perf { cpus, has_kernel, buffer }),
                    Err(error) => refused = Some(error),
                }
            }
        }
        Err(refused.map_or_else(
            || "/sys/devices/system/cpu/online can't be read".to_owned(),
            |error| why_refused(&error),
        ))
    }

    /// Readable when a part of a buffer waits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // SAFETY: it is open while the sampler exists.
        self.cpus.iter().map(|cpu| unsafe { BorrowedFd::borrow_raw(cpu.as_raw_fd()) })
    }

    /// Adds what was recorded so far, with its time: in order for each CPU.
    pub fn drain(&mut self, into: &mut Vec<(u64, RecordKind)>) {
        for cpu in &mut self.cpus {
            // No more than the buffer holds: the kernel may write as fast as this reads.
            let mut left = self.buffer;
            while left > 0 {
                let Some(found) = cpu.next_record() else { break };
                left = left.saturating_sub(found.len() + 8);
                let data = found.to_contiguous();
                into.extend(what(found.ty(), found.misc(), &data, self.has_kernel));
            }
        }
    }
}

fn sampler(cpu: usize, rate: u32, buffer: usize, has_kernel: bool) -> io::Result<Sampler> {
    let mut flags = SampleFlag::TID | SampleFlag::TIME | SampleFlag::REGS_USER | SampleFlag::STACK_USER;
    if has_kernel {
        flags |= SampleFlag::CALLCHAIN;
    }
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .observe_self()
        .one_cpu(cpu)
        .inherit(true)
        .enabled(false)
        .enable_on_exec(true)
        .exclude_kernel(!has_kernel)
        .exclude_callchain_user(true)
        .sample_period(1_000_000_000 / u64::from(rate.max(1)))
        .sample(flags)
        .sample_regs_user(arch::WANTED)
        .sample_stack_user(STACK_BYTES)
        .task(true)
        .comm(true)
        .comm_exec(true)
        .mmap(true)
        .mmap2(true)
        .sample_id_all(true)
        .clockid(Clock::MONOTONIC_RAW)
        .wakeup_watermark(buffer / 4);
    builder.build()?.sampled(buffer)
}

/// Numbers of a record, one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn four(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn eight(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

/// A record's time and meaning, if it is of interest.
fn what(kind: u32, misc: u16, data: &[u8], has_kernel: bool) -> Option<(u64, RecordKind)> {
    if kind == record::SAMPLE {
        let (time, sample) = sample(Fields(data), has_kernel)?;
        return Some((time, RecordKind::Sample(Box::new(sample))));
    }
    let (data, id) = data.split_at_checked(data.len().checked_sub(record::SAMPLE_ID)?)?;
    let time = id.get(8..16)?.try_into().ok().map(u64::from_le_bytes)?;
    let mut fields = Fields(data);
    let what = match kind {
        record::LOST => {
            fields.eight()?;
            RecordKind::Lost(fields.eight()?)
        }
        record::LOST_SAMPLES => RecordKind::Lost(fields.eight()?),
        record::THROTTLE => RecordKind::Throttled,
        record::COMM if misc & record::COMM_EXEC != 0 => RecordKind::Executes { pid: fields.four()? },
        record::FORK => {
            let (child, parent) = (fields.four()?, fields.four()?);
            RecordKind::Forked { parent, child }
        }
        record::EXIT => {
            let (pid, _, tid) = (fields.four()?, fields.four()?, fields.four()?);
            Some(RecordKind::Ended { pid }).filter(|_| pid == tid)?
        }
        record::MMAP2 => {
            let (pid, _) = (fields.four()?, fields.four()?);
            let (begin, length, offset) = (fields.eight()?, fields.eight()?, fields.eight()?);
            // Device, inode, generation, protection, flags.
            fields.take(32)?;
            let path = fields.0.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
            RecordKind::Mapped { pid, begin, end: begin.checked_add(length)?, offset, path }
        }
        _ => return None,
    };
    Some((time, what))
}

fn sample(mut fields: Fields<'_>, has_kernel: bool) -> Option<(u64, Sample)> {
    let (pid, tid, time) = (fields.four()?, fields.four()?, fields.eight()?);
    let mut sample = Sample { pid, tid, ..Sample::default() };
    if has_kernel {
        let count = usize::try_from(fields.eight()?).ok()?;
        let chain = fields.take(count.checked_mul(8)?)?.chunks_exact(8);
        let chain = chain.filter_map(|bytes| bytes.try_into().ok().map(u64::from_le_bytes));
        sample.kernel = chain.filter(|address| *address < MARKS).collect();
    }
    let abi = fields.eight()?;
    if abi != 0 {
        for number in arch::ORDER {
            let value = fields.eight()?;
            if abi == ABI_64 {
                sample.registers.set(number, value);
            }
        }
    }
    let size = usize::try_from(fields.eight()?).ok()?;
    if size > 0 {
        let copy = fields.take(size)?;
        let filled = usize::try_from(fields.eight()?).ok()?;
        if abi == ABI_64 {
            sample.stack = copy.get(..filled)?.to_vec();
        }
    }
    Some((time, sample))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn samples() {
        let pair = |low: u64, high: u64| low | high << 32;
        // Process and thread, time; a chain with its mark; registers; a stack, half of it filled.
        let mut all = vec![pair(7, 8), 99, 2, -128_i64 as u64, 0xffff_ffff_8000_0000, ABI_64];
        all.extend(100..117);
        all.extend([16, 1, 2, 8]);
        let data = words(&all);
        let (time, what) = what(record::SAMPLE, 0, &data, true).unwrap();
        let RecordKind::Sample(sample) = what else { panic!() };
        assert_eq!((time, sample.pid, sample.tid), (99, 7, 8));
        assert_eq!(sample.kernel, [0xffff_ffff_8000_0000]);
        assert_eq!(sample.registers.get(arch::STACK), Some(107));
        assert_eq!(sample.registers.get(arch::INSTRUCTION), Some(108));
        assert_eq!(sample.stack, words(&[1]));
        for end in 0..data.len() {
            assert_eq!(super::what(record::SAMPLE, 0, &data[..end], true), None, "{end}");
        }
    }

    #[test]
    fn other_records() {
        let id = words(&[0, 99]);
        let of = |kind, misc, data: Vec<u8>| what(kind, misc, &[data, id.clone()].concat(), true);
        let mapped = [&words(&[7, 0x1000, 0x2000, 0x3000, 0, 0, 0, 0]), &b"/lib/x\0\0"[..]].concat();
        let path = b"/lib/x".to_vec();
        let expected = RecordKind::Mapped { pid: 7, begin: 0x1000, end: 0x3000, offset: 0x3000, path };
        assert_eq!(of(record::MMAP2, 0, mapped), Some((99, expected)));
        assert_eq!(of(record::LOST, 0, words(&[1, 5])), Some((99, RecordKind::Lost(5))));
        assert_eq!(
            of(record::COMM, record::COMM_EXEC, words(&[7])),
            Some((99, RecordKind::Executes { pid: 7 }))
        );
        assert_eq!(of(record::COMM, 0, words(&[7])), None);
        assert_eq!(what(record::MMAP2, 0, &[0; 20], true), None, "cut");
    }
}
