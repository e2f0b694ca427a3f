//! The server on real connections, and its answers about synthetic traces against what the library
//! says directly.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use everycall_analysis::{Grouping, Key, Order, Profile, SymbolNames, TraceView};
use everycall_export::{Filter, Source as _};
use everycall_reader::TraceFile;
use everycall_synth::{File, Module, Process, Ring, Rng, Thread};
use everycall_timeline::{TimelineEvent, Trace};
use everycall_view::answers::{self, Scope, Sought};
use everycall_view::{Input, Library, STOPPED, Server};
use serde_json::Value;

const START: u64 = 1 << 40;

/// Calls of two threads by chance, some of which don't end, with labels and losses.
fn file(seed: u64, events: u64) -> Vec<u8> {
    let thread = |tid: u32| {
        let mut ring = Ring::new(512, 1 << 12, START);
        let mut rng = Rng::new(seed + u64::from(tid));
        let (mut now, mut open) = (START, Vec::new());
        for _ in 0..events {
            let scale = 1 << rng.below(12);
            now += rng.below(scale);
            if open.is_empty() || open.len() < 30 && rng.one_in(2) {
                let offset = 0x1000 + 64 * rng.below(50) as u32;
                ring.enter(now, offset);
                open.push(offset);
                if rng.one_in(100) {
                    ring.mark(now + 1, 1, "request", Some(rng.below(9)));
                }
            } else if let Some(offset) = open.pop() {
                ring.exit(now, offset + 16);
            }
            if rng.one_in(1000) {
                ring.busy(now, 3);
            }
        }
        Thread { tid, name: format!("thread {tid}"), start_ticks: START, ring }
    };
    let start = 0x40_0000;
    let module = Module {
        base: start - 0x1000,
        start,
        end: start + 0x10_0000,
        code_start: 0x1000,
        ..Module::default()
    };
    let threads = vec![thread(1), thread(2)];
    File::of(&Process { modules: vec![module], threads, ..Process::default() })
}

/// A server that runs until the test's process ends; its address.
fn serve(files: &[Vec<u8>]) -> String {
    let input = |bytes: &Vec<u8>| Input {
        path: "test.ect".to_owned(),
        file: TraceFile::open(bytes.clone()).unwrap(),
        names: Default::default(),
    };
    let library = Library::open(files.iter().map(input).collect()).unwrap();
    let server = Server::bind(0).unwrap();
    let url = server.url();
    std::thread::Builder::new().spawn(move || server.serve(library, false)).unwrap();
    let ask = |url: &str| json(&get(url, "trace"));
    while ask(&url)["complete"] != true {
        std::thread::sleep(Duration::from_millis(5));
    }
    url
}

