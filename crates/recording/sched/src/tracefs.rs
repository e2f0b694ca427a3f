//! Scheduling events of an instance of tracefs, which has buffers and settings of its own: other
//! tracers on the machine don't notice it.
//!
//! Root makes an instance and removes it at the end. If the recorder is killed, its watcher does
//! that, or the next recorder. Other users need one that root has made for them
//! ([`crate::delegated`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use everycall_format::sched::{SchedEvent, clock, kind, rename, state};
use rustc_hash::FxHashMap;
use rustix::fs::{Access, FlockOperation, OFlags, access, flock};
use rustix::process::{getpid, getuid};
use rustix::thread::gettid;

use crate::arch;
use crate::names::{Name, name_of};
use crate::pages::{self, Entry};
use crate::watcher::Watcher;

/// Where tracefs is mounted on most machines.
pub(crate) const MOUNT: &str = "/sys/kernel/tracing";
/// Instances of recorders begin so; their process id follows.
const OWN: &str = "everycall.";
/// KiB of each CPU's buffer: room for some 15,000 switches at least.
pub(crate) const BUFFER_KB: RangeInclusive<u32> = 1024..=2048;
/// KiB of each CPU's buffer while there is no recording.
pub(crate) const UNUSED_KB: &str = "4";
/// How long a killed recorder's watcher may take: it needs some milliseconds.
const TURN_MAX: Duration = Duration::from_millis(200);
/// A thread, in the flags of clone.
const CLONE_THREAD: u64 = 0x10000;
/// Flags of an event: where it happened.
const HARD_INTERRUPT: u32 = 8;
const SOFT_INTERRUPT: u32 = 16;
/// The level of lockdown that forbids reading the kernel's traces.
const CLOSED: &str = "confidentiality";
/// The namespace whose process ids the kernel's events have (`PROC_PID_INIT_INO`).
const FIRST_PIDS: &str = "pid:[4026531836]";
/// Bytes of a page, at least.
const PAGE: usize = 1 << 16;
/// Pages that are read of a CPU at a time: the kernel may write as fast as this reads.
const PAGES_MAX: usize = 4096;

/// Events that are recorded.
pub(crate) const EVENTS: [&str; 7] =
    [SWITCH, "sched/sched_waking", "sched/sched_wakeup_new", EXIT, "sched/sched_process_exec", NEW, RENAME];
const SWITCH: &str = "sched/sched_switch";
const EXIT: &str = "sched/sched_process_exit";
const NEW: &str = "task/task_newtask";
const RENAME: &str = "task/task_rename";
/// Events that perf has, too. Ends come from tracefs, where a thread's process is known.
const ALSO_OF_PERF: [&str; 2] = [SWITCH, RENAME];
/// No filter.
const EVERYTHING: &str = "0";

/// The filter of an event that leaves out threads with numbers below `from`, which were there
/// before.
fn filter(event: &str, from: u32) -> String {
    match event {
        SWITCH => format!("prev_pid >= {from} || next_pid >= {from}"),
        NEW => format!("common_pid >= {from}"),
        _ => format!("pid >= {from}"),
    }
}

/// The lowest number of threads that belong to the program, which this thread starts: 0 if numbers
/// soon wrap around.
fn first_number(thread: u32, max: u32) -> u32 {
    if thread < max - max / 8 { thread } else { 0 }
}

/// An instance that records.
#[derive(Debug)]
pub struct Tracefs {
    // An instance whose pipes are open can't be removed, so they are closed first.
    cpus: Vec<(u16, File)>,
    instance: Instance,
    formats: Formats,
    /// Processes of the threads.
    tasks: FxHashMap<u32, u32>,
    own: u32,
    /// One of [`clock`].
    pub clock: u32,
    /// Threads with lower numbers are left out, as they were there before.
    from: u32,
    is_beside: bool,
    page: Vec<u8>,
    /// Memory for what is read at a time.
    raw: Vec<(u64, u16, Found)>,
}

impl Tracefs {
    /// Begins recording what the calling thread starts. If it `is_beside` perf events: on their
    /// clock, and without events that perf has.
    pub fn begin(instance: Instance, is_beside: bool) -> Result<Tracefs, String> {
        Tracefs::start(instance, is_beside).map_err(failed)
    }

