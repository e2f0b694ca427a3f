//! Processes and threads, as what perf wrote beside the trace says: who ran where and when, and
//! which code they had. Nothing here changes while a trace is decoded.

use std::sync::OnceLock;

use everycall_intel_pt::Rates;
use everycall_jit::Code as CodeName;
use rustc_hash::{FxHashMap, FxHashSet};

use super::file::{Clocks, PerfFile, Side, What, is_dump, is_injected};
use super::generated::{Generated, Wanted};
use super::space::{Code, Files, Map};

/// Forefathers of a process whose names of code are looked for.
const FOREFATHERS_MAX: usize = 8;

/// A process, from its start or the execution of its program on.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub pid: u32,
    /// In ticks.
    pub from: u64,
    pub name: Vec<u8>,
    pub parent: Option<usize>,
    pub is_fork: bool,
    maps: Vec<Map>,
    code: OnceLock<(Code, Vec<CodeName>, u64)>,
}

/// Processes and threads.
#[derive(Debug)]
pub(crate) struct World {
    pub rates: Rates,
    pub clocks: Clocks,
    pub processes: Vec<Process>,
    pub files: Files,
    pub generated: Generated,
    by_pid: FxHashMap<u32, Vec<u32>>,
    names: FxHashMap<u32, Vec<u8>>,
    pids: FxHashMap<u32, u32>,
    /// Who runs on a CPU from which time on.
    switches: FxHashMap<u32, Vec<(u64, u32, u32)>>,
    /// Processes whose end was recorded.
    ended: FxHashSet<u32>,
    /// Who runs where nothing says it.
    only: (u32, u32),
    /// When perf wrote a process's last record, in its time.
    lasts: FxHashMap<u32, u64>,
}

impl World {
    pub fn new(file: &mut PerfFile, generated: Generated) -> World {
        let clocks = file.clocks;
        let mut world = World {
            rates: Rates {
                mtc_shift: clocks.mtc_shift,
                crystal: clocks.crystal,
                tsc_ratio: clocks.tsc_ratio,
            },
            clocks,
            processes: Vec::new(),
            files: Files::new(std::mem::take(&mut file.files)),
            generated,
            by_pid: FxHashMap::default(),
            names: FxHashMap::default(),
            pids: FxHashMap::default(),
            switches: FxHashMap::default(),
            ended: FxHashSet::default(),
            only: (0, 0),
            lasts: std::mem::take(&mut file.lasts),
        };
        for side in std::mem::take(&mut file.sides) {
            world.side(side);
        }
        if world.only == (0, 0) {
            let first = world.processes.first().map_or(0, |process| process.pid);
            world.only = (first, first);
        }
        // Whoever may be looked for is there.
        let switched = world.switches.values().flatten().map(|(_, pid, _)| *pid);
        let own = file.streams.values().filter(|stream| stream.cpu.is_none());
        let own = own.map(|stream| world.pid_of(stream.tid));
        let pids: FxHashSet<u32> = switched.chain(own).chain([world.only.0]).collect();
        let mut pids: Vec<u32> = pids.into_iter().collect();
        pids.sort_unstable();
        for pid in pids {
            world.current(pid);
        }
        world
    }

    fn pid_of(&self, tid: u32) -> u32 {
        self.pids.get(&tid).copied().unwrap_or(tid)
    }

    /// The process as it is now.
    fn current(&mut self, pid: u32) -> usize {
        if let Some(index) = self.by_pid.get(&pid).and_then(|list| list.last()) {
            return *index as usize;
        }
        self.add(Process { pid, ..Process::default() })
    }

    fn add(&mut self, process: Process) -> usize {
        let index = self.processes.len();
        self.by_pid.entry(process.pid).or_default().push(index as u32);
        self.processes.push(process);
        index
    }

    fn side(&mut self, side: Side) {
        let Side { ns, cpu, pid, tid, what } = side;
        let from = if ns == 0 { 0 } else { self.clocks.ticks(ns) };
        // The kernel's own.
        if pid == u32::MAX {
            return;
        }
        if !matches!(what, What::Switch) || pid != 0 {
            self.pids.insert(tid, pid);
        }
        match what {
            What::Map(start, size, offset, number) => {
                let index = self.current(pid);
                if let Some(process) = self.processes.get_mut(index) {
                    let end = start.saturating_add(size);
                    process.maps.push(Map { start, end, offset, number, from, file: None });
                }
            }
            What::Name(name, is_new) => {
                let mut index = self.current(pid);
                // A record about a process that ran before isn't an execution.
                let has_maps = self.processes.get(index).is_some_and(|process| !process.maps.is_empty());
                if is_new && ns > 0 && has_maps {
                    let name = name.clone();
                    index = self.add(Process { pid, from, name, parent: Some(index), ..Process::default() });
                }
                if let Some(process) = self.processes.get_mut(index).filter(|_| pid == tid) {
                    process.name.clone_from(&name);
                }
                self.names.insert(tid, name);
            }
            What::Fork(parent) if parent != pid => {
                let parent = self.current(parent);
                let Some(process) = self.processes.get(parent) else { return };
                let (maps, name) = (process.maps.clone(), process.name.clone());
                let parent = Some(parent);
                self.add(Process { pid, from, name, parent, is_fork: true, maps, ..Process::default() });
            }
            What::Exit if pid == tid => {
                self.ended.insert(pid);
            }
            What::Fork(_) | What::Exit => {}
            What::Switch => {
                self.switches.entry(cpu).or_default().push((from, pid, tid));
                if self.only == (0, 0) {
                    self.only = (pid, tid);
                }
            }
        }
    }

