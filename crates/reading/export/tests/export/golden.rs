//! Compares each output of one recording with a file: as memory, through a file and through a pipe.
//!
//! After an intended change, review what `EVERYCALL_BLESS=1 cargo test -p everycall-export --test
//! golden` changes.

// A test may panic.
#![allow(clippy::disallowed_methods)]

use crate::common;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use everycall_export::{Filter, Format, ReplayStyle, export, parse_function, replay, replay_json};
use everycall_io::outfile::{Existing, MODE_SHARED, OutFile};

type Writer = Box<dyn Fn(&mut dyn Write) -> io::Result<()>>;

fn outputs() -> Vec<(&'static str, Writer)> {
    fn exported(format: Format) -> Writer {
        Box::new(move |out| {
            let (program, book) = common::everything();
            let all = Filter::default();
            export(format, &program, &book, &all, &mut |note| panic!("{note}"), out).map(drop)
        })
    }
    fn of_jumps(format: Format) -> Writer {
        Box::new(move |out| {
            let (program, book) = common::jumps();
            let all = Filter::default();
            export(format, &program, &book, &all, &mut |note| panic!("{note}"), out).map(drop)
        })
    }
    fn of_details(format: Format) -> Writer {
        Box::new(move |out| {
            let (program, book) = common::details();
            let all = Filter::default();
            export(format, &program, &book, &all, &mut |note| panic!("{note}"), out).map(drop)
        })
    }
    fn of_unsure(format: Format) -> Writer {
        Box::new(move |out| {
            let (program, book) = common::unsure();
            let all = Filter::default();
            export(format, &program, &book, &all, &mut |note| panic!("{note}"), out).map(drop)
        })
    }
    fn of_process_tree(format: Format) -> Writer {
        Box::new(move |out| {
            let program = common::process_tree();
            let all = Filter::default();
            export(format, &program, &common::Book::default(), &all, &mut |note| panic!("{note}"), out)
                .map(drop)
        })
    }
    fn of_states(format: Format) -> Writer {
        Box::new(move |out| {
            let (all, book) = (Filter::default(), common::Book::default());
            export(format, &common::states(), &book, &all, &mut |note| panic!("{note}"), out).map(drop)
        })
    }
    fn of_counters(format: Format) -> Writer {
        Box::new(move |out| {
            let program = common::counters();
            let all = Filter::default();
            export(format, &program, &common::Book::default(), &all, &mut |note| panic!("{note}"), out)
                .map(drop)
        })
    }
    fn replayed(style: ReplayStyle, filter: Filter) -> Writer {
        Box::new(move |out| {
            let (program, book) = common::everything();
            replay(&program, &book, &filter, style, out).map(drop)
        })
    }
    let terminal = ReplayStyle { colour: true, width: Some(80), ..ReplayStyle::default() };
    let slow = Filter {
        min_duration_ns: 1_000,
        function: Some(parse_function("^try|^parse").unwrap()),
        depth: Some(2),
        ..Filter::default()
    };
    vec![
        ("everything.vizviewer.json", exported(Format::Vizviewer)),
        ("everything.chrome.json", exported(Format::Chrome)),
        ("everything.pftrace", exported(Format::Perfetto)),
        ("everything.csv", exported(Format::Csv)),
        ("everything.speedscope.json", exported(Format::Speedscope)),
        ("everything.firefox.json", exported(Format::Firefox)),
        ("counters.firefox.json", of_counters(Format::Firefox)),
        ("states.firefox.json", of_states(Format::Firefox)),
        ("everything.folded", exported(Format::Folded)),
        ("everything.callgrind", exported(Format::Callgrind)),
        ("everything.replay.txt", replayed(ReplayStyle::default(), Filter::default())),
        ("everything.terminal.txt", replayed(terminal, Filter::default())),
        (
            "labelled.replay.txt",
            replayed(
                ReplayStyle::default(),
                Filter { label: Some("token=1".parse().unwrap()), ..Filter::default() },
            ),
        ),
        ("filtered.replay.txt", replayed(ReplayStyle::default(), slow)),
        ("counters.chrome.json", of_counters(Format::Chrome)),
        ("counters.vizviewer.json", of_counters(Format::Vizviewer)),
        ("counters.pftrace", of_counters(Format::Perfetto)),
        ("counters.csv", of_counters(Format::Csv)),
        (
            "counters.replay.txt",
            Box::new(|out| {
                let all = Filter::default();
                replay(&common::counters(), &common::Book::default(), &all, ReplayStyle::default(), out)
                    .map(drop)
            }),
        ),
        (
            "counters.replay.jsonl",
            Box::new(|out| {
                replay_json(&common::counters(), &common::Book::default(), &Filter::default(), out).map(drop)
            }),
        ),
        ("states.chrome.json", of_states(Format::Chrome)),
        ("states.pftrace", of_states(Format::Perfetto)),
        ("states.csv", of_states(Format::Csv)),
        (
            "states.terminal.txt",
            Box::new(move |out| {
                let (all, book) = (Filter::default(), common::Book::default());
                replay(&common::states(), &book, &all, terminal, out).map(drop)
            }),
        ),
        (
            "states.replay.jsonl",
            Box::new(|out| {
                replay_json(&common::states(), &common::Book::default(), &Filter::default(), out).map(drop)
            }),
        ),
        ("process-tree.chrome.json", of_process_tree(Format::Chrome)),
        ("process-tree.pftrace", of_process_tree(Format::Perfetto)),
        ("process-tree.csv", of_process_tree(Format::Csv)),
        ("process-tree.speedscope.json", of_process_tree(Format::Speedscope)),
        ("process-tree.folded", of_process_tree(Format::Folded)),
        (
            "process-tree.replay.txt",
            Box::new(|out| {
                let all = Filter::default();
                replay(&common::process_tree(), &common::Book::default(), &all, ReplayStyle::default(), out)
                    .map(drop)
            }),
        ),
        ("details.chrome.json", of_details(Format::Chrome)),
        ("details.pftrace", of_details(Format::Perfetto)),
        (
            "details.terminal.txt",
            Box::new(move |out| {
                let (program, book) = common::details();
                replay(&program, &book, &Filter::default(), terminal, out).map(drop)
            }),
        ),
        (
            "details.replay.jsonl",
            Box::new(|out| {
                let (program, book) = common::details();
                replay_json(&program, &book, &Filter::default(), out).map(drop)
            }),
        ),
        ("everything.dot", exported(Format::Dot)),
        ("everything.mmd", exported(Format::Mermaid)),
        ("jumps.folded", of_jumps(Format::Folded)),
        ("jumps.callgrind", of_jumps(Format::Callgrind)),
        ("jumps.chrome.json", of_jumps(Format::Chrome)),
        ("jumps.pftrace", of_jumps(Format::Perfetto)),
        (
            "jumps.terminal.txt",
            Box::new(move |out| {
                let (program, book) = common::jumps();
                replay(&program, &book, &Filter::default(), terminal, out).map(drop)
            }),
        ),
        (
            "jumps.replay.jsonl",
            Box::new(|out| {
                let (program, book) = common::jumps();
                replay_json(&program, &book, &Filter::default(), out).map(drop)
            }),
        ),
        ("unsure.chrome.json", of_unsure(Format::Chrome)),
        ("unsure.pftrace", of_unsure(Format::Perfetto)),
        ("unsure.csv", of_unsure(Format::Csv)),
        (
            "unsure.terminal.txt",
            Box::new(move |out| {
                let (program, book) = common::unsure();
                replay(&program, &book, &Filter::default(), terminal, out).map(drop)
            }),
        ),
        (
            "unsure.replay.jsonl",
            Box::new(|out| {
                let (program, book) = common::unsure();
                replay_json(&program, &book, &Filter::default(), out).map(drop)
            }),
        ),
        (
            "everything.replay.jsonl",
            Box::new(|out| {
                let (program, book) = common::everything();
                replay_json(&program, &book, &Filter::default(), out).map(drop)
            }),
        ),
    ]
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[test]
fn outputs_are_the_golden_ones() {
    let folder = tempfile::tempdir().unwrap();
    for (name, write) in outputs() {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        if std::env::var_os("EVERYCALL_BLESS").is_some() {
            fs::write(golden(name), &bytes).unwrap();
        }
        let expected = fs::read(golden(name)).unwrap();
        assert!(
            bytes == expected,
            "{name} is now:\n{}\nand was:\n{}",
            String::from_utf8_lossy(&bytes),
            String::from_utf8_lossy(&expected)
        );

        let path = folder.path().join(name);
        let mut file =
            OutFile::create(&path, MODE_SHARED, Existing { is_forced: true, ..Existing::default() }).unwrap();
        write(&mut file).unwrap();
        assert!(!path.exists());
        file.finish().unwrap();
        assert!(fs::read(&path).unwrap() == expected, "{name} by file");

        let (mut reader, mut writer) = io::pipe().unwrap();
        let piped = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        });
        write(&mut writer).unwrap();
        drop(writer);
        assert!(piped.join().unwrap() == expected, "{name} by pipe");
    }
}

#[test]
fn closed_pipes_and_full_disks_are_reported_unchanged() {
    for (name, write) in outputs() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(write(&mut writer).unwrap_err().kind(), io::ErrorKind::BrokenPipe, "{name}");
        let mut full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(write(&mut full).unwrap_err().kind(), io::ErrorKind::StorageFull, "{name}");
    }
}
