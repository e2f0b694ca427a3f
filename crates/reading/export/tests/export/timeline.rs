//! From event words through the timeline to an output.

use std::borrow::Cow;

use everycall_export::{
    Filter, Format, FunctionName, Location, Names, ReplayStyle, Source as _, Trace, TraceSource, Value,
    ValueCondition, ValuesNumber, export, replay,
};
use everycall_format::arena::{COUNTERS, ClockReading};
use everycall_format::event::{EXIT, call_word, kind, payload_word, record_word, values};
use everycall_reader::{
    CaptureLayout, Module, OpenCall, Process, Reason, Recording, SegmentCursor, Snapshot, Source, Stamps,
    Thread, ThreadKey, Warning,
};
use everycall_values::layout::{Content, Item, Layout, Shape};

const HIGH: u64 = 7 << 32;

/// A recording of one segment per thread.
struct Words {
    recording: Recording,
    threads: Vec<Vec<u64>>,
}

struct Once<'a>(Option<&'a [u64]>);

impl SegmentCursor for Once<'_> {
    fn next_segment(&mut self, words: &mut Vec<u64>) -> Option<Result<u64, Warning>> {
        words.clear();
        words.extend_from_slice(self.0.take()?);
        Some(Ok(0))
    }
}

impl Source for Words {
    fn recording(&self) -> &Recording {
        &self.recording
    }

    fn open_calls(&self, _: ThreadKey) -> Vec<OpenCall> {
        Vec::new()
    }

    fn segments(&self, key: ThreadKey) -> Box<dyn SegmentCursor + '_> {
        Box::new(Once(self.threads.get(key.thread).map(Vec::as_slice)))
    }
}

/// Two threads, of which the main one is second; a tick is half a nanosecond.
fn words() -> Words {
    let head = |ticks| {
        [
            record_word(ticks, kind::SEGMENT, 3, 0),
            payload_word((HIGH >> 32) as u32, kind::SEGMENT, 1),
            payload_word(0, kind::SEGMENT, 2),
            payload_word(0, kind::SEGMENT, 3),
        ]
    };
    let entry = |ticks, offset| call_word(HIGH + ticks, offset);
    let exit = |ticks, offset| call_word(HIGH + ticks, offset | EXIT);
    let worker = [&head(2_000)[..], &[entry(2_000, 0x1100), exit(6_000, 0x1100)]].concat();
    let main = [
        &head(1_000)[..],
        &[entry(1_000, 0x1100), entry(1_100, 0x1200), exit(1_500, 0x1200), exit(9_001, 0x1100)],
    ];
    let thread = |tid, name: &str| Thread {
        pid: 50,
        tid,
        slot: 0,
        generation: 0,
        name: name.into(),
        start_ticks: HIGH,
        first_segment: 0,
        segments: 1,
        unwound: 0,
        orphan_exits: 0,
        lost_busy: 0,
        deep: 0,
        dropped: 0,
        fiber: None,
        is_sampled: false,
    };
    let module = Module {
        path: b"/bin/pro\xffgram".to_vec(),
        is_executable: true,
        base: 0x40_0000,
        start: 0x40_1000,
        end: 0x40_3000,
        code_start: 0x1000,
        ..Module::default()
    };
    let reading = |ticks: u64| ClockReading {
        ticks: HIGH + ticks,
        monotonic_raw_ns: 1_000_000 + ticks / 2,
        monotonic_ns: 2_000_000 + ticks / 2,
        realtime_ns: 3_000_000_000 + ticks / 2,
        bracket: 20,
    };
    let snapshot = Snapshot {
        number: 0,
        reason: Reason::ProcessEnd,
        process: 0,
        pid: 50,
        ticks: Some(HIGH + 10_000),
        ring_size: 1 << 20,
        segment_size: 1 << 16,
        counters: [0; COUNTERS],
        threads: vec![thread(51, "worker"), thread(50, "main")],
    };
    let recording = Recording {
        clock: vec![reading(0), reading(2_000_000_000)],
        processes: vec![Process { pid: 50, modules: 0..1, ..Process::default() }],
        modules: vec![module],
        snapshots: vec![snapshot],
        ..Recording::default()
    };
    Words { recording, threads: vec![worker, main.concat()] }
}

