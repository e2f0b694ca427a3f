//! Chrome JSON, read back by a JSON parser.

use crate::common;
use std::collections::{HashMap, HashSet};

use crate::common::{Book, Program};
use everycall_export::{
    EndKind, Filter, Format, Location, MANY_SLICES, Note, Summary, TimelineEvent, export,
};
use serde_json::Value;

fn exported(format: Format, program: &Program, book: &Book) -> (Value, Summary, Vec<Note>) {
    let (mut bytes, mut notes) = (Vec::new(), Vec::new());
    let summary =
        export(format, program, book, &Filter::default(), &mut |note| notes.push(note), &mut bytes).unwrap();
    (serde_json::from_slice(&bytes).unwrap(), summary, notes)
}

fn events<'a>(trace: &'a Value, phase: &'static str) -> impl Iterator<Item = &'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(move |event| event["ph"] == phase)
}

/// Nanoseconds, exact within the precision of a double.
fn ns(microseconds: &Value) -> u64 {
    (microseconds.as_f64().unwrap() * 1e3).round() as u64
}

/// Begin, end and name of slices.
fn slices(trace: &Value) -> Vec<(u64, u64, String)> {
    let slice = |event: &Value| {
        let start = ns(&event["ts"]);
        (start, start + ns(&event["dur"]), event["name"].as_str().unwrap().to_owned())
    };
    events(trace, "X").map(slice).collect()
}

/// Asserts that each thread's slices can only be nested in one way by their times.
fn assert_strictly_nested(trace: &Value) {
    let mut slices = slices(trace);
    slices.sort_by_key(|&(start, end, _)| (start, std::cmp::Reverse(end)));
    let mut open: Vec<(u64, u64)> = Vec::new();
    for (start, end, name) in slices {
        assert!(start < end, "{name}");
        while open.last().is_some_and(|&(_, end)| end <= start) {
            open.pop();
        }
        if let Some(&(around_start, around_end)) = open.last() {
            assert!(around_start < start && end <= around_end, "{name}");
        }
        open.push((start, end));
    }
}

#[test]
fn no_digit_of_a_time_is_lost() {
    // 100 days.
    let base_ns = 8_640_000_000_000_000;
    let mut program = Program::default();
    program
        .thread(1, "")
        .begin(1, 1)
        .begin(2, base_ns + 123_456_789)
        .end(base_ns + 123_456_790)
        .end(base_ns + 999_999_999);
    let (trace, ..) = exported(Format::Chrome, &program, &Book::default());
    let expected = [
        (base_ns + 123_456_789, base_ns + 123_456_790, "f2".to_owned()),
        (1, base_ns + 999_999_999, "f1".to_owned()),
    ];
    assert_eq!(slices(&trace), expected);
    assert_eq!(events(&trace, "X").filter(|event| event.get("args").is_some()).count(), 0);
}

#[test]
fn chains_without_duration_nest_in_one_way_and_tell_their_true_times() {
    let mut program = Program::default();
    program.thread(1, "");
    program.begin(0, 1_000);
    for round in 0..200 {
        for function in 1..=50 {
            program.begin(function, 1_000 + round);
        }
        for _ in 1..=50 {
            program.end(1_000 + round);
        }
    }
    program.end(1_500);
    let (trace, summary, _) = exported(Format::Chrome, &program, &Book::default());
    assert_eq!(summary.slices, 200 * 50 + 1);
    assert_strictly_nested(&trace);
    for event in events(&trace, "X").filter(|event| event["name"] != "f0") {
        let start_ns = event["args"]["true_start_ns"].as_u64().unwrap();
        assert!((1_000..1_200).contains(&start_ns) && start_ns <= ns(&event["ts"]));
        assert_eq!(event["args"]["true_dur_ns"], 0);
    }
    assert_eq!(summary.moved_slices, 200 * 50 + 1, "the last slices push the end of f0, too");
}

