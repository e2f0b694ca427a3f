//! Thread states, as packets of ftrace.

use std::collections::BTreeSet;

use crate::driver::Switches;
use crate::formats::protobuf::Message;
use crate::switches::Switch;
use everycall_calls::Thread;

use super::fields::{interned, packet};
use super::packets::{SEQUENCE_PROCESS, put_entry, put_packet};

/// Field numbers of Perfetto's messages.
mod field {
    pub const FTRACE_EVENTS: u32 = 1;
    pub const CPU: u32 = 1;
    pub const EVENT: u32 = 2;
    pub const TIMESTAMP: u32 = 1;
    pub const PID: u32 = 2;
    pub const SCHED_SWITCH: u32 = 4;
    pub const SCHED_BLOCKED_REASON: u32 = 18;
    pub const SCHED_WAKING: u32 = 20;
}

/// The priority of threads that have none of their own. Which one a thread had isn't known.
const PRIORITY: u64 = 120;
/// Events in a packet.
const PACKET_MAX: usize = 1024;

/// Writes the switches of each CPU.
pub(super) fn put_switches(bytes: &mut Vec<u8>, threads: &[Thread], switches: &Switches) {
    let calls = Calls::of(switches);
    calls.put(bytes);
    for (cpu, switches) in switches {
        for portion in switches.chunks(PACKET_MAX) {
            put_packet(bytes, |packet| {
                packet.number(packet::SEQUENCE, SEQUENCE_PROCESS);
                packet.message(field::FTRACE_EVENTS, |bundle| {
                    bundle.number(field::CPU, (*cpu).into());
                    for switch in portion {
                        bundle.message(field::EVENT, |event| put_event(event, threads, switch, *cpu));
                        calls.put_reason(bundle, threads, switch);
                    }
                });
            });
        }
    }
}

/// The system calls in which threads waited. Perfetto has them as functions of the kernel that
/// block, each of which has a number.
struct Calls(Vec<&'static str>);

impl Calls {
    fn of(switches: &Switches) -> Calls {
        let all = switches.values().flatten().filter_map(|switch| match switch {
            Switch::Off { waits_in, .. } => *waits_in,
            _ => None,
        });
        Calls(all.collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// Defines the numbers.
    fn put(&self, bytes: &mut Vec<u8>) {
        put_packet(bytes, |packet| {
            packet.number(packet::SEQUENCE, SEQUENCE_PROCESS);
            packet.number(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
            packet.message(packet::INTERNED, |interned| {
                for (number, name) in (1..).zip(&self.0) {
                    put_entry(interned, interned::KERNEL_SYMBOL, number, name);
                }
            });
        });
    }

    /// Puts the system call in which the thread waits that has left the CPU.
    fn put_reason(&self, bundle: &mut Vec<u8>, threads: &[Thread], switch: &Switch) {
        let Switch::Off { at_ns, thread, waits_in: Some(call), .. } = switch else { return };
        let (Ok(place), Some(thread)) = (self.0.binary_search(call), threads.get(*thread)) else { return };
        bundle.message(field::EVENT, |event| {
            event.number(field::TIMESTAMP, *at_ns);
            event.number(field::PID, 0);
            event.message(field::SCHED_BLOCKED_REASON, |reason| {
                reason.number(1, thread.tid.into());
                reason.number(2, place as u64 + 1);
            });
        });
    }
}

fn put_event(event: &mut Vec<u8>, threads: &[Thread], switch: &Switch, cpu: u16) {
    let facts = |thread: usize| threads.get(thread).map_or((0, ""), |facts| (facts.tid, facts.name.as_str()));
    let idle = format!("swapper/{cpu}");
    let idle = (0, idle.as_str());
    event.number(field::TIMESTAMP, switch.at_ns());
    let (before, state, after) = match *switch {
        Switch::On { thread, .. } => (idle, 0, facts(thread)),
        Switch::Off { thread, state, .. } => (facts(thread), state, idle),
        Switch::Woken { thread, by, .. } => {
            let (tid, name) = facts(thread);
            event.number(field::PID, by.into());
            return event.message(field::SCHED_WAKING, |waking| {
                waking.text(1, name);
                waking.number(2, tid.into());
                waking.number(3, PRIORITY);
                waking.number(4, 1);
                waking.number(5, cpu.into());
            });
        }
    };
    event.number(field::PID, before.0.into());
    event.message(field::SCHED_SWITCH, |switch| {
        switch.text(1, before.1);
        switch.number(2, before.0.into());
        switch.number(3, PRIORITY);
        switch.number(4, state.into());
        switch.text(5, after.1);
        switch.number(6, after.0.into());
        switch.number(7, PRIORITY);
    });
}
