//! `everycall trigger`: keeps calls of a running program that meet a condition.

use std::path::PathBuf;
use std::process::ExitCode;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use everycall_control::{Module, SelectionSet, resolve};
use everycall_format::control_socket::Reply;
use everycall_io::outfile::folder_of;
use everycall_io::say;
use everycall_live::{Control, ControlError};
use everycall_machine::clock;
use everycall_patterns::{FunctionTable, Selection};
use everycall_recorder::{KeepCalls, TriggeredProcess};
use everycall_triggers::{
    ArmedArena, Condition, Keeper, Numbers, Outcome, Rate, SetBuilder, SetError, Trigger, numbers,
};
use everycall_units::{Duration as Shown, Several};

use crate::arguments::{LiveTriggerArguments, OnlyArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Destination, Output};
use crate::recording::captures::LiveValues;
use crate::recording::kept_calls::{checked, memory, nothing_found, policy, refuse_short, say_unknown_types};
use crate::recording::written;
use crate::rules::add;
use crate::running::default_output;
use crate::running::{Program, notes};
use crate::signals::Signals;
use crate::untouched::Choice;
use crate::untouched::process::{attached, has_written_hooks};

/// The process's number in the file.
const PROCESS: u32 = 0;
/// Time between two checks of the process and its modules.
const PROCESS_PAUSE: Duration = Duration::from_millis(50);
/// Longest time between two checks for posted calls.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// Bytes of a session's name for the triggers' texts.
const NAME_MAX: usize = 32;

