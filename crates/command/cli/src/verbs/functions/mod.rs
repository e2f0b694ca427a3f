//! `everycall functions`: which functions can be recorded, and which are on.

mod untouched;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use everycall_control::{SelectionSet, resolve, selection_of};
use everycall_export::NameLength;
use everycall_format::control_socket::CONNECTIONS;
use everycall_format::until_nul;
use everycall_io::say;
use everycall_io::terminal::Escapes;
use everycall_patterns::{FunctionTable, Selection};
use everycall_symbols::short_name;
use everycall_units::{Count, Several};
use everycall_untouched::Hooked;
use serde_json::{Value, json};

use crate::arguments::{FunctionsArguments, TextFormat};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{clean, lines, print, print_as};
use crate::rules::{add, all_match};
use crate::running::Program;
use crate::untouched::hooks_of;

/// Runs the verb.
pub fn run(arguments: &FunctionsArguments) -> Result<ExitCode, Failure> {
    if arguments.untouched {
        let files = std::iter::once(&arguments.of).chain(&arguments.patterns);
        return untouched::run(files.map(Path::new), arguments.format);
    }
    let (mut tables, now, hooked) = tables(&arguments.of)?;
    let mut recorded = 0;
    let mut wanted = Selection::all_or_none(arguments.patterns.is_empty());
    let added = add(&mut wanted, &arguments.patterns, true)?;
    let (_, outcome) = resolve(&wanted, &mut tables);
    all_match(&wanted, &added, &outcome, &tables)?;
    let mut rows =
        vec![["STATE", "SITES", "SIZE", "LOOP", "ADDRESS", "SOURCE", "FUNCTION"].map(str::to_owned)];
    let mut named = Vec::new();
    let mut objects = Vec::new();
    for table in &mut tables {
        let shown = wanted.resolve(table).is_on;
        let states = now.as_ref().map(|now| Recorded::of(now, table));
        for (index, _) in shown.iter().enumerate().filter(|(_, is_shown)| **is_shown) {
            let state = states.as_ref().map(|states| states.state(index));
            let Some(function) = Function::of(table, index, state) else { continue };
            recorded += usize::from(function.state.as_ref().is_some_and(State::is_on));
            match arguments.format {
                TextFormat::Text => {
                    rows.push(function.row(arguments.names.length()));
                    named.push(function.sessions());
                }
                TextFormat::Json => objects.push(function.object()),
            }
        }
    }
    match arguments.format {
        TextFormat::Text => {
            print(&text(&rows, &named))?;
            let of_them = now.map(|_| format!("; {} recorded", Count(recorded as u64))).unwrap_or_default();
            say!(
                "everycall: {} of {} with {}{of_them}",
                Count(outcome.on.functions),
                Several(outcome.all.functions, "function", "functions"),
                Several(outcome.all.sites, "site", "sites")
            );
            for (path, file) in &hooked {
                let (hooks, reasons) = hooks_of(file);
                let lines: Vec<String> = std::iter::once(hooks).chain(reasons).collect();
                say!("everycall: {}: {}", clean(&path.display().to_string()), lines.join("\n  "));
            }
        }
        TextFormat::Json => print_as(Escapes::Json, &format!("{:#}\n", json!({ "functions": objects })))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The table, with a column of sessions if there are any. `named` has those of each row but the
/// first.
fn text(rows: &[[String; 7]], named: &[String]) -> String {
    if named.iter().all(String::is_empty) {
        return lines(rows, &[0, 3, 5, 6]);
    }
    let named = std::iter::once("SESSIONS").chain(named.iter().map(String::as_str));
    let with = |([state, rest @ ..], named): (&[String; 7], &str)| {
        let [sites, size, has_loop, address, source, name] = rest.clone();
        [state.clone(), named.to_owned(), sites, size, has_loop, address, source, name]
    };
    let rows: Vec<[String; 8]> = rows.iter().zip(named).map(with).collect();
    lines(&rows, &[0, 1, 4, 6, 7])
}

/// The current selections of a process.
struct Now {
    base: Selection,
    /// Active sessions, with their names.
    sessions: Vec<(String, Selection)>,
}

impl Now {
    fn of(program: &Program) -> Result<Now, Failure> {
        let mut now = Now { base: Selection::all_or_none(program.arena.is_tracing()), sessions: Vec::new() };
        if !program.arena.is_controlled() {
            return Ok(now);
        }
        let mut control = program.connect()?;
        let (reply, base) = control.now().map_err(|error| program.failed(&error))?;
        now.base = match SelectionSet::rules_of(&base) {
            _ if reply.on == 0 => Selection::all_or_none(false),
            Some(set) => selection_of(&set),
            None => Selection::all_or_none(true),
        };
        for number in 0..CONNECTIONS {
            let found = control.session(number).map_err(|error| program.failed(&error))?;
            let Some((session, set)) = found else { break };
            if let Some(set) = SelectionSet::rules_of(&set).filter(|_| session.active != 0) {
                let name = String::from_utf8_lossy(until_nul(&session.name)).into_owned();
                now.sessions.push((name, selection_of(&set)));
            }
        }
        Ok(now)
    }
}

/// Which functions of one file are recorded.
struct Recorded<'a> {
    base: Vec<bool>,
    sessions: Vec<(&'a str, Vec<bool>)>,
}

impl Recorded<'_> {
    fn of<'a>(now: &'a Now, table: &mut FunctionTable) -> Recorded<'a> {
        Recorded {
            base: now.base.resolve(table).is_on,
            sessions: now
                .sessions
                .iter()
                .map(|(name, selection)| (name.as_str(), selection.resolve(table).is_on))
                .collect(),
        }
    }

    fn state(&self, index: usize) -> State {
        let is_on = |list: &[bool]| list.get(index).copied().unwrap_or_default();
        let sessions = self.sessions.iter().filter(|(_, list)| is_on(list));
        State { base: is_on(&self.base), sessions: sessions.map(|(name, _)| (*name).to_owned()).collect() }
    }
}

