//! `everycall functions`: which functions can be recorded, and which are on.

use std::path::Path;
use std::process::ExitCode;

use everycall_control::{SelectionSet, resolve, selection_of};
use everycall_io::say;
use everycall_patterns::{FunctionTable, Selection};
use everycall_units::{Count, Several};
use serde_json::{Value, json};

use crate::arguments::{FunctionsArguments, TextFormat};
use crate::control::{self, Program};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{lines, print};

/// Runs the verb.
pub fn run(arguments: &FunctionsArguments) -> Result<ExitCode, Failure> {
    let (mut tables, now) = tables(&arguments.of)?;
    let mut wanted = Selection::all_or_none(arguments.patterns.is_empty());
    let added = control::add(&mut wanted, &arguments.patterns, true)?;
    let (_, outcome) = resolve(&wanted, &mut tables);
    control::all_match(&wanted, &added, &outcome, &tables)?;
    let mut rows =
        vec![["STATE", "SITES", "SIZE", "LOOP", "ADDRESS", "SOURCE", "FUNCTION"].map(str::to_owned)];
    let mut objects = Vec::new();
    for table in &mut tables {
        let shown = wanted.resolve(table).is_on;
        let states = now.as_ref().map(|now| now.resolve(table).is_on);
        for (index, _) in shown.iter().enumerate().filter(|(_, is_shown)| **is_shown) {
            let is_on = states.as_ref().and_then(|states| states.get(index).copied());
            let Some(function) = Function::of(table, index, is_on) else { continue };
            match arguments.format {
                TextFormat::Text => rows.push(function.row()),
                TextFormat::Json => objects.push(function.object()),
            }
        }
    }
    match arguments.format {
        TextFormat::Text => {
            print(&lines(&rows, &[0, 3, 5, 6]))?;
            say!(
                "everycall: {} of {} with {}",
                Count(outcome.on.functions),
                Several(outcome.all.functions, "function", "functions"),
                Several(outcome.all.sites, "site", "sites")
            );
        }
        TextFormat::Json => print(&format!("{:#}\n", json!({ "functions": objects })))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The functions of a process or a file and, for a process, which are recorded.
fn tables(of: &str) -> Result<(Vec<FunctionTable>, Option<Selection>), Failure> {
    if let Ok(pid) = of.parse::<u32>()
        && !Path::new(of).exists()
    {
        let program = Program::attach(pid)?;
        let tables = program.tables()?;
        let now = if program.arena.is_controlled() {
            let mut control = program.connect()?;
            let (reply, base) = control.now().map_err(|error| program.failed(&error))?;
            match SelectionSet::rules_of(&base) {
                _ if reply.on == 0 => Selection::all_or_none(false),
                Some(set) => selection_of(&set),
                None => Selection::all_or_none(true),
            }
        } else {
            Selection::all_or_none(program.arena.is_tracing())
        };
        return Ok((tables, Some(now)));
    }
    let table = FunctionTable::open(Path::new(of)).map_err(|error| Failure::new(exit_code::FAILED, error))?;
    Ok((vec![table], None))
}

struct Function {
    state: Option<bool>,
    sites: u32,
    instructions: u32,
    has_loop: bool,
    address: u64,
    source: Option<String>,
    name: String,
    linkage_name: String,
}

impl Function {
    fn of(table: &mut FunctionTable, index: usize, state: Option<bool>) -> Option<Function> {
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

    fn row(&self) -> [String; 7] {
        [
            self.state.map_or("", |on| if on { "on" } else { "off" }).to_owned(),
            self.sites.to_string(),
            self.instructions.to_string(),
            if self.has_loop { "yes" } else { "" }.to_owned(),
            format!("{:#x}", self.address),
            self.source.clone().unwrap_or_default().escape_debug().to_string(),
            self.name.escape_debug().to_string(),
        ]
    }

    fn object(&self) -> Value {
        json!({
            "name": self.name,
            "linkage_name": self.linkage_name,
            "on": self.state,
            "sites": self.sites,
            "instructions": self.instructions,
            "has_loop": self.has_loop,
            "address": self.address,
            "source": self.source,
        })
    }
}
