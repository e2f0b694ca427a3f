//! The library of expected trees: each program of `tests/trees` says in its head which calls have
//! to be seen, and every mode has to show exactly these.
//!
//! The head is a comment of `//` lines. `//| ` lines are the expected outline, see
//! [`everycall_tests::outline`]; `//gcc| ` and `//clang| ` are those of programs that do different
//! things by compiler (or mode). The others of these forms say how it comes about; whatever else
//! the comment says is for its readers.
//!
//! | line | meaning |
//! |---|---|
//! | `// flags: -pthread` | for the compiler |
//! | `// behind: -lm` | for the compiler, behind the program's name; where there are several of these lines, each is a case |
//! | `// levels: -O2 -O3` | of optimisation, instead of all of [`LEVELS`] |
//! | `// not in: gcc-finstrument` | modes that can't show it, by [`Mode::label`] |
//! | `// hidden: PARTS` | functions whose names hold one of these are left out, too |
//! | `// library: NAME` | another file of the folder, made into a shared object that the program is linked with |
//! | `// run: ARGUMENTS` | the program's arguments; the outline that follows is this run's |
//! | `// ends: signal 6` | how the run ends, instead of with status 0; or `status N` |
//!
//! A number that depends on the machine is written `*`.
//!
//! Functions of the standard library's templates are left out.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use everycall_tests::outline::outline;
use everycall_tests::{Mode, Place, is_full};

const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];
/// Ways to link that change how the functions are found which leave frames.
const LINKS: [&[&str]; 8] = [
    &["-static"],
    &["-static-pie"],
    &["-no-pie", "-Wl,-z,now"],
    &["-flto"],
    &["-flto", "-static"],
    &["-Wl,--as-needed,--gc-sections", "-ffunction-sections", "-fno-plt"],
    &["-static-libstdc++", "-static-libgcc"],
    &["-fuse-ld=lld", "-Wl,--gc-sections"],
];
/// Links with LLVM's C++ library.
const LIBCXX: [&[&str]; 3] =
    [&["-stdlib=libc++"], &["-stdlib=libc++", "-static-libstdc++"], &["-stdlib=libc++", "-static"]];
/// The library that they need. It can't be installed beside another package (libunwind-dev).
const LIBCXX_ARCHIVE: &str = "/usr/lib/llvm-19/lib/libc++.a";
/// Trees may be deep.
const STACK: usize = 1 << 28;

#[derive(Debug, Default)]
struct Run {
    arguments: Vec<String>,
    /// Exit status and signal.
    ends: (Option<i32>, Option<i32>),
    outline: Vec<String>,
}

#[derive(Debug, Default)]
struct Expected {
    flags: Vec<String>,
    behind: Vec<Vec<String>>,
    levels: Vec<String>,
    not_in: Vec<String>,
    hidden: Vec<String>,
    library: Option<String>,
    runs: Vec<Run>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Whether a row's `gcc` or `clang-19-xray`, or nothing, names the mode.
fn is_in(name: &str, mode: Mode) -> bool {
    mode.label().starts_with(name)
}

impl Expected {
    fn of(path: &Path, mode: Mode) -> Expected {
        let text = std::fs::read_to_string(path).expect("a program of the library");
        let mut expected = Expected::default();
        let new_run = || Run { ends: (Some(0), None), ..Run::default() };
        for line in text.lines().take_while(|line| line.starts_with("//")) {
            if let Some((_, row)) = line
                .strip_prefix("//")
                .and_then(|line| line.split_once('|'))
                .filter(|(modes, _)| is_in(modes, mode))
            {
                if expected.runs.is_empty() {
                    expected.runs.push(new_run());
                }
                let run = expected.runs.last_mut().expect("there is one");
                run.outline.push(row.strip_prefix(' ').unwrap_or(row).to_owned());
            }
            let Some((key, value)) = line.strip_prefix("// ").and_then(|line| line.split_once(':')) else {
                continue;
            };
            match key {
                "flags" => expected.flags = words(value),
                "behind" => expected.behind.push(words(value)),
                "levels" => expected.levels = words(value),
                "not in" => expected.not_in = words(value),
                "hidden" => expected.hidden = words(value),
                "library" => expected.library = Some(value.trim().to_owned()),
                "run" => expected.runs.push(Run { arguments: words(value), ..new_run() }),
                "ends" => {
                    let ends = match words(value).as_slice() {
                        [how, number] if how == "signal" => (None, number.parse().ok()),
                        [how, number] if how == "status" => (number.parse().ok(), None),
                        other => panic!("{}: ends: {other:?}", path.display()),
                    };
                    expected.runs.last_mut().expect("`ends:` stands behind `run:`").ends = ends;
                }
                _ => {}
            }
        }
        assert!(!expected.runs.is_empty(), "{} expects nothing", path.display());
        if expected.behind.is_empty() {
            expected.behind.push(Vec::new());
        }
        if expected.levels.is_empty() {
            expected.levels = LEVELS.map(str::to_owned).to_vec();
        }
        expected
    }
}

/// One program in one mode at one level.
struct Case {
    source: PathBuf,
    mode: Mode,
    level: String,
    link: &'static [&'static str],
    behind: Vec<String>,
}

