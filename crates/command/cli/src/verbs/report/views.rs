//! The views of one function, and the tree.

use std::process::ExitCode;

use everycall_analysis::{
    Doings, Edge, Edges, Explanation, Focus, Function, Grouping, KeptCall, Node, Order, Profile, ROOT,
    SlowCall, Slowest, Tree, ValueText, kept_calls,
};
use everycall_export::Calendar;
use everycall_export::without_parameters;
use everycall_io::say;
use everycall_timeline::{Bars, Clock, EndKind};
use everycall_units::{Count, Duration, Several};
use everycall_why::commands::{moment, only, quoted};
use everycall_why::{Part, PartKind, parts};
use serde_json::{Map, Value, json};

use super::columns::with_error;
use super::load::{Load, Run, mixed};
use super::meant::{is_meant, nothing_matches, pattern};
use super::rows::{fitted, limit, room};
use super::{machine, notes};
use crate::arguments::{Clock as Shown, ReportArguments, TableFormat};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{clean, print, print_as};
use crate::traces;

/// Why a file with counts isn't enough.
pub const ONLY_COUNTED: &str = "its calls were counted, not recorded, so nothing is known of single calls and \
    callers; `everycall report FILE` shows the counts, `everycall record` records calls";

/// Default number of slowest calls.
const SLOWEST: usize = 10;

