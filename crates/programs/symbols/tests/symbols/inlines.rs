//! Inlined calls compared with llvm-symbolizer's answers, for every address of a program.

// A test may panic.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{Workshop, open};
use everycall_symbols::{ModuleSymbols, SymbolOptions};

const HEADER: &str = "\
#pragma once
extern int sink;
template <class T> inline T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
struct Counter {
  int n = 0;
  void add(int x) { n += clamp(x, 1, 50); sink += n; }
  template <class F> void each(F f) { for (int i = 0; i < n; i++) f(i); }
};
int outside(int x);
";
const ONE: &str = "\
#include \"header.h\"
int sink;
static inline int twice(int x) { sink += x; return x * 2; }
static inline int four_times(int x) { return twice(twice(x)); }
namespace { struct Local { int f(int x) { { int y = four_times(x); if (y > 3) { int z = twice(y); return z; } } return 0; } }; }
__attribute__((noinline)) int user(int x) {
  Counter counter;
  counter.add(x);
  counter.each([&](int i) { sink += twice(i); });
  Local local;
  return local.f(x) + outside(x);
}
__attribute__((noinline)) int none(int x) { sink -= x; return x; }
int main(int count, char**) { return user(count) + none(count) + four_times(count); }
";
const TWO: &str = "\
#include \"header.h\"
inline int deeper(int x) { Counter counter; counter.add(x); return counter.n; }
int outside(int x) { return deeper(x) + deeper(x + 1); }
";

fn build(command: &str) -> (Workshop, ModuleSymbols) {
    let workshop = Workshop::new();
    for (name, text) in [("header.h", HEADER), ("one.cpp", ONE), ("two.cpp", TWO)] {
        std::fs::write(workshop.path(name), text).unwrap();
    }
    let words: Vec<&str> = command.split_whitespace().collect();
    // Split units are beside objects.
    for source in ["one", "two"] {
        workshop.run(&[&words[..], &["-c", &format!("{source}.cpp"), "-o", &format!("{source}.o")]].concat());
    }
    workshop.run(&[&words[..], &["-Wl,--build-id", "one.o", "two.o", "-o", "out"]].concat());
    let symbols = open(&workshop.path("out"), &SymbolOptions::bare());
    (workshop, symbols)
}

/// Calls from the outside inwards, each with the line of the call.
type Chain = Vec<(String, u32)>;

fn bare(name: &str) -> String {
    // Demanglers call lambdas and spaces differently.
    let name = name.replace(' ', "");
    let name = name.replace("'lambda'", "{lambda").replace("::$_0::", "::{lambda}::");
    name.split("{lambda").next().unwrap().to_owned()
}

/// By function, each chain of inlined calls that some address of it has.
fn told_by_symbolizer(
    workshop: &Workshop,
    symbols: &ModuleSymbols,
    names: &[&str],
) -> BTreeMap<String, BTreeSet<Chain>> {
    let mut addresses = String::new();
    for entry in symbols.functions().filter(|entry| !entry.is_plt) {
        let name = String::from_utf8_lossy(entry.linkage_name).into_owned();
        let name = everycall_symbols::demangle(everycall_symbols::split_part(&name).0);
        if names.contains(&&*name) {
            (entry.start..entry.start + entry.size)
                .for_each(|address| addresses += &format!("{address:#x}\n"));
        }
    }
    let mut child = Command::new("llvm-symbolizer-19")
        .args(["--inlining", "--demangle", "--obj=out"])
        .current_dir(workshop.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(addresses.as_bytes()).unwrap());
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    writer.join().unwrap();
    let mut told: BTreeMap<String, BTreeSet<Chain>> = BTreeMap::new();
    for block in output.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let lines: Vec<&str> = block.trim().lines().collect();
        // Innermost first: name, then where the frame is.
        let frames: Vec<(&str, u32)> = lines
            .chunks_exact(2)
            .map(|pair| (pair[0], pair[1].rsplit(':').nth(1).and_then(|line| line.parse().ok()).unwrap_or(0)))
            .collect();
        let Some((function, _)) = frames.last() else { continue };
        let chain: Chain = frames.windows(2).rev().map(|pair| (bare(pair[0].0), pair[1].1)).collect();
        let chains = told.entry(bare(function)).or_default();
        (1..=chain.len()).for_each(|length| _ = chains.insert(chain[..length].to_vec()));
    }
    told
}

/// By function, each chain of inlined calls that the module's symbols give.
fn told(symbols: &mut ModuleSymbols, names: &[&str]) -> BTreeMap<String, BTreeSet<Chain>> {
    let mut told: BTreeMap<String, BTreeSet<Chain>> = BTreeMap::new();
    let ids: Vec<_> = symbols.functions().map(|entry| entry.id).collect();
    for id in ids {
        let name = symbols.function(id).name.clone();
        if !names.contains(&&*name) {
            continue;
        }
        let chains = told.entry(bare(&name)).or_default();
        let mut chain: Chain = Vec::new();
        let (calls, more) = symbols.inlined(id);
        assert_eq!(more, 0);
        for call in calls {
            assert!(call.level as usize <= chain.len(), "{call:?}");
            assert!(call.file.as_ref().is_some_and(|file| file.is_absolute()), "{call:?}");
            chain.truncate(call.level as usize);
            chain.push((bare(&call.name), call.line.unwrap_or(0)));
            chains.insert(chain.clone());
        }
    }
    told
}

