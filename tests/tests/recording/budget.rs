//! `record --budget` and `EVERYCALL_BUDGET`: functions go off while the program runs until tracing
//! costs no more than it may, and on again when the load falls. What was off is said.

use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_tests::{Mode, Place, Standing, TraceView, everycall, successful, wait};
use serde_json::Value;

/// Modes whose functions can go off.
fn modes() -> Vec<Mode> {
    Mode::ALL.into_iter().filter(|mode| ["nops", "fentry", "xray"].contains(&mode.name)).collect()
}

fn built(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O2", "-g", "budgeted.c"], &mode.label())
}

fn info(place: &Place, file: &Path) -> Value {
    let text = successful(place.command(everycall()).args(["info", "-f", "json"]).arg(file));
    serde_json::from_str(&text).expect("JSON")
}

/// The budget's facts about a function.
fn said_of(info: &Value, name: &str) -> Option<Value> {
    let functions = info["budget"]["functions"].as_array()?;
    functions.iter().find(|function| function["name"] == name).cloned()
}

/// Waits until a snapshot of the process says so.
fn wait_until(place: &Place, standing: &Standing, what: &str, is_so: impl Fn(&Value) -> bool) {
    wait::until(what, || {
        // A child that was just forked isn't recorded yet.
        let _ = std::fs::remove_file(place.file("live.ect"));
        standing.ask(place, &["-o", "live.ect"]).status.success()
            && is_so(&info(place, &place.file("live.ect")))
    });
}

/// The program's own count.
fn made(printed: &str, name: &str) -> u64 {
    let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect(printed).parse().expect("a count")
}

/// Whether a function was on again after it was off. It may have gone off once more, as it costs much
/// of the little that the program does.
fn was_on_again(info: &Value, name: &str) -> bool {
    said_of(info, name).is_some_and(|said| {
        said["off_at_end"] == false || said["off_ns"].as_array().is_some_and(|times| times.len() > 1)
    })
}

fn is_off(info: &Value, name: &str) -> bool {
    said_of(info, name).is_some_and(|function| function["off_at_end"] == true)
}

#[test]
fn what_costs_too_much_goes_off_and_on_again_when_the_load_falls() {
    for mode in modes() {
        let place = Place::new(&format!("budget-{}", mode.label()));
        let program = built(&place, mode);
        let mut command = place.command(everycall());
        command.args(["record", "-q", "--budget", "3%", "--stream", "--stall", "-o", "recorded.ect", "--"]);
        let mut standing = Standing::start(command.arg(&program)).find_traced();
        wait_until(&place, &standing, "hot is off", |info| is_off(info, "hot"));
        standing.go_on();
        wait_until(&place, &standing, "hot is on again", |info| was_on_again(info, "hot"));
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with("right\n"), "{}: {printed}", mode.label());
        let file = place.file("recorded.ect");
        let info = info(&place, &file);
        assert_eq!(info["budget"]["millionths"], 30_000);
        assert!(info["budget"]["event_ps"].as_u64().is_some_and(|cost| cost > 0));
        let hot = said_of(&info, "hot").expect("hot was off");
        assert!(!hot["off_ns"].as_array().expect("times").is_empty());
        let trace = TraceView::open(&file);
        let tallies = trace.tallies();
        let kept = |name: &str| tallies.get(name).map_or(0, |tally| tally.entries);
        // Every call of a function that was never off is there. (When the load has fallen, the
        // others may cost more than their share of the little that the program does.)
        for name in ["cold", "rare", "hot"] {
            if said_of(&info, name).is_none() {
                assert_eq!(kept(name), made(&printed, name), "{}: {name}", mode.label());
            }
        }
        assert!(kept("hot") < made(&printed, "hot"), "{}", mode.label());
        assert_eq!(kept("main"), 1);
        // On the timeline, with their names.
        let shown = successful(place.command(everycall()).arg("replay").arg("recorded.ect"));
        assert!(shown.contains("budget: off hot"), "{}", mode.label());
        assert!(shown.contains("budget: on hot"), "{}", mode.label());
    }
}

