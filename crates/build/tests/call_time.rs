//! What the prefix adds to a compiler call. Alone in its file, so that no other test runs beside it.

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{CLANGS, Lab};

const MORE_MAX: Duration = Duration::from_millis(5);

/// Both commands in turn; the least of each. As others use the machine too, an excess is believed only after
/// it has stayed for many rounds.
fn fastest(lab: &Lab, lines: [&str; 2]) -> [Duration; 2] {
    let mut least = [Duration::MAX; 2];
    for round in 0..200 {
        for (line, least) in lines.iter().zip(&mut least) {
            let start = Instant::now();
            lab.ok(lab.command(line).stdout(Stdio::null()));
            *least = start.elapsed().min(*least);
        }
        if round >= 15 && least[1] < least[0] + MORE_MAX {
            break;
        }
    }
    least
}

#[test]
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
            let [plain, ours] = fastest(&lab, [&format!("{compiler} {line}"), &ours]);
            println!("{compiler} {mode} {line}: {plain:?} + {:?}", ours.saturating_sub(plain));
            assert!(ours < plain + MORE_MAX, "{compiler} {mode} {line}: {plain:?}, {ours:?}");
        }
    }
}
