//! The compiler prefix: puts options before the compiler's own and becomes the compiler.
//!
//! ```text
//! everycall cc --mode nops -- ccache gcc -O2 a.c -o a
//!                             '-----' '--' '-----------'
//!        launchers, unchanged    compiler   its arguments, unchanged, after ours
//! ```
//!
//! There is no wrapper process: the compiler replaces this program, so exit code, signals and output are
//! the compiler's. Ours come first, because the last word of a user's line may be an option that still wants a value.
//! Linker inputs of ours go through `-Xlinker`, where neither `-x LANGUAGE` nor the names that gcc derives from the
//! first input touch them.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;

use everycall_format::arch::Machine;
use everycall_io::say;
use everycall_patterns::Selection;

use crate::arch;
use crate::args::{Invocation, Stage};
use crate::assembler::LIST_ARGUMENT;
use crate::compiler::{self, CommandLine, Family};
use crate::exit_code::{EXIT_NOT_FOUND, EXIT_NOT_RUN, EXIT_REFUSED};
use crate::kit_files::{
    COMPAT_FOLDER, EXPORTS_LIST, INCLUDE_FOLDER, Kit, MODULE_OBJECT, RUNTIME_OBJECT, START_OFF_OBJECT,
    XRAY_ARCHIVE,
};
use crate::mode::Mode;
use crate::obstacles;
use crate::probe::{self, Feature};
use crate::start::Start;
use crate::toolbox::Toolbox;
use crate::wrap;

const USAGE: &str = "\
Usage: everycall cc [--mode MODE] [--start on|off] [--only PATTERN]...
                    [--not PATTERN]... -- COMPILER ARGUMENTS...

Runs COMPILER (gcc 8 and newer, clang 14 and newer, also behind ccache) so that
what it builds can be traced.

  everycall cc -- g++ -O2 app.cpp -o app
  make CC='everycall cc -- gcc'
  cmake -DCMAKE_CXX_COMPILER_LAUNCHER='everycall;cc;--' \\
        -DCMAKE_CXX_LINKER_LAUNCHER='everycall;cc;--'

The program traces whenever it runs, also without `everycall record`: its
newest calls are always there for `everycall snapshot PID`, `core` and others.
A program that does little but call small functions is several times slower
meanwhile. --start off, when linking, makes it start with tracing off, at no
cost (modes nops and xray), until `everycall record`, `trace`, `enable` or
EVERYCALL_START=on switches it on:

  make CC='everycall cc --start off -- gcc' && make check

