//! Plans applied to programs that run: the same output, and exits for entries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use everycall_rewrite::{Analysis, HookKind, HookLayout, PatchKind, Plan, Refusal, Tactic};
use tempfile::TempDir;

/// Name, entries, exits.
type Counts = BTreeMap<(u64, String), (u64, u64)>;

struct Applied {
    folder: TempDir,
    library: PathBuf,
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

fn compile(compiler: &str, options: &[&str], source: &str, output: &Path) {
    let status =
        Command::new(compiler).args(options).arg(programs().join(source)).arg("-o").arg(output).status();
    assert!(status.expect(compiler).success(), "{compiler} {source}");
}

impl Applied {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("apply.so");
        compile("cc", &["-O1", "-shared", "-fPIC"], "apply.c", &library);
        Self { folder, library }
    }

    /// Runs a command with and without the plan for a file: `module` is the end of the file's path,
    /// or empty for the program.
    fn run(&self, file: &Path, module: &str, command: &[&str]) -> (Plan, Counts) {
        let bytes = std::fs::read(file).expect("a file");
        let analysis = Analysis::of(&bytes, None).expect("an analysis");
        let plan = analysis.plan(HookLayout::default(), &|_, _| true).expect("a plan");
        let (plan_file, counts) = (self.folder.path().join("plan"), self.folder.path().join("counts"));
        std::fs::write(&plan_file, encoded(&plan, module)).expect("a plan's file");
        let _ = std::fs::remove_file(&counts);
        let run = |is_hooked: bool| -> Output {
            let mut run = Command::new(command[0]);
            run.args(&command[1..]);
            if is_hooked {
                run.env("LD_PRELOAD", &self.library).env("PLAN", &plan_file).env("COUNTS", &counts);
            }
            run.output().expect(command[0])
        };
        let (plain, hooked) = (run(false), run(true));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(plain.status, hooked.status, "{command:?}: {}", text(&hooked.stderr));
        assert_eq!(text(&plain.stdout), text(&hooked.stdout), "{command:?}");
        assert_eq!(text(&plain.stderr), text(&hooked.stderr), "{command:?}");
        let counts = std::fs::read(&counts).expect("counts");
        let at = |offset: u32| {
            let start = 8 * offset as usize;
            u64::from_le_bytes(counts[start..start + 8].try_into().expect("8 bytes"))
        };
        let mut by_function = Counts::new();
        for call in &plan.calls {
            let function = &plan.functions[call.function as usize];
            let count = by_function.entry((function.start, function.name.clone())).or_default();
            match call.kind {
                HookKind::Entry => count.0 += at(call.at + 5),
                HookKind::Exit | HookKind::TailExit => count.1 += at(call.at + 5),
            }
        }
        (plan, by_function)
    }
}

/// As `apply.c` reads it.
fn encoded(plan: &Plan, module: &str) -> Vec<u8> {
    let mut bytes = module.as_bytes().to_vec();
    bytes.resize(256, 0);
    bytes.extend(plan.region.to_le_bytes());
    let hooks = plan.hooks;
    for number in [
        u64::from(hooks.reserved),
        plan.code.len() as u64,
        plan.patches.len() as u64,
        plan.islands.len() as u64,
        hooks.entry.into(),
        hooks.exit.into(),
        hooks.tail_exit.into(),
    ] {
        bytes.extend(number.to_le_bytes());
    }
    for patch in &plan.patches {
        bytes.extend(patch.at.to_le_bytes());
        bytes.extend((patch.new.len() as u64).to_le_bytes());
        for side in [&patch.old, &patch.new] {
            let mut side = side.to_vec();
            side.resize(256, 0);
            bytes.extend(side);
        }
    }
    for island in &plan.islands {
        bytes.extend(island.at.to_le_bytes());
        bytes.extend(island.bytes);
        bytes.extend([0; 3]);
    }
    bytes.extend(&plan.code);
    bytes
}

/// Functions with fewer or more exits than entries: name, entries less exits.
fn uneven(counts: &Counts) -> BTreeMap<String, i64> {
    let uneven = counts.iter().filter(|(_, (entries, exits))| entries != exits);
    uneven
        .map(|((start, name), (entries, exits))| {
            let name = if name.is_empty() { format!("{start:#x}") } else { name.clone() };
            (name, *entries as i64 - *exits as i64)
        })
        .collect()
}

fn entries(counts: &Counts, name: &str) -> u64 {
    counts.iter().find(|((_, one), _)| one == name).unwrap_or_else(|| panic!("{name} isn't hooked")).1.0
}

#[test]
fn c_programs_are_counted_call_by_call() {
    let applied = Applied::new();
    for (compiler, options) in [
        ("gcc", &["-O2"][..]),
        ("gcc", &["-O0", "-fcf-protection=full"]),
        ("gcc", &["-O3", "-no-pie"]),
        ("gcc", &["-Os"]),
        ("clang-19", &["-O2"]),
    ] {
        let program = applied.folder.path().join("calls");
        compile(compiler, options, "calls.c", &program);
        let path = program.to_str().expect("a path");
        let (plan, counts) = applied.run(&program, "", &[path]);
        let what = format!("{compiler} {options:?}");
        // `longjmp` leaves them: four levels, a hundred times.
        let uneven = uneven(&counts);
        assert_eq!(uneven, BTreeMap::from([("leaves".to_owned(), 400)]), "{what}");
        assert_eq!(entries(&counts, "main"), 1, "{what}");
        if options[0] == "-Os" {
            // Without padding, functions of few bytes have no place for a jump.
            continue;
        }
        assert_eq!(entries(&counts, "computed"), 100, "{what}");
        assert_eq!(entries(&counts, "jumps_by_pointer"), 5000, "{what}");
        let planned: Vec<&str> = plan.functions.iter().map(|function| function.name.as_str()).collect();
        for name in ["table", "jumps_to", "jumps_if", "length", "compare", "area"] {
            assert!(planned.contains(&name), "{what}: {name} in {:?}", plan.left_out);
        }
    }
}

