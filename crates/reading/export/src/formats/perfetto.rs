//! Perfetto's native trace: a row of packets, each a protobuf message.
//!
//! ```text
//! sequence 1:  the processes          their tree where there are several: pid, parent, command line
//!              each process           uuid, pid, name
//!              a clock snapshot       boot time 0 = real time of the origin
//! sequence n:  a thread               defaults (its track, clock 64), descriptor, clock snapshot: clock 64 counts
//!              {delta ns, begin, iid} ... {delta ns, end} ...          nanoseconds since the packet before
//! ```
//!
//! Times are nanoseconds since the trace's origin, on what Perfetto takes for the boot clock. A slice's name
//! is written where its thread first uses it, and is a number from there on, so that a begin or an end takes
//! about a dozen bytes. The remarks of a slice are annotations of its end: `remark`, `calls`,
//! `dur_low_ns`, `dur_high_ns`, `true_start_ns`, `true_dur_ns`, with the meanings that they have in
//! `chrome`.
//!
//! Tail calls carry `tail_call_of` or `possible_tail_call_of` at their begin, and the chain's flow: an arrow from the call that jumped.
//!
//! Labels of a slice are its annotation `label`, a dictionary. Labels, instants and spans have the category `label`,
//! `instant` or `span`. Spans overlap as they like, so each thread has tracks for them, named "spans": as many as were open at a
//! time.
//!
//! Thread states are packets of ftrace: switches of each CPU, from and to no thread where the other
//! one isn't in the trace, and wake-ups.
//!
//! Annotations that all calls of a function share (`symbol`, `same_code_as`, `inlined_not_timed`)
//! are written once in a thread too.

mod details;
mod fields;
mod packets;
mod parts;
mod small;
mod switches;

use std::collections::BTreeSet;
use std::io;

use everycall_timeline::{Bars, EndKind, Gap, Mark, MarkKind, MarkName};
use rustc_hash::FxHashMap;

use crate::draw::{Drawn, Pen, Slice};
use crate::driver::{DrawnSink, Export, Switches};
use crate::filtered::{Point, UntracedSlice};
use crate::formats::protobuf::Message;
use crate::labels::Labels;
use crate::names::{FunctionId, Functions};
use crate::portions::Portions;
use crate::source::Source;
use crate::tails::Jumps;
use crate::text;
use everycall_calls::Thread;

use self::details::{DetailTexts, put_jumped, put_tail};
use self::fields::{annotation, event, interned, packet};
use self::packets::{SEQUENCE_PROCESS, close_small, open_small, put_entry, put_packet};
use self::parts::{
    put_call_values, put_clock, put_labels, put_number, put_process, put_process_tree, put_remarks, put_text,
    put_value,
};
use self::small::Calls;
use self::switches::put_switches;

const CLOCK_REALTIME: u64 = 1;
const CLOCK_BOOTTIME: u64 = 6;
/// The smallest clock number that is local to a sequence.
const CLOCK_OWN: u64 = 64;
const SEQUENCE_FIRST: u64 = 2;
/// Number of [`text::DEEPER`]; numbers of functions follow.
const NAME_DEEPER: u64 = 1;

/// The smallest number of a counter track.
const COUNTERS: u64 = 1 << 63;

/// The output.
pub(crate) struct Perfetto<'o> {
    portions: Portions<'o>,
    any_process: bool,
    track: Track,
}

impl<'o> Perfetto<'o> {
    pub(crate) fn new(out: &'o mut dyn io::Write) -> Self {
        Perfetto { portions: Portions::new(out), any_process: false, track: Track::default() }
    }
}