Modes: nops (gcc's default), fentry (gcc), finstrument (gcc and clang),
after-inlining (clang's default with -flto), xray (clang's default without).
Compilers that can't do that in a command get the best mode that they can.
trace-insn (gcc and clang) is an experiment: instructions that are NOPs on CPUs
that exist, and no runtime (docs/design/trace-instruction.md).
--everycall-mode=MODE and --everycall-start=on|off among the compiler's
arguments do the same as the options, also for everycall-gcc, -g++, -clang and
-clang++.

--not PATTERN leaves functions out of the build, --only PATTERN leaves out all
others (not in modes finstrument and after-inlining). Patterns and lists (@FILE) are those of
record; docs/reference/selection.md describes them:

  everycall cc --not 'size:<10 & !has:loop' -- gcc -O2 -c app.c
  everycall cc --not 'file:third_party/*' --not @left-out.txt -- gcc -c app.c

--everycall-only=PATTERN and --everycall-not=PATTERN among the compiler's
arguments do the same.
";

/// The option that names a mode among a compiler's arguments.
const MODE_ARGUMENT: &[u8] = b"--everycall-mode=";

/// The option that says whether tracing is on when the program starts.
const START_ARGUMENT: &[u8] = b"--everycall-start=";

/// The options that select functions.
const ONLY_ARGUMENT: &[u8] = b"--everycall-only=";
const NOT_ARGUMENT: &[u8] = b"--everycall-not=";

/// Patterns of functions that are left out of the build, as given.
#[derive(Default)]
struct Chosen {
    only: Vec<String>,
    not: Vec<String>,
}

impl Chosen {
    /// Removes these options from a compiler's arguments.
    fn take(&mut self, args: &mut Vec<OsString>) {
        for (prefix, patterns) in [(ONLY_ARGUMENT, &mut self.only), (NOT_ARGUMENT, &mut self.not)] {
            let taken = args.extract_if(.., |arg| arg.as_bytes().starts_with(prefix));
            patterns.extend(
                taken.map(|arg| String::from_utf8_lossy(&arg.as_bytes()[prefix.len()..]).into_owned()),
            );
        }
    }

    /// The resulting selection; `None` if no function is left out.
    fn selection(&self) -> Result<Option<Selection>, Failure> {
        if self.only.is_empty() && self.not.is_empty() {
            return Ok(None);
        }
        let selection = Selection::of_options(&self.only, &self.not);
        let selection = selection.map_err(|error| Failure::refused(error.to_string()))?;
        for rule in selection.rules() {
            if rule.pattern.asks_for_link() {
                return Err(Failure::refused(format!(
                    "the pattern \"{}\" contains a module, a section or an address, which are unknown while compiling; \
                    name functions, \
                     source files or sizes, as in: --not 'file:net/*.c'",
                    rule.pattern
                )));
            }
            if rule.pattern.text().contains('\n') {
                return Err(Failure::refused(
                    "a pattern contains a line break; write one pattern per option",
                ));
            }
        }
        Ok(Some(selection))
    }
}

/// `everycall cc ARGS`: returns only if the compiler couldn't be run.
pub fn cc_main(args: Vec<OsString>, kit: Kit<'_>) -> ExitCode {
    match cc_arguments(args) {
        Ok(Request::Help) => {
            // A pager may close early.
            let _ = io::stdout().write_all(USAGE.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Request::Run { wanted, chosen, command }) => {
            if let Some(launcher) = compiler::launcher_in_front() {
                let failure = behind_launcher(&launcher);
                say_through_cache(&format!("everycall cc: {}\n", failure.sentence));
                return ExitCode::from(failure.code);
            }
            finish("everycall cc", run(wanted, chosen, command, kit))
        }
        Err(sentence) => finish("everycall cc", Err(Failure::refused(sentence))),
    }
}

/// A call by one of the names of [`is_compiler_name`]: returns only if the compiler couldn't be run.
pub fn named_compiler_main(argv0: &OsStr, args: Vec<OsString>, kit: Kit<'_>) -> ExitCode {
    let name = Path::new(argv0).file_name().unwrap_or(argv0);
    let Some(compiler) = plain_name(name) else {
        let sentence = format!("`{}` is not everycall- and the name of a gcc or clang", name.display());
        return finish("everycall", Err(Failure::refused(sentence)));
    };
    let command = [compiler.to_owned()].into_iter().chain(args).collect();
    finish(&name.to_string_lossy(), run(Wanted::default(), Chosen::default(), command, kit))
}

/// A call of a compiler by the build script of a Rust package.
pub(crate) fn build_compiler(name: OsString, args: Vec<OsString>, is_traced: bool, kit: Kit<'_>) -> ExitCode {
    let who = name.to_string_lossy().into_owned();
    let command: Vec<OsString> = [name].into_iter().chain(args).collect();
    let traced = |command| run(Wanted::default(), Chosen::default(), command, kit);
    finish(&who, if is_traced { traced(command) } else { plain(command) })
}

/// Becomes the command, without options of ours.
fn plain(command: Vec<OsString>) -> Result<Never, Failure> {
    let line = CommandLine::split(command).ok_or_else(|| Failure::refused("no compiler is named"))?;
    let path = compiler::find_program(&line.compiler).ok_or_else(|| not_found(&line.compiler))?;
    execute(line, path, Options::default())
}

/// Whether a program name is one of our compiler names, such as `everycall-gcc` or
/// `everycall-clang++-19`.
pub fn is_compiler_name(name: &OsStr) -> bool {
    plain_name(name).is_some()
}

fn plain_name(name: &OsStr) -> Option<&OsStr> {
    let plain = OsStr::from_bytes(name.as_bytes().strip_prefix(b"everycall-")?);
    compiler::family_of_name(plain).map(|_| plain)
}

/// The options before the compiler.
#[derive(Clone, Copy, Default)]
struct Wanted {
    mode: Option<Mode>,
    start: Option<Start>,
}

enum Request {
    Help,
    Run { wanted: Wanted, chosen: Chosen, command: Vec<OsString> },
}

fn cc_arguments(args: Vec<OsString>) -> Result<Request, String> {
    let mut wanted = Wanted::default();
    let mut chosen = Chosen::default();
    let mut rest = args.into_iter();
    while let Some(arg) = rest.next() {
        match arg.as_bytes() {
            b"--help" | b"-h" => return Ok(Request::Help),
            b"--mode" => {
                let name = rest.next().ok_or("--mode needs the name of a mode, as in: --mode nops")?;
                wanted.mode = Some(name.to_string_lossy().parse()?);
            }
            b"--start" => {
                let word = rest.next().ok_or("--start needs on or off, as in: --start off")?;
                wanted.start = Some(word.to_string_lossy().parse()?);
            }
            b"--" => return Ok(Request::Run { wanted, chosen, command: rest.collect() }),
            other if other.starts_with(b"--mode=") => {
                wanted.mode = Some(String::from_utf8_lossy(&other[7..]).parse()?)
            }
            other if other.starts_with(b"--start=") => {
                wanted.start = Some(String::from_utf8_lossy(&other[8..]).parse()?)
            }
            b"--only" | b"--not" => {
                let pattern = rest
                    .next()
                    .filter(|word| word != "--")
                    .ok_or_else(|| format!("{} needs a pattern, as in: --not 'size:<10'", arg.display()))?;
                let patterns = if arg == "--only" { &mut chosen.only } else { &mut chosen.not };
                patterns.push(pattern.to_string_lossy().into_owned());
            }
            other if other.starts_with(b"--only=") => {
                chosen.only.push(String::from_utf8_lossy(&other[7..]).into_owned())
            }
            other if other.starts_with(b"--not=") => {
                chosen.not.push(String::from_utf8_lossy(&other[6..]).into_owned())
            }
            other if other.starts_with(b"-") => {
                return Err(format!(
                    "unknown option `{}`; the options before `--` are --mode MODE, --start on|off, --only PATTERN and --not PATTERN",
                    arg.display()
                ));
            }
            _ => {
                return Ok(Request::Run { wanted, chosen, command: [arg].into_iter().chain(rest).collect() });
            }
        }
    }
    Ok(Request::Run { wanted, chosen, command: Vec::new() })
}

/// Why no compiler is run: a message and its exit code.
struct Failure {
    sentence: String,
    code: u8,
}

impl Failure {
    fn refused(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), code: EXIT_REFUSED }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure { sentence: error.to_string(), code: EXIT_NOT_RUN }
    }
}

