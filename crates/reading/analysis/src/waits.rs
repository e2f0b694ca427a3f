//! Whom calls wait for (`everycall record --waits`): the names of the locks whose addresses are in
//! labels, and what the threads that held them were doing.

use std::collections::HashMap;

use everycall_timeline::{Location, Mark, MarkKind, MarkName, ThreadInfo, TimelineEvent, Trace};

use crate::names::{SymbolNames, WAITS_LIBRARY};

/// Its label with the thread that holds a lock.
const HOLDER: &str = "held by";
/// Its labels with the address of what a call waits for.
const OBJECTS: [&str; 5] = ["lock", "condition", "semaphore", "barrier", "futex"];
/// The first number of the texts here, downwards. No name of the program has one like it.
const FIRST: u32 = u32::MAX - 1;

/// Texts that labels of waiting calls refer to.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    texts: Vec<String>,
    numbers: HashMap<String, MarkName>,
    /// By the thread's index in the trace, and the moment of the label.
    of_labels: HashMap<(usize, u64, MarkName), MarkName>,
}

/// A label that names the holder of a lock.
struct Moment {
    /// The thread that waits.
    waiting: usize,
    label: MarkName,
    at_ns: u64,
}

/// By the holder's process and thread.
type Moments = HashMap<(usize, u32), Vec<Moment>>;

impl Waits {
    /// Looks all of them up. Reads the events only if the trace has calls of the library.
    pub(crate) fn of(trace: &Trace<'_>, names: &SymbolNames<'_>) -> Waits {
        let mut waits = Waits::default();
        let is_there = trace.modules().iter().any(|module| is_library(&module.path));
        if !is_there {
            return waits;
        }
        let named = |wanted: &str| {
            let mut all = trace.mark_names().all().iter().zip(0..);
            all.find(|(marks, _)| marks.labels > 0 && marks.name == wanted).map(|(_, at)| MarkName(at))
        };
        let holder = named(HOLDER);
        let objects: Vec<MarkName> = OBJECTS.iter().filter_map(|name| named(name)).collect();
        if holder.is_none() && objects.is_empty() {
            return waits;
        }
        let mut moments = Moments::new();
        for thread in trace.threads() {
            waits.look_at(trace, names, thread, (holder, &objects), &mut moments);
        }
        moments.values_mut().for_each(|moments| moments.sort_by_key(|moment| moment.at_ns));
        for thread in trace.threads().iter().filter(|thread| thread.fiber.is_none()) {
            if let Some(moments) = moments.get(&(thread.process, thread.tid)) {
                waits.look_at_holder(trace, names, thread, moments);
            }
        }
        waits
    }

    /// The label that follows a label of a thread: the name of its object, or what the holder was
    /// doing.
    pub(crate) fn of_label(&self, thread: usize, mark: &Mark) -> Option<Mark> {
        if mark.kind != MarkKind::Label || self.of_labels.is_empty() {
            return None;
        }
        let name = *self.of_labels.get(&(thread, mark.at_ns, mark.name))?;
        Some(Mark { at_ns: mark.at_ns, name, value: None, kind: MarkKind::Label })
    }

    /// The text of a name that [`Waits::of_label`] returned.
    pub(crate) fn text(&self, name: MarkName) -> Option<&str> {
        self.texts.get(FIRST.checked_sub(name.0)? as usize).map(String::as_str)
    }

    fn name_of(&mut self, text: String) -> Option<MarkName> {
        if let Some(name) = self.numbers.get(&text) {
            return Some(*name);
        }
        let name = MarkName(FIRST.checked_sub(u32::try_from(self.texts.len()).ok()?)?);
        self.texts.push(text.clone());
        self.numbers.insert(text, name);
        Some(name)
    }

    /// Names the objects of a thread's calls, and collects the moments of holders.
    fn look_at(
        &mut self,
        trace: &Trace<'_>,
        names: &SymbolNames<'_>,
        thread: &ThreadInfo,
        (holder, objects): (Option<MarkName>, &[MarkName]),
        moments: &mut Moments,
    ) {
        let mut stack = Vec::new();
        for event in trace.thread_events_checked(thread.index, Some(names)) {
            let mark = match event {
                TimelineEvent::Begin(begin) => {
                    stack.push(begin.location);
                    continue;
                }
                TimelineEvent::End(_) => {
                    stack.pop();
                    continue;
                }
                TimelineEvent::Mark(mark) if mark.kind == MarkKind::Label => mark,
                _ => continue,
            };
            let (Some(call), Some(value)) = (stack.last(), mark.value) else { continue };
            if !is_of_library(trace, *call) {
                continue;
            }
            if Some(mark.name) == holder {
                let tid = u32::try_from(value).unwrap_or(0);
                let moment = Moment { waiting: thread.index, label: mark.name, at_ns: mark.at_ns };
                moments.entry((thread.process, tid)).or_default().push(moment);
            } else if objects.contains(&mark.name) {
                let ticks = trace.clock().ticks(mark.at_ns);
                let place = trace.locate_address(thread.process, value, ticks);
                let variable = place.and_then(|place| names.variable(place));
                let text = variable.map(|name| format!("{}: {name}", trace.mark_names().text(mark.name)));
                let name = text.and_then(|text| self.name_of(text));
                if let Some(name) = name {
                    self.of_labels.insert((thread.index, mark.at_ns, mark.name), name);
                }
            }
        }
    }

    /// Names the calls of a thread at the moments at which others waited for it, sorted by time.
    fn look_at_holder(
        &mut self,
        trace: &Trace<'_>,
        names: &SymbolNames<'_>,
        thread: &ThreadInfo,
        moments: &[Moment],
    ) {
        let mut stack: Vec<Location> = Vec::new();
        let mut moments = moments.iter().peekable();
        let mut events = trace.thread_events_checked(thread.index, Some(names));
        while let Some(moment) = moments.peek() {
            let event = events.next();
            let at_ns = match &event {
                Some(TimelineEvent::Begin(begin)) => begin.start_ns,
                Some(TimelineEvent::End(end)) => end.end_ns,
                Some(_) => continue,
                None => u64::MAX,
            };
            if moment.at_ns < at_ns {
                let name = doing(trace, names, &stack).and_then(|text| self.name_of(text));
                while let Some(moment) = moments.next_if(|moment| moment.at_ns < at_ns) {
                    if let Some(name) = name {
                        self.of_labels.insert((moment.waiting, moment.at_ns, moment.label), name);
                    }
                }
            }
            match event {
                Some(TimelineEvent::Begin(begin)) => stack.push(begin.location),
                Some(TimelineEvent::End(_)) => drop(stack.pop()),
                _ => {}
            }
        }
    }
}

fn is_library(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next() == Some(WAITS_LIBRARY.as_bytes())
}

fn is_of_library(trace: &Trace<'_>, location: Location) -> bool {
    let module = location.module_index().and_then(|index| trace.modules().get(index));
    module.is_some_and(|module| is_library(&module.path))
}

/// The innermost call of a stack; for one that waits itself, also who made it.
fn doing(trace: &Trace<'_>, names: &SymbolNames<'_>, stack: &[Location]) -> Option<String> {
    let mut innermost = stack.iter().rev();
    let call = innermost.next()?;
    let name = names.name(*call).name;
    match innermost.next().filter(|_| is_of_library(trace, *call)) {
        Some(caller) => Some(format!("{HOLDER}: in {name}, called by {}", names.name(*caller).name)),
        None => Some(format!("{HOLDER}: in {name}")),
    }
}
