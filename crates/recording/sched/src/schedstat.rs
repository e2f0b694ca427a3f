//! Samples of the kernel's counts for each thread: `/proc/PID/task/TID/schedstat`. It needs no
//! privileges, and no system call that containers forbid.
//!
//! A thread whose counts stay the same while it waits was off the CPU for that time. What a thread
//! did between two samples with different counts isn't known, but how long it ran is.
//!
//! The counts of a thread that runs lag behind by up to a tick of the scheduler. They are exact
//! when it leaves its CPU. So readers conclude only from what lies between two changes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use everycall_format::sched::{SchedEvent, kind, sample, state};
use rustix::time::{ClockId, clock_gettime};

use crate::waits::{call_of, letter};

/// Time between two samples of a thread.
const INTERVAL: Duration = Duration::from_millis(1);
/// Pause between samples while nothing changes; it grows the longer nothing changes.
const INTERVAL_STEADY: RangeInclusive<Duration> = Duration::from_millis(4)..=Duration::from_millis(16);
/// Nothing has changed for this long before the pause grows, in nanoseconds.
const STEADY_MIN: u64 = 20_000_000;
/// The pause is the time without a change divided by this.
const STEADY_PARTS: u64 = 10;
/// Longest time that a runnable thread counts as preempted, in nanoseconds.
const PREEMPTED_MAX: u64 = 10_000_000;
/// Shortest time, about, that others run when they preempt a thread, in nanoseconds.
const SLICE: u64 = 1_000_000;
/// Part of a CPU that sampling may take: with very many threads, samples come less often.
const SHARE: u32 = 20;
/// Longest time that a thread may wait without a sample in the trace, in nanoseconds.
const QUIET_MAX: u64 = 50_000_000;
/// Longest reading that is used, in microseconds.
const READING_MAX: u64 = 10_000;
/// Limits of this source.
pub const TEXT: &str = "read from /proc every millisecond, and every 4 to 16 ms while all threads go on as they did: only waiting for longer is seen; what a thread did between two \
    readings is unknown where it was switched, and known in total. Not told is which CPU it was on, when it was \
    woken, and by whom";

/// Lists the processes that are to be sampled.
pub type Processes = Box<dyn Fn() -> Vec<u32> + Send>;