#[test]
fn deep_recursion_is_marked_and_added_up() {
    let mut program = Program::default();
    program.thread(1, "").begin(0, 0);
    for level in 1..100_000 {
        program.begin(7, level * 10);
    }
    for level in (1..100_000).rev() {
        program.end(2_000_000 - level * 10);
    }
    program.begin(1, 3_000_000).end(3_000_001).end(3_000_002);
    let (trace, summary, notes) = exported(Format::Vizviewer, &program, &Book::default());
    assert_strictly_nested(&trace);
    let deep: Vec<_> =
        events(&trace, "X").filter(|event| event["name"] == "... deeper calls not shown").collect();
    assert_eq!(deep.len(), 1);
    assert_eq!(deep[0]["args"]["calls"], 100_000 - 511);
    assert_eq!((ns(&deep[0]["ts"]), ns(&deep[0]["dur"])), (5_110, 2_000_000 - 2 * 5_110));
    assert_eq!(summary.deep_calls, 100_000 - 511);
    assert_eq!(summary.slices, 511 + 1 + 1);
    assert_eq!(notes, [Note::DeepCalls { calls: 100_000 - 511 }]);
    assert!(notes[0].to_string().contains("99,489 calls"), "{}", notes[0]);
}

#[test]
fn hostile_names_and_sources_survive() {
    let texts = [
        "</script><script>",
        "\"\\\u{2028}\u{2029}\0\u{1b}[31m\n\r\t\u{7f}",
        "\u{fffd}\u{fffd}",
        "",
        "😀<!--",
    ];
    let mut program = Program::default();
    let mut book = Book::default();
    for (number, text) in texts.iter().enumerate() {
        let file = format!("/src/{number}{text}.cpp");
        book = book.function(number as u64, text, &file, number as u32).source(&file, text);
    }
    for (number, text) in texts.iter().enumerate() {
        program.thread(number as u32 + 1, text).begin(number as u64, 5).end(10);
    }
    let (trace, ..) = exported(Format::Vizviewer, &program, &book);
    for (number, text) in texts.iter().enumerate() {
        let file = format!("/src/{number}{text}.cpp");
        assert_eq!(trace["file_info"]["files"][&file][0], *text);
        let base = file.rsplit('/').next().unwrap();
        let name = format!("{text} ({base}:{number})");
        assert!(events(&trace, "X").any(|event| event["name"] == *name), "{name:?}");
        assert_eq!(trace["file_info"]["functions"][&name][0], *file);
        let named =
            events(&trace, "M").any(|event| event["name"] == "thread_name" && event["args"]["name"] == *text);
        assert_eq!(named, !text.is_empty());
    }
}

#[test]
fn the_source_panel_finds_every_file_and_only_those_needed() {
    let (program, book) = common::everything();
    let (trace, ..) = exported(Format::Vizviewer, &program, &book);
    let files: HashSet<_> = trace["file_info"]["files"].as_object().unwrap().keys().collect();
    assert_eq!(files.len(), 2);
    let functions = trace["file_info"]["functions"].as_object().unwrap();
    assert!(functions.values().all(|place| files.contains(&place[0].as_str().unwrap().to_owned())));
    let names: HashSet<_> = events(&trace, "X").map(|event| event["name"].as_str().unwrap()).collect();
    assert!(functions.keys().all(|name| names.contains(&**name)));
    assert!(!functions.contains_key("wait (wait.c:9)"), "its file isn't there");
    let (chrome, ..) = exported(Format::Chrome, &program, &book);
    assert!(chrome.get("file_info").is_none());
    assert_eq!(chrome["traceEvents"], trace["traceEvents"]);
}

#[test]
fn functions_that_a_filter_hides_bring_no_sources() {
    let (program, book) = common::everything();
    let filter =
        Filter { function: Some(everycall_export::parse_function("^parse").unwrap()), ..Filter::default() };
    let mut bytes = Vec::new();
    export(Format::Vizviewer, &program, &book, &filter, &mut |_| {}, &mut bytes).unwrap();
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(trace["file_info"]["files"].as_object().unwrap().len(), 1);
}

#[test]
fn functions_alike_in_other_folders_keep_their_own_source() {
    let book = Book::default()
        .function(1, "init", "/a/init.c", 5)
        .function(2, "init", "/b/init.c", 5)
        .source("/a/init.c", "a")
        .source("/b/init.c", "b");
    let mut program = Program::default();
    program.thread(1, "").begin(1, 0).end(1).begin(2, 2).end(3);
    let (trace, ..) = exported(Format::Vizviewer, &program, &book);
    assert_eq!(trace["file_info"]["functions"]["init (init.c:5)"][0], "/a/init.c");
    assert_eq!(trace["file_info"]["functions"]["init (/b/init.c:5)"][0], "/b/init.c");
}

