//! `--diff` and `--fail-if`.

use std::path::PathBuf;
use std::process::ExitCode;

use everycall_analysis::diff::{Change, Condition, Decision, Diff, DiffRow, Doubt, Limit, Verdict};
use everycall_analysis::{Key, Order, Profile, Sums};
use everycall_io::say;
use everycall_timeline::Bars;
use everycall_units::{Count, Duration, Several, Size};
use serde_json::{Value, json};

use super::columns::with_error;
use super::load::{Load, Run, mixed};
use super::meant::{is_meant, nothing_matches, pattern};
use super::part::Part;
use super::rows::{fitted, limit, room};
use super::{machine, notes};
use crate::arguments::{ReportArguments, TableFormat};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Room, clean, print_as};

/// The conditions of `--fail-if`.
pub fn conditions(arguments: &ReportArguments) -> Result<Vec<Condition>, Failure> {
    let read = |text: &String| Condition::parse(text).map_err(|error| Failure::new(exit_code::USAGE, error));
    let conditions: Vec<Condition> = arguments.diff.fail_if.iter().map(read).collect::<Result<_, _>>()?;
    if arguments.diff.diff.is_empty()
        && let Some(condition) = conditions.iter().find(|condition| condition.is_about_change())
    {
        let sentence = format!("`{}` is about a change; add --diff OLD NEW", condition.text);
        return Err(Failure::new(exit_code::USAGE, sentence));
    }
    Ok(conditions)
}

/// The old files and the new ones.
fn sides(arguments: &ReportArguments) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Failure> {
    let (diff, against) = (&arguments.diff.diff, &arguments.diff.against);
    match (diff.as_slice(), against.is_empty()) {
        ([old, new], true) => Ok((vec![old.clone()], vec![new.clone()])),
        (_, false) => Ok((diff.clone(), against.clone())),
        (_, true) => Err(Failure::new(
            exit_code::USAGE,
            "--diff needs an old and a new file, or old files and --against with new ones: \
             everycall report --diff old-*.ect --against new-*.ect",
        )),
    }
}

/// Compares the runs.
pub fn run(arguments: &ReportArguments, load: &Load) -> Result<ExitCode, Failure> {
    let conditions = conditions(arguments)?;
    let (old, new) = sides(arguments)?;
    let profiles = |words: &[PathBuf]| -> Result<(Vec<Profile>, Vec<Run>), Failure> {
        let mut runs = Vec::new();
        for words in words {
            let part = Part::parse(words);
            runs.extend(part.load(load)?.runs(&[part.path])?);
        }
        Ok(runs.into_iter().unzip())
    };
    let (old_profiles, old_runs) = profiles(&old)?;
    let (new_profiles, new_runs) = profiles(&new)?;
    let runs: Vec<Run> = old_runs.iter().chain(&new_runs).cloned().collect();
    mixed(&runs);
    let diff = Diff::of(&old_profiles, &new_profiles, alternate(&old_runs, &new_runs));
    let sort = arguments.sort.unwrap_or_else(|| {
        let has_memory = old_profiles
            .iter()
            .chain(&new_profiles)
            .any(|profile| profile.counts_memory || profile.memory().is_some());
        usual_sort(&diff, has_memory)
    });
    let all: Vec<&DiffRow> = rows(&diff, sort);
    let shown = &all[..limit(arguments).min(all.len())];
    print_as(
        arguments.format.escapes(),
        &match arguments.format {
            TableFormat::Text if sort.is_memory() => text_of_memory(&diff, shown, room(arguments)),
            TableFormat::Text => {
                let side = if are_parts(&runs) { ["part", "parts"] } else { ["run", "runs"] };
                text(&diff, shown, side, room(arguments))
            }
            TableFormat::Csv => machine::csv_of(&objects(&diff, shown)),
            TableFormat::Json => {
                let files = |runs: &[Run]| runs.iter().map(Run::json).collect::<Vec<_>>();
                let whole = json!({
                    "old_files": files(&old_runs),
                    "new_files": files(&new_runs),
                    "old_runs": diff.old_runs,
                    "new_runs": diff.new_runs,
                    "common_functions": diff.common,
                    "all_functions_own_time": change_json(diff.common_time),
                    "all_functions_calls": change_json(diff.common_calls),
                    "smallest_found": diff.smallest_found,
                    "run_spread": diff.run_spread,
                    "machine_spread": diff.machine_spread(),
                    "rows": objects(&diff, shown),
                });
                format!("{whole:#}\n")
            }
        },
    )?;
    explain(&diff, &old_runs, &new_runs);
    for profile in old_profiles.iter().chain(&new_profiles) {
        if profile.notes.numbers().iter().any(|number| *number > 0) {
            notes::print_notes(&profile.notes, &[]);
            break;
        }
    }
    if diff.rows.iter().any(|row| row.old.has_bounds() || row.new.has_bounds()) {
        say!(
            "everycall: times have bounds: not every event had a time of its own (record --clock). A change of own times that the bounds allow to be \
             none isn't marked"
        );
    }
    if shown.len() < all.len() && arguments.format == TableFormat::Text {
        notes::more_rows(all.len() - shown.len());
    }
    verdict(arguments, &conditions, &diff)
}

