//! Reads the protobuf output with message types that are declared here independently.

use crate::common;
use std::collections::HashMap;

use crate::common::{Book, Program};
use everycall_export::{Filter, Format, Note, export};
use prost::Message;

#[derive(Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "6")]
    clock_snapshot: Option<ClockSnapshot>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(message, optional, tag = "59")]
    trace_packet_defaults: Option<TracePacketDefaults>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Message)]
struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
}

#[derive(Message)]
struct Clock {
    #[prost(uint32, optional, tag = "1")]
    clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    timestamp: Option<u64>,
    #[prost(bool, optional, tag = "3")]
    is_incremental: Option<bool>,
}

#[derive(Message)]
struct TrackEvent {
    #[prost(int32, optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
    #[prost(double, optional, tag = "44")]
    double_counter_value: Option<f64>,
}

#[derive(Message)]
struct CounterDescriptor {}

#[derive(Message)]
struct DebugAnnotation {
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(message, repeated, tag = "11")]
    dict_entries: Vec<DebugAnnotation>,
    #[prost(message, repeated, tag = "12")]
    array_values: Vec<DebugAnnotation>,
}

impl DebugAnnotation {
    fn text(&self) -> String {
        let list =
            |items: &[DebugAnnotation]| items.iter().map(DebugAnnotation::text).collect::<Vec<_>>().join(",");
        let value = match (&self.string_value, self.uint_value) {
            (Some(text), None) => text.clone(),
            (None, Some(number)) => number.to_string(),
            (None, None) if !self.array_values.is_empty() => format!("[{}]", list(&self.array_values)),
            (None, None) => format!("{{{}}}", list(&self.dict_entries)),
            both => panic!("{both:?}"),
        };
        self.name.as_ref().map_or(value.clone(), |name| format!("{name}={value}"))
    }
}

#[derive(Message)]
struct InternedData {
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<EventName>,
}

