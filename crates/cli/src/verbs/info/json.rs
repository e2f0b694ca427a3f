//! The contents of a trace as one JSON object.

use everycall_analysis::{
    EventPrice, FunctionRow, Sketch, is_of_budget, lost_events, marks_by_count, runtime_counts,
};
use everycall_export::{end_ns, process_name};
use everycall_format::arena::child_kind;
use everycall_format::ect::LOG_FILE_TID;
use everycall_format::ect::end;
use everycall_reader::{Ending, FunctionSet, Origin, SchedSource, Stamps};
use everycall_timeline::{ClockQuality, HookPrices, NamedMarks, ProcessCalibration, States};
use serde_json::{Value, json};

use super::facts::{Report, hooked, kept_function};
use super::page::{MARKS_LISTED, clocks};
use everycall_analysis::counters;

/// The object, with a newline at the end.
pub fn json(report: &Report<'_>) -> String {
    let trace = report.trace;
    let meta = trace.meta();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = json!({
        "file": report.path.to_string_lossy(),
        "command": meta.arguments.iter().map(|word| text(word)).collect::<Vec<_>>(),
        "working_folder": text(&meta.working_folder),
        "host": text(&meta.host),
        "kernel": text(&meta.kernel),
        "cpu": text(&meta.cpu),
        "cpu_count": meta.cpu_count,
        "everycall_version": text(&meta.tool_version),
        "imported": imported(report),
        "started_realtime_ns": trace.clock().origin_realtime_ns(),
        "duration_ns": end_ns(trace),
        "complete": meta.imported_from.is_empty().then(|| counters::doubts(trace).is_empty()),
        "ended": ended(report),
        "clock": clock(report),
        "hooks": hooks(report),
        "calls": report.profile.calls,
        "all_calls": Some(report.all_calls()).filter(|all| *all > 0),
        "functions": report.profile.function_count(),
        "unwound_calls": report.profile.unwound,
        "orphan_exits": report.profile.notes.orphan_exits,
        "calls_too_deep": report.profile.notes.too_deep,
        "marks": marks(report),
        "session": session(report),
        "processes": processes(report),
        "threads": threads(report),
        "modules": modules(report),
        "has_sources": report.file.has_sources(),
        "children": children(report),
        "triggers": triggers(report),
        "kept_calls": kept_calls(report),
        "dropped_calls": dropped_calls(report),
        "states": states(report),
        "counters": sampled(report),
        "budget": budget(report),
        "runtime_counts": counters(report),
        "most_calls": report.by_calls.iter().map(function).collect::<Vec<_>>(),
        "most_own_time": report.by_own_time.iter().map(function).collect::<Vec<_>>(),
        "warnings": report.warnings,
    });
    let mut value = value;
    if let Some(times) = times(report) {
        value["times"] = times;
    }
    format!("{value:#}\n")
}

/// Which events have times of their own, if not all have, or not all should.
fn times(report: &Report<'_>) -> Option<Value> {
    let clocks = clocks(report.trace);
    if clocks.iter().all(|(stamps, _)| *stamps == Stamps::default()) {
        return None;
    }
    let clocks = clocks.iter().map(|(stamps, processes)| {
        json!({ "clock": stamps.clock.name(), "wanted": stamps.wanted.name(), "processes": processes })
    });
    let intervals = |sketch: &Sketch| {
        json!({
            "events": sketch.count(),
            "median_ns": sketch.percentile(5_000),
            "p99_ns": sketch.percentile(9_900),
            "widest_ns": sketch.max(),
        })
    };
    let known = report.intervals.as_ref().map(|found| {
        let widest = found.widest.iter().map(|function| {
            let mut object = intervals(&function.intervals);
            object["name"] = function.name.clone().into();
            object
        });
        json!({
            "events": found.events,
            "without_time": intervals(&found.without),
            "widest": widest.collect::<Vec<_>>(),
        })
    });
    Some(json!({ "processes": clocks.collect::<Vec<_>>(), "events": known }))
}

