//! Tail calls of real programs, from the compiler to every output.

use std::process::Command;

use crate::common::Workplace;
use crate::pages::has_the_numbers_of_report;
use everycall_symbols::{Leave, ModuleIdentity, ModuleSymbols, SymbolOptions};
use serde_json::Value;

/// Compilers with the modes whose exits have code locations.
const MODES: [(&str, &str); 4] =
    [("gcc", "nops"), ("gcc", "fentry"), ("clang-19", "xray"), ("clang-22", "xray")];

const PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define N __attribute__((noinline))
volatile int sink;
N int inner(int x) { sink += x; return x * 2; }
N int h(int x) { sink += x; return x + 1; }
N int g(int x) { sink += inner(x); return h(x + 3); }
N int f(int x) { sink += inner(x + 1); return g(x); }
N int odd(int n);
N int even(int n) { if (n == 0) return 1; sink++; return odd(n - 1); }
N int odd(int n) { if (n == 0) return 0; sink++; return even(n - 1); }
N int by_pointer(int (*p)(int), int x) { sink += inner(x); return p(x); }
N int to_library(const char *s) { sink += inner(7); return puts(s); }
N int plain(int x) { return inner(x) + 1; }
N int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
N void called_back(int *numbers) { sink += inner(1); qsort(numbers, 2, sizeof *numbers, compare); }
N void handler(int signal) { sink += signal; }
N int raiser(int x) { sink += inner(x); return raise(SIGUSR1); }
int main(int count, char **words) {
  int numbers[] = {2, 1};
  signal(SIGUSR1, handler);
  sink += f(1);
  sink += g(2);
  sink += by_pointer(h, 5);
  sink += to_library("12");
  sink += plain(4);
  called_back(numbers);
  sink += raiser(3);
  sink += plain(5);
  sink += even(count > 1 ? atoi(words[1]) : 4);
  return 0;
}
"#;

/// The output of `replay` without times: one line per begin or end.
fn tree(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.contains(" ms  "));
    let words = |line: &str| {
        let (_, rest) = line.split_once(" ms  ").unwrap();
        let words = rest.split_whitespace();
        let is_time = |word: &&str| {
            !word.starts_with(|c: char| c.is_ascii_digit()) && !["ns", "us", "ms", "s"].contains(word)
        };
        words.filter(is_time).collect::<Vec<_>>().join(" ")
    };
    lines.map(words).collect()
}

