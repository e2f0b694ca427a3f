//! Bytes and costs of the TRACE instruction of `everycall-trace-device` for a recorded
//! program: `cargo xtask bench trace-device` makes the table from it.
//!
//! Prints one line of JSON. Traces have no stack pointers: each function is given a frame of a
//! size that its address determines, as a compiler gives each function one size of frame.

use std::fs::File;

use everycall_reader::TraceFile;
use everycall_timeline::{EndKind, Location, TimelineEvent, Trace};
use everycall_trace_device::parameters::{
    CHANNEL_BYTES_PER_NS, Dma, HOOK_BYTES, RING_BYTES, branch_trace_pj, device_pj, hook_pj,
};
use everycall_trace_device::{Buffer, Bursts, Decoder, Encoder, Event, Parameters, Place, Stamped};
use serde_json::json;

/// Waits for DRAM that are tried, nanoseconds.
const WAITS: [f64; 3] = [1e3, 1e4, 1e5];
/// Between two events lie at least a call and a return: some four cycles.
const GAP_MIN_NS: f64 = 1.0;
/// A longer time between two events counts as this: a wait, a preemption, a page fault of the ring
/// that recorded it. So rates are those of the time in which the program makes calls.
const GAP_MAX_NS: f64 = 1000.0;
/// Length of the windows whose traffic is compared with the mean, nanoseconds.
const WINDOW_NS: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let path = words.next().ok_or("usage: trace_device TRACE [BYTES-OF-PT-PER-EVENT]")?;
    let pt: Option<f64> = words.next().and_then(|word| word.to_str()?.parse().ok());
    let trace = Trace::open(TraceFile::open(File::open(path)?)?)?;
    let mut sum = Sum::default();
    for thread in trace.threads().iter().filter(|thread| !thread.is_sampled) {
        sum.add(&trace, thread.index, hook_ns(&trace, thread.process))?;
    }
    if sum.events == 0 {
        return Err("the trace has no events".into());
    }
    println!("{}", sum.value(pt));
    Ok(())
}

/// Nanoseconds that a recorded event took the program; 0 if it isn't known.
fn hook_ns(trace: &Trace<'_>, process: usize) -> f64 {
    let known = trace.calibrations().iter().find(|known| known.process == process && known.is_measured);
    let Some(known) = known else { return 0.0 };
    let clock = trace.clock_in_ns();
    let first = clock.origin_ticks();
    let ns_of_tick = clock.ns(first + 1_000_000_000) as f64 / 1e9;
    let thousandths = f64::from(known.sites.inside.value) + f64::from(known.sites.outside.value);
    thousandths / 2000.0 * ns_of_tick
}

#[derive(Default)]
struct Sum {
    events: u64,
    bytes: u64,
    /// Time in which there were events, with hooks and without.
    hooked_ns: f64,
    ns: f64,
    busiest_window: u64,
    bursts: [Bursts; 3],
}

