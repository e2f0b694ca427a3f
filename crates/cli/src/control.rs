//! `everycall enable`, `disable`, `trace` and `sessions`: what a running program records.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use everycall_control::{Outcome, SelectionSet, resolve, selection_of};
use everycall_format::arena::{ModuleEntry, module_flags, module_state};
use everycall_format::control::{Reply, status};
use everycall_format::{stamp, until_nul};
use everycall_io::say;
use everycall_io::terminal::Escapes;
use everycall_live::{Control, LiveArena, ProcessFacts};
use everycall_patterns::{FunctionTable, NamePattern, Rule, Selection, TableError};
use everycall_recorder::SharedTriggers;
use everycall_triggers::{Numbers, Trigger, numbers_beside};
use everycall_units::{Count, Duration as Shown, Several};
use everycall_untouched::Hooked;
use serde_json::json;

use crate::arguments::{EventTimes, SelectArguments, SessionsArguments, TextFormat, ValueArguments};
use crate::captures::LiveValues;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{clean, lines, print, print_as};
use crate::trigger::Signals;
use crate::untouched::Choice;
use crate::untouched::attach::{Start, attach_for};
use crate::written::WHY_EXACT;

/// Time between two checks whether a process has loaded libraries.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a process may take to notice a client.
const PATIENCE: Duration = Duration::from_secs(5);

