//! Imports of traces that other tools wrote, against what these tools themselves say of them; and
//! small ones of each kind of event.

mod intel_pt;

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use everycall_analysis::{NameOptions, SymbolNames, TraceView, open};
use everycall_export::Source as _;
use everycall_import::{
    Folder, Format, ImportError, ImportOptions, MemoryFolder, detect, import, import_bytes, import_folder,
};
use everycall_timeline::{EndKind, MarkKind, TimelineEvent, Trace};

/// An entry, or what else happened.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    tid: u32,
    depth: u32,
    name: String,
    start_ns: u64,
    /// `None` where it isn't known.
    end_ns: Option<u64>,
}

/// The contents of an imported trace.
#[derive(Debug, Default)]
struct Shown {
    calls: Vec<Line>,
    /// Between which times each call began.
    begins: Vec<(u64, u64)>,
    /// Marks: thread, kind and name, time.
    marks: Vec<(u32, String, u64)>,
    /// Lengths of spans in nanoseconds, in the order of their begins; `None` without an end.
    spans: Vec<Option<u64>>,
    /// Losses: thread and count.
    losses: Vec<(u32, Option<u64>)>,
    orphans: usize,
    unwound: usize,
    notes: Vec<String>,
    processes: Vec<(u32, String)>,
    threads: Vec<(u32, String)>,
    warnings: Vec<String>,
}

impl Shown {
    fn of(bytes: &[u8]) -> Shown {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let opened = open(file.path()).unwrap();
        let trace = Trace::open(&opened.file).unwrap();
        let names = SymbolNames::new(&opened.file, &trace, NameOptions::default());
        let view = TraceView::new(&trace, &names);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut shown = Shown {
            notes: trace.meta().import_notes.iter().map(|note| text(note)).collect(),
            processes: trace.processes().iter().map(|process| (process.pid, text(&process.name))).collect(),
            threads: trace.threads().iter().map(|thread| (thread.tid, thread.name.clone())).collect(),
            ..Shown::default()
        };
        for thread in trace.threads() {
            let mut open = Vec::new();
            let mut begun = BTreeMap::new();
            let mut unstamped = None;
            for event in view.timeline(thread.index) {
                match event {
                    TimelineEvent::Unstamped(between) => unstamped = Some(between),
                    TimelineEvent::Begin(begin) => {
                        let at = begin.start_ns;
                        let between = unstamped.take().filter(|between| between.at_ns == at);
                        shown
                            .begins
                            .push(between.map_or((at, at), |between| (between.from_ns, between.until_ns)));
                        let name = names.name(begin.location).name.into_owned();
                        let (tid, depth, start_ns) = (thread.tid, begin.depth, begin.start_ns);
                        open.push(shown.calls.len());
                        shown.calls.push(Line { tid, depth, name, start_ns, end_ns: None });
                    }
                    TimelineEvent::End(end) => {
                        let call = open.pop().unwrap();
                        shown.unwound +=
                            usize::from(matches!(end.how, EndKind::Unwound | EndKind::UnwoundLate));
                        let is_known = matches!(end.how, EndKind::Returned | EndKind::Jumped);
                        shown.calls[call].end_ns = is_known.then_some(end.end_ns);
                    }
                    TimelineEvent::Mark(mark) => {
                        match mark.kind {
                            MarkKind::SpanBegin { span, .. } => {
                                begun.insert(span, (shown.spans.len(), mark.at_ns));
                                shown.spans.push(None);
                            }
                            MarkKind::SpanEnd { span, .. } => {
                                let (place, at_ns) = begun[&span];
                                shown.spans[place] = Some(mark.at_ns - at_ns);
                            }
                            _ => {}
                        }
                        let kind = match mark.kind {
                            MarkKind::SpanBegin { .. } => "span begin".to_owned(),
                            MarkKind::SpanEnd { .. } => "span end".to_owned(),
                            MarkKind::Counter => format!("counter {}", mark.value.unwrap().cast_signed()),
                            MarkKind::CounterReal => {
                                format!("counter {}", f64::from_bits(mark.value.unwrap()))
                            }
                            other => format!("{other:?}").to_lowercase(),
                        };
                        let name = view.mark_name(mark.name);
                        shown.marks.push((thread.tid, format!("{kind} {name}"), mark.at_ns));
                    }
                    TimelineEvent::Loss(loss) => shown.losses.push((thread.tid, loss.count)),
                    TimelineEvent::Instant(_) => shown.orphans += 1,
                    _ => {}
                }
            }
        }
        shown.warnings = trace.warnings().iter().map(ToString::to_string).collect();
        shown.warnings.extend(names.warnings().iter().map(ToString::to_string));
        shown
    }

    /// Numbers of calls by function.
    fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        self.calls.iter().for_each(|call| *counts.entry(&*call.name).or_default() += 1);
        counts
    }

    /// The calls as a tree.
    fn tree(&self) -> String {
        let line = |call: &Line| {
            let end = call.end_ns.map_or("?".to_owned(), |end| end.to_string());
            format!("{}{} {}..{end}\n", "  ".repeat(call.depth as usize), call.name, call.start_ns)
        };
        self.calls.iter().map(line).collect()
    }
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn kept(name: &str) -> Shown {
    let path = data(name);
    let format = detect(&path).unwrap();
    let options = ImportOptions { name: name.to_owned(), ..ImportOptions::default() };
    let mut bytes = Vec::new();
    import(&path, format, &options, &mut bytes, "test").unwrap();
    Shown::of(&bytes)
}

