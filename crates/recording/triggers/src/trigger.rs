//! A trigger as users write it.

use std::fmt;
use std::str::FromStr;

use everycall_format::trigger::site_flags;
use everycall_units::{UNITS_ALLOWED, parse_time};

use everycall_patterns::NamePattern as Pattern;

/// When a call is kept.
#[derive(Clone, Debug)]
pub enum Condition {
    /// A call of a function that the pattern matches takes longer than this many nanoseconds.
    Longer(Pattern, u64),
    /// A call takes longer than this percentile of the function's calls in the last ten seconds.
    Percentile(Pattern, f64),
    /// A function is entered.
    Entered(Pattern),
    /// A call returns, and this condition on its result is true: `returned < 0`.
    Returned(Pattern, String),
    /// An exception is thrown: in a call of a function that the first pattern matches, or anywhere;
    /// of a type that the second pattern matches, or of any type.
    Threw(Option<Pattern>, Option<Pattern>),
    /// `record` gets this signal.
    Signal(i32),
}

/// A trigger.
#[derive(Clone, Debug)]
pub struct Trigger {
    text: String,
    /// Its condition.
    pub condition: Condition,
    /// Whether the duration includes the call's tail calls: `f` includes them, `f-tail` doesn't.
    pub counts_tails: bool,
    /// A condition on the arguments of its calls: what follows `if`.
    pub when: Option<String>,
}

impl Trigger {
    /// The pattern for functions; `None` if the trigger isn't about calls.
    #[must_use]
    pub fn pattern(&self) -> Option<&Pattern> {
        match &self.condition {
            Condition::Longer(pattern, _)
            | Condition::Percentile(pattern, _)
            | Condition::Entered(pattern)
            | Condition::Returned(pattern, _)
            | Condition::Threw(Some(pattern), _) => Some(pattern),
            Condition::Threw(None, _) => None,
            Condition::Signal(_) => None,
        }
    }

    /// Whether it has a condition on arguments or a result.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        self.when.is_some() || matches!(self.condition, Condition::Returned(..))
    }

    /// The [`site_flags`] of the functions that it names.
    pub(crate) fn site_flags(&self) -> u32 {
        let tails = if self.counts_tails { 0 } else { site_flags::NO_TAIL };
        tails
            | match self.condition {
                Condition::Threw(..) => site_flags::THREW,
                Condition::Entered(_) if self.when.is_some() => site_flags::ENTERED,
                Condition::Returned(..) => site_flags::RETURNED,
                _ => 0,
            }
    }
}

/// Signals that a trigger may wait for: those that `record` does nothing else with.
const SIGNALS: [(&str, i32); 2] = [("USR1", 10), ("USR2", 12)];

/// A text that is not a valid trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.text, self.reason)
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The function's name, and whether its duration includes tail calls; `None` if the text doesn't
/// say.
fn split_tail(name: &str) -> (&str, Option<bool>) {
    let split = |ending, counts| Some((name.strip_suffix(ending)?.trim_end(), Some(counts)));
    split("+tail", true).or_else(|| split("-tail", false)).unwrap_or((name, None))
}

/// The function's and the type's name in a trigger for exceptions: the text before and after the
/// word `threw`.
fn split_threw(text: &str) -> Option<(&str, &str)> {
    const WORD: &str = "threw";
    let is_space = |character: Option<char>| character.is_none_or(char::is_whitespace);
    let (at, _) = text.match_indices(WORD).find(|(at, _)| {
        is_space(text[..*at].chars().next_back()) && is_space(text[at + WORD.len()..].chars().next())
    })?;
    let (function, of) = (text[..at].trim(), text[at + WORD.len()..].trim());
    // A function with this name.
    (!of.starts_with('>') && of != "entered").then_some((function, of))
}

/// An example for messages.
const EXAMPLE: &str = "write a function and a time, as in 'handle_request > 20ms'; or > p99, or entered, or threw std::bad_alloc";

