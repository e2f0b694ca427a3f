//! Random scripts of calls, throws, catches, jumps, tail calls, signals, destructors, library loads
//! and switches of stacks: what is recorded of each stack is what the program itself knows to have
//! happened, line by line. `EVERYCALL_SCRIPTS` says how many are run in each mode.

use std::collections::VecDeque;

use everycall_tests::outline::whole_outline;
use everycall_tests::{Mode, Place, number_asked};

/// Scripts of a mode unless told otherwise.
const SCRIPTS: u64 = 200;
/// Scripts that one process runs: each begins a stack or two, and a process keeps 4096 at most,
/// those that are gone included.
const AT_ONCE: u64 = 1000;
/// Lines shown before a difference.
const SHOWN: usize = 30;

/// The first place where the lines differ, with those before it.
fn difference(truth: &[&str], seen: &[String]) -> Option<String> {
    let mut before = VecDeque::new();
    for at in 0..truth.len().max(seen.len()) {
        let (left, right) = (truth.get(at).copied(), seen.get(at).map(String::as_str));
        if left != right {
            let before: String = before.iter().map(|line| format!("  {line}\n")).collect();
            let after: String = (at + 1..at + 8)
                .map(|at| {
                    format!(
                        "  {:60} | {}\n",
                        truth.get(at).unwrap_or(&""),
                        seen.get(at).map_or("", |line| line)
                    )
                })
                .collect();
            return Some(format!("line {at}:\n{before}truth: {left:?}\nseen:  {right:?}\n{after}"));
        }
        before.extend(left);
        if before.len() > SHOWN {
            before.pop_front();
        }
    }
    None
}

#[test]
fn what_random_scripts_do_is_what_is_seen() {
    let place = Place::new("scripts");
    let scripts = number_asked("EVERYCALL_SCRIPTS").unwrap_or(SCRIPTS);
    let first = number_asked("EVERYCALL_SEED").unwrap_or(0);
    let mut differences = Vec::new();
    for mode in Mode::ALL {
        let library = place.build(
            mode,
            &["-O2", "-shared", "-fPIC", "scripts_library.cpp"],
            &format!("library-{}.so", mode.label()),
        );
        let tail_calls = if mode.is_body() { "-DNO_TAIL_CALLS" } else { "-DTAIL_CALLS" };
        let level = if mode.is_body() { "-O1" } else { "-O2" };
        let program =
            place.build(mode, &[level, tail_calls, "scripts.cpp"], &format!("scripts-{}", mode.label()));
        for from in (first..first + scripts).step_by(AT_ONCE as usize) {
            let count = AT_ONCE.min(first + scripts - from);
            let arguments = [from.to_string(), count.to_string(), library.to_string_lossy().into_owned()];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let recording = place.record(&["--ring-size", "512M"], &program, &arguments);
            assert!(recording.output.status.success(), "{mode:?}: {recording:?}");
            let stdout = recording.stdout();
            let truth: Vec<&str> = stdout.lines().collect();
            assert!(truth.len() as u64 > 20 * count, "{mode:?}: {} lines", truth.len());
            let seen: Vec<String> = whole_outline(&recording.file, |name| name.starts_with("std::"))
                .into_iter()
                // A tail call is a return and a call to the program.
                .map(|line| line.strip_suffix("=>").map_or(line.clone(), str::to_owned))
                .collect();
            differences.extend(
                difference(&truth, &seen)
                    .map(|text| format!("{mode:?}, scripts {from} to {}, {text}", from + count)),
            );
            if let Some(folder) = std::env::var_os("EVERYCALL_KEEP_SCRIPTS") {
                let name =
                    |what: &str| std::path::Path::new(&folder).join(format!("{}.{what}", mode.label()));
                std::fs::write(name("truth"), &stdout).unwrap();
                std::fs::write(name("seen"), seen.join("\n") + "\n").unwrap();
                std::fs::copy(&program, name("program")).unwrap();
                std::fs::copy(&recording.file, name("ect")).unwrap();
            }
            std::fs::remove_file(&recording.file).expect("the trace is there");
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
