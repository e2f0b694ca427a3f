//! How fast the viewer shows a large trace: as its page would ask, over the same connection.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::lab::{Lab, cargo};
use super::stats::Spread;
use super::table::{Cell, Table, Target};
use crate::step::target_folder;
use crate::viewer::Viewer;

/// Events of the trace where nothing else is said.
const EVENTS: u64 = 50_000_000;
const EVENTS_QUICK: u64 = 10_000_000;
/// Nothing takes longer.
const LONGEST: Duration = Duration::from_secs(40 * 60);
/// Windows of each kind.
const WINDOWS: usize = 200;
/// Width of the picture, as the page asks for it.
const PIXELS: u64 = 1024;

/// Measures with a trace of so many events.
///
/// # Errors
/// The failure, as a sentence.
pub fn run(lab: &Lab, is_quick: bool, events: Option<u64>) -> Result<Vec<Table>, String> {
    let events = events.unwrap_or(if is_quick { EVENTS_QUICK } else { EVENTS });
    cargo(&["build", "--release", "--quiet", "--package", "everycall-view", "--example", "large_trace"])?;
    let trace = lab.path("large.ect");
    let make = target_folder().join("release/examples/large_trace");
    lab.successful(lab.command(make).arg(events.to_string()).arg(&trace))?;
    let table = measure(lab, &trace, events);
    std::fs::remove_file(&trace).map_err(|error| format!("can't remove {}: {error}", trace.display()))?;
    Ok(vec![table?])
}

