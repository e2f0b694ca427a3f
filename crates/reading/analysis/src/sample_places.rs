//! The place of each sample: what ran, seen from the call that it belongs to.

use std::rc::Rc;

use everycall_export::Thread;
use everycall_profile::FunctionNumber;
use rustc_hash::FxHashMap;

use crate::stacks::{CodeKind, FrameName, StackNames, StackTimes};
use crate::summing::FunctionFinder;
use crate::view::TraceView;

/// Where samples were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SamplesIn {
    /// The function that ran; of the kernel, why the kernel did.
    pub name: String,
    /// File name of its module; `kernel`, or empty for code of no file.
    pub module: String,
    /// The function without hooks that was called, and which led there, if it is another one.
    pub called: Option<String>,
    /// Whether it is the call's function itself.
    pub is_itself: bool,
    /// Whether its code was inlined into the call's function.
    pub is_inlined: bool,
}

impl SamplesIn {
    /// The place in a few words, as it is shown in a function of the module `module`.
    #[must_use]
    pub fn label(&self, module: &str) -> String {
        let SamplesIn { name, module: other, .. } = self;
        match self {
            SamplesIn { is_itself: true, .. } => "itself".to_owned(),
            SamplesIn { is_inlined: true, .. } => format!("{name} (inlined)"),
            _ if other.is_empty() || other == module || other == KERNEL => name.clone(),
            _ => format!("{name} ({other})"),
        }
    }
}

/// The module of code of the kernel.
const KERNEL: &str = "kernel";
/// Why the kernel runs, by the beginnings of its functions' names; what is called first decides.
const ENTRIES: [(&str, &str); 6] = [
    ("asm_exc_page_fault", "page faults"),
    ("exc_page_fault", "page faults"),
    ("asm_sysvec_", "interrupts"),
    ("sysvec_", "interrupts"),
    ("asm_common_interrupt", "interrupts"),
    ("common_interrupt", "interrupts"),
];
/// How names of everycall's functions begin in a traced program.
const HOOKS: [&str; 5] = ["everycall_", "__everycall", "__cyg_profile_func_", "__fentry__", "__return__"];
/// How names of everycall's libraries begin, which stand before the program's.
const LIBRARIES: &str = "libeverycall";

/// The samples of a trace, and their places.
pub struct SamplePlaces<'v> {
    names: StackNames<'v>,
    times: StackTimes,
    finder: FunctionFinder<'v>,
    /// By function, process and stack.
    known: FxHashMap<(Option<FunctionNumber>, u32, Option<usize>), Rc<SamplesIn>>,
}

impl<'v> SamplePlaces<'v> {
    /// Those of a trace; `None` if it has no sampled stacks.
    #[must_use]
    pub fn new(view: &'v TraceView<'_>) -> Option<SamplePlaces<'v>> {
        Some(SamplePlaces {
            names: StackNames::new(view.trace(), view.names())?,
            times: StackTimes::new(view.trace()),
            finder: FunctionFinder::new(view),
            known: FxHashMap::default(),
        })
    }

    /// Samples of all threads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.stacks().samples.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Samples a second that were wanted of a running thread.
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.names.stacks().rate
    }

    /// The samples of a thread in the order of their times: nanoseconds since the origin, and a
    /// number.
    #[must_use]
    pub fn of_thread(&self, thread: &Thread) -> &[(u64, usize)] {
        self.times.of(thread.pid, thread.tid)
    }

    /// The functions of calls.
    pub fn functions(&mut self) -> &mut FunctionFinder<'v> {
        &mut self.finder
    }

    /// The place of the sample with a number in a call of a function, or outside of all calls.
    #[must_use]
    pub fn place(&mut self, sample: usize, function: Option<FunctionNumber>) -> Rc<SamplesIn> {
        let Some(sample) = self.names.stacks().samples.get(sample) else { return Rc::default() };
        let key = (function, sample.pid, sample.node);
        if let Some(known) = self.known.get(&key) {
            return Rc::clone(known);
        }
        let place = Rc::new(place_of(&self.names.frames(sample), function, &mut self.finder));
        self.known.insert(key, Rc::clone(&place));
        place
    }

    /// The frames of the sample with a number, innermost first.
    #[must_use]
    pub fn frames(&self, sample: usize) -> Vec<Rc<FrameName>> {
        let sample = self.names.stacks().samples.get(sample);
        sample.map(|sample| self.names.frames(sample)).unwrap_or_default()
    }
}