    fn start(instance: Instance, is_beside: bool) -> io::Result<Tracefs> {
        let set = |name: &str, value: &str| instance.set(name, value);
        set("tracing_on", "0")?;
        // This empties the buffers, too.
        let clock = if !is_beside && set("trace_clock", arch::COUNTER_CLOCK).is_ok() {
            clock::TICKS
        } else {
            set("trace_clock", "mono_raw")?;
            clock::MONOTONIC_RAW
        };
        // The kernel's own size does mostly. To change it takes some 10 ms.
        // That of an instance that root has given is root's, and right.
        let size = fs::read_to_string(instance.folder.join("buffer_size_kb"));
        let is_right = |size: String| size.trim().parse().is_ok_and(|size| BUFFER_KB.contains(&size));
        if !size.map_or(instance.stays(), is_right) {
            set("buffer_size_kb", &BUFFER_KB.start().to_string())?;
        }
        let formats = Formats::read(&instance.folder)?;
        let thread = gettid().as_raw_nonzero().get().unsigned_abs();
        let max = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
        let from = first_number(thread, max.trim().parse().unwrap_or(0));
        for event in EVENTS {
            let is_wanted = !(is_beside && ALSO_OF_PERF.contains(&event));
            if is_wanted {
                // It only saves work.
                let _ = set(&format!("events/{event}/filter"), &filter(event, from));
            }
            // Switches were looked at already.
            if is_wanted || event == SWITCH {
                set(&format!("events/{event}/enable"), if is_wanted { "1" } else { "0" })?;
            }
        }
        let cpus = instance.pipes()?;
        let own = own_pid();
        let tasks = FxHashMap::from_iter([(thread, own)]);
        set("tracing_on", "1")?;
        let page = vec![0; PAGE];
        let raw = Vec::new();
        Ok(Tracefs { cpus, instance, formats, tasks, own, clock, from, is_beside, page, raw })
    }

    /// Readable when half a buffer waits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|(_, pipe)| pipe.as_fd())
    }

    /// Gives what was recorded to `take`, by time.
    pub fn drain(&mut self, mut take: impl FnMut(SchedEvent)) {
        let mut raw = std::mem::take(&mut self.raw);
        for (cpu, pipe) in &self.cpus {
            let first = raw.len();
            entries(pipe, &mut self.page, |entry| match entry {
                Entry::Missed(count) => {
                    let other = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
                    raw.push((u64::MAX, *cpu, Found::Lost(other)));
                }
                Entry::Event(time, payload) => {
                    // They were lost before this one.
                    if let Some(lost @ (u64::MAX, ..)) = raw.get_mut(first..).and_then(<[_]>::last_mut) {
                        lost.0 = time;
                    }
                    raw.extend(self.formats.event(payload).map(|found| (time, *cpu, found)));
                }
            });
        }
        // A thread is born on one CPU, and runs on another.
        raw.retain(|(time, ..)| *time != u64::MAX);
        raw.sort_by_key(|(time, ..)| *time);
        for (time, cpu, found) in raw.drain(..) {
            self.told(time, cpu, &found).into_iter().flatten().for_each(&mut take);
            if let Found::Renamed(renamed) = found
                && let (tid, before, name) = *renamed
                && let Some(pid) = self.tasks.get(&tid).copied().filter(|pid| *pid != self.own)
            {
                let event = SchedEvent { time, pid, tid, cpu, ..SchedEvent::default() };
                rename(event, before, name).into_iter().for_each(&mut take);
            }
        }
        self.raw = raw;
    }

    /// Events of the threads of other processes that this says.
    fn told(&mut self, time: u64, cpu: u16, found: &Found) -> [Option<SchedEvent>; 2] {
        let event = |of: &Tracefs, tid: u32, kind: u8| {
            let pid = *of.tasks.get(&tid)?;
            (pid != of.own).then_some(SchedEvent { time, pid, tid, cpu, kind, ..SchedEvent::default() })
        };
        let lost = |other| SchedEvent { time, cpu, kind: kind::LOST, other, ..SchedEvent::default() };
        match *found {
            Found::Lost(other) => [Some(lost(other)), None],
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
                let Some(process) = self.tasks.get(&parent).copied() else {
                    // Another program's, which may have the number of one that has ended.
                    self.tasks.remove(&tid);
                    return [None, None];
                };
                self.tasks.insert(tid, if is_thread { process } else { tid });
                // The kernel's numbers have wrapped around.
                let is_left_out = tid < self.from;
                if is_left_out {
                    self.from = 0;
                    EVENTS.iter().for_each(|event| {
                        let _ = self.instance.set(&format!("events/{event}/filter"), &filter(event, 0));
                    });
                }
                [is_left_out.then(|| lost(1)), None]
            }
            Found::Exec { tid, before } => {
                if self.tasks.remove(&before).is_some() {
                    self.tasks.insert(tid, tid);
                }
                [None, None]
            }
            Found::Renamed(_) => [None, None],
            Found::Ended(tid) => {
                let ended = event(self, tid, kind::ENDED);
                if self.is_beside {
                    // There is no last switch that would say it.
                    self.tasks.remove(&tid);
                }
                [ended, None]
            }
        }
    }
}