/// The words where the main thread's inner call has no times of its own.
fn unstamped() -> Words {
    let mut words = words();
    words.recording.processes[0].stamps = Stamps::of(1);
    let outer = words.threads[1][4];
    for inner in &mut words.threads[1][5..7] {
        *inner = outer & !0xffff_ffff | *inner & 0xffff_ffff;
    }
    words
}

struct Addresses;

impl Names for Addresses {
    fn function(&self, location: Location) -> FunctionName<'_> {
        let name = format!("{}:{:#x}", location.module, location.image_address).into();
        FunctionName { name, full_name: None, module: "program".into(), file: None, line: None }
    }

    fn source(&self, _: &str) -> Option<Cow<'_, str>> {
        None
    }
}

#[test]
fn the_last_nanoseconds_are_those_before_the_last_event() {
    let trace = Trace::open(words()).unwrap();
    let source = TraceSource::new(&trace, None);
    assert_eq!((source.last_event_ns(), source.end_ns()), (4_500, 5_000));
    for (last_ns, slices) in [(100, 1), (2_000, 2), (4_100, 3)] {
        let filter = Filter { last_ns: Some(last_ns), ..Filter::default() };
        let mut bytes = Vec::new();
        let summary = replay(&source, &Addresses, &filter, ReplayStyle::default(), &mut bytes).unwrap();
        assert_eq!(summary.slices, slices, "{last_ns}: {}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_recording_is_shown_main_thread_first() {
    let trace = Trace::open(words()).unwrap();
    let source = TraceSource::new(&trace, None);
    assert_eq!(source.processes()[0].name, "pro\u{fffd}gram");
    assert_eq!(source.origin_realtime_ns(), Some(3_000_000_000));
    assert_eq!(source.end_ns(), 5_000);
    let mut bytes = Vec::new();
    let summary =
        replay(&source, &Addresses, &Filter::default(), ReplayStyle::default(), &mut bytes).unwrap();
    assert_eq!((summary.slices, summary.threads), (3, 2));
    let expected = "\
== thread 50 main ==

0.000500 ms  0:0x1100 {
0.000550 ms    0:0x1200  200 ns
0.004500 ms  } 4.00 us

== thread 51 worker of process 50 ==

0.001000 ms  0:0x1100  2.00 us
";
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
}

#[test]
fn the_same_calls_reach_every_export() {
    let trace = Trace::open(words()).unwrap();
    for format in Format::ALL {
        let source = TraceSource::new(&trace, Some(&|entry, exit| Some(entry == exit)));
        let summary =
            export(format, &source, &Addresses, &Filter::default(), &mut |_| {}, &mut std::io::sink())
                .unwrap();
        assert_eq!((summary.slices, summary.threads, summary.lost_events), (3, 2, 0));
    }
}

#[test]
fn durations_with_bounds_reach_every_export() {
    let trace = Trace::open(unstamped()).unwrap();
    let source = TraceSource::new(&trace, None);
    let written = |format| {
        let mut bytes = Vec::new();
        let summary =
            export(format, &source, &Addresses, &Filter::default(), &mut |_| {}, &mut bytes).unwrap();
        assert_eq!((summary.slices, summary.bounded_calls), (3, 1), "{format:?}");
        bytes
    };
    let text = |format| String::from_utf8(written(format)).unwrap();
    let mut bytes = Vec::new();
    replay(&source, &Addresses, &Filter::default(), ReplayStyle::default(), &mut bytes).unwrap();
    let expected = "\
== thread 50 main ==

0.000500 ms  0:0x1100 {
0.000750 ms    0:0x1200  250 ns \u{b1}3.75 us
0.004500 ms  } 4.00 us

== thread 51 worker of process 50 ==

0.001000 ms  0:0x1100  2.00 us
";
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    let expected = "\
kind,pid,tid,thread,depth,start_ns,duration_ns,function,module,file,line,value,remarks,duration_low,duration_high
call,50,50,main,1,750,250,0:0x1200,program,,,,,0,4000
call,50,50,main,0,500,4000,0:0x1100,program,,,,,4000,4000
call,50,51,worker,0,1000,2000,0:0x1100,program,,,,,2000,2000
";
    assert_eq!(text(Format::Csv), expected);
    let lines = text(Format::Jsonl);
    assert_eq!(lines.matches("\"dur_ns\":250,\"dur_low_ns\":0,\"dur_high_ns\":4000,").count(), 1, "{lines}");
    assert_eq!(lines.matches("_low_ns").count(), 1, "{lines}");
    for format in [Format::Chrome, Format::Vizviewer] {
        let json = text(format);
        let both = "\"args\":{\"dur_low_ns\":0,\"dur_high_ns\":4000}";
        assert_eq!((json.matches(both).count(), json.matches("_low_ns").count()), (1, 1), "{json}");
    }
    let count = |bytes: &[u8], name: &str| {
        bytes.windows(name.len()).filter(|window| *window == name.as_bytes()).count()
    };
    let perfetto = written(Format::Perfetto);
    assert_eq!([count(&perfetto, "dur_low_ns"), count(&perfetto, "dur_high_ns")], [1, 1]);
    assert!(count(&written(Format::Parquet), "duration_low_ns") > 0);
    for format in Format::ALL {
        written(format);
    }
    // Where all events have times, nothing of this appears.
    let exact = Trace::open(words()).unwrap();
    let exact = TraceSource::new(&exact, None);
    for format in Format::ALL {
        let mut bytes = Vec::new();
        export(format, &exact, &Addresses, &Filter::default(), &mut |_| {}, &mut bytes).unwrap();
        assert_eq!([count(&bytes, "_low"), count(&bytes, "_high")], [0, 0], "{format:?}");
    }
}

/// The words where the main thread's calls have arguments and results, and one that no longer has
/// its call.
fn with_values() -> Words {
    let text = |text: &[u8]| {
        let header = [text.len() as u8, 0, 0, 0, text.len() as u8, 0, 0, 0];
        [&[0][..], &header, text].concat()
    };
    let integer = |name: &str| Item {
        name: name.into(),
        content: Content::Fixed(Shape::Integer { size: 4, is_signed: true }),
    };
    let path = Item { name: "path".into(), content: Content::Text };
    let arguments = Layout { items: vec![path, integer("len")] }.to_bytes();
    let result = Layout { items: vec![integer("returned")] }.to_bytes();
    let (arguments_id, result_id) = (Layout::id_of(&arguments), Layout::id_of(&result));
    let values = |ticks: u64, what: u8, id: u32, capture: &[u8]| {
        let payloads = [id, capture.len() as u32];
        let words = capture.chunks(4).map(|four| {
            let mut word = [0; 4];
            word[..four.len()].copy_from_slice(four);
            u32::from_le_bytes(word)
        });
        let payloads: Vec<u32> = payloads.into_iter().chain(words).collect();
        let first = record_word(HIGH + ticks, kind::VALUES, payloads.len() as u8, what);
        let rest = payloads.iter().zip(1..);
        let rest = rest.map(|(payload, index)| payload_word(*payload, kind::VALUES, index));
        [first].into_iter().chain(rest).collect::<Vec<u64>>()
    };
    let called = |ticks, path: &[u8], length: i32| {
        let capture = [&text(path)[..], &[0], &length.to_le_bytes()].concat();
        values(ticks, values::ARGUMENTS, arguments_id, &capture)
    };
    let returned = |ticks, value: i32| {
        values(ticks, values::RESULT, result_id, &[&[0][..], &value.to_le_bytes()].concat())
    };
    let mut words = words();
    let main = &words.threads[1];
    let (head, calls) = (main[..4].to_vec(), main[4..].to_vec());
    words.threads[1] = [
        head,
        called(1_000, b"/</script>", 42),
        calls[..1].to_vec(),
        // The call that these belonged to was dropped.
        called(1_050, b"gone", 1),
        called(1_100, b"in\x1bner", -7),
        calls[1..2].to_vec(),
        returned(1_500, -1),
        calls[2..3].to_vec(),
        returned(9_001, 0),
        calls[3..].to_vec(),
    ]
    .concat();
    words.recording.layouts = vec![
        CaptureLayout { id: arguments_id, bytes: arguments },
        CaptureLayout { id: result_id, bytes: result },
    ];
    words
}

#[test]
fn values_stand_with_their_calls() {
    let trace = Trace::open(with_values()).unwrap();
    let source = TraceSource::new(&trace, None);
    let mut bytes = Vec::new();
    replay(&source, &Addresses, &Filter::default(), ReplayStyle::default(), &mut bytes).unwrap();
    let expected = r#"== thread 50 main ==

0.000500 ms  0:0x1100(path="/</script>", len=42) {
0.000550 ms    0:0x1200(path="in\u{1b}ner", len=-7) = -1  200 ns
0.004500 ms  } = 0 4.00 us

== thread 51 worker of process 50 ==

0.001000 ms  0:0x1100  2.00 us
"#;
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    let written = |format| {
        let mut bytes = Vec::new();
        export(format, &source, &Addresses, &Filter::default(), &mut |_| {}, &mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let lines = written(Format::Jsonl);
    let inner = lines.lines().find(|line| line.contains("0x1200")).unwrap();
    assert!(inner.contains(r#""arguments":{"path":"in\u001bner","len":-7},"result":-1"#), "{inner}");
    let chrome = written(Format::Chrome);
    assert!(!chrome.contains("</script"), "{chrome}");
    let parsed: serde_json::Value = serde_json::from_str(&chrome).unwrap();
    let slices = parsed["traceEvents"].as_array().unwrap();
    let outer = slices.iter().find(|slice| slice["args"]["result"] == 0).unwrap();
    assert_eq!(outer["args"]["arguments"], serde_json::json!({ "path": "/</script>", "len": 42 }));
    let csv = written(Format::Csv);
    assert!(csv.lines().next().unwrap().ends_with(",remarks,arguments,result"), "{csv}");
    assert!(csv.contains(r#""{""path"":""in\u001bner"",""len"":-7}",-1"#), "{csv}");
    let columns = csv.lines().next().unwrap().split(',').count();
    let worker = csv.lines().find(|line| line.contains("worker")).unwrap();
    assert_eq!(worker.split(',').count(), columns, "{worker}");
    // Conditions on values choose calls with all that they call.
    let shown = |holds: fn(&[(String, Value)]) -> bool| {
        let filter = Filter { values: Some(ValueCondition::new(holds)), ..Filter::default() };
        replay(&source, &Addresses, &filter, ReplayStyle::default(), &mut std::io::sink()).unwrap().slices
    };
    let is = |values: &[(String, Value)], name: &str, number| {
        values.iter().any(|(known, value)| known == name && *value == Value::Integer(number))
    };
    assert_eq!(shown(|values| values.iter().any(|(_, value)| *value == Value::Integer(42))), 2);
    assert_eq!(shown(|values| values.len() == 3 && values[2].1 == Value::Integer(-1)), 1);
    assert_eq!(shown(|_| false), 0);
    assert!(is(&source.values(ValuesNumber::of_index(0).unwrap()), "len", 42));
    // Without times of their own, the order stays.
    let mut unstamped = with_values();
    unstamped.recording.processes[0].stamps = Stamps::of(1);
    let trace = Trace::open(unstamped).unwrap();
    let source = TraceSource::new(&trace, None);
    let mut bytes = Vec::new();
    replay(&source, &Addresses, &Filter::default(), ReplayStyle::default(), &mut bytes).unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
}