#[test]
fn remarks_say_what_is_not_whole() {
    let (program, book) = common::everything();
    let (trace, summary, _) = exported(Format::Chrome, &program, &book);
    let remark = |name: &str| {
        events(&trace, "X").find(|event| event["name"] == name).unwrap()["args"]["remark"].clone()
    };
    assert_eq!(remark("main (app.cpp:30)"), "truncated at start, truncated at end");
    assert_eq!(remark("wait (wait.c:9)"), "truncated at end");
    assert_eq!(remark("try_it() (app.cpp:12)"), Value::Null);
    assert_eq!(remark("std::map<int, std::vector<long> >::at(int const&) (map:540)"), "unwound");
    assert_eq!(events(&trace, "i").count(), 11);
    let expected = Summary {
        slices: 16,
        threads: 3,
        marks: 12,
        gaps: 2,
        lost_events: 1_234,
        dropped_calls: 0,
        orphan_exits: 1,
        moved_slices: 1,
        bounded_calls: 0,
        deep_calls: 0,
        other_calls: 0,
    };
    assert_eq!(summary, expected);
}

#[test]
fn spans_and_gaps_fit_and_labels_are_found_at_their_calls() {
    let (mut program, book) = common::everything();
    let (trace, ..) = exported(Format::Vizviewer, &program, &book);
    let mut open: HashMap<&str, &Value> = HashMap::new();
    let mut spans = Vec::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let id = event["id2"]["local"].as_str().unwrap_or_default();
        match event["ph"].as_str().unwrap() {
            "b" => assert!(open.insert(id, event).is_none(), "numbers of spans are their own"),
            "e" => {
                let begin = open.remove(id).unwrap();
                assert_eq!((&begin["name"], &begin["cat"]), (&event["name"], &event["cat"]));
                spans.push((begin["args"]["value"].as_u64(), ns(&event["ts"]) - ns(&begin["ts"])));
            }
            _ => {}
        }
    }
    assert!(open.is_empty());
    assert_eq!(spans, [(Some(4_711), 1_000), (None, 0), (Some(4_712), 1_006_400), (None, 1_008_900)]);
    program.threads.drain(..2);
    program.events.drain(..2);
    let (trace, ..) = exported(Format::Chrome, &program, &book);
    assert_strictly_nested(&trace);
    let labelled = events(&trace, "X").filter(|event| event["args"].get("label").is_some());
    let labels: Vec<_> = labelled.map(|event| event["args"]["label"].clone()).collect();
    let token = serde_json::json!({ "token": [1, "18446744073709551615"], "(no name)": 0 });
    assert_eq!(labels, [token, serde_json::json!({ "request": 4711 })]);
}

#[test]
fn many_slices_are_noted_once_and_early() {
    let mut program = Program::default();
    program.thread(1, "");
    for at in 0..=MANY_SLICES {
        program.begin(1, at * 10).end_how(at * 10 + 5, EndKind::Returned);
    }
    for (excess, expected) in [(true, vec![Note::ManySlices]), (false, vec![])] {
        if !excess {
            program.events[0].truncate(2 * MANY_SLICES as usize);
        }
        let mut notes = Vec::new();
        let mut notify = |note| notes.push(note);
        export(
            Format::Perfetto,
            &program,
            &Book::default(),
            &Filter::default(),
            &mut notify,
            &mut std::io::sink(),
        )
        .unwrap();
        assert_eq!(notes, expected);
    }
}

#[test]
fn an_empty_trace_is_a_whole_file() {
    for format in [Format::Vizviewer, Format::Chrome] {
        let (trace, summary, _) = exported(format, &Program::default(), &Book::default());
        assert_eq!(trace["traceEvents"].as_array().unwrap().len(), 0);
        assert_eq!(summary, Summary::default());
    }
}

#[test]
fn code_outside_of_modules_is_named_by_its_address() {
    let mut program = Program::default();
    program.thread(1, "").begin(1, 0).end(1);
    program.thread(2, "").begin(2, 0).end(1);
    for (thread, module) in [Location::NO_MODULE, Location::LOST_MODULE].into_iter().enumerate() {
        for event in &mut program.events[thread] {
            if let TimelineEvent::Begin(begin) = event {
                begin.location = Location { module, image_address: 0x7f00 };
            }
        }
    }
    let (trace, ..) = exported(Format::Chrome, &program, &Book::default());
    let names: Vec<_> = slices(&trace).into_iter().map(|(.., name)| name).collect();
    assert_eq!(names, ["0x7f00 (outside of all modules)", "code offset 0x7f00 (module not known)"]);
}
