//! Programs that are made at random write down the arguments and the result of each of their calls.
//! Capture programs run on their registers and memory at each entry and return, in a process that
//! is stopped there, and have to find the same values.
//!
//! What the optimiser has removed may be missing, but never be wrong. Without optimisation, nothing
//! may be missing, except where Rust's own ABI isn't known.

mod expressions;
mod generate;
mod stopped;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_arguments::syntax::Request;
use everycall_arguments::{CaptureOptions, Compiled, FunctionPlace, Moment, compile};
use everycall_capture::{Outcome, Program};
use everycall_format::capture::OUTPUT_MAX;
use everycall_symbols::{ModuleDwarf, ModuleIdentity, SymbolOptions};
use everycall_values::layout::Layout;
use everycall_values::{decode, text};
use object::{Object, ObjectSymbol, SymbolKind};
use serde_json::Value;

use crate::stopped::{Stop, Stopped};

/// The result of a comparison.
#[derive(Debug, Default)]
struct Tally {
    values: usize,
    missing: usize,
    results: usize,
}

struct Traced {
    name: String,
    entry: Compiled,
    exit: Compiled,
}

/// The functions of a program that are traced, by address.
fn traced(path: &Path) -> HashMap<u64, Traced> {
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let build_id = file.build_id().unwrap().unwrap_or_default().to_vec();
    let identity = ModuleIdentity::new(path, &build_id);
    let mut dwarf =
        ModuleDwarf::open(&identity, &SymbolOptions::bare()).unwrap_or_else(|error| panic!("{error:?}"));
    let mut functions = HashMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
        let linkage_name = symbol.name().unwrap();
        let Some(name) = generate::traced_name(linkage_name) else { continue };
        if linkage_name.contains(".cold") {
            continue;
        }
        let request = Request { function: name.clone(), values: None, condition: None };
        let place = FunctionPlace {
            address: symbol.address(),
            first_site: 0,
            linkage_name,
            is_local: Some(is_local(&symbol)),
        };
        let options = CaptureOptions::default();
        let mut made = |moment| {
            compile(&request, &name, moment, Some(&mut dwarf), place, &options)
                .unwrap_or_else(|error| panic!("{linkage_name}: {error}"))
        };
        let (entry, exit) = (made(Moment::Entry), made(Moment::Exit));
        functions.insert(symbol.address(), Traced { name, entry, exit });
    }
    functions
}

/// Whether the symbol was local to its object: other symbols with local binding are hidden ones.
fn is_local(symbol: &object::Symbol<'_, '_>) -> bool {
    let object::SymbolFlags::Elf { st_other, .. } = symbol.flags() else { return false };
    symbol.is_local() && st_other.visibility() == object::elf::STV_DEFAULT
}

fn captured(stopped: &Stopped, compiled: &Compiled) -> Value {
    let program = Program::check(&compiled.program).unwrap();
    let mut output = [0; OUTPUT_MAX];
    let Outcome::Captured(length) = program.run(stopped, &mut output) else { panic!("no capture") };
    let json = text::json(&decode(&Layout::of_bytes(&compiled.layout).unwrap(), &output[..length]));
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// Whether a value is the expected one. A member that is missing is counted.
fn is_same(found: &Value, expected: &Value, missing: &mut usize) -> bool {
    match (found, expected) {
        (Value::String(text), _) if text == "<optimised out>" => {
            *missing += 1;
            true
        }
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64() == b.as_f64() && (a.is_f64() || b.is_f64() || a == b)
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b, missing)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b, missing))
        }
        (a, b) => a == b,
    }
}

