//! Traces as one table: a row for each call, made when it ends, and rows for everything else that
//! the trace has. Parquet files and SQL have it; `docs/reference/parquet.md` says what the columns
//! mean.

use everycall_timeline::{Bars, EndKind, Gap, GapKind, Mark, MarkKind, ValuesNumber};

use crate::driver::ThreadEvents;
use crate::filter::Filter;
use crate::filtered::{Event, Point, PointKind};
use crate::names::{FunctionId, Functions, Names};
use crate::off_cpu::OffCpu;
use crate::source::{Source, Times};
use crate::text;
use everycall_calls::CallValues;
use everycall_calls::Window;

/// The kind of rows of calls.
pub const CALL: &str = "call";

/// A row, without what all rows of its thread have. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// [`CALL`], or another of the kinds in `docs/reference/csv.md`.
    pub kind: &'static str,
    /// Of calls: their number, in the order of begins in each thread.
    pub id: Option<i64>,
    /// The number of the call around it.
    pub parent: Option<i64>,
    /// Number of calls around it.
    pub depth: i32,
    /// Of calls: number of open calls of the same function around it.
    pub recursion: Option<i32>,
    /// When it began, since the trace's origin.
    pub start_ns: i64,
    /// When it began in real time, where times are shown so.
    pub start_realtime_ns: Option<i64>,
    /// How long it took.
    pub duration_ns: Option<i64>,
    /// Of calls: without their callees, and without times in which their stack was suspended.
    pub own_ns: Option<i64>,
    /// Of calls, in traces whose events may have no times of their own: how long it took at least.
    pub duration_low_ns: Option<i64>,
    /// Of calls, in traces whose events may have no times of their own: how long it took at most.
    pub duration_high_ns: Option<i64>,
    /// Its subject.
    pub what: RowSubject,
    /// A count or value.
    pub value: Option<i64>,
    /// A value that is no integer.
    pub real_value: Option<f64>,
    /// How long the thread was blocked.
    pub blocked_ns: Option<i64>,
    /// How long it could have run, and didn't.
    pub runnable_ns: Option<i64>,
    /// The thread that woke it, or resumed its stack.
    pub other_tid: Option<i64>,
    /// Of calls: their arguments.
    pub arguments: Option<ValuesNumber>,
    /// Of calls: their result.
    pub result: Option<ValuesNumber>,
    /// Its remarks, separated by `; `.
    pub remarks: Option<String>,
}

/// The subject of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RowSubject {
    /// Nothing that has a name.
    #[default]
    Nothing,
    /// A function: see [`Rows::function`].
    Function(FunctionId),
    /// Something else, by its name.
    Text(String),
}

/// A function of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFunction<'a> {
    /// Its displayed name.
    pub name: &'a str,
    /// File name of its module, if it has one.
    pub module: Option<&'a str>,
    /// Path of its source file, if known.
    pub file: Option<&'a str>,
    /// Line of its declaration, if known.
    pub line: Option<u32>,
}

impl<'a> RowFunction<'a> {
    pub(crate) fn of(id: FunctionId, functions: &'a Functions<'_>) -> Self {
        let function = functions.get(id);
        RowFunction {
            name: &function.name,
            module: Some(function.module.as_str()).filter(|name| !name.is_empty()),
            file: function.file.as_deref(),
            line: function.line,
        }
    }
}

/// A call that has ended, as a row has it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) function: FunctionId,
    pub(crate) id: i64,
    pub(crate) parent: Option<i64>,
    pub(crate) depth: i32,
    pub(crate) recursion: i32,
    pub(crate) start_ns: i64,
    pub(crate) start_realtime_ns: Option<i64>,
    pub(crate) duration_ns: i64,
    pub(crate) own_ns: i64,
    /// Where events may have no times of their own: least and largest duration.
    pub(crate) bounds_ns: Option<(i64, i64)>,
    pub(crate) values: CallValues,
    pub(crate) remarks: Option<String>,
}

