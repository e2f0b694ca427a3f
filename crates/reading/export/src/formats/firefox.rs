//! The Firefox Profiler's processed profile format.
//!
//! <https://github.com/firefox-devtools/profiler/blob/main/src/types/profile.ts>, version 70. Each
//! stack from one event to the next is a sample whose weight is its duration, as the profiler's own
//! import of traces makes them: so its stack chart shows each call, and its call tree and flame
//! graph have the exact times. Labels, log lines, losses and times off the CPU are markers. Other
//! than a crate's, these weights have fractions of milliseconds, and columns need not fit into
//! memory.

mod markers;
mod shared;

use std::io::{self, Write};

use everycall_timeline::Gap;

use crate::driver::{CallSums as _, Export, Sink, overwritten};
use crate::filtered::Event;
use crate::frames::Frame;
use crate::json::{put_number, put_string};
use crate::paths::{PathId, Paths};
use crate::portions::Portions;
use crate::source::Source;
use crate::spool::Spool;
use everycall_calls::Thread;

use self::markers::Markers;
use self::shared::{Strings, put_milliseconds};

/// The version of the format.
const VERSION: u64 = 70;
/// Threads that are drawn until the user chooses others.
const VISIBLE: u64 = 20;

/// The output.
pub(crate) struct Firefox<'o> {
    portions: Portions<'o>,
    /// All stacks.
    paths: Paths,
    strings: Strings,
    /// Columns of the thread's samples.
    stacks: Spool,
    times: Spool,
    weights: Spool,
    markers: Markers,
    /// The stack since `since_ns`.
    stack: Option<PathId>,
    since_ns: u64,
    threads: u64,
    /// Begin of the window.
    window_ns: u64,
    /// The time before the thread's oldest event, until it was written.
    overwritten: Option<Gap>,
}

impl<'o> Firefox<'o> {
    /// `window_ns` is the begin of the window.
    pub(crate) fn new(out: &'o mut dyn Write, window_ns: u64) -> Self {
        Firefox {
            portions: Portions::new(out),
            paths: Paths::default(),
            strings: Strings::default(),
            stacks: Spool::default(),
            times: Spool::default(),
            weights: Spool::default(),
            markers: Markers::default(),
            stack: None,
            since_ns: 0,
            threads: 0,
            window_ns,
            overwritten: None,
        }
    }

    /// The stack was what it was until now, and is another one from now on.
    #[inline]
    fn becomes(&mut self, stack: Option<PathId>, at_ns: u64) {
        if at_ns > self.since_ns {
            self.sample(at_ns - self.since_ns);
            self.since_ns = at_ns;
        }
        self.stack = stack;
    }

    /// A sample of the stack that began at `since_ns`; outside of all calls, it ends what was
    /// before.
    #[inline]
    fn sample(&mut self, weight_ns: u64) {
        match self.stack {
            Some(stack) => self.stacks.number(stack.into()),
            // Time outside of calls before the first one is nothing.
            None if self.stacks.items == 0 => return,
            None => self.stacks.item().extend_from_slice(b"null"),
        }
        put_milliseconds(self.times.item(), self.since_ns);
        put_milliseconds(self.weights.item(), if self.stack.is_some() { weight_ns } else { 0 });
    }
}