fn imported(format: Format, bytes: &[u8]) -> Result<Shown, ImportError> {
    let mut trace = Vec::new();
    let options = ImportOptions { name: "input".to_owned(), ..ImportOptions::default() };
    import_bytes(Cursor::new(bytes), format, &options, &mut trace, "test")?;
    Ok(Shown::of(&trace))
}

fn json(text: &str) -> Shown {
    imported(Format::Chrome, text.as_bytes()).unwrap()
}

/// The name without parameters and template arguments, as uftrace shows it.
fn simple(name: &str) -> String {
    let mut depth = 0;
    let mut simple = String::new();
    for character in name.chars() {
        match character {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if depth == 0 => break,
            _ if depth == 0 => simple.push(character),
            _ => {}
        }
    }
    simple
}

/// `uftrace replay` shows the same calls, in the same order and nesting, in each thread.
#[test]
fn uftrace_folder_as_uftrace_shows_it() {
    let shown = kept("uftrace.data");
    let expected = std::fs::read_to_string(data("uftrace.expected")).unwrap();
    let mut wanted: BTreeMap<u32, Vec<(u32, String)>> = BTreeMap::new();
    for line in expected.lines() {
        let Some((tid, rest)) = line.trim_start().trim_start_matches('[').split_once("] | ") else {
            continue;
        };
        let depth = (rest.len() - rest.trim_start().len()) / 2;
        let rest = rest.trim_start();
        if rest.starts_with('}') || rest.starts_with("/*") {
            continue;
        }
        let name = rest.trim_end_matches([' ', '{', ';']).trim_end_matches("()");
        wanted.entry(tid.trim().parse().unwrap()).or_default().push((depth as u32, name.to_owned()));
    }
    let mut found: BTreeMap<u32, Vec<(u32, String)>> = BTreeMap::new();
    for call in &shown.calls {
        found.entry(call.tid).or_default().push((call.depth, simple(&call.name)));
    }
    assert_eq!(found, wanted);
    assert!(shown.calls.len() > 80 && shown.calls.iter().all(|call| call.end_ns.is_some()));
    assert_eq!((shown.orphans, shown.unwound, shown.losses.len()), (0, 0, 0));
    // As uftrace's report has it: 2.283 ms.
    let main = shown.calls.iter().find(|call| call.name == "main").unwrap();
    assert_eq!((main.end_ns.unwrap() - main.start_ns) / 1000, 2283);
    assert_eq!(shown.processes, [(3562, "prog-pg".to_owned())]);
}

/// Each record of the log as `llvm-xray convert` reads it, with its time, in each thread.
#[test]
fn xray_logs_as_llvm_xray_reads_them() {
    for log in ["basic19", "basic22", "fdr19", "fdr22"] {
        let shown = kept(&format!("xray-{log}.log"));
        let expected = std::fs::read_to_string(data(&format!("xray-{log}.expected"))).unwrap();
        let mut records: Vec<(u32, u64, String, String)> = Vec::new();
        for line in expected.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [tid, function, kind, ticks] = fields[..] else { panic!("{line}") };
            records.push((
                tid.parse().unwrap(),
                ticks.parse().unwrap(),
                kind.to_owned(),
                function.to_owned(),
            ));
        }
        // The clock of these logs has nanoseconds.
        let origin = records.iter().map(|record| record.1).min().unwrap();
        let entries = |kind: &str| {
            let mut entries: Vec<(u32, u64, String)> = records
                .iter()
                .filter(|record| record.2 == kind)
                .map(|(tid, ticks, _, function)| (*tid, ticks - origin, format!("function {function}")))
                .collect();
            entries.sort();
            entries
        };
        let mut found: Vec<_> =
            shown.calls.iter().map(|call| (call.tid, call.start_ns, call.name.clone())).collect();
        found.sort();
        assert_eq!(found, entries("enter"), "{log}");
        let ends = shown.calls.iter().filter_map(|call| Some((call.tid, call.end_ns?, call.name.clone())));
        let mut ends: Vec<_> = ends.collect();
        ends.sort();
        let exits = entries("exit");
        // Calls that were open at the log's end, and exits whose entries came before it began.
        assert_eq!(ends.len() + shown.orphans, exits.len(), "{log}");
        assert!(ends.iter().all(|end| exits.contains(end)), "{log}");
        let events = records.iter().filter(|record| record.2 == "custom-event").count();
        let instants = shown.marks.iter().filter(|mark| mark.1 == "instant half way").count();
        assert_eq!(instants, events, "{log}");
        assert!(shown.notes.iter().any(|note| note.contains("--binary")), "{:?}", shown.notes);
        assert_eq!(shown.threads.len(), 3);
    }
}

/// A log and llvm-xray's JSON of it have one tree.
#[test]
fn llvm_xrays_json_has_the_tree_of_its_log() {
    let (log, json) = (kept("xray-basic19.log"), kept("llvm-xray.json"));
    let tree = |shown: &Shown| {
        let mut calls: Vec<_> = shown.calls.iter().map(|call| (call.tid, call.depth)).collect();
        // The log has the threads in another order.
        calls.sort_by_key(|(tid, _)| *tid);
        calls
    };
    assert_eq!(tree(&log), tree(&json));
    let counts = json.counts();
    assert_eq!((counts["fib(int)"], counts["leaf(int)"], counts["main"]), (33, 28, 1));
    assert_eq!(json.processes[0].0, log.processes[0].0);
}