impl FromStr for Trigger {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Trigger, ParseError> {
        let (event, when) = split_if(text);
        let whole = |error: ParseError| ParseError { text: text.to_owned(), ..error };
        let trigger = parse_event(event).map_err(whole)?;
        let refused = |reason: &str| Err(ParseError { text: text.to_owned(), reason: reason.to_owned() });
        match (when, &trigger.condition) {
            (None, _) => {}
            (Some(""), _) => {
                return refused("has nothing behind `if`; write a condition, as in if len > 4096");
            }
            (Some(_), Condition::Signal(_)) => {
                return refused("is a signal's, which has no arguments; leave out what follows `if`");
            }
            (Some(_), Condition::Threw(None, _)) => {
                return refused(
                    "names no function whose arguments its condition could be about; write one, as in \
                     'handle_request threw std::bad_alloc if len > 4096'",
                );
            }
            (Some(_), _) => {}
        }
        Ok(Trigger { text: text.to_owned(), when: when.map(str::to_owned), ..trigger })
    }
}

/// The text before the word `if`, and what follows it.
fn split_if(text: &str) -> (&str, Option<&str>) {
    const WORD: &str = "if";
    let is_space = |character: Option<char>| character.is_none_or(char::is_whitespace);
    let mut found = text.match_indices(WORD).filter(|(at, _)| {
        let after = text[at + WORD.len()..].chars().next();
        *at > 0 && is_space(text[..*at].chars().next_back()) && (is_space(after) || after == Some('('))
    });
    match found.next() {
        Some((at, _)) => (text[..at].trim_end(), Some(text[at + WORD.len()..].trim())),
        None => (text, None),
    }
}

/// The function's name and the condition in a trigger for results: the text before the word
/// `returned`, and the text from there on.
fn split_returned(text: &str) -> Option<(&str, &str)> {
    const WORD: &str = "returned";
    let (at, _) = text.match_indices(WORD).find(|(at, _)| {
        let rest = text[at + WORD.len()..].trim_start();
        let is_compared = rest.is_empty()
            || rest.starts_with(['<', '=', '!', '.', '-', '['])
            || rest.starts_with("contains ")
            || rest.starts_with("starts ")
            || rest.strip_prefix('>').is_some_and(|limit| !is_time(limit.trim()));
        *at > 0 && text[..*at].ends_with(char::is_whitespace) && is_compared
    })?;
    Some((text[..at].trim(), text[at..].trim()))
}

/// Whether this is a time with its unit: 0 may be a result.
fn is_time(text: &str) -> bool {
    parse_time(text).is_ok() && text.parse::<f64>().is_err()
}

