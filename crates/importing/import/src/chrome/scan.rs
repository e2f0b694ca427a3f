//! A scanner of JSON that gives one event after the other, without making a tree of them.

use std::io::{self, Read};
use std::ops::Range;

/// Bytes that are read at once.
const BLOCK: usize = 1 << 20;
/// Largest event, or value beside the events: vizviewer's files have sources in them.
const VALUE_MAX: usize = 256 << 20;
/// Bytes of a text that are looked at one by one.
const SHORT: usize = 12;
/// Levels of arrays and objects in each other.
const DEPTH_MAX: usize = 512;

/// Why there is no further event.
#[derive(Debug)]
pub(super) enum Problem {
    Input(io::Error),
    /// The input ends within a value.
    Cut,
    /// This byte isn't what was expected.
    Syntax(u64, &'static str),
}

/// An event: its values as they stand in the file, texts without their quotes.
#[derive(Debug, Default)]
pub(super) struct Event<'b> {
    pub phase: u8,
    pub ns: Option<i64>,
    pub duration_ns: Option<u64>,
    pub name: &'b [u8],
    pub category: &'b [u8],
    /// A number, or a text with its quotes.
    pub pid: &'b [u8],
    /// The process's id where the event has none.
    pub tid: &'b [u8],
    pub id: &'b [u8],
    /// Other processes may use the id for something else.
    pub is_id_local: bool,
    /// Ids of other scopes are other ids.
    pub scope: &'b [u8],
    /// The whole object.
    pub args: &'b [u8],
}

/// Gives the events of a file.
pub(super) struct Scanner<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where the next value begins in the buffer.
    at: usize,
    filled: usize,
    /// Bytes before the buffer.
    before: u64,
    is_over: bool,
    state: State,
    /// Whether the events' array was found.
    pub has_array: bool,
    /// A recorder said that its buffer was too small.
    pub has_overflow: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    /// In the object, before a key.
    Object,
    /// In the array of events; whether that is in an object.
    Events(bool),
    End,
}

impl<R: Read> Scanner<R> {
    pub fn new(input: R) -> Scanner<R> {
        Scanner {
            input,
            buffer: Vec::new(),
            at: 0,
            filled: 0,
            before: 0,
            is_over: false,
            state: State::Begin,
            has_array: false,
            has_overflow: false,
        }
    }

    /// Where the next value begins.
    pub fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    fn syntax(&self, reason: &'static str) -> Problem {
        Problem::Syntax(self.offset(), reason)
    }

    /// Reads more behind what is left; false at the end.
    fn refill(&mut self) -> Result<bool, Problem> {
        if self.is_over {
            return Ok(false);
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.before += self.at as u64;
        self.filled -= self.at;
        self.at = 0;
        if self.filled > VALUE_MAX {
            return Err(self.syntax("the value that begins here is longer than any that is read"));
        }
        if self.buffer.len() < self.filled + BLOCK {
            let more = (2 * self.filled + BLOCK) - self.buffer.len();
            self.buffer
                .try_reserve_exact(more)
                .map_err(|_| Problem::Input(io::ErrorKind::OutOfMemory.into()))?;
            self.buffer.resize(2 * self.filled + BLOCK, 0);
        }
        let begin = self.filled;
        while self.filled < self.buffer.len() {
            match self.input.read(self.buffer.get_mut(self.filled..).unwrap_or_default()) {
                Ok(0) => {
                    self.is_over = true;
                    break;
                }
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The bytes before an error are used.
                Err(error) if self.filled == begin => return Err(Problem::Input(error)),
                Err(_) => break,
            }
        }
        Ok(self.filled > begin)
    }

    /// The next byte that isn't white space or a comma; `None` at the end.
    fn peek(&mut self) -> Result<Option<u8>, Problem> {
        loop {
            let bytes = self.buffer.get(self.at..self.filled).unwrap_or_default();
            let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == b',').count();
            self.at += blank;
            if let Some(byte) = bytes.get(blank) {
                return Ok(Some(*byte));
            }
            if !self.refill()? {
                return Ok(None);
            }
        }
    }