/// Whether a function of a process is recorded.
struct State {
    /// By the base selection.
    base: bool,
    /// By these sessions.
    sessions: Vec<String>,
}

impl State {
    fn is_on(&self) -> bool {
        self.base || !self.sessions.is_empty()
    }
}

/// Functions, which are recorded, and what is known of files that were built without hooks.
type Found = (Vec<FunctionTable>, Option<Now>, Vec<(PathBuf, Hooked)>);

/// The functions of a process or a file and, for a process, which are recorded.
fn tables(of: &str) -> Result<Found, Failure> {
    if let Ok(pid) = of.parse::<u32>()
        && !Path::new(of).exists()
    {
        let program = Program::attach(pid)?;
        return Ok((program.tables()?, Some(Now::of(&program)?), program.hooked()));
    }
    let table = FunctionTable::open(Path::new(of)).map_err(|error| Failure::new(exit_code::FAILED, error))?;
    Ok((vec![table], None, Vec::new()))
}

struct Function {
    state: Option<State>,
    sites: u32,
    instructions: u32,
    has_loop: bool,
    address: u64,
    source: Option<String>,
    name: String,
    linkage_name: String,
}

impl Function {
    fn of(table: &mut FunctionTable, index: usize, state: Option<State>) -> Option<Function> {
        let code = table.code(index);
        let source = table.source(index).map(|(path, line)| match line {
            Some(line) => format!("{}:{line}", path.display()),
            None => path.display().to_string(),
        });
        let function = table.functions().get(index)?;
        Some(Function {
            state,
            sites: function.sites,
            instructions: code.instructions,
            has_loop: code.has_loop,
            address: function.start,
            source,
            name: function.name(),
            linkage_name: function.linkage_name.clone(),
        })
    }

    fn row(&self, names: NameLength) -> [String; 7] {
        let name = match names {
            NameLength::Fitting => names.shown(&clean(&short_name(&self.name)), None),
            NameLength::Whole => clean(&self.name),
        };
        [
            self.state.as_ref().map_or("", |state| if state.is_on() { "on" } else { "off" }).to_owned(),
            self.sites.to_string(),
            self.instructions.to_string(),
            if self.has_loop { "yes" } else { "" }.to_owned(),
            format!("{:#x}", self.address),
            clean(self.source.as_deref().unwrap_or_default()),
            name,
        ]
    }

    /// Names of the sessions that record it.
    fn sessions(&self) -> String {
        let names = self.state.as_ref().map(|state| state.sessions.join(", "));
        clean(&names.unwrap_or_default())
    }

    fn object(&self) -> Value {
        json!({
            "name": self.name,
            "linkage_name": self.linkage_name,
            "on": self.state.as_ref().map(State::is_on),
            "sessions": self.state.as_ref().map(|state| &state.sessions),
            "sites": self.sites,
            "instructions": self.instructions,
            "has_loop": self.has_loop,
            "address": self.address,
            "source": self.source,
        })
    }
}