/// `enable` and `disable`.
pub fn select(
    arguments: &SelectArguments,
    clock: Option<EventTimes>,
    values: &ValueArguments,
    is_in: bool,
) -> Result<ExitCode, Failure> {
    let values = LiveValues::of(values, arguments.quiet)?;
    let values = values.as_ref();
    let named = LiveValues::patterns(values, &arguments.patterns);
    // There is nothing to disable in a process that isn't traced.
    let program = match is_in {
        true => Program::attach_or_hook(arguments.pid, &Choice::of_clients(&named)?)?,
        false => Program::attach(arguments.pid)?,
    };
    if arguments.patterns.is_empty() {
        let mut control = if values.is_some() { program.connect_to_record()? } else { program.connect()? };
        if values.is_some() {
            LiveValues::send(values, &program, &mut control, &mut program.tables()?, false)?;
        }
        let begin = Instant::now();
        let reply = control
            .set_with_values(is_in, clock.map(EventTimes::stamps), &[])
            .map_err(|error| program.failed(&error))?;
        if !arguments.quiet {
            let what = if is_in { "all functions are recorded" } else { "no function is recorded" };
            say!("everycall: {program}: {what}, {}", sites_on(&reply, begin.elapsed()));
        }
        notes(&program, &reply);
        LiveValues::say_missing(values, &program, &reply);
        clock_note(&program, clock);
        return Ok(ExitCode::SUCCESS);
    }
    let mut tables = program.tables()?;
    let mut control = if values.is_some() { program.connect_to_record()? } else { program.connect()? };
    let (now, base) = control.now().map_err(|error| program.failed(&error))?;
    let mut selection = match SelectionSet::rules_of(&base) {
        _ if arguments.only => Selection::all_or_none(!is_in),
        _ if now.on == 0 => Selection::all_or_none(false),
        Some(set) => selection_of(&set),
        None => Selection::all_or_none(true),
    };
    let patterns = LiveValues::patterns(values, &arguments.patterns);
    let added = add(&mut selection, &patterns, is_in)?;
    let modules = program.module_count();
    let (set, outcome) = resolve(&selection, &mut tables);
    if !arguments.later {
        all_match(&selection, &added, &outcome, &tables)?;
    }
    let bytes = set.bytes().map_err(|error| Failure::new(exit_code::USAGE, error))?;
    LiveValues::send(values, &program, &mut control, &mut tables, arguments.later)?;
    let begin = Instant::now();
    let clock_wanted = clock.map(EventTimes::stamps);
    // Values that others have chosen stay, unless all that is recorded is chosen anew.
    let reply = match values.is_some() || arguments.only {
        true => control.set_with_values(true, clock_wanted, &bytes),
        false => control.set(true, clock_wanted, &bytes),
    };
    let reply = reply.map_err(|error| program.failed(&error))?;
    if !arguments.quiet {
        print_matched(&selection, &added, &outcome);
        say!(
            "everycall: {program}: recording {} of {}, {}",
            Count(outcome.on.functions),
            Several(outcome.all.functions, "function", "functions"),
            sites_on(&reply, begin.elapsed())
        );
    }
    notes(&program, &reply);
    LiveValues::say_missing(values, &program, &reply);
    clock_note(&program, clock);
    if arguments.later {
        apply_later(&program, &mut control, modules, values, arguments.quiet)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Applies the selection to libraries as they are loaded, until the process ends or a signal ends
/// this command. It is the selection that holds then, so that others may change it meanwhile.
fn apply_later(
    program: &Program,
    control: &mut Control,
    mut modules: u64,
    values: Option<&LiveValues>,
    quiet: bool,
) -> Result<(), Failure> {
    let signals = Signals::begin();
    while !signals.wait(PAUSE) && !program.has_ended() {
        let now = program.module_count();
        if now == modules {
            continue;
        }
        modules = now;
        match apply_again(program, control, values) {
            Ok(Some(outcome)) if !quiet => say!(
                "everycall: {program}: recording {} of {}",
                Count(outcome.on.functions),
                Several(outcome.all.functions, "function", "functions")
            ),
            Ok(_) => {}
            Err(_) if program.has_ended() => break,
            Err(failure) => return Err(failure),
        }
    }
    signals.end();
    Ok(())
}

/// Resolves a process's selection again. Returns what it now selects, if that has changed.
fn apply_again(
    program: &Program,
    control: &mut Control,
    values: Option<&LiveValues>,
) -> Result<Option<Outcome>, Failure> {
    let (_, base) = control.now().map_err(|error| program.failed(&error))?;
    let Some(rules) = SelectionSet::rules_of(&base) else { return Ok(None) };
    let mut tables = program.tables()?;
    let (set, outcome) = resolve(&selection_of(&rules), &mut tables);
    let bytes = set.bytes().map_err(|error| Failure::new(exit_code::USAGE, error))?;
    if bytes == base {
        return Ok(None);
    }
    LiveValues::send(values, program, control, &mut tables, true)?;
    let reply = match values {
        Some(_) => control.set_with_values(true, None, &bytes),
        None => control.set(true, None, &bytes),
    };
    reply.map_err(|error| program.failed(&error))?;
    Ok(Some(outcome))
}

/// `sessions`.
pub fn sessions(arguments: &SessionsArguments) -> Result<ExitCode, Failure> {
    let program = Program::attach(arguments.pid)?;
    let (reply, sessions) = match program.arena.is_controlled() {
        false => (None, Vec::new()),
        true => {
            let mut control = program.connect()?;
            let (reply, sessions) = control.sessions().map_err(|error| program.failed(&error))?;
            (Some(reply), sessions)
        }
    };
    let owner = |pid: u32| ProcessFacts::of(pid).map_or_else(|_| "?".to_owned(), |facts| facts.program());
    let name = |name: &[u8]| String::from_utf8_lossy(until_nul(name)).into_owned();
    if arguments.format == TextFormat::Json {
        let rows: Vec<_> = sessions
            .iter()
            .map(|session| {
                json!({
                    "name": name(&session.name), "owner_pid": session.owner, "owner": owner(session.owner),
                    "active": session.active != 0, "sites": session.sites,
                })
            })
            .collect();
        print_as(Escapes::Json, &format!("{:#}\n", json!({ "pid": arguments.pid, "sessions": rows })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["OWNER", "PROGRAM", "STATE", "SITES", "NAME"].map(str::to_owned)];
    rows.extend(sessions.iter().map(|session| {
        [
            session.owner.to_string(),
            clean(&owner(session.owner)),
            if session.active == 0 { "staged" } else { "active" }.to_owned(),
            Count(session.sites).to_string(),
            clean(&name(&session.name)),
        ]
    }));
    if rows.len() > 1 {
        print(&lines(&rows, &[1, 2, 4]))?;
    } else {
        say!(
            "everycall: {program} has no sessions; `everycall trace {} PATTERN --for 10s` opens one",
            arguments.pid
        );
    }
    if let Some(reply) = reply {
        notes(&program, &reply);
    }
    Ok(ExitCode::SUCCESS)
}

/// A running program.
pub struct Program {
    pid: u32,
    pub arena: Arc<LiveArena>,
    /// Whether it has ended, where that is known because we have started it.
    over: Option<Arc<AtomicBool>>,
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", clean(&self.arena.process().program()), self.pid)
    }
}

impl Program {
    /// Connects to process `pid`.
    pub fn attach(pid: u32) -> Result<Program, Failure> {
        let arena = everycall_live::attach(pid)
            .map_err(|error| Failure::new(exit_code::FAILED, format!("process {pid}: {error}")))?;
        Ok(Program { pid, arena: Arc::new(arena), over: None })
    }

    /// Connects to process `pid`. One that isn't traced gets hooks for these functions, if that is
    /// possible, and one whose hooks were taken out gets them back.
    pub fn attach_or_hook(pid: u32, choice: &Choice) -> Result<Program, Failure> {
        attach_for(pid, choice, Start::Off)?;
        Program::attach(pid)
    }

    /// Records all functions from now on, or none.
    pub fn switch(&self, is_on: bool) -> Result<(), Failure> {
        self.connect()?.set(is_on, None, &[]).map(|_| ()).map_err(|error| self.failed(&error))
    }

    /// A process that we have started; somebody else sets `over` when it has ended.
    pub fn started(pid: u32, arena: LiveArena, over: Arc<AtomicBool>) -> Program {
        Program { pid, arena: Arc::new(arena), over: Some(over) }
    }

    pub fn failed(&self, reason: &dyn std::fmt::Display) -> Failure {
        Failure::new(exit_code::FAILED, format!("process {}: {reason}", self.pid))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Connects for a verb that needs recorded calls.
    pub fn connect_to_record(&self) -> Result<Control, Failure> {
        if self.arena.is_counting() {
            return Err(self.failed(&format_args!(
                "it counts its calls and doesn't record them; `everycall count {}` reads the counts",
                self.pid
            )));
        }
        self.connect()
    }

    pub fn connect(&self) -> Result<Control, Failure> {
        Control::connect(&self.arena, PATIENCE).map_err(|error| self.failed(&error))
    }

    pub fn has_ended(&self) -> bool {
        if let Some(over) = &self.over {
            return over.load(Ordering::Acquire);
        }
        ProcessFacts::of(self.pid)
            .map_or(true, |facts| facts.has_ended || facts.started != self.arena.process().started)
    }

    /// The numbers of the conditions of triggers: those that no others have there.
    pub fn numbers_of(&self, triggers: &[Trigger]) -> Result<Vec<Numbers>, Failure> {
        let taken = everycall_triggers::conditions_in_use(&self.arena, None);
        numbers_beside(triggers, taken).map_err(|error| match taken {
            0 => Failure::new(exit_code::USAGE, error),
            _ => self.failed(&format_args!(
                "{error}. Triggers that are armed there already count, too; `everycall sessions {}` lists \
                 them, but for those of `record`",
                self.pid
            )),
        })
    }

    /// Checks that nobody has armed conditions with these numbers at the same time. `area`: ours.
    pub fn check_numbers(&self, numbers: &[Numbers], area: u32) -> Result<(), Failure> {
        let own = numbers.iter().fold(0, |all, numbers| all | numbers.bits());
        match everycall_triggers::conditions_in_use(&self.arena, Some(area)) & own {
            0 => Ok(()),
            _ => {
                Err(self
                    .failed(&"another command armed triggers with conditions at the same moment; try again"))
            }
        }
    }

    /// Triggers that were armed in it.
    pub fn armed(&self, area: u32) -> Result<SharedTriggers, Failure> {
        everycall_triggers::armed(&self.arena, area)
            .ok_or_else(|| self.failed(&"it has no room for triggers"))
    }

    /// A number that grows as it loads modules, and as it names frames by id.
    pub fn module_count(&self) -> u64 {
        self.arena.loaded_modules() + self.arena.frame_name_bytes()
    }

    /// The frames by id that it has named.
    pub fn frames(&self) -> Option<FunctionTable> {
        FunctionTable::of_frames(&self.arena.frame_names_since(0))
    }

    /// The functions of its modules that are loaded, and its frames by id.
    pub fn tables(&self) -> Result<Vec<FunctionTable>, Failure> {
        let mut tables = Vec::new();
        let mut troubles = Vec::new();
        for (module, path) in self.arena.modules() {
            let is_traced = module.flags & module_flags::UNTRACED == 0;
            if module.state != module_state::COMPLETE || module.unloaded_ticks != 0 || !is_traced {
                continue;
            }
            match self.table(&module, &path) {
                Ok(table) => tables.push(table),
                Err(trouble) => troubles.push(trouble),
            }
        }
        tables.extend(self.frames());
        match (tables.is_empty(), troubles.as_slice()) {
            (true, [first, ..]) => return Err(self.failed(first)),
            (true, []) => return Err(self.failed(&"it has loaded no module with traced functions")),
            _ => {}
        }
        for trouble in troubles {
            say!("everycall: {trouble}; its functions are unchanged");
        }
        Ok(tables)
    }

    /// The functions with hooks of a module that was built without them.
    fn as_it_is(&self, module: &ModuleEntry, path: &Path) -> Result<FunctionTable, String> {
        let plan = everycall_plans::of_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
        if module.build_id.get(..module.build_id_length as usize) != Some(&plan.build_id[..]) {
            return Err(format!("{} has changed since the process loaded it", path.display()));
        }
        let hooked = self.arena.origins(module.trampolines);
        let functions = plan.functions.iter().filter(|function| hooked.contains(&function.start));
        let sizes = functions.map(|function| (function.start, function.size));
        FunctionTable::of_functions(path, sizes).map_err(|error| error.to_string())
    }

    /// How many functions of the modules that were built without hooks have some, and why others
    /// have none.
    pub fn hooked(&self) -> Vec<(PathBuf, Hooked)> {
        let is_one = |module: &ModuleEntry| {
            module.flags & module_flags::TRAMPOLINES != 0
                && module.state == module_state::COMPLETE
                && module.unloaded_ticks == 0
        };
        let modules = self.arena.modules().into_iter().filter(|(module, _)| is_one(module));
        let of = |(module, path): (ModuleEntry, Vec<u8>)| {
            let path = PathBuf::from(OsString::from_vec(path));
            let build_id = module.build_id.get(..module.build_id_length as usize)?;
            let file = Hooked::of(&self.inside(&path), build_id, &self.arena.origins(module.trampolines));
            Some((path, file.ok()??))
        };
        modules.filter_map(of).collect()
    }

    /// Where a path of the process is found: in a container, it names another file than here.
    fn inside(&self, path: &Path) -> PathBuf {
        let mut inside = PathBuf::from(format!("/proc/{}/root", self.pid));
        inside.push(path.strip_prefix("/").unwrap_or(path));
        if inside.exists() { inside } else { path.to_owned() }
    }

    /// The functions of one module, if its file is still the loaded one.
    fn table(&self, module: &ModuleEntry, path: &[u8]) -> Result<FunctionTable, String> {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        // In a container, these paths name other files than here.
        let mut inside = PathBuf::from(format!("/proc/{}/root", self.pid));
        inside.push(path.strip_prefix("/").unwrap_or(path));
        if module.flags & module_flags::TRAMPOLINES != 0 {
            return self.as_it_is(module, if inside.exists() { &inside } else { path });
        }
        let table = FunctionTable::open(&inside)
            .or_else(|error| match error {
                TableError::Unreadable(..) => FunctionTable::open(path),
                other => Err(other),
            })
            .map_err(|error| error.to_string())?;
        let length = module.build_id_length as usize;
        if length == 0 {
            return Err(format!(
                "{} has no build id, by which a running program's functions are recognized; link it with -Wl,--build-id",
                path.display()
            ));
        }
        if module.build_id.get(..length) != Some(table.build_id()) {
            return Err(format!(
                "{} has changed since the process loaded it; restart the process",
                path.display()
            ));
        }
        Ok(table)
    }
}

/// Adds patterns to a selection. Returns their rules' texts.
pub fn add(selection: &mut Selection, patterns: &[String], is_in: bool) -> Result<Vec<String>, Failure> {
    let before: Vec<String> = selection.rules().iter().map(ToString::to_string).collect();
    for pattern in patterns {
        selection.add(pattern, is_in).map_err(|error| Failure::new(exit_code::USAGE, error))?;
    }
    let all = selection.rules().iter().map(ToString::to_string);
    let sign = if is_in { '+' } else { '-' };
    let named: Vec<String> = patterns.iter().map(|pattern| format!("{sign} {}", pattern.trim())).collect();
    Ok(all.filter(|rule| !before.contains(rule) || named.contains(rule)).collect())
}

/// Fails if one of these rules matches no function.
pub fn all_match(
    selection: &Selection,
    added: &[String],
    outcome: &Outcome,
    tables: &[FunctionTable],
) -> Result<(), Failure> {
    match without_match(selection, added, outcome, tables).next() {
        Some(sentence) => Err(Failure::new(exit_code::FAILED, sentence)),
        None => Ok(()),
    }
}

/// A sentence for each of these rules that matches no function.
pub fn without_match(
    selection: &Selection,
    added: &[String],
    outcome: &Outcome,
    tables: &[FunctionTable],
) -> impl Iterator<Item = String> {
    let all = selection.rules().iter().zip(&outcome.matched);
    let none = all.filter(|(rule, matched)| matched.functions == 0 && added.contains(&rule.to_string()));
    none.map(|(rule, _)| nothing_matches(rule, tables))
}

fn nothing_matches(rule: &Rule, tables: &[FunctionTable]) -> String {
    let names: Vec<String> = tables.iter().flat_map(FunctionTable::plain_names).collect();
    nothing_like(&rule.pattern, &Selection::near(rule, &names), tables)
}

/// A sentence for a name that matches no function.
pub fn nothing_named(name: &NamePattern, tables: &[FunctionTable]) -> String {
    let names: Vec<String> = tables.iter().flat_map(FunctionTable::plain_names).collect();
    nothing_like(name, &name.near(names.iter().map(String::as_str)), tables)
}

fn nothing_like(pattern: &dyn std::fmt::Display, near: &[String], tables: &[FunctionTable]) -> String {
    let near = match near {
        [] => "; `everycall functions PID` or `everycall functions FILE` lists them".to_owned(),
        [one] => format!("; there is {one}"),
        [some @ .., last] => format!("; there are {} and {last}", some.join(", ")),
    };
    let files: Vec<String> = tables.iter().map(|table| table.path().display().to_string()).collect();
    if files.is_empty() {
        return format!("`{pattern}` matches nothing yet");
    }
    format!("no traced function in {} matches `{pattern}`{near}", files.join(", "))
}

/// Prints how many functions each of these rules matches.
pub fn print_matched(selection: &Selection, added: &[String], outcome: &Outcome) {
    for (rule, matched) in selection.rules().iter().zip(&outcome.matched) {
        if added.contains(&rule.to_string()) {
            // Frames by id, and hooks that are always called, have none.
            let sites = (matched.sites > 0).then_some(Several(matched.sites, "site", "sites"));
            say!(
                "everycall: `{}` matches {}{}",
                rule.pattern,
                Several(matched.functions, "function", "functions"),
                sites.map(|sites| format!(" with {sites}")).unwrap_or_default()
            );
        }
    }
}

fn sites_on(reply: &Reply, took: Duration) -> String {
    let took = Shown { ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) };
    match reply.sites_on + reply.sites_off {
        // Hooks that are always called have no sites to switch.
        0 => format!("within {took}"),
        all => format!("{} of {} sites are on, switched within {took}", Count(reply.sites_on), Count(all)),
    }
}

/// Says that times are exact although that wasn't wanted.
pub fn clock_note(program: &Program, wanted: Option<EventTimes>) {
    let wanted = wanted.map_or(stamp::EXACT, EventTimes::stamps);
    if wanted != stamp::EXACT && program.arena.header().stamps != wanted {
        say!("everycall: all events of {program} have times of their own, and cost as much: {WHY_EXACT}");
    }
}

/// Prints what limits the selection's effect.
pub fn notes(program: &Program, reply: &Reply) {
    if reply.status == status::DISABLED {
        say!(
            "everycall: {program} called everycall_disable(): nothing is recorded until it calls everycall_enable()"
        );
    }
    if reply.foreign > 0 {
        say!(
            "everycall: {} not switched: their code was changed by something else, such as a debugger's \
            breakpoints; remove those and repeat the command",
            Several(reply.foreign, "site", "sites")
        );
    }
    if reply.failed > 0 {
        say!(
            "everycall: {} could not be switched: the process isn't allowed to change its code; start it without MemoryDenyWriteExecute and seccomp \
             filters of mprotect",
            Several(reply.failed, "site", "sites")
        );
    }
}
