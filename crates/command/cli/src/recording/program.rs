//! Checks before the program is started whether it can be traced, and if not, says what to do.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use everycall_format::arch::Machine;
use everycall_patterns::{FunctionTable, TableError, linked_only as linked_only_text};
use everycall_recorder::find_program;
use everycall_symbols::{LinkKind, SiteError, SiteReport, site_report};
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{Dyn, ElfFile};
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind};

/// Whether a program can be traced, as far as it can be known before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// It has traced functions and a runtime.
    Traced,
    /// It has no runtime, but libraries of its own with traced functions.
    TracedLibraries,
    /// It has no traced functions, but may start a program that has.
    Launcher,
    /// Only running it will show whether it is traced.
    Unknown,
    /// It was built without everycall, so it can only be recorded as it is; otherwise: the message.
    Plain(String),
    /// It exists, but can't be traced: the message.
    Untraceable(String),
    /// It isn't a program: the message.
    NoProgram(String),
}

/// Programs whose purpose is to start other programs.
const LAUNCHERS: &[&str] = &[
    "bash",
    "busybox",
    "cargo",
    "chrt",
    "cmake",
    "ctest",
    "dash",
    "doas",
    "env",
    "fish",
    "flock",
    "gdb",
    "ionice",
    "java",
    "ksh",
    "ltrace",
    "lua",
    "make",
    "meson",
    "nice",
    "ninja",
    "node",
    "nohup",
    "numactl",
    "parallel",
    "perf",
    "perl",
    "php",
    "prlimit",
    "python",
    "ruby",
    "runuser",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "sh",
    "stdbuf",
    "strace",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "unshare",
    "valgrind",
    "watch",
    "xargs",
    "zsh",
];

/// How names of emulators begin that run one program of another machine.
const EMULATOR: &str = "qemu-";

/// The search for traced libraries ends after this many.
const LIBRARIES_MAX: usize = 256;
/// Shells run a text file without `#!` as a script, if its first bytes look like text.
const BEGINNING: usize = 256;

/// Checks `program`, found in the same way as when it is started.
pub fn look_at(program: &OsStr) -> Prospect {
    let Some(path) = find_program(program) else { return Prospect::Unknown };
    match site_report(&path) {
        Ok(report) => judge(&path, &report),
        Err(SiteError::NotElf(_)) if is_script(&path) => Prospect::Launcher,
        Err(SiteError::NotElf(_)) => Prospect::NoProgram(format!(
            "{} is neither an ELF file nor a script; name a program, or a script that starts one",
            path.display()
        )),
        // Files without read permission may be executable.
        Err(SiteError::Unreadable(..)) => Prospect::Unknown,
        Err(error) => Prospect::NoProgram(error.to_string()),
    }
}

/// Whether a program gets privileges when it is started (setuid, setgid, capabilities). It then
/// ignores our environment, and the dynamic linker ignores `LD_PRELOAD`.
pub fn is_privileged(program: &OsStr) -> bool {
    let Some(path) = find_program(program) else { return false };
    let mode = fs::metadata(&path).map_or(0, |metadata| metadata.mode());
    mode & 0o6000 != 0 || rustix::fs::getxattr(&path, "security.capability", &mut [0; 64]).is_ok()
}

/// Whether a program has no dynamic linker, so that nothing can be preloaded into it.
pub fn is_static(program: &OsStr) -> bool {
    let report = find_program(program).and_then(|path| site_report(&path).ok());
    report.is_some_and(|report| matches!(report.link, LinkKind::Static | LinkKind::StaticPie))
}

/// The probable reason why a program with the runtime recorded nothing.
pub fn why_untraced(program: &OsStr) -> &'static str {
    if is_privileged(program) {
        "it has setuid, setgid or capabilities, and such programs ignore everycall's environment; record a copy without them \
         (cp drops them)"
    } else if !Path::new("/proc/self/fd").exists() {
        "/proc isn't mounted, and programs find their recorder there; mount it: mount -t proc proc /proc"
    } else {
        "the runtime's initialiser did not run (static programs linked with -nostartfiles run none), or the program sees no \
         /proc, where it would find its recorder; link it without -nostartfiles, and mount /proc where it runs"
    }
}