/// The program's known calls, by the addresses that `nm` has.
#[test]
fn funtrace_snapshot_has_the_programs_calls() {
    let shown = kept("funtrace.raw");
    let text = std::fs::read_to_string(data("funtrace.functions")).unwrap();
    let functions: Vec<(u64, u64, String)> = text
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.splitn(3, ' ').collect();
            let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
            (number(fields[0]), number(fields[1]), fields[2].to_owned())
        })
        .collect();
    // Names are those of the module and the address: the program's file isn't there.
    let function = |name: &str| {
        let address = u64::from_str_radix(name.rsplit_once("+0x")?.1, 16).ok()?;
        functions.iter().find(|(from, to, _)| (*from..*to).contains(&address)).map(|(.., name)| name.as_str())
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for call in &shown.calls {
        if let Some(name) = function(&call.name) {
            *counts.entry(name).or_default() += 1;
        }
    }
    let wanted = [
        ("app::Work::run(int)", 3),
        ("fib(int)", 33),
        ("leaf(int)", 28),
        ("main", 1),
        ("thread_main(int)", 2),
    ];
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), wanted);
    // In both threads, `run` and `fib(4)` are called by `thread_main`.
    let inside: Vec<_> =
        shown.calls.iter().skip_while(|call| function(&call.name) != Some("thread_main(int)")).collect();
    assert_eq!(function(&inside[1].name), Some("app::Work::run(int)"));
    assert_eq!(inside[1].depth, inside[0].depth + 1);
    assert_eq!(shown.losses, [], "no ring is full");
    assert!(shown.threads.iter().all(|(_, name)| name.starts_with("ftprog-pg-g++")), "{:?}", shown.threads);
}