impl<'o, S: Source> DrawnSink<'o, S> for Perfetto<'o> {
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn begin(&mut self, export: &mut Export<'_, S>) {
        let bytes = &mut self.portions.bytes;
        if let Some(realtime_ns) = export.source.origin_realtime_ns() {
            put_packet(bytes, |packet| {
                packet.number(packet::SEQUENCE, SEQUENCE_PROCESS);
                packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                    put_clock(snapshot, CLOCK_BOOTTIME, 0, false);
                    put_clock(snapshot, CLOCK_REALTIME, realtime_ns, false);
                });
            });
        }
        put_process_tree(bytes, export.source.processes());
    }

    fn thread(
        &mut self,
        _: &mut Export<'_, S>,
        index: usize,
        thread: &Thread,
        process: Option<&str>,
        at_ns: u64,
    ) {
        let bytes = &mut self.portions.bytes;
        if let Some(title) = process {
            self.any_process = true;
            put_process(bytes, thread.pid, title, at_ns);
        }
        self.track.begin(index, at_ns);
        self.track.pid = thread.pid;
        self.track.put_head(bytes, thread);
    }

    #[inline]
    fn draw(&mut self, export: &mut Export<'_, S>, drawn: &Drawn, pen: &Pen) {
        let (bytes, track, functions) = (&mut self.portions.bytes, &mut self.track, &export.functions);
        let at_ns = drawn.at_ns();
        match drawn {
            Drawn::Begin { what, is_tail: false, .. } => track.put_begin(bytes, at_ns, *what, functions),
            Drawn::Begin { what, .. } => track.put_tail_call(bytes, at_ns, *what, pen.jumps(), functions),
            Drawn::End(slice) => {
                let bars = export.bars.filter(|_| slice.what.is_some());
                track.put_end(bytes, at_ns, (slice, bars), pen, export.source);
            }
            Drawn::Point(point) => track.put_point(bytes, point, functions),
            Drawn::Mark(mark) => track.put_mark(bytes, mark, export.source),
            Drawn::Gap(gap) => track.put_gap(bytes, gap),
            Drawn::Untraced(slice) => track.put_untraced(bytes, slice, &functions.get(slice.function).name),
        }
    }

    fn switches(&mut self, export: &mut Export<'_, S>, switches: &Switches) {
        put_switches(&mut self.portions.bytes, export.source.threads(), switches);
    }

    fn end(&mut self, export: &mut Export<'_, S>) -> io::Result<()> {
        // Perfetto doesn't accept an empty file as a trace.
        if !self.any_process {
            let first = export.source.processes().first();
            let (pid, name) = first.map_or((0, ""), |first| (first.pid, &first.name));
            put_process(&mut self.portions.bytes, pid, name, 0);
        }
        Ok(())
    }
}

/// One thread's sequence.
#[derive(Default)]
struct Track {
    sequence: u64,
    /// The sequence's field, encoded.
    sequence_field: Vec<u8>,
    /// Its packets of calls.
    calls: Calls,
    /// Time stamp of the previous packet.
    now_ns: u64,
    /// By number of a name: the last sequence that defined it.
    named_in: Vec<u64>,
    details: DetailTexts,
    lanes: Lanes,
    /// Process of the thread.
    pid: u32,
    /// Numbers of the counters' tracks.
    counters: FxHashMap<(u32, MarkName), u64>,
}

/// The tracks of a thread's spans, by number.
#[derive(Default)]
struct Lanes {
    /// Number of tracks that were begun.
    count: u64,
    free: BTreeSet<u64>,
    /// By number of an open span.
    taken: FxHashMap<u32, u64>,
}

impl Track {
    fn begin(&mut self, thread: usize, at_ns: u64) {
        self.sequence = SEQUENCE_FIRST + thread as u64;
        self.sequence_field.clear();
        self.sequence_field.number(packet::SEQUENCE, self.sequence);
        self.calls = Calls::new(self.sequence).unwrap_or_default();
        self.now_ns = at_ns;
        self.lanes = Lanes::default();
    }