/// The success type of functions that only return on failure: success replaces this program.
enum Never {}

fn finish(who: &str, result: Result<Never, Failure>) -> ExitCode {
    let Err(failure) = result;
    say!("{who}: {}", failure.sentence);
    ExitCode::from(failure.code)
}

fn run(wanted: Wanted, mut chosen: Chosen, command: Vec<OsString>, kit: Kit<'_>) -> Result<Never, Failure> {
    let mut line = CommandLine::split(command).ok_or_else(|| {
        Failure::refused("no compiler is named; write it after `--`, as in: everycall cc -- gcc -c a.c")
    })?;
    let mode = take(&mut line.args, MODE_ARGUMENT)?.or(wanted.mode);
    let start = take(&mut line.args, START_ARGUMENT)?.or(wanted.start).unwrap_or_default();
    chosen.take(&mut line.args);
    let selection = chosen.selection()?;
    let path = compiler::find_program(&line.compiler).ok_or_else(|| not_found(&line.compiler))?;
    let invocation = Invocation::read(&line.args);
    let mut ours = match invocation.stage {
        Stage::NoCode if invocation.precompiles => {
            Options::before(precompile_options(mode, &path, &invocation))
        }
        Stage::NoCode => Options::default(),
        _ => options(mode, start, selection.as_ref(), &path, &invocation, kit)?,
    };
    if invocation.preprocesses {
        ours.before.extend(header_options(kit));
    }
    execute(line, path, ours)
}

