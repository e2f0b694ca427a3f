//! Sampled stacks: the threads and times of samples, and names of their frames.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use everycall_reader::{SampledFile, SampledFrame, SampledStacks, StackSample};
use everycall_symbols::Symbols;
use everycall_timeline::{Location, Trace};

use crate::names::{SymbolNames, base_name};

/// The samples of each thread, by process and thread id, in the order of their times.
#[derive(Debug, Default)]
pub struct StackTimes {
    /// Nanoseconds since the origin, and the index in [`SampledStacks::samples`].
    threads: HashMap<(u32, u32), Vec<(u64, usize)>>,
}

impl StackTimes {
    /// Sorts the samples of a trace.
    #[must_use]
    pub fn new(trace: &Trace<'_>) -> StackTimes {
        let mut threads: HashMap<(u32, u32), Vec<(u64, usize)>> = HashMap::new();
        let samples = trace.stacks().map_or(&[][..], |stacks| &stacks.samples);
        for (index, sample) in samples.iter().enumerate() {
            let at_ns = trace.clock().at_monotonic_raw(sample.raw_ns);
            threads.entry((sample.pid, sample.tid)).or_default().push((at_ns, index));
        }
        threads.values_mut().for_each(|samples| samples.sort_unstable());
        StackTimes { threads }
    }

    /// The samples of a thread, by process and thread id: nanoseconds since the origin, and the
    /// index in [`SampledStacks::samples`].
    #[must_use]
    pub fn of(&self, pid: u32, tid: u32) -> &[(u64, usize)] {
        self.threads.get(&(pid, tid)).map_or(&[], Vec::as_slice)
    }
}

/// What kind of code a frame is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeKind {
    /// Code of the program or a library.
    Program,
    /// Code of the kernel.
    Kernel,
    /// Code of no file: made while the program ran, for example.
    Memory,
}

/// The name of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameName {
    /// The function, demangled; an address if its name isn't known.
    pub name: String,
    /// File name of its module; empty for code of no file.
    pub module: String,
    /// What kind of code it is.
    pub kind: CodeKind,
    /// The functions whose code was inlined there, outermost first.
    pub inlined: Vec<String>,
    /// Its location, if it is in a module of the trace.
    pub location: Option<Location>,
}

/// Names of sampled frames, found on first use.
pub struct StackNames<'a> {
    names: &'a SymbolNames<'a>,
    trace: &'a Trace<'a>,
    stacks: &'a SampledStacks,
    /// By file: the module that it is.
    modules: Vec<Option<u32>>,
    /// By file: its symbols, as the file has them.
    others: RefCell<HashMap<usize, Symbols>>,
    found: RefCell<HashMap<(u32, usize), Rc<FrameName>>>,
}

