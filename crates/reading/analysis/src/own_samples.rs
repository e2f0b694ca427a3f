//! Samples of stacks within functions' own times: a sample belongs to the innermost call
//! that is open on its thread at its time. What runs then is the call's function itself, or code
//! without hooks that it has called.

use std::collections::HashMap;
use std::rc::Rc;

use everycall_export::{Filter, Source as _};
use everycall_profile::{FunctionIdentity, FunctionNumber};
use everycall_timeline::TimelineEvent;
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

/// Samples within the own times of functions.
#[derive(Clone, Debug, Default)]
pub struct OwnSamples {
    functions: HashMap<FunctionIdentity, HashMap<SamplesIn, u64>>,
    /// Samples of recorded threads outside of all calls.
    pub outside: u64,
    /// Samples of threads of which the trace has no calls.
    pub of_others: u64,
}

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
const HOOKS: [&str; 2] = ["everycall_", "__everycall"];

impl OwnSamples {
    /// Adds the samples in calls of `view` whose thread and time pass `filter`.
    pub fn add_trace(&mut self, view: &TraceView<'_>, filter: &Filter) {
        let Some(names) = StackNames::new(view.trace(), view.names()) else { return };
        let all = &names.stacks().samples;
        let times = StackTimes::new(view.trace());
        let (since_ns, until_ns) = filter.bounds(view);
        let is_within = |at_ns: u64| (since_ns..=until_ns).contains(&at_ns);
        let mut finder = FunctionFinder::new(view);
        // By function and stack: how many samples, and the first one.
        let mut in_calls: FxHashMap<(FunctionNumber, Option<usize>), (u64, usize)> = FxHashMap::default();
        let mut uses = vec![Use::OfOthers; all.len()];
        for (index, thread) in view.threads().iter().enumerate() {
            let samples = times.of(thread.pid, thread.tid);
            if samples.is_empty() {
                continue;
            }
            if !filter.admits_thread(thread) {
                samples.iter().for_each(|(_, sample)| uses[*sample] = Use::LeftOut);
                continue;
            }
            for (at_ns, sample) in samples {
                // Threads of one id may follow each other.
                match is_within(*at_ns) {
                    false => uses[*sample] = Use::LeftOut,
                    true if uses[*sample] == Use::OfOthers => uses[*sample] = Use::Outside,
                    true => {}
                }
            }
            let mut free = Free::new(samples);
            for event in view.timeline(view.trace_index(index).unwrap_or(usize::MAX)) {
                let TimelineEvent::End(end) = event else { continue };
                let mut function = None;
                free.take(end.start_ns, end.end_ns, |at_ns, sample| {
                    if is_within(at_ns) {
                        uses[sample] = Use::InCall;
                        let function = *function.get_or_insert_with(|| finder.number(end.location));
                        let node = all.get(sample).and_then(|sample| sample.node);
                        in_calls.entry((function, node)).or_insert((0, sample)).0 += 1;
                    }
                });
            }
        }
        let count = |wanted: Use| uses.iter().filter(|of| **of == wanted).count() as u64;
        self.outside += count(Use::Outside);
        self.of_others += count(Use::OfOthers);
        for ((function, _), (count, sample)) in in_calls {
            let Some(sample) = all.get(sample) else { continue };
            let place = place_of(&names.frames(sample), function, &mut finder);
            let Some(of) = finder.functions().get(function) else { continue };
            let sums = self.functions.entry(of.identity.clone()).or_default();
            *sums.entry(place).or_default() += count;
        }
    }

    /// Whether there are no samples in calls.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The samples in a function's own time, most first.
    #[must_use]
    pub fn of(&self, function: &FunctionIdentity) -> Vec<(&SamplesIn, u64)> {
        let Some(places) = self.functions.get(function) else { return Vec::new() };
        let mut places: Vec<(&SamplesIn, u64)> = places.iter().map(|(of, count)| (of, *count)).collect();
        places.sort_by(|one, other| (other.1, one.0).cmp(&(one.1, other.0)));
        places
    }
}

