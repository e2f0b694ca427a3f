//! `everycall why`: its numbers are those of `report`, and the commands that it names run.

use std::path::Path;

use serde_json::Value;

use crate::common::Workplace;

/// A kept trace with symbols: of `why`'s own tests, with the program's source beside it.
fn with_trace() -> Workplace {
    let place = Workplace::new();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../showing/why/tests/data/requests.ect");
    place.write("requests.ect", std::fs::read(kept).unwrap());
    place
}

/// The output of a command as a shell takes it, with these words more.
fn shown(place: &Workplace, command: &str, more: &str) -> String {
    let words = command.strip_prefix("everycall ").unwrap();
    let outcome = place.shell(&format!("$EVERYCALL {words} {more}"));
    assert_eq!(outcome.code, Some(0), "{command}: {outcome:?}");
    outcome.stdout
}

fn json(place: &Workplace, command: &str) -> Value {
    serde_json::from_str(&shown(place, command, "-f json")).unwrap()
}

fn why(place: &Workplace, options: &str) -> Value {
    json(place, &format!("everycall why {options} requests.ect"))
}

/// Rows by name.
fn row<'v>(report: &'v Value, key: &str, name: &Value) -> &'v Value {
    report["rows"].as_array().unwrap().iter().find(|row| row[key] == *name).unwrap()
}

#[test]
fn numbers_are_those_of_report() {
    let place = with_trace();
    for options in ["", "--function sort_items", "--kept 1"] {
        let why = why(&place, options);
        let call = &why["call"];
        let name = call["name"].as_str().unwrap();
        let slowest = json(&place, &format!("everycall report --slowest {name} requests.ect"));
        let slowest = &slowest["rows"][0];
        for key in ["name", "pid", "tid", "depth", "start_ns", "dur_ns", "own_ns", "kept_call", "arguments"] {
            assert_eq!(slowest[key], call[key], "{options}: {key}");
        }
        let table = json(&place, "everycall report requests.ect");
        for step in why["steps"].as_array().unwrap() {
            let all = row(&table, "name", &step["name"]);
            assert_eq!(step["median"]["p50_ns"], all["p50_ns"], "{options}");
            assert_eq!(step["timed_calls"], all["timed_calls"], "{options}");
            // Calls around the median.
            let explained = json(
                &place,
                &format!("everycall report --explain {} requests.ect", step["name"].as_str().unwrap()),
            );
            assert_eq!(step["median"]["average_ns"], explained["median"]["average_ns"]);
            assert_eq!(step["median"]["calls"], explained["median"]["calls"]);
            for part in step["parts"].as_array().unwrap() {
                let is_it =
                    |row: &&Value| row["part"] == part["part"] && row["name"] == part["function"]["name"];
                // Functions that only slow calls call may be those of other slow calls there.
                let other = explained["rows"].as_array().unwrap().iter().find(is_it).unwrap();
                for key in ["median_ns_per_call", "median_calls_per_call"] {
                    assert_eq!(part[key], other[key], "{options}: {part}");
                }
            }
        }
        // The commands of the claims show the call's own numbers.
        let mut compared = 0;
        for claim in why["claims"].as_array().unwrap() {
            let next = claim["next"][0].as_str().unwrap();
            if claim["kind"] == "difference" {
                let callees = json(&place, next);
                let is_step = |step: &&Value| {
                    claim["text"].as_str().unwrap().starts_with(step["name"].as_str().unwrap())
                };
                let step = why["steps"].as_array().unwrap().iter().find(is_step).unwrap();
                for part in step["parts"].as_array().unwrap().iter().filter(|part| part["part"] == "call") {
                    if part["call_calls"] == 0 {
                        continue;
                    }
                    let callee = row(&callees, "callee", &part["function"]["name"]);
                    assert_eq!(
                        (&callee["calls"], &callee["total_ns"]),
                        (&part["call_calls"], &part["call_ns"])
                    );
                    compared += 1;
                }
            }
            if claim["kind"] == "function" {
                let table = json(&place, next);
                for function in why["functions"].as_array().unwrap() {
                    if function["call"]["calls"] == 0 {
                        continue;
                    }
                    let row = row(&table, "name", &function["name"]);
                    for key in ["calls", "own_ns", "total_ns"] {
                        assert_eq!(row[key], function["call"][key], "{options}: {function}");
                    }
                    assert_eq!(row["own_blocked_ns"], function["call"]["own_states"]["blocked_ns"]);
                    compared += 1;
                }
                let row = row(&table, "name", &call["name"]);
                for key in ["running_ns", "runnable_ns", "blocked_ns"] {
                    assert_eq!(row[key], why["waits"]["states"][key], "{options}: {key}");
                }
            }
            if claim["kind"] == "value" {
                let values = json(&place, next);
                let value = &why["values"][0];
                let row = row(&values, "value", &value["value"]);
                for key in ["calls", "min_ns", "p50_ns"] {
                    assert_eq!(row[key], value[key], "{options}: {key}");
                }
                compared += 1;
            }
        }
        assert!(compared >= 3, "{options}: {compared}");
    }
}

#[test]
fn commands_that_it_names_run() {
    let place = with_trace();
    let mut commands = Vec::new();
    for options in ["", "--function sort_items", "--function look_up"] {
        let text = shown(&place, &format!("everycall why {options} requests.ect"), "");
        commands.extend(
            text.lines().filter_map(|line| line.trim_start().strip_prefix("next: ").map(str::to_owned)),
        );
        for claim in why(&place, options)["claims"].as_array().unwrap() {
            let next = claim["next"].as_array().unwrap();
            assert!(!next.is_empty(), "{claim}");
            commands.extend(next.iter().map(|command| command.as_str().unwrap().to_owned()));
        }
    }
    commands.sort();
    commands.dedup();
    for command in &commands {
        let shown = shown(&place, command, "");
        assert!(shown.lines().count() >= 2, "{command}: {shown}");
    }
    assert!(commands.len() >= 8, "{commands:?}");
}

#[test]
fn wrong_questions_have_answers() {
    let place = with_trace();
    for (line, code, words) in [
        ("why", 2, &["required"][..]),
        ("why none.ect", 1, &["none.ect", "everycall record"]),
        ("why --function sort_item requests.ect", 1, &["matches `sort_item`", "there is sort_items"]),
        ("why --call 1ms requests.ect", 1, &["no such call began then"]),
        ("why --kept 9 requests.ect", 1, &["from 1 to 1"]),
        ("why --kept 1 --function handle requests.ect", 2, &["cannot be used"]),
        ("why --tid 1,2 requests.ect", 2, &["one thread"]),
    ] {
        place.fail(line, code, words);
    }
}
