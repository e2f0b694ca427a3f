//! `everycall count --untouched`: counts calls of a program that was built without everycall.
//!
//! The program is started under ptrace and stopped at its entry point. There, memory for counters
//! and trampolines is mapped and the hooks are written; then it runs untraced.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use everycall_analysis::{Function, FunctionIdentity, Grouping, Profile};
use everycall_inject::{Access, InjectError, Outcome, Process, mappings};
use everycall_io::say;
use everycall_recorder::{Launch, RecordError, find_program, run_alone};
use everycall_rewrite::CountingPlan;
use everycall_symbols::{ModuleIdentity, ModuleSymbols, SymbolOptions, demangle, short_name};
use everycall_units::{Count, Several};
use everycall_untouched::{first_page, has_own_hooks, island_pages, libraries, patch_sets};
use rustix::process::{Resource, getrlimit};

use crate::arguments::{CountArguments, SymbolArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::ended;
use crate::recording::program;
use crate::untouched::{PATIENCE, is_script, start};
use crate::verbs::report::{Run, print_table};

/// More than the counters of any program take.
const COUNTERS_MAX: u64 = 64 << 20;

/// Runs the verb.
pub fn run(arguments: &CountArguments) -> Result<ExitCode, Failure> {
    refuse_options(arguments)?;
    let refused = |why: String| Failure::new(exit_code::NOT_RECORDED, why);
    let (program, words) = match arguments.command.split_first() {
        Some((program, words)) => (program.clone(), words.to_vec()),
        None => {
            return Err(Failure::new(
                exit_code::USAGE,
                "--untouched starts a program: everycall count --untouched -- PROGRAM; processes that run already can't be counted in this way yet",
            ));
        }
    };
    let path = find_program(&program)
        .ok_or_else(|| RecordError::NotFound { program: program.clone(), exists: false })?;
    if program::is_privileged(&program) {
        return Err(refused(format!(
            "{} has setuid, setgid or capabilities, which it would lose by being traced at its start; take a copy without them",
            path.display()
        )));
    }
    everycall_inject::check_start().map_err(|error| refused(error.to_string()))?;
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < COUNTERS_MAX) {
        return Err(refused(format!(
            "the limit of file sizes is too low for the counters; raise it: ulimit -f {}",
            COUNTERS_MAX >> 10
        )));
    }
    let executable = Planned::of_program(&path)?;
    let launch = Launch {
        program,
        arguments: words,
        preload: Vec::new(),
        first: None,
        recording: Vec::new(),
        environment: Vec::new(),
    };
    let mut outcome = Err(InjectError::Refused("it wasn't started".to_owned()));
    let status = run_alone(&launch, |command| {
        let (child, found) = start(command, |process| hook_all(process, &executable, &arguments.modules))?;
        outcome = found;
        Ok(child)
    })?;
    let mut counted = match outcome {
        Ok(counted) => counted,
        Err(error) => {
            let why = refused(format!("the program ran without counts: {error}"));
            return Ok(ended::not_written(&why, status));
        }
    };
    let mut profile = Profile::by(arguments.by.grouping.clone());
    for module in &mut counted {
        profile.add_counted(module.calls(&arguments.by.grouping, &arguments.symbols).map_err(|error| {
            refused(format!("the counts of {} can't be read: {error}", module.path.display()))
        })?);
    }
    let command = arguments.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let runs = [Run { path, command, version, ..Run::default() }];
    print_table(&profile, &runs, arguments.format, arguments.limit, arguments.symbols.name_length())?;
    counted.iter().for_each(Hooked::say_share);
    Ok(ended::end_as(status))
}

