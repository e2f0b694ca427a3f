//! Chrome's trace event format: JSON, an array of events or an object with the array `traceEvents`,
//! also compressed by gzip.
//!
//! ```text
//! scan          bytes -> events, one JSON object at a time, without making a tree of it
//! spool         events -> sorted by thread and time, or id and time, in bounded memory
//! asynchronous  events with ids -> spans of threads
//! replay        a thread's events -> calls, spans, instants, counters
//! ```
//!
//! | `ph` | becomes |
//! |---|---|
//! | `X`, `B`, `E` | calls |
//! | `b`, `e`, `S`, `F` | spans |
//! | `i`, `I`, `R`, `n` | instants |
//! | `C` | counters |
//! | `M` | names of processes and threads |

mod asynchronous;
mod replay;
mod scan;
mod spool;

use std::collections::BTreeMap;
use std::io::{self, Read, SeekFrom, Write};

use everycall_format::arena::ClockReading;
use rustc_hash::FxHashMap;

use crate::error::ImportError;
use crate::input::{ImportOptions, Input};
use crate::output::{Code, Output, ProcessFacts, ThreadId};

use replay::Replay;
use scan::{Event, Scanner};
use spool::{Kind, Record, Spool};

/// A process and a thread, as the file has them: numbers, or texts.
type Ids = (Vec<u8>, Vec<u8>);

/// Reads a file.
pub(crate) fn read<W: Write>(
    input: &mut impl Input,
    options: &ImportOptions,
    out: &mut Output<W>,
) -> Result<(), ImportError> {
    let unreadable = |error| ImportError::Unreadable(None, error);
    let mut mark = [0; 2];
    let count = input.read(&mut mark).map_err(unreadable)?;
    input.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let mut gathered = Gathered::new();
    if count == 2 && mark == [0x1f, 0x8b] {
        gathered.read(flate2::read::MultiGzDecoder::new(input))?;
    } else {
        gathered.read(input)?;
    }
    gathered.write(options, out)
}

/// The contents of the file.
struct Gathered {
    threads: FxHashMap<Ids, u32>,
    /// By number.
    ids: Vec<Ids>,
    /// The thread of the event before.
    last: Option<u32>,
    names: FxHashMap<Box<[u8]>, u32>,
    /// By number, decoded.
    texts: Vec<Vec<u8>>,
    process_names: BTreeMap<Vec<u8>, Vec<u8>>,
    thread_names: BTreeMap<Ids, Vec<u8>>,
    spool: Spool,
    /// Events of asynchronous operations, which become spans.
    operations: Spool,
    operation_ids: asynchronous::Ids,
    events: u64,
    earliest: i64,
    latest: i64,
    /// Events of kinds that are left out.
    others: BTreeMap<u8, u64>,
    without_time: u64,
    without_phase: u64,
    without_duration: u64,
    has_overflow: bool,
    end: End,
}

/// How the file ended.
#[derive(Default, PartialEq, Eq)]
enum End {
    #[default]
    Whole,
    /// Its end is missing.
    Cut,
    /// It is damaged at this byte.
    Damaged(u64),
}

impl Gathered {
    fn new() -> Gathered {
        let mut gathered = Gathered {
            threads: FxHashMap::default(),
            ids: Vec::new(),
            last: None,
            names: FxHashMap::default(),
            texts: Vec::new(),
            process_names: BTreeMap::new(),
            thread_names: BTreeMap::new(),
            spool: Spool::by_thread(),
            operations: Spool::by_id(),
            operation_ids: asynchronous::Ids::default(),
            events: 0,
            earliest: i64::MAX,
            latest: i64::MIN,
            others: BTreeMap::new(),
            without_time: 0,
            without_phase: 0,
            without_duration: 0,
            has_overflow: false,
            end: End::Whole,
        };
        // 0: no name.
        gathered.name(b"");
        gathered
    }

    fn read(&mut self, input: impl Read) -> Result<(), ImportError> {
        let mut scanner = Scanner::new(input);
        loop {
            match scanner.next_event() {
                Ok(Some(event)) => self.event(&event)?,
                Ok(None) => break,
                Err(scan::Problem::Input(error)) if self.events == 0 => {
                    return Err(ImportError::Unreadable(None, error));
                }
                // A file that is cut can't be decompressed to its end.
                Err(scan::Problem::Input(_) | scan::Problem::Cut) if self.events > 0 => {
                    self.end = End::Cut;
                    return Ok(());
                }
                Err(scan::Problem::Syntax(offset, _)) if self.events > 0 => {
                    self.end = End::Damaged(offset);
                    return Ok(());
                }
                Err(scan::Problem::Syntax(offset, reason)) => {
                    return Err(ImportError::damaged(offset, reason));
                }
                Err(_) => {
                    return Err(ImportError::damaged(
                        scanner.offset(),
                        "more of the first event is expected",
                    ));
                }
            }
        }
        self.has_overflow = scanner.has_overflow;
        if !scanner.has_array {
            return Err(ImportError::Unknown(Some(
                "an object of JSON without an array `traceEvents`, which Chrome's trace format needs",
            )));
        }
        Ok(())
    }

