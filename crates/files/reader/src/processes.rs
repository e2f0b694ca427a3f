//! The processes of a trace file and their module tables, gathered chunk by chunk.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use everycall_format::Wire;
use everycall_format::ect::{NO_PROCESS, ProcessRecord};

use crate::model::{Ending, Module, Process, Recording, Stamps};
use crate::payload::SHORT;
use crate::{frames, payload};

/// Limit on processes without a chunk of their own, as in damaged files.
const PLACEHOLDERS_MAX: usize = 4096;
/// Limit on stored words of a command line.
const WORDS_MAX: usize = 1 << 20;

/// Facts about processes, from the chunks.
#[derive(Default)]
pub(crate) struct Processes {
    /// By their number in the file.
    indices: HashMap<u32, usize>,
    all: Vec<Gathered>,
    placeholders: usize,
    words: usize,
}

#[derive(Default)]
struct Gathered {
    process: Process,
    /// Its number in the file.
    parent: Option<u32>,
    /// Whether the process's own chunk was read.
    is_known: bool,
    modules: Vec<Module>,
}

impl Processes {
    /// The index of the process with a number; a process without facts if its own chunk was not
    /// read (yet).
    pub fn index(&mut self, number: u32) -> Option<usize> {
        let next = self.all.len();
        match self.indices.entry(number) {
            Entry::Occupied(entry) => Some(*entry.get()),
            Entry::Vacant(_) if self.placeholders == PLACEHOLDERS_MAX => None,
            Entry::Vacant(entry) => {
                self.placeholders += 1;
                self.all.push(Gathered::default());
                Some(*entry.insert(next))
            }
        }
    }

    /// Adds a PROCESS chunk. `Err` says what is wrong with it.
    pub fn add(&mut self, number: u32, bytes: &[u8]) -> Result<(), &'static str> {
        let record = ProcessRecord::read(bytes).ok_or(SHORT)?;
        let mut process = payload::process(&record, bytes).ok_or("its command line is cut")?;
        self.words += process.command.len();
        if self.words > WORDS_MAX {
            process.command = Vec::new();
        }
        let index = match self.indices.entry(number) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.all.push(Gathered::default());
                *entry.insert(self.all.len() - 1)
            }
        };
        let gathered = &mut self.all[index];
        // Facts written while a process runs are written again at its end.
        if std::mem::replace(&mut gathered.is_known, true) && gathered.process.ending != Ending::Running {
            return Err("its number was there before");
        }
        gathered.process = Process { stamps: gathered.process.stamps, ..process };
        gathered.parent = Some(record.parent).filter(|parent| *parent != NO_PROCESS);
        Ok(())
    }

    /// The module table of a process; it replaces an earlier one. False where there are too many
    /// processes.
    pub fn set_modules(&mut self, number: u32, modules: Vec<Module>) -> bool {
        let Some(index) = self.index(number) else { return false };
        self.all[index].modules = modules;
        true
    }

    /// Which events of a process have a time of their own. False where there are too many processes.
    pub fn set_stamps(&mut self, number: u32, stamps: Stamps) -> bool {
        let Some(index) = self.index(number) else { return false };
        self.all[index].process.stamps = stamps;
        true
    }

    /// Indices by number.
    pub fn numbers(&self) -> HashMap<u32, usize> {
        self.indices.clone()
    }

    /// Puts the processes and all their modules into `recording`, which already contains their
    /// snapshots. Older files don't describe their one process: its facts come from the other
    /// chunks.
    pub fn finish(mut self, recording: &mut Recording) {
        if self.all.is_empty() {
            self.all.push(Gathered::default());
        }
        for snapshot in &recording.snapshots {
            if let Some(gathered) = self.all.get_mut(snapshot.process).filter(|gathered| !gathered.is_known) {
                gathered.process.pid = snapshot.pid;
                gathered.process.end_ticks = snapshot.ticks;
            }
        }
        if let [only] = &mut self.all[..]
            && !only.is_known
        {
            only.process.command.clone_from(&recording.meta.arguments);
        }
        recording.frames.iter_mut().for_each(frames::name_ids);
        frames::name_threads(recording);
        for (index, gathered) in self.all.into_iter().enumerate() {
            let first = recording.modules.len();
            recording.modules.extend(gathered.modules);
            if recording.frames.iter().any(|frames| frames.process == index) {
                recording.modules.push(frames::module());
            }
            let mut process = gathered.process;
            process.modules = first..recording.modules.len();
            // A process can't be its own parent. Longer circles must be detected by the code that
            // follows parents.
            let parent = gathered.parent.and_then(|number| self.indices.get(&number).copied());
            process.parent = parent.filter(|parent| *parent != index);
            recording.processes.push(process);
        }
        number_files(recording);
    }
}

/// Sets [`Module::process`] and [`Module::same_file`].
pub(crate) fn number_files(recording: &mut Recording) {
    for (index, process) in recording.processes.iter().enumerate() {
        recording.modules[process.modules.clone()].iter_mut().for_each(|module| module.process = index);
    }
    /// Path, build id, device, inode.
    type Identity<'a> = (&'a [u8], &'a [u8], u64, u64);
    let mut files: HashMap<Identity<'_>, usize> = HashMap::new();
    let mut numbers = Vec::with_capacity(recording.modules.len());
    for (index, module) in recording.modules.iter().enumerate() {
        let is_named = !module.path.is_empty() && (module.inode != 0 || !module.build_id.is_empty());
        let identity = (&*module.path, &*module.build_id, module.device, module.inode);
        numbers.push(if is_named { *files.entry(identity).or_insert(index) } else { index });
    }
    drop(files);
    for (module, number) in recording.modules.iter_mut().zip(numbers) {
        module.same_file = number;
    }
}
