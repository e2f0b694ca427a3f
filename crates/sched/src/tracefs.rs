//! Scheduling events of an instance of tracefs, which has buffers and settings of its own: other
//! tracers on the machine don't notice it.
//!
//! Root makes an instance and removes it at the end. If the recorder is killed, its watcher does
//! that, or the next recorder. Other users need one that root has made for them
//! ([`crate::delegated`]).

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use everycall_format::sched::{SchedEvent, clock, kind, rename, state};
use rustix::fs::{Access, FlockOperation, OFlags, access, flock};
use rustix::process::{getpid, getuid};
use rustix::thread::gettid;

use crate::names::{Name, name_of};
use crate::pages::{self, Entry};
use crate::watcher::Watcher;

/// Where tracefs is mounted on most machines.
pub(crate) const MOUNT: &str = "/sys/kernel/tracing";
/// Instances of recorders begin so; their process id follows.
const OWN: &str = "everycall.";
/// KiB of each CPU's buffer: room for some 15,000 switches at least.
const BUFFER_KB: RangeInclusive<u32> = 1024..=2048;
/// The same, while nobody records.
const UNUSED_KB: &str = "4";
/// How long a killed recorder's watcher may take: it needs some milliseconds.
const TURN_MAX: Duration = Duration::from_millis(200);
/// A thread, in the flags of clone.
const CLONE_THREAD: u64 = 0x10000;
/// Flags of an event: where it happened.
const HARD_INTERRUPT: u32 = 8;
const SOFT_INTERRUPT: u32 = 16;
/// The level of lockdown in which nobody may read what the kernel traces.
const CLOSED: &str = "confidentiality";
/// Bytes of a page, at least.
const PAGE: usize = 1 << 16;
/// Pages that are read of a CPU at a time: the kernel may write as fast as this reads.
const PAGES_MAX: usize = 4096;

/// Events that are recorded.
pub(crate) const EVENTS: [&str; 6] = [
    "sched/sched_switch",
    "sched/sched_waking",
    "sched/sched_wakeup_new",
    "sched/sched_process_exit",
    "task/task_newtask",
    RENAME,
];
/// The filter of switches.
pub(crate) const FILTER: &str = "events/sched/sched_switch/filter";
/// Neither runnable, of which preemption has a bit of its own in some kernels, nor in an
/// interruptible wait.
const UNUSUAL: &str = "prev_state & 254";
/// No filter.
const EVERYTHING: &str = "0";
/// A thread gets another name. Instances that older versions gave don't have it.
const RENAME: &str = "task/task_rename";

/// An instance that records.
#[derive(Debug)]
pub struct Tracefs {
    // An instance whose pipes are open can't be removed, so they are closed first.
    cpus: Vec<(u16, File)>,
    _instance: Instance,
    formats: Formats,
    /// Processes of the threads.
    tasks: HashMap<u32, u32>,
    own: u32,
    /// One of [`clock`].
    pub clock: u32,
    /// Whether only unusual switches are among the events: see [`Beside::Perf`].
    pub is_filtered: bool,
    page: Vec<u8>,
}

/// What else tells the same threads' events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing: all events, with times in ticks if the kernel has them.
    Nothing,
    /// perf events have the switches: of those here, only the ones that say more than that a thread
    /// was preempted, or waits as threads do mostly. Times are those of perf events.
    Perf,
}

impl Tracefs {
    /// Begins for what the calling thread starts. `Err` says why it can't.
    pub fn open(beside: Beside) -> Result<Tracefs, String> {
        let failed = |error: io::Error| format!("tracefs, which tells that, can't be used: {error}");
        let instance = match given(getuid().as_raw()) {
            given if is_instance(&given) => Instance::given(given).map_err(failed),
            _ => Instance::make(),
        };
        // Dropped if that fails.
        let begun = instance.and_then(|instance| Tracefs::begin(instance, beside).map_err(failed));
        begun.map_err(|why| match lockdown() {
            Some(level) => {
                format!("tracefs, which tells that, is closed by the kernel's lockdown ({level})")
            }
            None => why,
        })
    }