/// Whether all calls were counted and not timed.
fn is_untimed(diff: &Diff) -> bool {
    let mut all = diff.rows.iter().flat_map(|row| [&row.old, &row.new]);
    diff.rows.iter().any(|row| row.old.calls + row.new.calls > 0)
        && all.all(|sums| sums.untimed == sums.calls)
}

/// The number by which rows are sorted by default. It decides what the table is about, too.
fn usual_sort(diff: &Diff, has_memory: bool) -> Order {
    match has_memory {
        true => Order::OwnAllocated,
        false if is_untimed(diff) => Order::Calls,
        false => Order::OwnTime,
    }
}

/// The rows in the requested order.
fn rows(diff: &Diff, sort: Order) -> Vec<&DiffRow> {
    let mut rows: Vec<&DiffRow> = diff.rows.iter().collect();
    if sort != Order::OwnTime {
        let change = |row: &DiffRow| {
            let of = |sums, is_new| diff.number(sort, sums, is_new);
            (of(&row.new, true) - of(&row.old, false)).abs()
        };
        rows.sort_by(|one, other| {
            other.is_found().cmp(&one.is_found()).then_with(|| change(other).total_cmp(&change(one)))
        });
    }
    rows
}

/// Whether old and new runs were recorded alternately, so that neither side had a busier machine.
fn alternate(old: &[Run], new: &[Run]) -> bool {
    let starts = |runs: &[Run], is_new: bool| -> Option<Vec<(u64, bool)>> {
        runs.iter().map(|run| run.started_realtime_ns.map(|start| (start, is_new))).collect()
    };
    let Some((mut all, of_new)) = starts(old, false).zip(starts(new, true)) else { return false };
    all.extend(of_new);
    all.sort_unstable();
    let changes = all.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    changes >= old.len().min(new.len()) && changes > 1 && !are_parts(old) && !are_parts(new)
}

/// Whether ranges or labels of files are compared, not whole runs.
fn are_parts(runs: &[Run]) -> bool {
    runs.iter().any(|run| run.part.is_some())
}

fn explain(diff: &Diff, old: &[Run], new: &[Run]) {
    let are_parts = are_parts(old) || are_parts(new);
    if diff.common == 0 {
        let perhaps = if are_parts { "" } else { ": these may be traces of different programs" };
        let what = if are_parts { "parts" } else { "files" };
        say!("everycall: the old and the new {what} have no function in common{perhaps}");
    }
    let mean_ns = |runs: &[Run]| {
        let lengths: Option<Vec<u64>> = runs.iter().map(|run| run.part_ns).collect();
        lengths.map(|lengths| lengths.iter().sum::<u64>() / lengths.len().max(1) as u64)
    };
    if let Some((old_ns, new_ns)) = mean_ns(old).zip(mean_ns(new))
        && old_ns.abs_diff(new_ns) > old_ns.max(new_ns) / 100
    {
        say!(
            "everycall: the ranges differ in length ({} before, {} after), and with them the numbers of calls",
            Duration { ns: old_ns },
            Duration { ns: new_ns }
        );
    }
    if diff.old_runs + diff.new_runs == 2 {
        let how = if are_parts {
            "parts differ; compare several parts of each"
        } else {
            "runs differ; record and compare several of each"
        };
        let one = if are_parts { "part" } else { "run" };
        say!(
            "everycall: with one {one} on each side, nothing shows how much {how}, five or more: --diff OLD... --against NEW..."
        );
    }
    comparability(diff);
}

