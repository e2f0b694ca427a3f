//! Triggers of `record`, `resolve` and `trigger`: evaluates the options, and checks that the
//! program has the functions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everycall_format::site_set::{KEEP_MAX, KEEP_PERHAPS};
use everycall_format::trigger::{FRAME_TEXTS_SIZE, RULES};
use everycall_io::outfile::folder_of;
use everycall_io::say;
use everycall_recorder::Triggers;
use everycall_triggers::{
    Condition, Functions, KeepBy, Keeper, Outcome, Policy, Rate, Trampolines, Trigger, unknown_types,
};
use everycall_units::Size;

use crate::arguments::{self, KeepArguments, RecordArguments, TriggerArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::preload;
use crate::untouched::record::Untouched;

/// Default disk space for kept calls, in bytes.
const KEEP_SIZE: u64 = 256 << 20;
/// Default memory for events of calls that may be kept, in bytes.
const MEMORY: u64 = 64 << 20;

/// The recorder's part of the triggers, and the place of their results. `None` without triggers.
pub fn prepare(
    arguments: &RecordArguments,
    output: &Path,
    trampolines: &Trampolines,
) -> Result<Option<(Triggers, Arc<Outcome>)>, Failure> {
    let Some(triggers) = triggers_of(&arguments.triggers)? else { return Ok(None) };
    if arguments.stream {
        return Err(Failure::new(
            exit_code::USAGE,
            "--trigger can't be combined with --stream, which writes every call; leave out --stream, or find \
            the slow calls in its file: everycall replay --function handle_request --min-duration 20ms",
        ));
    }
    let rate = Arc::new(Rate::measure());
    let outcome = Arc::new(Outcome::new(&triggers));
    let trampolines = trampolines.clone();
    let mut functions =
        Functions::new(Arc::clone(&triggers), Arc::clone(&rate), Arc::clone(&outcome), trampolines);
    look_at_program(arguments, &triggers, &mut functions)?;
    let signal = |trigger: &Trigger| match trigger.condition {
        Condition::Signal(signal) => Some(signal),
        _ => None,
    };
    let signals = triggers.iter().filter_map(signal).collect();
    let policy = policy(&arguments.triggers.keep);
    let keeper = Keeper::new(triggers, rate, Arc::clone(&outcome), policy, folder_of(output).to_owned());
    let memory = memory(&arguments.triggers.keep);
    Ok(Some((Triggers { memory, signals, sites: Box::new(functions), keep: Box::new(keeper) }, outcome)))
}

/// The triggers of the options; `None` if there are none.
pub fn triggers_of(arguments: &TriggerArguments) -> Result<Option<Arc<[Trigger]>>, Failure> {
    if arguments.trigger.is_empty() { Ok(None) } else { checked(&arguments.trigger).map(Some) }
}

/// These triggers, if there aren't too many.
pub fn checked(triggers: &[Trigger]) -> Result<Arc<[Trigger]>, Failure> {
    match triggers.len() {
        count if count > RULES as usize => Err(Failure::new(
            exit_code::USAGE,
            format!(
                "{count} triggers are too many: at most {RULES} are possible; * in a pattern matches many functions"
            ),
        )),
        _ => {
            let patterns =
                triggers.iter().filter_map(Trigger::pattern).map(|pattern| pattern.to_string().len());
            if patterns.sum::<usize>() as u64 > FRAME_TEXTS_SIZE {
                say!(
                    "everycall: the names in these triggers have more than {} together, so the last ones don't \
                     apply to functions of interpreters, such as Python's; shorten them",
                    Size(FRAME_TEXTS_SIZE)
                );
            }
            Ok(triggers.iter().cloned().collect())
        }
    }
}

/// Refuses triggers that need every call of their functions if short calls are dropped.
pub fn refuse_short(triggers: &[Trigger]) -> Result<(), Failure> {
    let is_seen = |condition: &Condition| {
        !matches!(condition, Condition::Entered(_) | Condition::Returned(..) | Condition::Percentile(..))
    };
    match triggers.iter().find(|trigger| !is_seen(&trigger.condition)) {
        None => Ok(()),
        Some(trigger) => Err(Failure::new(
            exit_code::USAGE,
            format!(
                "'{trigger}' needs every call of its function, but --min-duration drops short calls; leave out \
                one of the two, or \
                 give the trigger a time, as in: 'handle_request > 20ms'"
            ),
        )),
    }
}

/// Which calls are kept if there are more.
pub fn policy(arguments: &KeepArguments) -> Policy {
    Policy {
        keep: arguments.keep.unwrap_or(KEEP_MAX) as usize,
        keep_perhaps: arguments.keep.unwrap_or(KEEP_PERHAPS) as usize,
        bytes: arguments.keep_size.unwrap_or(KEEP_SIZE),
        by: match arguments.keep_by {
            None | Some(arguments::KeepBy::Slowest) => KeepBy::Slowest,
            Some(arguments::KeepBy::First) => KeepBy::First,
            Some(arguments::KeepBy::Newest) => KeepBy::Newest,
        },
        every_ns: arguments.keep_every.unwrap_or(0),
    }
}

/// Memory for events of calls that may be kept, in bytes.
pub fn memory(arguments: &KeepArguments) -> u64 {
    arguments.trigger_memory.unwrap_or(MEMORY)
}

/// Searches the program's functions before it runs. A pattern without matches is an error, unless
/// the program may load or start a file that has one.
fn look_at_program(
    arguments: &RecordArguments,
    triggers: &[Trigger],
    functions: &mut Functions,
) -> Result<(), Failure> {
    let (files, more) = match Untouched::looked_through(arguments) {
        Some((program, brings_others)) => {
            (vec![program], brings_others.then_some("libraries and programs that it starts may have one"))
        }
        None => {
            let Some(objects) = preload::traced_objects(arguments)? else { return Ok(()) };
            let more = match objects.names_frames() {
                true => "frames by id are compared when the program names them",
                false => "libraries and programs loaded later may have one",
            };
            let brings_more = objects.may_bring_more(!arguments.no_follow);
            (objects.traced, brings_more.then_some(more))
        }
    };
    let mut counts = vec![0; triggers.len()];
    for file in &files {
        for (sum, count) in counts.iter_mut().zip(functions.look_at(file)) {
            *sum += count;
        }
    }
    say_unknown_types(triggers, &files);
    let nameless = |(trigger, count): &(&Trigger, usize)| trigger.pattern().is_some() && *count == 0;
    for (trigger, _) in triggers.iter().zip(counts).filter(nameless) {
        let sentence = nothing_found(trigger, &files);
        if let Some(more) = more {
            say!("everycall: {sentence}; {more}");
        } else {
            return Err(Failure::new(exit_code::NOT_RECORDED, sentence));
        }
    }
    Ok(())
}

/// Reports types of exceptions that no file has.
pub fn say_unknown_types(triggers: &[Trigger], files: &[PathBuf]) {
    for (pattern, near) in unknown_types(triggers, files) {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let near = match near.as_slice() {
            [] => String::new(),
            [one] => format!("; there is {one}"),
            [some @ .., last] => format!("; there are {} and {last}", some.join(", ")),
        };
        say!(
            "everycall: no type of `{pattern}` in {}{near}; waiting for it nevertheless, because a library may \
            throw it",
            files.join(", ")
        );
    }
}

/// The message for a trigger without matches, with similar names.
pub fn nothing_found(trigger: &Trigger, objects: &[PathBuf]) -> String {
    let shown: Vec<String> = objects.iter().map(|object| object.display().to_string()).collect();
    let near = Functions::near(trigger, objects);
    let near = match near.as_slice() {
        [] => "; * matches any text".to_owned(),
        [one] => format!("; there is {one}"),
        [some @ .., last] => format!("; there are {} and {last}", some.join(", ")),
    };
    let pattern = trigger.pattern().map(ToString::to_string).unwrap_or_default();
    format!("no function in {} matches `{pattern}`{near}", shown.join(", "))
}