/// Runs a program to its end, and compares all of its calls.
fn compare(path: &Path, context: &str) -> Tally {
    let functions = traced(path);
    assert!(functions.len() > 3, "{context}: {}", functions.len());
    let output = path.with_extension("out");
    let addresses: Vec<u64> = functions.keys().copied().collect();
    let mut stopped = Stopped::start(path, &output, &addresses);
    let mut found: Vec<(String, bool, Value)> = Vec::new();
    let mut open: Vec<(u64, u64)> = Vec::new();
    while let Some(stop) = stopped.next() {
        match stop {
            Stop::At(address) => {
                if let Some(function) = functions.get(&address) {
                    found.push((function.name.clone(), true, captured(&stopped, &function.entry)));
                    let back = stopped.return_address();
                    stopped.also_at(back);
                    open.push((back, address));
                } else if let Some((back, function)) = open.pop() {
                    assert_eq!(back, address, "{context}");
                    let function = &functions[&function];
                    found.push((function.name.clone(), false, captured(&stopped, &function.exit)));
                    stopped.no_longer_at(back);
                }
            }
            Stop::Signal(signal) => panic!("{context}: signal {signal}"),
        }
    }
    let mut tally = Tally::default();
    let written = std::fs::read_to_string(&output).unwrap();
    let mut lines = written.lines();
    let mut failures = Vec::new();
    for (name, is_entry, found) in found {
        let line = lines.next().unwrap_or_else(|| panic!("{context}: {name} wrote nothing"));
        let (head, json) = line.split_once(' ').unwrap();
        assert_eq!(head, format!("{}{name}", if is_entry { "" } else { "-" }), "{context}: {line}");
        let expected: Value =
            serde_json::from_str(json).unwrap_or_else(|error| panic!("{context}: {error}: {json}"));
        let expected = expected.as_object().unwrap();
        let found = found.as_object().unwrap();
        for (key, expected) in expected {
            let Some(found) = found.get(key) else {
                failures.push(format!("{name}: no {key}, {found:?}"));
                continue;
            };
            let mut missing = 0;
            if !is_same(found, expected, &mut missing) {
                failures.push(format!("{name}({key}): {found}, but it was {expected}"));
            }
            tally.values += 1;
            tally.missing += usize::from(missing > 0);
            tally.results += usize::from(!is_entry);
        }
    }
    assert!(
        failures.is_empty(),
        "{context} ({}): {} wrong:\n{}",
        path.display(),
        failures.len(),
        failures[..failures.len().min(30)].join("\n")
    );
    assert!(lines.next().is_none(), "{context}: calls weren't seen");
    tally
}

