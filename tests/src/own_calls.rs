//! Checks traces of `standing.c`: whether each thread has only its own calls, in the form of the
//! source. It stores no tree and copies no name, so that thousands of traces of a million events
//! can be checked.

use std::fs::File;
use std::path::Path;

use everycall_reader::TraceFile;
use everycall_timeline::{End, EndKind, ThreadInfo, TimelineEvent, Trace};

use crate::trace::Names;

/// The counts if nothing is wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Threads that work on.
    pub busy: usize,
    /// Threads of the kind that come and go.
    pub brief: usize,
    /// Entries and exits.
    pub events: u64,
    /// Those of the thread that works on and has the fewest.
    pub least: u64,
}

/// Names of a thread's functions, outermost first, and how often the second one calls
/// the third.
struct Form {
    names: [String; 3],
    leaves: u32,
}

impl Form {
    fn of(thread: &ThreadInfo) -> Option<Form> {
        if let Some(number) = thread.name.strip_prefix("busy-") {
            let names = ["busy".to_owned(), format!("work{number}"), format!("leaf{number}")];
            return Some(Form { names, leaves: 2 });
        }
        let names = ["brief", "brief_work", "brief_leaf"].map(str::to_owned);
        (thread.name == "brief").then_some(Form { names, leaves: 20 })
    }
}

/// Looks at a trace.
///
/// # Errors
/// The trace has torn, foreign or misplaced calls.
///
/// # Panics
/// Where the file can't be read.
pub fn check(path: &Path) -> Result<Found, String> {
    let file = TraceFile::open(File::open(path).expect("the trace opens")).expect("the trace is one");
    let trace = Trace::open(file).expect("the trace is readable");
    if let Some(warning) = trace.warnings().first() {
        return Err(warning.to_string());
    }
    let mut names = Names::of(&trace);
    let mut found = Found { least: u64::MAX, ..Found::default() };
    for thread in trace.threads() {
        let of_it = |what: String| format!("{} ({}): {what}", thread.name, thread.tid);
        if (thread.losses, thread.malformed_words, thread.segments_lost) != (0, 0, 0) {
            return Err(of_it(format!("{thread:?}")));
        }
        let form = Form::of(thread);
        let events = trace.thread_events(thread.index);
        match &form {
            Some(form) => follows(form, events, &mut names).map_err(of_it)?,
            None => {
                for event in events {
                    let TimelineEvent::Begin(begin) = event else { continue };
                    let name = names.of_location(begin.location);
                    if name.starts_with("work") || name.starts_with("leaf") {
                        return Err(of_it(format!("{name} is another thread's")));
                    }
                }
            }
        }
        found.events += thread.events;
        match form {
            Some(Form { leaves: 2, .. }) => {
                found.busy += 1;
                found.least = found.least.min(thread.events);
            }
            Some(_) => found.brief += 1,
            None => {}
        }
    }
    Ok(found)
}

/// Whether the events are those of a thread of this form, with nothing before, between or after
/// them.
fn follows(
    form: &Form,
    events: impl Iterator<Item = TimelineEvent>,
    names: &mut Names,
) -> Result<(), String> {
    let mut known = [None; 3];
    let (mut depth, mut leaves) = (0, 0);
    for event in events {
        match event {
            TimelineEvent::Begin(begin) => {
                let name = form.names.get(depth).ok_or_else(|| format!("{begin:?} is too deep"))?;
                if known[depth] != Some(begin.location) {
                    let is = names.of_location(begin.location);
                    if is != *name {
                        return Err(format!("{is} at {} ns where {name} should be", begin.start_ns));
                    }
                    known[depth] = Some(begin.location);
                }
                if depth == 1 {
                    leaves = 0;
                }
                depth += 1;
            }
            TimelineEvent::End(end) => {
                depth = usize::try_from(end.depth).map_err(|_| "a depth".to_owned())?;
                leaves += u32::from(depth == 2);
                is_whole(&end, leaves, form)?;
            }
            other => return Err(format!("{other:?}")),
        }
    }
    Ok(())
}

/// Whether a call ended as it should, with all that it calls. The first ones of a trace may lack
/// their beginning, the last ones their end.
fn is_whole(end: &End, leaves: u32, form: &Form) -> Result<(), String> {
    match end.how {
        EndKind::Returned | EndKind::TruncatedAtEnd => {}
        other => return Err(format!("a call at {} ns ended as {other:?}", end.start_ns)),
    }
    let is_all_there = end.how == EndKind::Returned && !end.start_cut;
    if end.depth == 1 && is_all_there && leaves != form.leaves {
        return Err(format!("{} at {} ns has {leaves} calls inside", form.names[1], end.start_ns));
    }
    Ok(())
}