/// Where a sample is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    OfOthers,
    LeftOut,
    Outside,
    InCall,
}

/// The samples of a thread that belong to no call yet. Inner calls end before outer ones.
struct Free<'s> {
    samples: &'s [(u64, usize)],
    /// For each sample, and behind the last one: a place at or behind it, up to which none is free.
    next: Vec<usize>,
}

impl<'s> Free<'s> {
    fn new(samples: &'s [(u64, usize)]) -> Free<'s> {
        Free { samples, next: (0..=samples.len()).collect() }
    }

    /// The first free sample from a place on; its place is that behind all if there is none.
    fn first(&mut self, from: usize) -> usize {
        let mut at = from;
        while let Some(next) = self.next.get(at).copied().filter(|next| *next != at) {
            at = next;
        }
        // The way is shorter next time.
        let mut passed = from;
        while let Some(next) = self.next.get_mut(passed).filter(|next| **next != at && passed < at) {
            passed = std::mem::replace(next, at);
        }
        at
    }

    /// Takes the free samples of a stretch of time, without its end.
    fn take(&mut self, start_ns: u64, end_ns: u64, mut take: impl FnMut(u64, usize)) {
        let begin = self.samples.partition_point(|(at_ns, _)| *at_ns < start_ns);
        let mut at = self.first(begin);
        while let Some((at_ns, sample)) = self.samples.get(at).filter(|(at_ns, _)| *at_ns < end_ns) {
            take(*at_ns, *sample);
            self.next[at] = at + 1;
            at = self.first(at + 1);
        }
    }
}

/// Where a sample in a call of `function` was.
fn place_of(
    frames: &[Rc<FrameName>],
    function: FunctionNumber,
    finder: &mut FunctionFinder<'_>,
) -> SamplesIn {
    let Some(leaf) = frames.first() else {
        return SamplesIn { name: "unknown".to_owned(), ..SamplesIn::default() };
    };
    let of = finder.functions().get(function).cloned().unwrap_or_default();
    let program = frames.iter().position(|frame| frame.kind != CodeKind::Kernel).unwrap_or(frames.len());
    let itself = frames
        .iter()
        .position(|frame| frame.location.is_some_and(|location| finder.number(location) == function));
    // Outside of the kernel, between the call's function and what runs.
    let called = itself.and_then(|itself| itself.checked_sub(1)).filter(|called| *called >= program);
    let called = called.and_then(|called| frames.get(called));
    let is_hook = |frame: &FrameName| HOOKS.iter().any(|begin| frame.name.starts_with(begin));
    if program > 0 {
        let (name, module) = (why_kernel(&frames[..program]), "kernel".to_owned());
        let called = called.map(|called| called.name.clone());
        return SamplesIn { name, module, called, ..SamplesIn::default() };
    }
    if is_hook(leaf) || called.is_some_and(|called| is_hook(called)) {
        return SamplesIn { name: "hooks of everycall".to_owned(), ..SamplesIn::default() };
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
    fn inner_calls_have_their_samples_first() {
        let samples: Vec<(u64, usize)> = (0..10).map(|at| (at * 10, at as usize)).collect();
        let mut free = Free::new(&samples);
        let mut take = |start, end| {
            let mut taken = Vec::new();
            free.take(start, end, |_, sample| taken.push(sample));
            taken
        };
        assert_eq!(take(20, 40), [2, 3]);
        assert_eq!(take(50, 60), [5]);
        assert_eq!(take(20, 25), [] as [usize; 0], "taken before");
        assert_eq!(take(10, 75), [1, 4, 6, 7]);
        assert_eq!(take(0, 1000), [0, 8, 9]);
        assert_eq!(take(0, 1000), [] as [usize; 0]);
    }

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