#[test]
fn slices_of_chrome_json_become_calls() {
    let shown = json(
        r#"[{"ph":"M","name":"process_name","pid":1,"args":{"name":"app"}},
            {"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"w\u00f6rker"}},
            {"ph":"X","name":"inner \"x\"","pid":1,"tid":2,"ts":1.001,"dur":0.5},
            {"ph":"X","name":"outer","pid":1,"tid":2,"ts":1,"dur":10},
            {"ph":"B","name":"begun","pid":1,"tid":2,"ts":12.25}, {"ph":"E","pid":1,"tid":2,"ts":13},
            {"ph":"B","name":"open","pid":1,"tid":"main","ts":2}"#,
    );
    assert_eq!(
        shown.tree(),
        "outer 0..10000\n  inner \"x\" 1..501\nbegun 11250..12000\nopen 1000..?\n",
        "an array without its end is allowed"
    );
    assert_eq!(shown.notes, Vec::<String>::new());
    assert_eq!(shown.processes, [(1, "app".to_owned())]);
    assert_eq!(shown.threads, [(2, "wörker".to_owned()), (1 << 23, "main".to_owned())]);
    assert_eq!(shown.warnings, Vec::<String>::new(), "names without files need no advice");
}

#[test]
fn other_events_of_chrome_json() {
    let shown = json(
        r#"{"traceEvents":[
            {"ph":"i","name":"moment","pid":1,"tid":1,"ts":5,"s":"g"},
            {"ph":"C","name":"memory","pid":1,"tid":1,"ts":6,"args":{"used":17,"free":2.5}},
            {"ph":"b","name":"request","cat":"c","id":"0x1f","pid":1,"tid":1,"ts":7},
            {"ph":"e","name":"request","cat":"c","id":"0x1f","pid":1,"tid":1,"ts":9},
            {"ph":"s","name":"flow","id":1,"pid":1,"tid":1,"ts":9},
            {"ph":"E","pid":1,"tid":1,"ts":10}, {"ph":"E","name":"early","pid":1,"tid":1,"ts":10},
            {"ph":"X","name":"timeless","pid":1,"tid":1}, {}, {"ph":"X","name":"endless","pid":1,"tid":1,"ts":10},
            {"ph":"C","name":"queue","id":3,"pid":1,"tid":1,"ts":11,"args":{"value":"7"}},
            {"ph":"C","name":"queue","id":"b","pid":1,"tid":1,"ts":12,"args":{"queue":8}}],
            "viztracer_metadata":{"overflow":true},"otherData":{"x":[{}]}}"#,
    );
    let marks: Vec<_> = shown.marks.iter().map(|mark| (mark.1.as_str(), mark.2)).collect();
    assert_eq!(
        marks,
        [
            ("instant moment", 0),
            ("counter 17 memory used", 1000),
            ("counter 2.5 memory free", 1000),
            ("span begin request", 2000),
            ("span end request", 4000),
            ("counter 7 queue[3]", 6000),
            ("counter 8 queue[b]", 7000),
        ]
    );
    assert_eq!(shown.orphans, 1, "an end with a name and without a begin");
    let notes = shown.notes.join("\n");
    for part in [
        "buffer was too small",
        "1 of `s`",
        "1 events without a time",
        "1 events without a kind",
        "1 complete events (`X`) without a duration",
        "1 ends of slices have no begin",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

/// Calls and notes of a thread's begins and ends: phase, time in microseconds, name, category.
fn slices(events: &[(&str, u64, &str, &str)]) -> (String, Vec<String>) {
    let text = |(ph, ts, name, cat): &(&str, u64, &str, &str)| {
        let name = if name.is_empty() { String::new() } else { format!(r#","name":"{name}""#) };
        let cat = if cat.is_empty() { String::new() } else { format!(r#","cat":"{cat}""#) };
        let duration = ph.strip_prefix('X').filter(|length| !length.is_empty());
        let duration = duration.map(|length| format!(r#","dur":{length}"#)).unwrap_or_default();
        format!(r#"{{"ph":"{ph}","pid":1,"tid":1,"ts":{ts}{name}{cat}{duration}}}"#)
    };
    let events: Vec<String> = events.iter().map(text).collect();
    let shown = json(&format!("[{}]", events.join(",")));
    (shown.tree(), shown.notes)
}

/// At one time, the names say which slice ends, in whatever order the events stand.
#[test]
fn begins_and_ends_at_one_time() {
    let chain = "a 0..10000\nb 10000..20000\nc 20000..30000\n";
    let moved = |count| {
        vec![format!(
            "{count} events stand before the end of an earlier slice at the same time, and are shown after it"
        )]
    };
    let ends_first = [
        ("B", 0, "a", ""),
        ("E", 10, "a", ""),
        ("B", 10, "b", ""),
        ("E", 20, "b", ""),
        ("B", 20, "c", ""),
        ("E", 30, "c", ""),
    ];
    assert_eq!(slices(&ends_first), (chain.to_owned(), vec![]));
    let begins_first = [
        ("B", 0, "a", ""),
        ("B", 10, "b", ""),
        ("E", 10, "a", ""),
        ("B", 20, "c", ""),
        ("E", 20, "b", ""),
        ("E", 30, "c", ""),
    ];
    assert_eq!(slices(&begins_first), (chain.to_owned(), moved(2)));
    // Two levels end, the outer one first; two begin; and a short one is inside what begins.
    let levels = [
        ("B", 0, "a", ""),
        ("B", 1, "b", ""),
        ("B", 10, "c", ""),
        ("B", 10, "d", ""),
        ("E", 10, "d", ""),
        ("E", 10, "a", ""),
        ("E", 10, "b", ""),
        ("E", 20, "c", ""),
    ];
    let tree = "a 0..10000\n  b 1000..10000\nc 10000..20000\n  d 10000..10000\n";
    assert_eq!(slices(&levels), (tree.to_owned(), moved(3)));
    // Slices that fit as they are stay so: short ones inside others, of one name too.
    let nested = [
        ("B", 0, "a", ""),
        ("B", 5, "a", ""),
        ("E", 5, "a", ""),
        ("B", 5, "b", ""),
        ("B", 5, "c", ""),
        ("E", 5, "c", ""),
        ("E", 9, "b", ""),
        ("E", 9, "a", ""),
    ];
    let tree = "a 0..9000\n  a 5000..5000\n  b 5000..9000\n    c 5000..5000\n";
    assert_eq!(slices(&nested), (tree.to_owned(), vec![]));
    // Without names, the innermost one ends.
    let nameless = [("B", 0, "a", ""), ("B", 10, "b", ""), ("E", 10, "", ""), ("E", 20, "", "")];
    assert_eq!(slices(&nameless), ("a 0..20000\n  b 10000..10000\n".to_owned(), vec![]));
}

/// As in Perfetto: an end is for the innermost open slice of its name and category, and for the
/// innermost one where it has none; one for no open slice is left out.
#[test]
fn ends_of_other_names_than_the_begins() {
    let left_out = "1 ends of slices have a name or category that no open slice has, and were left out";
    let shortened =
        "1 slices are shown only up to the end of the slice around them, which came before theirs";
    for (events, tree, notes) in [
        // Not the innermost one: what is inside ends with it, and its own end counts no second time.
        (
            &[("B", 0, "a", ""), ("B", 2, "b", ""), ("E", 5, "a", ""), ("E", 9, "b", "")][..],
            "a 0..5000\n  b 2000..5000\n",
            vec![shortened],
        ),
        (&[("B", 0, "a", ""), ("E", 5, "other", ""), ("E", 9, "a", "")], "a 0..9000\n", vec![left_out]),
        (&[("B", 0, "a", "x"), ("E", 5, "a", "y"), ("E", 9, "a", "x")], "a 0..9000\n", vec![left_out]),
        (&[("B", 0, "a", ""), ("E", 5, "a", "y"), ("E", 9, "a", "")], "a 0..9000\n", vec![left_out]),
        (
            &[("B", 0, "a", "x"), ("E", 5, "a", ""), ("B", 6, "b", "x"), ("E", 9, "", "x")],
            "a 0..5000\nb 6000..9000\n",
            vec![],
        ),
        (
            &[("B", 0, "a", "x"), ("B", 2, "a", "y"), ("E", 5, "a", "y"), ("E", 9, "a", "x")],
            "a 0..9000\n  a 2000..5000\n",
            vec![],
        ),
        // A slice that begins in a complete one ends with it at the latest; its end may come at
        // that time, too.
        (
            &[("X10", 0, "a", ""), ("B", 5, "b", ""), ("E", 15, "b", "")],
            "a 0..10000\n  b 5000..10000\n",
            vec![shortened],
        ),
        (
            &[("X10", 0, "a", ""), ("B", 5, "b", ""), ("E", 10, "b", "")],
            "a 0..10000\n  b 5000..10000\n",
            vec![],
        ),
        // A complete slice in a begun one in a complete one.
        (
            &[("X10", 0, "a", ""), ("B", 2, "b", ""), ("X10", 4, "c", ""), ("E", 9, "b", "")],
            "a 0..10000\n  b 2000..9000\n",
            vec!["1 slices overlap others of their thread without being inside them, and are shown as spans"],
        ),
    ] {
        assert_eq!(
            slices(events),
            (tree.to_owned(), notes.into_iter().map(str::to_owned).collect()),
            "{events:?}"
        );
    }
    // Events without a thread are of the one with the process's number.
    let shown = json(
        r#"[{"ph":"X","name":"child","ts":1,"dur":5,"pid":1},{"ph":"X","name":"parent","ts":1,"dur":10,"pid":1,"tid":1}]"#,
    );
    assert_eq!(shown.tree(), "parent 0..10000\n  child 0..5000\n");
}

/// Asynchronous operations are paired by category and id, local ones by the process as well, `S`
/// and `F` by name and id. They are spans of the thread on which they began.
#[test]
fn asynchronous_operations() {
    let spans = |text: &str| {
        let shown = json(&format!("[{text}]"));
        let marks: Vec<String> =
            shown.marks.iter().map(|(tid, what, at)| format!("{tid} {what} {}", at / 1000)).collect();
        (marks.join(", "), shown.notes)
    };
    let event = |ph: &str, pid: u32, tid: u32, ts: u64, more: &str| {
        format!(r#"{{"ph":"{ph}","pid":{pid},"tid":{tid},"ts":{ts},{more}}}"#)
    };
    let check = |events: &[String], expected: &str| assert_eq!(spans(&events.join(",")).0, expected);
    // Another thread's end, without a name, before the begin in the file.
    let (named, nameless) = (r#""cat":"net","id":"0x1","name":"req""#, r#""cat":"net","id":"0x1""#);
    check(
        &[event("e", 1, 2, 10, nameless), event("b", 1, 1, 0, named)],
        "1 span begin req 0, 1 span end req 10",
    );
    // Other categories, ids, scopes and processes of local ids are other operations.
    for (first, second) in [
        (r#""cat":"x","id":1"#, r#""cat":"y","id":1"#),
        (r#""cat":"x","id":"18446744073709551615""#, r#""cat":"x","id":"18446744073709551614""#),
        (r#""cat":"x","id":"a\"b""#, r#""cat":"x","id":"a\"c""#),
        (r#""cat":"x","id":"1","scope":"s""#, r#""cat":"x","id":"1","scope":"t""#),
        (r#""cat":"x","id2":{"local":"1"}"#, r#""cat":"x","id2":{"global":"1"}"#),
    ] {
        let with = |ph, ts, id: &str| event(ph, 1, 1, ts, &format!(r#""name":"n",{id}"#));
        let events = [with("b", 0, first), with("b", 3, second), with("e", 5, first), with("e", 9, second)];
        let (marks, notes) = spans(&events.join(","));
        let times: Vec<&str> = marks.split(", ").collect();
        assert_eq!(times, ["1 span begin n 0", "1 span begin n 3", "1 span end n 5", "1 span end n 9"]);
        assert_eq!(notes, Vec::<String>::new());
        let shown = json(&format!("[{}]", events.join(",")));
        assert_eq!(shown.spans, [Some(5000), Some(6000)], "{first} and {second} are two operations");
    }
    let local = |ph, pid, ts| event(ph, pid, pid, ts, r#""cat":"x","name":"n","id2":{"local":"0x7"}"#);
    check(
        &[local("b", 1, 0), local("b", 2, 1), local("e", 2, 2), local("e", 1, 3)],
        "1 span begin n 0, 1 span end n 3, 2 span begin n 1, 2 span end n 2",
    );
    // Nested ones of one id, by their names.
    let nested = |ph, ts, name| event(ph, 1, 1, ts, &format!(r#""cat":"x","id":1,"name":"{name}""#));
    check(
        &[
            nested("b", 0, "a"),
            nested("b", 1, "b"),
            nested("n", 2, "c"),
            nested("e", 3, "b"),
            nested("e", 4, "a"),
        ],
        "1 span begin a 0, 1 span begin b 1, 1 instant c 2, 1 span end b 3, 1 span end a 4",
    );
    // Halves, and a begin at an end's time.
    check(
        &[nested("e", 1, "a"), nested("b", 2, "a")],
        "1 orphanspanend a 0, 1 span begin a 1, 1 span end a 1",
    );
    check(&[nested("b", 2, "a"), nested("e", 2, "a")], "1 span begin a 0, 1 span end a 0");
    // The older kind has no nesting.
    let old = |ph, tid, ts, cat| event(ph, 1, tid, ts, &format!(r#""cat":"{cat}","id":1,"name":"o""#));
    let (marks, notes) = spans(
        &[old("S", 1, 0, "x"), old("S", 1, 1, "x"), old("F", 2, 5, "y"), old("F", 2, 6, "x")].join(","),
    );
    assert_eq!(marks, "1 span begin o 0, 1 span end o 5, 2 orphanspanend o 6");
    assert!(notes[0].starts_with("1 asynchronous operations (`S`) began again"), "{notes:?}");
}

/// Slices that aren't nested keep their times: as spans. Those that only rounding lets overlap end
/// with the slice around them.
#[test]
fn overlapping_slices() {
    let shown = json(
        r#"[{"ph":"X","name":"a","pid":1,"tid":1,"ts":0,"dur":10}, {"ph":"X","name":"over","pid":1,"tid":1,"ts":5,"dur":20},
            {"ph":"X","name":"round","pid":1,"tid":1,"ts":8,"dur":3}, {"ph":"X","name":"later","pid":1,"tid":1,"ts":12,"dur":1}]"#,
    );
    assert_eq!(shown.tree(), "a 0..10000\n  round 8000..10000\nlater 12000..13000\n");
    let spans: Vec<_> = shown.marks.iter().map(|mark| (mark.1.as_str(), mark.2)).collect();
    assert_eq!(spans, [("span begin over", 5000), ("span end over", 25_000)]);
    assert!(shown.notes.iter().any(|note| note.starts_with("1 slices overlap")), "{:?}", shown.notes);
    assert!(shown.notes.iter().any(|note| note.starts_with("1 slices end up to 1 us")), "{:?}", shown.notes);
}

#[test]
fn packed_cut_and_damaged_json() {
    let text = br#"{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":-3,"dur":2},{"ph":"X","name":"b","pid":1,"tid":1,"ts":0,"dur":1}]}"#;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(text).unwrap();
    let whole = imported(Format::Chrome, &packed.finish().unwrap()).unwrap();
    assert_eq!(whole.tree(), "a 0..2000\nb 3000..4000\n");
    assert_eq!(whole.notes, ["times begin at -3000 ns in the file"]);
    let cut = imported(Format::Chrome, &text[..text.len() - 20]).unwrap();
    assert_eq!(cut.calls.len(), 1);
    assert!(cut.notes.iter().any(|note| note == "the file's end is missing"), "{:?}", cut.notes);
    let damaged = [&text[..70], b" oops ", &text[70..]].concat();
    let shown = imported(Format::Chrome, &damaged);
    assert!(shown.is_ok() || matches!(shown, Err(ImportError::Damaged { .. })));
    for (text, offset) in [("[1]", 1), ("[{\"ph\"", 1)] {
        match imported(Format::Chrome, text.as_bytes()) {
            Err(ImportError::Damaged { offset: found, .. }) => assert_eq!(found, offset, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    for text in ["{}", "{\"a\":1}"] {
        assert!(
            matches!(imported(Format::Chrome, text.as_bytes()), Err(ImportError::Unknown(Some(_)))),
            "{text}"
        );
    }
}

#[test]
fn branches_and_call_traces_of_perf() {
    let branches = "\
 app 7/8 [001] 10.000000100: 1 branches:uH:  tr strt            0 [unknown] ([unknown]) => 4000 main+0x0 (/bin/app)
 app 7/8 [001] 10.000000200: 1 branches:uH:  call            4010 main+0x10 (/bin/app) => 5000 f(int, a<b>)+0x0 (/bin/app)
 app 7/8 [001] 10.000000250: 1 branches:uH:  jcc             5004 f(int, a<b>)+0x4 (/bin/app) => 5008 f(int, a<b>)+0x8 (/bin/app)
 app 7/8 [001] 10.000000300: 1 branches:uH:  jmp             5010 f(int, a<b>)+0x10 (/bin/app) => 6000 g+0x0 (/lib/l.so)
 app 7/8 [001] 10.000000400: 1 branches:uH:  tr end  syscall 6004 g+0x4 (/lib/l.so) => 0 [unknown] ([unknown])
 app 7/8 [001] 10.000000900: 1 branches:uH:  tr strt            0 [unknown] ([unknown]) => 6006 g+0x6 (/lib/l.so)
 app 7/8 [001] 10.000001000: 1 branches:uH:  return          6008 g+0x8 (/lib/l.so) => 4015 main+0x15 (/bin/app)
 instruction trace error type 1 time 10.000001100 cpu 1 pid 7 tid 8 ip 0x4015 code 7: Overflow packet
 app 7/8 [001] 10.000001200: 1 branches:uH:  tr strt            0 [unknown] ([unknown]) => 4020 main+0x20 (/bin/app)
";
    let shown = imported(Format::Perf, branches.as_bytes()).unwrap();
    assert_eq!(shown.tree(), "main 0..?\n  f(int, a<b>) 100..200\n  g 200..900\nmain 1100..?\n");
    assert_eq!(shown.losses, [(8, None)]);
    assert_eq!(shown.processes, [(7, "app".to_owned())]);
    let calls = "\
 app 8 [001] 10.000000100:  (/bin/app   )  main
 app 8 [001] 10.000000200:  (/bin/app   )      f
 app 8 [001] 10.000000300:  (/bin/app   )          g
 app 8 [001] 10.000000400:  (/bin/app   )      h
";
    let shown = imported(Format::Perf, calls.as_bytes()).unwrap();
    assert_eq!(shown.tree(), "main 0..?\n  f 100..300\n    g 200..300\n  h 300..?\n");
    assert!(
        shown.notes.iter().any(|note| note.contains("doesn't say when calls ended")),
        "{:?}",
        shown.notes
    );
    let returns = "\
 app 8 [001] 10.000000100:  call   (/bin/app   )  main
 app 8 [001] 10.000000200:  call   (/bin/app   )      f
 app 8 [001] 10.000000300:  return (/bin/app   )      f
";
    let shown = imported(Format::Perf, returns.as_bytes()).unwrap();
    assert_eq!(shown.tree(), "main 0..?\n  f 100..200\n");
}

/// A folder of uftrace with records that are made up: time, kind, depth, address.
fn folder(records: &[(u64, u8, u16, u64)]) -> MemoryFolder {
    let data = records.iter().flat_map(|(time, kind, depth, address)| {
        let word = address << 16 | u64::from(*depth) << 6 | 5 << 3 | u64::from(*kind);
        [time.to_le_bytes(), word.to_le_bytes()].concat()
    });
    let mut folder = MemoryFolder::default();
    let mut file = |name: &str, bytes: Vec<u8>| folder.0.insert(name.to_owned(), bytes);
    file("info", b"Ftrace!\0\x04\0\0\0\x28\0\x01\x02".iter().copied().chain([0; 24]).collect());
    file(
        "task.txt",
        b"SESS timestamp=0.000000001 pid=5 sid=ab exename=\"/nowhere/app\"\nTASK timestamp=0.0 tid=5 pid=5\n"
            .to_vec(),
    );
    file("sid-ab.map", b"10000-20000 r-xp 00000000 00:00 0   /nowhere/app\n".to_vec());
    file(
        "app.sym",
        b"# symbols: 3\n# path name: /nowhere/app\n0000000000000100 T f\n0000000000000200 T g\n0000000000000300 ? __sym_end\n".to_vec(),
    );
    file("5.dat", data.collect());
    folder
}

fn shown_folder(folder: &MemoryFolder) -> Shown {
    let mut bytes = Vec::new();
    import_folder(folder, &ImportOptions::default(), &mut bytes, "test").unwrap();
    Shown::of(&bytes)
}

#[test]
fn losses_and_missing_exits_of_uftrace() {
    let (f, g) = (0x1_0100, 0x1_0200);
    // `g` was left by an exception: `f` is entered at its depth.
    let shown =
        shown_folder(&folder(&[(10, 0, 0, f), (20, 0, 1, g), (30, 0, 1, f), (40, 1, 1, f), (50, 1, 0, f)]));
    assert_eq!(shown.tree(), "f 0..40\n  g 10..?\n  f 20..30\n");
    assert_eq!(shown.unwound, 1);
    // Seven records were lost, among them the exit of `g` and the entry of the last `f`.
    let shown =
        shown_folder(&folder(&[(10, 0, 0, f), (20, 0, 1, g), (30, 2, 0, 7), (40, 1, 1, f), (50, 1, 0, f)]));
    assert_eq!(shown.losses, [(5, Some(7))]);
    assert_eq!(shown.tree(), "f 0..?\n  g 10..?\nf 30..40\n  f 30..30\n");
    // An argument follows the entry; the last record is cut.
    let mut with_argument = folder(&[(10, 4, 0, f), (20, 1, 0, f)]);
    let bytes = with_argument.0.get_mut("5.dat").unwrap();
    bytes.splice(16..16, [7; 24]);
    bytes.extend([1, 2, 3]);
    let shown = shown_folder(&with_argument);
    assert_eq!(shown.tree(), "f 0..10\n");
    assert!(shown.notes[0].starts_with("arguments and results of 1 "), "{:?}", shown.notes);
    assert!(shown.notes.iter().any(|note| note.contains("incomplete")), "{:?}", shown.notes);
}

/// A thread of many events, and many threads: segments follow each other.
#[test]
fn long_threads() {
    let mut text = String::from("[");
    for call in 0..60_000_u64 {
        let tid = call % 3;
        text += &format!(
            "{{\"ph\":\"X\",\"name\":\"n{}\",\"pid\":1,\"tid\":{tid},\"ts\":{},\"dur\":5}},\n",
            call % 1500,
            call * 100_000
        );
    }
    let shown = json(&text);
    assert_eq!(shown.calls.len(), 60_000);
    assert!(shown.calls.iter().all(|call| call.end_ns == Some(call.start_ns + 5000) && call.depth == 0));
    assert_eq!(shown.counts()["n7"], 40);
    let last = shown.calls.iter().map(|call| call.start_ns).max();
    assert_eq!(last, Some(59_999 * 100_000_000), "times beyond 32 bits");
    assert_eq!(shown.warnings, Vec::<String>::new());
}

/// Whatever is truncated, what is left is shown or refused.
#[test]
fn cut_at_every_byte() {
    for name in ["xray-basic19.log", "xray-fdr22.log", "funtrace.raw"] {
        let path = data(name);
        let format = detect(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let step = bytes.len() / 400 + 1;
        for end in (0..bytes.len()).step_by(step) {
            let _ = imported(format, &bytes[..end]).map(|shown| shown.calls.len());
        }
    }
}

#[test]
fn formats_are_detected() {
    let format = |name: &str| detect(&data(name)).unwrap();
    assert_eq!(format("uftrace.data"), Format::Uftrace);
    assert_eq!(format("xray-basic22.log"), Format::XrayBasic);
    assert_eq!(format("xray-fdr19.log"), Format::XrayFdr);
    assert_eq!(format("funtrace.raw"), Format::Funtrace);
    assert_eq!(format("llvm-xray.json"), Format::Chrome);
    let folder = MemoryFolder::default();
    assert!(folder.names().unwrap().is_empty());
    assert!(matches!(detect(&data("README.md")), Err(ImportError::Unknown(None))));
}

/// Whatever bytes are changed, what is left is shown or refused.
#[test]
fn changed_bytes() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let mut change = |bytes: &mut Vec<u8>| {
        for _ in 0..=random(6) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = [0, 0xff, b'"', b'\\', b'[', b'-', b' ', 0x80][random(8)],
                1 => bytes[at] ^= 1 << random(8),
                2 => {
                    let end = bytes.len().min(at + 1 + random(40));
                    bytes.drain(at..end);
                }
                _ => {
                    let copy = bytes[at..bytes.len().min(at + 24)].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
            if bytes.is_empty() {
                bytes.push(0);
            }
        }
    };
    for name in ["xray-basic19.log", "xray-fdr22.log", "funtrace.raw", "llvm-xray.json"] {
        let path = data(name);
        let format = detect(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for _ in 0..150 {
            let mut bytes = whole.clone();
            change(&mut bytes);
            let _ = imported(format, &bytes);
        }
    }
    let mut whole = MemoryFolder::default();
    for entry in std::fs::read_dir(data("uftrace.data")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        whole.0.insert(name, std::fs::read(&path).unwrap());
    }
    for _ in 0..200 {
        let mut folder = whole.clone();
        folder.0.values_mut().for_each(&mut change);
        let mut bytes = Vec::new();
        if import_folder(&folder, &ImportOptions::default(), &mut bytes, "test").is_ok() {
            Shown::of(&bytes);
        }
    }
}

/// A file as a device writes it, by its model: C functions, frames by id with names, an exception,
/// lost events, a damaged block.
#[test]
fn a_devices_rings_are_calls() {
    use everycall_trace_device::{DeviceFile, Encoder, Event, MAGIC, Parameters, Place, Thread};

    let parameters = Parameters { block_bytes: 512, ..Parameters::DEVICE };
    let enter = |code, stack| Event::Enter { place: Place::Code(code), stack };
    let id = |id, stack| Event::Enter { place: Place::Id(id), stack };
    let word = |text: &[u8; 8]| Event::Word { value: u64::from_le_bytes(*text) };
    let begin = [
        enter(0x1000, 9000),
        Event::Word { value: 7 },
        word(b"script.m"),
        word(b"ain\0\0\0\0\0"),
        id(7, 8992),
        id(8, 8992),
        Event::LeaveId { stack: 8992 },
        enter(0x2000, 8000),
        enter(0x3000, 7000),
        // An exception has left two calls.
        enter(0x4000, 8000),
        Event::LeaveByJump { stack: 8000 },
        Event::LeaveId { stack: 8992 },
        Event::Leave { stack: 9000 },
        Event::Leave { stack: 9999 },
    ];
    let thread = |tid, events: &[Event]| {
        let mut encoder = Encoder::new(parameters);
        let mut blocks = Vec::new();
        for (event, at) in events.iter().zip(0..) {
            blocks.extend(encoder.put(1000 + at * 40, *event).1.into_iter().flatten());
        }
        blocks.extend(encoder.block());
        Thread { tid, overwritten: 0, blocks }
    };
    let mut damaged: Vec<Event> =
        (0..400).flat_map(|_| [enter(0x5000, 50), Event::Leave { stack: 50 }]).collect();
    damaged.insert(3, Event::Lost { count: 17 });
    let mut damaged = thread(12, &damaged);
    damaged.blocks[512 + 100] = 0xff;
    let file = DeviceFile {
        parameters,
        pid: 10,
        command: b"qemu-x86_64\0./app\0".to_vec(),
        maps: Vec::new(),
        threads: vec![thread(11, &begin), damaged],
        branches: None,
        is_cut: false,
    };
    let mut bytes = Vec::new();
    file.write(&mut bytes).unwrap();
    assert!(bytes.starts_with(MAGIC));
    let shown = Shown::of(&imported_bytes(&bytes).unwrap());
    assert_eq!(shown.processes, [(10, "app".to_owned())]);
    let calls: Vec<_> = shown
        .calls
        .iter()
        .filter(|line| line.tid == 11)
        .map(|line| (line.depth, line.name.trim_start_matches("code outside all modules at ")))
        .collect();
    assert_eq!(
        calls,
        [(0, "0x1000"), (1, "script.main"), (2, "id 8"), (2, "0x2000"), (3, "0x3000"), (2, "0x4000")]
    );
    assert_eq!(shown.unwound, 2);
    assert_eq!(shown.losses[0], (12, Some(17)));
    assert_eq!(shown.losses.len(), 2, "{:?}", shown.losses);
    let notes = shown.notes.join("; ");
    assert!(notes.contains("exits of calls") && notes.contains("the rest of the block"), "{notes}");
    for length in 0..bytes.len() {
        let _: Result<_, _> = imported_bytes(&bytes[..length]);
    }
}

fn imported_bytes(bytes: &[u8]) -> Result<Vec<u8>, ImportError> {
    let mut out = Vec::new();
    let options = ImportOptions::default();
    import_bytes(Cursor::new(bytes), Format::Device, &options, &mut out, "test").map(|_| out)
}