/// Removes an option of ours from a compiler's arguments; the last one counts.
fn take<T: FromStr<Err = String>>(args: &mut Vec<OsString>, option: &[u8]) -> Result<Option<T>, Failure> {
    let mut value = None;
    for arg in args.extract_if(.., |arg| arg.as_bytes().starts_with(option)) {
        let word = String::from_utf8_lossy(&arg.as_bytes()[option.len()..]).parse();
        value = Some(word.map_err(Failure::refused)?);
    }
    Ok(value)
}

/// Says something although a cache keeps what compilers say: ccache names a descriptor for that.
fn say_through_cache(text: &str) {
    let number = std::env::var("UNCACHED_ERR_FD").ok().and_then(|number| number.parse::<u32>().ok());
    let uncached = number.and_then(|number| {
        std::fs::OpenOptions::new().append(true).open(format!("/proc/self/fd/{number}")).ok()
    });
    match uncached {
        // Nobody may listen.
        Some(mut file) => _ = file.write_all(text.as_bytes()),
        None => say!("{}", text.trim_end()),
    }
}

fn behind_launcher(launcher: &OsStr) -> Failure {
    let launcher = Path::new(launcher).file_name().unwrap_or(launcher).display();
    Failure::refused(format!(
        "`{launcher}` stands before `everycall cc`, which is no compiler, so it can't do its work; write it behind: \
         everycall cc -- {launcher} gcc -c a.c"
    ))
}

fn not_found(compiler: &OsStr) -> Failure {
    if compiler.as_bytes().contains(&b'/') && Path::new(compiler).exists() {
        let sentence = format!(
            "`{}` is not executable; name a compiler, and make sure that it is executable (chmod +x)",
            compiler.display()
        );
        return Failure { sentence, code: EXIT_NOT_RUN };
    }
    let compiler = compiler.display();
    Failure {
        sentence: format!(
            "no program `{compiler}` was found (PATH is searched for names without a slash); install it, or name the compiler by its full path"
        ),
        code: EXIT_NOT_FOUND,
    }
}

/// The arguments that are added to a command line.
#[derive(Default)]
struct Options {
    /// Before the user's arguments.
    before: Vec<OsString>,
    /// After them: the linker searches archives for earlier references.
    behind: Vec<OsString>,
}

impl Options {
    fn before(before: Vec<OsString>) -> Options {
        Options { before, behind: Vec::new() }
    }
}

/// Options that sources which import a module must have in common with it.
fn precompile_options(mode: Option<Mode>, compiler: &Path, invocation: &Invocation) -> Vec<OsString> {
    let is_clang = compiler::family_of(compiler) == Some(Family::Clang);
    let has_sleds = mode.map_or(!invocation.optimises_at_link, |mode| mode.has_sleds(Family::Clang));
    let options: &[&str] = if is_clang && has_sleds { &Mode::XRAY_LANGUAGE } else { &[] };
    options.iter().map(OsString::from).collect()
}

