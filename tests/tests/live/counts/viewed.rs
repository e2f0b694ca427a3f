//! All calls in the viewer: the numbers that `report` shows.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use everycall_tests::{Mode, Place, everycall, successful};
use serde_json::Value;

/// A viewer of a trace, which ends with the test.
struct Viewer {
    process: Child,
    address: String,
}

impl Viewer {
    fn of(place: &Place, trace: &str) -> Viewer {
        let mut command = place.command(everycall());
        command.args(["view", "--no-browser", trace]).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let mut line = String::new();
        let said = process.stdout.take().expect("a pipe");
        BufReader::new(said).read_line(&mut line).expect("the address");
        let viewer = Viewer { process, address: line.trim().replace("http://", "") };
        everycall_tests::wait::until("the whole trace", || viewer.ask("trace")["complete"] == true);
        viewer
    }

    fn ask(&self, request: &str) -> Value {
        let (host, secret) = self.address.split_once('/').expect("an address");
        let mut server = TcpStream::connect(host).expect("the viewer listens");
        let head = format!("GET /{secret}{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        server.write_all(head.as_bytes()).expect("it reads");
        let mut answer = String::new();
        server.read_to_string(&mut answer).expect("an answer");
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {request}: {answer}"))
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Each row's group, its calls and all its calls.
fn numbers(table: &Value) -> Vec<String> {
    let number = |row: &Value| {
        let what = ["symbols", "module", "file", "line", "pid", "tid", "thread", "process"];
        let what: Vec<String> = what.iter().map(|name| row[name].to_string()).collect();
        format!("{} {} {}", what.join(" "), row["calls"], row["all_calls"])
    };
    let mut all: Vec<String> = table["rows"].as_array().expect("rows").iter().map(number).collect();
    all.sort();
    all
}

#[test]
fn the_viewer_has_the_calls_of_report_that_were_overwritten() {
    let place = Place::new("counts-viewed");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "early.c", "-pthread"], "early");
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--ring-size", "64K", "-o", "viewed.ect", "--"]);
    successful(command.arg(&program));
    let viewer = Viewer::of(&place, "viewed.ect");
    let mut overwritten = 0;
    for by in ["function", "thread", "process", "module", "file"] {
        let report = ["report", "-f", "json", "--by", by, "viewed.ect"];
        let report: Value =
            serde_json::from_str(&successful(place.command(everycall()).args(report))).expect("JSON");
        let shown = viewer.ask(&format!("report?by={by}"));
        assert_eq!(numbers(&shown), numbers(&report), "{by}");
        let rows = shown["rows"].as_array().expect("rows");
        assert!(rows.iter().all(|row| row["name"].is_string()), "{by}: {shown}");
        if by != "function" {
            continue;
        }
        for row in shown["rows"].as_array().expect("rows") {
            let function = &row["function"];
            overwritten += u64::from(row["calls"] == 0 && row["all_calls"].as_u64() > Some(0));
            // A function of which the trace has no call has a name and a number, too.
            let named =
                viewer.ask(&format!("functions?from={function}&to={}", function.as_u64().unwrap() + 1));
            assert_eq!(named[0]["full"], row["name"]);
            let instances = viewer.ask(&format!("instances?function={function}"));
            assert_eq!(
                (&instances["calls"], &instances["all_calls"]),
                (&row["calls"], &row["all_calls"]),
                "{row}"
            );
            if let Some(call) = instances["slowest"].get(0) {
                let [track, at, depth] = ["track", "from", "depth"].map(|name| call[name].to_string());
                let details = viewer.ask(&format!("slice?track={track}&at={at}&depth={depth}"));
                assert!(
                    details["function"] != *function || details["all_calls"] == row["all_calls"],
                    "{row}"
                );
            }
        }
        // Of a range of time, no counts are known.
        let range = viewer.ask("report?from=0&to=1000000000000");
        assert!(range["rows"].as_array().expect("rows").iter().all(|row| row["all_calls"].is_null()));
    }
    assert!(overwritten > 0, "every function has calls in the ring");
}