/// If a program was only linked through the prefix: what it is, and what to do. Only a run can show
/// whether it loads traced code all the same.
pub fn linked_only(program: &OsStr) -> Option<String> {
    let path = find_program(program)?;
    match FunctionTable::open(&path) {
        Err(TableError::LinkedOnly(path)) => Some(linked_only_text(&path)),
        _ => None,
    }
}

fn judge(path: &Path, report: &SiteReport) -> Prospect {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let shown = path.display();
    let build = "everycall cc -- g++ -O2 -g app.cpp -o app";
    let machine = Machine::of_elf(report.machine).filter(|_| report.is_supported());
    let Some(machine) = machine else {
        return Prospect::Untraceable(format!(
            "{shown} is not built for {}, and only such programs can be traced; build it for this machine: {build}",
            Machine::ALL.map(Machine::name).join(" or ")
        ));
    };
    if machine != Machine::OWN && !is_emulated(machine) {
        let (name, target) = (machine.name(), machine.target());
        return Prospect::Untraceable(format!(
            "{shown} is built for {name}, and this machine is {}; run it by an emulator: \
             everycall record -- {EMULATOR}{target} -L /usr/{target}-linux-gnu {shown}",
            Machine::OWN.name()
        ));
    }
    let carries_runtime = report.note.is_some_and(|note| note.is_runtime);
    if report.is_traceable() && carries_runtime {
        return Prospect::Traced;
    }
    if report.is_traceable() {
        return Prospect::Untraceable(format!(
            "{shown} has traced functions, but was linked without everycall's runtime; link it through the prefix too: \
             {build}"
        ));
    }
    if carries_runtime {
        // Linked through the prefix from untraced objects: traced plugins find the runtime.
        return Prospect::Unknown;
    }
    if is_launcher(&name) {
        return Prospect::Launcher;
    }
    let has_linker = report.link != LinkKind::Static && report.link != LinkKind::StaticPie;
    if has_linker && has_traced_libraries(path) {
        return Prospect::TracedLibraries;
    }
    let kind = if has_linker { Prospect::Plain } else { Prospect::Untraceable };
    kind(format!(
        "{shown} has no traced functions; build it through the prefix: {build} \
         (or CC='everycall cc -- gcc' for make). If it only starts a traced program, add --launcher; if it loads traced \
         plugins, add --preload"
    ))
}

/// Whether the kernel starts programs of another machine by an emulator.
fn is_emulated(machine: Machine) -> bool {
    Path::new("/proc/sys/fs/binfmt_misc").join(format!("{EMULATOR}{}", machine.target())).exists()
}

/// How many functions of a process of this program can have counts: more for a program of more
/// sites than most have functions.
pub fn counted_functions(program: &OsStr) -> u32 {
    const USUAL: u32 = 1 << 18;
    let objects = traced_objects(program).map_or_else(Vec::new, |objects| objects.traced);
    let sites =
        |path: &PathBuf| site_report(path).map_or(0, |report| report.site_count + report.xray_sled_count);
    let all: u64 = objects.iter().map(sites).sum();
    if all > u64::from(USUAL) { everycall_format::dropped::FUNCTIONS_MAX } else { USUAL }
}

/// The traced objects that a program is linked from, before it runs.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// The program and libraries of its own with traced functions.
    pub traced: Vec<PathBuf>,
    /// Whether any of them calls `dlopen`.
    loads: bool,
    /// Whether any of them starts programs.
    starts: bool,
    /// Whether any of them names frames by id.
    names_frames: bool,
}

impl Objects {
    /// Whether any of them calls `dlopen`.
    pub fn loads(&self) -> bool {
        self.loads
    }

