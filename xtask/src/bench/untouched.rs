//! How many functions of this machine's programs and libraries could get hooks in place, and what
//! these cost.

use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::lab::Lab;
use super::table::{Cell, Table, Target};

/// Of the functions that compilers made, at least so many percent.
const PROMISE: f64 = 98.5;

/// Those that exist are analysed.
const FILES: [&str; 24] = [
    "/usr/bin/git",
    "/usr/local/bin/git",
    "/usr/bin/python3",
    "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
    "/usr/lib/x86_64-linux-gnu/libpython3.13.so.1.0",
    "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
    "/usr/sbin/nginx",
    "/usr/bin/redis-server",
    "/usr/lib/postgresql/15/bin/postgres",
    "/usr/lib/postgresql/17/bin/postgres",
    "/usr/bin/node",
    "/usr/bin/perl",
    "/usr/bin/bash",
    "/usr/bin/gdb",
    "/usr/bin/rg",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/lib/x86_64-linux-gnu/libglib-2.0.so.0",
    "/usr/lib/x86_64-linux-gnu/libxml2.so.2",
    "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
    "/usr/lib/x86_64-linux-gnu/libLLVM-19.so.1",
    "/usr/lib/x86_64-linux-gnu/libgmp.so.10",
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/bin/ld.bfd",
];

/// Files that are read with `--quick`.
const QUICK: usize = 6;

/// Measures.
///
/// # Errors
/// None: a file that can't be analysed is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let mut table = Table::new(
        "Functions of programs as they are that could get hooks at the entry and every exit",
        &[
            "file",
            "functions",
            "of compilers",
            "with hooks",
            "% of compilers'",
            "promise",
            "exits",
            "patches",
            "s",
            "most frequent obstacles",
        ],
    );
    table.note(
        "`everycall functions --untouched`. Functions of compilers are those with unwind information; the promise is for gcc, clang and rustc \
         at -O1 and above, so not for libraries with much assembler (libc, libgmp). Seconds: analysis, plan and check, one run.",
    );
    let ours = lab.everycall();
    let files = FILES.iter().map(Path::new).filter(|path| path.exists()).chain([ours]);
    let limit = if is_quick { QUICK } else { usize::MAX };
    for path in files.take(limit) {
        match row(lab, path) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(&path.display().to_string(), &why),
        }
    }
    Ok(vec![table, price(lab, is_quick)?])
}

fn row(lab: &Lab, path: &Path) -> Result<Vec<Cell>, String> {
    let begin = Instant::now();
    let mut command = lab.command(lab.everycall());
    command.args(["functions", "--untouched", "--format", "json"]).arg(path);
    let text = lab.successful(&mut command)?;
    let seconds = begin.elapsed().as_secs_f64();
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let file = &value["files"][0];
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let (functions, hooked) = (number(&file["functions"]), number(&file["hooked"]));
    let compiled = functions - number(&file["left_out"]["no_unwind"]);
    let share = 100.0 * hooked / compiled.max(1.0);
    let mut obstacles: Vec<(&str, u64)> = file["left_out"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, count)| (name.as_str(), count.as_u64().unwrap_or_default()))
        .filter(|(_, count)| *count > 0)
        .collect();
    obstacles.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let obstacles: Vec<String> =
        obstacles.iter().take(3).map(|(name, count)| format!("{name} {count}")).collect();
    Ok(vec![
        Cell::text(path.display().to_string()),
        Cell::Number(functions, 0),
        Cell::Number(compiled, 0),
        Cell::Number(hooked, 0),
        Cell::Number(share, 2),
        Cell::Target(Target::Least(PROMISE), share),
        Cell::Number(number(&file["exits"]), 0),
        Cell::Number(number(&file["patches"]), 0),
        Cell::Number(seconds, 1),
        Cell::text(obstacles.join(", ")),
    ])
}

/// A program that measures what a call takes in itself: the least of several rounds, in ns.
const PRICED: &str = r#"
#include <stdio.h>
#include <time.h>
__attribute__((noinline)) int leaf(int x) { __asm__ volatile(""); return x * 3 + 1; }
__attribute__((noinline)) int middle(int x) { int a = leaf(x); return a + leaf(a); }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
int main(int count, char **words) {
    int sum = 0; double best = 1e18;
    for (int round = 0; round < 30; round++) {
        double begin = now();
        for (int i = 0; i < 500000; i++) sum += middle(i);
        double took = (now() - begin) / 1.5e6;
        if (took < best) best = took;
    }
    printf("%.3f\n", best);
    return count > 1 ? sum : 0;
}
"#;

/// An event at most so many times that of a rebuilt program.
const EVENT: f64 = 1.1;
/// Runs of each program, of which the quickest counts: others of the machine only make it slower.
const RUNS: usize = 7;

/// The price of hooks in a program as it is, beside one that was rebuilt.
fn price(lab: &Lab, is_quick: bool) -> Result<Table, String> {
    let mut table = Table::new(
        "A call in a program as it is, beside the same one built with everycall",
        &["program", "ns a call", "ns an event", "of a rebuilt program's", "promise"],
    );
    table.note(
        "A loop of calls of three instructions, gcc -O2. Off: with EVERYCALL_START=off, so detours without hooks. The least of all runs.",
    );
    let (source, plain, rebuilt) = (lab.path("price.c"), lab.path("plain"), lab.path("rebuilt"));
    std::fs::write(&source, PRICED).map_err(|error| error.to_string())?;
    lab.successful(lab.command("gcc").arg("-O2").arg(&source).arg("-o").arg(&plain))?;
    let mut build = lab.command(lab.everycall());
    lab.successful(build.args(["cc", "--", "gcc", "-O2"]).arg(&source).arg("-o").arg(&rebuilt))?;
    let trace = lab.path("price.ect");
    let recorded = |program: &Path, options: &[&str], start: &str| {
        let mut command = lab.command(lab.everycall());
        command
            .args(["record", "-q", "--ring-size", "256K", "--force", "-o"])
            .arg(&trace)
            .args(options)
            .arg("--")
            .arg(program);
        command.env("EVERYCALL_START", start);
        command
    };
    let mut least = [f64::INFINITY; 4];
    for _ in 0..if is_quick { 2 } else { RUNS } {
        let mut commands = [
            lab.command(&plain),
            recorded(&rebuilt, &[], "on"),
            recorded(&plain, &["--all"], "on"),
            recorded(&plain, &["--all"], "off"),
        ];
        for (command, least) in commands.iter_mut().zip(&mut least) {
            let printed = lab.successful(command)?;
            *least = least.min(printed.trim().parse().map_err(|_| printed)?);
        }
    }
    let [plain, rebuilt, ..] = least;
    let names = ["not recorded", "built with everycall", "as it is", "as it is, off"];
    let event = |call: f64| (call - plain) / 2.0;
    for (name, call) in names.into_iter().zip(least) {
        let ratio = event(call) / event(rebuilt);
        let promise = if name == "as it is" { Cell::Target(Target::Most(EVENT), ratio) } else { Cell::Empty };
        let (cost, ratio) = (Cell::Number(event(call), 2), Cell::Number(ratio, 2));
        table.row(vec![Cell::text(name), Cell::Number(call, 2), cost, ratio, promise]);
    }
    Ok(table)
}