    /// Where the value that begins at `at` ends: all of it is in the buffer then.
    fn whole(&mut self) -> Result<usize, Problem> {
        loop {
            let bytes = self.buffer.get(self.at..self.filled).unwrap_or_default();
            match value_end(bytes) {
                Ok(length) if self.at + length < self.filled || self.is_over => return Ok(self.at + length),
                // A number may go on.
                Ok(_) => {}
                Err(None) => {}
                Err(Some(wrong)) => {
                    return Err(Problem::Syntax(
                        self.offset() + wrong as u64,
                        "JSON is expected here: a value, or its end",
                    ));
                }
            }
            if !self.refill()? {
                let bytes = self.buffer.get(self.at..self.filled).unwrap_or_default();
                return value_end(bytes).map(|length| self.at + length).map_err(|_| Problem::Cut);
            }
        }
    }

    /// The next event; `None` at the end of the file, or of its array.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Problem> {
        loop {
            let next = self.peek()?;
            match (self.state, next) {
                (State::End, _) => return Ok(None),
                (State::Begin, Some(0xef)) => self.at += 3,
                (State::Begin, Some(b'[')) => {
                    self.at += 1;
                    self.has_array = true;
                    self.state = State::Events(false);
                }
                (State::Begin, Some(b'{')) => {
                    self.at += 1;
                    self.state = State::Object;
                }
                (State::Begin, _) => {
                    return Err(self.syntax("an array or an object of JSON is expected here"));
                }
                (State::Object, Some(b'"')) => self.member()?,
                (State::Object, Some(b'}')) => self.state = State::End,
                (State::Object, Some(_)) => return Err(self.syntax("a key of the object is expected here")),
                // Arrays of Chrome may have no end.
                (State::Events(false), None) => return Ok(None),
                (State::Object | State::Events(true), None) => return Err(Problem::Cut),
                (State::Events(in_object), Some(b']')) => {
                    self.at += 1;
                    self.state = if in_object { State::Object } else { State::End };
                }
                (State::Events(_), Some(b'{')) => {
                    let begin = self.at;
                    let bytes = self.buffer.get(begin..self.filled).unwrap_or_default();
                    // The common case: all of the event is in the buffer.
                    let fields = match Fields::of(bytes) {
                        Some(fields) => fields,
                        None => return self.rare_event().map(Some),
                    };
                    self.at = begin + fields.length;
                    return Ok(Some(fields.event(self.buffer.get(begin..self.at).unwrap_or_default())));
                }
                (State::Events(_), Some(_)) => {
                    return Err(self.syntax("an event, an object, is expected here"));
                }
            }
        }
    }

    /// An event that isn't in the buffer yet, or isn't one.
    #[cold]
    fn rare_event(&mut self) -> Result<Event<'_>, Problem> {
        let end = self.whole()?;
        let begin = std::mem::replace(&mut self.at, end);
        let bytes = self.buffer.get(begin..end).unwrap_or_default();
        Ok(Fields::of(bytes).unwrap_or_default().event(bytes))
    }

    /// A member of the object around the events.
    fn member(&mut self) -> Result<(), Problem> {
        let end = self.whole()?;
        let key = self.buffer.get(self.at + 1..end - 1).unwrap_or_default().to_vec();
        self.at = end;
        if self.peek()? != Some(b':') {
            return Err(self.syntax("a colon is expected here"));
        }
        self.at += 1;
        if self.peek()? == Some(b'[') && key == b"traceEvents" {
            self.at += 1;
            self.has_array = true;
            self.state = State::Events(true);
            return Ok(());
        }
        let end = self.whole()?;
        let value = self.buffer.get(self.at..end).unwrap_or_default();
        if key == b"viztracer_metadata" {
            self.has_overflow |= self::value(value, b"overflow") == Some(b"true");
        }
        self.at = end;
        Ok(())
    }
}

/// Bytes of the value at the beginning. `Err(None)`: it isn't all there; `Err(Some(at))`: it isn't
/// one.
fn value_end(bytes: &[u8]) -> Result<usize, Option<usize>> {
    match bytes.first() {
        None => Err(None),
        Some(b'"') => text_end(bytes).ok_or(None),
        Some(b'{' | b'[') => nested_end(bytes),
        Some(_) => {
            let end = bytes
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b':') || byte.is_ascii_whitespace());
            match end {
                Some(0) => Err(Some(0)),
                Some(end) => Ok(end),
                None if bytes.len() > 64 => Err(Some(0)),
                None => Ok(bytes.len()),
            }
        }
    }
}