/// A thread that samples.
#[derive(Debug)]
pub struct Schedstat {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    sampled: Mutex<Sampled>,
    is_over: Mutex<bool>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct Sampled {
    processes: BTreeMap<u32, Process>,
    seen: SampleResults,
}

/// Results of sampling.
#[derive(Debug, Default)]
struct SampleResults {
    events: Vec<SchedEvent>,
    /// When a thread's behaviour last changed.
    changed: u64,
    /// When a thread that would have kept running was last preempted.
    preempted: u64,
}

impl SampleResults {
    /// The time until the next sample.
    fn interval(&self, now: u64) -> Duration {
        if now.saturating_sub(self.changed) <= STEADY_MIN {
            return INTERVAL;
        }
        let steady = now.saturating_sub(self.changed.max(self.preempted));
        let part = Duration::from_nanos(steady / STEADY_PARTS);
        part.clamp(*INTERVAL_STEADY.start(), *INTERVAL_STEADY.end())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Schedstat {
    /// `Err` says why it can't be used.
    pub fn open() -> Result<Schedstat, String> {
        let counts = fs::read("/proc/thread-self/schedstat").ok();
        if counts.as_deref().and_then(Counts::parse).is_none_or(|(counts, _)| counts.put_on == 0) {
            return Err("/proc has no schedstat of threads, which would tell when they waited".to_owned());
        }
        Ok(Schedstat { shared: Arc::default(), thread: None })
    }

    /// Begins with processes that exist by then. Without memory for a thread, nothing is sampled.
    pub fn attend(&mut self, processes: Processes) {
        let shared = Arc::clone(&self.shared);
        self.thread = Builder::new().name("states".to_owned()).spawn(move || shared.run(&processes)).ok();
    }

    /// Gives what was sampled to `take`.
    pub fn drain(&mut self, take: impl FnMut(SchedEvent)) {
        let events = std::mem::take(&mut lock(&self.shared.sampled).seen.events);
        events.into_iter().for_each(take);
    }

    /// The newest samples of threads that wait, which aren't among the others yet.
    pub fn waiting(&self) -> Vec<SchedEvent> {
        let sampled = lock(&self.shared.sampled);
        let threads = sampled.processes.values().flat_map(|process| process.threads.values());
        threads.filter_map(|thread| thread.held).collect()
    }

    /// Ends it.
    pub fn end(&mut self) {
        *lock(&self.shared.is_over) = true;
        self.shared.over.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Schedstat {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn run(&self, processes: &Processes) {
        let mut pause = INTERVAL;
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            let waited = self.over.wait_timeout(is_over, pause);
            let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if *guard {
                return;
            }
            drop(guard);
            let begin = Instant::now();
            let pids = processes();
            let interval = lock(&self.sampled).sample(&pids);
            let took = begin.elapsed();
            pause = interval.saturating_sub(took).max(took * SHARE);
            is_over = lock(&self.is_over);
        }
    }
}

impl Sampled {
    /// Returns the time until the next sample.
    fn sample(&mut self, pids: &[u32]) -> Duration {
        let Sampled { processes, seen } = self;
        processes.retain(|pid, process| {
            let is_there = pids.contains(pid);
            if !is_there {
                process.threads.values_mut().for_each(|thread| seen.events.extend(thread.held.take()));
            }
            is_there
        });
        for pid in pids {
            processes.entry(*pid).or_default().sample(*pid, seen);
        }
        seen.interval(raw_now())
    }
}

#[derive(Debug, Default)]
struct Process {
    /// Its folder, which has one for each thread, and how many there were when they were listed.
    listed: Option<(File, u64)>,
    threads: BTreeMap<u32, Thread>,
}

impl Process {
    fn sample(&mut self, pid: u32, seen: &mut SampleResults) {
        let folder = format!("/proc/{pid}/task");
        let count = |file: &File| file.metadata().map_or(0, |folder| folder.nlink());
        if self.listed.as_ref().is_none_or(|(file, listed)| count(file) != *listed) {
            self.listed = File::open(&folder).ok().map(|file| {
                let listed = count(&file);
                (file, listed)
            });
            self.list(&folder, seen);
        }
        for (tid, thread) in &mut self.threads {
            if thread.sample((pid, *tid), &folder, seen).is_none() {
                // It has ended, and another one may have begun.
                self.listed = None;
            }
        }
    }

    /// Looks for threads that have begun or ended.
    fn list(&mut self, folder: &str, seen: &mut SampleResults) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let tids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        self.threads.retain(|tid, thread| {
            let is_there = thread.lives && tids.contains(tid);
            if !is_there {
                seen.events.extend(thread.held.take());
            }
            is_there
        });
        for tid in tids {
            if let std::collections::btree_map::Entry::Vacant(place) = self.threads.entry(tid)
                && let Ok(file) = File::open(format!("{folder}/{tid}/schedstat"))
            {
                place.insert(Thread {
                    file,
                    lives: true,
                    waits: false,
                    same: 0,
                    changed: (Counts::default(), 0, 0),
                    last: None,
                    held: None,
                    asked: CallQuestion::NotYet,
                });
            }
        }
    }
}

#[derive(Debug)]
struct Thread {
    file: File,
    lives: bool,
    /// Whether it waits, as far as its counts don't change.
    waits: bool,
    /// How often the same counts were read.
    same: u32,
    /// The counts that it has now, for how long it could have run so far, in nanoseconds, and when
    /// that was read.
    changed: (Counts, u64, u64),
    /// The counts of the last sample that is among the events, and when it was taken.
    last: Option<(Counts, u64)>,
    /// The last sample, if nothing has changed since the one before.
    held: Option<SchedEvent>,
    asked: CallQuestion,
}

/// Whether the kernel was asked in which system call a thread waits.
#[derive(Clone, Copy, Debug)]
enum CallQuestion {
    NotYet,
    /// The answer is that of the wait if the counts are still the same.
    Answered(SchedEvent),
    Over,
}

/// The kernel's counts for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Nanoseconds of CPU time.
    ran: u64,
    /// How often it was put on a CPU.
    put_on: u64,
}

/// A thread's behaviour compared with its last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// No change: it waits, or has run nearly all the time.
    GoesOn,
    /// It would have run all the time if others hadn't.
    Preempted,
    /// Something else.
    Changes,
}

/// Counts of a thread, read between two moments.
struct Reading {
    before: u64,
    counts: Counts,
    /// For how long it could have run so far, in nanoseconds.
    could_run: u64,
    after: u64,
}

impl Counts {
    /// With the nanoseconds for which the thread could have run so far, and others did.
    fn parse(text: &[u8]) -> Option<(Counts, u64)> {
        let mut numbers = str::from_utf8(text).ok()?.split_ascii_whitespace().map(|word| word.parse().ok());
        let (ran, could_run, put_on) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some((Counts { ran, put_on }, could_run))
    }
}

impl Thread {
    /// `None` if the thread has ended.
    fn sample(&mut self, (pid, tid): (u32, u32), folder: &str, seen: &mut SampleResults) -> Option<()> {
        let Some(Reading { mut before, mut counts, could_run, mut after }) = self.read() else {
            self.lives = false;
            return None;
        };
        let is_ready = || letter(&format!("{folder}/{tid}/stat")) == Some(b'R');
        match self.course(counts, could_run, after, is_ready) {
            Behaviour::GoesOn => {}
            Behaviour::Preempted => seen.preempted = after,
            Behaviour::Changes => seen.changed = after,
        }
        self.same = if self.has(counts) { self.same.saturating_add(1) } else { 0 };
        // A thread that runs has the same counts for a while, too.
        let is_due = self.same.is_power_of_two();
        if is_due && !self.waits && waits(&format!("{folder}/{tid}/stat")) {
            // It may have run until that moment.
            Reading { before, counts, after, .. } = self.read()?;
            self.waits = true;
        }
        let is_same = self.has(counts);
        self.waits &= is_same;
        if !self.waits {
            self.asked = CallQuestion::NotYet;
        }
        let reading_us = after.saturating_sub(before).div_ceil(1000);
        if reading_us > READING_MAX || (is_same && !self.waits) {
            return Some(());
        }
        let mut event = SchedEvent { time: after, pid, tid, kind: kind::SAMPLE, ..SchedEvent::default() };
        event.cpu = reading_us as u16;
        if let Some((last, _)) = self.last {
            event.other = u32::try_from(counts.ran.saturating_sub(last.ran)).unwrap_or(u32::MAX);
            event.state |= if last.put_on == counts.put_on { sample::NOT_PUT_ON } else { 0 };
            event.state |= if self.waits { sample::WAITS } else { 0 };
        }
        let told = self.last.map_or(0, |(_, at)| at);
        if self.waits && after.saturating_sub(told) < QUIET_MAX {
            self.held = Some(event);
            self.ask(event, &mut seen.events);
            return Some(());
        }
        // One that says the same is behind it.
        let held = self.held.take().filter(|_| !self.waits);
        seen.events.extend(held);
        seen.events.push(event);
        self.last = Some((counts, after));
        Some(())
    }