impl Case {
    fn name(&self) -> String {
        let stem = self.source.file_stem().expect("a name").to_string_lossy();
        let link: String = self.link.iter().map(|option| option.replace(['/', ','], "_")).collect();
        format!("{stem}-{}{}{link}{}", self.mode.label(), self.level, self.behind.concat())
    }

    /// The differences between expected and seen trees.
    fn differences(&self, place: &Place, expected: &Expected) -> Option<String> {
        let flags = || {
            let flags = expected.flags.iter().map(String::as_str);
            [self.level.as_str()].into_iter().chain(flags).chain(self.link.iter().copied())
        };
        let library = expected.library.as_ref().map(|library| {
            let source = self.source.with_file_name(library);
            let arguments: Vec<&str> = flags().chain(["-shared", "-fPIC"]).collect();
            let name = format!("lib{}.so", self.name());
            place.build(self.mode, &[&arguments[..], &[&source.to_string_lossy()]].concat(), &name)
        });
        let source = self.source.to_string_lossy().into_owned();
        let library = library.map(|path| path.to_string_lossy().into_owned());
        let mut arguments: Vec<&str> = flags().collect();
        arguments.push(&source);
        arguments.extend(library.as_deref());
        arguments.extend(self.behind.iter().map(String::as_str));
        let program = place.build(self.mode, &arguments, &self.name());
        let mut report = String::new();
        for run in &expected.runs {
            let words: Vec<&str> = run.arguments.iter().map(String::as_str).collect();
            let recording = place.record(&["--ring-size", "16M"], &program, &words);
            let status = recording.output.status;
            // As a shell has it: `record` ends as the program did.
            let seen = (status.code(), status.signal());
            let rows = outline(&recording.file, |name| {
                ["?", "std::", "__gnu_cxx::", "operator new", "operator delete", "_fini", "_init"]
                    .iter()
                    .any(|hidden| name.starts_with(hidden) || name.contains(&format!(" {hidden}")))
                    || expected.hidden.iter().any(|part| name.contains(part.as_str()))
            });
            let _ = std::fs::remove_file(&recording.file);
            if !agree(&run.outline, &rows) || seen != run.ends {
                let lines = compared(&run.outline, &rows);
                report += &format!("== {} {words:?}: {seen:?}\n{lines}", self.name());
                if seen != run.ends {
                    report += &String::from_utf8_lossy(&recording.output.stderr);
                }
            }
        }
        (!report.is_empty()).then_some(report)
    }
}

/// Whether they are the same, but for numbers behind `*`.
fn agree(expected: &[String], seen: &[String]) -> bool {
    expected.len() == seen.len() && expected.iter().zip(seen).all(|(left, right)| same(left, right))
}

fn same(expected: &str, seen: &str) -> bool {
    match expected.strip_suffix('*') {
        Some(start) => seen.strip_prefix(start).is_some_and(|rest| rest.parse::<u32>().is_ok()),
        None => expected == seen,
    }
}

/// Expected and seen lines, side by side.
fn compared(expected: &[String], seen: &[String]) -> String {
    let width = expected.iter().map(|line| line.chars().count()).max().unwrap_or(0).max(8);
    let rows = expected.len().max(seen.len());
    let row = |index: usize| {
        let [left, right] =
            [expected, seen].map(|lines| lines.get(index).map(String::as_str).unwrap_or_default());
        let mark = if same(left, right) { ' ' } else { '#' };
        format!("{mark} {left:width$} | {right}\n")
    };
    format!("  {:width$} | seen\n", "expected") + &(0..rows).map(row).collect::<String>()
}

