//! A session of `follow` while it lasts: what threads have written since the last look is paired
//! and printed.

use std::collections::HashMap;
use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use everycall_analysis::{NameOptions, SymbolNames};
use everycall_export::value_text::arguments;
use everycall_export::{Layouts, NameLength, apart, name_of_value, text_of_result};
use everycall_format::arena::thread_state;
use everycall_format::control_socket::Reply;
use everycall_format::until_nul;
use everycall_io::say;
use everycall_io::terminal::{self, Escapes};
use everycall_live::{Control, Follower, RingOwner, Written, write_kept};
use everycall_machine::clock;
use everycall_patterns::FunctionTable;
use everycall_reader::{OpenCall, Source as _, ThreadName, TraceFile, open_calls};
use everycall_timeline::{LiveCarry, LiveThread, TimelineEvent, Trace};
use everycall_units::Count;

use super::levels::Levels;
use super::output::{Outputs, Said};
use super::page::Page;
use crate::arguments::{FollowArguments, LevelRule};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Room, clean};
use crate::recording::captures::LiveValues;
use crate::running::Program;
use crate::signals::Signals;

/// Time between two reads of the rings.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of reads between two checks of the process, its clock and the names of its threads.
const LOOKS_EACH: u32 = 25;
/// Bytes of a session's name for the patterns.
const NAME_MAX: usize = 48;
/// Default level of functions.
const LEVEL: u8 = 2;

/// All rules in their order.
pub fn rules(patterns: &[String], levels: &[LevelRule]) -> Result<Vec<LevelRule>, Failure> {
    let plain =
        patterns.iter().map(|pattern| LevelRule { level: LEVEL, pattern: pattern.clone(), is_named: false });
    let rules: Vec<LevelRule> = plain.chain(levels.iter().cloned()).collect();
    if rules.iter().all(|rule| rule.level == 0) {
        return Err(Failure::new(
            exit_code::USAGE,
            "name the functions to follow, as in: everycall follow 1234 'handle_*'",
        ));
    }
    Ok(rules)
}

/// Makes the process record the functions of a set.
pub fn open_session(
    program: &Program,
    control: &mut Control,
    arguments: &FollowArguments,
    set: &[u8],
) -> Result<Reply, Failure> {
    let mut name = format!("follow {}", arguments.words.get(1..).unwrap_or_default().join(" "));
    let end = (0..=NAME_MAX.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    name.truncate(end.unwrap_or(0));
    control.open(name.trim_end(), None, set).map_err(|error| program.failed(&error))?;
    control.activate().map_err(|error| program.failed(&error))
}

/// The earliest clock reading of the process.
fn first_reading(program: &Program) -> everycall_format::arena::ClockReading {
    let (start, now) = (program.arena.layout().start, clock::read());
    let is_sane = start.monotonic_raw_ns != 0
        && start.ticks < now.ticks
        && start.monotonic_raw_ns < now.monotonic_raw_ns;
    if is_sane { start } else { now }
}

/// A session while it lasts.
pub struct Session<'a> {
    arguments: &'a FollowArguments,
    program: &'a Program,
    control: Option<Control>,
    /// Values that are recorded of calls.
    pub values: Option<&'a LiveValues>,
    page: Page,
    /// State of the threads when the modules change.
    carried: HashMap<RingOwner, LiveCarry>,
    /// Words that were read and not decoded yet, with the calls that were open.
    written: Vec<(Written, Vec<OpenCall>)>,
    /// Events that aren't shown yet, and the time of each thread's last one.
    queue: Vec<Happened>,
    latest: HashMap<RingOwner, u64>,
    /// How values lie in their captures.
    layouts: Layouts,
    /// Names that the program gave its threads.
    thread_names: Vec<ThreadName>,
    commands: Commands,
    /// The program's output, if it is shown.
    pub outputs: Option<Outputs>,
    begin: Instant,
    /// Events that the process had written when the session began.
    events: u64,
}

