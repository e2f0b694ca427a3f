//! Context switches by `perf_event_open`, which needs no privileges where `perf_event_paranoid` is
//! at most 2: when a thread was put on a CPU and taken off it, and whether it could have run on.
//!
//! One event for each CPU is inherited by what the calling thread starts. It counts nothing
//! (`PERF_COUNT_SW_DUMMY`) and costs nothing but the record of a switch. Events of the recorder itself
//! are left out here.
//!
//! # Safety
//!
//! A sampler's descriptor is borrowed for as long as the sampler is: it is open.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use everycall_format::sched::{SchedEvent, kind, state};
use perf_event::events::Software;
use perf_event::{Builder, Clock, ReadFormat, SampleFlag, Sampler};
use rustix::process::getpid;
use rustix::time::{ClockId, clock_gettime};

use crate::names::{Change, Names, name_of};

/// Bytes of each CPU's buffer, as the kernel allows: users may lock 516 KiB for each CPU
/// (`perf_event_mlock_kb`), of which other profilers want some, too. The smaller one has room for 8192
/// switches.
const BUFFERS: [usize; 2] = [2 << 20, 256 << 10];
/// Limits of this source.
pub const TEXT: &str = "a waiting thread counts as blocked until it runs again, as this source doesn't tell when it was \
    woken, and by whom";

/// Numbers of records, flags of them: those of linux/perf_event.h.
mod record {
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const FORK: u32 = 7;
    pub const SWITCH: u32 = 14;
    pub const SWITCH_OUT: u16 = 1 << 13;
    pub const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
    /// Bytes at the end of each record: pid, tid, time. A buffer's CPU is known.
    pub const SAMPLE_ID: usize = 16;
}

/// The events.
pub struct Perf {
    cpus: Vec<Cpu>,
    buffer: usize,
    own: u32,
    names: Names,
}

struct Cpu {
    number: u16,
    sampler: Sampler,
    losses: Losses,
}

impl std::fmt::Debug for Perf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Perf").field("cpus", &self.cpus.len()).finish_non_exhaustive()
    }
}

impl Perf {
    /// Begins for what the calling thread starts. `Err` says why it can't, and what would help.
    pub fn open() -> Result<Perf, String> {
        let online = online();
        let own = getpid().as_raw_nonzero().get().unsigned_abs();
        let mut refused = None;
        for buffer in BUFFERS {
            match online.iter().map(|cpu| Cpu::open(*cpu, buffer)).collect::<io::Result<Vec<_>>>() {
                Ok(cpus) if cpus.is_empty() => refused = None,
                Ok(cpus) => return Ok(Perf { cpus, buffer, own, names: Names::default() }),
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.map_or_else(
            || "/sys/devices/system/cpu/online can't be read".to_owned(),
            |error| explain(&error),
        ))
    }

    /// Readable when half a buffer waits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|cpu| borrowed(&cpu.sampler))
    }

    /// Gives what was recorded to `take`: in order for each CPU.
    pub fn drain(&mut self, mut take: impl FnMut(SchedEvent)) {
        let mut changes = Vec::new();
        for cpu in &mut self.cpus {
            // No more than the buffer holds: the kernel may write as fast as this reads.
            for _ in 0..self.buffer / record::SAMPLE_ID {
                let Some(found) = cpu.sampler.next_record() else { break };
                let data = found.to_contiguous();
                changes.extend(change(cpu.number, found.ty(), &data));
                let event = event(cpu.number, found.ty(), found.misc(), &data);
                let event = match event {
                    Some(event) if event.kind == kind::LOST => cpu.losses.in_record(event),
                    event => event.filter(|event| event.pid != self.own),
                };
                event.into_iter().for_each(&mut take);
            }
            cpu.lost().into_iter().for_each(&mut take);
        }
        let own = self.own;
        self.names.changed(changes, |event| {
            Some(event).filter(|event| event.pid != own).into_iter().for_each(&mut take)
        });
    }
}

impl Cpu {
    fn open(number: usize, buffer: usize) -> io::Result<Cpu> {
        let sampler = sampler(number, buffer, ReadFormat::LOST).or_else(|error| match error.kind() {
            // Linux before 6.0.
            io::ErrorKind::InvalidInput => sampler(number, buffer, ReadFormat::empty()),
            _ => Err(error),
        })?;
        Ok(Cpu { number: u16::try_from(number).unwrap_or(u16::MAX), sampler, losses: Losses::default() })
    }