impl From<Call> for Row {
    #[inline]
    fn from(call: Call) -> Row {
        Row {
            kind: CALL,
            id: Some(call.id),
            parent: call.parent,
            depth: call.depth,
            recursion: Some(call.recursion),
            start_ns: call.start_ns,
            start_realtime_ns: call.start_realtime_ns,
            duration_ns: Some(call.duration_ns),
            own_ns: Some(call.own_ns),
            duration_low_ns: call.bounds_ns.map(|(low, _)| low),
            duration_high_ns: call.bounds_ns.map(|(_, high)| high),
            what: RowSubject::Function(call.function),
            value: None,
            real_value: None,
            blocked_ns: None,
            runnable_ns: None,
            other_tid: None,
            arguments: call.values.arguments,
            result: call.values.result,
            remarks: call.remarks,
        }
    }
}

struct Open {
    id: i64,
    start_ns: u64,
    /// Time in its callees, and in which its stack was suspended.
    inner_ns: u64,
}

/// Makes rows of a thread's events.
#[derive(Default)]
pub(crate) struct RowMaker {
    /// By function: its open calls.
    recursion: Vec<i32>,
    open: Vec<Open>,
    /// The number of the call that began last.
    last_id: i64,
}

impl RowMaker {
    /// Another thread's events follow.
    pub(crate) fn thread(&mut self) {
        self.open.clear();
        self.recursion.clear();
    }

    /// The row that an event ends; `None` where a call begins, for example.
    #[inline]
    pub(crate) fn row(
        &mut self,
        (event, bars): (&Event, Option<Bars>),
        functions: &Functions<'_>,
        source: &impl Source,
    ) -> Option<Row> {
        let row = match event {
            Event::Begin { .. } | Event::End { .. } => {
                return self.call((event, bars), source).map(Row::from);
            }
            Event::Point(point) => Some(self.point(point, functions)),
            Event::Mark(mark) => self.mark(mark, source),
            Event::Gap(gap) => Some(self.gap(gap)),
            Event::ShortSuspension(gap) => {
                _ = self.gap(gap);
                None
            }
            Event::OffCpu(off) => Some(self.off_cpu(off)),
            Event::Untraced(slice) => Some(Row {
                duration_ns: Some(slice.until_ns.saturating_sub(slice.at_ns).cast_signed()),
                what: RowSubject::Function(slice.function),
                remarks: Some(text::UNTRACED.to_owned()),
                ..self.plain("untraced", slice.at_ns)
            }),
        };
        let mut row = row?;
        row.start_realtime_ns = start_realtime_ns(row.start_ns, source);
        Some(row)
    }

    /// The call that an event ends; `None` if it ends none.
    #[inline]
    pub(crate) fn call(
        &mut self,
        (event, bars): (&Event, Option<Bars>),
        source: &impl Source,
    ) -> Option<Call> {
        let (function, start_ns, end_ns, start, how) = match *event {
            Event::Begin { function, start_ns, .. } => {
                *self.recursion(function) += 1;
                self.last_id += 1;
                self.open.push(Open { id: self.last_id, start_ns, inner_ns: 0 });
                return None;
            }
            Event::End { function, start_ns, end_ns, start, how } => (function, start_ns, end_ns, start, how),
            _ => return None,
        };
        let Open { id, inner_ns, .. } = self.open.pop()?;
        let duration_ns = end_ns.saturating_sub(start_ns);
        let caller = self.open.last_mut();
        let parent = caller.as_ref().map(|caller| caller.id);
        if let Some(caller) = caller {
            caller.inner_ns = caller.inner_ns.saturating_add(duration_ns);
        }
        let recursion = self.recursion(function);
        *recursion = recursion.saturating_sub(1);
        let recursion = *recursion;
        let is_whole = !start.cut && !start.caller_unsure && how == EndKind::Returned;
        let remarks = || joined(text::remarks(start.cut, start.caller_unsure, how));
        let start_ns = start_ns.cast_signed();
        let bars = bars.or_else(|| source.has_bounds().then_some(Bars::exact(duration_ns)));
        Some(Call {
            function,
            id,
            parent,
            depth: self.depth(),
            recursion,
            start_ns,
            start_realtime_ns: start_realtime_ns(start_ns, source),
            duration_ns: duration_ns.cast_signed(),
            own_ns: duration_ns.saturating_sub(inner_ns).cast_signed(),
            values: start.values,
            bounds_ns: bars.map(|bars| (bars.low.cast_signed(), bars.high.cast_signed())),
            remarks: if is_whole { None } else { remarks() },
        })
    }