    #[inline]
    fn thread(&mut self, event: &Event<'_>) -> u32 {
        if let Some(last) = self.last
            && let Some((pid, tid)) = self.ids.get(last as usize)
            && **pid == *event.pid
            && **tid == *event.tid
        {
            return last;
        }
        let ids = (event.pid.to_vec(), event.tid.to_vec());
        let next = self.ids.len() as u32;
        let number = *self.threads.entry(ids).or_insert(next);
        if number == next {
            self.ids.push((event.pid.to_vec(), event.tid.to_vec()));
        }
        self.last = Some(number);
        number
    }

    #[inline]
    fn name(&mut self, raw: &[u8]) -> u32 {
        if let Some(number) = self.names.get(raw) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(scan::text(raw));
        self.names.insert(raw.into(), number);
        number
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), ImportError> {
        self.events += 1;
        let kind = match event.phase {
            b'X' => Kind::Complete,
            b'B' => Kind::Begin,
            b'E' => Kind::End,
            b'i' | b'I' | b'R' | b'n' => Kind::Instant,
            b'b' | b'S' => Kind::SpanBegin,
            b'e' | b'F' => Kind::SpanEnd,
            b'C' => return self.counters(event),
            b'M' => {
                self.metadata(event);
                return Ok(());
            }
            0 => {
                self.without_phase += 1;
                return Ok(());
            }
            other => {
                *self.others.entry(other).or_default() += 1;
                return Ok(());
            }
        };
        let Some(ns) = event.ns else {
            self.without_time += 1;
            return Ok(());
        };
        let mut group = 0;
        let mut value = 0;
        match kind {
            Kind::Complete => match event.duration_ns {
                Some(duration) => value = duration,
                None => {
                    self.without_duration += 1;
                    return Ok(());
                }
            },
            Kind::Begin | Kind::End => group = self.name(event.category),
            Kind::SpanBegin | Kind::SpanEnd => (group, value) = self.operation_ids.of(event),
            _ => {}
        }
        let thread = self.thread(event);
        let name = self.name(event.name);
        self.reached(ns, if kind == Kind::Complete { value } else { 0 });
        let is_operation = matches!(kind, Kind::SpanBegin | Kind::SpanEnd);
        let spool = if is_operation { &mut self.operations } else { &mut self.spool };
        spool.add(Record { thread, kind, ns, name, group, value }).map_err(spooling)
    }

    fn reached(&mut self, ns: i64, length: u64) {
        self.earliest = self.earliest.min(ns);
        self.latest = self.latest.max(ns.saturating_add_unsigned(length));
    }

    /// Each series of a counter is a counter. Counters of one name and different ids are different
    /// ones.
    fn counters(&mut self, event: &Event<'_>) -> Result<(), ImportError> {
        let Some(ns) = event.ns else {
            self.without_time += 1;
            return Ok(());
        };
        let thread = self.thread(event);
        self.reached(ns, 0);
        let series = scan::numbers(event.args);
        let is_single = series.len() == 1;
        let id = if event.id.is_empty() { Vec::new() } else { [b"[", event.id, b"]"].concat() };
        for (key, number) in series {
            let same = is_single && (key == b"value" || key == event.name);
            let series: &[&[u8]] = if same { &[] } else { &[b" ", key] };
            let raw = [&[event.name, &id], series].concat().concat();
            let name = self.name(&raw);
            let (kind, value) = match str::from_utf8(number).ok().and_then(|text| text.parse::<i64>().ok()) {
                Some(whole) => (Kind::Counter, whole.cast_unsigned()),
                None => {
                    let real = str::from_utf8(number).ok().and_then(|text| text.parse::<f64>().ok());
                    let Some(real) = real else { continue };
                    (Kind::CounterReal, real.to_bits())
                }
            };
            self.spool.add(Record { thread, kind, ns, name, group: 0, value }).map_err(spooling)?;
        }
        Ok(())
    }

    fn metadata(&mut self, event: &Event<'_>) {
        let Some(name) = scan::value(event.args, b"name").map(scan::text) else { return };
        match event.name {
            b"process_name" => {
                self.process_names.insert(event.pid.to_vec(), name);
            }
            b"thread_name" => {
                self.thread_names.insert((event.pid.to_vec(), event.tid.to_vec()), name);
            }
            _ => {}
        }
    }

