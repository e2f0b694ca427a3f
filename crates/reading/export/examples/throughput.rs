//! Measures how many timeline events per second each output processes on one core, and its memory.
//!
//! `cargo run --release -p everycall-export --example throughput [EVENTS] [OUTPUT...]`
//!
//! The recording is generated while it is read: 4 threads, 5,000 functions of which few are called
//! often, up to 30 levels, no call without duration. The row `source` is the cost of generating it,
//! which the other rows include; the column `net` excludes it.

use std::borrow::Cow;
use std::io;
use std::time::Instant;

use everycall_export::{
    Begin, EndKind, Filter, Format, FunctionName, Location, MarkName, Names, Process, ReplayStyle, Source,
    Thread, TimelineEvent, export, parse_function, replay, replay_json,
};
use everycall_units::Count;

const FUNCTIONS: u64 = 5_000;
const LEVELS: usize = 30;

struct MadeUp {
    processes: Vec<Process>,
    threads: Vec<Thread>,
    events_per_thread: u64,
}

impl Source for MadeUp {
    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn threads(&self) -> &[Thread] {
        &self.threads
    }

    fn end_ns(&self) -> u64 {
        self.events_per_thread * 64
    }

    fn last_event_ns(&self) -> u64 {
        self.end_ns()
    }

    fn mark_name(&self, _: MarkName) -> &str {
        ""
    }

    fn origin_realtime_ns(&self) -> Option<u64> {
        None
    }

    fn events(&self, thread: usize) -> impl Iterator<Item = TimelineEvent> {
        let mut state = thread as u64 + 1;
        let mut open: Vec<Begin> = Vec::with_capacity(LEVELS);
        let mut left = self.events_per_thread;
        let mut now_ns = 0;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            left -= 1;
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            now_ns += 1 + (state >> 59);
            let goes_in = open.len() < LEVELS && (open.is_empty() || state >> 40 & 1 == 0);
            if goes_in && left > open.len() as u64 {
                // The product of two random numbers: some functions are called far more often than
                // others.
                let function = ((state >> 20 & 0xffff) * (state >> 44 & 0xffff) * FUNCTIONS) >> 32;
                let location = Location { module: 0, image_address: 0x1000 + function * 64 };
                let depth = open.len() as u32;
                let begin = Begin { depth, location, start_ns: now_ns, ..Begin::default() };
                open.push(begin);
                return Some(TimelineEvent::Begin(begin));
            }
            Some(TimelineEvent::End(open.pop()?.ended(now_ns, EndKind::Returned)))
        })
    }
}

struct MadeUpNames;

impl Names for MadeUpNames {
    fn function(&self, location: Location) -> FunctionName<'_> {
        let number = location.image_address / 64;
        FunctionName {
            full_name: None,
            name: format!(
                "engine::detail::Worker<std::pair<int, long> >::step{number}(std::string const&, int)"
            )
            .into(),
            module: "made-up".into(),
            file: Some(format!("/src/engine/worker{}.cpp", number % 50).into()),
            line: Some(number as u32),
        }
    }

    fn source(&self, file: &str) -> Option<Cow<'_, str>> {
        Some(format!("// {file}\n").repeat(200).into())
    }
}

/// Counts bytes and discards them.
#[derive(Default)]
struct Scale(u64);

impl io::Write for Scale {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn resident_peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0)
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let events: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(20_000_000);
    let wanted: Vec<String> = arguments.collect();
    let threads = (1..=4)
        .map(|tid| Thread {
            process: 0,
            pid: 1,
            tid,
            name: format!("worker-{tid}"),
            dropped: 0,
            is_sampled: false,
        })
        .collect();
    let processes = vec![Process { pid: 1, name: "made-up".to_owned(), ..Process::default() }];
    let source = MadeUp { processes, threads, events_per_thread: events / 4 };
    let names = &MadeUpNames;
    let all = Filter::default();
    let narrow = Filter {
        min_duration_ns: 200,
        since_ns: Some(1_000_000),
        function: parse_function("step[0-4]").ok(),
        ..Filter::default()
    };

    let started = Instant::now();
    let sum: u64 =
        (0..4).flat_map(|thread| source.events(thread)).map(|event| event.at_ns()).fold(0, u64::wrapping_add);
    let idle = started.elapsed().as_secs_f64();
    std::hint::black_box(sum);
    println!("{} events, {} functions", Count(events), Count(FUNCTIONS));
    println!("{:<22} {:>10} {:>10} {:>9} {:>10}", "output", "Mevents/s", "net", "B/event", "peak KiB");
    println!("{:<22} {:>10.1}", "source", events as f64 / idle / 1e6);

    let style = ReplayStyle { colour: true, width: Some(80), ..ReplayStyle::default() };
    type Output<'a> = Box<dyn Fn(&mut Scale) -> io::Result<u64> + 'a>;
    let exported = |format, filter| -> Output<'_> {
        let source = &source;
        Box::new(move |out| Ok(export(format, source, names, filter, &mut |_| {}, out)?.slices))
    };
    let outputs: [(&str, Output<'_>); 17] = [
        ("vizviewer", exported(Format::Vizviewer, &all)),
        ("perfetto", exported(Format::Perfetto, &all)),
        ("perfetto filtered", exported(Format::Perfetto, &narrow)),
        ("vizviewer filtered", exported(Format::Vizviewer, &narrow)),
        ("chrome", exported(Format::Chrome, &all)),
        ("csv", exported(Format::Csv, &all)),
        ("jsonl", exported(Format::Jsonl, &all)),
        ("parquet", exported(Format::Parquet, &all)),
        ("speedscope", exported(Format::Speedscope, &all)),
        ("firefox", exported(Format::Firefox, &all)),
        ("folded", exported(Format::Folded, &all)),
        ("flamegraph", exported(Format::Flamegraph, &all)),
        ("pprof", exported(Format::Pprof, &all)),
        ("callgrind", exported(Format::Callgrind, &all)),
        ("dot", exported(Format::Dot, &all)),
        ("replay", Box::new(|out| Ok(replay(&source, names, &all, style, out)?.slices))),
        ("replay json", Box::new(|out| Ok(replay_json(&source, names, &all, out)?.slices))),
    ];
    for (name, write) in outputs {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let mut scale = Scale::default();
        let started = Instant::now();
        std::hint::black_box(write(&mut scale)?);
        let time = started.elapsed().as_secs_f64();
        let rate = |time: f64| events as f64 / time / 1e6;
        println!(
            "{name:<22} {:>10.1} {:>10.1} {:>9.1} {:>10}",
            rate(time),
            rate(time - idle),
            scale.0 as f64 / events as f64,
            resident_peak_kib()
        );
    }
    Ok(())
}