    /// Whether it does what it did before. How long others ran instead is counted when that is
    /// over.
    fn course(
        &mut self,
        counts: Counts,
        could_run: u64,
        now: u64,
        is_ready: impl FnOnce() -> bool,
    ) -> Behaviour {
        let (before, could_run_before, since) = self.changed;
        if counts == before {
            return Behaviour::GoesOn;
        }
        let ran = counts.ran.saturating_sub(before.ran);
        let others_ran = could_run.saturating_sub(could_run_before);
        let passed = now.saturating_sub(since);
        let most = passed / 10 * 9;
        // Who waits for others is put on a CPU more often than they would preempt it.
        let are_few = counts.put_on.saturating_sub(before.put_on) <= 1 + passed / SLICE;
        let course = match (ran >= most, ran.saturating_add(others_ran) >= most) {
            (true, _) => Behaviour::GoesOn,
            (false, true) => Behaviour::Preempted,
            (false, false) if passed < PREEMPTED_MAX && are_few && is_ready() => return Behaviour::Preempted,
            (false, false) => Behaviour::Changes,
        };
        self.changed = (counts, could_run, now);
        course
    }

    /// Asks once in each wait in which system call the thread is, behind a sample of it.
    fn ask(&mut self, sample: SchedEvent, events: &mut Vec<SchedEvent>) {
        self.asked = match self.asked {
            CallQuestion::NotYet => {
                let call = call_of(sample.pid, sample.tid).and_then(|number| number.checked_add(1));
                let off =
                    |other| SchedEvent { kind: kind::OFF, state: state::BLOCKED, other, cpu: 0, ..sample };
                call.map_or(CallQuestion::Over, |call| CallQuestion::Answered(off(call)))
            }
            CallQuestion::Answered(event) => {
                events.push(event);
                CallQuestion::Over
            }
            CallQuestion::Over => CallQuestion::Over,
        };
    }

    /// Whether the last sample has these counts.
    fn has(&self, counts: Counts) -> bool {
        self.last.is_some_and(|(last, _)| last == counts)
    }