const NAMES: [&str; 4] = ["user(int)", "none(int)", "main", "outside(int)"];

fn check(command: &str) {
    let (workshop, mut symbols) = build(command);
    let wanted = told_by_symbolizer(&workshop, &symbols, &NAMES);
    let got = told(&mut symbols, &NAMES);
    assert!(wanted["user(int)"].len() > 4 && wanted["user(int)"].iter().any(|chain| chain.len() > 2));
    for name in NAMES.map(bare) {
        let empty = BTreeSet::new();
        let (wanted, got) = (wanted.get(&name).unwrap_or(&empty), got.get(&name).unwrap_or(&empty));
        // A call may have no address of its own left, if all of its code belongs to calls inlined
        // into it.
        let missing: Vec<_> = wanted.difference(got).collect();
        let invented: Vec<_> = got.difference(wanted).collect();
        assert!(missing.is_empty() && invented.is_empty(), "{command}: {name}: {missing:?} {invented:?}");
    }
    assert!(got["none(int)"].is_empty());
    assert!(symbols.warnings().is_empty(), "{command}: {:?}", symbols.warnings());
}

#[test]
fn every_address_agrees() {
    for command in [
        "g++ -O2 -g",
        "g++ -O3 -gdwarf-4 -fPIE",
        "g++ -Os -g1",
        "g++ -O2 -g -flto",
        "clang++-19 -O2 -g",
        "clang++-19 -O3 -gdwarf-4",
        "clang++-19 -O2 -g -flto -fuse-ld=lld-19",
        "clang++-22 -O2 -g",
    ] {
        check(command);
    }
}

#[test]
fn split_units_agree() {
    for command in ["g++ -O2 -g -gsplit-dwarf", "clang++-19 -O2 -g -gsplit-dwarf -gdwarf-5"] {
        check(command);
    }
    let (workshop, mut beside) = build("clang++-19 -O2 -g -gsplit-dwarf");
    let wanted = told(&mut beside, &NAMES);
    workshop.run(&["llvm-dwp-19", "-e", "out", "-o", "out.dwp"]);
    std::fs::remove_file(workshop.path("one.dwo")).unwrap();
    std::fs::remove_file(workshop.path("two.dwo")).unwrap();
    let mut packed = open(&workshop.path("out"), &SymbolOptions::bare());
    assert_eq!(told(&mut packed, &NAMES), wanted);
    std::fs::remove_file(workshop.path("out.dwp")).unwrap();
    let mut gone = open(&workshop.path("out"), &SymbolOptions::bare());
    assert!(told(&mut gone, &NAMES).values().all(BTreeSet::is_empty));
    assert!(!gone.warnings().is_empty());
}

/// Debugging information in a file of its own, compressed; and none at all.
#[test]
fn separate_debug_files_give_the_same_inlined_calls() {
    let (workshop, mut symbols) = build("g++ -O2 -g -gz");
    let wanted = told(&mut symbols, &NAMES);
    workshop.run(&["objcopy", "--only-keep-debug", "out", "out.debug"]);
    workshop.run(&["objcopy", "--strip-debug", "--add-gnu-debuglink=out.debug", "out"]);
    let mut separate = open(&workshop.path("out"), &SymbolOptions::bare());
    assert_eq!(told(&mut separate, &NAMES), wanted);
    std::fs::remove_file(workshop.path("out.debug")).unwrap();
    let mut none = open(&workshop.path("out"), &SymbolOptions::bare());
    assert!(told(&mut none, &NAMES).values().all(BTreeSet::is_empty));
}

/// The number of stored calls of one function is limited, and the rest counted.
#[test]
fn many_calls_are_counted() {
    let workshop = Workshop::new();
    let calls: String = (0..500).map(|number| format!("  sink += step(x + {number});\n")).collect();
    let text = format!(
        "int sink;\nstatic inline __attribute__((always_inline)) int step(int x) {{ sink ^= x; return x; }}\n\
         int many(int x) {{\n{calls}  return sink;\n}}\nint main(int n, char**) {{ return many(n); }}\n"
    );
    std::fs::write(workshop.path("a.cpp"), text).unwrap();
    workshop.run(&["g++", "-O1", "-g", "-Wl,--build-id", "a.cpp", "-o", "out"]);
    let mut symbols = open(&workshop.path("out"), &SymbolOptions::bare());
    let id = symbols.functions().find(|entry| entry.linkage_name == b"_Z4manyi").unwrap().id;
    let (calls, more) = symbols.inlined(id);
    assert_eq!((calls.len(), more), (256, 244));
    assert!(calls.iter().all(|call| call.name == "step" && call.level == 0));
}