/// Frames by id go off one by one, as functions do.
#[test]
fn frames_by_id_go_off_and_on_again() {
    let place = Place::new("budget-frames");
    let program = place.file("frames");
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/building/kit/include");
    let mut gcc = place.command("gcc");
    gcc.args(["-O2", "-DFRAMES", "-I"]).arg(header).arg(everycall_tests::programs().join("budgeted.c"));
    successful(gcc.arg("-o").arg(&program));
    let mut command = place.command(everycall());
    let options = ["record", "-q", "--preload", "--budget", "20%", "--stream", "--stall"];
    command.args(options).args(["-o", "recorded.ect", "--"]);
    let mut standing = Standing::start(command.arg(&program)).find_traced();
    wait_until(&place, &standing, "hot is off", |info| is_off(info, "hot"));
    standing.go_on();
    wait_until(&place, &standing, "hot is on again", |info| was_on_again(info, "hot"));
    let (status, printed) = standing.end();
    assert!(status.success() && printed.ends_with("right\n"), "{printed}");
    let file = place.file("recorded.ect");
    let info = info(&place, &file);
    let trace = TraceView::open(&file);
    let tallies = trace.tallies();
    let kept = |name: &str| tallies.get(name).map_or(0, |tally| tally.entries);
    for name in ["cold", "rare"] {
        if said_of(&info, name).is_none() {
            assert_eq!(kept(name), made(&printed, name), "{name}");
        }
    }
    assert!(0 < kept("hot") && kept("hot") < made(&printed, "hot"));
    let shown = successful(place.command(everycall()).arg("replay").arg("recorded.ect"));
    assert!(shown.contains("budget: off hot") && shown.contains("budget: on hot"));
}

#[test]
fn without_record_and_in_a_forked_child_too() {
    for mode in modes() {
        let place = Place::new(&format!("budget-fork-{}", mode.label()));
        let program = built(&place, mode);
        for arguments in [&[][..], &["fork"]] {
            let mut command = place.command(&program);
            command.env("EVERYCALL_BUDGET", "3%").args(arguments);
            let mut standing = Standing::start(&mut command);
            if !arguments.is_empty() {
                standing = standing.find_traced();
            }
            wait_until(&place, &standing, "hot is off", |info| is_off(info, "hot"));
            let (status, printed) = standing.end();
            assert!(status.success() && printed.ends_with("right\n"), "{}: {printed}", mode.label());
        }
    }
}

#[test]
fn killed_under_record_the_file_says_what_was_off() {
    let place = Place::new("budget-killed");
    let program = built(&place, Mode::GCC_NOPS);
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--budget", "0.5%", "-o", "recorded.ect", "--"]).arg(&program);
    let standing = Standing::start(&mut command).find_traced();
    wait_until(&place, &standing, "hot is off", |info| is_off(info, "hot"));
    successful(Command::new("kill").args(["-9", &standing.pid.to_string()]));
    let _ = standing.end();
    let info = info(&place, &place.file("recorded.ect"));
    assert_eq!(info["budget"]["millionths"], 5_000);
    assert!(is_off(&info, "hot"), "{info:#}");
}

#[test]
fn invalid_budgets_are_refused_with_a_reason() {
    let place = Place::new("budget-nonsense");
    let program = built(&place, Mode::GCC_NOPS);
    for nonsense in ["0%", "-1%", "abc", "300%", "3"] {
        let output = place
            .command(everycall())
            .args(["record", "--budget", nonsense, "-o", "none.ect", "--"])
            .arg(&program)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("such as 3%") && !place.file("none.ect").exists(), "{said}");
        let output = place
            .command(&program)
            .env("EVERYCALL_BUDGET", nonsense)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("EVERYCALL_BUDGET"), "{said}");
        assert!(said.contains("such as 3%"), "{said}");
    }
}

#[test]
fn cull_lists_what_costs_too_much_and_a_build_without_it_is_within_the_budget() {
    for mode in modes() {
        let place = Place::new(&format!("cull-{}", mode.label()));
        let program = built(&place, mode);
        let standing = Standing::recorded(&place, &program, &[]);
        assert!(standing.end().0.success());
        let cull = |file: &str, more: &[&str]| {
            let options = ["cull", "--budget", "1%", "--event-cost", "10ns"];
            successful(place.command(everycall()).args(options).args(more).arg(file))
        };
        let said = cull("recorded.ect", &["-o", "list.txt"]);
        assert!(said.contains("without 1 function:") && said.contains("hot"), "{said}");
        let list = std::fs::read_to_string(place.file("list.txt")).expect("a list");
        let lines: Vec<_> = list.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["- hot"], "{list}");
        // A build without the function.
        let source = everycall_tests::programs().join("budgeted.c");
        let mut compiler = place.command(everycall());
        compiler.args(["cc", "--mode", mode.name, "--not", "@list.txt", "--", mode.cc, "-O2", "-g"]);
        successful(compiler.arg(source).args(["-o", "culled"]));
        let recording = place.record(&["--ring-size", "64M"], &place.file("culled"), &[]);
        assert!(recording.stdout().ends_with("right\n"));
        let tallies = recording.tallies().tallies();
        assert!(!tallies.contains_key("hot") && tallies.contains_key("main"), "{tallies:?}");
    }
}