    /// Its counts, with moments before and after.
    fn read(&self) -> Option<Reading> {
        let mut text = [0; 96];
        let before = raw_now();
        let length = self.file.read_at(&mut text, 0).ok()?;
        let after = raw_now();
        let (counts, could_run) = Counts::parse(text.get(..length)?)?;
        Some(Reading { before, counts, could_run, after })
    }
}

fn raw_now() -> u64 {
    let now = clock_gettime(ClockId::MonotonicRaw);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Whether a thread waits, by its `stat`: it neither runs nor could run, nor has it ended.
fn waits(path: &str) -> bool {
    letter(path).is_some_and(|state| !b"RZXx".contains(&state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::WaitingThread;

    #[test]
    fn counts_of_the_kernel() {
        assert_eq!(Counts::parse(b"123 45 6\n"), Some((Counts { ran: 123, put_on: 6 }, 45)));
        assert!(Counts::parse(b"123 45").is_none() && Counts::parse(b"").is_none());
    }

    #[test]
    fn a_thread_goes_on_that_waits_or_runs_all_the_time() {
        let file = File::open("/proc/self/schedstat").unwrap();
        let changed = (Counts { ran: 1000, put_on: 5 }, 200, 5000);
        let mut thread = Thread {
            file,
            lives: true,
            waits: false,
            same: 0,
            changed,
            last: None,
            held: None,
            asked: CallQuestion::NotYet,
        };
        let counts = |ran| Counts { ran, put_on: 6 };
        let mut course = |ran, could_run, now| thread.course(counts(ran), could_run, now, || false);
        // The kernel counts at its tick, and whoever samples may take the CPU for a moment.
        assert_eq!(course(5950, 200, 10_000), Behaviour::GoesOn);
        assert_eq!(course(5950, 200, 11_000), Behaviour::GoesOn);
        assert_eq!(course(6000, 200, 12_000), Behaviour::Changes, "it waits since");
        assert_eq!(course(6100, 200, 20_000), Behaviour::Changes, "it has waited");
        assert_eq!(course(6600, 700, 21_000), Behaviour::Preempted);
        // Others run now: for how long is known when it runs again.
        assert_eq!(thread.course(counts(6700), 700, 22_000, || true), Behaviour::Preempted);
        assert_eq!(thread.course(counts(6800), 1600, 22_100, || false), Behaviour::Preempted);
        let often = Counts { put_on: 9, ..counts(6900) };
        assert_eq!(thread.course(often, 1600, 22_500, || true), Behaviour::Changes, "it waits for others");
        let late = 22_500 + PREEMPTED_MAX;
        assert_eq!(thread.course(counts(7000), 1600, late, || true), Behaviour::Changes, "it hardly ran");
    }

    #[test]
    fn samples_come_less_often_the_longer_all_goes_on() {
        let ms = |ns: Duration| ns.as_millis();
        let seen = SampleResults { changed: 1_000_000_000, ..SampleResults::default() };
        let after =
            |seen: &SampleResults, since_ms: u64| ms(seen.interval(1_000_000_000 + since_ms * 1_000_000));
        assert_eq!([5, 21, 40, 100, 900].map(|since| after(&seen, since)), [1, 4, 4, 10, 16]);
        let preempted = SampleResults { preempted: 1_890_000_000, ..seen };
        assert_eq!([895, 990].map(|since| after(&preempted, since)), [4, 10]);
    }

    /// A thread that waits until the test ends it is seen to wait.
    #[test]
    fn a_waiting_thread_is_seen() {
        let thread = WaitingThread::start();
        let tid = thread.tid;
        let mut sampled = Sampled::default();
        let own = std::process::id();
        let held = |sampled: &Sampled| {
            let thread = sampled.processes.get(&own)?.threads.get(&tid)?;
            Some((thread.held?, thread.last?.1))
        };
        while held(&sampled).is_none() {
            sampled.sample(&[own]);
        }
        let (event, since) = held(&sampled).unwrap();
        assert_eq!((event.tid, event.kind, event.other), (tid, kind::SAMPLE, 0));
        assert_eq!(event.state, sample::NOT_PUT_ON | sample::WAITS);
        assert!(event.time > since);
        // The call in which it waits is reported once, when the counts are the same after the
        // answer.
        let calls = |sampled: &Sampled| {
            let of_thread = |event: &&SchedEvent| event.tid == tid && event.kind == kind::OFF;
            sampled.seen.events.iter().filter(of_thread).map(|event| event.other).collect::<Vec<_>>()
        };
        while calls(&sampled).is_empty() {
            sampled.sample(&[own]);
        }
        (0..5).for_each(|_| {
            sampled.sample(&[own]);
        });
        assert_eq!(calls(&sampled), [202 + 1]);
        let count = sampled.seen.events.len();
        thread.end();
        // Its last sample is reported when it has ended, at the latest.
        while sampled.processes.get(&own).is_some_and(|process| process.threads.contains_key(&tid)) {
            sampled.sample(&[own]);
        }
        let is_later = |event: &&SchedEvent| event.tid == tid && event.kind == kind::SAMPLE;
        let later = sampled.seen.events.iter().skip(count).find(is_later).unwrap();
        assert!(later.time >= event.time && later.state & sample::WAITS != 0, "{later:?}");
        // So are those of a process that isn't sampled any more.
        sampled.sample(&[]);
        assert!(sampled.processes.is_empty());
    }
}