#[derive(Message)]
struct EventName {
    #[prost(uint64, optional, tag = "1")]
    iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

#[derive(Message)]
struct TracePacketDefaults {
    #[prost(message, optional, tag = "11")]
    track_event_defaults: Option<TrackEventDefaults>,
    #[prost(uint32, optional, tag = "58")]
    timestamp_clock_id: Option<u32>,
}

#[derive(Message)]
struct TrackEventDefaults {
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
}

#[derive(Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Clone, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

/// A slice or an instant as an importer makes it.
#[derive(Debug, PartialEq)]
struct Slice {
    tid: i32,
    /// Number of its track among its thread's span tracks.
    lane: Option<u64>,
    name: String,
    start_ns: u64,
    dur_ns: u64,
    depth: usize,
    arguments: Vec<String>,
}

/// Imports a trace sequence by sequence, as the format specifies.
fn import(bytes: &[u8]) -> Vec<Slice> {
    let trace = Trace::decode(bytes).unwrap();
    let mut threads: HashMap<u64, ThreadDescriptor> = HashMap::new();
    let mut tracks: HashMap<u32, u64> = HashMap::new();
    let mut names: HashMap<(u32, u64), String> = HashMap::new();
    let mut clocks: HashMap<u32, u64> = HashMap::new();
    // By span track: its thread's track, and its number.
    let mut lanes: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut open: HashMap<u64, Vec<Slice>> = HashMap::new();
    let mut done = Vec::new();
    for packet in trace.packet {
        let sequence = packet.trusted_packet_sequence_id.expect("every packet has a sequence");
        if let Some(descriptor) = packet.track_descriptor {
            let uuid = descriptor.uuid.unwrap();
            if let Some(thread) = descriptor.thread {
                assert!(threads.insert(uuid, thread).is_none(), "tracks have numbers of their own");
            } else if let Some(parent) = descriptor.parent_uuid {
                assert_eq!(parent, tracks[&sequence]);
                assert_eq!(descriptor.name.as_deref(), Some("spans"));
                let number = lanes.values().filter(|(thread, _)| *thread == parent).count() as u64;
                assert!(lanes.insert(uuid, (parent, number)).is_none() && !threads.contains_key(&uuid));
            } else {
                assert_eq!(descriptor.process.unwrap().process_name.as_deref(), Some("app"));
                assert!(!threads.contains_key(&uuid));
            }
        }
        if let Some(defaults) = packet.trace_packet_defaults {
            assert_eq!(packet.sequence_flags, Some(1));
            assert_eq!(defaults.timestamp_clock_id, Some(64));
            tracks.insert(sequence, defaults.track_event_defaults.unwrap().track_uuid.unwrap());
        }
        for clock in packet.clock_snapshot.into_iter().flat_map(|snapshot| snapshot.clocks) {
            if clock.clock_id == Some(64) {
                assert_eq!(clock.is_incremental, Some(true));
                clocks.insert(sequence, clock.timestamp.unwrap());
            }
        }
        for name in packet.interned_data.into_iter().flat_map(|interned| interned.event_names) {
            let key = (sequence, name.iid.unwrap());
            assert!(key.1 > 0 && names.insert(key, name.name.unwrap()).is_none(), "each name once");
        }
        let Some(event) = packet.track_event else { continue };
        let now_ns = clocks.get_mut(&sequence).unwrap();
        *now_ns += packet.timestamp.unwrap();
        let track = event.track_uuid.unwrap_or(tracks[&sequence]);
        let lane = lanes.get(&track);
        assert!(lane.map_or(track, |(thread, _)| *thread) == tracks[&sequence]);
        let stack = open.entry(track).or_default();
        assert!(lane.is_none() || stack.len() < 2, "spans have their track for themselves");
        let arguments = event.debug_annotations.iter().map(DebugAnnotation::text);
        let arguments = event.categories.iter().map(|category| format!("cat {category}")).chain(arguments);
        let new = |name: &str, arguments| Slice {
            tid: threads[&tracks[&sequence]].tid.unwrap(),
            lane: lane.map(|(_, number)| *number),
            name: name.to_owned(),
            start_ns: *now_ns,
            dur_ns: 0,
            depth: stack.len(),
            arguments,
        };
        match event.r#type.unwrap() {
            1 => {
                let name = event.name_iid.map(|number| names[&(sequence, number)].as_str());
                let slice = new(name.or(event.name.as_deref()).unwrap(), arguments.collect());
                stack.push(slice);
            }
            2 => {
                let mut slice = stack.pop().unwrap();
                slice.dur_ns = *now_ns - slice.start_ns;
                slice.arguments.extend(arguments);
                done.push(slice);
            }
            3 => done.push(new(event.name.as_deref().unwrap(), arguments.collect())),
            other => panic!("type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty));
    done
}

fn exported(program: &Program, book: &Book) -> (Vec<Slice>, Vec<Note>) {
    let (mut bytes, mut notes) = (Vec::new(), Vec::new());
    let filter = Filter::default();
    export(Format::Perfetto, program, book, &filter, &mut |note| notes.push(note), &mut bytes).unwrap();
    (import(&bytes), notes)
}

#[test]
fn what_comes_back_is_what_went_in() {
    let (program, book) = common::everything();
    let (slices, notes) = exported(&program, &book);
    assert_eq!(notes, []);
    let shown: Vec<_> = slices
        .iter()
        .map(|slice| {
            let Slice { tid, lane, name, start_ns, dur_ns, depth, arguments } = slice;
            let depth = lane.map_or(depth.to_string(), |lane| format!("spans{lane}"));
            format!("{tid} {depth} {start_ns}+{dur_ns} {name} [{}]", arguments.join("; "))
        })
        .collect();
    let token = "(anonymous namespace)::next_token(char const*&)";
    let busy = "why=the tracer was busy in this thread";
    assert_eq!(
        shown,
        [
            format!("100 2 1250+120 {token} (parse.cpp:1) []"),
            format!("100 2 1370+1 {token} (parse.cpp:1) [true_start_ns=1370; true_dur_ns=0]"),
            "100 1 1203+12300 parse(std::string const&) (parse.cpp:4) []".to_owned(),
            "100 3 22000+3000 throw_it<\"</script>\">(int) (app.cpp:3) [remark=unwound]".to_owned(),
            "100 2 21000+4000 std::map<int, std::vector<long> >::at(int const&) (map:540) [remark=unwound]"
                .to_owned(),
            "100 1 20000+2510000 try_it() (app.cpp:12) []".to_owned(),
            format!("100 1 2540000+0 1,234 events lost [count=1234; {busy}]"),
            "100 1 2600000+1000 throw_it<\"</script>\">(int) (app.cpp:3) [remark=exit lost]".to_owned(),
            format!("100 1 2700000+0 orphan exit [count=1; function={token}]"),
            "100 1 3000000+42000000 wait (wait.c:9) [remark=truncated at end]".to_owned(),
            "100 0 0+45000000 main (app.cpp:30) [remark=truncated at start, truncated at end]".to_owned(),
            format!("101 0 1000+0 events lost [{busy}]"),
            "101 1 6000+1000 f99 [remark=truncated at a loss]".to_owned(),
            "101 0 5000+3000 wait (wait.c:9) []".to_owned(),
            "102 0 200+0 réveil [cat instant]".to_owned(),
            "102 0 300+0 of the thread [cat label; value=1]".to_owned(),
            "102 1 1000+0 request [cat label; value=4711]".to_owned(),
            "102 2 1300+0 token [cat label; value=1]".to_owned(),
            "102 2 1400+0 token [cat label; value=18446744073709551615]".to_owned(),
            "102 2 1400+0 (no name) [cat label; value=0]".to_owned(),
            format!("102 1 1200+300 {token} (parse.cpp:1) [label={{token=[1,18446744073709551615],(no name)=0}}]"),
            "102 0 1000+1000 parse(std::string const&) (parse.cpp:4) [label={request=4711}]".to_owned(),
            "102 spans1 1100+1000 request [cat span; value=4711]".to_owned(),
            "102 0 2200+0 request [cat span; value=9; remark=ends without having begun]".to_owned(),
            "102 0 2300+0 tick [cat instant; value=3]".to_owned(),
            "102 spans1 2300+0 empty [cat span]".to_owned(),
            "102 1 3100+900 std::map<int, std::vector<long> >::at(int const&) (map:540) [remark=truncated at a gap]".to_owned(),
            "102 1 4000+1000000 not recorded [why=tracing was disabled]".to_owned(),
            format!("102 1 1005000+1000 {token} (parse.cpp:1) []"),
            "102 1 1006000+1 not recorded [why=the program left this thread out]".to_owned(),
            "102 0 3000+1004000 try_it() (app.cpp:12) [remark=partly not recorded]".to_owned(),
            "102 spans2 1600+1006400 request [cat span; value=4712; remark=truncated at a loss]".to_owned(),
            "102 spans0 100+1008900 phase \u{1b}[31m</script> [cat span; remark=truncated at start, truncated at end]".to_owned(),
        ]
    );
}

#[test]
fn deep_recursion_is_marked_and_added_up() {
    let mut program = Program::default();
    program.thread(1, "");
    for level in 0..100_000 {
        program.begin(7, level);
    }
    for level in 0..100_000 {
        program.end(100_000 + level);
    }
    let (slices, notes) = exported(&program, &Book::default());
    assert_eq!(slices.len(), 512);
    assert_eq!(slices[0].name, "... deeper calls not shown");
    assert_eq!((slices[0].depth, &*slices[0].arguments), (511, &["calls=99489".to_owned()][..]));
    assert_eq!((slices[0].start_ns, slices[0].dur_ns), (511, 199_488 - 511));
    assert_eq!(notes, [Note::DeepCalls { calls: 99_489 }]);
}

#[test]
fn numbers_of_any_size_come_back() {
    let mut program = Program::default();
    for tid in 1..200 {
        program.thread(tid, "a thread with a name that is longer than the kernel would allow");
        for function in 0..300 {
            program
                .begin(function * 1_000, u64::from(tid) << 40)
                .end((u64::from(tid) << 40) + (function << 30));
            program.begin(function * 1_000, (u64::from(tid) << 40) + (function << 30)).end(1 << 50);
        }
    }
    // Times that go back are limited by the time stamps before them.
    let (slices, _) = exported(&program, &Book::default());
    assert_eq!(slices.len(), 199 * 600);
    for (slice, nth) in slices.iter().zip(0..) {
        assert_eq!(slice.name, format!("f{}", nth / 2 % 300 * 1_000));
        assert_eq!(i64::from(slice.tid), nth / 600 + 1);
    }
}

/// The threads of a process share a counter track; another process has its own.
#[test]
fn counters_are_tracks_of_their_process() {
    let mut bytes = Vec::new();
    let (program, book) = (common::counters(), Book::default());
    export(Format::Perfetto, &program, &book, &Filter::default(), &mut |_| {}, &mut bytes).unwrap();
    let trace = Trace::decode(&bytes[..]).unwrap();
    let mut counters: HashMap<u64, (u64, String)> = HashMap::new();
    let mut others = Vec::new();
    let mut clocks: HashMap<u32, u64> = HashMap::new();
    let mut values = Vec::new();
    for packet in trace.packet {
        let sequence = packet.trusted_packet_sequence_id.unwrap();
        if let Some(descriptor) = packet.track_descriptor {
            let uuid = descriptor.uuid.unwrap();
            match descriptor.counter {
                Some(_) => {
                    let counter = (descriptor.parent_uuid.unwrap(), descriptor.name.unwrap());
                    assert!(counters.insert(uuid, counter).is_none(), "each once");
                }
                None => others.push(uuid),
            }
        }
        for clock in packet.clock_snapshot.into_iter().flat_map(|snapshot| snapshot.clocks) {
            if clock.clock_id == Some(64) {
                clocks.insert(sequence, clock.timestamp.unwrap());
            }
        }
        let Some(event) = packet.track_event else { continue };
        let now_ns = clocks.get_mut(&sequence).unwrap();
        *now_ns += packet.timestamp.unwrap();
        if event.r#type == Some(4) {
            let (process, name) = counters[&event.track_uuid.unwrap()].clone();
            values.push((process, name, *now_ns, event.counter_value, event.double_counter_value));
        }
    }
    assert!(others.iter().all(|uuid| !counters.contains_key(uuid)));
    let whole = |process, at_ns, value| (process, "queue".to_owned(), at_ns, Some(value), None);
    let real = |at_ns, value| (100, "share".to_owned(), at_ns, None, Some(value));
    assert_eq!(
        values,
        [
            whole(100, 500, 3),
            whole(100, 1_100, -4),
            real(1_300, 0.1),
            real(1_400, f64::INFINITY),
            real(1_500, -2e30),
            whole(100, 2_100, i64::MIN),
            whole(100, 1_050, 17),
            whole(102, 3_000, 1),
        ]
    );
}

#[derive(Message)]
struct Kernel {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<KernelPacket>,
}

#[derive(Message)]
struct KernelPacket {
    #[prost(message, optional, tag = "1")]
    ftrace_events: Option<Bundle>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<Symbols>,
}

#[derive(Message)]
struct Symbols {
    #[prost(message, repeated, tag = "26")]
    kernel_symbols: Vec<EventName>,
}

#[derive(Message)]
struct Bundle {
    #[prost(uint32, optional, tag = "1")]
    cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    event: Vec<KernelEvent>,
}

#[derive(Message)]
struct KernelEvent {
    #[prost(uint64, optional, tag = "1")]
    timestamp: Option<u64>,
    #[prost(message, optional, tag = "4")]
    sched_switch: Option<SchedSwitch>,
    #[prost(message, optional, tag = "18")]
    sched_blocked_reason: Option<SchedBlockedReason>,
}

#[derive(Message)]
struct SchedSwitch {
    #[prost(int32, optional, tag = "2")]
    prev_pid: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    prev_state: Option<i64>,
}

#[derive(Message)]
struct SchedBlockedReason {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(uint64, optional, tag = "2")]
    caller: Option<u64>,
}

/// The system call stands behind the switch that begins the wait, on the same CPU: Perfetto gives
/// it to the thread's last wait.
#[test]
fn waits_have_their_system_call() {
    let mut bytes = Vec::new();
    export(
        Format::Perfetto,
        &common::states(),
        &Book::default(),
        &Filter::default(),
        &mut |_| {},
        &mut bytes,
    )
    .unwrap();
    let trace = Kernel::decode(&bytes[..]).unwrap();
    let mut symbols = HashMap::new();
    let (mut told, mut switches) = (Vec::new(), 0);
    for packet in trace.packet {
        let sequence = packet.trusted_packet_sequence_id;
        for symbol in packet.interned_data.into_iter().flat_map(|interned| interned.kernel_symbols) {
            symbols.insert((sequence, symbol.iid), symbol.name.unwrap());
        }
        let Some(bundle) = packet.ftrace_events else { continue };
        switches += bundle.event.iter().filter(|event| event.sched_switch.is_some()).count();
        for pair in bundle.event.windows(2) {
            let Some(reason) = &pair[1].sched_blocked_reason else { continue };
            let before = pair[0].sched_switch.as_ref().expect("a switch");
            assert_eq!((before.prev_pid, before.prev_state), (reason.pid, Some(1)));
            assert_eq!(pair[0].timestamp, pair[1].timestamp);
            let name = &symbols[&(sequence, reason.caller)];
            told.push((bundle.cpu, pair[1].timestamp, reason.pid, name.clone()));
        }
    }
    assert_eq!(told, [(Some(0), Some(5_000), Some(100), "futex".to_owned())]);
    assert!(switches > 8, "{switches}");
}