/// If only changes above this part can be found, a comparison says little.
const COARSE: f64 = 0.5;

/// Says if runs can't be compared, or hardly, and why.
fn comparability(diff: &Diff) {
    let Some(smallest) = diff.smallest_found.filter(|smallest| *smallest > COARSE) else { return };
    let part = |of: f64| percent(of).trim_start_matches('+').to_owned();
    let mut why = Vec::new();
    if diff.old_runs.min(diff.new_runs) < RUNS_WANTED {
        let (old, new) = (diff.old_runs, diff.new_runs);
        why.push(format!("{old} and {new} are few runs; record five or more of each"));
    }
    if let Some(runs) = diff.run_spread.filter(|runs| *runs > NOISY) {
        why.push(format!("runs of one side differ by {}; use a quieter machine, or longer runs", part(runs)));
    }
    match diff.machine_spread() {
        Some(machine) if machine > NOISY => {
            let advice = if diff.alternate { "" } else { "; record old and new runs alternately" };
            why.push(format!(
                "functions differ by {} between both sides, as where a machine was busier or code lies elsewhere{advice}",
                part(machine)
            ));
        }
        Some(_) => {}
        None => why.push(ASSUMED.to_owned()),
    }
    say!(
        "everycall: these runs say little about times: only a change of more than {} would be found in a typical function. {}",
        part(smallest),
        why.join(". ")
    );
}

/// With fewer runs on a side, little can be found.
const RUNS_WANTED: usize = 5;
/// Differences above this part are named as a reason.
const NOISY: f64 = 0.05;
/// Why few functions aren't enough.
const ASSUMED: &str = "fewer than 8 functions are in all runs, too few to tell a change from a machine that was busier meanwhile; \
                       record old and new runs alternately";

/// `+5.1 %`.
fn percent(change: f64) -> String {
    if change.is_infinite() {
        return "new".to_owned();
    }
    let percent = 100.0 * change;
    if percent.abs() >= 100.0 { format!("{percent:+.0} %") } else { format!("{percent:+.1} %") }
}

fn with_interval(change: Option<Change>) -> String {
    let Some(change) = change else { return String::new() };
    let mark = if change.is_found { "* " } else { "" };
    if change.change == 0.0 && change.interval.is_none_or(|interval| interval == (0.0, 0.0)) {
        return "same".to_owned();
    }
    match change.interval {
        Some((low, high)) if change.change.is_finite() => {
            format!("{mark}{} ({} .. {})", percent(change.change), percent(low), percent(high))
        }
        _ => format!("{mark}{}", percent(change.change)),
    }
}

fn text(diff: &Diff, rows: &[&DiffRow], [one, several]: [&str; 2], room: Room) -> String {
    let mut out = String::new();
    let found = diff.rows.iter().filter(|row| row.is_found()).count() as u64;
    out.push_str(&format!(
        "{} before, {} after; {} with more than chance between {several} (marked *)\n",
        Several(diff.old_runs as u64, one, several),
        Several(diff.new_runs as u64, one, several),
        Several(found, "function has changed", "functions have changed"),
    ));
    let has_common =
        [diff.common_time, diff.common_calls].iter().flatten().any(|common| common.change != 0.0);
    for (what, change) in [("own time of a call", diff.common_time), ("calls", diff.common_calls)] {
        if change.is_some() {
            out.push_str(&format!("all functions, {what}: {}\n", with_interval(change)));
        }
    }
    if has_common {
        out.push_str("intervals below are relative to all functions\n");
    }
    if let Some(smallest) = diff.smallest_found.filter(|_| !is_untimed(diff)) {
        let smallest = percent(smallest).trim_start_matches('+').to_owned();
        out.push_str(&format!(
            "smallest change of a typical function's time that would be marked: {smallest}\n"
        ));
    }
    out.push('\n');
    if is_untimed(diff) {
        out.push_str(&fitted(&lines_of_calls(diff, rows), room));
        return out;
    }
    let mut lines = vec![
        [
            "own/run",
            "more",
            "own of a call, middle (95 % interval)",
            "calls (95 % interval)",
            "p50",
            "p99",
            "function",
        ]
        .map(str::to_owned),
    ];
    lines.extend(rows.iter().map(|row| {
        let more = row.more_own_ns(diff);
        let sign = if more < 0.0 { "-" } else { "+" };
        let time = |ns: f64| Duration { ns: ns.abs().round() as u64 };
        let of = |order: Order| {
            let (old, new) = (order.number(&row.old), order.number(&row.new));
            if row.old.times.count() == 0 || row.new.times.count() == 0 || old == 0 {
                return String::new();
            }
            percent(new as f64 / old as f64 - 1.0)
        };
        [
            with_error(own_per_run(diff, &row.new)),
            format!("{sign}{}", time(more)),
            with_interval(row.own),
            calls_in_words(row),
            of(Order::Percentile(5_000)),
            of(Order::Percentile(9_900)),
            clean(&row.function.name),
        ]
    }));
    out.push_str(&fitted(&lines, room));
    out
}