impl<'a> StackNames<'a> {
    /// The names of a trace's samples; `None` if it has none.
    #[must_use]
    pub fn new(trace: &'a Trace<'a>, names: &'a SymbolNames<'a>) -> Option<StackNames<'a>> {
        let stacks = trace.stacks()?;
        let module = |file: &SampledFile| {
            let is_it = |module: &&everycall_reader::Module| {
                module.path == file.path && (module.build_id == file.build_id || file.build_id.is_empty())
            };
            let found = trace.modules().iter().find(is_it)?;
            u32::try_from(found.same_file).ok()
        };
        let modules = stacks.files.iter().map(module).collect();
        Some(StackNames {
            names,
            trace,
            stacks,
            modules,
            others: RefCell::default(),
            found: RefCell::default(),
        })
    }

    /// The samples.
    #[must_use]
    pub fn stacks(&self) -> &'a SampledStacks {
        self.stacks
    }

    /// The places of frames that are in modules of the trace.
    pub(crate) fn locations(&self) -> Vec<Location> {
        let of = |frame: &SampledFrame| match frame {
            SampledFrame::File { file, image_address } => {
                let module = *self.modules.get(*file)?;
                module.map(|module| Location { module, image_address: *image_address })
            }
            _ => None,
        };
        self.stacks.frames.iter().filter_map(of).collect()
    }

    /// The frames of a sample, innermost first.
    #[must_use]
    pub fn frames(&self, sample: &StackSample) -> Vec<Rc<FrameName>> {
        let mut frames = Vec::new();
        let mut at = sample.node;
        while let Some((parent, frame)) = at.and_then(|at| self.stacks.nodes.get(at)) {
            frames.push(self.frame(sample, *frame));
            // A caller's node stands before, so this ends.
            at = *parent;
        }
        frames
    }

    /// The frame at an index of [`SampledStacks::frames`].
    fn frame(&self, sample: &StackSample, index: usize) -> Rc<FrameName> {
        let frame = self.stacks.frames.get(index).unwrap_or(&SampledFrame::Other);
        // Only addresses of a process mean something else in each.
        let pid = if matches!(frame, SampledFrame::Memory(_)) { sample.pid } else { 0 };
        if let Some(known) = self.found.borrow().get(&(pid, index)) {
            return Rc::clone(known);
        }
        let named = Rc::new(self.named(sample, frame));
        self.found.borrow_mut().insert((pid, index), Rc::clone(&named));
        named
    }

    fn named(&self, sample: &StackSample, frame: &SampledFrame) -> FrameName {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let plain = |name: String, module: &str, kind| FrameName {
            name,
            module: module.to_owned(),
            kind,
            inlined: Vec::new(),
            location: None,
        };
        match frame {
            SampledFrame::File { file, image_address } => self.of_file(*file, *image_address),
            SampledFrame::Kernel(name) if name.is_empty() => {
                plain("unknown".to_owned(), "kernel", CodeKind::Kernel)
            }
            SampledFrame::Kernel(name) => plain(text(name), "kernel", CodeKind::Kernel),
            SampledFrame::Vdso(name) => plain(text(name), "[vdso]", CodeKind::Program),
            SampledFrame::Memory(address) => self.of_memory(sample, *address),
            SampledFrame::Other => plain("unknown".to_owned(), "", CodeKind::Memory),
        }
    }

    fn of_file(&self, file: usize, image_address: u64) -> FrameName {
        let unknown = SampledFile::default();
        let of = self.stacks.files.get(file).unwrap_or(&unknown);
        // Symbols in a trace don't say what was inlined where, so the file is asked in any case.
        let mut others = self.others.borrow_mut();
        let symbols = others.entry(file).or_insert_with(|| self.names.open_other(&of.path, &of.build_id));
        let (in_file, inlined) = self.names.in_other(symbols, image_address);
        if let Some(Some(module)) = self.modules.get(file) {
            let location = Location { module: *module, image_address };
            let named = self.names.name(location);
            return FrameName {
                name: in_file.unwrap_or_else(|| named.name.into_owned()),
                module: named.module.into_owned(),
                kind: CodeKind::Program,
                inlined,
                location: Some(location),
            };
        }
        let module = base_name(&of.path);
        let name = in_file.unwrap_or_else(|| format!("{module}+{image_address:#x}"));
        FrameName { name, module, kind: CodeKind::Program, inlined, location: None }
    }

    /// Code of no file: a just-in-time compiler may have named it.
    fn of_memory(&self, sample: &StackSample, address: u64) -> FrameName {
        let process = self.trace.processes().iter().position(|process| process.pid == sample.pid);
        let ticks = self.trace.clock().ticks(self.trace.clock().at_monotonic_raw(sample.raw_ns));
        let location = process.map(|process| self.trace.locate_outside(process, address, ticks));
        let known = location.filter(|location| location.module_index().is_some());
        match known.map(|location| self.names.name(location)) {
            Some(named) => FrameName {
                name: named.name.into_owned(),
                module: named.module.into_owned(),
                kind: CodeKind::Memory,
                inlined: Vec::new(),
                location: known,
            },
            None => FrameName {
                name: format!("{address:#x}"),
                module: String::new(),
                kind: CodeKind::Memory,
                inlined: Vec::new(),
                location: None,
            },
        }
    }
}
