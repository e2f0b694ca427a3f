//! Thread states as switches of CPUs, as the kernel's own tracer has them.

use std::collections::BTreeMap;

use everycall_timeline::{StateSpan, ThreadState, Wait, system_call_name};

use crate::source::Source;

/// A state that a thread is left in when a CPU takes up another one: the kernel's bits.
fn bits(state: Option<ThreadState>) -> u32 {
    match state {
        Some(ThreadState::Running | ThreadState::Runnable) => 0,
        Some(ThreadState::Blocked(Wait::Any | Wait::Interruptible)) => 1,
        Some(ThreadState::Blocked(Wait::Uninterruptible)) => 2,
        Some(ThreadState::Blocked(Wait::Stopped)) => 4,
        // Dead, or not known: viewers show nothing behind it.
        Some(ThreadState::Unknown) | None => 0x10,
    }
}

/// A scheduling event of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// It took up the thread with this index.
    On { at_ns: u64, thread: usize },
    /// It left it, in this state ([`bits`]), and waited in this system call.
    Off { at_ns: u64, thread: usize, state: u32, waits_in: Option<&'static str> },
    /// The thread was woken by another one; by an interrupt, if that is 0.
    Woken { at_ns: u64, thread: usize, by: u32 },
}

impl Switch {
    pub(crate) fn at_ns(&self) -> u64 {
        match self {
            Switch::On { at_ns, .. } | Switch::Off { at_ns, .. } | Switch::Woken { at_ns, .. } => *at_ns,
        }
    }
}

/// In which system call a thread then waits, if viewers may show it. The kernel's event for it also
/// says whether a wait that no signal ends is one for a disk, which isn't known here.
fn waits_in(span: &StateSpan) -> Option<&'static str> {
    let is_interruptible = matches!(span.state, ThreadState::Blocked(Wait::Any | Wait::Interruptible));
    span.blocked_in.filter(|_| is_interruptible).and_then(system_call_name)
}

/// The switches that concern threads, from `since` until `until`, by CPU and in order. Each thread of the
/// kernel counts once, although several snapshots may have it.
pub(crate) fn switches(
    source: &impl Source,
    threads: impl Iterator<Item = usize>,
    (since, until): (u64, u64),
) -> BTreeMap<u16, Vec<Switch>> {
    let mut by_cpu: BTreeMap<u16, Vec<Switch>> = BTreeMap::new();
    let mut seen = std::collections::HashSet::new();
    for thread in threads {
        let Some(states) = source.states(thread) else { continue };
        if !source.threads().get(thread).is_some_and(|facts| seen.insert((facts.pid, facts.tid))) {
            continue;
        }
        let spans = states.spans();
        let first = spans.partition_point(|span| span.end <= since);
        let shown = spans.get(first..).unwrap_or_default();
        for (index, span) in shown.iter().enumerate().take_while(|(_, span)| span.start < until) {
            let Some(cpu) = span.cpu else { continue };
            let on_cpu = by_cpu.entry(cpu).or_default();
            let at_ns = span.start.max(since);
            match span.state {
                ThreadState::Running => {
                    on_cpu.push(Switch::On { at_ns, thread });
                    let next = shown.get(index + 1).filter(|next: &&StateSpan| next.start == span.end);
                    let state = bits(next.map(|next| next.state));
                    let waits_in = next.and_then(waits_in);
                    if span.end < until {
                        on_cpu.push(Switch::Off { at_ns: span.end, thread, state, waits_in });
                    }
                }
                ThreadState::Runnable => {
                    let before = (first + index).checked_sub(1).and_then(|before| spans.get(before));
                    let was_blocked = before.is_some_and(|before| {
                        before.end == span.start && matches!(before.state, ThreadState::Blocked(_))
                    });
                    let by = span.woken_by.or(was_blocked.then_some(0));
                    on_cpu.extend(by.map(|by| Switch::Woken { at_ns, thread, by }));
                }
                ThreadState::Blocked(_) | ThreadState::Unknown => {}
            }
        }
    }
    // A CPU leaves a thread before it takes up the next one.
    let order = |switch: &Switch| (switch.at_ns(), matches!(switch, Switch::On { .. }));
    by_cpu.values_mut().for_each(|switches| switches.sort_by_key(order));
    by_cpu
}