    fn begin(instance: Instance, beside: Beside) -> io::Result<Tracefs> {
        let folder = &instance.folder;
        let set = |name: &str, value: &str| fs::write(folder.join(name), value);
        // A new one has no events yet.
        if instance.stays() {
            set("tracing_on", "0")?;
        }
        // This empties the buffers, too.
        let clock = if beside == Beside::Nothing && set("trace_clock", "x86-tsc").is_ok() {
            clock::TICKS
        } else {
            set("trace_clock", "mono_raw")?;
            clock::MONOTONIC_RAW
        };
        // The kernel's own size does mostly. To change it takes some 10 ms.
        let size = fs::read_to_string(folder.join("buffer_size_kb"))?;
        if !size.trim().parse().is_ok_and(|size| BUFFER_KB.contains(&size)) {
            set("buffer_size_kb", &BUFFER_KB.start().to_string())?;
        }
        // Children of the threads in the list are in it, too.
        set("options/event-fork", "1")?;
        set("set_event_pid", &gettid().as_raw_nonzero().to_string())?;
        let formats = Formats::read(folder)?;
        // Instances that older versions gave have no filter that the user may set.
        let is_filtered = match beside {
            Beside::Perf => set(FILTER, UNUSUAL).is_ok(),
            Beside::Nothing => {
                if instance.stays() {
                    let _ = set(FILTER, EVERYTHING);
                }
                false
            }
        };
        for event in EVENTS {
            let is_on = set(&format!("events/{event}/enable"), "1");
            if event != RENAME {
                is_on?;
            }
        }
        let mut cpus = Vec::new();
        for entry in fs::read_dir(folder.join("per_cpu"))? {
            let entry = entry?;
            let number = entry.file_name().to_string_lossy().strip_prefix("cpu").and_then(|n| n.parse().ok());
            let Some(number) = number else { continue };
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            let pipe = entry.path().join("trace_pipe_raw");
            cpus.push((number, OpenOptions::new().read(true).custom_flags(nonblocking).open(pipe)?));
        }
        let own = own_pid();
        let tasks = HashMap::from([(gettid().as_raw_nonzero().get().unsigned_abs(), own)]);
        set("tracing_on", "1")?;
        let page = vec![0; PAGE];
        Ok(Tracefs { cpus, _instance: instance, formats, tasks, own, clock, is_filtered, page })
    }