impl Sum {
    fn add(&mut self, trace: &Trace<'_>, thread: usize, price: f64) -> Result<(), String> {
        let mut encoder = Encoder::new(Parameters::DEVICE);
        let mut buffers = WAITS.map(|wait_ns| Buffer::new(Dma { wait_ns, ..Dma::LOW_PRIORITY }, None));
        let mut stacks = vec![0x7ffc_0000_0000_u64];
        let (mut first, mut last, mut at) = (None, 0_u64, 0.0_f64);
        let (mut window, mut in_window) = (0, 0);
        let mut block = Vec::new();
        let mut count = 0_u64;
        for event in trace.thread_events(thread) {
            let event_ns = event.at_ns();
            let event = match event {
                TimelineEvent::Begin(begin) if !begin.cut => {
                    let stack = stacks.last().copied().unwrap_or_default() - frame(begin.location);
                    stacks.push(stack);
                    Event::Enter { place: place(trace, begin.location), stack }
                }
                TimelineEvent::Begin(_) => {
                    stacks.push(stacks.last().copied().unwrap_or_default() - 64);
                    continue;
                }
                TimelineEvent::End(end) => {
                    let stack = stacks.pop().unwrap_or_default();
                    match end.how {
                        EndKind::Returned => Event::Leave { stack },
                        EndKind::Jumped => Event::LeaveByJump { stack },
                        _ => continue,
                    }
                }
                _ => continue,
            };
            let from = *first.get_or_insert(event_ns);
            let passed = (event_ns - last.max(from)) as f64;
            // Without the hook, which isn't there.
            at += (passed - price).clamp(GAP_MIN_NS, GAP_MAX_NS);
            last = event_ns;
            let (bytes, complete) = encoder.put(at as u64, event);
            block.push((at as u64, event));
            if let Some(complete) = complete {
                let kept = block.split_off(block.len() - 1);
                check(&complete, &block)?;
                block = kept;
            }
            for buffer in &mut buffers {
                buffer.push(at, bytes as u64);
            }
            self.events += 1;
            count += 1;
            self.bytes += bytes as u64;
            let current = at as u64 / WINDOW_NS;
            if current != window {
                self.busiest_window = self.busiest_window.max(in_window);
                (window, in_window) = (current, 0);
            }
            in_window += bytes as u64;
        }
        check(encoder.block(), &block)?;
        self.busiest_window = self.busiest_window.max(in_window);
        self.hooked_ns += at + price * count as f64;
        self.ns += at;
        for (bursts, buffer) in self.bursts.iter_mut().zip(buffers) {
            *bursts = std::mem::take(bursts).and(buffer.bursts());
        }
        Ok(())
    }

    fn value(&self, pt: Option<f64>) -> serde_json::Value {
        let events = self.events as f64;
        let bytes = self.bytes as f64 / events;
        let rate = self.bytes as f64 / self.ns;
        let seconds = |bytes: f64, ns: f64| RING_BYTES as f64 / bytes / (events / ns) / 1e9;
        json!({
            "events": self.events,
            "events_per_us": events / self.ns * 1e3,
            "bytes": bytes,
            "mb_per_s": rate * 1e3,
            "busiest_mb_per_s": self.busiest_window as f64 / WINDOW_NS as f64 * 1e3,
            "share_of_channel_percent": rate / CHANNEL_BYTES_PER_NS * 100.0,
            "sram_bytes": self.bursts.iter().map(|bursts| bursts.quantile(0.999)).collect::<Vec<_>>(),
            "sram_bytes_of_all": self.bursts.iter().map(|bursts| bursts.quantile(1.0)).collect::<Vec<_>>(),
            "bursts": self.bursts[0].count(),
            "reach_s": seconds(bytes, self.ns),
            "hooks_reach_s": seconds(HOOK_BYTES, self.hooked_ns),
            "hooks_ns": (self.hooked_ns - self.ns) / events,
            "nj": device_pj(bytes) / 1e3,
            "hooks_nj": hook_pj() / 1e3,
            "pt_bytes": pt,
            "pt_reach_s": pt.map(|pt| seconds(pt, self.ns)),
            "pt_nj": pt.map(|pt| branch_trace_pj(pt) / 1e3),
        })
    }
}

/// A block is read back as what was written.
fn check(block: &[u8], events: &[(u64, Event)]) -> Result<(), String> {
    let unit = Parameters::DEVICE.unit_ns;
    let mut count = 0;
    for (read, (at, event)) in Decoder::new(Parameters::DEVICE, block).zip(events) {
        let expected = Stamped { at_ns: at / unit * unit, event: *event };
        if read != Ok(expected) {
            return Err(format!("read back as {read:?} instead of {expected:?}"));
        }
        count += 1;
    }
    if count == events.len() { Ok(()) } else { Err("a block isn't read back whole".to_owned()) }
}

/// Where a process has it: modules lie apart.
fn place(trace: &Trace<'_>, location: Location) -> Place {
    let module = location.module_index().and_then(|index| trace.modules().get(index));
    match module {
        Some(module) if trace.frames_of(module).is_some() => Place::Id(location.image_address),
        _ => Place::Code(
            0x7f00_0000_0000 + (u64::from(location.module % 4096) << 28) + location.image_address % (1 << 28),
        ),
    }
}

/// Bytes between a function's stack pointer and its caller's.
fn frame(location: Location) -> u64 {
    let mixed = location.image_address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    32 + mixed % 12 * 16
}