/// The place of a sample in a call of `function`.
fn place_of(
    frames: &[Rc<FrameName>],
    function: Option<FunctionNumber>,
    finder: &mut FunctionFinder<'_>,
) -> SamplesIn {
    let Some(leaf) = frames.first() else {
        return SamplesIn { name: "unknown".to_owned(), ..SamplesIn::default() };
    };
    let of = function.and_then(|function| finder.functions().get(function).cloned()).unwrap_or_default();
    let program = frames.iter().position(|frame| frame.kind != CodeKind::Kernel).unwrap_or(frames.len());
    let is_itself = |frame: &Rc<FrameName>| {
        let found = frame.location.filter(|_| function.is_some()).map(|location| finder.number(location));
        found.is_some() && found == function
    };
    let itself = frames.iter().position(is_itself);
    // Outside of the kernel, between the call's function and what runs.
    let called = itself.and_then(|itself| itself.checked_sub(1)).filter(|called| *called >= program);
    let called = called.and_then(|called| frames.get(called));
    // What everycall does: its hooks, and what its libraries ask the kernel by themselves.
    let is_ours = |frame: &Rc<FrameName>| {
        frame.module.starts_with(LIBRARIES) || HOOKS.iter().any(|begin| frame.name.starts_with(begin))
    };
    let inside = frames.get(program..itself.unwrap_or(program)).unwrap_or_default();
    if frames.get(program).into_iter().chain(inside).any(is_ours) {
        return SamplesIn { name: "hooks of everycall".to_owned(), ..SamplesIn::default() };
    }
    if program > 0 {
        let (name, module) = (why_kernel(&frames[..program]), KERNEL.to_owned());
        let called = called.map(|called| called.name.clone());
        return SamplesIn { name, module, called, ..SamplesIn::default() };
    }
    if itself == Some(0) {
        let inlined = leaf.inlined.last().filter(|inlined| **inlined != of.name);
        return SamplesIn {
            name: inlined.unwrap_or(&of.name).clone(),
            module: of.identity.module,
            called: None,
            is_itself: inlined.is_none(),
            is_inlined: inlined.is_some(),
        };
    }
    let called = called.filter(|called| called.name != leaf.name).map(|called| called.name.clone());
    let (name, module) = (leaf.name.clone(), leaf.module.clone());
    SamplesIn { name, module, called, ..SamplesIn::default() }
}

/// The system call that a function of the kernel is: after two underscores, the way of calling it,
/// and `_sys_`.
fn system_call(name: &str) -> Option<&str> {
    let (way, call) = name.strip_prefix("__")?.split_once("_sys_")?;
    way.chars().all(|of| of.is_ascii_alphanumeric()).then_some(call)
}

/// Why the kernel runs, by its frames, innermost first.
fn why_kernel(frames: &[Rc<FrameName>]) -> String {
    for frame in frames.iter().rev() {
        if let Some(call) = system_call(&frame.name) {
            return format!("system call {call}");
        }
        if let Some((_, why)) = ENTRIES.iter().find(|(begin, _)| frame.name.starts_with(begin)) {
            return (*why).to_owned();
        }
    }
    "the kernel".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_runs_for_a_reason() {
        let why = |names: &[&str]| {
            let frame = |name: &&str| {
                Rc::new(FrameName {
                    name: (*name).to_owned(),
                    module: "kernel".to_owned(),
                    kind: CodeKind::Kernel,
                    inlined: Vec::new(),
                    location: None,
                })
            };
            why_kernel(&names.iter().map(frame).collect::<Vec<_>>())
        };
        assert_eq!(
            why(&["clear_page", "handle_mm_fault", "exc_page_fault", "asm_exc_page_fault"]),
            "page faults"
        );
        let read = ["asm_exc_page_fault", "copy_user", "__x64_sys_read", "do_syscall_64"];
        assert_eq!(why(&read), "system call read", "the outermost reason");
        assert_eq!(why(&["unknown"]), "the kernel");
    }
}