    /// Readable when half a buffer waits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|(_, pipe)| pipe.as_fd())
    }

    /// Gives what was recorded to `take`, by time.
    pub fn drain(&mut self, mut take: impl FnMut(SchedEvent)) {
        let mut raw = Vec::new();
        for (cpu, pipe) in &mut self.cpus {
            for _ in 0..PAGES_MAX {
                let Ok(length) = pipe.read(&mut self.page) else { break };
                let Some(page) = self.page.get(..length).filter(|page| !page.is_empty()) else { break };
                let mut first = true;
                pages::read(page, |entry| match entry {
                    Entry::Missed(count) => {
                        let other = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
                        raw.push((u64::MAX, *cpu, Found::Lost(other)));
                    }
                    Entry::Event(time, payload) => {
                        if std::mem::take(&mut first)
                            && let Some(lost @ (u64::MAX, ..)) = raw.last_mut()
                        {
                            lost.0 = time;
                        }
                        raw.extend(self.formats.event(payload).map(|found| (time, *cpu, found)));
                    }
                });
            }
        }
        // A thread is born on one CPU, and runs on another.
        raw.retain(|(time, ..)| *time != u64::MAX);
        raw.sort_by_key(|(time, ..)| *time);
        for (time, cpu, found) in raw {
            self.told(time, cpu, found).into_iter().flatten().for_each(&mut take);
            if let Found::Renamed { tid, before, name } = found
                && let Some(pid) = self.tasks.get(&tid).copied().filter(|pid| *pid != self.own)
            {
                let event = SchedEvent { time, pid, tid, cpu, ..SchedEvent::default() };
                rename(event, before, name).into_iter().for_each(&mut take);
            }
        }
    }

    /// Events of the threads of other processes that this says.
    fn told(&mut self, time: u64, cpu: u16, found: Found) -> [Option<SchedEvent>; 2] {
        let event = |of: &Tracefs, tid: u32, kind: u8| {
            let pid = *of.tasks.get(&tid)?;
            (pid != of.own).then_some(SchedEvent { time, pid, tid, cpu, kind, ..SchedEvent::default() })
        };
        match found {
            Found::Lost(other) => {
                [Some(SchedEvent { time, cpu, kind: kind::LOST, other, ..SchedEvent::default() }), None]
            }
            Found::Switch { before, state, after } => {
                let off = event(self, before, kind::OFF).map(|event| SchedEvent { state, ..event });
                if state == state::DEAD {
                    self.tasks.remove(&before);
                }
                [off, event(self, after, kind::ON)]
            }
            Found::Woken { tid, by } => {
                [event(self, tid, kind::WOKEN).map(|event| SchedEvent { other: by, ..event }), None]
            }
            Found::New { tid, parent, is_thread } => {
                let process = if is_thread { self.tasks.get(&parent).copied().unwrap_or(tid) } else { tid };
                self.tasks.insert(tid, process);
                [None, None]
            }
            Found::Renamed { .. } => [None, None],
            Found::Ended(tid) => [event(self, tid, kind::ENDED), None],
        }
    }
}

/// An instance, which ends with this.
#[derive(Debug)]
struct Instance {
    folder: PathBuf,
    /// Keeps other recorders from one that stays.
    lock: Option<File>,
    watcher: Option<Watcher>,
}

impl Instance {
    /// Makes one for this process.
    fn make() -> Result<Instance, String> {
        let root = mounted().ok_or_else(|| {
            format!("tracefs, which tells that, isn't mounted (`sudo mount -t tracefs tracefs {MOUNT}`)")
        })?;
        let instances = root.join("instances");
        let refused = |error: io::Error| {
            format!(
                "tracefs, which tells that, is for root, and for whom root gives access (`sudo everycall setup-tracefs --user {}`) ({error})",
                getuid().as_raw()
            )
        };
        access(&instances, Access::WRITE_OK).map_err(|error| refused(error.into()))?;
        remove_orphans(&instances);
        let folder = instances.join(format!("{OWN}{}", own_pid()));
        // It is there before there is anything to end, and before children of this process are
        // recorded.
        let watcher = Watcher::start(&folder, &EVENTS, None).ok();
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(refused(error)),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(format!(
                "tracefs, which tells that, has no room for one more instance ({error}); `ls {}` shows those of all tracers",
                instances.display()
            )),
            _ => Ok(Instance { folder, lock: None, watcher }),
        }
    }

    /// Takes the one that root has given.
    fn given(folder: PathBuf) -> io::Result<Instance> {
        let lock = File::open(&folder)?;
        take_turn(&lock)?;
        let watcher = Watcher::start(&folder, &EVENTS, Some((&lock, UNUSED_KB))).ok();
        Ok(Instance { folder, lock: Some(lock), watcher })
    }
}

impl Instance {
    /// Whether it is one that root has given.
    fn stays(&self) -> bool {
        self.lock.is_some()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The kernel switches its events off with it, in a tenth of the time.
        if !self.stays() && fs::remove_dir(&self.folder).is_ok() {
            return;
        }
        let off = |name: &str| {
            let _ = fs::write(self.folder.join(name), "0");
        };
        off("tracing_on");
        EVENTS.iter().for_each(|event| off(&format!("events/{event}/enable")));
        let _ = fs::write(self.folder.join("set_event_pid"), "");
        match &self.lock {
            Some(lock) => {
                // It stays, and its memory would.
                let _ = fs::write(self.folder.join("buffer_size_kb"), UNUSED_KB);
                // The watcher has the lock, too, for some time.
                self.watcher = None;
                let _ = flock(lock, FlockOperation::Unlock);
            }
            None => {
                let _ = fs::remove_dir(&self.folder);
            }
        }
    }
}

