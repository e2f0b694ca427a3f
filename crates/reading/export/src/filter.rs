//! Which calls are shown.
//!
//! Every condition is about one call, and what passes all of them is shown. Nesting stays right because each
//! condition that a call passes is also passed by the calls around it, or (`function`, `label`, `depth`) concerns
//! whole subtrees:
//!
//! | option | a call is shown if |
//! |---|---|
//! | `pids` | it ran in one of these processes |
//! | `tids` | it ran in one of these threads |
//! | `since_ns`, `until_ns`, `last_ns` | some moment of it lies in the window; it keeps its true begin and end |
//! | `min_duration_ns` | it took at least so long, as far as it was recorded |
//! | `function` | its function's name matches, or it was called from such a call, directly or not |
//! | `label` | it carries this label, or was called from such a call, directly or not |
//! | `values` | its values meet this condition, or it was called from such a call, directly or not |
//! | `call` | it is this call, or was called from it, directly or not |
//! | `depth` | fewer than so many calls are around it; with `function` or `label`: from the outermost match inwards |
//!
//! Calls that are left out here are no loss. Suspensions are shown by window, function, label and
//! duration, as calls are. Losses, orphan exits and other gaps are shown if they lie in the window,
//! and the labels of a call where the call is, as are throws and catches in the window. Instants,
//! and spans by any moment of them, are shown if they lie in the window; with `function` or
//! `label`, if they happen or begin in such a call.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use everycall_calls::CallAt;
use everycall_values::Value;
use regex::Regex;

use crate::calendar::WallTime;
use crate::parse::ParseError;
use crate::source::Source;
use everycall_calls::Thread;

/// Which calls are shown; the default shows all. See the module's head for what each condition means.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Processes by the kernel's number; empty for all.
    pub pids: Vec<u32>,
    /// Threads by the kernel's number; empty for all.
    pub tids: Vec<u32>,
    /// Begin of the window, in nanoseconds since the trace's origin.
    pub since_ns: Option<u64>,
    /// End of the window, in nanoseconds since the trace's origin; a call that begins exactly then
    /// is shown.
    pub until_ns: Option<u64>,
    /// Begin of the window as calendar time, in the place of `since_ns`.
    pub since_wall: Option<WallTime>,
    /// End of the window as calendar time, in the place of `until_ns`.
    pub until_wall: Option<WallTime>,
    /// The window begins so many nanoseconds before the last event of the trace, or at `since_ns` if that is later.
    pub last_ns: Option<u64>,
    /// Shortest duration, in nanoseconds.
    pub min_duration_ns: u64,
    /// Pattern for demangled names, complete ones and short ones; it matches anywhere in a name
    /// unless anchored.
    pub function: Option<Regex>,
    /// Label that calls carry.
    pub label: Option<LabelPattern>,
    /// Condition on a call's recorded values.
    pub values: Option<ValueCondition>,
    /// Largest number of levels.
    pub depth: Option<u32>,
    /// One call of each thread that is shown, in the place of `label`.
    pub call: Option<CallAt>,
}

/// Judges the values of a call.
type Holds = dyn Fn(&[(String, Value)]) -> bool + Send + Sync;

/// A condition on the arguments and the result of a call.
#[derive(Clone)]
pub struct ValueCondition(Arc<Holds>);

impl ValueCondition {
    /// `holds` gets a call's values by name: its arguments, and `returned` if the result is known.
    #[must_use]
    pub fn new(holds: impl Fn(&[(String, Value)]) -> bool + Send + Sync + 'static) -> ValueCondition {
        ValueCondition(Arc::new(holds))
    }

    pub(crate) fn holds(&self, values: &[(String, Value)]) -> bool {
        (self.0)(values)
    }
}

impl fmt::Debug for ValueCondition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ValueCondition")
    }
}

/// A pattern for labels: `NAME` or `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelPattern {
    /// The whole name.
    pub name: String,
    /// The value; `None` for any.
    pub value: Option<u64>,
}

impl FromStr for LabelPattern {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<LabelPattern, ParseError> {
        let Some((name, value)) = text.rsplit_once('=') else {
            return Ok(LabelPattern { name: text.to_owned(), value: None });
        };
        let number = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => value.parse(),
        };
        let value = number.map_err(|_| ParseError {
            text: text.to_owned(),
            reason: "has no whole number behind its `=`; write NAME or NAME=VALUE, such as request=4711"
                .to_owned(),
        })?;
        Ok(LabelPattern { name: name.to_owned(), value: Some(value) })
    }
}

/// Parses a pattern for [`Filter::function`].
///
/// # Errors
///
/// It isn't a regular expression, or would take too much memory.
pub fn parse_function(text: &str) -> Result<Regex, ParseError> {
    Regex::new(text).map_err(|error| {
        let error = error.to_string();
        let what = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let reason =
            format!("is not a regular expression: {what}; a backslash makes special characters plain");
        ParseError { text: text.to_owned(), reason }
    })
}

impl Filter {
    /// Whether all calls of the times and threads are shown, each below the calls around it.
    #[must_use]
    pub fn shows_all_calls(&self) -> bool {
        self.min_duration_ns == 0
            && self.function.is_none()
            && self.label.is_none()
            && self.values.is_none()
            && self.depth.is_none()
            && self.call.is_none()
    }

    /// Whether calls of this thread may be shown.
    #[must_use]
    pub fn admits_thread(&self, thread: &Thread) -> bool {
        let admits = |list: &[u32], id| list.is_empty() || list.contains(&id);
        admits(&self.pids, thread.pid) && admits(&self.tids, thread.tid)
    }

    /// The first and the last moment of the window, in the times of `source`.
    #[must_use]
    pub fn bounds(&self, source: &impl Source) -> (u64, u64) {
        let wall = |time: &WallTime| {
            let (begin, end) = (source.origin_realtime_ns()?, source.realtime_ns(source.end_ns())?);
            source.ns_at_realtime(time.realtime_ns(begin..=end)?)
        };
        let since = self.since_wall.as_ref().and_then(wall).or(self.since_ns);
        let until = self.until_wall.as_ref().and_then(wall).or(self.until_ns);
        let last = |last_ns| source.last_event_ns().saturating_sub(source.duration(last_ns));
        let since = since.map_or(0, |ns| source.moment(ns)).max(self.last_ns.map_or(0, last));
        (since, until.map_or(u64::MAX, |ns| source.moment(ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_named_with_or_without_value() {
        let pattern = |text: &str| text.parse::<LabelPattern>();
        assert_eq!(pattern("request").unwrap(), LabelPattern { name: "request".to_owned(), value: None });
        for text in ["request=4711", "request=0x1267"] {
            assert_eq!(
                pattern(text).unwrap(),
                LabelPattern { name: "request".to_owned(), value: Some(4711) }
            );
        }
        assert_eq!(pattern("a=b=1").unwrap().name, "a=b");
        let sentence = pattern("request=x").unwrap_err().to_string();
        assert!(sentence.contains("`request=x`") && sentence.contains("request=4711"), "{sentence}");
    }

    #[test]
    fn invalid_patterns_are_refused_with_a_reason() {
        assert!(parse_function("^ns::f").unwrap().is_match("ns::f(int)"));
        let sentence = parse_function("f(int").unwrap_err().to_string();
        assert!(sentence.contains("`f(int`") && sentence.contains("unclosed group"), "{sentence}");
        assert!(parse_function("(((a{100}){100}){100}){100}").is_err());
    }
}