/// Sends bytes to the server, and returns all that it answers.
fn send(url: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(host(url)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

fn host(url: &str) -> &str {
    url.strip_prefix("http://").unwrap().split('/').next().unwrap()
}

/// The answer to a request of the page.
fn get(url: &str, request: &str) -> Vec<u8> {
    let secret = url.strip_prefix("http://").unwrap().split('/').nth(1).unwrap();
    let host = host(url);
    let head = format!("GET /{secret}/{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    send(url, head.as_bytes())
}

fn body(answer: &[u8]) -> &[u8] {
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    &answer[at + 4..]
}

fn json(answer: &[u8]) -> Value {
    serde_json::from_slice(body(answer)).unwrap()
}

fn status(answer: &[u8]) -> &str {
    str::from_utf8(&answer[9..12]).unwrap()
}

/// Begin, end, depth and count of the slices in an answer for one track.
fn slices(answer: &[u8]) -> Vec<(u64, u64, u16, u32)> {
    let body = body(answer);
    let u32_at = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
    assert_eq!(&body[..4], b"EVS1");
    assert_eq!(u32_at(4), 1);
    let count = u32_at(12) as usize;
    let even = |at: usize| at.next_multiple_of(8);
    let from = even(20);
    let to = from + 8 * count;
    let function = to + 8 * count;
    let counts = even(function + 4 * count);
    let depth = even(counts + 4 * count);
    assert_eq!(even(even(depth + 2 * count) + count), body.len());
    let time = |at: usize| f64::from_le_bytes(body[at..at + 8].try_into().unwrap()) as u64;
    let row = |index: usize| {
        let depth = u16::from_le_bytes(body[depth + 2 * index..][..2].try_into().unwrap());
        (time(from + 8 * index), time(to + 8 * index), depth, u32_at(counts + 4 * index))
    };
    (0..count).map(row).collect()
}

#[test]
fn slices_are_the_calls_of_the_timeline() {
    let bytes = file(1, 40_000);
    let url = serve(std::slice::from_ref(&bytes));
    let trace = Trace::open(TraceFile::open(bytes).unwrap()).unwrap();
    for thread in 0..2 {
        let mut open = Vec::new();
        let mut calls = Vec::new();
        for event in trace.thread_events(thread) {
            match event {
                TimelineEvent::Begin(begin) => open.push(begin),
                TimelineEvent::End(end) => {
                    open.pop();
                    calls.push((end.start_ns, end.end_ns, end.depth as u16));
                }
                _ => {}
            }
        }
        assert!(open.is_empty() && calls.len() > 10_000);
        calls.sort_unstable_by_key(|call| (call.2, call.0, call.1));
        let end = calls.iter().map(|call| call.1).max().unwrap();
        // As wide as a nanosecond: every call as it is. Zero-length ones may share a cell.
        let shown = slices(&get(&url, &format!("slices?tracks={thread}&from=0&to=16384&pixels=16384")));
        let expected: Vec<_> = calls.iter().filter(|call| call.0 <= 16384).collect();
        assert_eq!(shown.iter().map(|call| u64::from(call.3)).sum::<u64>(), expected.len() as u64);
        for (from, to, depth, count) in &shown {
            assert!(*count > 1 || expected.contains(&&(*from, *to, *depth)));
        }
        // From afar: all calls are in some cell, and there are few.
        let far = slices(&get(&url, &format!("slices?tracks={thread}&from=0&to={end}&pixels=100")));
        assert_eq!(far.iter().map(|call| call.3 as usize).sum::<usize>(), calls.len());
        assert!(far.len() < 30 * 400, "{}", far.len());
    }
}

#[test]
fn tables_have_the_numbers_of_reports() {
    let bytes = file(2, 20_000);
    let url = serve(std::slice::from_ref(&bytes));
    let file = TraceFile::open(bytes).unwrap();
    let trace = Trace::open(&file).unwrap();
    let names = SymbolNames::new(&file, &trace, Default::default());
    let view = TraceView::new(&trace, &names);
    let end = view.end_ns();
    for (query, filter) in [
        (String::new(), Filter::default()),
        (
            format!("from={}&to={}&tracks=1", end / 3, end / 2),
            Filter {
                since_ns: Some(end / 3),
                until_ns: Some(end / 2),
                tids: vec![view.threads()[1].tid],
                ..Filter::default()
            },
        ),
    ] {
        let mut profile = Profile::by(Grouping::Function);
        profile.add_trace(&view, &filter);
        let report = json(&get(&url, &format!("report?{query}")));
        assert_eq!(report["calls"], profile.calls);
        let rows = profile.rows_of_all_calls(Order::OwnTime);
        let shown = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), shown.len());
        for (row, shown) in rows.iter().zip(shown) {
            let numbers = [row.sums.calls, row.sums.total_ns, row.sums.own_ns];
            assert_eq!(["calls", "total_ns", "own_ns"].map(|name| shown[name].as_u64().unwrap()), numbers);
        }
        // The outermost calls of the flame graph have all of the time.
        let flame = json(&get(&url, &format!("flame?{query}")));
        let own = |node: &Value| -> u64 {
            let mut waiting = vec![node];
            let mut sum = 0;
            while let Some(node) = waiting.pop() {
                sum += node["own_ns"].as_u64().unwrap();
                waiting.extend(node["children"].as_array().unwrap());
            }
            sum
        };
        let all: u64 = rows.iter().map(|row| row.sums.own_ns).sum();
        let shown = own(&flame["root"]);
        let pruned = flame["pruned_ns"].as_u64().unwrap();
        assert!(shown <= all && shown + pruned >= all, "{shown} + {pruned} of {all}");
    }
    let search = json(&get(&url, "search?q=/./&limit=10"));
    let labels = trace.mark_names().all().iter().map(|named| named.labels).sum::<u64>();
    assert!(labels > 10);
    assert_eq!(search["hits"].as_array().unwrap().len(), 10);
}

#[test]
fn a_call_is_described_as_it_was() {
    let bytes = file(3, 5000);
    let url = serve(&[bytes]);
    let list = json(&get(&url, "text?limit=300&tracks=0"));
    let mut described = 0;
    for row in list["rows"].as_array().unwrap() {
        let number = |name: &str| row[name].as_u64().unwrap();
        let (from, to, depth) = (number("from"), number("to"), number("depth"));
        let call = json(&get(&url, &format!("slice?track=0&at={from}&depth={depth}")));
        if from == to && call["to"].as_u64() != Some(to) {
            // Another one begins when this one, without duration, ends.
            continue;
        }
        assert_eq!(call["from"].as_u64(), Some(from));
        described += 1;
        assert_eq!((&call["to"], &call["function"]), (&row["to"], &row["function"]));
        let children = call["children"].as_array().unwrap();
        let in_children: u64 = children.iter().map(|child| child["total_ns"].as_u64().unwrap()).sum();
        assert_eq!(call["own_ns"].as_u64().unwrap() + in_children, to - from);
        assert_eq!(call["path"].as_array().unwrap().len() as u64, depth + 1);
    }
    assert!(described > 200, "{described}");
    let hit = json(&get(&url, "next?function=0"));
    assert_eq!(hit["index"], 1);
    let last = json(&get(&url, "next?function=0&from=0&track=0&depth=0&dir=previous"));
    assert_eq!(last["index"], last["total"]);
}

#[test]
fn strangers_are_refused() {
    let url = serve(&[file(4, 100)]);
    let secret = url.strip_prefix("http://").unwrap().split('/').nth(1).unwrap();
    assert_eq!(secret.len(), 32);
    let host = host(&url);
    let ask = |line: &str, fields: &str| {
        let answer = send(&url, format!("{line}\r\n{fields}Connection: close\r\n\r\n").as_bytes());
        status(&answer).to_owned()
    };
    let own = format!("Host: {host}\r\n");
    let page = format!("GET /{secret}/trace HTTP/1.1");
    assert_eq!(ask(&page, &own), "200");
    assert_eq!(ask(&page, "Host: evil.example\r\n"), "403");
    assert_eq!(ask(&page, &format!("{own}Origin: http://evil.example\r\n")), "403");
    assert_eq!(ask("GET /trace HTTP/1.1", &own), "404");
    assert_eq!(ask(&page.replace("GET", "POST"), &own), "405");
    assert_eq!(ask("garbage", ""), "400");
    assert_eq!(status(&send(&url, &vec![b'a'; 40_000])), "431");
    for request in [
        "slices?from=x",
        "slices?tracks=99",
        "slice?track=0",
        "functions?from=a",
        "search?q=/[/",
        "nothing",
        "report?by=moon",
        "compare?a=0",
        "slices?depths=x",
        "slice?track=0&at=1&depth=99999999999999999999",
    ] {
        let answer = get(&url, request);
        assert!(status(&answer).starts_with('4'), "{request}");
        assert!(json(&answer)["error"].is_string(), "{request}");
    }
    // Nothing of the answers may be kept, framed or taken for something else.
    let head = String::from_utf8(get(&url, "trace")).unwrap();
    for field in [
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "default-src 'none'",
        "Referrer-Policy: no-referrer",
    ] {
        assert!(head.contains(field), "{field}");
    }
    assert!(!head.contains("Access-Control"));
}

#[test]
fn damaged_files_are_shown_as_far_as_they_go() {
    let bytes = file(5, 20_000);
    let mut rng = Rng::new(1);
    for _ in 0..6 {
        let mut bytes = bytes.clone();
        bytes.truncate(bytes.len() - rng.below(bytes.len() as u64 / 2) as usize);
        for _ in 0..20 {
            let at = 200 + rng.below(bytes.len() as u64 - 200) as usize;
            bytes[at] = rng.below(256) as u8;
        }
        let url = serve(&[bytes]);
        for request in [
            "trace",
            "slices?from=0&to=9999999999",
            "report",
            "flame",
            "marks",
            "overview",
            "search?q=a",
            "text",
        ] {
            assert_eq!(status(&get(&url, request)), "200", "{request}");
        }
    }
}

#[test]
fn another_viewer_of_this_process_gets_the_same_numbers() {
    let bytes = file(7, 20_000);
    let library = |filter: Filter| {
        let input = Input {
            path: "test.ect".to_owned(),
            file: TraceFile::open(bytes.clone()).unwrap(),
            names: Default::default(),
        };
        let library = Library::filtered(vec![input], filter).unwrap();
        while !answers::trace(&library).unwrap().complete {
            std::thread::sleep(Duration::from_millis(5));
        }
        library
    };
    let report = |library: &Library, scope: &Scope| {
        let report = answers::report(library, scope, Grouping::Function, usize::MAX)?;
        let row = |row: &everycall_analysis::Row<'_>| match row.key {
            Key::Function(function) => (report.number(*function).unwrap(), row.sums.clone()),
            other => panic!("{other:?}"),
        };
        Ok::<_, String>((report.profile.calls, report.rows().iter().map(row).collect::<Vec<_>>()))
    };
    let all = Scope::default();
    let whole = library(Filter::default());
    let table = report(&whole, &all).unwrap();
    // The whole tree has the calls of the table.
    let tree = answers::tree(&whole, &all).unwrap();
    for (function, sums) in &table.1 {
        let nodes = tree.nodes.iter().filter(|node| node.function == *function);
        let sum = nodes.fold((0, 0), |(calls, own), node| (calls + node.calls, own + node.own_ns));
        assert_eq!(sum, (sums.calls, sums.own_ns), "{function}");
    }
    // So has the timeline, where each call is drawn by itself.
    let trace = answers::trace(&whole).unwrap();
    let end = trace.duration_ns.unwrap();
    let tracks = &trace.processes[0].tracks;
    let drawn = |track: &answers::TrackFacts| {
        answers::slices(&whole, track.id, (0, end, 300), 0..usize::MAX).unwrap()
    };
    let calls: u64 = tracks.iter().flat_map(drawn).map(|slice| u64::from(slice.calls)).sum();
    assert_eq!(calls, table.0);
    // A filter of the library is that of a request.
    let (from, to) = (end / 4, end / 2);
    let second = tracks.iter().find(|track| track.tid == 2).unwrap().id;
    let filtered =
        library(Filter { tids: vec![2], since_ns: Some(from), until_ns: Some(to), ..Filter::default() });
    assert_eq!(answers::window(&filtered), Ok((Some(from), Some(to))));
    let scope = |from, to| Scope { from: Some(from), to: Some(to), ..Scope::default() };
    let of_second = |from| Scope { tracks: Some(vec![second]), ..scope(from, to) };
    let asked = report(&whole, &of_second(from)).unwrap();
    assert!(asked.0 > 0);
    assert_eq!(report(&filtered, &all).unwrap(), asked);
    let nearer = answers::tree(&filtered, &scope(from + 1000, u64::MAX));
    assert_eq!(nearer, answers::tree(&whole, &of_second(from + 1000)));
    // A search of some tracks finds nothing elsewhere.
    let next = answers::next(&whole, &Sought::Function(0), None, true, Some(&[second])).unwrap();
    assert_eq!(next.hit.unwrap().track, second);
    // A stopped library has no numbers, and doesn't harm later answers.
    whole.stop(true);
    assert_eq!(report(&whole, &all).unwrap_err(), STOPPED);
    assert_eq!(answers::tree(&whole, &all).unwrap_err(), STOPPED);
    whole.stop(false);
    assert_eq!(report(&whole, &all).unwrap(), table);
}