/// The source of an imported trace; null if everycall recorded it.
fn imported(report: &Report<'_>) -> Value {
    let meta = report.trace.meta();
    if meta.imported_from.is_empty() {
        return Value::Null;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    json!({
        "from": text(&meta.imported_from),
        "clock": text(&meta.imported_clock),
        "notes": meta.import_notes.iter().map(|note| text(note)).collect::<Vec<_>>(),
    })
}

fn ended(report: &Report<'_>) -> Value {
    match report.trace.process_end() {
        Some(process_end) if process_end.how == end::EXITED => json!({ "exit_status": process_end.code }),
        Some(process_end) if process_end.how == end::SIGNALED => {
            json!({ "signal": process_end.code, "core_dumped": process_end.core_dumped })
        }
        _ => Value::Null,
    }
}

/// Cost of an event, by process, for processes that have measured it.
fn hooks(report: &Report<'_>) -> Value {
    let trace = report.trace;
    let price = |prices: &HookPrices| {
        let price = EventPrice::of(trace, prices);
        let range = |[low, value, high]: [f64; 3]| json!({ "low": low, "value": value, "high": high });
        json!({ "inside_ns": range(price.inside_ns), "outside_ns": range(price.outside_ns) })
    };
    let process = |known: &ProcessCalibration| {
        let prices = |prices: &HookPrices| if known.is_measured { price(prices) } else { Value::Null };
        json!({
            "process": known.process,
            "sites": prices(&known.sites),
            "bodies": prices(&known.bodies),
            "frames": prices(&known.frames),
            "cpu_ns": known.cpu_ns,
        })
    };
    trace.calibrations().iter().map(process).collect()
}

fn session(report: &Report<'_>) -> Value {
    let Some(session) = report.trace.session() else { return Value::Null };
    let clock = report.trace.clock();
    let texts = |set: &FunctionSet| {
        set.rules.iter().map(|rule| String::from_utf8_lossy(rule).into_owned()).collect::<Vec<_>>()
    };
    json!({
        "name": String::from_utf8_lossy(&session.name),
        "process": session.process,
        "owner_pid": session.owner,
        "start_ns": clock.ns(session.start_ticks),
        "end_ns": clock.ns(session.end_ticks),
        "functions": texts(&session.functions),
        "within": session.within.as_ref().map(texts),
        "crossing": session.crossing,
        "some_threads": session.some_threads,
    })
}

fn clock(report: &Report<'_>) -> Value {
    let meta = report.trace.meta();
    let mut clock = match report.trace.clock_quality() {
        ClockQuality::Measured { error_ns, ticks_per_second, readings, readings_refused } => json!({
            "ticks_per_second": ticks_per_second,
            "error_ns": error_ns,
            "readings": readings,
            "readings_refused": readings_refused,
        }),
        ClockQuality::AssumedRate { readings_refused } => json!({
            "ticks_per_second": Value::Null,
            "readings_refused": readings_refused,
        }),
    };
    clock["origin_ticks"] = json!(report.trace.clock().origin_ticks());
    if let Some(wall) = report.trace.clock().wall() {
        clock["realtime"] = json!({
            "error_ns": wall.error_ns(),
            "drift_ns": wall.drift_ns(),
            "set_by_ns": wall.set_by_ns(),
        });
    }
    clock["invariant_counter"] = json!(meta.invariant_counter);
    clock["source"] = json!(String::from_utf8_lossy(&meta.clock_source));
    clock
}

fn processes(report: &Report<'_>) -> Value {
    let clock = report.trace.clock();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let processes = report.trace.processes().iter().enumerate().map(|(index, process)| {
        json!({
            "index": index,
            "pid": process.pid,
            "parent_pid": process.parent_pid,
            "parent": process.parent,
            "origin": match process.origin {
                Origin::Start => "start",
                Origin::Fork => "fork",
                Origin::Exec => "exec",
                Origin::Other(_) => "unknown",
            },
            "name": process_name(report.trace, process),
            "command": process.command.iter().map(|word| text(word)).collect::<Vec<_>>(),
            "start_ns": process.start_ticks.map(|ticks| clock.ns(ticks)),
            "end_ns": process.end_ticks.map(|ticks| clock.ns(ticks)),
            "ending": match process.ending {
                Ending::Ended => "ended",
                Ending::Exec => "exec",
                Ending::Running => "running",
                Ending::Other(_) => "unknown",
            },
        })
    });
    processes.collect()
}

fn threads(report: &Report<'_>) -> Value {
    let ring_size =
        |snapshot: usize| report.trace.snapshots().get(snapshot).map(|snapshot| snapshot.ring_size);
    let thunk_exits = &report.profile.notes.thunk_exits;
    let threads = report.trace.threads().iter().zip(thunk_exits);
    let threads = threads.filter(|(thread, _)| !thread.is_sampled && thread.tid < LOG_FILE_TID).map(
        |(thread, thunk_exits)| {
            json!({
                "process": thread.process,
                "pid": thread.pid,
                "tid": thread.id(),
                "fiber": thread.fiber.filter(|_| thread.task().is_none()),
                "task": thread.task(),
                "last_tid": thread.tid,
                "name": thread.name,
                "renames": thread.renames.iter().map(|rename| json!({
                    "at_ns": rename.at,
                    "before": rename.before,
                    "name": rename.name,
                })).collect::<Vec<_>>(),
                "events": thread.events,
                "first_ns": thread.reach.map(|(first, _)| first),
                "last_ns": thread.reach.map(|(_, last)| last),
                "lost_events": lost_events(thread),
                "dropped_busy": thread.lost_busy,
                "dropped_short": thread.dropped_within,
                "gaps": thread.gaps,
                "gaps_ns": thread.gaps_ns,
                "suspended": thread.suspended,
                "suspended_ns": thread.suspended_ns,
                "beginning_overwritten": thread.is_cut,
                "segments_overwritten": thread.segments_overwritten,
                "segments_lost": thread.segments_lost,
                "segments_lost_events": thread.missing,
                "open_calls": thread.open_calls,
                "unwound": thread.unwound,
                // The runtime counts exits of thunks as orphan exits.
                "orphan_exits": thread.orphan_exits.saturating_sub(*thunk_exits),
                "deep_events": thread.deep,
                "ring_size": ring_size(thread.key.snapshot),
            })
        },
    );
    threads.collect()
}

fn marks(report: &Report<'_>) -> Value {
    let mut names = marks_by_count(report.trace);
    names.retain(|named| report.budget.is_none() || !is_of_budget(&named.name));
    names.retain(|named| !report.is_sampled(&named.name));
    let sum =
        |count: fn(&NamedMarks) -> u64| names.iter().map(|named| count(named)).fold(0, u64::saturating_add);
    let listed = names.iter().take(MARKS_LISTED).map(|named| {
        json!({
            "name": named.name,
            "labels": named.labels,
            "instants": named.instants,
            "spans": named.spans,
            "counters": named.counters,
        })
    });
    json!({
        "names": names.len(),
        "labels": sum(|named| named.labels),
        "instants": sum(|named| named.instants),
        "spans": sum(|named| named.spans),
        "counters": sum(|named| named.counters),
        "log_lines": report.trace.log_lines().count(),
        "most": listed.collect::<Vec<_>>(),
    })
}

fn modules(report: &Report<'_>) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    // Of each file once: several processes may load it.
    let files = report.trace.modules().iter().enumerate().map(|(index, module)| {
        let own = (module.same_file == index).then_some(module)?;
        let file = hooked(report.trace, own)?;
        let left_out = file.left_out.iter().map(|(why, count)| (why.name().to_owned(), json!(count)));
        Some(json!({
            "functions": file.functions,
            "hooked": file.hooked,
            "not_chosen": file.not_chosen,
            "left_out": left_out.collect::<serde_json::Map<_, _>>(),
        }))
    });
    let hooks: Vec<Option<Value>> = files.collect();
    let modules = report.trace.modules().iter().zip(0..).map(|(module, index)| {
        let frames = report.trace.frames_of(module);
        json!({
            "process": module.process,
            "frames": frames.map(|frames| json!({
                "names": frames.names.len().saturating_sub(frames.codes.len()),
                "names_lost": frames.lost,
                "code_names": frames.codes.len(),
                "code_names_lost": frames.codes_lost,
            })),
            "path": module.path_lossy(),
            "build_id": hex(&module.build_id),
            "executable": module.is_executable,
            "base": module.base,
            "start": module.start,
            "end": module.end,
            "sites": module.sites,
            "sites_unpatched": module.sites_unpatched,
            "hooks": hooks.get(module.same_file).cloned().flatten(),
            "unloaded": module.unloaded_ticks.is_some(),
            "has_symbols": report.file.has_symbols(index),
        })
    });
    modules.collect()
}

fn children(report: &Report<'_>) -> Value {
    let children = report.trace.children().iter().map(|child| {
        json!({
            "pid": child.pid,
            "parent": child.parent,
            "by": if child.kind == child_kind::EXEC { "exec" } else { "fork" },
            "name": String::from_utf8_lossy(&child.name).trim_end_matches('\0'),
        })
    });
    children.collect()
}

fn triggers(report: &Report<'_>) -> Value {
    let triggers = report.trace.triggers().iter().map(|trigger| {
        json!({
            "trigger": String::from_utf8_lossy(&trigger.text),
            "functions": trigger.functions,
            "functions_named_late": trigger.late,
            "functions_not_armed": trigger.not_armed,
            "calls": trigger.fired,
            "calls_perhaps_shorter": trigger.perhaps,
            "kept": trigger.kept,
            "missed": trigger.missed,
        })
    });
    triggers.collect()
}

fn kept_calls(report: &Report<'_>) -> Value {
    let kept = report.kept.iter().map(|kept| {
        let mut object = json!({
            "number": kept.number,
            "trigger": kept.trigger,
            "pid": kept.pid,
            "tid": kept.tid,
            "thread": kept.thread,
            "function": kept_function(kept),
            "start_ns": kept.start_ns,
            "start_realtime_ns": report.trace.clock().wall().map(|wall| wall.realtime_ns(kept.start_ns)),
            "took_ns": kept.took_ns,
            "threshold_ns": kept.threshold_ns,
            "entered": kept.is_entry,
            "threw": kept.is_throw,
            "unwound": kept.is_unwound,
            "tail": kept.tail.as_ref().map(|tail| json!({
                "at_most": tail.is_at_most,
                "goes_on": tail.goes_on,
                "perhaps_shorter": tail.is_perhaps_short,
                "behind_ns": tail.behind_ns,
                "target": tail.target,
                "ended": tail.has_next && !tail.goes_on,
            })),
            "missing_events": kept.missing,
        });
        if let Some(least) = kept.at_least_ns {
            object["took_at_least_ns"] = least.into();
        }
        object
    });
    kept.collect()
}

fn states(report: &Report<'_>) -> Value {
    let Some(sched) = report.trace.sched() else { return Value::Null };
    let source = match sched.source {
        SchedSource::None => Value::Null,
        SchedSource::Perf => "perf".into(),
        SchedSource::Tracefs => "tracefs".into(),
        SchedSource::PerfAndTracefs => "perf+tracefs".into(),
        SchedSource::Schedstat => "schedstat".into(),
        SchedSource::Other(number) => number.into(),
    };
    json!({
        "source": source,
        "text": String::from_utf8_lossy(&sched.text),
        "switches": report.trace.states().map_or(0, States::switches),
        "wake_ups_lost": report.trace.states().map_or(0, States::wake_ups_lost),
        "events_lost": report.trace.states().map_or(0, States::lost),
        "switches_missing": report.trace.states().map_or(0, States::missing),
        "events_overwritten": sched.overwritten,
        "unknown_at_end_ns": report.trace.states().and_then(States::until).map(|until| {
            end_ns(report.trace).saturating_sub(until)
        }),
    })
}

fn sampled(report: &Report<'_>) -> Value {
    let of_process = report.sampled.iter().map(|sampled| {
        let counters = sampled.counters.iter().map(|counter| {
            json!({
                "name": counter.name,
                "last": counter.last,
                "highest": counter.highest,
                "changes": counter.samples,
            })
        });
        json!({
            "process": sampled.process,
            "pid": sampled.pid,
            "first_ns": sampled.reach.0,
            "last_ns": sampled.reach.1,
            "counters": counters.collect::<Vec<_>>(),
        })
    });
    of_process.collect()
}

fn budget(report: &Report<'_>) -> Value {
    let Some(budget) = &report.budget else { return Value::Null };
    let functions = budget.functions.iter().map(|function| {
        json!({
            "process": function.process,
            "name": function.name,
            "off_ns": function.off.iter().map(|(from, to)| json!([from, to])).collect::<Vec<_>>(),
            "off_at_end": function.is_off,
            "calls_per_cpu_second": function.calls_per_second,
            "cannot_go_off": function.is_stuck,
        })
    });
    json!({
        "millionths": budget.millionths,
        "event_ps": budget.event_ps,
        "highest_cost_millionths": budget.highest,
        "out_of_reach_millionths": budget.out_of_reach,
        "functions": functions.collect::<Vec<_>>(),
    })
}

fn dropped_calls(report: &Report<'_>) -> Value {
    let Some(dropped) = &report.dropped else { return Value::Null };
    let functions =
        dropped.functions.iter().map(|function| json!({ "name": function.name, "calls": function.calls }));
    json!({
        "min_duration_ns": dropped.threshold_ns,
        "highest_min_duration_ns": dropped.highest_ns,
        "calls": dropped.calls,
        "calls_in_covered_time": dropped.within,
        "no_room_for_functions": dropped.is_full,
        "functions": functions.collect::<Vec<_>>(),
    })
}

fn counters(report: &Report<'_>) -> Value {
    let counters = runtime_counts(report.trace);
    let counted = counters.iter().enumerate().filter(|(_, count)| **count > 0);
    let entry = |(number, count): (usize, &u64)| json!({ "number": number, "count": count, "meaning": counters::meaning(number) });
    counted.map(entry).collect()
}

fn function(row: &FunctionRow) -> Value {
    json!({
        "name": row.name,
        "symbols": row.symbols,
        "module": row.module,
        "file": row.file,
        "line": row.line,
        "calls": row.calls,
        "own_ns": row.own_ns,
        "total_ns": row.total_ns,
    })
}
