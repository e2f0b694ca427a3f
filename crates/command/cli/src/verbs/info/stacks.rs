//! Sampled stacks: how many, how they were found, and what is missing.

use everycall_format::stacks::sample_flags;
use everycall_reader::SampledStacks;
use everycall_units::{Count, Several, Size};
use serde_json::{Value, json};

use super::facts::Report;
use crate::output::clean;

/// Samples with a flag.
fn with(stacks: &SampledStacks, flag: u32) -> u64 {
    stacks.samples.iter().filter(|sample| sample.flags & flag != 0).count() as u64
}

/// How many samples there are, how their stacks were found, and what is missing.
pub fn text(stacks: &SampledStacks) -> String {
    let text = clean(&String::from_utf8_lossy(&stacks.text));
    if stacks.rate == 0 {
        return format!("not recorded: {text}");
    }
    let count = Several(stacks.samples.len() as u64, "sampled stack", "sampled stacks");
    let mut all = format!("{count}, {} in each second of a running thread", Count(stacks.rate.into()));
    let pointers = with(stacks, sample_flags::FRAME_POINTERS);
    if pointers > 0 {
        all += &format!(
            "; {} found by frame pointers in part, as code has no unwind information: callers may be missing",
            Count(pointers)
        );
    }
    let cut = with(stacks, sample_flags::CUT);
    if cut > 0 {
        let copied = Size(stacks.stack_bytes.into());
        all += &format!("; {} without their outer callers, as they are deeper than {copied}", Count(cut));
    }
    let stopped = with(stacks, sample_flags::STOPPED);
    if stopped > 0 {
        all += &format!("; {} without their outer callers, as none could be found", Count(stopped));
    }
    if stacks.lost > 0 {
        all += &format!(
            "; {} more lost, as the recorder had no time to read them",
            Several(stacks.lost, "sample", "samples")
        );
    }
    if stacks.overwritten > 0 {
        all += &format!("; {} older ones overwritten (--stream keeps all)", Count(stacks.overwritten));
    }
    if stacks.throttled > 0 {
        let times = Several(stacks.throttled, "time", "times");
        all += &format!("; the kernel took fewer {times}, as they cost too much: a lower rate helps");
    }
    if !text.is_empty() {
        all += &format!("; {text}");
    }
    all
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let Some(stacks) = report.trace.stacks() else { return Value::Null };
    json!({
        "rate": stacks.rate,
        "samples": stacks.samples.len(),
        "kernel": stacks.has_kernel,
        "by_frame_pointers": with(stacks, sample_flags::FRAME_POINTERS),
        "cut": with(stacks, sample_flags::CUT),
        "stopped": with(stacks, sample_flags::STOPPED),
        "lost": stacks.lost,
        "overwritten": stacks.overwritten,
        "throttled": stacks.throttled,
        "text": String::from_utf8_lossy(&stacks.text),
    })
}