/// Gives the entries of a CPU's pages to `take`.
fn entries(mut pipe: &File, page: &mut [u8], mut take: impl FnMut(Entry<'_>)) {
    for _ in 0..PAGES_MAX {
        let Ok(length) = pipe.read(page) else { break };
        let Some(page) = page.get(..length).filter(|page| !page.is_empty()) else { break };
        pages::read(page, &mut take);
    }
}

fn failed(error: io::Error) -> String {
    format!("tracefs, which tells that, can't be used: {error}")
}

/// An instance, which ends with this.
#[derive(Debug)]
pub struct Instance {
    folder: PathBuf,
    /// Keeps other recorders from one that stays.
    lock: Option<File>,
    watcher: Option<Watcher>,
}

impl Instance {
    /// Makes one, or takes the one that root has given. `Err` says why it can't.
    pub fn open() -> Result<Instance, String> {
        if fs::read_link("/proc/self/ns/pid").is_ok_and(|space| space != Path::new(FIRST_PIDS)) {
            return Err(
                "tracefs, which tells that, has other numbers of threads than this container (PID namespace)"
                    .to_owned(),
            );
        }
        let opened = match given(getuid().as_raw()) {
            given if is_instance(&given) => Instance::given(given).map_err(failed),
            _ => Instance::make(),
        };
        opened.map_err(|why| match lockdown() {
            Some(level) => {
                format!("tracefs, which tells that, is closed by the kernel's lockdown ({level})")
            }
            None => why,
        })
    }

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

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.folder.join(name), value)
    }

    /// The pipe of each CPU's events.
    fn pipes(&self) -> io::Result<Vec<(u16, File)>> {
        let mut cpus = Vec::new();
        for entry in fs::read_dir(self.folder.join("per_cpu"))? {
            let entry = entry?;
            let number = entry.file_name().to_string_lossy().strip_prefix("cpu").and_then(|n| n.parse().ok());
            let Some(number) = number else { continue };
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            let pipe = entry.path().join("trace_pipe_raw");
            cpus.push((number, OpenOptions::new().read(true).custom_flags(nonblocking).open(pipe)?));
        }
        Ok(cpus)
    }

    /// Passes the switches of each CPU to `take` while `run` runs: the thread before, and the one
    /// after; `None` where some are missing for want of room.
    pub fn switches(
        &self,
        run: impl FnOnce(),
        mut take: impl FnMut(u16, Option<(u32, u32)>),
    ) -> io::Result<()> {
        let formats = Formats::read(&self.folder)?;
        let enable = format!("events/{SWITCH}/enable");
        // A delegated instance has the filter of the last recording.
        let _ = self.set(&format!("events/{SWITCH}/filter"), EVERYTHING);
        self.set(&enable, "1")?;
        self.set("tracing_on", "1")?;
        run();
        self.set("tracing_on", "0")?;
        let mut page = vec![0; PAGE];
        for (cpu, pipe) in self.pipes()? {
            entries(&pipe, &mut page, |entry| match entry {
                Entry::Missed(_) => take(cpu, None),
                Entry::Event(_, payload) => {
                    if let Some(Found::Switch { before, after, .. }) = formats.event(payload) {
                        take(cpu, Some((before, after)));
                    }
                }
            });
        }
        Ok(())
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
        match &self.lock {
            Some(lock) => {
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

/// A decoded event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Switch {
        before: u32,
        state: u8,
        after: u32,
    },
    Woken {
        tid: u32,
        by: u32,
    },
    New {
        tid: u32,
        parent: u32,
        is_thread: bool,
    },
    Exec {
        tid: u32,
        before: u32,
    },
    Ended(u32),
    Lost(u32),
    /// A thread, its name before, and its new one.
    Renamed(Box<(u32, Name, Name)>),
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
    exec: u16,
    exec_pid: usize,
    exec_old_pid: usize,
    rename: u16,
    rename_pid: usize,
    names: [usize; 2],
}

impl Formats {
    fn read(folder: &Path) -> io::Result<Formats> {
        let text = |event: &str| fs::read_to_string(folder.join("events").join(event).join("format"));
        let [switch, waking, wakeup_new, exit, exec, new, rename] = EVENTS;
        let (switch, waking, wakeup_new) = (text(switch)?, text(waking)?, text(wakeup_new)?);
        let (exit, exec, new, rename) = (text(exit)?, text(exec)?, text(new)?, text(rename)?);
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
                exec: number(&exec)?,
                exec_pid: offset(&exec, "pid")?,
                exec_old_pid: offset(&exec, "old_pid")?,
                rename: number(&rename)?,
                rename_pid: offset(&rename, "pid")?,
                names: [offset(&rename, "oldcomm")?, offset(&rename, "newcomm")?],
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
        if number == self.exec {
            return Some(Found::Exec { tid: word(self.exec_pid)?, before: word(self.exec_old_pid)? });
        }
        if number == self.rename {
            let [before, after] =
                self.names.map(|at| Some(name_of(payload.get(at..at + size_of::<Name>())?)));
            return Some(Found::Renamed(Box::new((word(self.rename_pid)?, before?, after?))));
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
    fn threads_that_are_left_out() {
        assert_eq!([1000, 28_672, 32_000].map(|thread| first_number(thread, 32_768)), [1000, 0, 0]);
        assert_eq!(first_number(1000, 0), 0, "not known");
        assert_eq!(filter(super::SWITCH, 7), "prev_pid >= 7 || next_pid >= 7");
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
