//! Programs that run and are traced: their arenas, the connection to them, their functions.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everycall_format::arena::{ModuleEntry, module_flags, module_state};
use everycall_format::control_socket::{Reply, status};
use everycall_format::stamp;
use everycall_io::say;
use everycall_live::{Control, LiveArena, LiveError, ProcessFacts, Reached};
use everycall_patterns::{FunctionTable, TableError};
use everycall_recorder::SharedTriggers;
use everycall_triggers::{Numbers, Trigger, numbers_beside};
use everycall_units::Several;
use everycall_untouched::Hooked;

use crate::arguments::EventTimes;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::clean;
use crate::recording::written::WHY_EXACT;

/// How long a process may take to notice a client.
const PATIENCE: Duration = Duration::from_secs(5);

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
        Ok(Program::running(pid, arena))
    }

    /// A process whose memory was found.
    pub fn running(pid: u32, arena: LiveArena) -> Program {
        Program { pid, arena: Arc::new(arena), over: None }
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
        if self.arena.is_counting() || self.arena.counts_values() {
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

/// Says that times are exact although that wasn't wanted.
pub fn clock_note(program: &Program, wanted: Option<EventTimes>) {
    let wanted = wanted.map_or(stamp::EXACT, EventTimes::stamps);
    if wanted != stamp::EXACT && program.arena.header().stamps != wanted {
        say!("everycall: all events of {program} have times of their own, and cost as much: {WHY_EXACT}");
    }
}

/// Why the memory of process `pid` can't be reached. Of a recorder, it says which process to name
/// with `verb` instead.
pub fn not_attached(pid: u32, verb: &str, error: &LiveError) -> Failure {
    let (listed, _) = everycall_live::list();
    let recorded = listed.iter().filter(|listed| listed.reached == Reached::Recorder(pid));
    let programs: Vec<String> = recorded.map(|listed| listed.process.pid.to_string()).collect();
    let reason = if programs.is_empty() {
        error.to_string()
    } else {
        let of = if programs.len() == 1 { "its program" } else { "its programs" };
        let what = if verb == "snapshot" { "take a snapshot of" } else { "name" };
        let programs = programs.join(" ");
        format!("this is `everycall record` itself; {what} {of}: everycall {verb} {programs}")
    };
    Failure::new(exit_code::FAILED, format!("process {pid}: {reason}"))
}

/// `app-1234.ect`.
pub fn default_output(process: &ProcessFacts) -> PathBuf {
    let plain = |character: char| if character.is_control() || character == '/' { '_' } else { character };
    let program: String = process.program().chars().map(plain).collect();
    PathBuf::from(format!("{program}-{}.ect", process.pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_named_after_program_and_process() {
        let process = |command: &str| ProcessFacts {
            pid: 77,
            name: b"worker".to_vec(),
            command: vec![command.as_bytes().to_vec()],
            ..ProcessFacts::default()
        };
        let name = |command: &str| default_output(&process(command)).to_string_lossy().into_owned();
        assert_eq!(name("/opt/bin/app"), "app-77.ect");
        assert_eq!(name("/opt/bin/"), "worker-77.ect");
        assert_eq!(name("a\nb"), "a_b-77.ect");
    }
}
