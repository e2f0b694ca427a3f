//! The time that the prefix adds to a compiler call: a measurement for a quiet machine, `cargo test
//! --release -p everycall-compiler --test call_time -- --ignored --nocapture`. Alone in its file,
//! so that no other test runs beside it.

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{CLANGS, Lab};

const MORE_MAX: Duration = Duration::from_millis(5);
/// Additional time where clang is started again as its own assembler.
const ANOTHER_CLANG_MAX: Duration = Duration::from_millis(60);

/// How much longer the second command takes than the first, alternating: the smaller of the
/// difference of the minimum times and the median difference of neighbours, because load on the
/// machine affects both. An excess counts only if it persists for many rounds.
fn more(lab: &Lab, lines: [&str; 2], most: Duration) -> Duration {
    let mut pairs: Vec<[Duration; 2]> = Vec::new();
    let mut more = Duration::MAX;
    while pairs.len() < 15 || (more >= most && pairs.len() < 120) {
        pairs.push(lines.map(|line| {
            let start = Instant::now();
            lab.ok(lab.command(line).stdout(Stdio::null()));
            start.elapsed()
        }));
        let least = |which: usize| pairs.iter().map(|pair| pair[which]).min().unwrap_or_default();
        let mut differences: Vec<_> = pairs.iter().map(|pair| pair[1].saturating_sub(pair[0])).collect();
        differences.sort();
        more = least(1).saturating_sub(least(0)).min(differences[differences.len() / 2]);
    }
    more
}

#[test]
#[ignore = "a measurement"]
fn a_call_takes_at_most_five_milliseconds_more() {
    let lab = Lab::new();
    lab.write("one.c", "int t_two(int x); int main(void) { return t_two(0); }\n");
    lab.write("two.c", "int t_two(int x) { return x * 2; }\n");
    let mut pairs: Vec<_> = ["nops", "fentry", "finstrument"].map(|mode| ("gcc".to_owned(), mode)).into();
    for version in CLANGS {
        pairs
            .extend(["xray", "finstrument", "after-inlining"].map(|mode| (format!("clang-{version}"), mode)));
    }
    for (compiler, mode) in pairs {
        lab.sh(&format!("{compiler} -c one.c two.c"));
        for line in ["-g1 -O2 -c two.c -o x.o", "two.o one.o -o app"] {
            let ours = format!("everycall cc --mode {mode} -- {compiler} {line}");
            let is_twice = mode == "xray" && line.contains("-c");
            let most = if is_twice { ANOTHER_CLANG_MAX } else { MORE_MAX };
            let more = more(&lab, [&format!("{compiler} {line}"), &ours], most);
            println!("{compiler} {mode} {line}: +{more:?}");
            assert!(more < most, "{compiler} {mode} {line}: +{more:?}");
        }
    }
}