    #[inline]
    fn depth(&self) -> i32 {
        i32::try_from(self.open.len()).unwrap_or(i32::MAX)
    }

    /// A row at this depth, with the columns that all rows have.
    #[inline]
    fn plain(&self, kind: &'static str, start_ns: u64) -> Row {
        Row {
            kind,
            id: None,
            parent: self.open.last().map(|open| open.id),
            depth: self.depth(),
            recursion: None,
            start_ns: start_ns.cast_signed(),
            start_realtime_ns: None,
            duration_ns: None,
            own_ns: None,
            duration_low_ns: None,
            duration_high_ns: None,
            what: RowSubject::Nothing,
            value: None,
            real_value: None,
            blocked_ns: None,
            runnable_ns: None,
            other_tid: None,
            arguments: None,
            result: None,
            remarks: None,
        }
    }

    #[inline]
    fn recursion(&mut self, id: FunctionId) -> &mut i32 {
        if self.recursion.len() <= id.index() {
            self.recursion.resize(id.index() + 1, 0);
        }
        &mut self.recursion[id.index()]
    }

    fn point(&self, point: &Point, functions: &Functions<'_>) -> Row {
        let (kind, function) = match point.kind {
            PointKind::Lost(_) => ("lost", None),
            PointKind::OrphanExit(function) => ("orphan exit", Some(function)),
            PointKind::LeftOut => ("left out", None),
            PointKind::Dropped => ("dropped", None),
        };
        let (_, detail) = text::point(point, functions);
        Row {
            value: point.count.map(u64::cast_signed),
            what: function.map_or(RowSubject::Nothing, RowSubject::Function),
            remarks: function.is_none().then(|| detail.to_owned()),
            ..self.plain(kind, point.at_ns)
        }
    }

    fn mark(&self, mark: &Mark, source: &impl Source) -> Option<Row> {
        let (kind, start) = text::mark_kind(mark)?;
        let name = match mark.kind {
            MarkKind::Throw | MarkKind::Catch => text::type_name(source.mark_name(mark.name)),
            _ => Some(text::mark_title(source, mark).into_owned()),
        };
        let is_real = mark.kind == MarkKind::CounterReal;
        let plain = self.plain(kind, start.map_or(mark.at_ns, |(start_ns, ..)| start_ns));
        Some(Row {
            what: name.map_or(RowSubject::Nothing, RowSubject::Text),
            value: mark.value.filter(|_| !is_real).map(u64::cast_signed),
            real_value: mark.value.filter(|_| is_real).map(f64::from_bits),
            duration_ns: start.map(|(start_ns, ..)| mark.at_ns.saturating_sub(start_ns).cast_signed()),
            remarks: start.and_then(|(_, cut, how)| joined(text::span_remarks(cut, how))),
            ..plain
        })
    }

    fn gap(&mut self, gap: &Gap) -> Row {
        let length_ns = gap.until_ns.saturating_sub(gap.at_ns);
        let is_suspended = gap.why == GapKind::Suspended;
        if let Some(open) = self.open.last_mut().filter(|_| is_suspended) {
            open.inner_ns = open.inner_ns.saturating_add(length_ns);
        }
        Row {
            duration_ns: Some(length_ns.cast_signed()),
            other_tid: gap.resumed_by.map(i64::from),
            remarks: joined(std::iter::once(text::gap_reason(gap.why))),
            ..self.plain(if is_suspended { "suspended" } else { "not recorded" }, gap.at_ns)
        }
    }

