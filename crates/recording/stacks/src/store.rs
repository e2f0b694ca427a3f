//! The samples, each with its stack as a path through a tree, and the payload of their chunk.

use std::collections::VecDeque;

use everycall_format::Wire;
use everycall_format::stacks::{
    NO_NODE, StackFile, StackFrame, StackNode, StackSample, StacksRecord, frame_kind,
};
use rustc_hash::FxHashMap;

/// Samples that are kept: the newest ones.
const SAMPLES_KEPT: usize = 1 << 20;
/// Nodes that are kept. Beyond, half of the samples go.
const NODES_KEPT: usize = 1 << 20;

/// A place in code. Files and names are numbers of [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Code of a file, at this address of the file.
    File(u32, u64),
    /// A function of the kernel, by name.
    Kernel(u32),
    /// A function of the vDSO, by name.
    Vdso(u32),
    /// Other code, at this address of the process.
    Memory(u64),
}

/// Samples that are missing since the last chunk, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    pub lost: u64,
    pub overwritten: u64,
    pub throttled: u64,
}

/// Things by their first occurrence.
#[derive(Debug)]
struct Numbers<T> {
    all: Vec<T>,
    of: FxHashMap<T, u32>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Numbers { all: Vec::new(), of: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Numbers<T> {
    fn number(&mut self, of: T) -> u32 {
        if let Some(number) = self.of.get(&of) {
            return *number;
        }
        let number = self.all.len() as u32;
        self.all.push(of.clone());
        self.of.insert(of, number);
        number
    }
}

/// The samples that aren't in the file yet.
#[derive(Debug, Default)]
pub struct Store {
    /// Paths and build ids.
    files: Vec<(Vec<u8>, Vec<u8>)>,
    /// Their numbers, by those that the caller has for them.
    file_numbers: FxHashMap<usize, u32>,
    names: Numbers<String>,
    places: Numbers<Place>,
    nodes: Numbers<(u32, u32)>,
    samples: VecDeque<StackSample>,
    pub losses: Losses,
}

impl Store {
    /// The number of a file, which the caller knows by another one.
    pub fn file(&mut self, of: usize, path: &[u8], build_id: &[u8]) -> u32 {
        *self.file_numbers.entry(of).or_insert_with(|| {
            self.files.push((path.to_vec(), build_id.to_vec()));
            self.files.len() as u32 - 1
        })
    }

    /// The number of a name.
    pub fn name(&mut self, name: &str) -> u32 {
        match self.names.of.get(name) {
            Some(number) => *number,
            None => self.names.number(name.to_owned()),
        }
    }

    /// Adds a sample with its stack, innermost frame first.
    pub fn push(&mut self, sample: StackSample, stack: &[Place]) {
        if self.nodes.all.len() >= NODES_KEPT {
            self.forget();
        }
        if self.samples.len() >= SAMPLES_KEPT {
            self.samples.pop_front();
            self.losses.overwritten += 1;
        }
        let node = stack.iter().rev().fold(NO_NODE, |parent, place| {
            let place = self.places.number(*place);
            self.nodes.number((parent, place))
        });
        self.samples.push_back(StackSample { node, ..sample });
    }

    /// How many samples wait.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Leaves out the older half of the samples, and the nodes that only they have.
    fn forget(&mut self) {
        let mut samples = std::mem::take(&mut self.samples);
        let nodes = std::mem::take(&mut self.nodes).all;
        let old = samples.len().div_ceil(2);
        self.losses.overwritten += old as u64;
        let mut path = Vec::new();
        for sample in samples.drain(old..) {
            path.clear();
            let mut at = sample.node;
            while let Some((parent, place)) = nodes.get(at as usize) {
                path.push(*place);
                at = *parent;
            }
            let walk = path.iter().rev();
            let node = walk.fold(NO_NODE, |parent, place| self.nodes.number((parent, *place)));
            self.samples.push_back(StackSample { node, ..sample });
        }
    }

    /// The payload of a chunk with all samples, which are then no longer here. The tables and
    /// counts of `record` are set.
    pub fn take(&mut self, record: StacksRecord, text: &str) -> Vec<u8> {
        let Store { files, names, places, nodes, samples, losses, .. } = std::mem::take(self);
        let mut texts: Vec<u8> = Vec::new();
        let mut add = |text: &[u8]| {
            let at = texts.len() as u32;
            texts.extend_from_slice(text);
            (at, text.len() as u32)
        };
        let names: Vec<(u32, u32)> = names.all.iter().map(|name| add(name.as_bytes())).collect();
        let named = |number: u32| names.get(number as usize).copied().unwrap_or_default();
        let mut tables = Vec::new();
        for (path, id) in &files {
            let (path, path_length) = add(path);
            let mut build_id = [0; 32];
            let length = id.len().min(build_id.len());
            build_id[..length].copy_from_slice(&id[..length]);
            let build_id_length = length as u32;
            let file = StackFile { path, path_length, build_id_length, reserved: 0, build_id };
            tables.extend(file.to_bytes());
        }
        for place in &places.all {
            let other = StackFrame::default();
            let by_name = |kind, (name, name_length)| StackFrame { kind, name, name_length, ..other };
            tables.extend(
                match *place {
                    Place::File(file, address) => {
                        StackFrame { address, kind: frame_kind::FILE, file, ..other }
                    }
                    Place::Kernel(name) => by_name(frame_kind::KERNEL, named(name)),
                    Place::Vdso(name) => by_name(frame_kind::VDSO, named(name)),
                    Place::Memory(address) => StackFrame { address, kind: frame_kind::MEMORY, ..other },
                }
                .to_bytes(),
            );
        }
        for &(parent, frame) in &nodes.all {
            tables.extend(StackNode { parent, frame }.to_bytes());
        }
        for sample in &samples {
            tables.extend(sample.to_bytes());
        }
        let record = StacksRecord {
            record_size: StacksRecord::SIZE as u32,
            file_size: StackFile::SIZE as u32,
            frame_size: StackFrame::SIZE as u32,
            node_size: StackNode::SIZE as u32,
            sample_size: StackSample::SIZE as u32,
            files: files.len() as u32,
            frames: places.all.len() as u32,
            nodes: nodes.all.len() as u32,
            text_length: text.len() as u32,
            names_length: texts.len() as u32,
            samples: samples.len() as u64,
            lost: losses.lost,
            overwritten: losses.overwritten,
            throttled: losses.throttled,
            ..record
        };
        let mut payload = Vec::with_capacity(StacksRecord::SIZE + texts.len() + tables.len() + 16);
        payload.extend(record.to_bytes());
        for text in [text.as_bytes(), &texts] {
            payload.extend_from_slice(text);
            payload.resize(payload.len().next_multiple_of(8), 0);
        }
        payload.extend_from_slice(&tables);
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_their_outer_frames() {
        let mut store = Store::default();
        let file = store.file(5, b"/lib/libm.so", &[1, 2]);
        let name = store.name("read");
        let (outer, inner) = (Place::File(file, 16), Place::Kernel(name));
        store.push(StackSample { time: 7, ..StackSample::default() }, &[inner, outer]);
        store.push(StackSample { time: 8, ..StackSample::default() }, &[outer]);
        store.push(StackSample { time: 9, ..StackSample::default() }, &[]);
        assert_eq!(store.nodes.all, [(NO_NODE, 0), (0, 1)]);
        let nodes: Vec<u32> = store.samples.iter().map(|sample| sample.node).collect();
        assert_eq!(nodes, [1, 0, NO_NODE]);
        store.forget();
        assert_eq!(store.losses.overwritten, 2);
        let payload = store.take(StacksRecord::default(), "text");
        let record = StacksRecord::read(&payload).unwrap();
        assert_eq!((record.samples, record.files, record.frames, record.overwritten), (1, 1, 2, 2));
        assert_eq!(payload.len(), 96 + 8 + 16 + 48 + 2 * 24 + 24);
        assert_eq!((store.len(), store.losses), (0, Losses::default()));
    }
}