/// Threads whose rings are read.
type Threads<'t> = HashMap<RingOwner, LiveThread<'t>>;

/// Something to show.
struct Happened {
    /// Its time in ticks: no earlier than that of the thread's previous event.
    at: u64,
    what: ShownKind,
}

enum ShownKind {
    /// An event of a thread, and the text of a mark.
    Event(RingOwner, TimelineEvent, String),
    /// Output of the program.
    Said(Said),
    /// So many threads ended before they were read.
    Missed(u64),
}

/// Why a round ends.
enum Over {
    Modules,
    Because(String),
}

impl<'a> Session<'a> {
    /// A session that shows events since a time in ticks.
    pub fn new(
        arguments: &'a FollowArguments,
        program: &'a Program,
        control: Option<Control>,
        levels: Levels,
        since: u64,
    ) -> Session<'a> {
        let first = first_reading(program);
        // Times since the beginning of a program that we have started.
        let shown_since = if since == 0 { first.ticks } else { since };
        Session {
            arguments,
            program,
            control,
            values: None,
            page: Page::new(
                levels,
                arguments.clock,
                Room::of_terminal(arguments.names.length()),
                first,
                (since, shown_since),
            ),
            carried: HashMap::new(),
            written: Vec::new(),
            queue: Vec::new(),
            latest: HashMap::new(),
            layouts: Layouts::default(),
            thread_names: Vec::new(),
            commands: if arguments.command.is_empty() {
                Commands::begin(arguments.commands)
            } else {
                // It is the program's input.
                Commands(None)
            },
            outputs: None,
            begin: Instant::now(),
            events: if since == 0 { 0 } else { program.arena.events_written() },
        }
    }

    /// Waits. Returns whether a signal came.
    fn pause(signals: Option<&Signals>) -> bool {
        match signals {
            Some(signals) => signals.wait(PAUSE),
            None => {
                std::thread::sleep(PAUSE);
                false
            }
        }
    }

    /// Prints calls until the session ends. Returns why it ends.
    pub fn run(&mut self, follower: &mut Follower<'_>, signals: Option<&Signals>) -> Result<String, Failure> {
        loop {
            if let Over::Because(why) = self.round(follower, signals)? {
                return Ok(why);
            }
            self.record_more()?;
        }
    }

    /// Runs while the modules stay the same.
    fn round(&mut self, follower: &mut Follower<'_>, signals: Option<&Signals>) -> Result<Over, Failure> {
        let modules = self.program.module_count();
        let failed = |error: &dyn std::fmt::Display| self.program.failed(error);
        let mut bytes = Vec::new();
        // A trace without threads, which provides modules and names.
        write_kept(
            &self.program.arena,
            &clock::read(),
            &mut bytes,
            env!("CARGO_PKG_VERSION"),
            false,
            &mut |_| Ok(()),
        )
        .map_err(|error| failed(&error))?;
        let file = TraceFile::open(bytes).map_err(|error| failed(&error))?;
        let trace = Trace::open_in_ticks(&file).map_err(|error| failed(&error))?;
        let names = {
            let full_names = self.arguments.names.length() == NameLength::Whole;
            SymbolNames::new(&file, &trace, NameOptions { full_names, ..NameOptions::default() })
        };
        self.page.forget_names();
        self.layouts = Layouts::of(&trace);
        let told = file.recording().frames.first().map(|frames| frames.threads.clone()).unwrap_or_default();
        if told != self.thread_names {
            self.thread_names = told;
            self.page.set_titles(|owner| title(follower, owner, &self.thread_names));
        }
        let mut threads = Threads::new();
        let mut looks = 0_u32;
        // All events until then are in the queue, or were shown.
        let mut settled = 0;
        let over = loop {
            let has_ended = self.program.has_ended();
            let now = everycall_live::now_ticks();
            self.listen(has_ended);
            self.look(follower);
            // Events that were read may belong to modules that were loaded since.
            if self.program.module_count() != modules {
                break Over::Modules;
            }
            self.pair(&trace, &names, &mut threads);
            looks += 1;
            if looks.is_multiple_of(LOOKS_EACH) {
                self.page.read_clock();
            }
            self.finish(follower, has_ended, (&trace, &names), &mut threads);
            if has_ended {
                break Over::Because("has ended".to_owned());
            }
            self.show(Some(now), &trace, &names);
            self.print(Some(now))?;
            settled = now;
            if let Some(why) = self.is_enough() {
                break Over::Because(why);
            }
            if let Some(why) = self.obey()? {
                break Over::Because(why);
            }
            if Session::pause(signals) {
                // Events written so far belong to these modules.
                self.look(follower);
                self.pair(&trace, &names, &mut threads);
                break Over::Because("is no longer followed: interrupted".to_owned());
            }
        };
        let is_event = |happened: &&Happened| matches!(happened.what, ShownKind::Event(..));
        let events = self.queue.iter().filter(is_event).map(|happened| happened.at);
        let output = events.max().unwrap_or(0).max(settled);
        // Output may have been written after events that the next round makes of what was read.
        let (later, now) = match over {
            Over::Because(_) => (Vec::new(), std::mem::take(&mut self.queue)),
            Over::Modules => std::mem::take(&mut self.queue)
                .into_iter()
                .partition(|happened| matches!(happened.what, ShownKind::Said(_)) && happened.at > output),
        };
        self.queue = now;
        self.show(None, &trace, &names);
        self.queue = later;
        self.print(match over {
            Over::Because(_) => None,
            Over::Modules => Some(everycall_live::now_ticks()),
        })?;
        self.carried.extend(threads.iter().map(|(owner, thread)| (*owner, thread.carry())));
        Ok(over)
    }

    /// Reads new events.
    fn look(&mut self, follower: &mut Follower<'_>) {
        follower.look(&mut |follower, open, written| {
            self.page.has_titles |= follower.thread_count() > 1;
            if !self.page.has_title(written.owner) {
                let title = title(follower, written.owner, &self.thread_names);
                self.page.set_title(written.owner, title);
            }
            self.written.push((written, open_calls(open.iter().copied())));
        });
        let missed = follower.take_missed();
        if missed > 0 {
            self.queue.push(Happened { at: everycall_live::now_ticks(), what: ShownKind::Missed(missed) });
        }
    }

    /// Makes events of what was read.
    fn pair<'t>(&mut self, trace: &'t Trace<'_>, names: &'t SymbolNames<'_>, threads: &mut Threads<'t>) {
        let mut events = Vec::new();
        for (written, open) in std::mem::take(&mut self.written) {
            let owner = written.owner;
            let carried = &mut self.carried;
            let thread = threads
                .entry(owner)
                .or_insert_with(|| LiveThread::new(trace, 0, Some(names), carried.remove(&owner)));
            if let Some(count) = written.lost {
                thread.lose(count, &open, &mut events);
            }
            thread.had_happened_by(everycall_live::now_ticks());
            thread.read(&written.words, written.done, &open, &mut events);
            self.queue(owner, thread, (trace, names), &mut events);
        }
    }

    /// Threads that have ended, or all of them, write no more.
    fn finish<'t>(
        &mut self,
        follower: &Follower<'_>,
        all: bool,
        (trace, names): (&'t Trace<'_>, &'t SymbolNames<'_>),
        threads: &mut Threads<'t>,
    ) {
        let mut events = Vec::new();
        if all {
            // Those that did nothing since the modules have changed.
            for (owner, carry) in self.carried.drain() {
                threads.entry(owner).or_insert_with(|| LiveThread::new(trace, 0, Some(names), Some(carry)));
            }
        }
        let owners: Vec<RingOwner> = threads.keys().copied().collect();
        for owner in owners.into_iter().filter(|owner| all || follower.is_over(*owner)) {
            let Some(mut thread) = threads.remove(&owner) else { continue };
            let open = open_calls(follower.open_calls(owner).into_iter());
            thread.finish(&open, &mut events);
            self.queue(owner, &thread, (trace, names), &mut events);
        }
        self.carried.retain(|owner, _| !follower.is_over(*owner));
        let is_waiting = |owner: RingOwner| {
            self.queue.iter().any(|happened| matches!(happened.what, ShownKind::Event(of, ..) if of == owner))
        };
        let gone = |owner: RingOwner| follower.is_over(owner) && !is_waiting(owner);
        self.latest.retain(|owner, _| !gone(*owner));
        self.page.forget_threads(&gone);
    }

    fn queue(
        &mut self,
        owner: RingOwner,
        thread: &LiveThread<'_>,
        (trace, names): (&Trace<'_>, &SymbolNames<'_>),
        events: &mut Vec<TimelineEvent>,
    ) {
        for event in events.drain(..) {
            let said = match &event {
                TimelineEvent::Mark(mark) => thread.mark_text(
                    mark,
                    |location| names.constant_text(location),
                    |address| names.task(trace.locate_last(0, address)?),
                ),
                TimelineEvent::Begin(begin) => {
                    let values = begin.arguments.and_then(|number| thread.capture(number));
                    values.map_or_else(String::new, |(id, bytes)| {
                        let values = self.layouts.decode(id, &bytes).into_iter();
                        let name = |value: &_| name_of_value(trace, Some(names), value);
                        let values = values.map(|(key, value)| (key, value.with_names(&name))).collect();
                        let (values, site) = apart(values);
                        let site = site.map(|site| format!(" at {site}")).unwrap_or_default();
                        format!("({}){site}", arguments(&values))
                    })
                }
                TimelineEvent::Returned(returned) => {
                    let values = thread.capture(returned.result);
                    values.map_or_else(String::new, |(id, bytes)| {
                        format!(" {}", text_of_result(&self.layouts.decode(id, &bytes)))
                    })
                }
                _ => String::new(),
            };
            let latest = self.latest.entry(owner).or_default();
            *latest = event.at_ns().max(*latest);
            self.queue.push(Happened { at: *latest, what: ShownKind::Event(owner, event, said) });
        }
    }

    /// Reads the program's output.
    fn listen(&mut self, has_ended: bool) {
        let Some(outputs) = &mut self.outputs else { return };
        while let Some(said) = if has_ended { outputs.last() } else { outputs.next() } {
            self.queue.push(Happened { at: said.at, what: ShownKind::Said(said) });
        }
    }

    /// Shows events up to a time, in the order of time; all events if there is none.
    fn show(&mut self, until: Option<u64>, trace: &Trace<'_>, names: &SymbolNames<'_>) {
        self.queue.sort_by_key(|happened| happened.at);
        let is_over = |happened: &Happened| until.is_none_or(|until| happened.at <= until);
        let count = self.queue.partition_point(is_over);
        for Happened { what, at } in self.queue.drain(..count) {
            match what {
                ShownKind::Event(owner, event, said) => self.page.event(owner, &event, &said, trace, names),
                ShownKind::Missed(count) => self.page.missed(at, count),
                ShownKind::Said(said) => self.page.said(at, said.is_error, &said.bytes),
            }
        }
    }

    fn print(&mut self, until: Option<u64>) -> Result<(), Failure> {
        let text = self.page.take(until);
        if text.is_empty() {
            return Ok(());
        }
        let mut out = terminal::stdout(Escapes::Text);
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::writing_to_stdout)
    }

    /// Why the session ends, if a limit is reached.
    fn is_enough(&self) -> Option<String> {
        let time = self.arguments.time.map(Duration::from_nanos);
        if time.is_some_and(|time| self.begin.elapsed() >= time) {
            return Some("is no longer followed: the time is over".to_owned());
        }
        let events = self.program.arena.events_written().saturating_sub(self.events);
        self.arguments
            .max_events
            .filter(|most| events >= *most)
            .map(|_| format!("is no longer followed: {} events, and --max-events is reached", Count(events)))
    }

    /// Modules were loaded: follows their functions as well.
    fn record_more(&mut self) -> Result<(), Failure> {
        // If a module can't be read, the others stay as they are.
        let Ok(mut tables) = self.program.tables() else { return Ok(()) };
        let before = self.page.levels.functions;
        let set = self.page.levels.look_again(&mut tables)?;
        if self.page.levels.functions == before { Ok(()) } else { self.record(&set, &mut tables) }
    }

    fn record(&mut self, set: &[u8], tables: &mut [FunctionTable]) -> Result<(), Failure> {
        if self.control.is_none() && !self.program.has_ended() {
            // It was started with its functions, and more are needed now.
            match self.program.connect() {
                Ok(control) => self.control = Some(control),
                Err(failure) => say!("everycall: {}", failure.sentence()),
            }
        }
        let Some(control) = &mut self.control else { return Ok(()) };
        let sent = LiveValues::send(self.values, self.program, control, tables, true);
        match sent.and_then(|()| open_session(self.program, control, self.arguments, set)) {
            // The caller checks whether it has ended.
            Err(_) if self.program.has_ended() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Executes commands from standard input. Returns why the session ends, if it does.
    fn obey(&mut self) -> Result<Option<String>, Failure> {
        while let Some(line) = self.commands.next() {
            let line = line.trim();
            if matches!(line, "q" | "quit") {
                return Ok(Some("is no longer followed".to_owned()));
            }
            if line.is_empty() {
                continue;
            }
            let rule = match LevelRule::split(line, ' ') {
                Ok(rule) => rule,
                Err(error) => {
                    say!("everycall: `{}`: {error}; or quit", clean(line));
                    continue;
                }
            };
            let mut tables = self.program.tables()?;
            match Levels::new(self.page.levels.with(rule), &mut tables, false) {
                Ok((levels, set)) => {
                    self.page.levels = levels;
                    self.record(&set, &mut tables)?;
                }
                // Another pattern may match more.
                Err(failure) => say!("everycall: {}", failure.sentence()),
            }
        }
        Ok(None)
    }
}

/// The beginning of a thread's lines.
/// The title of a thread, whose name may be among those that the program gave.
fn title(follower: &Follower<'_>, owner: RingOwner, told: &[ThreadName]) -> String {
    let Some(header) = follower.header(owner) else { return "[?]".to_owned() };
    // The kernel knows the names of those that live.
    let lives = header.state == thread_state::USED;
    let name = if lives { follower.name(owner).unwrap_or_default() } else { header.name };
    let told = told.iter().rev().find(|told| header.fiber == 0 && told.tid == header.tid);
    let name = told.map_or(until_nul(&name), |told| &told.name);
    let name = clean(&String::from_utf8_lossy(name));
    let number = if header.fiber == 0 { header.tid.to_string() } else { format!("fiber {}", header.fiber) };
    if name.is_empty() { format!("[{number}]") } else { format!("[{number} {name}]") }
}

/// Lines of standard input.
struct Commands(Option<Receiver<String>>);

impl Commands {
    fn begin(is_asked: bool) -> Commands {
        // A process in the background would be stopped.
        let is_ours = || {
            let stdin = io::stdin();
            stdin.is_terminal()
                && rustix::termios::tcgetpgrp(&stdin).is_ok_and(|group| group == rustix::process::getpgrp())
        };
        if !is_asked && !is_ours() {
            return Commands(None);
        }
        let (send, receive) = channel();
        let read = move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        };
        let reader = std::thread::Builder::new().name("commands".to_owned()).spawn(read);
        Commands(reader.is_ok().then_some(receive))
    }

    fn next(&mut self) -> Option<String> {
        match self.0.as_ref()?.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.0 = None;
                None
            }
        }
    }
}