    /// Whether any of them names frames by id.
    pub fn names_frames(&self) -> bool {
        self.names_frames
    }

    /// Whether functions outside these objects may run later, or frames by id. `follows`: also in
    /// programs that it starts.
    pub fn may_bring_more(&self, follows: bool) -> bool {
        self.loads || self.names_frames || follows && self.starts
    }
}

/// The objects of `program`; `None` if it can't be read, or only starts other programs.
pub fn traced_objects(program: &OsStr) -> Option<Objects> {
    let path = find_program(program)?;
    let report = site_report(&path).ok()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !report.is_traceable() && is_launcher(&name) {
        return None;
    }
    let mut objects = Objects::default();
    for object in with_libraries(path) {
        let [loads, starts, names_frames] = calls(&object).unwrap_or([true; 3]);
        objects.loads |= loads;
        objects.starts |= starts;
        objects.names_frames |= names_frames;
        if site_report(&object).is_ok_and(|report| report.is_traceable()) {
            objects.traced.push(object);
        }
    }
    (!objects.traced.is_empty()).then_some(objects)
}

/// Whether an object loads libraries, whether it starts programs, whether it names frames by id.
fn calls(object: &Path) -> Option<[bool; 3]> {
    /// `everycall_frame_name()` and `everycall_frame_enter()` in everycall.h make this section.
    const FRAMES: &str = ".everycall.frames";
    const LOADS: [&str; 2] = ["dlopen", "dlmopen"];
    const STARTS: [&str; 5] = ["exec", "fexecve", "posix_spawn", "system", "popen"];
    let file = everycall_io::infile::open(object).ok()?;
    let cache = ReadCache::new(file);
    let elf = ElfFile::<FileHeader64<LittleEndian>, _>::parse(&cache).ok()?;
    let symbols = elf.dynamic_symbols().chain(elf.symbols());
    let names = symbols
        .filter(|symbol| symbol.kind() != SymbolKind::File)
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned));
    let (mut loads, mut starts) = (false, false);
    for name in names {
        loads |= LOADS.contains(&name.as_str());
        starts |= STARTS.iter().any(|begin| name.starts_with(begin));
    }
    Some([loads, starts, elf.section_by_name(FRAMES).is_some()])
}

/// Whether a launcher has this name, with or without a version (`python3.11`).
fn is_launcher(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    LAUNCHERS.contains(&name) || LAUNCHERS.contains(&plain) || name.starts_with(EMULATOR)
}

fn is_script(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = everycall_io::infile::open(path)
        .and_then(|file| file.take(BEGINNING as u64).read_to_end(&mut beginning));
    read.is_ok() && (beginning.starts_with(b"#!") || !beginning.contains(&0))
}

/// Whether a library that the program is linked with, directly or not, has traced functions.
fn has_traced_libraries(program: &Path) -> bool {
    let is_traced = |library: PathBuf| site_report(&library).is_ok_and(|report| report.is_traceable());
    with_libraries(program.to_owned()).skip(1).any(is_traced)
}

/// The program, then all libraries that it is linked with, directly or not, that [`needed`] finds.
fn with_libraries(program: PathBuf) -> impl Iterator<Item = PathBuf> {
    let mut waiting = vec![program];
    let mut seen: Vec<OsString> = Vec::new();
    std::iter::from_fn(move || {
        let object = waiting.pop()?;
        for library in needed(&object).unwrap_or_default() {
            let name = library.file_name().unwrap_or_default().to_owned();
            if !seen.contains(&name) && seen.len() < LIBRARIES_MAX {
                seen.push(name);
                waiting.push(library);
            }
        }
        Some(object)
    })
}

/// Whether a program's address sanitizer is a library. It then refuses to start behind other
/// preloaded libraries, unless an option allows it.
pub fn has_shared_sanitizer(program: &OsStr) -> bool {
    let is_it = |name: &Vec<u8>| name.starts_with(b"libasan.so") || name.starts_with(b"libclang_rt.asan");
    let links = find_program(program).and_then(|path| links(&path));
    links.is_some_and(|links| links.needed.iter().any(is_it))
}