fn options(
    mode: Option<Mode>,
    start: Start,
    selection: Option<&Selection>,
    compiler: &Path,
    invocation: &Invocation,
    kit: Kit<'_>,
) -> Result<Options, Failure> {
    let family = compiler::family_of(compiler).ok_or_else(|| {
        let compiler = compiler.display();
        Failure::refused(format!(
            "`{compiler}` is neither gcc nor clang, and other compilers are not supported"
        ))
    })?;
    let is_default = mode.is_none();
    let machine = machine_of(compiler, invocation);
    let mode = match mode {
        Some(mode) => mode,
        None => default_mode(family, machine, compiler, invocation)?,
    };
    let obstacle = match obstacles::first(mode, family, machine, compiler, invocation) {
        // The default is a mode that the compiler has.
        None if !is_default => obstacles::missing_feature(mode, family, machine, compiler, invocation)?,
        found => found,
    };
    if let Some(sentence) = obstacle {
        return Err(Failure::refused(sentence));
    }

    if selection.is_some() && !arch::has_hook_calls(machine) {
        return Err(Failure::refused(format!(
            "functions can't be left out of a build for {}; leave them out when the program runs: \
             everycall record --not PATTERN",
            machine.name()
        )));
    }
    if selection.is_some() && mode.assembler_step(family, machine).is_none() {
        return Err(Failure::refused(format!(
            "mode {mode} can't leave functions out of the build; use mode nops or fentry (gcc) or xray (clang, without \
             -flto), or leave them out when the program runs: everycall record --not PATTERN"
        )));
    }

    let mut before = toolbox_options(mode, family, machine)?;
    // clang doesn't run an assembler to link, unless it also compiles.
    if let Some(selection) = selection.filter(|_| family == Family::Gcc || invocation.compiles) {
        let list = Toolbox::open()?.list(&selection.to_text())?;
        before.extend(["-Xassembler".into(), joined(LIST_ARGUMENT, list)]);
    }
    let mut behind = Vec::new();
    if invocation.compiles {
        before.extend(compile_options(mode, family, invocation));
        if is_default
            && mode == Mode::AfterInlining
            && !invocation.optimises_at_link
            && arch::has_sleds(machine)
        {
            // Of an interface unit: what imports it is compiled for sleds, and clang compares.
            before.extend(Mode::XRAY_LANGUAGE.iter().map(OsString::from));
        }
    }
    if invocation.links() && family == Family::Clang && gives_xray_to_driver(mode, invocation) {
        before.push(without_xray_runtime(compiler)?.into());
    }
    if invocation.links() && mode.has_runtime() {
        let kit = kit_of(machine, kit)?;
        before.extend(link_options(invocation, start, &kit));
        let reports_all_exits = mode.reports_inlined() && wrap::reports_all_exits(family, invocation);
        before.extend(wrap::options(invocation, compiler, &kit, reports_all_exits));
        behind = wrap::archives(invocation, compiler, &kit);
        if family == Family::Clang {
            behind.extend(xray_options(invocation, &kit));
        }
    }
    Ok(Options { before, behind })
}

/// The machine that a command compiles for: by an option, by the target that the compiler's name
/// begins with, else this one.
fn machine_of(compiler: &Path, invocation: &Invocation) -> Machine {
    let by_name = || arch::machine_of(compiler.file_name()?.to_str()?);
    invocation.machine.or_else(by_name).unwrap_or(Machine::OWN)
}

/// The kit's folder with objects for a machine.
fn kit_of(machine: Machine, kit: Kit<'_>) -> Result<PathBuf, Failure> {
    let kit = kit()?;
    if machine == Machine::OWN {
        return Ok(kit);
    }
    let folder = kit.join(machine.target());
    if folder.join(RUNTIME_OBJECT).exists() {
        return Ok(folder);
    }
    let (name, target) = (machine.name(), machine.target());
    Err(Failure::refused(format!(
        "this everycall was built without the runtime for {name}; install {target}-linux-gnu-gcc, run `rustup target \
         add {}`, and build everycall again",
        arch::runtime_target(machine)
    )))
}

/// The specs and the assembler step, for the modes that need them.
fn toolbox_options(mode: Mode, family: Family, machine: Machine) -> io::Result<Vec<OsString>> {
    let mut options = Vec::new();
    let step = mode.assembler_step(family, machine);
    if mode.needs_specs(family) || step.is_some() {
        let toolbox = Toolbox::open()?;
        if mode.needs_specs(family) {
            let specs = if mode.has_marks(family, machine) { toolbox.marks() } else { toolbox.specs() };
            options.push(joined("-specs=", specs));
        }
        options.extend(step.map(|step| joined("-B", toolbox.assembler_prefix(step))));
    }
    Ok(options)
}