fn own_pid() -> u32 {
    getpid().as_raw_nonzero().get().unsigned_abs()
}

/// Waits for a killed recorder's watcher, but not for another recorder.
fn take_turn(lock: &File) -> io::Result<()> {
    let begin = Instant::now();
    while flock(lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if begin.elapsed() > TURN_MAX {
            return Err(io::Error::other("another recorder of this user has it"));
        }
        std::thread::sleep(TURN_MAX / 20);
    }
    Ok(())
}

/// The folder of the instance that root gives a user.
pub(crate) fn given(uid: u32) -> PathBuf {
    PathBuf::from(format!("/run/everycall/tracefs-{uid}"))
}

/// Whether a folder is an instance.
pub(crate) fn is_instance(folder: &Path) -> bool {
    folder.join("tracing_on").exists()
}

/// Where tracefs is mounted, as a whole.
pub(crate) fn mounted() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mounts.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut words = place.split(' ').skip(3);
        // A part of it is bound elsewhere for a user.
        let (part, path) = (words.next()?, words.next()?);
        (kind.starts_with("tracefs ") && part == "/").then(|| PathBuf::from(path))
    });
    let mut mounted: Vec<PathBuf> = mounted.collect();
    mounted.sort_by_key(|path| path != Path::new(MOUNT));
    mounted.into_iter().next()
}

/// The level of the kernel's lockdown, if it is one that closes tracefs. Its files aren't even
/// there then.
fn lockdown() -> Option<String> {
    chosen(&fs::read_to_string("/sys/kernel/security/lockdown").ok()?).filter(|level| level == CLOSED)
}