/// Adds all files to `to`, and reports what the files have in common.
fn each_file(
    load: &Load,
    arguments: &ReportArguments,
    mut add: impl FnMut(&everycall_analysis::TraceView<'_>),
) -> Result<Vec<Run>, Failure> {
    let mut runs = Vec::new();
    for path in &arguments.traces {
        let (is_only_counted, run) = load.view(path, |view| {
            add(view);
            traces::has_only_counts(view)
        })?;
        if is_only_counted {
            return Err(Failure::of(path, ONLY_COUNTED));
        }
        runs.push(run);
    }
    mixed(&runs);
    Ok(runs)
}

/// `--callers` and `--callees`.
pub fn edges(
    arguments: &ReportArguments,
    load: &Load,
    text: &str,
    are_callers: bool,
) -> Result<ExitCode, Failure> {
    let pattern = pattern(text)?;
    let meant = |function: &Function| is_meant(&pattern, function);
    let mut edges = Edges::new(Focus::new(&meant)).by_call_site();
    let runs = each_file(load, arguments, |view| edges.add_trace(view, &load.filter))?;
    if !edges.has_any() {
        return Err(nothing_matches(&pattern, edges.functions(), arguments));
    }
    let mut rows: Vec<&Edge> = if are_callers { edges.callers() } else { edges.callees() }.iter().collect();
    rows.retain(|edge| edge.sums.calls > 0 || edge.sums.own_ns > 0);
    let order = arguments.sort.filter(|order| *order != Order::OwnTime).unwrap_or(Order::TotalTime);
    rows.sort_by_key(|edge| {
        let site = edges.call_site(edge);
        (std::cmp::Reverse(order.number(&edge.sums)), edge.function, edge.is_jump, site)
    });
    let all = rows.len();
    rows.truncate(limit(arguments));
    let name = |edge: &Edge| match edge.function.and_then(|number| edges.functions().get(number)) {
        Some(function) => (function.name.clone(), function.identity.name.clone()),
        None => ("(not known, or not shown)".to_owned(), String::new()),
    };
    let heading = if are_callers { "caller" } else { "callee" };
    let shown = match arguments.format {
        TableFormat::Text => {
            let mut lines =
                vec![["calls", "total", "own", "avg", "p50", "p99", "max", heading].map(str::to_owned)];
            lines.extend(rows.iter().map(|edge| {
                let mut how = match edges.call_site(edge) {
                    Some(site) => format!("  at {}", clean(site)),
                    None => String::new(),
                };
                if edge.is_jump {
                    how.push_str("  (tail call)");
                }
                let time = |of: Option<u64>| of.map_or_else(String::new, |ns| Duration { ns }.to_string());
                let (sums, times) = (&edge.sums, &edge.sums.times);
                [
                    Count(sums.calls).to_string(),
                    time(Some(sums.total_ns)),
                    time(Some(sums.own_ns)),
                    time(times.average()),
                    time(times.percentile(5_000)),
                    time(times.percentile(9_900)),
                    time(times.max()),
                    format!("{}{how}", clean(&name(edge).0)),
                ]
            }));
            fitted(&lines, room(arguments))
        }
        TableFormat::Csv | TableFormat::Json => {
            let objects = rows.iter().map(|edge| {
                let mut of = vec![(heading, json!(name(edge).1)), ("tail_call", json!(edge.is_jump))];
                if edge.function.is_none() {
                    of[0].1 = Value::Null;
                }
                if are_callers {
                    of.push(("call_site", json!(edges.call_site(edge))));
                }
                machine::object(of, &edge.sums)
            });
            let objects: Vec<Value> = objects.collect();
            if arguments.format == TableFormat::Csv {
                machine::csv_of(&objects)
            } else {
                let whole = json!({
                    "files": runs.iter().map(Run::json).collect::<Vec<_>>(),
                    "function": text,
                    "of": machine::object(Vec::new(), &edges.sums),
                    "not_in_the_numbers": machine::notes(&edges.notes),
                    "rows": objects,
                });
                format!("{whole:#}\n")
            }
        }
    };
    print_as(arguments.format.escapes(), &shown)?;
    notes::print_notes(&edges.notes, &arguments.traces);
    if rows.len() < all && arguments.format == TableFormat::Text {
        notes::more_rows(all - rows.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// `--tree`.
pub fn tree(arguments: &ReportArguments, load: &Load) -> Result<ExitCode, Failure> {
    // Other tools take a function here.
    if let [function, files @ ..] = arguments.traces.as_slice()
        && !files.is_empty()
        && function.components().count() == 1
        && function.symlink_metadata().is_err()
    {
        let (function, file) = (function.display(), files[0].display());
        let kept = of_kept(arguments);
        return Err(Failure::new(
            exit_code::USAGE,
            format!(
                "there is no file `{function}`; to see what a function calls: everycall report --tree --function '^{function}$' {kept}{file}"
            ),
        ));
    }
    let mut profile = Profile::by(Grouping::Path);
    let runs = load.add_all(&arguments.traces, &mut profile)?;
    let Some(tree) = profile.tree() else { return Ok(ExitCode::SUCCESS) };
    let order = arguments.sort.filter(|order| *order != Order::OwnTime).unwrap_or(Order::TotalTime);
    let (nodes, left_out) = chosen(tree, order, limit(arguments));
    let name = |node: &Node| profile.functions().get(node.function).cloned().unwrap_or_default();
    let shown = match arguments.format {
        TableFormat::Text => {
            let mut lines = vec![["calls", "total", "own", "avg", "function"].map(str::to_owned)];
            lines.extend(nodes.iter().map(|(index, depth)| {
                let node = &tree.nodes()[*index];
                let time = |ns| Duration { ns }.to_string();
                [
                    Count(node.sums.calls).to_string(),
                    time(node.sums.total_ns),
                    time(node.sums.own_ns),
                    node.sums.times.average().map_or_else(String::new, time),
                    format!("{}{}", "  ".repeat((*depth).min(100)), clean(&name(node).name)),
                ]
            }));
            fitted(&lines, room(arguments))
        }
        TableFormat::Csv | TableFormat::Json => {
            let objects = nodes.iter().map(|(index, depth)| {
                let node = &tree.nodes()[*index];
                let parent = (node.parent != ROOT).then_some(node.parent);
                let identity = name(node).identity;
                let of = vec![
                    ("id", json!(index)),
                    ("parent", json!(parent)),
                    ("depth", json!(depth)),
                    ("name", json!(identity.name)),
                    ("module", json!(identity.module)),
                ];
                machine::object(of, &node.sums)
            });
            let objects: Vec<Value> = objects.collect();
            if arguments.format == TableFormat::Csv {
                machine::csv_of(&objects)
            } else {
                let whole = json!({
                    "files": runs.iter().map(Run::json).collect::<Vec<_>>(),
                    "by": "tree",
                    "not_in_the_numbers": machine::notes(&profile.notes),
                    "calls_on_further_paths": tree.further.calls,
                    "rows": objects,
                });
                format!("{whole:#}\n")
            }
        }
    };
    print_as(arguments.format.escapes(), &shown)?;
    notes::print(&profile, &arguments.traces, order);
    if left_out > 0 && arguments.format == TableFormat::Text {
        notes::more_rows(left_out);
    }
    if tree.further.calls > 0 {
        say!(
            "everycall: {} on more paths than there is room for; --function and --depth make the tree smaller",
            Several(tree.further.calls, "call is", "calls are")
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The nodes to show with their depths, parents first, and how many are not shown: the last ones in
/// this order.
fn chosen(tree: &Tree, order: Order, limit: usize) -> (Vec<(usize, usize)>, usize) {
    let nodes = tree.nodes();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    // A node without calls of its own is shown because of its descendants.
    let mut is_used = vec![false; nodes.len()];
    for index in (1..nodes.len()).rev() {
        is_used[index] |= nodes[index].sums.calls > 0 || nodes[index].sums.own_ns > 0;
        if is_used[index] {
            is_used[nodes[index].parent] = true;
            children[nodes[index].parent].push(index);
        }
    }
    let mut by_number: Vec<usize> = (1..nodes.len()).filter(|index| is_used[*index]).collect();
    by_number.sort_by_key(|index| (std::cmp::Reverse(order.number(&nodes[*index].sums)), *index));
    let mut is_shown = vec![false; nodes.len()];
    let mut count = 0;
    for &index in &by_number {
        let mut path = Vec::new();
        let mut at = index;
        while at != ROOT && !is_shown[at] {
            path.push(at);
            at = nodes[at].parent;
        }
        if count + path.len() > limit {
            break;
        }
        count += path.len();
        path.into_iter().for_each(|node| is_shown[node] = true);
    }
    let mut shown = Vec::new();
    let mut waiting = vec![(ROOT, 0)];
    while let Some((index, depth)) = waiting.pop() {
        if index != ROOT {
            shown.push((index, depth - 1));
        }
        let mut below: Vec<usize> =
            children[index].iter().copied().filter(|child| is_shown[*child]).collect();
        below.sort_by_key(|child| (order.number(&nodes[*child].sums), std::cmp::Reverse(*child)));
        waiting.extend(below.into_iter().map(|child| (child, depth + 1)));
    }
    (shown, by_number.len() - count)
}

/// A call's name with its arguments and its result, if they were recorded.
fn with_values(name: &str, call: &SlowCall) -> String {
    let mut text = match &call.arguments {
        Some(arguments) => format!("{}({})", without_parameters(name), clean(&arguments.text)),
        None => name.to_owned(),
    };
    if let Some(result) = &call.result {
        text.push_str(&format!(" {}", clean(&result.text)));
    }
    text
}

/// `--slowest`.
pub fn slowest(arguments: &ReportArguments, load: &Load, text: &str) -> Result<ExitCode, Failure> {
    let pattern = pattern(text)?;
    let meant = |function: &Function| is_meant(&pattern, function);
    let count = match arguments.limit {
        None => SLOWEST,
        Some(0) => usize::MAX,
        Some(limit) => limit,
    };
    let mut slowest = Slowest::new(Focus::new(&meant), count).with_tails(load.follows_tails());
    let mut all_kept = Vec::new();
    let runs = each_file(load, arguments, |view| {
        all_kept.push(kept_calls(view.trace(), view.names()));
        slowest.add_trace(view, &load.filter);
    })?;
    if !slowest.has_any() {
        return Err(nothing_matches(&pattern, slowest.functions(), arguments));
    }
    let calls = slowest.calls();
    let has_bounds = calls.iter().any(|call| call.bars.is_some());
    let bars = |call: &SlowCall| call.bars.unwrap_or(Bars::exact(call.duration_ns()));
    let name = |call: &SlowCall| slowest.functions().get(call.function).cloned().unwrap_or_default();
    let kept_number = |call: &SlowCall| {
        let name = &name(call).name;
        let is_it = |kept: &&KeptCall| {
            (kept.pid, kept.start_ns) == (call.pid, call.start_ns) && kept.function.as_ref() == Some(name)
        };
        all_kept.get(call.trace)?.iter().find(is_it).map(|kept| kept.number)
    };
    let calendar = Calendar::local();
    let command = |call: &SlowCall| command(arguments, call, &name(call).identity.name);
    if arguments.format != TableFormat::Text {
        let objects = calls.iter().map(|call| {
            let clock = runs.get(call.trace).and_then(|run| run.clock.as_ref());
            let realtime_ns = clock.and_then(Clock::wall).map(|wall| wall.realtime_ns(call.start_ns));
            let mut object = Map::new();
            let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
            put("name", json!(name(call).identity.name));
            put("trace", json!(call.trace));
            put("pid", json!(call.pid));
            put("tid", json!(call.tid));
            put("thread", json!(call.thread));
            put("depth", json!(call.depth));
            put("start_ns", json!(call.start_ns));
            put("start_realtime_ns", json!(realtime_ns));
            let more = match arguments.clock {
                Shown::Trace => None,
                Shown::Wall => Some(("start_time", json!(realtime_ns.map(|ns| calendar.stamp(ns))))),
                Shown::Raw => Some(("start_ticks", json!(clock.map(|clock| clock.ticks(call.start_ns))))),
            };
            if let Some((name, value)) = more {
                put(name, value);
            }
            put("dur_ns", json!(call.duration_ns()));
            if has_bounds {
                put("dur_low_ns", json!(bars(call).low));
                put("dur_high_ns", json!(bars(call).high));
            }
            put("own_ns", json!(call.own_ns));
            put("unwound", json!(matches!(call.how, EndKind::Unwound | EndKind::UnwoundLate)));
            put("uncertain", json!(call.is_uncertain));
            put("with_tail", json!(call.has_tail));
            put("at_most", json!(call.is_at_most));
            put("kept_call", json!(kept_number(call)));
            if call.arguments.is_some() || call.result.is_some() {
                let json = |values: &Option<ValueText>| {
                    values.as_ref().and_then(|values| serde_json::from_str(&values.json).ok())
                };
                put("arguments", json(&call.arguments).unwrap_or(Value::Null));
                put("result", json(&call.result).unwrap_or(Value::Null));
            }
            put("command", json!(command(call)));
            Value::Object(object)
        });
        let objects: Vec<Value> = objects.collect();
        return print_as(
            arguments.format.escapes(),
            &if arguments.format == TableFormat::Csv {
                machine::csv_of(&objects)
            } else {
                let files = runs.iter().map(Run::json).collect::<Vec<_>>();
                format!("{:#}\n", json!({ "files": files, "function": text, "rows": objects }))
            },
        )
        .map(|()| ExitCode::SUCCESS);
    }
    let mut out = String::new();
    for (number, call) in calls.iter().enumerate() {
        let doubt = match call.how {
            _ if call.start_cut => ", at least: it began earlier",
            EndKind::UnwoundLate => ", at most: unwound earlier, exact time unknown",
            _ if call.is_uncertain => ", as far as it was recorded",
            EndKind::Unwound => ", unwound",
            _ if call.is_at_most => ", at most: with its tail call of what isn't traced",
            _ if call.has_tail => ", with its tail call",
            EndKind::Jumped => ", until its tail call (--tails: with it)",
            _ => "",
        };
        let kept = kept_number(call).map_or_else(String::new, |number| format!(", kept call {number}"));
        out.push_str(&format!(
            "{:>3}  {}  {}{doubt}{kept}\n     own {}, at {} in thread {} {}\n     {}\n",
            number + 1,
            with_error(bars(call)),
            with_values(&clean(&name(call).name), call),
            Duration { ns: call.own_ns },
            began(arguments.clock, &calendar, runs.get(call.trace), call.start_ns),
            clean(&call.thread),
            call.tid,
            command(call)
        ));
    }
    print(&out)?;
    notes::print_notes(&slowest.notes, &arguments.traces);
    Ok(ExitCode::SUCCESS)
}

/// A time in a trace, as `--clock` requests.
fn began(shown: Shown, calendar: &Calendar, run: Option<&Run>, ns: u64) -> String {
    let clock = run.and_then(|run| run.clock.as_ref());
    match (shown, clock, clock.and_then(Clock::wall)) {
        (Shown::Wall, _, Some(wall)) => calendar.stamp(wall.realtime_ns(ns)),
        (Shown::Raw, Some(clock), _) => format!("{} ticks", clock.ticks(ns)),
        _ => moment(ns),
    }
}

/// The option for the kept call that is reported, as the next command needs it, with a space.
fn of_kept(arguments: &ReportArguments) -> String {
    arguments.filter.kept.map(|number| format!("--kept {number} ")).unwrap_or_default()
}

/// The command that shows a call.
fn command(arguments: &ReportArguments, call: &SlowCall, name: &str) -> String {
    let file = arguments.traces.get(call.trace).map(|path| path.display().to_string()).unwrap_or_default();
    let kept = of_kept(arguments);
    format!(
        "everycall replay --tid {} --since {} --until {} --function {} {kept}{}",
        call.tid,
        moment(call.start_ns),
        moment(call.end_ns),
        quoted(&only(name)),
        quoted(&file)
    )
}

/// `--explain`.
pub fn explain(arguments: &ReportArguments, load: &Load, text: &str) -> Result<ExitCode, Failure> {
    let pattern = pattern(text)?;
    let meant = |function: &Function| is_meant(&pattern, function);
    let mut explanation = Explanation::new(Focus::new(&meant)).with_tails(load.follows_tails());
    let runs = each_file(load, arguments, |view| explanation.first(view, &load.filter))?;
    if !explanation.has_any() {
        return Err(nothing_matches(&pattern, explanation.functions(), arguments));
    }
    for path in &arguments.traces {
        load.quietly(path, |view| explanation.second(view, &load.filter))?;
    }
    let times = &explanation.times;
    let (slow, median) = (&explanation.slow, &explanation.median);
    if times.count() == 0 {
        return Err(Failure::new(
            exit_code::FAILED,
            format!("no call of `{text}` was recorded from its entry to its exit"),
        ));
    }
    if times.count() == 1 && arguments.format == TableFormat::Text {
        let files: Vec<_> = arguments.traces.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::new(
            exit_code::FAILED,
            format!(
                "one call of `{text}` was recorded from its entry to its exit, and there is none to compare it with; \
                what it did: everycall report --callees '{text}' {}{}",
                of_kept(arguments),
                files.join(" ")
            ),
        ));
    }
    let parts = parts(&explanation);
    let doings = |of: &Doings| {
        json!({
            "calls": of.calls,
            "average_ns": of.per_call(of.duration_ns),
            "own_ns_per_call": of.per_call(of.own_ns),
            "suspended_ns_per_call": of.per_call(of.suspended_ns),
            "tails_ns_per_call": of.per_call(of.tails_ns),
            "at_most": of.at_most,
        })
    };
    if arguments.format != TableFormat::Text {
        let objects: Vec<Value> = parts
            .iter()
            .map(|part| {
                json!({
                    "part": part.kind.name(),
                    "name": named(part, &explanation).1,
                    "median_ns_per_call": part.median_ns,
                    "slow_ns_per_call": part.slow_ns,
                    "difference_ns": part.more_ns(),
                    "median_calls_per_call": part.median_calls,
                    "slow_calls_per_call": part.slow_calls,
                })
            })
            .collect();
        return print_as(
            arguments.format.escapes(),
            &if arguments.format == TableFormat::Csv {
                machine::csv_of(&objects)
            } else {
                let whole = json!({
                    "files": runs.iter().map(Run::json).collect::<Vec<_>>(),
                    "function": text,
                    "timed_calls": times.count(),
                    "slow_from_ns": explanation.slow_from_ns(),
                    "slow": doings(slow),
                    "median": doings(median),
                    "rows": objects,
                });
                format!("{whole:#}\n")
            },
        )
        .map(|()| ExitCode::SUCCESS);
    }
    let time = |ns: f64| {
        let sign = if ns < 0.0 { "-" } else { "" };
        format!("{sign}{}", Duration { ns: ns.abs().round() as u64 })
    };
    let slow_ns = slow.per_call(slow.duration_ns);
    let median_ns = median.per_call(median.duration_ns);
    let mut out = format!(
        "{}: {} whose duration is known; {} slow ({} or more, {} on average), {} around the median ({} on average)\n\n",
        clean(text),
        Several(times.count(), "call", "calls"),
        Count(slow.calls),
        Duration { ns: explanation.slow_from_ns() },
        time(slow_ns),
        Count(median.calls),
        time(median_ns),
    );
    let mut lines = vec![["median", "slow", "more", "of all", "calls", "per call"].map(str::to_owned)];
    let all = (slow_ns - median_ns).abs().max(1.0);
    let limit = arguments.limit.filter(|limit| *limit > 0).unwrap_or(20);
    lines.extend(parts.iter().take(limit).map(|part| {
        let calls = if matches!(part.kind, PartKind::Call(_)) {
            // A fraction says something of small numbers only.
            let digits = usize::from(part.median_calls.max(part.slow_calls) < 1000.0);
            format!("{:.digits$} -> {:.digits$}", part.median_calls, part.slow_calls)
        } else {
            String::new()
        };
        [
            time(part.median_ns),
            time(part.slow_ns),
            time(part.more_ns()),
            format!("{:.0} %", 100.0 * part.more_ns() / all),
            calls,
            clean(&named(part, &explanation).0),
        ]
    }));
    out.push_str(&fitted(&lines, room(arguments)));
    let files: Vec<_> = arguments.traces.iter().map(|path| path.display().to_string()).collect();
    let files = format!("{}{}", of_kept(arguments), files.join(" "));
    out.push_str(&format!("\nnext: everycall report --slowest '{}' {files}\n", clean(text)));
    let longest = parts.first().filter(|part| part.more_ns() > 0.0);
    if let Some(name) = longest.and_then(|part| named(part, &explanation).1) {
        out.push_str(&format!("      everycall report --explain '{}' {files}\n", clean(&name)));
    }
    print(&out)?;
    notes::print_notes(&explanation.notes, &arguments.traces);
    Ok(ExitCode::SUCCESS)
}

/// How a part of calls is named: for people, and a function's complete name.
fn named(part: &Part, explanation: &Explanation<'_>) -> (String, Option<String>) {
    match part.kind {
        PartKind::Own => ("own time, with what isn't traced and waiting".to_owned(), None),
        PartKind::Suspended => ("suspended: others ran instead of the fiber".to_owned(), None),
        PartKind::Tail => ("at most: what their tail calls led to, which isn't traced".to_owned(), None),
        PartKind::Call(number) => {
            let function = explanation.functions().get(number).cloned().unwrap_or_default();
            (function.name, Some(function.identity.name))
        }
    }
}