/// A wait has the name of its system call in the lane of states, and in the calls that it is part
/// of.
#[test]
fn waits_have_the_name_of_their_system_call() {
    let calls = everycall_synth::switches_with_calls();
    let url = serve(&[File::of_scheduled_until(&everycall_synth::basic(), &calls, 5_000_010_000)]);
    let trace = json(&get(&url, "trace"));
    let tracks = trace["processes"][0]["tracks"].as_array().unwrap();
    let track = tracks.iter().find(|track| track["tid"] == 100).unwrap()["id"].to_string();
    let states = json(&get(&url, &format!("states?tracks={track}&from=0&to=10000&pixels=10000")));
    let waits: Vec<_> =
        states[&track].as_array().unwrap().iter().filter(|row| row[2] == 2).cloned().collect();
    assert_eq!(waits, [serde_json::json!([500, 700, 2, null, "read"])]);
    let rows = json(&get(&url, &format!("text?limit=100&tracks={track}")));
    let mut found = 0;
    for row in rows["rows"].as_array().unwrap() {
        let number = |name: &str| row[name].as_u64().unwrap();
        let (from, to, depth) = (number("from"), number("to"), number("depth"));
        let call = json(&get(&url, &format!("slice?track={track}&at={from}&depth={depth}")));
        let time = to.min(700).saturating_sub(from.max(500));
        let expected = if time > 0 { serde_json::json!([["read", time]]) } else { serde_json::json!([]) };
        assert_eq!(call["states"]["blocked_in"], expected, "{call}");
        assert_eq!(call["states"]["blocked_ns"], time, "{call}");
        found += usize::from(time > 0);
    }
    assert!(found > 0, "{rows}");
}