/// Bytes of a text with its quotes.
#[inline]
fn text_end(bytes: &[u8]) -> Option<usize> {
    // Most texts are short.
    for (at, byte) in bytes.iter().enumerate().skip(1).take(SHORT) {
        match byte {
            b'"' => return Some(at + 1),
            b'\\' => break,
            _ => {}
        }
    }
    let mut at = 1;
    loop {
        let found = at + memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(found) == Some(&b'"') {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// Bytes of an array or object.
fn nested_end(bytes: &[u8]) -> Result<usize, Option<usize>> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at += text_end(bytes.get(at..).unwrap_or_default()).ok_or(None)?;
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(Some(at));
                }
            }
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    Err(None)
}

/// Goes through the members of an object: `take` gets key and value, texts of values with quotes.
/// Returns the object's length, if it is whole.
#[inline]
fn members<'b>(object: &'b [u8], mut take: impl FnMut(&'b [u8], Range<usize>)) -> Option<usize> {
    let mut at = 1;
    let skip = |mut at: usize| {
        while object.get(at).is_some_and(|byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b':')) {
            at += 1;
        }
        at
    };
    loop {
        at = skip(at);
        let rest = object.get(at..)?;
        match rest.first()? {
            b'"' => {}
            b'}' => return Some(at + 1),
            _ => return None,
        }
        let key_end = text_end(rest)?;
        let key = rest.get(1..key_end - 1)?;
        at = skip(at + key_end);
        let length = value_end(object.get(at..)?).ok()?;
        take(key, at..at + length);
        at += length;
    }
}

/// The values of an event, as their places in it.
#[derive(Debug, Default)]
struct Fields {
    length: usize,
    phase: u8,
    ns: Option<i64>,
    duration_ns: Option<u64>,
    name: Range<usize>,
    category: Range<usize>,
    scope: Range<usize>,
    pid: Range<usize>,
    tid: Range<usize>,
    id: Range<usize>,
    id2: Range<usize>,
    args: Range<usize>,
}

impl Fields {
    /// Those of the object at the beginning; `None` if it isn't whole.
    #[inline]
    fn of(object: &[u8]) -> Option<Fields> {
        let mut fields = Fields::default();
        let text = |place: &Range<usize>| object.get(place.clone()).unwrap_or_default();
        let length = members(object, |key, place| match key {
            b"ph" => fields.phase = text(&place).get(1).copied().unwrap_or(0),
            b"ts" => fields.ns = nanoseconds(text(&place)),
            b"dur" => fields.duration_ns = nanoseconds(text(&place)).and_then(|ns| u64::try_from(ns).ok()),
            b"name" => fields.name = place,
            b"cat" => fields.category = place,
            b"scope" => fields.scope = place,
            b"pid" => fields.pid = place,
            b"tid" => fields.tid = place,
            b"id" => fields.id = place,
            b"id2" => fields.id2 = place,
            b"args" => fields.args = place,
            _ => {}
        })?;
        Some(Fields { length, ..fields })
    }

    /// The event with these values.
    #[inline]
    fn event(self, object: &[u8]) -> Event<'_> {
        let text = |place: Range<usize>| object.get(place).unwrap_or_default();
        let mut id = text(self.id);
        let mut is_id_local = false;
        if !self.id2.is_empty() && id.is_empty() {
            let both = text(self.id2);
            let local = value(both, b"local");
            is_id_local = local.is_some();
            id = local.or_else(|| value(both, b"global")).unwrap_or_default();
        }
        Event {
            phase: self.phase,
            ns: self.ns,
            duration_ns: self.duration_ns,
            name: unquoted(text(self.name)),
            category: unquoted(text(self.category)),
            tid: text(if self.tid.is_empty() { self.pid.clone() } else { self.tid }),
            pid: text(self.pid),
            id: unquoted(id),
            is_id_local,
            scope: unquoted(text(self.scope)),
            args: text(self.args),
        }
    }
}

pub(super) fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// A member's value; of a text without its quotes.
pub(super) fn value<'b>(object: &'b [u8], wanted: &[u8]) -> Option<&'b [u8]> {
    let mut found = None;
    members(object, |key, place| {
        if key == wanted {
            found = object.get(place).map(unquoted);
        }
    });
    found
}

/// The members of an object that are numbers, also in quotes.
pub(super) fn numbers(object: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut found = Vec::new();
    members(object, |key, place| {
        let value = unquoted(object.get(place).unwrap_or_default());
        if value.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-') {
            found.push((key, value));
        }
    });
    found
}