fn measure(lab: &Lab, trace: &Path, events: u64) -> Result<Table, String> {
    let mut table = Table::new("Viewer", &["what", "figure", "target"]);
    table.note(format!(
        "A made-up trace of {events} events in 4 threads. A window is what the page asks for at once: all tracks, 1,024 pixels. Random \
         windows of 1/2 to 1/2^24 of the trace; seconds and milliseconds are wall time, so load by other programs counts."
    ));
    let begun = Instant::now();
    let viewer = Asked::start(lab, trace)?;
    let seconds = |since: Instant| since.elapsed().as_secs_f64();
    let mut row = |name: &str, figure: f64, decimals: usize, target: Option<f64>| {
        let target = target.map_or(Cell::Empty, |most| Cell::Target(Target::Most(most), figure));
        table.row(vec![Cell::text(name), Cell::Number(figure, decimals), target]);
    };
    // A picture: some calls in each track, and the density.
    let mut state = viewer.json("trace")?;
    let (mut tracks, mut end) = shown(&state);
    loop {
        if !tracks.is_empty() && end > 0 && viewer.slices(&tracks, 0, end)?.is_some_and(|cells| cells > 0) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        state = viewer.json("trace")?;
        (tracks, end) = shown(&state);
    }
    row("first picture, s", seconds(begun), 2, Some(3.0));
    let mut windows = |when: &str, has_cpu: bool| {
        let cpu = viewer.cpu_ms()?;
        let windows = viewer.windows(&tracks, end)?;
        if has_cpu {
            let cpu = (viewer.cpu_ms()? - cpu) / windows.len() as f64;
            row(&format!("{when}: a window's CPU time, ms"), cpu, 1, None);
        }
        row(&format!("{when}: windows, median of ms"), Spread::of(windows.clone())?.median, 1, None);
        row(&format!("{when}: windows, p95 of ms"), p95(windows), 1, Some(50.0));
        Ok::<_, String>(())
    };
    let wait = |is_over: fn(&Value) -> bool| {
        while !is_over(&viewer.json("trace")?) {
            if begun.elapsed() > LONGEST {
                return Err("the trace isn't read after so long".to_owned());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(seconds(begun))
    };
    windows("counting", false)?;
    let counted = wait(|state| state["counting"] != true)?;
    windows("reading", false)?;
    let read = wait(|state| state["complete"] == true)?;
    windows("read", true)?;
    row("events counted, s", counted, 1, None);
    row("all events read, s", read, 1, None);
    let mut tables = Vec::new();
    for number in 1..=5 {
        let at = Instant::now();
        let (from, to) = (end / 7 * number, end / 7 * number + end / 1000);
        viewer.get(&format!("report?from={from}&to={to}"))?;
        tables.push(seconds(at) * 1e3);
    }
    row("table of 1/1000 of it, median of ms", Spread::of(tables)?.median, 1, None);
    row("peak memory, MiB", viewer.peak_mib()?, 0, Some(1024.0));
    Ok(table)
}

fn p95(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() * 95 / 100).copied().unwrap_or(0.0)
}

/// The tracks of an answer, and when the trace ends.
fn shown(state: &Value) -> (Vec<u64>, u64) {
    let processes = state["processes"].as_array().into_iter().flatten();
    let tracks = processes.filter_map(|process| process["tracks"].as_array()).flatten();
    let tracks = tracks.filter_map(|track| track["id"].as_u64()).collect();
    (tracks, state["duration_ns"].as_u64().unwrap_or(0))
}

/// `everycall view`, as it is asked.
struct Asked {
    viewer: Viewer,
    host: String,
    secret: String,
}

impl Asked {
    fn start(lab: &Lab, trace: &Path) -> Result<Asked, String> {
        let viewer = Viewer::start(lab.command(lab.everycall()), &[trace])?;
        let mut parts = viewer.address.trim_start_matches("http://").split('/').map(str::to_owned);
        let (host, secret) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Ok(Asked { viewer, host, secret })
    }

    /// The body of an answer.
    fn get(&self, request: &str) -> Result<Vec<u8>, String> {
        let Asked { host, secret, .. } = self;
        let failed = |error: std::io::Error| format!("`everycall view` doesn't answer: {error}");
        let mut stream = TcpStream::connect(host).map_err(failed)?;
        let head = format!("GET /{secret}/{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).map_err(failed)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map_err(failed)?;
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        let body = body.and_then(|at| answer.get(at..)).unwrap_or_default().to_vec();
        if answer.starts_with(b"HTTP/1.1 200") {
            return Ok(body);
        }
        Err(format!("`{request}`: {}", String::from_utf8_lossy(&body)))
    }

    fn json(&self, request: &str) -> Result<Value, String> {
        serde_json::from_slice(&self.get(request)?).map_err(|error| format!("`{request}`: {error}"))
    }

    /// How many cells a window has; `None` where a track has none.
    fn slices(&self, tracks: &[u64], from: u64, to: u64) -> Result<Option<u64>, String> {
        let tracks: Vec<String> = tracks.iter().map(u64::to_string).collect();
        let request =
            format!("slices?tracks={}&from={from}&to={to}&pixels={PIXELS}&depths=0-128", tracks.join(","));
        let Ok(body) = self.get(&request) else { return Ok(None) };
        let number = |at: usize| {
            let bytes = body.get(at..at + 4)?;
            Some(u64::from(u32::from_le_bytes(bytes.try_into().ok()?)))
        };
        let (mut at, mut all) = (8, 0);
        for _ in &tracks {
            let count = number(at + 4).ok_or("an answer is cut")?;
            if count == 0 {
                return Ok(None);
            }
            all += count;
            let columns = [8, 8, 4, 4, 2, 1].map(|bytes| (bytes * count).next_multiple_of(8));
            at = (at + 12).next_multiple_of(8) + columns.iter().sum::<u64>() as usize;
        }
        Ok(Some(all))
    }

    /// How long random windows take, in milliseconds.
    fn windows(&self, tracks: &[u64], end: u64) -> Result<Vec<f64>, String> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below.max(1)
        };
        let mut taken = Vec::new();
        for _ in 0..WINDOWS {
            let length = (end >> (1 + random(24))).max(100);
            let from = random(end.saturating_sub(length));
            let begun = Instant::now();
            self.slices(tracks, from, from + length)?;
            taken.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok(taken)
    }

    /// CPU time so far, in milliseconds.
    fn cpu_ms(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/stat", self.viewer.child.id());
        let stat = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        // Behind the name, which may contain anything; in hundredths of a second.
        let fields = stat.rsplit(')').next().unwrap_or_default().split(' ');
        Ok(fields.skip(12).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() * 10.0)
    }

    fn peak_mib(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/status", self.viewer.child.id());
        let status = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        kib.map(|kib| kib / 1024.0).ok_or_else(|| "the kernel doesn't say the memory".to_owned())
    }
}