/// The own time of an average new run, with its bounds.
fn own_per_run(diff: &Diff, sums: &Sums) -> Bars {
    let (own, runs) = (sums.own(), diff.new_runs.max(1) as u64);
    Bars { low: own.low / runs, value: own.value / runs, high: own.high / runs }
}

/// How the number of calls has changed.
fn calls_in_words(row: &DiffRow) -> String {
    match row.new.calls == 0 && row.old.calls > 0 {
        true => format!("gone ({} before)", Count(row.old.calls)),
        false => with_interval(row.calls),
    }
}

/// The table if nothing is known but numbers of calls.
fn lines_of_calls(diff: &Diff, rows: &[&DiffRow]) -> Vec<[String; 4]> {
    let mut lines = vec![["calls/run", "more", "calls (95 % interval)", "function"].map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let (old, new) =
            (diff.number(Order::Calls, &row.old, false), diff.number(Order::Calls, &row.new, true));
        let sign = if new < old { "-" } else { "+" };
        let more = shown(Order::Calls, (new - old).abs());
        [shown(Order::Calls, new), format!("{sign}{more}"), calls_in_words(row), clean(&row.function.name)]
    }));
    lines
}

/// The table if it is sorted by memory: these numbers are exact, so each run may differ by chance
/// of its own only.
fn text_of_memory(diff: &Diff, rows: &[&DiffRow], room: Room) -> String {
    let heading =
        ["own-allocated/run", "more", "allocated/run", "more", "own-blocks/run", "more", "function"];
    let mut lines = vec![heading.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let of = |order: Order| {
            let (old, new) = (diff.number(order, &row.old, false), diff.number(order, &row.new, true));
            let sign = if new < old { "-" } else { "+" };
            let more = if new == old {
                "same".to_owned()
            } else {
                sign.to_owned() + &shown(order, (new - old).abs())
            };
            [shown(order, new), more]
        };
        let [own, more_own] = of(Order::OwnAllocated);
        let [all, more] = of(Order::Allocated);
        let [blocks, more_blocks] = of(Order::OwnBlocks);
        [own, more_own, all, more, blocks, more_blocks, clean(&row.function.name)]
    }));
    fitted(&lines, room)
}

fn change_json(change: Option<Change>) -> Value {
    let Some(change) = change else { return Value::Null };
    let finite = |number: f64| if number.is_finite() { json!(number) } else { Value::Null };
    json!({
        "change": finite(change.change),
        "low": change.interval.map_or(Value::Null, |(low, _)| finite(low)),
        "high": change.interval.map_or(Value::Null, |(_, high)| finite(high)),
        "p": change.p,
        "is_found": change.is_found,
    })
}

