//! Which threads a thread of a running process starts, and which those start, by
//! `perf_event_open`. It needs no privileges where `perf_event_paranoid` is at most 2.

use std::collections::HashSet;
use std::io;

use perf_event::events::Software;
use perf_event::{Builder, Sampler};

use crate::perf::{explain, online};

/// Bytes of each CPU's buffer: room for some 1,000 threads between two looks.
const BUFFER: usize = 64 << 10;
/// A thread or a process was started: as in linux/perf_event.h.
const FORK: u32 = 7;

/// The threads that descend from one thread, from now on.
pub struct Children {
    cpus: Vec<Sampler>,
    tids: HashSet<u32>,
}

impl std::fmt::Debug for Children {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Children").field("tids", &self.tids).finish_non_exhaustive()
    }
}

impl Children {
    /// Begins for thread `tid`. `Err` says why it can't, and what would help.
    ///
    /// # Errors
    ///
    /// There is no such thread, or the kernel doesn't allow it.
    pub fn of(tid: u32) -> Result<Children, String> {
        let thread = i32::try_from(tid).map_err(|_| "no thread has such a number".to_owned())?;
        let cpus = online().into_iter().map(|cpu| sampler(thread, cpu)).collect::<io::Result<Vec<_>>>();
        match cpus {
            Ok(cpus) => Ok(Children { cpus, tids: HashSet::new() }),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                Err("there is no such thread".to_owned())
            }
            Err(error) => Err(explain(&error)),
        }
    }

    /// Reads what has happened since; a full buffer loses threads, so this should happen now and
    /// then.
    pub fn look(&mut self) {
        for sampler in &mut self.cpus {
            for _ in 0..BUFFER {
                let Some(found) = sampler.next_record() else { break };
                if found.ty() == FORK {
                    // pid, parent's pid, tid, parent's tid, time
                    let data = found.to_contiguous();
                    let tid = data.get(8..12).and_then(|bytes| bytes.try_into().ok());
                    self.tids.extend(tid.map(u32::from_le_bytes));
                }
            }
        }
    }

    /// Whether a thread descends from it.
    pub fn has(&mut self, tid: u32) -> bool {
        self.look();
        self.tids.contains(&tid)
    }
}

fn sampler(thread: i32, cpu: usize) -> io::Result<Sampler> {
    let mut builder = Builder::new(Software::DUMMY);
    builder.observe_pid(thread).one_cpu(cpu).inherit(true).enabled(true).task(true).sample_id_all(false);
    builder.build()?.sampled(BUFFER)
}
