//! The live table of a process: readings at an interval, and keys in between.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use everycall_analysis::Profile;
use everycall_io::say;
use everycall_tui::screen::{Buffer, Happening, Modifier, Screen, Style};

use super::live_table::{Answer, LiveTable, Reading};
use super::reading::{read, show};
use crate::arguments::CountArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Destination, clean};
use crate::signals::Signals;
use crate::verbs::report::Load;

/// How often signals are looked for while no key comes.
const PAUSE: Duration = Duration::from_millis(100);

/// Shows the table until `q`, ctrl-C or the process's end.
pub fn run(
    pid: u32,
    every: Duration,
    arguments: &CountArguments,
    load: &Load,
    destination: &Destination,
) -> Result<ExitCode, Failure> {
    // Problems with the process or its symbols are printed once, before the table.
    read(pid, destination, arguments.by.value.is_some())?;
    let mut last = Profile::by(arguments.by.grouping.clone());
    let runs = load.add_all(std::slice::from_ref(&destination.path), &mut last)?;
    let command = runs.first().map_or_else(String::new, |run| clean(&run.command));
    let title = format!("process {pid} {command}");
    let signals = Signals::begin();
    let ended = live(
        pid,
        every,
        load,
        destination,
        Live { title, last: &mut last, by: arguments, signals: &signals },
    );
    signals.end();
    if ended? == Ended::Process {
        show(&last, arguments, &runs)?;
        say!("everycall: process {pid} has ended; these are its counts until the last reading");
    }
    Ok(ExitCode::SUCCESS)
}

struct Live<'l> {
    title: String,
    /// The last reading.
    last: &'l mut Profile,
    by: &'l CountArguments,
    signals: &'l Signals,
}

/// Why there is no table any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Asked,
    Process,
}

fn live(
    pid: u32,
    every: Duration,
    load: &Load,
    destination: &Destination,
    live: Live<'_>,
) -> Result<Ended, Failure> {
    let Live { title, last, by, signals } = live;
    let failed = |error| Failure::new(exit_code::FAILED, format!("the terminal: {error}"));
    let mut screen = Screen::begin().map_err(failed)?;
    let mut table = LiveTable::default();
    let mut reading = Reading::new(title.clone(), last, None);
    let mut last_at = Instant::now();
    let mut next_at = last_at + every;
    loop {
        let (width, height) = screen.size();
        let lines = table.lines(&reading, width.into(), height.into());
        screen.draw(|out| draw(&lines, out)).map_err(failed)?;
        // Until something has changed.
        loop {
            if signals.wait(Duration::ZERO) {
                return Ok(Ended::Asked);
            }
            let now = Instant::now();
            if now >= next_at {
                break;
            }
            match screen.wait(PAUSE.min(next_at - now)).map_err(failed)? {
                None => {}
                Some(Happening::Other) => break,
                Some(Happening::Key(key)) => match table.key(key, &reading) {
                    Answer::Quit => return Ok(Ended::Asked),
                    Answer::Draw => break,
                },
            }
        }
        if Instant::now() < next_at {
            continue;
        }
        if table.is_paused {
            next_at = Instant::now() + every;
            continue;
        }
        if read(pid, destination, by.by.value.is_some()).is_err() {
            return Ok(Ended::Process);
        }
        let at = Instant::now();
        let mut now = Profile::by(by.by.grouping.clone());
        load.quietly(&destination.path, |view| now.add_trace(view, &load.filter))?;
        let seconds = at.duration_since(last_at).as_secs_f64();
        reading = Reading::new(title.clone(), &now, Some((last, seconds)));
        *last = now;
        last_at = at;
        // No reading before the screen was seen, however long one takes.
        next_at = (next_at + every).max(Instant::now() + every / 2);
    }
}

/// Draws the lines of a table.
fn draw(lines: &[String], out: &mut Buffer) {
    let area = out.area;
    for (number, (line, y)) in lines.iter().zip(area.top()..area.bottom()).enumerate() {
        let is_heading = number == LiveTable::HEADING;
        let style =
            Style::default().add_modifier(if is_heading { Modifier::BOLD } else { Modifier::empty() });
        out.set_stringn(area.left(), y, line, area.width.into(), style);
    }
}