fn objects(diff: &Diff, rows: &[&DiffRow]) -> Vec<Value> {
    let object = |row: &&DiffRow| {
        let identity = &row.function.identity;
        let mut object = serde_json::Map::new();
        let mut put = |name: String, value: Value| object.insert(name, value);
        put("name".to_owned(), json!(identity.name));
        put("module".to_owned(), json!(identity.module));
        put("file".to_owned(), json!(identity.file));
        put("line".to_owned(), json!(identity.line));
        put("is_found".to_owned(), json!(row.is_found()));
        put("more_own_ns_per_run".to_owned(), json!(row.more_own_ns(diff)));
        for (name, change) in [("own", row.own), ("calls", row.calls)] {
            for (part, value) in change_json(change).as_object().into_iter().flatten() {
                put(format!("{name}_{part}"), value.clone());
            }
        }
        for (side, sums) in [("old", &row.old), ("new", &row.new)] {
            for (name, number) in machine::numbers(sums) {
                put(format!("{side}_{name}"), json!(number));
            }
        }
        Value::Object(object)
    };
    let objects: Vec<Value> = rows.iter().map(object).collect();
    // All lines of a CSV file have all columns.
    let names: Vec<String> = objects
        .iter()
        .filter_map(Value::as_object)
        .max_by_key(|object| object.len())
        .map(|object| object.keys().cloned().collect())
        .unwrap_or_default();
    let whole = |object: &Value| {
        let of = |name: &String| (name.clone(), object.get(name).cloned().unwrap_or(Value::Null));
        Value::Object(names.iter().map(of).collect())
    };
    objects.iter().map(whole).collect()
}

/// Functions for which it is said why a condition can't be decided.
const UNDECIDED_SHOWN: usize = 5;