/// The compiler, if it is installed.
fn is_there(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn tail_calls_are_shown_as_such_in_all_outputs() {
    for (compiler, mode) in MODES.into_iter().filter(|(compiler, _)| is_there(compiler)) {
        let here = Workplace::new();
        here.write("jumps.c", PROGRAM);
        here.succeed(&format!("cc --mode {mode} -- {compiler} -O2 -g jumps.c -o jumps"));
        here.succeed("record -q -o jumps.ect -- ./jumps");
        let tree = tree(&here.succeed("replay jumps.ect").stdout);
        let want = "main { f { inner } => => g { inner } => => h g { inner } => => h \
                    by_pointer { inner } => =>? h to_library { inner } => -- => puts (not traced, at most) -- \
                    plain { inner } called_back { inner } => -- => qsort (not traced, at most) -- compare \
                    raiser { inner } => -- => raise (not traced, at most) -- handler plain { inner } \
                    even => => odd => => even => => odd => => even } main";
        assert_eq!(tree.join(" "), want, "{compiler} {mode}");

        let lines = here.succeed("replay --format json jumps.ect").stdout;
        let calls: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |name: &str, key: &str| -> Vec<Value> {
            calls.iter().filter(|call| call["name"] == name).map(|call| call[key].clone()).collect()
        };
        assert_eq!(of("h", "tail_call_of"), [Value::from("g"), Value::from("g"), Value::Null]);
        assert_eq!(of("h", "possible_tail_call_of")[2], "by_pointer");
        assert_eq!(of("f", "remarks")[0][0], "ends in a tail call");
        assert!(of("compare", "tail_call_of")[0].is_null() && of("handler", "tail_call_of")[0].is_null());

        here.succeed("export -f chrome -o jumps.json jumps.ect");
        let json: Value = serde_json::from_slice(&here.read("jumps.json")).unwrap();
        let flows = |direction: &str| -> Vec<String> {
            let slices = json["traceEvents"].as_array().unwrap().iter();
            let with = slices.filter(|slice| slice[direction] == true);
            with.map(|slice| slice["name"].as_str().unwrap().split(' ').next().unwrap().to_owned()).collect()
        };
        assert_eq!(flows("flow_in"), ["g", "h", "h", "odd", "even", "odd", "even"], "{compiler} {mode}");
        for options in ["", "--depth 2", "--min-duration 1us", "--function ^g$"] {
            has_the_numbers_of_report(&here, "jumps.ect", options);
        }
    }
}

/// A million steps are a million calls at the same depth.
#[test]
fn a_million_steps_cost_no_depth() {
    let here = Workplace::new();
    here.write("jumps.c", PROGRAM);
    here.succeed("cc -- gcc -O2 jumps.c -o jumps");
    here.succeed("record -q --ring-size 32M -o jumps.ect -- ./jumps 1000000");
    let lines = here.succeed("replay --format json --function ^(odd|even)$ jumps.ect").stdout;
    assert_eq!(lines.lines().count(), 1_000_001);
    assert!(lines.lines().all(|line| line.contains("\"depth\":0,")));
    assert_eq!(lines.lines().filter(|line| line.contains("\"tail_call_of\":")).count(), 1_000_000);
}

/// objdump shows each call of the exit hook, and the instruction after it.
#[test]
fn exits_are_what_objdump_says() {
    let here = Workplace::new();
    here.write("jumps.c", PROGRAM);
    here.build_app();
    let mut exits = (0, 0);
    for command in [
        "gcc -O2 -g jumps.c -o out",
        "gcc -O3 -fcf-protection=full jumps.c -o out",
        "gcc -Os -fno-plt -no-pie jumps.c -o out",
        "gcc -O2 -mindirect-branch=thunk -mfunction-return=thunk jumps.c -o out",
        "g++ -O2 -g app.cpp -o out -lpthread",
    ] {
        here.succeed(&format!("cc --mode fentry -- {command}"));
        let listing = here.shell("objdump -d --no-show-raw-insn out").stdout;
        let path = here.path("out");
        let mut identity = ModuleIdentity::new(&path, &[]);
        identity.image = Some(here.read("out").into());
        let mut symbols = ModuleSymbols::open(&identity, &SymbolOptions::bare());
        let mut lines = listing.lines().peekable();
        while let Some(line) = lines.next() {
            if !line.contains("call") || !line.contains("<__return__>") {
                continue;
            }
            let (address, instruction) = lines.peek().and_then(|next| next.split_once(":\t")).unwrap();
            let leave = symbols.leave(u64::from_str_radix(address.trim(), 16).unwrap());
            let target = instruction.split('<').nth(1).map(|name| name.trim_end_matches('>'));
            if instruction.contains("ret") || instruction.contains("__x86_return_thunk") {
                assert_eq!(leave, Some(Leave::Return), "{command}: {address} {instruction}");
                exits.0 += 1;
            } else if instruction.contains("jmp") {
                exits.1 += 1;
                match leave.unwrap_or_else(|| panic!("{command}: {instruction}")) {
                    Leave::Jump(id) => assert_eq!(symbols.function(id).linkage_name.as_deref(), target),
                    Leave::JumpByName(name) => {
                        let target = target.unwrap();
                        assert!(target.starts_with(&name) && target.contains('@'), "{instruction}: {name}");
                    }
                    Leave::JumpAnywhere => {
                        let target = target.unwrap_or("__x86_indirect_thunk");
                        assert!(target.contains("__x86_indirect_thunk"), "{instruction}");
                    }
                    Leave::Return => panic!("{command}: {instruction}"),
                }
            } else {
                assert_eq!(leave, None, "{command}: {instruction}");
            }
        }
    }
    assert!(exits.0 > 30 && exits.1 > 30, "{exits:?}");
}

/// Without the file, no code shows the jumps: exits are plain exits.
#[test]
fn no_tail_calls_are_shown_without_the_code() {
    let here = Workplace::new();
    here.write("jumps.c", PROGRAM);
    here.succeed("cc -- gcc -O2 jumps.c -o jumps");
    here.succeed("record -q --no-embed -o jumps.ect -- ./jumps");
    std::fs::remove_file(here.path("jumps")).unwrap();
    let tree = here.succeed("replay jumps.ect").stdout;
    assert!(tree.contains("jumps+0x") && !tree.contains("=>"), "{tree}");
}

/// Modes whose exits come after the call have no tail calls.
#[test]
fn modes_with_the_hook_last_nest_every_call() {
    for (compiler, mode) in [("gcc", "finstrument"), ("clang-19", "after-inlining")] {
        let here = Workplace::new();
        here.write("jumps.c", PROGRAM);
        here.succeed(&format!("cc --mode {mode} -- {compiler} -O2 jumps.c -o jumps"));
        here.succeed("record -q -o jumps.ect -- ./jumps 2");
        let tree = tree(&here.succeed("replay jumps.ect").stdout).join(" ");
        assert!(tree.starts_with("main { f { inner g { inner h } }"), "{compiler}: {tree}");
        assert!(tree.contains("even { odd { even } }") && !tree.contains("=>"), "{compiler}: {tree}");
    }
}
