//! The kernel's counts of a process, read from outside and without privileges.
//!
//! # Safety
//!
//! `clock_gettime` writes one structure, which is ours; `sysconf` writes nothing.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

/// Bytes of a `stat` or `status` that are looked at.
const FILE_MAX: usize = 4096;

/// Counters, by index in [`Usage::values`].
pub const NAMES: [&str; 6] = [
    "RSS (bytes)",
    "minor page faults",
    "major page faults",
    "voluntary switches",
    "involuntary switches",
    "CPU time (ns)",
];

/// The counters of one process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `None` if the kernel doesn't tell it, such as the memory of a process that has ended.
    pub values: [Option<u64>; NAMES.len()],
}

/// A process whose counters are read again and again.
#[derive(Debug, Default)]
pub struct Observed {
    pid: u32,
    /// When it began; 0 if it hasn't been read. Another process may get the same number.
    started: u64,
    page: u64,
    /// Switches of each thread, as far as they were seen. They stay when it ends.
    threads: BTreeMap<u32, Thread>,
    /// Switches of threads that have ended.
    ended: [u64; 2],
}

#[derive(Debug, Default)]
struct Thread {
    switches: [u64; 2],
    is_there: bool,
}

impl Observed {
    /// The process `pid`.
    pub fn new(pid: u32) -> Observed {
        Observed { pid, page: page_size(), ..Observed::default() }
    }

    /// Its counters now; `None` if it is gone.
    pub fn read(&mut self) -> Option<Usage> {
        let mut bytes = [0; FILE_MAX];
        let stat = Stat::parse(read(&format!("/proc/{}/stat", self.pid), &mut bytes)?)?;
        if self.started != 0 && self.started != stat.started {
            return None;
        }
        self.started = stat.started;
        let resident = (!stat.has_ended).then(|| stat.pages.saturating_mul(self.page));
        let [voluntary, involuntary] = self.switches();
        let cpu = cpu_time(self.pid);
        Some(Usage {
            values: [resident, Some(stat.minor), Some(stat.major), Some(voluntary), Some(involuntary), cpu],
        })
    }

    /// Voluntary and involuntary switches of all threads. What threads do between their last
    /// reading and their end is missing: the kernel reports it only to the parent.
    fn switches(&mut self) -> [u64; 2] {
        let folder = format!("/proc/{}/task", self.pid);
        if let Ok(entries) = std::fs::read_dir(&folder) {
            self.threads.values_mut().for_each(|thread| thread.is_there = false);
            let mut bytes = [0; FILE_MAX];
            for tid in entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()) {
                let status = read(&format!("{folder}/{tid}/status"), &mut bytes);
                let Some(switches) = status.and_then(switches) else { continue };
                let known = self.threads.entry(tid).or_default();
                // Its number belonged to another thread, which has ended in between.
                if known.switches.iter().zip(&switches).any(|(before, now)| before > now) {
                    add(&mut self.ended, known.switches);
                }
                *known = Thread { switches, is_there: true };
            }
            let ended = &mut self.ended;
            self.threads.retain(|_, thread| {
                if !thread.is_there {
                    add(ended, thread.switches);
                }
                thread.is_there
            });
        }
        let mut sum = self.ended;
        self.threads.values().for_each(|thread| add(&mut sum, thread.switches));
        sum
    }
}

fn page_size() -> u64 {
    // SAFETY: it only returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

fn add(sum: &mut [u64; 2], switches: [u64; 2]) {
    for (sum, count) in sum.iter_mut().zip(switches) {
        *sum = sum.saturating_add(count);
    }
}

fn read<'b>(path: &str, bytes: &'b mut [u8; FILE_MAX]) -> Option<&'b str> {
    let mut file = File::open(path).ok()?;
    let mut length = file.read(bytes).ok()?;
    // The kernel gives a small file at once; a seccomp supervisor may not.
    while length < FILE_MAX {
        match file.read_at(bytes.get_mut(length..)?, length as u64).ok()? {
            0 => break,
            more => length += more,
        }
    }
    // A name may be no UTF-8; what is looked for is behind it.
    let text = bytes.get(..length)?;
    let text = match text.iter().rposition(|byte| *byte == b')') {
        Some(name) if text.first().is_some_and(u8::is_ascii_digit) => text.get(name + 1..)?,
        _ => text,
    };
    let from = text.iter().position(|byte| *byte == b'\n').filter(|_| text.starts_with(b"Name:"));
    str::from_utf8(text.get(from.unwrap_or(0)..)?).ok()
}

