//! How many functions of this machine's programs and libraries could get hooks in place, and what
//! these cost.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use super::lab::Lab;
use super::table::{Cell, Table, Target};
use crate::step::workspace;

/// Of the functions that compilers made, at least so many percent.
const PROMISE: f64 = 98.5;

/// Of their calls, at least so many percent.
const CALLS: f64 = 97.0;
/// Analysis, plan and check of a file of so many functions take at most so many seconds; in between,
/// as much as a line between both.
const SECONDS: [(f64, f64); 2] = [(5000.0, 0.3), (100_000.0, 5.0)];

/// Runs whose calls are counted: the program, its arguments, and the file whose functions are meant.
const COUNTED: [(&str, &[&str], &str); 6] = [
    (
        "/usr/bin/python3",
        &[
            "-c",
            "import json, re\nfor i in range(60): json.loads(json.dumps({str(k): [k, str(k)] for k in range(99)})); \
             sorted(re.findall('[0-9]+', str(list(range(300)))))",
        ],
        "/usr/bin/python3",
    ),
    (
        "/usr/bin/sqlite3",
        &[
            ":memory:",
            "create table t(a integer primary key, b text); \
             with recursive c(x) as (select 1 union all select x + 1 from c where x < 3000) insert into t select x, 'row ' || x from c; \
             create index i on t(b); select count(*), sum(a) from t where b like 'row 1%' group by a % 7 order by 2;",
        ],
        "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
    ),
    ("git", &["log", "--stat", "-20"], "git"),
    (
        "/usr/bin/perl",
        &["-e", "my %h; $h{$_ % 97} .= $_ for 1 .. 9000; print join ',', sort map { length } values %h"],
        "/usr/bin/perl",
    ),
    (
        "/usr/bin/bash",
        &["-c", "n=0; for i in {1..3000}; do n=$((n + i * 7)); s+=\"${n:0:2}\"; done; echo $n ${#s}"],
        "/usr/bin/bash",
    ),
    ("/usr/bin/cmake", &["--help-full"], "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"),
];

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
            "at most",
            "obstacles",
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
    Ok(vec![table, calls(lab, is_quick), price(lab, is_quick)?])
}

/// Which share of the calls of a run are of functions that could get hooks.
fn calls(lab: &Lab, is_quick: bool) -> Table {
    let mut table = Table::new(
        "Calls of functions that could get hooks",
        &["program", "file", "calls", "% with hooks", "promise", "most frequent without"],
    );
    table.note("Counted by callgrind, by address. A call is one that an instruction makes, or a jump into another function.");
    for (program, arguments, file) in COUNTED.iter().take(if is_quick { 2 } else { usize::MAX }) {
        let paths = [found(program), found(file)];
        let [Some(program), Some(file)] = paths else { continue };
        match calls_of(lab, &program, arguments, &file) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(&program.display().to_string(), &why),
        }
    }
    table
}

/// A file by its path, or by its name in `PATH`, without links.
fn found(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&folders).map(|folder| folder.join(name));
    candidates.find_map(|path| path.canonicalize().ok())
}