/// Nanoseconds of a number of microseconds, rounded to the next one.
#[inline]
fn nanoseconds(value: &[u8]) -> Option<i64> {
    let value = unquoted(value);
    let (is_negative, digits) = match value.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, value),
    };
    let mut whole = 0_i64;
    let mut at = 0;
    while let Some(digit) = digits.get(at).filter(|digit| digit.is_ascii_digit()) {
        whole = whole.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
        at += 1;
    }
    if at == 0 {
        return None;
    }
    let mut ns = whole.checked_mul(1000)?;
    if digits.get(at) == Some(&b'.') {
        let (mut unit, mut fraction) = (1000_i64, 0);
        at += 1;
        while let Some(digit) = digits.get(at).filter(|digit| digit.is_ascii_digit()) {
            if unit > 1 {
                unit /= 10;
                fraction += unit * i64::from(digit - b'0');
            } else if unit == 1 {
                fraction += i64::from(*digit >= b'5');
                unit = 0;
            }
            at += 1;
        }
        ns = ns.checked_add(fraction)?;
    }
    if at < digits.len() {
        // With an exponent.
        let real: f64 = str::from_utf8(value).ok()?.parse().ok()?;
        let real = (real * 1000.0).round();
        return (real.abs() < i64::MAX as f64).then_some(real as i64);
    }
    Some(if is_negative { -ns } else { ns })
}

/// A text without its quotes, as the characters that it stands for.
pub(super) fn text(raw: &[u8]) -> Vec<u8> {
    let Some(first) = memchr::memchr(b'\\', raw) else { return raw.to_vec() };
    let mut decoded = raw.get(..first).unwrap_or_default().to_vec();
    let mut at = first;
    let unit = |at: usize| {
        let digits = raw.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    while let Some(byte) = raw.get(at) {
        if *byte != b'\\' {
            decoded.push(*byte);
            at += 1;
            continue;
        }
        if let Some(high) = unit(at) {
            at += 6;
            let low = unit(at).filter(|_| (0xd800..0xdc00).contains(&high));
            let units: Vec<u16> = [Some(high), low].into_iter().flatten().collect();
            at += if low.is_some() { 6 } else { 0 };
            let mut bytes = [0; 4];
            for character in char::decode_utf16(units) {
                let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
                decoded.extend(character.encode_utf8(&mut bytes).as_bytes());
            }
            continue;
        }
        decoded.push(match raw.get(at + 1) {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(other) => *other,
            None => b'\\',
        });
        at += 2;
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_to_the_nanosecond() {
        for (text, ns) in [
            ("0", Some(0)),
            ("12", Some(12_000)),
            ("12.345", Some(12_345)),
            ("12.3454", Some(12_345)),
            ("12.3456", Some(12_346)),
            ("0.9999", Some(1000)),
            ("-1.5", Some(-1500)),
            ("1.5e3", Some(1_500_000)),
            ("9007199254740993.001", Some(9_007_199_254_740_993_001)),
            ("99999999999999999999", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nanoseconds(text.as_bytes()), ns, "{text}");
        }
    }

    #[test]
    fn texts_are_decoded() {
        assert_eq!(text(b"plain"), b"plain");
        assert_eq!(text(br#"a\"b\\c\n\u00e9\ud83d\ude00"#), "a\"b\\c\né😀".as_bytes());
        assert_eq!(text(br"\ud83d"), "\u{fffd}".as_bytes());
        assert_eq!(text(br"\u12"), b"u12");
    }

    #[test]
    fn events_across_reads_of_any_size() {
        /// Gives a byte at a time.
        struct Slow<'b>(&'b [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
                let count = self.0.len().min(1);
                bytes[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let file = br#" {"other": [1, {"]": "}"}], "traceEvents": [ {"ph":"X", "ts": 1.5, "dur":2,"name":"a\"b","args":{"x":[1]}},
            {"ph":"M","name":"n"}], "viztracer_metadata": {"overflow": true}}"#;
        let mut scanner = Scanner::new(Slow(file));
        let event = scanner.next_event().unwrap().unwrap();
        assert_eq!((event.phase, event.ns, event.duration_ns), (b'X', Some(1500), Some(2000)));
        assert_eq!((event.name, event.args), (&br#"a\"b"#[..], &br#"{"x":[1]}"#[..]));
        assert_eq!(scanner.next_event().unwrap().unwrap().phase, b'M');
        assert!(scanner.next_event().unwrap().is_none());
        assert!(scanner.has_overflow && scanner.has_array);
    }
}