#[test]
fn exceptions_leave_functions_with_hooks() {
    let applied = Applied::new();
    for (compiler, options) in [("g++", &["-O2"][..]), ("g++", &["-O0"]), ("clang++-19", &["-O1"])] {
        let program = applied.folder.path().join("throws");
        compile(compiler, options, "throws.cpp", &program);
        let path = program.to_str().expect("a path");
        let (_, counts) = applied.run(&program, "", &[path]);
        // A seventh of 770 calls throws.
        let mut uneven = uneven(&counts);
        let mut take = |name: &str| uneven.remove(name).unwrap_or_default();
        let what = format!("{compiler} {options:?}");
        assert_eq!((take("_Z5innerl"), take("_Z6middlel")), (110, 110), "{what}");
        // It may leave out the handler that only throws again, and then jumps to `middle`.
        assert_eq!(take("_Z5outerl"), 0, "{what}");
        assert!(matches!(take("_Z8rethrowsl"), 0 | 10), "{what}");
        assert!(uneven.is_empty(), "{what}: {uneven:?}");
        assert_eq!(entries(&counts, "_Z5outerl"), 700, "{what}");
        // The compiler chooses which of its two names a constructor has.
        let guards = |kind: &str| {
            let names = counts.iter().filter(|((_, name), _)| name.starts_with(kind));
            names.map(|(_, (entries, _))| entries).sum::<u64>()
        };
        assert_eq!((guards("_ZN5GuardC"), guards("_ZN5GuardD")), (1540, 1540), "{what}");
    }
}

/// Programs of the machine, where there are any: the executable, or a library that it loads.
#[test]
fn programs_of_others_run_as_before() {
    let applied = Applied::new();
    let bash = "n=0; for i in {1..300}; do n=$((n + i * 7)); s+=\"${n:0:3}\"; done; echo $n ${#s}; f() { return 3; }; f; exit $?";
    let perl = "my %h; $h{$_ % 97} .= $_ for 1 .. 3000; print join(',', map { length $h{$_} } sort keys %h), \"\\n\"; eval { die 'x' }; print $@";
    for command in [&["/bin/bash", "-c", bash][..], &["/usr/bin/perl", "-e", perl]] {
        if !Path::new(command[0]).exists() {
            continue;
        }
        let (plan, counts) = applied.run(Path::new(command[0]), "", command);
        let entered: u64 = counts.values().map(|(entries, _)| entries).sum();
        let uneven = uneven(&counts);
        // Calls open at the end, and those that `die` has left.
        assert!(
            uneven.values().all(|open| (1..10).contains(open)) && uneven.len() < 12,
            "{command:?}: {uneven:?}"
        );
        assert!(entered > 10_000, "{command:?}: {entered}");
        let all = plan.functions.len() + plan.left_out.len();
        assert!(plan.functions.len() * 100 > all * 98, "{command:?}: {:?}", plan.left_out);
    }
}

/// Each tactic on a function that has no other way, run: the same results, and all exits.
#[test]
fn each_tactic_works() {
    let applied = Applied::new();
    let program = applied.folder.path().join("tactics");
    let assembler = programs().join("tactics.s");
    // Red zones: the calls of the driver are in assembler.
    let options = ["-O1", "-mno-red-zone", assembler.to_str().expect("a path")];
    compile("gcc", &options, "tactics.c", &program);
    let path = program.to_str().expect("a path");
    let (plan, counts) = applied.run(&program, "", &[path]);
    let tactic = |name: &str| {
        let found = plan.functions.iter().find(|function| function.name == name);
        found.unwrap_or_else(|| panic!("{name}: {:?}", plan.left_out)).tactic
    };
    for (name, wanted) in [
        ("displaced", Tactic::Displace),
        ("relative", Tactic::Displace),
        ("retargeted", Tactic::Displace),
        ("padded", Tactic::Padding),
        ("shortened", Tactic::Short),
        ("copied", Tactic::Copy),
        ("evicted", Tactic::Evict),
        ("punned", Tactic::Pun),
        ("returns", Tactic::Displace),
        ("neighboured", Tactic::Evict),
        ("neighbour", Tactic::Displace),
        ("called", Tactic::Call),
    ] {
        assert_eq!(tactic(name), wanted, "{name}");
        let entries = entries(&counts, name);
        assert!(entries >= 50, "{name}: {entries}");
    }
    assert_eq!(plan.islands.len(), 1);
    let small = plan.left_out.iter().find(|function| function.name == "small").expect("left out");
    assert_eq!(small.refusal, Refusal::TooSmall);
    let retargeted = plan.functions.iter().position(|function| function.name == "retargeted");
    let displacements = plan
        .patches
        .iter()
        .filter(|patch| patch.kind == PatchKind::Displacement && Some(patch.function as usize) == retargeted);
    assert_eq!(displacements.count(), 2);
    assert!(uneven(&counts).is_empty(), "{:?}", uneven(&counts));
}
