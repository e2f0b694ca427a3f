//! `everycall follow`: a session whose calls are printed while they happen.
//!
//! - `levels`: how much is shown of which functions; `page`: calls as lines
//! - `session`: a session while it lasts
//! - `started`: a program of our own; `output`: what it writes
//!
//! Rings are read as they are written (`everycall_live::Follower`), and paired as events come
//! (`everycall_timeline::LiveThread`). When the process loads a module, everything that knows its
//! modules begins anew; open calls go on.

mod levels;
mod output;
mod page;
mod session;
mod started;

use std::process::ExitCode;
use std::sync::Arc;

use everycall_io::say;
use everycall_live::Follower;
use everycall_timeline::settled_words;
use everycall_units::Several;

use self::levels::Levels;
use self::session::{Session, open_session, rules};
use crate::arguments::FollowArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::captures::LiveValues;
use crate::running::notes;
use crate::signals::Signals;
use crate::untouched::Choice;
use crate::untouched::process::attached;

/// `follow`.
pub fn follow(arguments: &FollowArguments) -> Result<ExitCode, Failure> {
    if !arguments.command.is_empty() {
        return started::follow(arguments);
    }
    let usage = |text: &str| Failure::new(exit_code::USAGE, text);
    let Some((pid, patterns)) = arguments.words.split_first() else {
        return Err(usage("name a process and functions, as in: everycall follow 1234 'handle_*'"));
    };
    let pid = pid.parse().map_err(|_| {
        usage(&format!("`{pid}` is no process id; `everycall ps` lists the traced processes"))
    })?;
    let values = LiveValues::of(&arguments.values, arguments.quiet)?;
    let values = values.as_ref();
    let rules = rules(&LiveValues::patterns(values, patterns), &arguments.level)?;
    let named: Vec<String> =
        rules.iter().filter(|rule| rule.level > 0).map(|rule| rule.pattern.clone()).collect();
    let program = attached(pid, &Choice::of_clients(&named)?)?;
    let mut tables = program.tables()?;
    let (levels, set) = Levels::new(rules, &mut tables, false)?;
    // From here on, signals end the wait instead of this process.
    let signals = Signals::begin();
    let arena = Arc::clone(&program.arena);
    // Its segments are those before the session begins.
    let mut follower =
        Follower::begin(&arena, false, settled_words).map_err(|error| program.failed(&error))?;
    let mut control = program.connect_to_record()?;
    let since = everycall_live::now_ticks();
    LiveValues::send(values, &program, &mut control, &mut tables, false)?;
    let reply = open_session(&program, &mut control, arguments, &set)?;
    LiveValues::say_missing(values, &program, &reply);
    if !arguments.quiet {
        say!("everycall: {program}: following {}", Several(levels.functions, "function", "functions"));
        notes(&program, &reply);
    }
    let mut session = Session::new(arguments, &program, Some(control), levels, since);
    session.values = values;
    let why = session.run(&mut follower, Some(&signals))?;
    drop(session);
    signals.end();
    if !arguments.quiet {
        say!("everycall: {program} {why}");
    }
    Ok(ExitCode::SUCCESS)
}
