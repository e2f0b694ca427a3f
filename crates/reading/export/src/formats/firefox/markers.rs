//! Markers: what isn't a call.

use std::io;

use everycall_timeline::{Mark, MarkKind};

use super::shared::{Strings, put_milliseconds};
use crate::filtered::{Point, PointKind};
use crate::json::{put_number, put_string};
use crate::labels::put_mark_value;
use crate::names::Functions;
use crate::off_cpu::OffCpu;
use crate::portions::Portions;
use crate::source::Source;
use crate::spool::Spool;
use crate::text;

/// The profiler's schema of the markers.
pub(super) const SCHEMA: &str = r#"[
{"name":"mark","display":["marker-chart","marker-table","timeline-overview"],"tooltipLabel":"{marker.name}","tableLabel":"{marker.data.kind}: {marker.name} {marker.data.value}","chartLabel":"{marker.data.value}","fields":[{"key":"kind","label":"Kind","format":"string"},{"key":"value","label":"Value","format":"string"},{"key":"remarks","label":"Remarks","format":"string"}]},
{"name":"counter","display":["marker-table"],"tooltipLabel":"{marker.name}","tableLabel":"{marker.name} {marker.data.value}","fields":[{"key":"value","label":"Value","format":"decimal"}],"graphs":[{"key":"value","type":"line","color":"blue"}]},
{"name":"lost","display":["marker-chart","marker-table","timeline-overview"],"tooltipLabel":"{marker.name}","tableLabel":"{marker.name}: {marker.data.why}","chartLabel":"{marker.name}","fields":[{"key":"why","label":"Why","format":"string"}]},
{"name":"off_cpu","display":["marker-chart","marker-table"],"tooltipLabel":"Off the CPU","tableLabel":"Off the CPU","fields":[{"key":"blocked","label":"Blocked","format":"nanoseconds"},{"key":"runnable","label":"Runnable","format":"nanoseconds"},{"key":"blocked_in","label":"Blocked in","format":"string"},{"key":"woken_by","label":"Woken by thread","format":"string"}]}]"#;

/// The markers of a thread, by column.
#[derive(Default)]
pub(super) struct Markers {
    data: Spool,
    names: Spool,
    starts: Spool,
    ends: Spool,
    /// 0 at a moment, 1 from one to another.
    phases: Spool,
    categories: Spool,
}

impl Markers {
    fn add(&mut self, name: u64, at_ns: u64, until_ns: Option<u64>, data: impl FnOnce(&mut Vec<u8>)) {
        self.names.number(name);
        put_milliseconds(self.starts.item(), at_ns);
        put_milliseconds(self.ends.item(), until_ns.unwrap_or(at_ns));
        self.phases.number(u64::from(until_ns.is_some()));
        self.categories.number(0);
        data(self.data.item());
    }

    pub(super) fn point(&mut self, point: &Point, functions: &Functions<'_>, strings: &mut Strings) {
        let (what, detail) = text::point(point, functions);
        let name = match point.kind {
            PointKind::OrphanExit(_) => strings.number("orphan exit"),
            _ => strings.number(&what),
        };
        self.add(name, point.at_ns, None, |data| {
            data.extend_from_slice(b"{\"type\":\"lost\",\"why\":");
            put_string(data, detail);
            data.push(b'}');
        });
    }

    pub(super) fn mark(&mut self, mark: &Mark, source: &impl Source, strings: &mut Strings) {
        let Some((kind, start)) = text::mark_kind(mark) else { return };
        let title = text::mark_title(source, mark);
        let is_log = matches!(mark.kind, MarkKind::Log | MarkKind::Output(_));
        // Lines of a log are values: there are as many as lines.
        let name = strings.number(if is_log { kind } else { &title });
        let (at_ns, until_ns) =
            start.map_or((mark.at_ns, None), |(start_ns, ..)| (start_ns, Some(mark.at_ns)));
        self.add(name, at_ns, until_ns, |data| {
            if let MarkKind::Counter | MarkKind::CounterReal = mark.kind {
                data.extend_from_slice(b"{\"type\":\"counter\",\"value\":");
                put_mark_value(data, mark);
                data.push(b'}');
                return;
            }
            data.extend_from_slice(b"{\"type\":\"mark\",\"kind\":");
            put_string(data, kind);
            data.extend_from_slice(b",\"value\":");
            let value = text::mark_value(mark);
            put_string(data, if is_log { &title } else { value.as_deref().unwrap_or("") });
            if let Some((_, start_cut, how)) = start {
                let remarks: Vec<&str> = text::span_remarks(start_cut, how).collect();
                data.extend_from_slice(b",\"remarks\":");
                put_string(data, &remarks.join("; "));
            }
            data.push(b'}');
        });
    }

    pub(super) fn off_cpu(&mut self, off: &OffCpu, strings: &mut Strings) {
        let name = strings.number("off the CPU");
        self.add(name, off.at_ns, Some(off.until_ns), |data| {
            data.extend_from_slice(b"{\"type\":\"off_cpu\",\"blocked\":");
            put_number(data, off.times.blocked);
            data.extend_from_slice(b",\"runnable\":");
            put_number(data, off.times.runnable);
            if let Some(call) = off.blocked_in {
                data.extend_from_slice(b",\"blocked_in\":");
                put_string(data, call);
            }
            if let Some(thread) = off.woken_by {
                data.extend_from_slice(b",\"woken_by\":");
                put_string(data, &thread.to_string());
            }
            data.push(b'}');
        });
    }

    /// Writes the thread's markers.
    pub(super) fn finish(&mut self, out: &mut Portions<'_>) -> io::Result<()> {
        let count = self.names.items;
        for (name, column) in [
            (&b",\n\"markers\":{\"data\":"[..], &mut self.data),
            (b",\n\"name\":", &mut self.names),
            (b",\n\"startTime\":", &mut self.starts),
            (b",\n\"endTime\":", &mut self.ends),
            (b",\n\"phase\":", &mut self.phases),
            (b",\n\"category\":", &mut self.categories),
        ] {
            out.put(name);
            column.finish(out)?;
        }
        out.put(b",\"length\":");
        put_number(&mut out.bytes, count);
        out.put(b"}");
        Ok(())
    }
}