fn calls_of(lab: &Lab, program: &Path, arguments: &[&str], file: &Path) -> Result<Vec<Cell>, String> {
    let counts = lab.path("callgrind.out");
    let mut run = lab.command("valgrind");
    run.args(["-q", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(program)
        .args(arguments)
        .current_dir(workspace());
    lab.successful(&mut run)?;
    let called = called(&std::fs::read_to_string(&counts).map_err(|error| error.to_string())?, file);
    let without: HashMap<u64, String> = analysed(lab, file)?["without_hooks"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|function| Some((function["address"].as_u64()?, function["why"].as_str()?.to_owned())))
        .collect();
    let all: u64 = called.values().sum();
    let mut missing: Vec<(u64, u64, &str)> =
        called.iter().filter_map(|(at, count)| Some((*count, *at, without.get(at)?.as_str()))).collect();
    missing.sort_unstable_by(|one, other| other.cmp(one));
    let share =
        100.0 - 100.0 * missing.iter().map(|(count, ..)| *count as f64).sum::<f64>() / (all as f64).max(1.0);
    let missing: Vec<String> =
        missing.iter().take(3).map(|(count, at, why)| format!("{at:#x} {why} {count}")).collect();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(vec![
        Cell::text(name(program)),
        Cell::text(name(file)),
        Cell::Number(all as f64, 0),
        Cell::Number(share, 2),
        Cell::Target(Target::Least(CALLS), share),
        Cell::text(missing.join(", ")),
    ])
}

/// How often each address of a file was called, from callgrind's output.
fn called(text: &str, file: &Path) -> BTreeMap<u64, u64> {
    let is_file = |name: &str| Path::new(name).canonicalize().is_ok_and(|path| path == file);
    let mut names: HashMap<&str, bool> = HashMap::new();
    let (mut own, mut called_file) = (false, None);
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let mut is_its = |name| *names.entry(name).or_insert_with(|| is_file(name));
        match key {
            "ob" => own = is_its(value),
            "cob" => called_file = Some(is_its(value)),
            "calls" => {
                let mut words = value.split(' ');
                let count = words.next().and_then(|count| count.parse::<u64>().ok());
                let at =
                    words.next().and_then(|at| u64::from_str_radix(at.trim_start_matches("0x"), 16).ok());
                if let (Some(count), Some(at)) = (count, at)
                    && called_file.take().unwrap_or(own)
                {
                    *counts.entry(at).or_default() += count;
                }
            }
            _ => {}
        }
    }
    counts
}

/// What `everycall functions --untouched` says of a file.
fn analysed(lab: &Lab, path: &Path) -> Result<Value, String> {
    let mut command = lab.command(lab.everycall());
    command.args(["functions", "--untouched", "--format", "json"]).arg(path);
    let text = lab.successful(&mut command)?;
    let mut value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok(value["files"][0].take())
}

/// Seconds that a file of so many functions may take.
fn seconds_for(functions: f64) -> f64 {
    let [(few, little), (many, much)] = SECONDS;
    let seconds = little + (much - little) * ((functions - few) / (many - few)).max(0.0);
    (100.0 * seconds).round() / 100.0
}

fn row(lab: &Lab, path: &Path) -> Result<Vec<Cell>, String> {
    let begin = Instant::now();
    let file = analysed(lab, path)?;
    let seconds = begin.elapsed().as_secs_f64();
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
    let obstacles: Vec<String> = obstacles.iter().map(|(name, count)| format!("{name} {count}")).collect();
    Ok(vec![
        Cell::text(path.display().to_string()),
        Cell::Number(functions, 0),
        Cell::Number(compiled, 0),
        Cell::Number(hooked, 0),
        Cell::Number(share, 2),
        Cell::Target(Target::Least(PROMISE), share),
        Cell::Number(number(&file["exits"]), 0),
        Cell::Number(number(&file["patches"]), 0),
        Cell::Number(seconds, 2),
        Cell::Target(Target::Most(seconds_for(functions)), seconds),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_by_address() {
        let own = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap();
        let text = format!(
            "ob={0}\nfn=main\n0x10 3 1\ncfn=f\ncalls=5 0x40 7\n0x12 3 9\ncob=/other\ncfn=g\ncalls=8 0x40 0\n\
             0x13 3 9\nob=/other\nfn=g\ncob={0}\ncalls=2 0x40 0\n0x50 0 1\ncalls=4 0x60 0\n",
            own.display()
        );
        assert_eq!(called(&text, &own), BTreeMap::from([(0x40, 7)]));
    }

    #[test]
    fn time_grows_with_functions() {
        assert_eq!([100.0, 5000.0, 100_000.0].map(seconds_for), [0.3, 0.3, 5.0]);
    }
}