/// Facts from an object's dynamic section about its libraries.
#[derive(Default)]
struct Links {
    /// Their names.
    needed: Vec<Vec<u8>>,
    /// Lists of folders to look in.
    run_paths: Vec<Vec<u8>>,
}

fn links(object: &Path) -> Option<Links> {
    let file = everycall_io::infile::open(object).ok()?;
    let cache = ReadCache::new(file);
    let elf = ElfFile::<FileHeader64<LittleEndian>, _>::parse(&cache).ok()?;
    let endian = elf.endian();
    let (dynamic, link) = elf.elf_section_table().dynamic(endian, &cache).ok()??;
    let strings = elf.elf_section_table().strings(endian, &cache, link).ok()?;
    let mut links = Links::default();
    for entry in dynamic {
        let text = || entry.string(endian, strings).ok().map(<[u8]>::to_vec);
        let tag = entry.d_tag(endian);
        if tag == DT_NEEDED {
            links.needed.extend(text());
        } else if tag == DT_RPATH || tag == DT_RUNPATH {
            links.run_paths.extend(text());
        }
    }
    Some(links)
}

/// The libraries that an object needs, looked up in its run path and in `LD_LIBRARY_PATH`. The
/// system's folders are left out: installed libraries are rarely built for tracing.
fn needed(object: &Path) -> Option<Vec<PathBuf>> {
    let links = links(object)?;
    let mut folders = Vec::new();
    if !links.run_paths.is_empty() {
        let origin = object.canonicalize().ok().and_then(|path| Some(path.parent()?.to_owned()));
        folders.extend(links.run_paths.iter().flat_map(|list| run_path(list, origin.as_deref())));
    }
    if let Some(list) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.extend(std::env::split_paths(&list));
    }
    let place = |name: &[u8]| {
        let name = OsStr::from_bytes(name);
        if name.as_bytes().contains(&b'/') {
            return Some(PathBuf::from(name)).filter(|path| path.is_file());
        }
        folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    };
    Some(links.needed.iter().filter_map(|name| place(name)).collect())
}

fn run_path(list: &[u8], origin: Option<&Path>) -> Vec<PathBuf> {
    let origin = origin.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let list = String::from_utf8_lossy(list).replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    list.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_recognized_with_a_version_in_their_name() {
        for name in ["sh", "python3.11", "python", "gdb", "make"] {
            assert!(is_launcher(name), "{name}");
        }
        for name in ["app", "shell", "makefile", "3.11", ""] {
            assert!(!is_launcher(name), "{name}");
        }
    }

    #[test]
    fn scripts_untraced_programs_and_other_files_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path.into_os_string()
        };
        assert_eq!(look_at(&file("a", b"#!/bin/sh\n")), Prospect::Launcher);
        assert_eq!(look_at(&file("b", b"echo hello\n")), Prospect::Launcher);
        assert!(matches!(look_at(&file("c", b"\0\x01\x02")), Prospect::NoProgram(_)));
        assert!(matches!(look_at(&file("d", b"\x7fELF")), Prospect::NoProgram(_)));
        assert!(matches!(look_at(OsStr::new("true")), Prospect::Plain(_)));
        assert_eq!(look_at(OsStr::new("sh")), Prospect::Launcher);
        assert_eq!(look_at(OsStr::new("no-such-program-anywhere")), Prospect::Unknown);
    }

    #[test]
    fn libraries_are_looked_up_in_the_run_path() {
        assert_eq!(
            run_path(b"$ORIGIN/../lib::/opt/x", Some(Path::new("/app/bin"))),
            [PathBuf::from("/app/bin/../lib"), PathBuf::from("/opt/x")]
        );
        // All of its libraries are system libraries.
        assert_eq!(needed(&std::env::current_exe().unwrap()).unwrap(), Vec::<PathBuf>::new());
    }
}
