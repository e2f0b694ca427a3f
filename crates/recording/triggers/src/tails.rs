//! Calls that ended in a tail call and whose target was still running when the process ended: no
//! event shows how long it took.

use everycall_format::arena::OpenCall;
use everycall_format::event::EXIT;
use everycall_format::trigger::{TriggeredCall, call_flags, is_jump, jumped, site_flags};
use everycall_recorder::TriggeredProcess;

/// Largest number of entries of open-call stacks that are searched.
const ENTRIES_MAX: usize = 1 << 22;

/// Such calls in all threads of a process that ended at `over`, in ticks: those that exceed a
/// threshold if the time until then counts.
pub(crate) fn open_at_end(process: &TriggeredProcess, over: u64) -> Vec<TriggeredCall> {
    let sites: Vec<_> =
        process.triggers.all_sites().filter(|site| site.flags & site_flags::NO_TAIL == 0).collect();
    if sites.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut room = ENTRIES_MAX;
    for slot in 0..process.arena.thread_count() {
        let thread = process.arena.thread(slot);
        let calls = process.arena.open_calls(slot);
        // In an overwritten arena, all threads may name the same stack.
        let Some(rest) = room.checked_sub(calls.len()) else { break };
        room = rest;
        let end = if thread.end_ticks != 0 { thread.end_ticks.min(over) } else { over };
        for (call, jump) in jumped_last(&calls) {
            let code = call.word as u32 & !EXIT;
            let (start, jump_ticks) = (ticks(call), ticks(jump));
            let first = sites.partition_point(|site| site.end <= code);
            for site in sites[first..].iter().take_while(|site| site.first <= code) {
                let took = end.saturating_sub(start);
                if took <= site.threshold || jump_ticks.saturating_sub(start) > site.threshold {
                    continue;
                }
                found.push(TriggeredCall {
                    rule: site.rule,
                    code,
                    slot,
                    generation: thread.generation,
                    tid: thread.tid,
                    flags: call_flags::TAIL | call_flags::AT_MOST | call_flags::NO_NEXT | call_flags::PERHAPS,
                    start_ticks: start,
                    end_ticks: end,
                    threshold: site.threshold,
                    jump_ticks,
                    // A call without a time stamp began in the thread's newest segment.
                    events_before: call.stamp.into(),
                    events_after: if call.stamp == 0 { 0 } else { u64::MAX },
                    ..TriggeredCall::default()
                });
            }
        }
    }
    found
}

fn ticks(entry: &OpenCall) -> u64 {
    entry.ticks()
}

/// The innermost calls that ended in a chain of tail calls, each with its jump, if no call inside
/// their targets is open.
fn jumped_last(calls: &[OpenCall]) -> Vec<(&OpenCall, &OpenCall)> {
    let mut rest = calls;
    let mut found = Vec::new();
    while let [before @ .., call, jump] = rest
        && is_jump(jump.word)
        && jump.stamp & jumped::JUDGED == 0
        && (found.is_empty() || jump.stamp & jumped::PASSED != 0)
    {
        found.push((call, jump));
        rest = before;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::event::call_word;
    use everycall_format::trigger::jump_word;

    fn call(ticks: u64, code: u32) -> OpenCall {
        OpenCall { word: call_word(ticks, code), ..OpenCall::default() }
    }

    fn jump(ticks: u64, stamp: u32) -> OpenCall {
        OpenCall { word: jump_word(ticks), stamp, ..OpenCall::default() }
    }

    #[test]
    fn only_what_is_innermost_may_still_go_on() {
        let count = |calls: &[OpenCall]| jumped_last(calls).len();
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[call(1, 0x1000)]), 0);
        assert_eq!(count(&[call(1, 0x1000), jump(2, 0)]), 1);
        assert_eq!(count(&[call(1, 0x1000), jump(2, 0), call(3, 0x2000)]), 0, "a call is open");
        let passed = [call(1, 0x1000), jump(2, jumped::PASSED), call(3, 0x2000), jump(4, 0)];
        assert_eq!(count(&passed), 2);
        let around = [call(1, 0x1000), jump(2, 0), call(3, 0x2000), jump(4, 0)];
        assert_eq!(count(&around), 1, "the outer one goes on whatever becomes of the inner one");
    }
}