/// Options that need the runtime or a trace.
fn refuse_options(arguments: &CountArguments) -> Result<(), Failure> {
    let given = [
        (arguments.time, "--time"),
        (arguments.memory, "--memory"),
        (arguments.every.is_some(), "--every"),
        (arguments.since.is_some(), "--since"),
        (arguments.output.is_some(), "-o"),
        (!arguments.functions.only.is_empty(), "--only"),
        (!arguments.functions.not.is_empty(), "--not"),
        (arguments.preload, "--preload"),
        (arguments.launcher, "--launcher"),
        (arguments.no_follow, "--no-follow"),
    ];
    if let Some((_, option)) = given.iter().find(|(is_given, _)| *is_given) {
        return Err(Failure::new(
            exit_code::USAGE,
            format!(
                "--untouched counts calls at a program's end, and nothing else yet: leave out {option}, or build the program with everycall cc"
            ),
        ));
    }
    if matches!(arguments.by.grouping, Grouping::Thread | Grouping::Process) {
        return Err(Failure::new(
            exit_code::USAGE,
            "with --untouched, all threads and processes count together; --by can be function, symbol, module or file",
        ));
    }
    Ok(())
}

/// A file with a plan for it.
struct Planned {
    path: PathBuf,
    /// Of the file system, and in it.
    place: (u64, u64),
    functions: u64,
    plan: CountingPlan,
}

impl Planned {
    fn of(path: &Path) -> Result<Planned, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(exit_code::NOT_RECORDED, format!("{}: {error}", path.display()))
        };
        let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
        if has_own_hooks(path) {
            return Err(failed(&"was built with everycall; count its calls without --untouched"));
        }
        let plan = everycall_plans::of_file(path).map_err(|error| failed(&error))?;
        let plan = CountingPlan::of(plan).map_err(|error| failed(&error))?;
        Ok(Planned {
            path: path.to_owned(),
            place: (metadata.dev(), metadata.ino()),
            functions: (plan.plan.functions.len() + plan.plan.left_out.len()) as u64,
            plan,
        })
    }

    fn of_program(path: &Path) -> Result<Planned, Failure> {
        if is_script(path) {
            return Err(Failure::new(
                exit_code::NOT_RECORDED,
                format!(
                    "{path} is a script; name the program that runs it, as in: everycall count --untouched -- python3 {path}",
                    path = path.display()
                ),
            ));
        }
        let planned = Planned::of(path)?;
        if planned.plan.plan.functions.is_empty() {
            let path = path.display();
            return Err(Failure::new(
                exit_code::NOT_RECORDED,
                format!(
                    "no function of {path} can get hooks; `everycall functions --untouched {path}` says why"
                ),
            ));
        }
        Ok(planned)
    }

    /// Maps counters and trampolines, and writes the hooks.
    fn hook(&self, process: &mut Process, mapped: u64) -> Result<Hooked, InjectError> {
        let CountingPlan { plan, region, counters } = &self.plan;
        let base = plan.base(mapped);
        let at = |place: i64| base.wrapping_add_signed(place);
        let pages = island_pages(plan, base);
        let counters = process.with_thread(PATIENCE, |thread| {
            let file = thread.map_shared(at(*counters), self.plan.counters_size())?;
            thread.map_at(at(plan.region), region, Access::Execute)?;
            for (page, bytes) in &pages {
                thread.map_at(*page, bytes, Access::Execute)?;
            }
            Ok(file)
        })?;
        let sets = patch_sets(plan, base);
        let outcomes = process.with_all_stopped(PATIENCE, |stopped| stopped.apply(&sets))?;
        Ok(Hooked {
            path: self.path.clone(),
            build_id: plan.build_id.clone(),
            functions: self.functions,
            starts: plan.functions.iter().map(|function| function.start).collect(),
            hooked: outcomes.iter().filter(|outcome| **outcome == Outcome::Done).count() as u64,
            counters,
        })
    }
}

