//! The tree and the JSON lines.

use crate::common;
use crate::common::{Book, Program};
use everycall_export::{Filter, ReplayStyle, Summary, parse_ids, replay, replay_json};
use serde_json::Value;

fn shown(program: &Program, book: &Book, filter: &Filter, style: ReplayStyle) -> (String, Summary) {
    let mut bytes = Vec::new();
    let summary = replay(program, book, filter, style, &mut bytes).unwrap();
    (String::from_utf8(bytes).unwrap(), summary)
}

fn lines(program: &Program, book: &Book, filter: &Filter) -> (Vec<Value>, Summary) {
    let mut bytes = Vec::new();
    let summary = replay_json(program, book, filter, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), summary)
}

/// Without colours.
fn plain(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').unwrap().1)
}

#[test]
fn a_terminal_line_keeps_to_its_width() {
    let (mut program, book) = common::everything();
    program.thread(102, "deep");
    for level in 0..60 {
        program.begin(5 - level % 4, level * 1_000);
    }
    for level in 0..60 {
        program.end(9_000_000 + level * 100_000);
    }
    for width in [80, 100, 200] {
        let style = ReplayStyle { colour: true, width: Some(width), ..ReplayStyle::default() };
        let (text, _) = shown(&program, &book, &Filter::default(), style);
        for line in text.lines() {
            let line = plain(line);
            assert!(line.chars().count() <= width, "{width}: {line}");
            assert!(!line.contains('\x1b'));
        }
    }
    let (text, _) = shown(&program, &book, &Filter::default(), ReplayStyle::default());
    assert!(!text.contains(['\x1b', '…']));
}

#[test]
fn colours_dont_change_the_text() {
    let (program, book) = common::everything();
    let style = |colour| ReplayStyle { colour, width: Some(80), ..ReplayStyle::default() };
    let (coloured, _) = shown(&program, &book, &Filter::default(), style(true));
    let (bare, _) = shown(&program, &book, &Filter::default(), style(false));
    assert_ne!(coloured, bare);
    assert_eq!(coloured.lines().map(plain).collect::<Vec<_>>(), bare.lines().collect::<Vec<_>>());
}

#[test]
fn deep_recursion_makes_no_long_lines() {
    let mut program = Program::default();
    program.thread(1, "");
    for level in 0..100_000 {
        program.begin(7, level);
    }
    for level in 0..100_000 {
        program.end(100_000 + level);
    }
    let (text, summary) = shown(&program, &Book::default(), &Filter::default(), ReplayStyle::default());
    assert_eq!(summary.slices, 100_000);
    assert!(text.lines().all(|line| line.len() < 80));
    assert!(text.contains("[99999] f7  1 ns\n"));
    assert!(
        text.contains("[99998] f7 {\n") && text.contains("[17] } 200 us  f7\n"),
        "{}",
        &text[text.len() - 3_000..]
    );
    let (lines, _) = lines(&program, &Book::default(), &Filter::default());
    assert_eq!((lines.len(), &lines[0]["depth"]), (100_000, &Value::from(99_999)));
}

#[test]
fn names_cannot_steer_the_terminal() {
    let book = Book::default().function(1, "evil\x1b]0;title\x07\u{202e}\r\n", "/a/\x1b[2J.c", 1);
    let mut program = Program::default();
    program.thread(1, "\x1b[31mred").begin(1, 0).end(5).orphan_exit(1, 6);
    let style = ReplayStyle { colour: false, width: Some(120), ..ReplayStyle::default() };
    let (text, _) = shown(&program, &book, &Filter::default(), style);
    assert!(!text.contains(['\x1b', '\x07', '\r', '\u{202e}']), "{text:?}");
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("evil\\u{1b}]0;title\\u{7}\\u{202e}\\r\\n"), "{text}");
    let (lines, _) = lines(&program, &book, &Filter::default());
    assert_eq!(lines[0]["name"], "evil\x1b]0;title\x07\u{202e}\r\n");
    assert_eq!(lines[0]["file"], "/a/\x1b[2J.c");
}

#[test]
fn threads_are_chosen_by_number() {
    let (program, book) = common::everything();
    let filter = Filter { tids: parse_ids("101,999").unwrap(), ..Filter::default() };
    let (text, summary) = shown(&program, &book, &filter, ReplayStyle::default());
    assert_eq!((summary.threads, summary.slices), (1, 2));
    assert!(text.contains("thread 101 worker-1") && !text.contains("thread 100"));
    let filter = Filter { tids: vec![999], ..Filter::default() };
    assert_eq!(shown(&program, &book, &filter, ReplayStyle::default()), (String::new(), Summary::default()));
}

#[test]
fn lines_hold_every_call_and_loss() {
    let (program, book) = common::everything();
    let (lines, summary) = lines(&program, &book, &Filter::default());
    let calls: Vec<_> = lines.iter().filter(|line| line.get("depth").is_some()).collect();
    assert_eq!((calls.len() as u64, lines.len()), (summary.slices, calls.len() + 17));
    let labelled: Vec<_> = calls.iter().filter_map(|call| call.get("labels")).collect();
    assert_eq!(labelled[1], &serde_json::json!({ "request": 4711 }));
    let count = |key: &str| lines.iter().filter(|line| line.get(key).is_some()).count();
    assert_eq!(
        ["label", "instant", "span", "orphan_span_end", "not_recorded_ns"].map(count),
        [5, 2, 4, 1, 2]
    );
    assert_eq!(summary, shown(&program, &book, &Filter::default(), ReplayStyle::default()).1);
    // True times, also where a viewer's would have been moved.
    let instant = calls.iter().find(|call| call["dur_ns"] == 0).unwrap();
    assert_eq!((&instant["start_ns"], &instant["depth"]), (&Value::from(1_370), &Value::from(2)));
    let main = calls.iter().find(|call| call["name"] == "main").unwrap();
    assert_eq!(main["remarks"], serde_json::json!(["truncated at start", "truncated at end"]));
    assert_eq!((&main["file"], &main["line"]), (&Value::from("/src/app.cpp"), &Value::from(30)));
    let lost: Vec<_> = lines.iter().filter_map(|line| line.get("lost")).collect();
    assert_eq!(lost, [&Value::from(1_234), &Value::Null]);
}

#[test]
fn a_filter_keeps_times_and_nesting() {
    let (mut program, book) = common::everything();
    program.threads.truncate(2);
    program.events.truncate(2);
    let filter = Filter { since_ns: Some(22_500), until_ns: Some(24_000), ..Filter::default() };
    let (lines, _) = lines(&program, &book, &filter);
    let calls: Vec<_> = lines
        .iter()
        .map(|line| (line["depth"].as_u64().unwrap(), line["start_ns"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        calls,
        [(3, 22_000), (2, 21_000), (1, 20_000), (0, 0)],
        "all calls that were open then, wholly"
    );
    let filter = Filter { last_ns: Some(1_000), depth: Some(1), ..Filter::default() };
    let (text, summary) = shown(&program, &book, &filter, ReplayStyle::default());
    assert_eq!((summary.slices, summary.lost_events), (1, 0), "{text}");
}