/// The word in brackets.
fn chosen(levels: &str) -> Option<String> {
    Some(levels.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Removes instances of recorders that were killed.
fn remove_orphans(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_string_lossy().strip_prefix(OWN).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Switch { before: u32, state: u8, after: u32 },
    Woken { tid: u32, by: u32 },
    New { tid: u32, parent: u32, is_thread: bool },
    Ended(u32),
    Lost(u32),
    Renamed { tid: u32, before: Name, name: Name },
}

/// Where the events' fields are, as the running kernel says.
#[derive(Clone, Debug, Default)]
struct Formats {
    switch: u16,
    prev_pid: usize,
    prev_state: usize,
    next_pid: usize,
    waking: [u16; 2],
    woken_pid: usize,
    exit: u16,
    exit_pid: usize,
    new: u16,
    new_pid: usize,
    clone_flags: usize,
    /// Number of the event, thread, name before, and new name; `None` if there is no such event.
    rename: Option<(u16, [usize; 3])>,
}

impl Formats {
    fn read(folder: &Path) -> io::Result<Formats> {
        let text = |event: &str| fs::read_to_string(folder.join("events").join(event).join("format"));
        let [switch, waking, wakeup_new, exit, new, rename] = EVENTS;
        let rename = text(rename).ok().and_then(|rename| {
            let at = |field| offset(&rename, field);
            Some((number(&rename)?, [at("pid")?, at("oldcomm")?, at("newcomm")?]))
        });
        let (switch, waking, wakeup_new) = (text(switch)?, text(waking)?, text(wakeup_new)?);
        let (exit, new) = (text(exit)?, text(new)?);
        let formats = || {
            Some(Formats {
                switch: number(&switch)?,
                prev_pid: offset(&switch, "prev_pid")?,
                prev_state: offset(&switch, "prev_state")?,
                next_pid: offset(&switch, "next_pid")?,
                waking: [number(&waking)?, number(&wakeup_new)?],
                woken_pid: offset(&waking, "pid").filter(|at| offset(&wakeup_new, "pid") == Some(*at))?,
                exit: number(&exit)?,
                exit_pid: offset(&exit, "pid")?,
                new: number(&new)?,
                new_pid: offset(&new, "pid")?,
                clone_flags: offset(&new, "clone_flags")?,
                rename,
            })
        };
        formats().ok_or_else(|| io::Error::other("this kernel's scheduling events have other fields"))
    }

    fn event(&self, payload: &[u8]) -> Option<Found> {
        let word = |at: usize| payload.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let long = |at: usize| payload.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let by = word(4)?;
        let number = word(0)? as u16;
        if number == self.switch {
            let (before, after) = (word(self.prev_pid)?, word(self.next_pid)?);
            return Some(Found::Switch { before, state: state_of(long(self.prev_state)?), after });
        }
        if self.waking.contains(&number) {
            // In an interrupt, the thread that runs has nothing to do with it.
            let flags = word(0)? >> 16;
            let by = if flags & (HARD_INTERRUPT | SOFT_INTERRUPT) == 0 { by } else { 0 };
            return Some(Found::Woken { tid: word(self.woken_pid)?, by });
        }
        if number == self.exit {
            return Some(Found::Ended(word(self.exit_pid)?));
        }
        if let Some((_, [tid, before, after])) = self.rename.filter(|(of, _)| *of == number) {
            let name = |at: usize| payload.get(at..at + 16).map(name_of);
            return Some(Found::Renamed { tid: word(tid)?, before: name(before)?, name: name(after)? });
        }
        if number == self.new {
            let is_thread = long(self.clone_flags)? & CLONE_THREAD != 0;
            return Some(Found::New { tid: word(self.new_pid)?, parent: by, is_thread });
        }
        None
    }
}

/// The kernel's bits of a state, of which the lowest have the same meaning in all versions.
fn state_of(bits: u64) -> u8 {
    match bits & 0xff {
        0 => state::RUNNABLE,
        1 => state::SLEEPING,
        bits if bits & (0x10 | 0x20 | 0x80) != 0 => state::DEAD,
        bits if bits & (4 | 8) != 0 => state::STOPPED,
        _ => state::UNINTERRUPTIBLE,
    }
}

/// The number of an event, from the text of its format.
fn number(format: &str) -> Option<u16> {
    format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()
}

/// Where a field is.
fn offset(format: &str, field: &str) -> Option<usize> {
    format.lines().find_map(|line| {
        let (declaration, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        let name = declaration.rsplit([' ', '\t']).next()?;
        let name = name.split('[').next()?;
        if name != field {
            return None;
        }
        rest.split(';').find_map(|part| part.trim().strip_prefix("offset:"))?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n";

    #[test]
    fn formats() {
        assert_eq!(number(SWITCH), Some(372));
        assert_eq!((offset(SWITCH, "prev_pid"), offset(SWITCH, "prev_comm")), (Some(24), Some(8)));
        assert_eq!((offset(SWITCH, "pid"), number("ID: many")), (None, None));
    }

    #[test]
    fn levels_of_lockdown() {
        assert_eq!(chosen("none integrity [confidentiality]\n").as_deref(), Some("confidentiality"));
        assert_eq!(
            (chosen("[none] integrity").as_deref(), chosen("none"), chosen("]a[")),
            (Some("none"), None, None)
        );
    }

    #[test]
    fn states() {
        let wanted = [
            (0, state::RUNNABLE),
            (0x100, state::RUNNABLE),
            (1, state::SLEEPING),
            (2, state::UNINTERRUPTIBLE),
            (0x402, state::UNINTERRUPTIBLE),
            (4, state::STOPPED),
            (8, state::STOPPED),
            (0x80, state::DEAD),
        ];
        for (bits, expected) in wanted {
            assert_eq!(state_of(bits), expected, "{bits:#x}");
        }
    }
}