/// Reads a trigger without a condition on arguments.
fn parse_event(text: &str) -> Result<Trigger, ParseError> {
    let error = |reason: String| ParseError { text: text.to_owned(), reason };
    if let Some(("signal", name)) = text.trim().split_once(char::is_whitespace)
        && !name.trim_start().starts_with('>')
    {
        let name = name.trim();
        let signal = SIGNALS.iter().find(|(known, _)| *known == name.strip_prefix("SIG").unwrap_or(name));
        return match signal {
            Some((_, signal)) => {
                let condition = Condition::Signal(*signal);
                Ok(Trigger { text: text.to_owned(), condition, counts_tails: false, when: None })
            }
            None => Err(error(format!("waits for `{name}`; write `signal USR1` or `signal USR2`"))),
        };
    }
    let trigger =
        |condition| Ok(Trigger { text: text.to_owned(), condition, counts_tails: false, when: None });
    let pattern_of =
        |name: &str| Pattern::new(name).map_err(|reason| error(format!("has a bad pattern: {reason}")));
    if let Some((function, of)) = split_threw(text.trim()) {
        let (function, tails) = split_tail(function);
        if function.is_empty() && tails.is_some() {
            return Err(error(format!("names no function; {EXAMPLE}")));
        }
        let pattern = |name: &str| if name.is_empty() { Ok(None) } else { pattern_of(name).map(Some) };
        let function = pattern(function)?;
        let of = pattern(if of == "*" { "" } else { of })?;
        let counts_tails = tails.unwrap_or(true);
        return Ok(Trigger {
            text: text.to_owned(),
            condition: Condition::Threw(function, of),
            counts_tails,
            when: None,
        });
    }
    if let Some((name, result)) = split_returned(text.trim()) {
        if let (name, Some(_)) = split_tail(name) {
            return Err(error(format!(
                "is about the result, and a call that ends in a tail call has none of its own; write `{name} \
                     {result}`"
            )));
        }
        if result == "returned" {
            return Err(error(format!("compares no result; write `{name} returned < 0`")));
        }
        return trigger(Condition::Returned(pattern_of(name)?, result.to_owned()));
    }
    if let Some((name, "entered")) = text.trim().rsplit_once(char::is_whitespace) {
        if let (name, Some(_)) = split_tail(name.trim()) {
            return Err(error(format!("is about the entry, before any tail call; write `{name} entered`")));
        }
        return trigger(Condition::Entered(pattern_of(name.trim())?));
    }
    // From the end, because `operator>` is a function's name, too.
    let (pattern, limit) = text.rsplit_once('>').ok_or_else(|| {
        let what = if text.contains('<') {
            "selects fast calls, but only slow calls can be kept"
        } else {
            "has no condition"
        };
        error(format!("{what}; {EXAMPLE}"))
    })?;
    let ((pattern, tails), limit) = (split_tail(pattern.trim()), limit.trim());
    if pattern.is_empty() {
        return Err(error(format!("names no function; {EXAMPLE}")));
    }
    if let Some(rest) = limit.strip_prefix('=') {
        return Err(error(format!("has `>=`; write `{pattern} > {}`", rest.trim())));
    }
    if let Some(percent) = limit.strip_prefix('p').and_then(|percent| percent.parse::<f64>().ok()) {
        if !(percent > 0.0 && percent < 100.0) {
            return Err(error(
                "has a percentile that isn't between p0 and p100; write p99 or p99.9".to_owned(),
            ));
        }
        if tails == Some(true) {
            return Err(error(format!(
                "has a percentile with tail calls, and percentiles are of the function's own time; write `{pattern} > {limit}`"
            )));
        }
        return trigger(Condition::Percentile(pattern_of(pattern)?, percent));
    }
    let ns = parse_time(limit).map_err(|_| {
        let found = if limit.is_empty() { "nothing".to_owned() } else { format!("`{limit}`") };
        error(format!("has {found} instead of a time; {EXAMPLE}. Units of times: {UNITS_ALLOWED}"))
    })?;
    if ns == 0 {
        return Err(error("would keep every call; write a time above 0".to_owned()));
    }
    let pattern = Pattern::new(pattern).map_err(|reason| error(format!("has a bad pattern: {reason}")))?;
    let counts_tails = tails.unwrap_or(true);
    Ok(Trigger { text: text.to_owned(), condition: Condition::Longer(pattern, ns), counts_tails, when: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_read() {
        for (text, name, ns) in [
            ("handle_request > 20ms", "handle_request", 20_000_000),
            ("a::b*>1.5us", "a::b*", 1500),
            ("operator> > 2s", "operator>", 2_000_000_000),
            ("signal > 1s", "signal", 1_000_000_000),
        ] {
            let trigger: Trigger = text.parse().unwrap();
            let Condition::Longer(pattern, found) = &trigger.condition else { panic!("{trigger:?}") };
            assert_eq!(
                (pattern.to_string().as_str(), *found, trigger.to_string().as_str()),
                (name, ns, text)
            );
        }
        for (text, name, counts_tails) in [
            ("f > 1ms", "f", true),
            ("f+tail > 1ms", "f", true),
            ("f-tail > 1ms", "f", false),
            ("a::f * +tail>1ms", "a::f *", true),
            ("operator- -tail > 1ms", "operator-", false),
            ("operator+ > 1ms", "operator+", true),
            ("operator++tail > 1ms", "operator+", true),
        ] {
            let trigger: Trigger = text.parse().unwrap();
            let Condition::Longer(pattern, _) = &trigger.condition else { panic!("{trigger:?}") };
            assert_eq!((pattern.to_string().as_str(), trigger.counts_tails), (name, counts_tails), "{text}");
        }
        let percentile: Trigger = "f > p99.9".parse().unwrap();
        assert!(matches!(percentile.condition, Condition::Percentile(_, percent) if percent == 99.9));
        let entered: Trigger = "operator new entered".parse().unwrap();
        assert!(
            matches!(&entered.condition, Condition::Entered(pattern) if pattern.to_string() == "operator new")
        );
        for (text, signal) in [("signal USR1", 10), ("signal SIGUSR2", 12)] {
            assert!(
                matches!(text.parse::<Trigger>().unwrap().condition, Condition::Signal(found) if found == signal)
            );
        }
    }

    #[test]
    fn conditions_on_values_are_read() {
        for (text, name, when, result) in [
            (
                "handle > 20ms if req->method == \"POST\" and len > 4096",
                "handle",
                Some("req->method == \"POST\" and len > 4096"),
                None,
            ),
            ("f entered if n > 10", "f", Some("n > 10"), None),
            ("f entered if(n > 10)", "f", Some("(n > 10)"), None),
            ("open_it returned < 0", "open_it", None, Some("returned < 0")),
            ("f returned != 0 if n == 1", "f", Some("n == 1"), Some("returned != 0")),
            ("f returned > 3", "f", None, Some("returned > 3")),
            ("f returned > 0", "f", None, Some("returned > 0")),
            ("returned returned == -1", "returned", None, Some("returned == -1")),
            ("a::f* threw int if n > 1", "a::f*", Some("n > 1"), None),
            ("f > p99 if n > 1", "f", Some("n > 1"), None),
            // A function with this name.
            ("returned > 20ms", "returned", None, None),
            ("if > 20ms", "if", None, None),
        ] {
            let trigger: Trigger = text.parse().unwrap();
            assert_eq!(trigger.pattern().unwrap().to_string(), name, "{text}");
            assert_eq!(trigger.when.as_deref(), when, "{text}");
            let found =
                if let Condition::Returned(_, result) = &trigger.condition { Some(&**result) } else { None };
            assert_eq!((found, trigger.to_string().as_str()), (result, text), "{text}");
            assert_eq!(trigger.has_conditions(), when.is_some() || result.is_some(), "{text}");
        }
    }

    #[test]
    fn triggers_for_exceptions_are_read() {
        for (text, function, of) in [
            ("threw", "", ""),
            ("threw *", "", ""),
            ("threw std::bad_alloc", "", "std::bad_alloc"),
            (" app::f threw app::Wrapped<int, 3> ", "app::f", "app::Wrapped<int, 3>"),
            ("operator new threw", "operator new", ""),
            ("f-tail threw int", "f", "int"),
            ("threw threw int", "", "threw int"),
        ] {
            let trigger: Trigger = text.parse().unwrap();
            let Condition::Threw(found, found_of) = &trigger.condition else { panic!("{trigger:?}") };
            let text_of =
                |pattern: &Option<Pattern>| pattern.as_ref().map(ToString::to_string).unwrap_or_default();
            assert_eq!((text_of(found).as_str(), text_of(found_of).as_str()), (function, of), "{text}");
            assert_eq!(trigger.counts_tails, !text.contains("-tail"));
        }
        for text in ["threw > 3ms", "threw entered", "overthrew > 1ms"] {
            let trigger: Trigger = text.parse().unwrap();
            assert!(!matches!(trigger.condition, Condition::Threw(..)), "{text}");
        }
    }

    #[test]
    fn invalid_triggers_are_refused_with_advice() {
        for (text, hint) in [
            ("handle_request", "has no condition"),
            ("f < 3ms", "selects fast calls"),
            ("> 3ms", "names no function"),
            ("f > ", "has nothing instead of a time"),
            ("f > 3", "has `3` instead of a time"),
            ("f > fast", "has `fast` instead of a time"),
            ("f > -3ms", "has `-3ms` instead of a time"),
            ("f >= 3ms", "write `f > 3ms`"),
            ("f > p100", "write p99"),
            ("f > p0", "write p99"),
            ("f > pNaN", "write p99"),
            ("f+tail > p99", "write `f > p99`"),
            ("f-tail entered", "write `f entered`"),
            ("+tail > 1ms", "names no function"),
            ("signal KILL", "write `signal USR1`"),
            ("f > 0ms", "would keep every call"),
            ("f > 1ms if ", "has nothing behind `if`"),
            ("signal USR1 if n > 1", "no arguments"),
            ("threw int if n > 1", "names no function"),
            ("f returned", "write `f returned < 0`"),
            ("f+tail returned < 0", "write `f returned < 0`"),
            ("f if n > 1", "has no condition"),
            ("f > 1000000000h", "instead of a time"),
        ] {
            let error = text.parse::<Trigger>().unwrap_err().to_string();
            assert!(error.contains(hint) && error.contains(text), "{error}");
        }
    }
}