/// Reports which conditions hold, and which can't be decided. Returns the exit code.
fn verdict(arguments: &ReportArguments, conditions: &[Condition], diff: &Diff) -> Result<ExitCode, Failure> {
    let mut functions = everycall_analysis::Functions::default();
    for row in &diff.rows {
        functions.number(row.function.clone());
    }
    let (mut is_failed, mut is_undecided) = (false, false);
    for condition in conditions {
        let pattern = pattern(&condition.function)?;
        let meant: Vec<&DiffRow> = diff.rows.iter().filter(|row| is_meant(&pattern, &row.function)).collect();
        if meant.is_empty() {
            return Err(nothing_matches(&pattern, &functions, arguments));
        }
        let known =
            |row: &&DiffRow| is_known(condition.number, &row.old) && is_known(condition.number, &row.new);
        let among = meant.iter().filter(|row| known(row)).count();
        if among == 0 {
            return Err(unknown(condition, meant.iter().flat_map(|row| [&row.old, &row.new])));
        }
        let mut undecided = 0;
        for row in meant.into_iter().filter(known) {
            let decision = diff.decide(condition, row, among);
            let numbers = numbers_in_words(condition, row, &decision);
            match decision.verdict {
                Verdict::HoldsNot => {}
                Verdict::Holds => {
                    is_failed = true;
                    say!("everycall: {}: {numbers}", condition.text);
                }
                Verdict::Undecided(doubt) => {
                    undecided += 1;
                    if undecided <= UNDECIDED_SHOWN {
                        let why = doubt_in_words(condition, diff, doubt);
                        say!("everycall: `{}` can't be decided: {numbers}, but {why}", condition.text);
                    }
                }
            }
        }
        if undecided > UNDECIDED_SHOWN {
            let more = Several((undecided - UNDECIDED_SHOWN) as u64, "more function", "more functions");
            say!("everycall: `{}` can't be decided for {more} either", condition.text);
        }
        is_undecided |= undecided > 0;
    }
    Ok(match (is_failed, is_undecided) {
        (true, _) => ExitCode::from(exit_code::CONDITION_HOLDS),
        (false, true) => ExitCode::from(exit_code::UNDECIDED),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// `p99 of handle was 12 ms and is 15 ms (+25.0 %)`.
fn numbers_in_words(condition: &Condition, row: &DiffRow, decision: &Decision) -> String {
    let Decision { old, new, .. } = *decision;
    format!(
        "{} of {} was {} and is {} ({})",
        condition.number.name(),
        clean(&row.function.name),
        shown(condition.number, old),
        shown(condition.number, new),
        if old > 0.0 { percent(new / old - 1.0) } else { "not called before".to_owned() }
    )
}

fn doubt_in_words(condition: &Condition, diff: &Diff, doubt: Doubt) -> String {
    match doubt {
        Doubt::OneRun => "one run on each side doesn't show how much runs differ; record five of each: \
                          --diff OLD... --against NEW..."
            .to_owned(),
        Doubt::Noise(low, high) => {
            let number = |value: f64| shown(condition.number, value);
            let range = match condition.limit {
                Limit::Part(_) => format!("a change of {} to {}", percent(low), percent(high)),
                Limit::By(_) => format!(
                    "a change of {} to {}",
                    signed(condition.number, low),
                    signed(condition.number, high)
                ),
                Limit::Number(_) => format!("{} to {}", number(low.max(0.0)), number(high)),
            };
            let what = match diff.machine_spread().is_none()
                && condition.is_about_change()
                && condition.number.is_time()
            {
                true => ASSUMED,
                false => "record more or longer runs, or on a quieter machine",
            };
            format!("runs differ so much that it may be {range} (95 %); {what}")
        }
        Doubt::AllFunctions(change) => format!(
            "all functions changed by {} in time: the whole program did, or the machine was busier; record old and new runs alternately",
            percent(change)
        ),
    }
}

/// A change with its sign.
fn signed(order: Order, change: f64) -> String {
    let sign = if change < 0.0 { "-" } else { "+" };
    format!("{sign}{}", shown(order, change.abs()))
}

/// Reports which conditions on absolute numbers hold, without a comparison.
pub fn check(
    arguments: &ReportArguments,
    conditions: &[Condition],
    profile: &Profile,
) -> Result<ExitCode, Failure> {
    let mut is_failed = false;
    for condition in conditions {
        let pattern = pattern(&condition.function)?;
        let rows = profile.rows(condition.number);
        let meant = rows.iter().filter_map(|row| match row.key {
            Key::Function(number) => profile.functions().get(*number).map(|function| (function, row.sums)),
            _ => None,
        });
        let meant: Vec<_> = meant.filter(|(function, _)| is_meant(&pattern, function)).collect();
        if meant.is_empty() {
            return Err(nothing_matches(&pattern, profile.functions(), arguments));
        }
        if !meant.iter().any(|(_, sums)| is_known(condition.number, sums)) {
            return Err(unknown(condition, meant.iter().map(|(_, sums)| *sums)));
        }
        for (function, sums) in meant {
            let sums: &Sums = sums;
            if !is_known(condition.number, sums) {
                continue;
            }
            let number = condition.number.number(sums) as f64;
            if condition.holds(number, number) {
                is_failed = true;
                let (name, of) = (condition.number.name(), clean(&function.name));
                say!("everycall: {}: {name} of {of} is {}", condition.text, shown(condition.number, number));
            }
        }
    }
    Ok(if is_failed { ExitCode::from(exit_code::CONDITION_HOLDS) } else { ExitCode::SUCCESS })
}

/// Whether a number of a function's calls is known: times of calls that were only counted aren't,
/// and the duration of truncated calls isn't. Of no calls, everything is known.
fn is_known(order: Order, sums: &Sums) -> bool {
    match order {
        _ if !order.is_time() || sums.calls == 0 => true,
        Order::TotalTime | Order::OwnTime => sums.untimed < sums.calls,
        _ => sums.times.count() > 0,
    }
}

/// The message that a condition can't be decided for any function that it names.
fn unknown<'s>(condition: &Condition, mut of: impl Iterator<Item = &'s Sums>) -> Failure {
    let why = match of.any(|sums| sums.calls > 0 && sums.untimed == sums.calls) {
        true => "its calls were counted and not timed; use `everycall count --time` or `everycall record`",
        false => "none of its calls was recorded from its entry to its exit",
    };
    let (name, function) = (condition.number.name(), &condition.function);
    Failure::new(
        exit_code::FAILED,
        format!("`{}` can't be decided: {name} of {function} isn't known, as {why}", condition.text),
    )
}

fn shown(order: Order, number: f64) -> String {
    if order.is_time() {
        return Duration { ns: number.round() as u64 }.to_string();
    }
    if order.is_bytes() {
        return Size(number.round() as u64).to_string();
    }
    if number.fract() == 0.0 { Count(number as u64).to_string() } else { format!("{number:.1}") }
}