/// The page says what `info` says: nothing is missing, or but for what.
#[test]
fn times_without_recording_are_noted() {
    let notes = |gaps: u64| {
        let mut ring = Ring::new(512, 16, START);
        for number in 0..=gaps {
            let from = START + 100 * number;
            if number > 0 {
                ring.gap(from - 80, from, 1, 0);
            }
            ring.enter(from + 1, 0x1000);
            ring.exit(from + 9, 0x1010);
        }
        let threads = vec![Thread { tid: 1, name: "main".to_owned(), start_ticks: START, ring }];
        let file = File::of(&Process { threads, ..Process::default() });
        json(&get(&serve(&[file]), "trace"))["notes"].clone()
    };
    assert_eq!(notes(0), serde_json::json!([]));
    assert_eq!(notes(2), serde_json::json!(["complete but for 2 times that recording was off"]));
}

/// Whoever holds connections without knowing the secret doesn't keep the page from its answers.
#[test]
fn strangers_take_no_place_of_the_page() {
    let url = serve(&[file(1, 100)]);
    let secret = url.rsplit('/').nth(1).unwrap();
    let alive = format!("GET /{secret}/alive HTTP/1.1\r\nHost: {}\r\n\r\n", host(&url));
    let ask = |stream: &mut TcpStream| -> std::io::Result<bool> {
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(alive.as_bytes())?;
        let mut answer = [0; 15];
        stream.read_exact(&mut answer)?;
        // The rest is read with the next answer's beginning otherwise.
        let mut rest = [0; 4096];
        let _ = stream.read(&mut rest)?;
        Ok(answer.starts_with(b"HTTP/1.1 200 OK"))
    };
    let mut page = TcpStream::connect(host(&url)).unwrap();
    assert!(ask(&mut page).unwrap());
    // Of this user: they hold all places without the secret, but only until their heads are
    // overdue.
    let mut held: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(host(&url)).unwrap()).collect();
    held.iter_mut().for_each(|stream| drop(stream.write_all(b"G")));
    assert!(ask(&mut page).unwrap(), "the page's own connection");
    let deadline = std::time::Instant::now() + Duration::from_secs(120);
    while !TcpStream::connect(host(&url)).and_then(|mut stream| ask(&mut stream)).unwrap_or(false) {
        assert!(std::time::Instant::now() < deadline, "no new connection of the page");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(held);
    // Of another user: never.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    use std::os::unix::process::CommandExt;
    let port = host(&url).rsplit(':').next().unwrap().to_owned();
    let hold = format!(
        "for i in $(seq 100); do exec {{fd}}<>/dev/tcp/127.0.0.1/{port}; printf G >&$fd; done; echo; exec sleep 600"
    );
    let mut other = std::process::Command::new("bash")
        .args(["-c", &hold])
        .uid(65_534)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    other.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    for _ in 0..5 {
        let mut stream = TcpStream::connect(host(&url)).unwrap();
        assert!(ask(&mut stream).unwrap());
    }
    other.kill().unwrap();
    other.wait().unwrap();
}
