//! Whether tracefs has all switches of a CPU.
//!
//! There are kernels whose tracefs never has the switches of some CPUs from idleness to a thread:
//! a thread is then seen to leave its CPU, and not to come back. So a thread of ours sleeps for a
//! moment on each CPU, and the switches there must fit together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::tracefs::Instance;

/// Time for all CPUs: an idle one takes some 0.2 ms.
const TIME: Duration = Duration::from_millis(50);
/// The kernel may add 0.05 ms.
const NAP: Duration = Duration::from_micros(20);
/// The kernel's number of what runs on an idle CPU.
const IDLE: u32 = 0;

/// The CPUs of `cpus` whose switches tracefs may lack: some are missing, or the CPU was never idle.
/// It takes [`TIME`] at most.
pub fn unsure(instance: &Instance, cpus: &[usize]) -> Vec<usize> {
    let mut chains: BTreeMap<usize, Chain> = cpus.iter().map(|cpu| (*cpu, Chain::default())).collect();
    let mut closed = Vec::new();
    let looked = instance.switches(
        || {
            std::thread::scope(|scope| {
                // Its affinity is its own. Without it, nothing is known.
                let visitor = std::thread::Builder::new().spawn_scoped(scope, || visit(cpus, TIME));
                closed = visitor.ok().and_then(|visitor| visitor.join().ok()).unwrap_or_default();
            });
        },
        |cpu, switch| chains.entry(cpu.into()).or_default().add(switch),
    );
    // The program can't run where this process can't.
    chains.retain(|cpu, chain| !closed.contains(cpu) && (looked.is_err() || !chain.is_complete()));
    chains.into_keys().collect()
}

/// Sleeps on each, as far as `time` allows. Returns those that aren't for this process.
fn visit(cpus: &[usize], time: Duration) -> Vec<usize> {
    let begin = Instant::now();
    let mut closed = Vec::new();
    for cpu in cpus {
        if begin.elapsed() > time {
            break;
        }
        let mut only = CpuSet::new();
        if *cpu < CpuSet::MAX_CPU {
            only.set(*cpu);
        }
        match sched_setaffinity(None::<Pid>, &only) {
            Ok(()) => std::thread::sleep(NAP),
            Err(_) => closed.push(*cpu),
        }
    }
    closed
}

/// Switches of a CPU: each is from the thread that the one before was to.
#[derive(Debug, Default)]
struct Chain {
    last: Option<u32>,
    lacks: bool,
    was_idle: bool,
}

impl Chain {
    fn add(&mut self, switch: Option<(u32, u32)>) {
        if let (Some((before, _)), Some(last)) = (switch, self.last) {
            self.lacks |= before != last;
            self.was_idle |= before == IDLE;
        }
        self.last = switch.map(|(_, after)| after);
    }

    fn is_complete(&self) -> bool {
        self.was_idle && !self.lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_that_fit_together() {
        let is_complete = |switches: &[Option<(u32, u32)>]| {
            let mut chain = Chain::default();
            switches.iter().for_each(|switch| chain.add(*switch));
            chain.is_complete()
        };
        assert!(is_complete(&[Some((7, 0)), Some((0, 7)), Some((7, 8))]));
        assert!(!is_complete(&[Some((9, 0)), Some((0, 7)), Some((7, 0)), Some((7, 0))]), "one is missing");
        assert!(is_complete(&[Some((9, 0)), Some((0, 7)), Some((7, 0)), None, Some((7, 0))]), "one was lost");
        assert!(!is_complete(&[Some((9, 7)), Some((7, 8)), Some((8, 7))]), "it was never idle");
        assert!(!is_complete(&[]));
    }

    #[test]
    fn each_cpu_that_is_allowed_is_visited() {
        let list = std::fs::read_to_string("/proc/self/status").unwrap();
        let allowed = list.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let allowed: Vec<usize> = crate::perf::cpu_list(allowed).collect();
        // Of a thread of its own: its affinity is another one then.
        let all = [&allowed[..], &[5000]].concat();
        let thread =
            std::thread::Builder::new().spawn(move || visit(&all, Duration::from_secs(600))).unwrap();
        assert_eq!(thread.join().unwrap(), [5000]);
    }
}