fn programs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("trees");
    let mut programs: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the library")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            path.extension().is_some_and(|kind| kind == "c" || kind == "cpp") && !name.ends_with("_library")
        })
        .collect();
    programs.sort();
    programs
}

/// `EVERYCALL_TREES` names a part of the cases' names; `EVERYCALL_FULL` takes all levels and, for
/// each program, all modes.
#[test]
fn every_program_shows_its_tree_in_every_mode() {
    let place = Place::new("trees");
    let all_levels = is_full();
    let wanted = std::env::var("EVERYCALL_TREES").unwrap_or_default();
    let mut cases = Vec::new();
    for (number, source) in programs().into_iter().enumerate() {
        for (index, mode) in Mode::ALL.into_iter().enumerate() {
            // Who asks for a mode gets it.
            if wanted.is_empty() && !Mode::in_turn(number).any(|tried| tried == mode) {
                continue;
            }
            let expected = Expected::of(&source, mode);
            if expected.not_in.contains(&mode.label()) {
                continue;
            }
            // Else one level, another one for each.
            let one = (number + index) % expected.levels.len();
            for (place, level) in expected.levels.iter().enumerate() {
                if all_levels || place == one || wanted.contains("-O") {
                    cases.extend(expected.behind.iter().cloned().map(|behind| {
                        let (source, level) = (source.clone(), level.clone());
                        Case { source, mode, level, link: &[], behind }
                    }));
                }
            }
        }
    }
    all_agree(&place, cases);
}

#[test]
fn the_same_however_the_program_is_linked() {
    let place = Place::new("links");
    let mut cases = Vec::new();
    for name in ["cleanups.c", "exceptions.cpp", "forced.cpp", "jumps.c"] {
        for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
            for link in LINKS {
                // lld is clang's, and with it C's cleanups aren't wrapped.
                let is_others =
                    link.contains(&"-fuse-ld=lld") && (mode == Mode::GCC_NOPS || name == "cleanups.c");
                // Two copies of the unwinder: that ends programs whose threads are cancelled, also
                // without us.
                let ends = link.contains(&"-static-libstdc++") && name != "exceptions.cpp";
                if is_others || ends {
                    continue;
                }
                let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("trees").join(name);
                // The prefix refuses this pair.
                let is_refused = mode.name == "xray" && link.contains(&"-flto");
                let mode = if is_refused { Mode::CLANG19_AFTER_INLINING } else { mode };
                cases.push(Case { source, mode, level: "-O2".to_owned(), link, behind: Vec::new() });
            }
        }
    }
    all_agree(&place, cases);
}

#[test]
fn the_same_with_llvms_library() {
    if !Path::new(LIBCXX_ARCHIVE).exists() {
        println!("skipped: {LIBCXX_ARCHIVE} isn't there (Debian: libc++-19-dev)");
        return;
    }
    let place = Place::new("libcxx");
    let mut cases = Vec::new();
    for name in ["exceptions.cpp", "exceptions_end.cpp", "exceptions_shared.cpp", "fibers.cpp"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("trees").join(name);
        for mode in [Mode::CLANG19_XRAY, Mode::CLANG19_FINSTRUMENT, Mode::CLANG19_AFTER_INLINING] {
            for link in LIBCXX {
                // A library that throws, and one more copy of what catches: not even without us.
                if link.len() == 1 || !name.contains("shared") {
                    let (source, level) = (source.clone(), "-O2".to_owned());
                    cases.push(Case { source, mode, level, link, behind: Vec::new() });
                }
            }
        }
    }
    all_agree(&place, cases);
}

/// Runs the cases whose names are wanted, on all CPUs.
fn all_agree(place: &Place, mut cases: Vec<Case>) {
    let wanted = std::env::var("EVERYCALL_TREES").unwrap_or_default();
    cases.retain(|case| case.name().contains(&wanted));
    let (next, reports) = (Mutex::new(cases.iter()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let Some(case) = next.lock().expect("nobody panics with it").next() else { break };
            let report = case.differences(place, &Expected::of(&case.source, case.mode));
            reports.lock().expect("nobody panics with it").extend(report);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..threads {
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).expect("a thread");
        }
    });
    let mut reports = reports.into_inner().expect("nobody panics with it");
    reports.sort();
    assert!(reports.is_empty(), "{} of {} cases differ:\n{}", reports.len(), cases.len(), reports.concat());
}