    /// Who runs at this time, on a CPU, or as the thread `tid` whose own trace it is: the process,
    /// by its index, and the thread.
    pub fn who(&self, cpu: Option<u32>, tid: u32, now: u64) -> Option<(u32, u32)> {
        let (pid, tid) = match cpu {
            None => (self.pid_of(tid), tid),
            Some(cpu) => {
                let switches = self.switches.get(&cpu).map_or(&[][..], |list| list);
                let later = switches.partition_point(|(from, _, _)| *from <= now);
                // Before the first one, there is nobody else.
                let last = switches.get(later.saturating_sub(1));
                last.map_or(self.only, |(_, pid, tid)| (*pid, *tid))
            }
        };
        let list = self.by_pid.get(&pid)?;
        let is_then =
            |index: &u32| self.processes.get(*index as usize).is_some_and(|process| process.from <= now);
        let index = list.get(list.partition_point(is_then).saturating_sub(1))?;
        Some((*index, tid))
    }

    /// Until when the process with this index was there at least, in ticks; 0 if that isn't known.
    pub fn last(&self, index: u32) -> u64 {
        let Some(process) = self.processes.get(index as usize) else { return 0 };
        let is_last = self.by_pid.get(&process.pid).is_some_and(|list| list.last() == Some(&index));
        let last = self.lasts.get(&process.pid).filter(|_| is_last);
        last.map_or(0, |ns| self.clocks.ticks(*ns))
    }

    /// A thread's name.
    pub fn name(&self, tid: u32) -> &[u8] {
        self.names.get(&tid).map_or(&[], |name| name)
    }

    /// The code of a process. Its files are read when it is asked for first.
    pub fn code(&self, index: usize) -> &Code {
        static NONE: OnceLock<Code> = OnceLock::new();
        match self.known(index) {
            Some((code, _, _)) => code,
            None => NONE.get_or_init(Code::default),
        }
    }

    /// Names of a process's generated code, and how many more there were.
    pub fn code_names(&self, index: usize) -> (Vec<CodeName>, u64) {
        self.known(index).map(|(_, names, lost)| (names.clone(), *lost)).unwrap_or_default()
    }

    fn known(&self, index: usize) -> Option<&(Code, Vec<CodeName>, u64)> {
        let process = self.processes.get(index)?;
        Some(process.code.get_or_init(|| {
            let found = self.generated.find(index, &self.wanted(index), &self.clocks);
            let mut maps = process.maps.clone();
            maps.extend(found.maps);
            maps.sort_by_key(|map| map.from);
            (Code::new(maps, &self.files), found.names, found.lost)
        }))
    }

    /// What is wrong with files.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.files.notes();
        notes.extend(self.generated.notes());
        notes
    }

    /// Whose generated code a process has.
    fn wanted(&self, index: usize) -> Wanted {
        let mut wanted = Wanted::default();
        let mut at = Some(index);
        while let Some(process) = at.and_then(|at| self.processes.get(at))
            && wanted.pids.len() < FOREFATHERS_MAX
        {
            // The map of a process that executed several programs is the last one's.
            let last = self.by_pid.get(&process.pid).and_then(|list| list.last());
            if last.map(|last| *last as usize) == at {
                wanted.pids.push((process.pid, self.ended.contains(&process.pid)));
            }
            at = process.parent.filter(|_| process.is_fork);
        }
        wanted.pids.reverse();
        let maps = self.processes.get(index).map_or(&[][..], |process| &process.maps);
        let path = |map: &Map| self.files.name(map.number).map_or(&b""[..], |name| &name.path);
        if maps.iter().any(|map| is_injected(path(map))) {
            return wanted;
        }
        for map in maps.iter().filter(|map| is_dump(path(map))) {
            if wanted.dumps.iter().all(|(known, _)| known != path(map)) {
                wanted.dumps.push((path(map).to_vec(), map.from));
            }
        }
        wanted
    }
}