/// The mode if the user names none: the compiler's default, or one that this command can have.
fn default_mode(
    family: Family,
    machine: Machine,
    compiler: &Path,
    invocation: &Invocation,
) -> io::Result<Mode> {
    let default = Mode::default_for(family, machine);
    // With `-flto`, clang's linker generates the code, and the assembler step can't complete the
    // unwind information at sleds. clang makes no sleds from the compiled form of a module.
    if family == Family::Clang && (invocation.optimises_at_link || invocation.has_compiled_module) {
        return Ok(Mode::second_of(family));
    }
    let features = obstacles::features_of(default, family, machine, invocation);
    for feature in features.iter().copied() {
        if !probe::has(compiler, &invocation.program_folders, feature)? {
            return Ok(match feature {
                // Its calls of hooks need no list.
                Feature::LinkedOrder if Mode::Fentry.works_for(family, machine) => Mode::Fentry,
                _ => Mode::second_of(family),
            });
        }
    }
    Ok(default)
}

/// Whether clang's driver knows that there is XRay's instrumentation.
fn gives_xray_to_driver(mode: Mode, invocation: &Invocation) -> bool {
    invocation.asks_for_xray
        || mode.has_sleds(Family::Clang) && invocation.compiles && invocation.has_xray_options
}

/// The option by which clang's driver doesn't link XRay's own runtime.
fn without_xray_runtime(compiler: &Path) -> io::Result<&'static str> {
    let is_new = probe::has(compiler, &[], Feature::NoXrayLinkDeps)?;
    Ok(if is_new { "-fno-xray-link-deps" } else { "-fnoxray-link-deps" })
}

fn compile_options(mode: Mode, family: Family, invocation: &Invocation) -> Vec<OsString> {
    let options: &[&str] = match mode {
        _ if mode.has_sleds(family) && invocation.has_xray_options => &Mode::XRAY_BESIDE_THE_USERS,
        _ => mode.compile_options(family),
    };
    let mut options: Vec<OsString> = options.iter().map(OsString::from).collect();
    if mode == Mode::Finstrument && family == Family::Gcc && invocation.uses_profile {
        // A profile of a build without hooks describes other code: gcc compiles such functions
        // without it.
        options.push("-Wno-error=coverage-mismatch".into());
    }
    if !invocation.debug_chosen {
        options.push(line_information(family).into());
    }
    if mode.reports_inlined() && family == Family::Clang {
        // Adds linkage names to line tables: they distinguish overloads that were inlined.
        options.push("-fdebug-info-for-profiling".into());
    }
    options
}

/// The folder of `everycall.h`, after all other folders. Other programs compile even without a kit.
fn header_options(kit: Kit<'_>) -> Vec<OsString> {
    let Ok(kit) = kit() else { return Vec::new() };
    let include = kit.join(INCLUDE_FOLDER);
    let folders = [include.clone(), include.join(COMPAT_FOLDER)];
    folders.into_iter().flat_map(|folder| ["-idirafter".into(), folder.into_os_string()]).collect()
}

/// The smallest amount of debug information with functions and lines.
fn line_information(family: Family) -> &'static str {
    match family {
        Family::Gcc => "-g1",
        Family::Clang => "-gline-tables-only",
    }
}

pub(crate) fn link_options(invocation: &Invocation, start: Start, kit: &Path) -> Vec<OsString> {
    let mut options: Vec<OsString> = Vec::new();
    let is_gold = invocation.linker.as_deref() == Some("gold");
    if !is_gold {
        // The runtime refers to the bounds of the site lists. Without this option, that keeps every listed
        // function alive.
        options.push("-Wl,-z,start-stop-gc".into());
    }
    let object = if invocation.stage == Stage::LinkShared {
        MODULE_OBJECT
    } else {
        options.extend(["-Xlinker".into(), joined("--dynamic-list=", kit.join(EXPORTS_LIST))]);
        RUNTIME_OBJECT
    };
    options.extend(["-Xlinker".into(), kit.join(object).into_os_string()]);
    // A shared object's calls are traced if those of its program are.
    if start == Start::Off && invocation.stage == Stage::LinkExecutable {
        options.extend(["-Xlinker".into(), kit.join(START_OFF_OBJECT).into_os_string()]);
    }
    options
}

