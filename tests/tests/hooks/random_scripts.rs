//! Random scripts of calls, throws, catches, jumps, tail calls, signals, destructors, library loads
//! and switches of stacks: the events recorded of each stack are those that the program itself
//! reports, line by line. `EVERYCALL_SCRIPTS` says how many are run in each mode.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use everycall_live::{Control, attach};
use everycall_tests::outline::whole_outline;
use everycall_tests::selections::all_but;
use everycall_tests::{Mode, Place, TraceView, everycall, number_asked};

/// Scripts of a mode by default.
const SCRIPTS: u64 = 100;
/// Scripts that one process runs: each begins a stack or two, and a process can have at most 4096,
/// including ended ones.
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
    for mode in Mode::in_turn(0) {
        let library = place.build(
            mode,
            &["-O2", "-shared", "-fPIC", "scripts_library.cpp"],
            &format!("library-{}.so", mode.label()),
        );
        let tail_calls = if mode.is_body() { "-DNO_TAIL_CALLS" } else { "-DTAIL_CALLS" };
        let level = if mode.is_body() { "-O1" } else { "-O2" };
        let program =
            place.build(mode, &[level, tail_calls, "scripts.cpp"], &format!("scripts-{}", mode.label()));
        // Hooks in a function's body have only one.
        let clocks = if mode.is_body() { &["exact"][..] } else { &["exact", "bounded", "order"] };
        let starts = (first..first + scripts).step_by(AT_ONCE as usize);
        for (clock, from) in clocks.iter().flat_map(|clock| starts.clone().map(move |from| (clock, from))) {
            let count = AT_ONCE.min(first + scripts - from);
            let arguments = [from.to_string(), count.to_string(), library.to_string_lossy().into_owned()];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let recording = place.record(&["--clock", clock, "--ring-size", "512M"], &program, &arguments);
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
                    .map(|text| format!("{mode:?}, {clock}, scripts {from} to {}, {text}", from + count)),
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

/// Whether the function is one that is switched off and on at random.
fn is_switched(name: &str) -> bool {
    let name = name.split(['.', '(']).next().unwrap_or(name);
    let kinds = ["plain", "large", "arguments", "tail", "catches", "guarded", "target"];
    kinds.iter().any(|kind| name.starts_with(kind)) && name.ends_with(['1', '3', '5', '7', '9'])
}

/// A call that began while its function was off, and ended while it was on.
fn is_exit_of_switched(line: &str) -> bool {
    line.trim_start().strip_prefix("<exit of ").is_some_and(|rest| is_switched(rest.trim_end_matches('>')))
}

/// Lines without the functions that are switched: what they called takes their place.
fn without_switched(lines: &[&str]) -> Vec<String> {
    let mut hidden: Vec<usize> = Vec::new();
    let mut left = Vec::new();
    for line in lines {
        let text = line.trim_start();
        let depth = (line.len() - text.len()) / 2;
        let inner = hidden.iter().rposition(|outer| *outer < depth).map_or(0, |index| index + 1);
        hidden.truncate(inner);
        let is_call = !text.starts_with('*') && text != "--";
        if is_call && is_switched(text.trim_end_matches(['!', '~'])) {
            hidden.push(depth);
        } else {
            left.push(format!("{}{text}", "  ".repeat(depth - hidden.len())));
        }
    }
    left
}

/// The process that a recorder runs.
fn traced(recorder: &Child) -> Option<u32> {
    let children = format!("/proc/{0}/task/{0}/children", recorder.id());
    std::fs::read_to_string(children).ok()?.split_whitespace().next()?.parse().ok()
}

/// Switches functions of a program until it has ended. Returns how often.
fn switch_at_random(program: &Path, recorder: &mut Child, seed: u64) -> u64 {
    let sets: Vec<Vec<u8>> = (0..16_u64)
        .map(|set| {
            all_but(program, |name| {
                let number = name.bytes().fold(seed + set, |sum, byte| {
                    (sum ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
                });
                is_switched(name) && number % 3 > 0
            })
        })
        .collect();
    let mut switches = 0;
    while recorder.try_wait().unwrap().is_none() {
        let arena = traced(recorder).and_then(|pid| attach(pid).ok());
        let control = arena.and_then(|arena| Control::connect(&arena, Duration::from_secs(1)).ok());
        let Some(mut control) = control else { continue };
        for set in sets.iter().cycle() {
            if control.set(true, None, set).is_err() {
                break;
            }
            switches += 1;
        }
    }
    switches
}

/// Functions go off and on beneath the scripts: the program does the same, and all other calls are
/// seen as ever.
#[test]
fn what_isnt_switched_is_seen_while_others_are() {
    let place = Place::new("scripts-switched");
    let scripts = number_asked("EVERYCALL_SCRIPTS").unwrap_or(SCRIPTS).min(AT_ONCE);
    let first = number_asked("EVERYCALL_SEED").unwrap_or(0);
    let mut differences = Vec::new();
    for mode in Mode::in_turn(1) {
        let library = place.build(
            mode,
            &["-O2", "-shared", "-fPIC", "scripts_library.cpp"],
            &format!("library-{}.so", mode.label()),
        );
        let tail_calls = if mode.is_body() { "-DNO_TAIL_CALLS" } else { "-DTAIL_CALLS" };
        let level = if mode.is_body() { "-O1" } else { "-O2" };
        let program = place.build(
            mode,
            &[level, tail_calls, "-DNO_LOCAL_STACKS", "scripts.cpp"],
            &format!("scripts-{}", mode.label()),
        );
        let file = place.file("switched.ect");
        let mut recorder = place
            .command(everycall())
            .args(["record", "-q", "--ring-size", "512M", "--not", "plain01", "-o"])
            .arg(&file)
            .arg("--")
            .arg(&program)
            .args([first.to_string(), scripts.to_string()])
            .arg(&library)
            .stdout(Stdio::from(std::fs::File::create(place.file("truth")).unwrap()))
            .spawn()
            .unwrap();
        let switches = switch_at_random(&program, &mut recorder, first);
        assert!(recorder.wait().unwrap().success(), "{mode:?}");
        println!("{mode:?}: switched {switches} times");
        let stdout = std::fs::read_to_string(place.file("truth")).unwrap();
        let all: Vec<&str> = stdout.lines().collect();
        let truth = without_switched(&all);
        assert!(switches > 0 && truth.len() < all.len(), "{mode:?}: {switches} switches");
        // Some of their calls are seen, others aren't.
        let trace = TraceView::open(&file);
        let some = trace.calls("plain01") + trace.calls("catches01") + trace.calls("target01");
        let is_some =
            |line: &&str| ["plain01", "catches01", "target01"].iter().any(|name| line.contains(name));
        let of_all = all.iter().copied().filter(is_some).count() as u64;
        println!("{mode:?}: {some} of {of_all} calls of three functions are there");
        assert!(0 < some && some < of_all, "{mode:?}: {some} of {of_all}");
        let truth: Vec<&str> = truth.iter().map(String::as_str).collect();
        let seen: Vec<String> = whole_outline(&file, |name| name.starts_with("std::") || is_switched(name))
            .into_iter()
            .filter(|line| !is_exit_of_switched(line))
            .map(|line| line.strip_suffix("=>").map_or(line.clone(), str::to_owned))
            .collect();
        // Hooks within a function's body pair exits with entries by function: see
        // docs/reference/limits-details.md.
        if !mode.is_body() {
            differences.extend(difference(&truth, &seen).map(|text| format!("{mode:?}, {text}")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