fn hook_all(
    process: &mut Process,
    executable: &Planned,
    modules: &[String],
) -> Result<Vec<Hooked>, InjectError> {
    let link = format!("/proc/{}/exe", process.pid());
    let failed = |error| InjectError::System { what: "looking at the program's file", error };
    let metadata = std::fs::metadata(&link).map_err(failed)?;
    let path = std::fs::read_link(&link).map_err(failed)?;
    let maps = mappings(process.pid())?;
    let mapped = first_page(&maps, &path).filter(|_| (metadata.dev(), metadata.ino()) == executable.place);
    let Some(mapped) = mapped else {
        return Err(InjectError::Refused(format!(
            "{} was replaced while it was started",
            executable.path.display()
        )));
    };
    let mut hooked = vec![executable.hook(process, mapped)?];
    for library in libraries(&maps, &path, modules) {
        let Some(mapped) = first_page(&maps, &library) else { continue };
        match Planned::of(&library) {
            Ok(planned) => match planned.hook(process, mapped) {
                Ok(library) => hooked.push(library),
                Err(error) if error.is_taken() => say!(
                    "everycall: {}: not counted: memory near it is taken by other libraries",
                    library.display()
                ),
                Err(error) => return Err(error),
            },
            Err(why) => say!("everycall: not counted: {}", why.sentence()),
        }
    }
    Ok(hooked)
}

/// A file with hooks in the program.
struct Hooked {
    path: PathBuf,
    build_id: Vec<u8>,
    functions: u64,
    /// Of functions with counters.
    starts: Vec<u64>,
    hooked: u64,
    counters: File,
}

impl Hooked {
    /// The functions that were called, with their calls.
    fn calls(&self, by: &Grouping, symbols: &SymbolArguments) -> io::Result<Vec<(Function, u64)>> {
        let mut counts = vec![0; self.starts.len() * size_of::<u64>()];
        self.counters.read_exact_at(&mut counts, 0)?;
        let mut options = SymbolOptions { binary_maps: symbols.map_path.clone(), ..SymbolOptions::default() };
        options.debug_dirs.splice(0..0, symbols.debug_dir.iter().cloned());
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let mut names = ModuleSymbols::open(&ModuleIdentity::new(&path, &self.build_id), &options);
        names.take_warnings().iter().for_each(|warning| say!("everycall: {warning}"));
        let counts = counts.as_chunks().0.iter().map(|count| u64::from_le_bytes(*count));
        let called = self.starts.iter().zip(counts).filter(|(_, calls)| *calls > 0);
        Ok(called.map(|(&start, calls)| (self.function(&mut names, start, by, symbols), calls)).collect())
    }

    fn function(
        &self,
        names: &mut ModuleSymbols,
        start: u64,
        by: &Grouping,
        arguments: &SymbolArguments,
    ) -> Function {
        let id = names.function_at(start);
        let is_ambiguous = names.is_ambiguous(id);
        let found = names.function(id);
        let symbol = found.linkage_name.clone();
        let name = match &symbol {
            Some(symbol) if *by == Grouping::Symbol => symbol.clone(),
            // Calls of their own here.
            Some(symbol) if found.is_split_part() || found.thunk().is_some() => demangle(symbol),
            _ => found.shown_name(),
        };
        let module = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let identity = FunctionIdentity {
            module,
            file: found.file.as_ref().map(|file| file.to_string_lossy().into_owned()),
            line: found.line,
            part: (symbol.is_none() || found.line.is_none() && is_ambiguous).then_some(start),
            name,
        };
        let mut function = Function::of(identity);
        if !arguments.full_names() && *by != Grouping::Symbol {
            function.name = short_name(&function.identity.name);
        }
        function.symbols.extend(symbol);
        function
    }

    /// Says how many functions are counted, unless all are.
    fn say_share(&self) {
        if self.hooked < self.functions {
            let path = self.path.display();
            say!(
                "everycall: {path}: {} of {} have hooks; `everycall functions --untouched {path}` says why others don't",
                Count(self.hooked),
                Several(self.functions, "function", "functions")
            );
        }
    }
}