/// XRay's interface, which is linked in if the program calls it. XRay's own runtime isn't.
fn xray_options(invocation: &Invocation, kit: &Path) -> Vec<OsString> {
    let archive = wrap::object_of(XRAY_ARCHIVE, invocation, kit);
    if !archive.exists() {
        return Vec::new();
    }
    let mut options: Vec<OsString> = Vec::new();
    if invocation.shares_xray && invocation.stage == Stage::LinkShared {
        // Handlers that the program sets are called for this object, too.
        options.push("-Wl,-u,everycall_xray_entry".into());
    }
    options.extend(["-Xlinker".into(), archive.into_os_string()]);
    options
}

fn joined(option: &str, value: PathBuf) -> OsString {
    let mut text = OsString::from(option);
    text.push(value);
    text
}

fn execute(line: CommandLine, compiler: PathBuf, ours: Options) -> Result<Never, Failure> {
    let mut launchers = line.launchers.into_iter();
    let mut command = match launchers.next() {
        None => {
            let mut command = Command::new(&compiler);
            // clang determines its driver mode from its name.
            command.arg0(&line.compiler);
            command
        }
        Some(first) => {
            let path = compiler::find_program(&first).ok_or_else(|| not_found(&first))?;
            let mut command = Command::new(path);
            command.arg0(first).args(launchers).arg(&line.compiler);
            command
        }
    };
    let error = command.args(ours.before).args(line.args).args(ours.behind).exec();
    Err(Failure {
        sentence: format!("`{}` couldn't be run: {error}", command.get_program().display()),
        code: EXIT_NOT_RUN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ours() {
        for name in ["everycall-gcc", "everycall-g++", "everycall-clang++-19", "everycall-gcc-12"] {
            assert!(is_compiler_name(OsStr::new(name)), "{name}");
        }
        for name in ["everycall", "gcc", "everycall-cc-1", "everycall-gcc-ar", "everycall-"] {
            assert!(!is_compiler_name(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn the_last_mode_counts_and_leaves_the_line() {
        let mut args: Vec<OsString> =
            ["--everycall-mode=nops", "-c", "--everycall-mode=fentry"].map(OsString::from).into();
        assert_eq!(take(&mut args, MODE_ARGUMENT).ok(), Some(Some(Mode::Fentry)));
        assert_eq!(args, ["-c"]);
        assert!(take::<Mode>(&mut vec!["--everycall-mode=fast".into()], MODE_ARGUMENT).is_err());
        let mut args: Vec<OsString> = ["--everycall-start=off", "a.c"].map(OsString::from).into();
        assert_eq!(take(&mut args, START_ARGUMENT).ok(), Some(Some(Start::Off)));
        assert!(take::<Start>(&mut vec!["--everycall-start=no".into()], START_ARGUMENT).is_err());
    }

    #[test]
    fn arguments_before_the_compiler() {
        let parse = |text: &str| cc_arguments(text.split_whitespace().map(OsString::from).collect());
        let wanted = |text: &str| match parse(text) {
            Ok(Request::Run { wanted, command, .. }) => Some((wanted.mode, wanted.start, command.len())),
            _ => None,
        };
        assert_eq!(wanted("--mode xray -- clang"), Some((Some(Mode::Xray), None, 1)));
        assert_eq!(wanted("--mode=nops gcc -c"), Some((Some(Mode::Nops), None, 2)));
        assert_eq!(wanted("--start off --mode nops -- gcc"), Some((Some(Mode::Nops), Some(Start::Off), 1)));
        assert_eq!(wanted("--start=on -- gcc"), Some((None, Some(Start::On), 1)));
        assert!(parse("--start").is_err() && parse("--start maybe -- gcc").is_err());
        assert!(matches!(parse("--help"), Ok(Request::Help)));
        assert!(parse("--mode").is_err());
        assert!(parse("--mode quick -- gcc").is_err());
        assert!(parse("-q -- gcc").is_err());
    }
}