    /// Losses that no record has reported yet.
    fn lost(&mut self) -> Option<SchedEvent> {
        let all = self.sampler.read_full().ok()?.lost()?;
        let now = clock_gettime(ClockId::MonotonicRaw);
        let time = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        let event = SchedEvent { time, cpu: self.number, kind: kind::LOST, ..SchedEvent::default() };
        self.losses.in_counter(all, event)
    }
}

/// The kernel reports losses in a record when the next record fits, which may never happen, and
/// from Linux 6.0 on in a counter, at any time.
#[derive(Default)]
struct Losses {
    /// Losses reported so far, and those of them known by the counter alone.
    told: u64,
    ahead: u64,
}

impl Losses {
    /// The new losses in a record.
    fn in_record(&mut self, event: SchedEvent) -> Option<SchedEvent> {
        let known = self.ahead.min(event.other.into());
        self.ahead -= known;
        let other = event.other - u32::try_from(known).unwrap_or(u32::MAX);
        self.told += u64::from(other);
        (other > 0).then_some(SchedEvent { other, ..event })
    }

    /// The new losses in the counter; `event` has the time and the CPU.
    fn in_counter(&mut self, all: u64, event: SchedEvent) -> Option<SchedEvent> {
        let other = u32::try_from(all.saturating_sub(self.told)).unwrap_or(u32::MAX);
        self.told += u64::from(other);
        self.ahead += u64::from(other);
        (other > 0).then_some(SchedEvent { other, ..event })
    }
}

fn borrowed(sampler: &Sampler) -> BorrowedFd<'_> {
    // SAFETY: it is open while the sampler exists.
    unsafe { BorrowedFd::borrow_raw(sampler.as_raw_fd()) }
}

fn sampler(cpu: usize, buffer: usize, read: ReadFormat) -> io::Result<Sampler> {
    Builder::new(Software::DUMMY)
        .observe_self()
        .one_cpu(cpu)
        .inherit(true)
        .enabled(true)
        .context_switch(true)
        .task(true)
        .comm(true)
        .sample(SampleFlag::TID | SampleFlag::TIME)
        .sample_id_all(true)
        .read_format(read)
        .clockid(Clock::MONOTONIC_RAW)
        .wakeup_watermark(buffer / 4)
        .build()?
        .sampled(buffer)
}

/// A record's event for a thread's name. COMM has a process, a thread and the name; FORK the
/// process, the parent's process, the thread, and the parent.
fn change(cpu: u16, record: u32, data: &[u8]) -> Option<(SchedEvent, Change)> {
    let word = |at: usize| data.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let (tid, change) = match record {
        record::COMM => {
            let end = data.len().checked_sub(record::SAMPLE_ID)?;
            (word(4)?, Change::Renamed(name_of(data.get(8..end)?)))
        }
        record::FORK => (word(8)?, Change::Started { by: word(12)? }),
        record::EXIT => (word(8)?, Change::Ended),
        _ => return None,
    };
    Some((SchedEvent { pid: word(0)?, tid, ..of_sample_id(cpu, data)? }, change))
}

/// The event in a record, if it is of interest.
fn event(cpu: u16, record: u32, misc: u16, data: &[u8]) -> Option<SchedEvent> {
    let event = of_sample_id(cpu, data)?;
    match record {
        record::SWITCH if misc & record::SWITCH_OUT == 0 => Some(SchedEvent { kind: kind::ON, ..event }),
        record::SWITCH => {
            let is_preempted = misc & record::SWITCH_OUT_PREEMPT != 0;
            let state = if is_preempted { state::RUNNABLE } else { state::BLOCKED };
            Some(SchedEvent { kind: kind::OFF, state, ..event })
        }
        record::EXIT => Some(SchedEvent { kind: kind::ENDED, ..event }),
        record::LOST => {
            let lost = data.get(8..16)?.try_into().ok().map(u64::from_le_bytes)?;
            let other = u32::try_from(lost).unwrap_or(u32::MAX);
            Some(SchedEvent { kind: kind::LOST, other, ..event })
        }
        _ => None,
    }
}