/// Runs the verb.
pub fn run(arguments: &LiveTriggerArguments) -> Result<ExitCode, Failure> {
    let triggers = checked(&arguments.conditions)?;
    if let Some(trigger) = triggers.iter().find(|trigger| matches!(trigger.condition, Condition::Signal(_))) {
        return Err(Failure::new(
            exit_code::USAGE,
            format!("`{trigger}` is for `everycall record`; use `everycall snapshot {}`", arguments.pid),
        ));
    }
    // Mistakes are found before the process is changed.
    let alone = numbers(&triggers).map_err(|error| Failure::new(exit_code::USAGE, error))?;
    LiveValues::with_triggers(&arguments.values, arguments.quiet, &triggers, &alone)?;
    everycall_recorder::outlive_size_limit();
    let all = OnlyArguments { only: Vec::new(), not: Vec::new() };
    let program =
        attached(arguments.pid, &Choice::of(&all, false, &triggers)?.with_values(&arguments.values))?;
    if program.arena.drops_short_calls() {
        refuse_short(&triggers)?;
    }
    let numbers = program.numbers_of(&triggers)?;
    let values = LiveValues::with_triggers(&arguments.values, arguments.quiet, &triggers, &numbers)?;
    let values = values.as_ref();
    let rate = Arc::new(Rate::measure());
    let mut functions = Functions {
        triggers: &triggers,
        numbers: &numbers,
        rate: &rate,
        memory: memory(&arguments.keep),
        values,
        with_others: has_written_hooks(arguments.pid),
    };
    let found = functions.find(&program)?;
    // Frames by id may be named later.
    for (trigger, count) in triggers.iter().zip(&found.counts).filter(|_| found.frames.is_none()) {
        if trigger.pattern().is_some() && *count == 0 {
            return Err(Failure::new(exit_code::FAILED, nothing_found(trigger, &found.files)));
        }
    }
    say_unknown_types(&triggers, &found.files);
    let default = || default_output(program.arena.process());
    let output =
        Destination::of_process(arguments.pid, arguments.output.as_deref(), arguments.force, default)
            .keeping_old();
    let file = Output::create(&output)?;
    let since = clock::read();
    // From here on, signals end the wait instead of this process.
    let signals = Signals::begin();
    let mut control = program.connect_to_record()?;
    let area = arm(&program, &mut control, &functions, &found, false)?;
    program.check_numbers(&numbers, area.area)?;
    let armed = Arc::new(program.armed(area.area)?);
    let outcome = Arc::new(Outcome::new(&triggers));
    outcome.armed(&found.counts, area.left_out);
    let mut policy = policy(&arguments.keep);
    if let (Some(limit), None) = (arguments.limit, arguments.keep.keep) {
        policy.keep = policy.keep.max(limit as usize);
    }
    let folder = folder_of(&output.path).to_owned();
    let mut keeper =
        Keeper::new(Arc::clone(&triggers), Arc::clone(&rate), Arc::clone(&outcome), policy, folder);
    if !arguments.quiet {
        begin_text(arguments, &program, &triggers, &found);
    }
    if let Some(limit) = arguments.limit {
        keeper.limit(limit as usize);
    }
    keeper.know(PROCESS, Arc::clone(&program.arena), area.ticks);
    let arena = Arc::new(ArmedArena(Arc::clone(&program.arena)));
    let mut process =
        TriggeredProcess { number: PROCESS, pid: arguments.pid, arena, triggers: armed, over: None };
    let begin = Instant::now();
    let mut modules = found.modules;
    let mut process_due = Instant::now() + PROCESS_PAUSE;
    let mut has_ended = false;
    loop {
        let pause = keeper.look(slice::from_ref(&process), &[]).min(LOOK_PAUSE);
        let rest = arguments.time.map(|time| Duration::from_nanos(time).saturating_sub(begin.elapsed()));
        let is_enough = arguments.limit.is_some_and(|limit| keeper.kept() >= limit as usize);
        if has_ended || is_enough || rest.is_some_and(|rest| rest.is_zero()) {
            break;
        }
        if process_due <= Instant::now() {
            process_due = Instant::now() + PROCESS_PAUSE;
            has_ended = program.has_ended();
            if has_ended {
                process.over = Some(clock::ticks());
                continue;
            }
            let now = program.module_count();
            if now != modules {
                modules = now;
                arm_more(&mut functions, &program, &mut control, &outcome);
            }
        }
        if signals.wait(rest.map_or(pause, |rest| rest.min(pause))) {
            break;
        }
    }
    if !has_ended {
        let _ = keeper.look(slice::from_ref(&process), &[]);
    }
    drop(control);
    signals.end();
    let summary = file.write(|file| {
        everycall_live::write_kept(
            &program.arena,
            &since,
            file,
            env!("CARGO_PKG_VERSION"),
            has_ended,
            &mut |write| keeper.write(write),
        )
    })?;
    if !arguments.quiet {
        if has_ended {
            say!("everycall: {program} has ended");
        }
        say!(
            "everycall: {} of {program} kept in {}",
            Several(keeper.kept() as u64, "call", "calls"),
            output.path.display()
        );
        written::print_triggers(&outcome, &output.path);
        written::print_warnings(&summary);
    }
    Ok(ExitCode::SUCCESS)
}

/// The functions of a process that the triggers name.
struct Found {
    /// As a set for the process.
    set: Vec<u8>,
    /// As a selection, because they must be recorded.
    selection: Vec<Module>,
    /// By trigger, the number of functions of modules that it names.
    counts: Vec<usize>,
    /// By trigger, the number of frames by id that it names; `None` if there are none.
    frames: Option<Vec<usize>>,
    files: Vec<PathBuf>,
    /// Number of modules that the process had loaded.
    modules: u64,
}

/// Finds the functions that triggers name.
struct Functions<'a> {
    triggers: &'a [Trigger],
    /// By trigger, the numbers of its conditions.
    numbers: &'a [Numbers],
    rate: &'a Rate,
    memory: u64,
    values: Option<&'a LiveValues>,
    /// Whether all functions with hooks are recorded, too: those that kept calls made. Programs that
    /// were built with the prefix record these unless somebody switched them off.
    with_others: bool,
}

