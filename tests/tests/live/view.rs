//! `everycall view` of programs that run: what its page gets is what the program has called so far.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use everycall_tests::viewer::Viewer;
use everycall_tests::{Mode, Place, Standing, TraceView, everycall, wait};
use serde_json::Value;

/// A program that is looked at.
trait Live {
    fn newest(&self, function: &str) -> (u64, u64);
    fn wait_for_calls(&self, function: &str, count: u64) -> u64;
}

impl Live for Viewer {
    /// The number of the newest state, and how often a function was called in it.
    fn newest(&self, function: &str) -> (u64, u64) {
        // It asks for a newer one, too.
        let number = self.get("running")["generation"].as_u64().unwrap();
        if number == 0 {
            // The first one is waited for.
            return (self.get("trace")["generation"].as_u64().unwrap(), 0);
        }
        let report = self.get(&format!("report?by=function&generation={number}"));
        (number, calls(&report, function).unwrap_or(0))
    }

    fn wait_for_calls(&self, function: &str, count: u64) -> u64 {
        let mut number = 0;
        wait::until("the viewer to show the calls", || {
            let (newest, calls) = self.newest(function);
            number = newest;
            calls == count
        });
        number
    }
}

/// `None` if it is an error.
fn calls(report: &Value, function: &str) -> Option<u64> {
    let rows = report["rows"].as_array()?;
    let row = rows.iter().find(|row| row["name"] == function);
    Some(row.map_or(0, |row| row["calls"].as_u64().unwrap()))
}

fn program(place: &Place) -> PathBuf {
    place.build(Mode::GCC_NOPS, &["-O2", "selected.c", "-pthread"], "selected")
}

#[test]
fn a_running_program_is_shown_as_it_goes_on() {
    let place = Place::new("view-live");
    let mut standing = Standing::alone(&program(&place), &[]);
    let pid = standing.pid.to_string();
    // Two look at the same time.
    let viewers = [Viewer::start(&[&pid]), Viewer::start(&["--live", &pid])];
    let first = viewers[0].wait_for_calls("red", 20);
    standing.go_on();
    assert!(viewers[0].wait_for_calls("red", 40) > first);
    viewers[1].wait_for_calls("red", 40);
    // Whoever looks at an older state still sees that one, as long as it is kept.
    let older = viewers[0].get(&format!("report?by=function&generation={first}"));
    assert!(calls(&older, "red").is_none_or(|calls| calls == 20), "{older}");
    let unknown = viewers[0].get("report?by=function&generation=1000000");
    assert_eq!(unknown["error"], "this state of the program isn't kept any more");
    let (status, _) = standing.end();
    assert!(status.success());
    for viewer in &viewers {
        wait::until("the viewer to notice the end", || !viewer.get("running")["over"].is_null());
        let said = viewer.get("running")["over"].to_string();
        assert!(said.contains("has ended"), "{said}");
        viewer.wait_for_calls("red", 40);
    }
}

#[test]
fn a_started_program_is_shown_from_its_first_call_to_its_last() {
    let place = Place::new("view-started");
    let program = program(&place);
    let mut viewer = Viewer::start(&["--live", "--", program.to_str().unwrap()]);
    viewer.wait_for_calls("step", 10);
    wait::until("the end", || !viewer.get("running")["over"].is_null());
    viewer.wait_for_calls("main", 1);
    assert_eq!(viewer.get("running")["lost"], 0);
    // As on the terminal. For a second after the program's end, a signal is taken for the program's.
    let pid = viewer.command.id().to_string();
    wait::until("the viewer to end", || {
        let _ = Command::new("kill").args(["-INT", &pid]).stderr(Stdio::null()).status();
        viewer.command.try_wait().unwrap().is_some()
    });
}

#[test]
fn what_is_kept_is_bounded() {
    let place = Place::new("view-bounded");
    let standing = Standing::alone(&program(&place), &["2"]);
    let viewer = Viewer::start_by(place.command(everycall()), &["--keep", "256K", &standing.pid.to_string()]);
    wait::until("older events to be dropped", || viewer.get("trace")["begin_ns"].as_u64() > Some(0));
    let facts = viewer.get("running");
    assert_eq!(facts["most_bytes"], 256 << 10);
    assert!(facts["kept_bytes"].as_u64().unwrap() <= 256 << 10, "{facts}");
    // A marked range becomes a file, in the folder of the command.
    let kept = viewer.get("keep");
    let file = place.file(kept["file"].as_str().unwrap_or_else(|| panic!("{kept}")));
    assert!(TraceView::open(&file).calls("work_one") > 0);
    // Functions are switched as by `disable` and `enable`.
    let functions = viewer.get("functions?from=0&to=1000");
    let all = functions.as_array().unwrap();
    let id = all.iter().find(|function| function["name"] == "work_one").unwrap()["id"].as_u64().unwrap();
    let off = viewer.get(&format!("switch?function={id}&on=0"));
    assert_eq!(off["said"], "recording 7 of 8 functions", "{off}");
    let on = viewer.get(&format!("switch?function={id}&on=1"));
    assert_eq!(on["said"], "recording 8 of 8 functions", "{on}");
}
