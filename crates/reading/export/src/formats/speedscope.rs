//! speedscope's file format: a profile for each thread, with the begin and the end of each call.
//!
//! <https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources>. speedscope visits
//! calls recursively, so calls below [`LEVELS`] levels are merged into one frame.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use crate::draw::LEVELS;
use crate::driver::{Export, Sink};
use crate::filtered::{Event, PointKind};
use crate::frames::Frame;
use crate::json::{put_number, put_string};
use crate::portions::Portions;
use crate::source::Source;
use crate::text;
use everycall_calls::Thread;

/// A frame of the table.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Shown {
    Frame(Frame),
    /// Something else, by its name.
    Text(String),
}

/// The output.
pub(crate) struct Speedscope<'o> {
    portions: Portions<'o>,
    frames: FxHashMap<Shown, u64>,
    order: Vec<Shown>,
    /// Open frames of the thread; at most one for all deeper calls.
    open: Vec<u64>,
    /// Open calls of the thread.
    depth: usize,
    now_ns: u64,
    threads: u64,
    events: u64,
}

impl<'o> Speedscope<'o> {
    pub(crate) fn new(out: &'o mut dyn Write) -> Self {
        Speedscope {
            portions: Portions::new(out),
            frames: FxHashMap::default(),
            order: Vec::new(),
            open: Vec::new(),
            depth: 0,
            now_ns: 0,
            threads: 0,
            events: 0,
        }
    }

    fn number(&mut self, shown: Shown) -> u64 {
        if let Some(&number) = self.frames.get(&shown) {
            return number;
        }
        let number = self.order.len() as u64;
        self.order.push(shown.clone());
        self.frames.insert(shown, number);
        number
    }

    /// An opening (`O`) or closing (`C`) event; times never go back.
    fn put(&mut self, kind: u8, frame: u64, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
        let now_ns = self.now_ns;
        let bytes = &mut self.portions.bytes;
        bytes.extend_from_slice(if self.events == 0 { b"\n{\"type\":\"" } else { b",\n{\"type\":\"" });
        bytes.push(kind);
        bytes.extend_from_slice(b"\",\"frame\":");
        put_number(bytes, frame);
        bytes.extend_from_slice(b",\"at\":");
        put_number(bytes, now_ns);
        bytes.push(b'}');
        self.events += 1;
    }

    fn open(&mut self, shown: Shown, at_ns: u64) {
        let frame = self.number(shown);
        self.open.push(frame);
        self.put(b'O', frame, at_ns);
    }

    fn close(&mut self, at_ns: u64) {
        if let Some(frame) = self.open.pop() {
            self.put(b'C', frame, at_ns);
        }
    }

    /// Something without callees.
    fn leaf(&mut self, shown: Shown, at_ns: u64, until_ns: u64) {
        if self.depth <= LEVELS {
            self.open(shown, at_ns);
            self.close(until_ns);
        }
    }
}

impl<'o, S: Source> Sink<'o, S> for Speedscope<'o> {
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn begin(&mut self, export: &mut Export<'_, S>) {
        let name = export.source.processes().first().map_or("", |process| &process.name);
        self.portions.put(
            b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"everycall\",\"name\":",
        );
        put_string(&mut self.portions.bytes, name);
        self.portions.put(b",\"profiles\":[");
    }

    fn thread(&mut self, export: &mut Export<'_, S>, _: usize, thread: &Thread) {
        (self.depth, self.now_ns, self.events) = (0, 0, 0);
        self.open.clear();
        let program = export.source.processes().get(thread.process).map_or("", |process| &process.name);
        let title = format!("{program} {} / {} {}", thread.pid, thread.name, thread.tid);
        self.portions.put(if self.threads == 0 { b"\n" } else { b",\n" });
        self.portions.put(b"{\"type\":\"evented\",\"unit\":\"nanoseconds\",\"name\":");
        put_string(&mut self.portions.bytes, &title);
        self.portions.put(b",\"startValue\":0,\"events\":[");
        self.threads += 1;
    }

    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        export.summary.event(event);
        match *event {
            Event::Begin { function, start_ns, .. } => {
                self.depth += 1;
                match self.depth.checked_sub(LEVELS) {
                    None | Some(0) => self.open(Shown::Frame(Frame::Function(function)), start_ns),
                    Some(1) => self.open(Shown::Frame(Frame::Deeper), start_ns),
                    _ => {}
                }
            }
            Event::End { end_ns, .. } => {
                export.summary.deep_calls += u64::from(self.depth > LEVELS);
                if self.depth <= LEVELS + 1 {
                    self.close(end_ns);
                }
                self.depth = self.depth.saturating_sub(1);
            }
            Event::Gap(gap) | Event::ShortSuspension(gap) => {
                self.leaf(Shown::Frame(Frame::of_gap(gap.why)), gap.at_ns, gap.until_ns);
            }
            Event::Untraced(slice) => {
                self.leaf(Shown::Frame(Frame::Function(slice.function)), slice.at_ns, slice.until_ns);
            }
            Event::Point(point) if matches!(point.kind, PointKind::Lost(_)) => {
                let (what, _) = text::point(&point, &export.functions);
                self.leaf(Shown::Text(format!("({what})")), point.at_ns, point.at_ns);
            }
            Event::Point(_) | Event::Mark(_) | Event::OffCpu(_) => {}
        }
    }

    fn thread_end(&mut self, _: &mut Export<'_, S>) {
        while !self.open.is_empty() {
            self.close(self.now_ns);
        }
        self.portions.put(b"],\"endValue\":");
        put_number(&mut self.portions.bytes, self.now_ns);
        self.portions.put(b"}");
    }

    fn end(&mut self, export: &mut Export<'_, S>) -> io::Result<()> {
        self.portions.put(b"],\n\"shared\":{\"frames\":[");
        for (number, shown) in self.order.iter().enumerate() {
            let bytes = &mut self.portions.bytes;
            bytes.extend_from_slice(if number == 0 { b"\n{\"name\":" } else { b",\n{\"name\":" });
            match shown {
                Shown::Text(text) => put_string(bytes, text),
                Shown::Frame(frame) => {
                    put_string(bytes, frame.name(&export.functions));
                    if let Frame::Function(function) = *frame {
                        let function = export.functions.get(function);
                        if let Some(file) = &function.file {
                            bytes.extend_from_slice(b",\"file\":");
                            put_string(bytes, file);
                        }
                        if let Some(line) = function.line {
                            bytes.extend_from_slice(b",\"line\":");
                            put_number(bytes, line.into());
                        }
                    }
                }
            }
            self.portions.put(b"}");
            self.portions.spill()?;
        }
        self.portions.put(b"]}}\n");
        Ok(())
    }
}