impl Functions<'_> {
    fn find(&mut self, program: &Program) -> Result<Found, Failure> {
        let modules = program.module_count();
        let tables = program.tables()?;
        let refused = |error: SetError| Failure::new(exit_code::FAILED, error.to_string());
        let mut set = SetBuilder::live(self.triggers, self.numbers, self.rate, self.memory);
        let mut counts = vec![0; self.triggers.len()];
        let mut frames = None;
        for table in &tables {
            let named = |trigger: &Trigger| table.frames_named(&trigger.pattern()?.to_string());
            if table.frames_named("").is_some() {
                frames = Some(self.triggers.iter().map(|trigger| named(trigger).unwrap_or(0)).collect());
                continue;
            }
            let added = set.add_file(table.path(), table.build_id()).map_err(refused)?;
            counts.iter_mut().zip(added).for_each(|(sum, count)| *sum += count);
        }
        let selection = set.selected().map(|(path, build_id, ranges)| Module {
            path: path.to_owned(),
            build_id: build_id.to_vec(),
            ranges,
        });
        Ok(Found {
            selection: selection.collect(),
            set: set.bytes(),
            counts,
            frames,
            files: tables.iter().map(FunctionTable::path).map(PathBuf::from).collect(),
            modules,
        })
    }
}

/// Makes the process record and arm the functions.
fn arm(
    program: &Program,
    control: &mut Control,
    functions: &Functions<'_>,
    found: &Found,
    later: bool,
) -> Result<Reply, Failure> {
    let Functions { triggers, values, .. } = *functions;
    let failed = |error: ControlError| program.failed(&error);
    if !found.selection.is_empty() || found.frames.is_some() || values.is_some() {
        let rules = triggers.iter().filter_map(|trigger| Some(format!("+ {}", trigger.pattern()?))).collect();
        let mut selection = SelectionSet { rules, others: false, modules: found.selection.clone() };
        if values.is_some() {
            // Their functions are recorded, too.
            let mut tables = program.tables()?;
            let mut more = Selection::all_or_none(false);
            add(&mut more, &LiveValues::patterns(values, &[]), true)?;
            selection = selection.with(resolve(&more, &mut tables).0);
            LiveValues::send(values, program, control, &mut tables, later)?;
        }
        if functions.with_others {
            let mut tables = program.tables()?;
            selection = selection.with(resolve(&Selection::all_or_none(true), &mut tables).0);
        }
        let bytes = selection.bytes().map_err(|error| Failure::new(exit_code::USAGE, error))?;
        control.open(&name_of(triggers), None, &bytes).map_err(failed)?;
        let reply = control.activate().map_err(failed)?;
        notes(program, &reply);
        LiveValues::say_missing(values.filter(|_| !later), program, &reply);
    }
    control.arm(&found.set).map_err(failed)
}

/// The session's name in `everycall sessions`.
fn name_of(triggers: &[Trigger]) -> String {
    let texts: Vec<String> = triggers.iter().map(ToString::to_string).collect();
    let mut text = texts.join(", ");
    let end = (0..=NAME_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    format!("trigger {text}")
}

/// Arms functions in modules that were loaded since.
fn arm_more(functions: &mut Functions<'_>, program: &Program, control: &mut Control, outcome: &Outcome) {
    // If a module can't be read, the others stay as they are.
    let Ok(found) = functions.find(program) else { return };
    if outcome.names_more(&found.counts)
        && let Ok(area) = arm(program, control, functions, &found, true)
    {
        outcome.armed_late(&found.counts, area.left_out);
    }
}

fn begin_text(arguments: &LiveTriggerArguments, program: &Program, triggers: &[Trigger], found: &Found) {
    for (rule, (trigger, count)) in
        triggers.iter().zip(&found.counts).enumerate().filter(|(_, (trigger, _))| trigger.pattern().is_some())
    {
        let frames = found.frames.as_ref().and_then(|frames| frames.get(rule)).copied().unwrap_or(0);
        say!("everycall: `{trigger}` names {}", Several((*count + frames) as u64, "function", "functions"));
    }
    let until = match (arguments.time, arguments.limit) {
        (Some(ns), _) => format!("for {}", Shown { ns }),
        (None, Some(_)) => "until there are enough".to_owned(),
        (None, None) => "until interrupted (ctrl-C)".to_owned(),
    };
    say!("everycall: {program}: keeping calls {until}");
}