impl<'o, S: Source> Sink<'o, S> for Firefox<'o> {
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn begin(&mut self, _: &mut Export<'_, S>) {
        self.portions.put(b"{\"threads\":[");
    }

    fn thread(&mut self, export: &mut Export<'_, S>, index: usize, thread: &Thread) {
        self.overwritten = overwritten(export.source, index, self.window_ns);
        (self.stack, self.since_ns) = (None, 0);
        let program = export.source.processes().get(thread.process).map_or("", |process| &process.name);
        let name = if thread.name.is_empty() { program } else { &thread.name };
        let bytes = &mut self.portions.bytes;
        bytes.extend_from_slice(if self.threads == 0 { b"\n{\"name\":" } else { b",\n{\"name\":" });
        put_string(bytes, name);
        bytes.extend_from_slice(b",\"processName\":");
        put_string(bytes, program);
        bytes.extend_from_slice(b",\"processType\":\"default\",\"pid\":");
        put_string(bytes, &thread.pid.to_string());
        bytes.extend_from_slice(b",\"tid\":");
        put_number(bytes, thread.tid.into());
        bytes.extend_from_slice(b",\"isMainThread\":");
        bytes.extend_from_slice(if thread.pid == thread.tid { b"true" } else { b"false" });
        bytes.extend_from_slice(
            b",\"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":0,\"unregisterTime\":null,\
              \"pausedRanges\":[],\"showMarkersInTimeline\":true",
        );
        self.threads += 1;
    }

    #[inline]
    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        export.summary.event(event);
        if let Some(gap) = self.overwritten.take_if(|gap| event.at_ns() >= gap.until_ns) {
            let outer = self.paths.current();
            // Also outside of all calls.
            let leaf = Some(self.paths.called(Frame::of_gap(gap.why)));
            self.becomes(leaf, gap.at_ns);
            self.becomes(outer, gap.until_ns);
        }
        match *event {
            Event::Begin { start_ns: at_ns, .. } | Event::End { end_ns: at_ns, .. } => {
                self.paths.event(event);
                self.becomes(self.paths.current(), at_ns);
            }
            Event::Gap(gap) | Event::ShortSuspension(gap) => {
                let outer = self.paths.current();
                let leaf = self.paths.leaf(Frame::of_gap(gap.why));
                self.becomes(leaf, gap.at_ns);
                self.becomes(outer, gap.until_ns);
            }
            Event::Untraced(slice) => {
                let outer = self.paths.current();
                let leaf = self.paths.leaf(Frame::Function(slice.function));
                self.becomes(leaf, slice.at_ns);
                self.becomes(outer, slice.until_ns);
            }
            Event::Point(point) => {
                self.markers.point(&point, &export.functions, &mut self.strings);
            }
            Event::Mark(mark) => self.markers.mark(&mark, export.source, &mut self.strings),
            Event::OffCpu(off) => self.markers.off_cpu(&off, &mut self.strings),
        }
    }

    fn thread_end(&mut self, export: &mut Export<'_, S>) {
        // The last sample ends with its weight, and one without a stack shows it.
        if self.stacks.items > 0 {
            self.stack = None;
            self.sample(0);
        }
        let samples = self.stacks.items;
        let mut put = || {
            for (name, column) in [
                (&b",\n\"samples\":{\"stack\":"[..], &mut self.stacks),
                (b",\n\"time\":", &mut self.times),
                (b",\n\"weight\":", &mut self.weights),
            ] {
                self.portions.put(name);
                column.finish(&mut self.portions)?;
            }
            self.portions.put(b",\"weightType\":\"tracing-ms\",\"length\":");
            put_number(&mut self.portions.bytes, samples);
            self.portions.put(b"}");
            self.markers.finish(&mut self.portions)?;
            self.portions.put(b"}");
            self.portions.spill()
        };
        if let Err(error) = put() {
            export.failure.get_or_insert(error);
        }
    }

    fn end(&mut self, export: &mut Export<'_, S>) -> io::Result<()> {
        self.paths.count(&mut export.summary);
        self.portions.put(b"],\n\"libs\":[],\"pages\":[],\n\"shared\":");
        let modules = shared::put(&mut self.portions, &self.paths, &export.functions, &mut self.strings)?;
        self.portions.put(b",\n\"meta\":");
        let bytes = &mut self.portions.bytes;
        let program = export.source.processes().first().map_or("", |process| &process.name);
        bytes.extend_from_slice(b"{\"product\":");
        put_string(bytes, program);
        bytes.extend_from_slice(
            b",\"importedFrom\":\"everycall\",\"version\":36,\"preprocessedProfileVersion\":",
        );
        put_number(bytes, VERSION);
        bytes.extend_from_slice(b",\"interval\":0.000001,\"startTime\":");
        put_milliseconds(bytes, export.source.origin_realtime_ns().unwrap_or(0));
        bytes.extend_from_slice(
            b",\"processType\":0,\"stackwalk\":1,\"symbolicated\":true,\"symbolicationNotSupported\":true,\
              \"sourceCodeIsNotOnSearchfox\":true,\"usesOnlyOneStackType\":true,\"keepProfileThreadOrder\":true,\
              \"initialVisibleThreads\":[",
        );
        for thread in 0..self.threads.min(VISIBLE) {
            if thread > 0 {
                bytes.push(b',');
            }
            put_number(bytes, thread);
        }
        bytes.extend_from_slice(b"],\"extra\":[{\"label\":\"Recording\",\"entries\":[{\"label\":\"Missing events\",\"format\":\"integer\",\"value\":");
        put_number(bytes, export.summary.lost_events);
        bytes.extend_from_slice(b"}]}],\n\"categories\":");
        shared::put_categories(bytes, &modules);
        bytes.extend_from_slice(b",\n\"markerSchema\":");
        bytes.extend_from_slice(markers::SCHEMA.as_bytes());
        bytes.extend_from_slice(b"}}\n");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_lose_no_digit() {
        for (ns, text) in [(0, "0"), (7, "0.000007"), (1_234_567, "1.234567"), (5_000_000, "5")] {
            let mut bytes = Vec::new();
            put_milliseconds(&mut bytes, ns);
            assert_eq!(String::from_utf8(bytes).unwrap(), text);
        }
    }
}