/// Fields of `stat`, behind the name.
struct Stat {
    has_ended: bool,
    minor: u64,
    major: u64,
    started: u64,
    pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text.split_ascii_whitespace().take(22).collect();
        let number = |index: usize| fields.get(index)?.parse().ok();
        Some(Stat {
            has_ended: matches!(*fields.first()?, "Z" | "X"),
            minor: number(7)?,
            major: number(9)?,
            started: number(19)?,
            pages: number(21)?,
        })
    }
}

fn switches(status: &str) -> Option<[u64; 2]> {
    let of = |name: &str| {
        status.lines().rev().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok()
    };
    Some([of("voluntary_ctxt_switches:")?, of("nonvoluntary_ctxt_switches:")?])
}

/// CPU time of all its threads, those that have ended included, in nanoseconds.
pub fn cpu_time(pid: u32) -> Option<u64> {
    /// The clock that counts CPU time as the scheduler does: `CPUCLOCK_SCHED` in the kernel.
    const SCHED: libc::clockid_t = 2;
    let clock = (!libc::clockid_t::try_from(pid).ok()? << 3) | SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes `time` and nothing else.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u64::try_from(time.tv_nsec).ok()?;
    (result == 0).then(|| seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set in the process that runs nothing but this test.
    const ALONE: &str = "EVERYCALL_TEST_ALONE";

    /// In a process of its own: what other tests' threads allocate, free and wait for at the time
    /// would be counted, too.
    #[test]
    fn this_process_is_counted() {
        if std::env::var_os(ALONE).is_none() {
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            alone.args(["--exact", "sys::usage::tests::this_process_is_counted"]).env(ALONE, "1");
            let output = alone.output().unwrap();
            let printed = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
            return;
        }
        let mut observed = Observed::new(std::process::id());
        let before = observed.read().unwrap();
        let mut memory = vec![0_u8; 32 << 20];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        for _ in 0..50 {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        let after = observed.read().unwrap();
        let grown = |index: usize| after.values[index].unwrap() - before.values[index].unwrap();
        // Half of it, as pages may be large.
        assert!(grown(0) >= 16 << 20, "{before:?} {after:?}");
        assert!(grown(1) > 0 && grown(3) >= 50 && grown(5) > 0, "{before:?} {after:?}");
        assert!(memory[4096] == 1);
        assert_eq!(Observed::new(u32::MAX).read(), None);
    }

    #[test]
    fn another_process_with_its_number_is_not_it() {
        let mut observed = Observed::new(std::process::id());
        observed.started = 1;
        assert_eq!(observed.read(), None);
    }

    #[test]
    fn switches_of_ended_threads_stay() {
        let mut observed = Observed::new(std::process::id());
        observed.ended = [5, 6];
        observed.threads.insert(u32::MAX, Thread { switches: [1000, 2000], is_there: true });
        let [voluntary, involuntary] = observed.switches();
        assert!(voluntary >= 1005 && involuntary >= 2006, "{voluntary} {involuntary}");
        assert_eq!(observed.ended, [1005, 2006]);
        assert!(!observed.threads.contains_key(&u32::MAX));
    }

    #[test]
    fn files_of_the_kernel() {
        let stat = " R 5 7 7 0 -1 4 11 0 12 0 0 0 0 0 20 0 1 0 8642 0 33 0";
        let stat = Stat::parse(stat).unwrap();
        assert_eq!(
            (stat.minor, stat.major, stat.started, stat.pages, stat.has_ended),
            (11, 12, 8642, 33, false)
        );
        let status = "Name:\tvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(switches(status), Some([3, 4]));
        assert!(Stat::parse(" R 5").is_none() && switches("").is_none());
    }
}