    fn off_cpu(&self, off: &OffCpu) -> Row {
        let states: Vec<_> = off.parts_in_words().map(|(state, _)| state).collect();
        Row {
            duration_ns: Some(off.until_ns.saturating_sub(off.at_ns).cast_signed()),
            blocked_ns: Some(off.times.blocked.cast_signed()),
            runnable_ns: Some(off.times.runnable.cast_signed()),
            other_tid: off.woken_by.map(i64::from),
            remarks: joined(states.iter().map(AsRef::as_ref)),
            ..self.plain("off cpu", off.at_ns)
        }
    }
}

/// A row's begin in real time, where times are shown so.
#[inline]
fn start_realtime_ns(start_ns: i64, source: &impl Source) -> Option<i64> {
    match source.times() {
        Times::Wall(_) => source.realtime_ns(start_ns.cast_unsigned()).map(u64::cast_signed),
        _ => None,
    }
}

/// Several texts as one.
#[inline]
fn joined<'t>(texts: impl Iterator<Item = &'t str>) -> Option<String> {
    let mut joined = String::new();
    for text in texts {
        if !joined.is_empty() {
            joined.push_str("; ");
        }
        joined.push_str(text);
    }
    (!joined.is_empty()).then_some(joined)
}

/// Puts the next event, and the duration of the call that it ends if that isn't known exactly.
type NextEvent<'a> = Box<dyn FnMut(&mut Functions<'_>, &mut Event, &mut Option<Bars>) -> bool + 'a>;

/// The rows of one thread after the other, as the caller asks for them.
pub struct Rows<'a, S> {
    source: &'a S,
    filter: &'a Filter,
    window: Window,
    functions: Functions<'a>,
    maker: RowMaker,
    events: Option<NextEvent<'a>>,
}

impl<'a, S: Source> Rows<'a, S> {
    /// Rows of the events that pass `filter`.
    #[must_use]
    pub fn new(source: &'a S, names: &'a dyn Names, filter: &'a Filter) -> Self {
        Rows {
            source,
            filter,
            window: filter.window(source),
            functions: Functions::new(names, filter.function.as_ref()),
            maker: RowMaker::default(),
            events: None,
        }
    }

    /// The rows of the thread at `index` in [`Source::threads`] follow. Its first call has the
    /// number behind `last_id`.
    pub fn enter(&mut self, index: usize, last_id: i64) {
        self.maker.thread();
        self.maker.last_id = last_id;
        let thread = self.source.threads().get(index).filter(|thread| self.filter.admits_thread(thread));
        self.events = thread.map(|thread| {
            let mut events = ThreadEvents::new(self.source, self.filter, self.window, index, thread);
            Box::new(move |functions: &mut Functions<'_>, out: &mut Event, bars: &mut Option<Bars>| {
                let any = events.next(functions, out);
                *bars = events.bars();
                any
            }) as NextEvent<'a>
        });
    }

    /// The next row of the thread.
    #[inline]
    pub fn next_row(&mut self) -> Option<Row> {
        let events = self.events.as_mut()?;
        let (mut event, mut bars) = (Event::default(), None);
        loop {
            if !events(&mut self.functions, &mut event, &mut bars) {
                self.events = None;
                return None;
            }
            if let Some(row) = self.maker.row((&event, bars), &self.functions, self.source) {
                return Some(row);
            }
        }
    }

    /// The number of the call that began last; at the thread's end, that of its last call.
    #[must_use]
    pub fn last_id(&self) -> i64 {
        self.maker.last_id
    }

    /// When the outermost open call began, or nothing can begin any more; `None` where none is
    /// open.
    #[must_use]
    pub fn outermost_start_ns(&self) -> Option<u64> {
        self.maker.open.first().map(|open| open.start_ns)
    }

    /// A function of a row.
    #[must_use]
    pub fn function(&self, id: FunctionId) -> RowFunction<'_> {
        RowFunction::of(id, &self.functions)
    }
}