/// The thread that ran, and when, from a record's end.
fn of_sample_id(cpu: u16, data: &[u8]) -> Option<SchedEvent> {
    let id = data.len().checked_sub(record::SAMPLE_ID).and_then(|at| data.get(at..))?;
    let word = |at: usize| id.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    Some(SchedEvent {
        time: id.get(8..16)?.try_into().ok().map(u64::from_le_bytes)?,
        pid: word(0)?,
        tid: word(4)?,
        cpu,
        ..SchedEvent::default()
    })
}

/// The CPUs that the kernel uses.
#[must_use]
pub fn online() -> Vec<usize> {
    cpu_list(&fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default()).collect()
}

/// The numbers of a list such as `0-3,5`.
pub fn cpu_list(text: &str) -> impl Iterator<Item = usize> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten()
}

/// Why `perf_event_open` is refused, and what would help.
#[must_use]
pub fn explain(error: &io::Error) -> String {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    match paranoid.trim().parse::<i32>() {
        Err(_) => format!("this kernel has no perf_event_open ({error})"),
        Ok(level) if error.kind() == io::ErrorKind::PermissionDenied && level > 2 => format!(
            "kernel.perf_event_paranoid is {level}, which forbids perf_event_open; needed is 2 at most: \
            `sudo sysctl kernel.perf_event_paranoid=2`"
        ),
        Ok(_) if error.kind() == io::ErrorKind::PermissionDenied => format!(
            "perf_event_open is refused ({error}): a container's filter of system calls does that, or a full \
            budget of locked memory (kernel.perf_event_mlock_kb)"
        ),
        Ok(_) if error.kind() == io::ErrorKind::Unsupported => {
            format!("perf_event_open is refused ({error}): a container's filter of system calls does that")
        }
        Ok(_) => format!("perf_event_open fails: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        let list = |text| cpu_list(text).collect::<Vec<_>>();
        assert_eq!(list("0-3,5,7-8\n"), [0, 1, 2, 3, 5, 7, 8]);
        assert_eq!(list("0\n"), [0]);
        assert!(list("").is_empty() && list("a-b,-").is_empty());
    }

    #[test]
    fn records() {
        let mut data = Vec::new();
        data.extend([7_u32, 8].map(u32::to_le_bytes).concat());
        data.extend(99_u64.to_le_bytes());
        let on = SchedEvent { time: 99, pid: 7, tid: 8, cpu: 3, kind: kind::ON, ..SchedEvent::default() };
        assert_eq!(event(3, record::SWITCH, 0, &data), Some(on));
        let off = SchedEvent { kind: kind::OFF, state: state::BLOCKED, ..on };
        assert_eq!(event(3, record::SWITCH, record::SWITCH_OUT, &data), Some(off));
        let preempted = SchedEvent { state: state::RUNNABLE, ..off };
        let misc = record::SWITCH_OUT | record::SWITCH_OUT_PREEMPT;
        assert_eq!(event(3, record::SWITCH, misc, &data), Some(preempted));
        assert_eq!(event(3, record::SWITCH, 0, &data[1..]), None, "cut");
        let lost = [&[0; 8], &5_u64.to_le_bytes()[..], &data].concat();
        let lost = event(3, record::LOST, 0, &lost);
        assert_eq!(lost, Some(SchedEvent { kind: kind::LOST, other: 5, ..on }));
        assert_eq!(event(3, 9, 0, &data), None);
    }

    #[test]
    fn losses_are_told_once() {
        let mut losses = Losses::default();
        let event = |other| SchedEvent { kind: kind::LOST, other, ..SchedEvent::default() };
        assert_eq!(losses.in_counter(0, event(0)), None);
        assert_eq!(losses.in_counter(5, event(0)), Some(event(5)));
        assert_eq!(losses.in_counter(5, event(0)), None);
        // Seven more were lost until the kernel could say it.
        assert_eq!(losses.in_record(event(12)), Some(event(7)));
        assert_eq!(losses.in_counter(12, event(0)), None);
        assert_eq!(losses.in_record(event(3)), Some(event(3)));
        assert_eq!(losses.in_counter(16, event(0)), Some(event(1)));
        assert_eq!(losses.in_record(event(1)), None);
    }
}