    fn write<W: Write>(mut self, options: &ImportOptions, out: &mut Output<W>) -> Result<(), ImportError> {
        if self.ids.is_empty() && self.end != End::Whole {
            return Err(ImportError::damaged(0, "no event with a time is in what is left of the file"));
        }
        let written = ImportError::Unwritable;
        // Ticks are nanoseconds, and don't begin below 0.
        let shift = if self.earliest < 0 { self.earliest.unsigned_abs() } else { 0 };
        let threads = self.make_threads(out).map_err(written)?;
        let table = out.names(options.name.as_bytes());
        let mut codes: Vec<Option<Code>> = vec![None; self.texts.len()];
        let mut replay: Option<Replay> = None;
        let begun_twice = self.operation_ids.pair(&mut self.operations, &mut self.spool).map_err(spooling)?;
        self.operations = Spool::by_id();
        let mut counts = replay::Counts::default();
        counts.begun_twice = begun_twice;
        let texts = &self.texts;
        let mut code = |name: u32, out: &mut Output<W>| {
            let text = texts.get(name as usize).map(Vec::as_slice).unwrap_or_default();
            let place = codes.get_mut(name as usize)?;
            Some(*place.get_or_insert_with(|| out.name(table, text)))
        };
        let mut current = None;
        let mut sorted = self.spool.sorted().map_err(spooling)?;
        while let Some(record) = sorted.next_record().map_err(spooling)? {
            if current != Some(record.thread) {
                if let Some(mut replay) = replay.take() {
                    replay.finish(texts, &mut code, out).map_err(written)?;
                    counts.add(&replay.counts);
                }
                current = Some(record.thread);
                replay = threads.get(record.thread as usize).map(|thread| Replay::new(*thread, shift));
            }
            let Some(replay) = &mut replay else { continue };
            replay.record(&record, texts, &mut code, out).map_err(written)?;
        }
        if let Some(mut replay) = replay {
            replay.finish(texts, &mut code, out).map_err(written)?;
            counts.add(&replay.counts);
        }
        drop(sorted);
        out.facts.clock = "microseconds of the file, to the nanosecond where it has decimals".to_owned();
        if let Some((first, last)) = out.reach() {
            let reading =
                |ns: u64| ClockReading { ticks: ns, monotonic_raw_ns: ns, ..ClockReading::default() };
            out.facts.readings = [first, last.max(first + 1)].into_iter().map(reading).collect();
        }
        self.tell(&counts, shift, &mut out.facts.notes);
        Ok(())
    }

    fn make_threads<W: Write>(&self, out: &mut Output<W>) -> io::Result<Vec<ThreadId>> {
        let mut processes = BTreeMap::new();
        let mut threads = Vec::new();
        let mut numbers = Numbers::default();
        for ids in &self.ids {
            let (pid, tid) = ids;
            let process = match processes.get(pid) {
                Some(process) => *process,
                None => {
                    let own = || scan::text(numbers.text(pid).unwrap_or_default());
                    let name = self.process_names.get(pid).cloned().unwrap_or_else(own);
                    let command = if name.is_empty() { vec![] } else { vec![name.clone()] };
                    let facts =
                        ProcessFacts { pid: numbers.of(pid), name, command, ..ProcessFacts::default() };
                    let process = out.process(facts)?;
                    processes.insert(pid, process);
                    process
                }
            };
            let own = || scan::text(numbers.text(tid).unwrap_or_default());
            let name = self.thread_names.get(ids).cloned().unwrap_or_else(own);
            threads.push(out.thread(process, numbers.of(tid), &name, false));
        }
        Ok(threads)
    }

    fn tell(&self, counts: &replay::Counts, shift: u64, notes: &mut Vec<String>) {
        if self.has_overflow {
            notes.push("the recorder's buffer was too small: older events are missing, the file doesn't say how many".to_owned());
        }
        match self.end {
            End::Whole => {}
            End::Cut => notes.push("the file's end is missing".to_owned()),
            End::Damaged(at) => {
                notes.push(format!("the file is damaged at byte {at}, and its rest was left out"))
            }
        }
        if !self.others.is_empty() {
            let kinds: Vec<String> = self
                .others
                .iter()
                .map(|(phase, count)| format!("{count} of `{}`", char::from(*phase).escape_default()))
                .collect();
            notes
                .push(format!("events of kinds that have no place here were left out: {}", kinds.join(", ")));
        }
        if self.without_time > 0 {
            notes.push(format!("{} events without a time were left out", self.without_time));
        }
        if self.without_phase > 0 {
            notes.push(format!("{} events without a kind (`ph`) were left out", self.without_phase));
        }
        if self.without_duration > 0 {
            notes.push(format!(
                "{} complete events (`X`) without a duration were left out",
                self.without_duration
            ));
        }
        if shift > 0 {
            notes.push(format!("times begin at -{shift} ns in the file"));
        }
        counts.tell(notes);
    }
}

/// Numbers of processes and threads: their own, or free ones for texts.
#[derive(Default)]
struct Numbers {
    given: BTreeMap<Vec<u8>, u32>,
}

impl Numbers {
    fn parsed(text: &[u8]) -> Option<u32> {
        str::from_utf8(scan::unquoted(text)).ok()?.parse().ok()
    }

    /// An id that is not a number of a process or thread, without its quotes.
    fn text<'t>(&self, id: &'t [u8]) -> Option<&'t [u8]> {
        (!id.is_empty() && Numbers::parsed(id).is_none()).then(|| scan::unquoted(id))
    }

    fn of(&mut self, text: &[u8]) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = Numbers::parsed(text) {
            return number;
        }
        // Above all ids that the kernel gives.
        let next = (1 << 23) + self.given.len() as u32;
        *self.given.entry(text.to_vec()).or_insert(next)
    }
}

fn spooling(error: io::Error) -> ImportError {
    ImportError::Unreadable(Some("the temporary file (TMPDIR)".to_owned()), error)
}
