//! A recording as text, for comparisons.

use std::fmt::Write;

use everycall_timeline::{MarkKind, TimelineEvent, Trace};

/// Everything that a trace says, line by line.
pub fn text(trace: &Trace<'_>) -> String {
    let mut out = String::new();
    let meta = trace.meta();
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let arguments: Vec<String> = meta.arguments.iter().map(|word| lossy(word)).collect();
    let _ = writeln!(out, "command {arguments:?} in {}", lossy(&meta.working_folder));
    let _ = writeln!(
        out,
        "host {} {} {} {:?}",
        lossy(&meta.host),
        lossy(&meta.kernel),
        lossy(&meta.cpu),
        meta.cpu_count
    );
    let _ =
        writeln!(out, "clock {:?} origin {:?}", trace.clock_quality(), trace.clock().origin_realtime_ns());
    for module in trace.modules() {
        let (start, end, code) = (module.start, module.end, module.code_start);
        let _ = writeln!(
            out,
            "module {} {start:x}-{end:x} code {code:x} {:?}",
            module.path_lossy(),
            module.unloaded_ticks
        );
    }
    for warning in trace.warnings() {
        let _ = writeln!(out, "warning {warning}");
    }
    let _ = writeln!(out, "end {:?}", trace.process_end());
    for thread in trace.threads() {
        let (tid, name, reach) = (thread.tid, &thread.name, thread.reach);
        let _ = writeln!(
            out,
            "thread {tid} {name} reach {reach:?} events {} losses {} overwritten {} open {}",
            thread.events, thread.losses, thread.segments_overwritten, thread.open_calls
        );
        let mut events = trace.thread_events(thread.index);
        for event in events.by_ref() {
            let _ = match event {
                TimelineEvent::Begin(e) => {
                    let (module, address) = (e.location.module as i32, e.location.image_address);
                    let indent = 2 * e.depth as usize + 2;
                    let cut = if e.cut { " cut" } else { "" };
                    let unsure = if e.caller_unsure { " unsure" } else { "" };
                    writeln!(out, "{:indent$}{} {{ {module}:{address:x}{cut}{unsure}", "", e.start_ns)
                }
                TimelineEvent::End(e) => {
                    let indent = 2 * e.depth as usize + 2;
                    writeln!(out, "{:indent$}{} }} {:?}", "", e.end_ns, e.how)
                }
                TimelineEvent::Loss(e) => writeln!(out, "{e:?}"),
                TimelineEvent::Instant(e) => writeln!(out, "{e:?}"),
                TimelineEvent::Untraced(e) => writeln!(out, "{e:?}"),
                TimelineEvent::Unstamped(e) => writeln!(out, "{e:?}"),
                TimelineEvent::Returned(e) => writeln!(out, "{e:?}"),
                TimelineEvent::Gap(e) => {
                    // The first version's text has no threads in it.
                    let by = e.resumed_by.map(|thread| format!(" resumed by {thread}")).unwrap_or_default();
                    let (at_ns, until_ns, why) = (e.at_ns, e.until_ns, e.why);
                    writeln!(out, "Gap {{ at_ns: {at_ns}, until_ns: {until_ns}, why: {why:?} }}{by}")
                }
                TimelineEvent::Mark(e) => {
                    // Log lines are numbered by themselves.
                    let is_log = matches!(e.kind, MarkKind::Log | MarkKind::Output(_));
                    let name = if is_log { "" } else { trace.mark_names().text(e.name) };
                    writeln!(out, "{} {:?} {name:?} {:?}", e.at_ns, e.kind, e.value)
                }
            };
        }
        // The first version's text has no counts of spans, and no kept text has counts of thunks'
        // exits.
        let stats = format!("{:?}", events.stats()).replace(", thunk_exits: 0", "");
        let (calls, spans) = stats.split_once(", orphan_span_ends").unwrap_or((&stats, ""));
        let _ = writeln!(out, "{calls} }}");
        if events.stats().orphan_span_ends + events.stats().spans_too_many > 0 {
            let _ = writeln!(out, "orphan_span_ends{spans}");
        }
    }
    out
}

/// The processes of a trace, line by line.
#[allow(dead_code, reason = "not every test file has several processes")]
pub fn processes(trace: &Trace<'_>) -> String {
    let mut out = String::new();
    for process in trace.processes() {
        // The kept texts are older than that.
        let stamps = format!(", stamps: {:?}", process.stamps);
        let _ = writeln!(out, "{}", format!("{process:?}").replace(&stamps, ""));
    }
    for thread in trace.threads() {
        let _ = writeln!(out, "thread {} {} of process {}", thread.pid, thread.tid, thread.process);
    }
    out
}

/// Thread states, and the bounds of what is unknown.
pub fn states(trace: &Trace<'_>) -> String {
    let mut out = String::new();
    let Some((sched, states)) = trace.sched().zip(trace.states()) else { return out };
    let text = String::from_utf8_lossy(&sched.text);
    let lost = states.wake_ups_lost();
    let _ = writeln!(out, "from {:?}, {text}, {lost} wake-ups lost", sched.source);
    for thread in trace.threads() {
        let _ = writeln!(out, "thread {}", thread.tid);
        for rename in &thread.renames {
            let _ = writeln!(out, "  at {} {:?} became {:?}", rename.at, rename.before, rename.name);
        }
        let Some(states) = states.thread(thread.pid, thread.tid) else { continue };
        for span in states.spans() {
            let _ = writeln!(
                out,
                "  {} {} {:?} {:?} {:?}",
                span.start, span.end, span.state, span.cpu, span.woken_by
            );
            if let Some(call) = span.blocked_in {
                let _ = writeln!(out, "    in system call {call}");
            }
        }
        let _ = writeln!(out, "  {:?}", states.times(1_100, 12_900));
    }
    out
}