    fn put_head(&self, bytes: &mut Vec<u8>, thread: &Thread) {
        let uuid = self.uuid();
        // Counters have tracks of their own.
        if !thread.is_sampled {
            put_packet(bytes, |packet| {
                packet.number(packet::TIMESTAMP, self.now_ns);
                packet.extend_from_slice(&self.sequence_field);
                packet.message(packet::TRACK, |track| {
                    track.number(1, uuid);
                    track.message(4, |descriptor| {
                        descriptor.number(1, thread.pid.into());
                        descriptor.number(2, thread.tid.into());
                        if !thread.name.is_empty() {
                            descriptor.text(5, &thread.name);
                        }
                    });
                });
            });
        }
        put_packet(bytes, |packet| {
            packet.extend_from_slice(&self.sequence_field);
            packet.number(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
            packet.message(packet::DEFAULTS, |defaults| {
                defaults.message(11, |event_defaults| event_defaults.number(event::TRACK, uuid));
                defaults.number(58, CLOCK_OWN);
            });
        });
        put_packet(bytes, |packet| {
            packet.extend_from_slice(&self.sequence_field);
            packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                put_clock(snapshot, CLOCK_BOOTTIME, self.now_ns, false);
                put_clock(snapshot, CLOCK_OWN, self.now_ns, true);
            });
        });
    }

    /// Differs from those of processes, which are their numbers.
    fn uuid(&self) -> u64 {
        self.sequence | 1 << 32
    }

    #[inline]
    fn put_begin(
        &mut self,
        bytes: &mut Vec<u8>,
        at_ns: u64,
        what: Option<FunctionId>,
        functions: &Functions<'_>,
    ) {
        let number = number_of(what);
        if self.named_in.get(number as usize) == Some(&self.sequence) {
            let annotations = self.details.annotations(what);
            let delta_ns = at_ns.saturating_sub(self.now_ns);
            if self.calls.put_begin(bytes, delta_ns, number, annotations) {
                self.now_ns = at_ns;
                return;
            }
            let packet = self.open_small(bytes, at_ns);
            let event = open_small(bytes, packet::TRACK_EVENT);
            bytes.number(event::TYPE, event::BEGIN);
            bytes.number(event::NAME_NUMBER, number);
            bytes.extend_from_slice(self.details.annotations(what));
            close_small(bytes, event);
            close_small(bytes, packet);
        } else {
            self.put_first_begin(bytes, at_ns, number, what, functions);
        }
    }

    /// Defines the name with this number in the sequence, with its attributes.
    fn first_use(&mut self, number: u64, what: Option<FunctionId>, functions: &Functions<'_>) -> Vec<u8> {
        self.named_in.resize(self.named_in.len().max(number as usize + 1), 0);
        self.named_in[number as usize] = self.sequence;
        let name =
            what.map_or_else(|| text::DEEPER.to_owned(), |function| functions.get(function).slice_name());
        let mut interned = Vec::new();
        put_entry(&mut interned, interned::EVENT_NAME, number, &name);
        if let Some(function) = what {
            self.details.put_interned(&mut interned, function, functions);
        }
        interned
    }

    #[cold]
    fn put_first_begin(
        &mut self,
        bytes: &mut Vec<u8>,
        at_ns: u64,
        number: u64,
        what: Option<FunctionId>,
        functions: &Functions<'_>,
    ) {
        let interned = self.first_use(number, what, functions);
        let annotations = self.details.annotations(what).to_vec();
        self.put_large(bytes, at_ns, |packet| {
            packet.bytes(packet::INTERNED, &interned);
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, event::BEGIN);
                event.number(event::NAME_NUMBER, number);
                event.extend_from_slice(&annotations);
            });
        });
    }

    /// Writes interned data in a packet of its own, if there is any.
    fn put_interned(&self, bytes: &mut Vec<u8>, interned: &[u8]) {
        if !interned.is_empty() {
            put_packet(bytes, |packet| {
                packet.extend_from_slice(&self.sequence_field);
                packet.bytes(packet::INTERNED, interned);
            });
        }
    }

    /// Writes the begin of a call that a jump made, with the arrow to it.
    fn put_tail_call(
        &mut self,
        bytes: &mut Vec<u8>,
        at_ns: u64,
        what: Option<FunctionId>,
        jumps: &Jumps,
        functions: &Functions<'_>,
    ) {
        let Some(tail) = jumps.tail else { return self.put_begin(bytes, at_ns, what, functions) };
        let number = number_of(what);
        let mut interned = Vec::new();
        if self.named_in.get(number as usize) != Some(&self.sequence) {
            interned = self.first_use(number, what, functions);
        }
        self.details.put_jumps(&mut interned, self.sequence, tail.of, functions);
        self.put_interned(bytes, &interned);
        let packet = self.open_small(bytes, at_ns);
        let event = open_small(bytes, packet::TRACK_EVENT);
        bytes.number(event::TYPE, event::BEGIN);
        bytes.number(event::NAME_NUMBER, number);
        if let Some(chain) = jumps.arrives_by {
            bytes.fixed64(event::FLOW, chain);
        }
        put_tail(bytes, tail);
        bytes.extend_from_slice(self.details.annotations(what));
        close_small(bytes, event);
        close_small(bytes, packet);
    }

    #[inline]
    fn put_end(
        &mut self,
        bytes: &mut Vec<u8>,
        at_ns: u64,
        (slice, bars): (&Slice, Option<Bars>),
        pen: &Pen,
        source: &impl Source,
    ) {
        let jumps = pen.jumps();
        let arrow = jumps.leaves_by.filter(|_| slice.has_jumps && jumps.arrives_by.is_none());
        let is_whole = !slice.start_cut
            && !slice.caller_unsure
            && slice.moved.is_none()
            && slice.what.is_some()
            && bars.is_none()
            && !slice.has_labels
            && !slice.values.are_any();
        let jumped = slice.how == EndKind::Jumped;
        if !is_whole || slice.how != EndKind::Returned && !jumped {
            let labels = slice.has_labels.then(|| pen.labels());
            return self.put_end_with_remarks(bytes, at_ns, (slice, bars), (labels, arrow), source);
        }
        if !jumped && self.calls.put_end(bytes, at_ns.saturating_sub(self.now_ns)) {
            self.now_ns = at_ns;
            return;
        }
        if jumped {
            let mut interned = Vec::new();
            self.details.put_jumped(&mut interned, self.sequence);
            self.put_interned(bytes, &interned);
        }
        let packet = self.open_small(bytes, at_ns);
        let event = open_small(bytes, packet::TRACK_EVENT);
        bytes.number(event::TYPE, event::END);
        if jumped {
            if let Some(chain) = arrow {
                bytes.fixed64(event::FLOW, chain);
            }
            put_jumped(bytes);
        }
        close_small(bytes, event);
        close_small(bytes, packet);
    }

    #[cold]
    fn put_end_with_remarks(
        &mut self,
        bytes: &mut Vec<u8>,
        at_ns: u64,
        (slice, bars): (&Slice, Option<Bars>),
        (labels, arrow): (Option<&Labels>, Option<u64>),
        source: &impl Source,
    ) {
        self.put_large(bytes, at_ns, |packet| {
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, event::END);
                if let Some(chain) = arrow {
                    event.fixed64(event::FLOW, chain);
                }
                if slice.what.is_none() {
                    put_number(event, "calls", slice.calls);
                }
                put_remarks(event, text::remarks(slice.start_cut, slice.caller_unsure, slice.how));
                put_call_values(event, slice.values, source);
                if let Some(labels) = labels {
                    put_labels(event, labels, source);
                }
                if let Some((start_ns, dur_ns)) = slice.moved {
                    put_number(event, "true_start_ns", start_ns);
                    put_number(event, "true_dur_ns", dur_ns);
                }
                if let Some(bars) = bars {
                    put_number(event, text::DUR_LOW, bars.low);
                    put_number(event, text::DUR_HIGH, bars.high);
                }
            });
        });
    }

    fn put_point(&mut self, bytes: &mut Vec<u8>, point: &Point, functions: &Functions<'_>) {
        let (what, detail) = text::point(point, functions);
        self.put_large(bytes, point.at_ns, |packet| {
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, event::INSTANT);
                event.text(event::NAME, &what);
                if let Some(count) = point.count {
                    put_number(event, "count", count);
                }
                put_text(event, text::detail_key(point), detail);
            });
        });
    }

    fn put_gap(&mut self, bytes: &mut Vec<u8>, gap: &Gap) {
        self.put_large(bytes, gap.at_ns, |packet| {
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, event::BEGIN);
                event.text(event::NAME, text::gap_name(gap.why));
                put_text(event, "why", text::gap_reason(gap.why));
                if let Some(thread) = gap.resumed_by {
                    put_number(event, text::RESUMED_BY, thread.into());
                }
            });
        });
        self.put_large(bytes, gap.until_ns, |packet| {
            packet.message(packet::TRACK_EVENT, |event| event.number(event::TYPE, event::END));
        });
    }

    fn put_untraced(&mut self, bytes: &mut Vec<u8>, slice: &UntracedSlice, name: &str) {
        self.put_large(bytes, slice.at_ns, |packet| {
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, event::BEGIN);
                event.text(event::NAME, name);
                put_text(event, text::NOT_MEASURED, text::UNTRACED);
            });
        });
        self.put_large(bytes, slice.until_ns, |packet| {
            packet.message(packet::TRACK_EVENT, |event| event.number(event::TYPE, event::END));
        });
    }

    fn put_mark(&mut self, bytes: &mut Vec<u8>, mark: &Mark, source: &impl Source) {
        let (category, kind) = match mark.kind {
            MarkKind::Label => ("label", event::INSTANT),
            MarkKind::Instant => ("instant", event::INSTANT),
            MarkKind::Wake | MarkKind::Step => ("task", event::INSTANT),
            MarkKind::Throw | MarkKind::Catch => ("exception", event::INSTANT),
            MarkKind::Counter | MarkKind::CounterReal => return self.put_counter(bytes, mark, source),
            MarkKind::Log => ("log", event::INSTANT),
            MarkKind::Output(_) => ("output", event::INSTANT),
            MarkKind::OrphanSpanEnd => ("span", event::INSTANT),
            MarkKind::SpanBegin { .. } => ("span", event::BEGIN),
            MarkKind::SpanEnd { .. } => ("span", event::END),
        };
        let track = match mark.kind {
            MarkKind::SpanBegin { span, .. } => Some(self.take_lane(bytes, span)),
            MarkKind::SpanEnd { span, .. } => match self.lanes.taken.remove(&span) {
                Some(lane) => {
                    self.lanes.free.insert(lane);
                    Some(self.lane_uuid(lane))
                }
                None => return,
            },
            _ => None,
        };
        let arrow = text::arrow_of(mark, self.pid);
        self.put_large(bytes, mark.at_ns, |packet| {
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, kind);
                if let Some(uuid) = track {
                    event.number(event::TRACK, uuid);
                }
                if let MarkKind::SpanEnd { start_cut, how, .. } = mark.kind {
                    return put_remarks(event, text::span_remarks(start_cut, how));
                }
                event.text(event::CATEGORY, category);
                event.text(event::NAME, &text::mark_title(source, mark));
                if let Some(arrow) = arrow {
                    event.fixed64(event::FLOW, arrow);
                }
                if let Some((task, step)) = mark.task_step() {
                    put_number(event, "task", task.into());
                    put_number(event, "step", step.into());
                } else if mark.value.is_some() {
                    event.message(event::ANNOTATION, |annotation| {
                        let is_output = matches!(mark.kind, MarkKind::Output(_));
                        annotation.text(annotation::NAME, if is_output { "line" } else { "value" });
                        put_value(annotation, mark.value);
                    });
                }
                if let MarkKind::Output(stream) = mark.kind {
                    put_text(event, "stream", stream.name());
                }
                if mark.kind == MarkKind::OrphanSpanEnd {
                    put_text(event, "remark", text::ORPHAN_SPAN_END);
                }
            });
        });
    }

    /// Writes a value of a counter to the track that all threads of the process share.
    fn put_counter(&mut self, bytes: &mut Vec<u8>, mark: &Mark, source: &impl Source) {
        let name = text::mark_name(source, mark.name);
        let next = self.counters.len() as u64;
        let number = *self.counters.entry((self.pid, mark.name)).or_insert(next);
        let uuid = COUNTERS | number;
        if number == next {
            put_packet(bytes, |packet| {
                packet.extend_from_slice(&self.sequence_field);
                packet.message(packet::TRACK, |track| {
                    track.number(1, uuid);
                    track.text(2, name);
                    track.number(5, self.pid.into());
                    track.message(8, |_| {});
                });
            });
        }
        let Some(value) = mark.value else { return };
        self.put_large(bytes, mark.at_ns, |packet| {
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, event::COUNTER);
                event.number(event::TRACK, uuid);
                match mark.kind {
                    MarkKind::CounterReal => event.fixed64(event::REAL_VALUE, value),
                    _ => event.number(event::VALUE, value),
                }
            });
        });
    }

    /// The track for a span that begins: the first free one.
    fn take_lane(&mut self, bytes: &mut Vec<u8>, span: u32) -> u64 {
        let lane = self.lanes.free.pop_first().unwrap_or_else(|| {
            let lane = self.lanes.count;
            self.lanes.count += 1;
            let (uuid, parent) = (self.lane_uuid(lane), self.uuid());
            put_packet(bytes, |packet| {
                packet.extend_from_slice(&self.sequence_field);
                packet.message(packet::TRACK, |track| {
                    track.number(1, uuid);
                    track.text(2, "spans");
                    track.number(5, parent);
                });
            });
            lane
        });
        self.lanes.taken.insert(span, lane);
        self.lane_uuid(lane)
    }

    /// Differs from those of threads and processes.
    fn lane_uuid(&self, lane: u64) -> u64 {
        self.sequence | (2 + lane) << 32
    }

    fn put_large(&mut self, bytes: &mut Vec<u8>, at_ns: u64, build: impl FnOnce(&mut Vec<u8>)) {
        let delta_ns = self.advance(at_ns);
        put_packet(bytes, |packet| {
            packet.number(packet::TIMESTAMP, delta_ns);
            packet.extend_from_slice(&self.sequence_field);
            build(packet);
        });
    }

    /// Writes a packet of less than 128 bytes in place.
    #[inline]
    fn open_small(&mut self, bytes: &mut Vec<u8>, at_ns: u64) -> usize {
        let delta_ns = self.advance(at_ns);
        let start = open_small(bytes, packet::PACKET);
        bytes.number(packet::TIMESTAMP, delta_ns);
        bytes.extend_from_slice(&self.sequence_field);
        start
    }

    #[inline]
    fn advance(&mut self, at_ns: u64) -> u64 {
        let delta_ns = at_ns.saturating_sub(self.now_ns);
        self.now_ns = at_ns;
        delta_ns
    }
}

/// Number of a slice's name.
#[inline]
fn number_of(what: Option<FunctionId>) -> u64 {
    what.map_or(NAME_DEEPER, |function| NAME_DEEPER + 1 + function.index() as u64)
}