fn run(command: &[&str], dir: &Path) {
    let output = Command::new(command[0]).args(&command[1..]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn has(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Language {
    C,
    Cpp,
    Rust,
}

/// Builds a program for each of the seeds and compares its calls.
fn check(language: Language, compiler: &str, flags: &[&str], seeds: std::ops::Range<u64>) -> Tally {
    let mut sum = Tally::default();
    if !has(compiler) {
        eprintln!("{compiler} isn't installed");
        return sum;
    }
    for seed in seeds {
        let dir = tempfile::tempdir().unwrap();
        let dir_path = match std::env::var_os("EVERYCALL_KEEP") {
            Some(path) => PathBuf::from(path),
            None => dir.path().canonicalize().unwrap(),
        };
        let (source, name) = match language {
            Language::C => (generate::c(seed, false), "it.c"),
            Language::Cpp => (generate::c(seed, true), "it.cpp"),
            Language::Rust => (generate::rust(seed), "it.rs"),
        };
        std::fs::write(dir_path.join(name), source).unwrap();
        let mut command = vec![compiler];
        match language {
            Language::Rust => command.extend(["-g", "-Crelocation-model=static", "-Cstrip=none"]),
            _ => command.extend(["-g", "-no-pie", "-w", "-fno-stack-protector"]),
        }
        command.extend(flags);
        command.extend([name, "-o", "it"]);
        run(&command, &dir_path);
        let context = format!("{language:?} {compiler} {flags:?} seed {seed}");
        let tally = compare(&dir_path.join("it"), &context);
        if flags.contains(&"-O0") {
            // Behind an integer of 128 bits on the stack, versions of clang differ.
            let most = if compiler.starts_with('g') { 0 } else { tally.values / 10 };
            assert!(tally.missing <= most, "{context}: {}", tally.missing);
        }
        sum.values += tally.values;
        sum.missing += tally.missing;
        sum.results += tally.results;
    }
    if std::env::var_os("EVERYCALL_FULL").is_some() {
        println!("{language:?} {compiler} {flags:?}: {sum:?}");
    }
    sum
}

/// How many seeds: few, or as many as `EVERYCALL_ORACLE_SEEDS` says with `EVERYCALL_FULL`.
fn seeds() -> u64 {
    if std::env::var_os("EVERYCALL_FULL").is_none() {
        return 1;
    }
    std::env::var("EVERYCALL_ORACLE_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(10)
}

/// All combinations of some lists with `EVERYCALL_FULL`, else the first of each compiler.
fn combinations<'c>(
    some: &[(&'c str, &'c [&'c str])],
    all: &[(&'c str, &'c [&'c str])],
) -> Vec<(&'c str, Vec<&'c str>)> {
    let chosen = if std::env::var_os("EVERYCALL_FULL").is_some() { all } else { some };
    // For one of them alone: `EVERYCALL_ORACLE_ONLY="gcc -O2 -flto"`.
    let only = std::env::var("EVERYCALL_ORACLE_ONLY").ok();
    let is_wanted = |compiler: &str, flags: &[&str]| {
        only.as_ref().is_none_or(|only| *only == format!("{compiler} {}", flags.join(" ")))
    };
    let wanted = chosen.iter().filter(|(compiler, flags)| is_wanted(compiler, flags));
    wanted.map(|(compiler, flags)| (*compiler, flags.to_vec())).collect()
}

#[test]
fn arguments_of_c_are_those_that_the_program_writes() {
    let all = [
        ("gcc", &["-O0"][..]),
        ("gcc", &["-O1"]),
        ("gcc", &["-O2"]),
        ("gcc", &["-O3"]),
        ("gcc", &["-O2", "-gdwarf-4"]),
        ("gcc", &["-O2", "-flto"]),
        ("gcc", &["-Os"]),
        ("gcc", &["-O2", "-gsplit-dwarf"]),
        ("clang-19", &["-O0"]),
        ("clang-19", &["-O1"]),
        ("clang-19", &["-O2"]),
        ("clang-19", &["-O3"]),
        ("clang-19", &["-O2", "-gdwarf-4"]),
        ("clang-19", &["-O0", "-gsplit-dwarf"]),
        ("clang-22", &["-O0"]),
        ("clang-22", &["-O2"]),
    ];
    for (compiler, flags) in
        combinations(&[("gcc", &["-O2"]), ("clang-19", &["-O0"]), ("clang-19", &["-O2"])], &all)
    {
        check(Language::C, compiler, &flags, 1..1 + seeds());
    }
}

#[test]
fn arguments_of_cpp_are_those_that_the_program_writes() {
    let all = [
        ("g++", &["-O0"][..]),
        ("g++", &["-O1"]),
        ("g++", &["-O2"]),
        ("g++", &["-O3"]),
        ("g++", &["-O2", "-gdwarf-4"]),
        ("g++", &["-O2", "-D_GLIBCXX_USE_CXX11_ABI=0"]),
        ("g++", &["-O0", "-D_GLIBCXX_USE_CXX11_ABI=0"]),
        ("clang++-19", &["-O0"]),
        ("clang++-19", &["-O1"]),
        ("clang++-19", &["-O2"]),
        ("clang++-19", &["-O3"]),
        ("clang++-22", &["-O0"]),
        ("clang++-22", &["-O2"]),
    ];
    for (compiler, flags) in combinations(&[("g++", &["-O0"])], &all) {
        check(Language::Cpp, compiler, &flags, 1..1 + seeds());
    }
}

#[test]
fn arguments_of_rust_are_those_that_the_program_writes() {
    let all = [
        ("rustc", &["-Copt-level=0"][..]),
        ("rustc", &["-Copt-level=1"]),
        ("rustc", &["-Copt-level=2"]),
        ("rustc", &["-Copt-level=3"]),
    ];
    for (compiler, flags) in combinations(&[("rustc", &["-Copt-level=1"])], &all) {
        check(Language::Rust, compiler, &flags, 1..1 + seeds());
    }
}
