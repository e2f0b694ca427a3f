//! Text of `perf script` of an Intel PT trace: a line for each branch, or for each call.
//!
//! ```text
//! app 30549/30549 [001] 174427.938462629: 1 branches:uH:  call  7ffff7ddc143 _start+0x3 (/lib/ld.so) => 7ffff7ddc850 _dl_start+0x0 (/lib/ld.so)
//! app 30549 [001] 174427.938462629:  (/lib/ld.so )     _dl_start                          --call-trace
//! app 30549 [001] 174427.938462629:  call   (/lib/ld.so )     _dl_start                   --call-ret-trace
//!  instruction trace error type 1 time 47170.086912826 cpu -1 pid 293415 tid 293415 ip 0x7ffff7327730 code 7: Overflow packet
//! ```
//!
//! Branches: a call opens the function that it leads to; a return closes the one that it leaves; a
//! jump to another function's beginning is a tail call. After an error, the trace continues
//! somewhere else.

use std::io::{self, BufRead, BufReader, Read, Write};

use everycall_format::arena::ClockReading;
use rustc_hash::FxHashMap;

use crate::error::ImportError;
use crate::input::Input;
use crate::output::{Code, NamesId, Output, ProcessFacts, ProcessId, ThreadId};

/// Longest line that is read: names of templates may be long.
const LINE_MAX: u64 = 1 << 20;
/// Lines at the beginning that are looked at.
const HEAD_LINES: usize = 200;
/// The beginning of a line about a decoding error.
const ERROR: &[u8] = b"instruction trace error";

/// Whether this is the beginning of such text.
pub(crate) fn looks_like(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n').take(HEAD_LINES);
    // The last line may be cut.
    lines.any(|line| Line::of(line).is_some_and(|line| line.is_call()) || trimmed(line).starts_with(ERROR))
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}

/// Reads the text.
pub(crate) fn read<W: Write>(input: &mut impl Input, out: &mut Output<W>) -> Result<(), ImportError> {
    let mut input = BufReader::with_capacity(crate::input::BUFFER, input);
    let mut state = State::default();
    let mut line = Vec::new();
    let mut offset = 0;
    loop {
        line.clear();
        let read = input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        let count = read.map_err(|error| ImportError::Unreadable(None, error))?;
        if count == 0 {
            break;
        }
        if count as u64 == LINE_MAX {
            return Err(ImportError::damaged(
                offset,
                "the line that begins here is longer than any of perf's",
            ));
        }
        offset += count as u64;
        state.line(&line, out).map_err(ImportError::Unwritable)?;
    }
    if state.calls == 0 {
        return Err(ImportError::damaged(
            0,
            "no line of it is a branch or call of Intel PT; write it with: perf script --itrace=cr -F +flags,+addr,+symoff",
        ));
    }
    state.finish(out);
    Ok(())
}

/// A line, in its parts.
#[derive(Debug, PartialEq, Eq)]
struct Line<'l> {
    comm: &'l [u8],
    pid: Option<u32>,
    tid: u32,
    ns: u64,
    what: What<'l>,
}

#[derive(Debug, PartialEq, Eq)]
enum What<'l> {
    /// Flags, where from, where to.
    Branch(&'l [u8], Place<'l>, Place<'l>),
    /// A call or return of the function, with its level.
    Indented {
        is_return: bool,
        has_flags: bool,
        level: usize,
        place: Place<'l>,
    },
    Other,
}

/// A place in a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place<'l> {
    address: u64,
    symbol: &'l [u8],
    offset: Option<u64>,
    object: &'l [u8],
}

impl<'l> Line<'l> {
    fn of(line: &'l [u8]) -> Option<Line<'l>> {
        let mut at = 0;
        let (ns, time_at, behind) = loop {
            let colon = at + memchr::memchr(b':', line.get(at..)?)?;
            let start = line
                .get(..colon)?
                .iter()
                .rposition(|byte| byte.is_ascii_whitespace())
                .map_or(0, |place| place + 1);
            if let Some(ns) = seconds(line.get(start..colon)?) {
                break (ns, start, colon + 1);
            }
            at = colon + 1;
        };
        // Command, process and thread, CPU.
        let mut front = trimmed(line.get(..time_at)?);
        if front.ends_with(b"]") {
            front = trimmed(front.get(..memchr::memrchr(b'[', front)?)?);
        }
        let start = front.iter().rposition(|byte| byte.is_ascii_whitespace()).map_or(0, |place| place + 1);
        let ids = str::from_utf8(front.get(start..)?).ok()?;
        let (pid, tid) = match ids.split_once('/') {
            Some((pid, tid)) => (Some(pid.parse().ok()?), tid.parse().ok()?),
            None => (None, ids.parse().ok()?),
        };
        let what = What::of(line.get(behind..)?).unwrap_or(What::Other);
        Some(Line { comm: trimmed(front.get(..start)?), pid, tid, ns, what })
    }

    fn is_call(&self) -> bool {
        self.what != What::Other
    }
}

impl<'l> What<'l> {
    fn of(rest: &'l [u8]) -> Option<What<'l>> {
        let arrow = memchr::memmem::find(rest, b" => ");
        let (left, right) = match arrow {
            Some(arrow) => (rest.get(..arrow)?, Some(rest.get(arrow + 4..)?)),
            None => (rest, None),
        };
        let mut left = left;
        // A period, and the event's name with its modifiers.
        if let Some(colon) = event_end(left) {
            left = left.get(colon..)?;
        }
        let flags_end = flags(left);
        let (flags, place) = left.split_at(flags_end);
        if let Some(right) = right {
            return Some(What::Branch(trimmed(flags), Place::of(place)?, Place::of(right)?));
        }
        let flags = trimmed(flags);
        let open = memchr::memchr(b'(', place)?;
        let close = open + memchr::memmem::find(place.get(open..)?, b")")?;
        let behind = place.get(close + 1..)?;
        let level = behind.iter().take_while(|byte| **byte == b' ').count();
        let symbol = trimmed(behind);
        if symbol.is_empty() || !trimmed(place.get(..open)?).is_empty() {
            return None;
        }
        let place = Place { symbol, object: trimmed(place.get(open + 1..close)?), ..Place::default() };
        let is_return = flags.starts_with(b"return");
        let is_known =
            flags.is_empty() || is_return || flags.starts_with(b"call") || flags.starts_with(b"tr ");
        is_known.then_some(What::Indented { is_return, has_flags: !flags.is_empty(), level, place })
    }
}

/// Where the event's name ends, if there is one: ` 1 branches:uH: `.
fn event_end(text: &[u8]) -> Option<usize> {
    let start = text.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let word = |from: usize| {
        text.get(from..).map_or(0, |text| text.iter().take_while(|byte| !byte.is_ascii_whitespace()).count())
    };
    let mut at = start;
    let first = text.get(at..at + word(at))?;
    if !first.is_empty() && first.iter().all(u8::is_ascii_digit) {
        let behind = at + first.len();
        at = behind + text.get(behind..)?.iter().position(|byte| !byte.is_ascii_whitespace())?;
    }
    let end = at + word(at);
    text.get(at..end)?.ends_with(b":").then_some(end)
}

/// Bytes of the flags, up to an address or a parenthesis.
fn flags(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(start) = rest.iter().position(|byte| !byte.is_ascii_whitespace()) else { break };
        let word = rest.get(start..).unwrap_or_default();
        let length = word.iter().position(u8::is_ascii_whitespace).unwrap_or(word.len());
        let word = word.get(..length).unwrap_or_default();
        // `(x)` is a flag of transactions.
        let is_flag = word.iter().all(|byte| byte.is_ascii_lowercase())
            && !word.iter().all(u8::is_ascii_hexdigit)
            || word == b"(x)";
        if !is_flag {
            break;
        }
        at += start + length;
    }
    at
}

impl<'l> Place<'l> {
    /// `7ffff7ddc143 _start+0x3 (/lib/ld.so)`
    fn of(text: &'l [u8]) -> Option<Place<'l>> {
        let text = trimmed(text);
        let length = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (address, rest) = text.split_at(length);
        if length == 0 || !rest.first().is_none_or(u8::is_ascii_whitespace) {
            return None;
        }
        let mut symbol = trimmed(rest);
        let mut object: &[u8] = b"";
        if symbol.ends_with(b")")
            && let Some(open) = memchr::memmem::rfind(symbol, b" (")
        {
            object = symbol.get(open + 2..symbol.len() - 1)?;
            symbol = trimmed(symbol.get(..open)?);
        }
        let mut offset = None;
        if let Some(plus) = memchr::memmem::rfind(symbol, b"+0x") {
            let digits = symbol.get(plus + 3..)?;
            if !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit) {
                offset = Some(crate::binary::hex_number(digits));
                symbol = symbol.get(..plus)?;
            }
        }
        Some(Place { address: crate::binary::hex_number(address), symbol, offset, object })
    }

    fn is_known(&self) -> bool {
        self.address != 0
    }

    fn is_beginning(&self) -> bool {
        self.offset.is_none_or(|offset| offset == 0)
    }
}

/// Nanoseconds of `seconds.fraction`.
fn seconds(text: &[u8]) -> Option<u64> {
    let dot = memchr::memchr(b'.', text)?;
    let (whole, fraction) = (text.get(..dot)?, text.get(dot + 1..)?);
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let mut ns = str::from_utf8(whole).ok()?.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    let mut unit = 100_000_000;
    for digit in fraction.iter().take(9) {
        ns = ns.checked_add(u64::from(digit - b'0') * unit)?;
        unit /= 10;
    }
    Some(ns)
}

#[derive(Default)]
struct State {
    processes: FxHashMap<Option<u32>, ProcessId>,
    threads: FxHashMap<u32, Thread>,
    /// By object.
    tables: FxHashMap<Vec<u8>, NamesId>,
    /// By object and symbol.
    functions: FxHashMap<Vec<u8>, Code>,
    key: Vec<u8>,
    calls: u64,
    errors: u64,
    other: u64,
    /// Whether any line has only a level.
    has_levels: bool,
    has_no_pid: bool,
}

struct Thread {
    id: ThreadId,
    /// Functions that are open, with their levels.
    open: Vec<(Code, usize)>,
    now: u64,
}

impl State {
    fn line<W: Write>(&mut self, text: &[u8], out: &mut Output<W>) -> io::Result<()> {
        if trimmed(text).starts_with(ERROR) {
            return self.error(trimmed(text), out);
        }
        let Some(line) = Line::of(text) else {
            let text = trimmed(text);
            self.other += u64::from(!text.is_empty() && !text.starts_with(b"#"));
            return Ok(());
        };
        let Line { comm, pid, tid, ns, what } = line;
        if what == What::Other {
            self.other += 1;
            return Ok(());
        }
        self.calls += 1;
        self.thread(comm, pid, tid, out)?;
        match what {
            What::Branch(flags, from, to) => self.branch(tid, ns, flags, (from, to), out),
            What::Indented { is_return, has_flags, level, place } => {
                self.indented(tid, ns, is_return, (!has_flags).then_some(level), place, out)
            }
            What::Other => Ok(()),
        }
    }

    fn thread<W: Write>(
        &mut self,
        comm: &[u8],
        pid: Option<u32>,
        tid: u32,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        if self.threads.contains_key(&tid) {
            return Ok(());
        }
        self.has_no_pid |= pid.is_none();
        let process = match self.processes.get(&pid) {
            Some(process) => *process,
            None => {
                let facts =
                    ProcessFacts { pid: pid.unwrap_or(0), name: comm.to_vec(), ..ProcessFacts::default() };
                let process = out.process(facts)?;
                self.processes.insert(pid, process);
                process
            }
        };
        let id = out.thread(process, tid, comm, true);
        self.threads.insert(tid, Thread { id, open: Vec::new(), now: 0 });
        Ok(())
    }

    fn code<W: Write>(&mut self, place: Place<'_>, out: &mut Output<W>) -> Code {
        self.key.clear();
        self.key.extend(place.object);
        self.key.push(0);
        self.key.extend(place.symbol);
        if let Some(code) = self.functions.get(&self.key) {
            return *code;
        }
        let object: &[u8] = if place.object.is_empty() { b"functions of the trace" } else { place.object };
        let table = match self.tables.get(object) {
            Some(table) => *table,
            None => {
                let table = out.names(object);
                self.tables.insert(object.to_vec(), table);
                table
            }
        };
        let code = out.name(table, if place.symbol.is_empty() { b"[unknown]" } else { place.symbol });
        self.functions.insert(self.key.clone(), code);
        code
    }

    fn branch<W: Write>(
        &mut self,
        tid: u32,
        ns: u64,
        flags: &[u8],
        (from, to): (Place<'_>, Place<'_>),
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let is = |word: &[u8]| memchr::memmem::find(flags, word).is_some();
        let (begins, ends) = (is(b"tr strt"), is(b"tr end"));
        let source = from.is_known().then(|| self.code(from, out));
        let target = to.is_known().then(|| self.code(to, out));
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let ns = ns.max(thread.now);
        thread.now = ns;
        if begins {
            return match target {
                Some(target) => thread.goes_on_in(target, ns, out),
                None => Ok(()),
            };
        }
        // No call is open yet: the branch comes from a function that ran already.
        if let Some(source) = source
            && thread.open.is_empty()
            && !is(b"return")
        {
            thread.enter(source, 0, ns, out)?;
        }
        let Some(target) = target.filter(|_| !ends) else { return Ok(()) };
        let is_other = source != Some(target);
        if is(b"call") || is(b"syscall") || is(b"int") && !is(b"iret") {
            return thread.enter(target, 0, ns, out);
        }
        if is(b"return") || is(b"iret") || is(b"sysret") {
            return match source {
                Some(source) => thread.leave(source, ns, out),
                None => Ok(()),
            };
        }
        if (is(b"jmp") || is(b"jcc")) && is_other && to.is_beginning() {
            // A tail call.
            if let Some(source) = source {
                thread.leave(source, ns, out)?;
            }
            return thread.enter(target, 0, ns, out);
        }
        Ok(())
    }

    /// A line with a level, or with a flag.
    fn indented<W: Write>(
        &mut self,
        tid: u32,
        ns: u64,
        is_return: bool,
        level: Option<usize>,
        place: Place<'_>,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let code = self.code(place, out);
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let ns = ns.max(thread.now);
        thread.now = ns;
        if let Some(level) = level {
            self.has_levels = true;
            while let Some((open, its)) = thread.open.last().copied()
                && its >= level
            {
                thread.open.pop();
                out.exit(thread.id, ns, open)?;
            }
            return thread.enter(code, level, ns, out);
        }
        if is_return { thread.leave(code, ns, out) } else { thread.enter(code, 0, ns, out) }
    }

    fn error<W: Write>(&mut self, text: &[u8], out: &mut Output<W>) -> io::Result<()> {
        self.errors += 1;
        let words: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
        let tid = words.windows(2).find_map(|pair| match pair {
            [b"tid", tid] => str::from_utf8(tid).ok()?.parse::<u32>().ok(),
            _ => None,
        });
        if let Some(thread) = tid.and_then(|tid| self.threads.get_mut(&tid)) {
            thread.open.clear();
            out.lose(thread.id, None)?;
        }
        Ok(())
    }

    fn finish<W: Write>(&self, out: &mut Output<W>) {
        out.facts.clock = "nanoseconds of perf's clock".to_owned();
        if let Some((first, last)) = out.reach() {
            let reading =
                |ns: u64| ClockReading { ticks: ns, monotonic_raw_ns: ns, ..ClockReading::default() };
            out.facts.readings = [first, last.max(first + 1)].into_iter().map(reading).collect();
        }
        let notes = &mut out.facts.notes;
        notes.push(
            "functions in which the trace begins, or goes on behind an error, began earlier".to_owned(),
        );
        if self.errors > 0 {
            notes.push(format!(
                "perf couldn't decode the trace in {} places: calls there are missing",
                self.errors
            ));
        }
        if self.has_levels {
            notes.push(
                "the text doesn't say when calls ended: each is shown up to the next call of its level or of one above"
                    .to_owned(),
            );
        }
        if self.has_no_pid {
            notes.push(
                "the text doesn't say of which process threads are; perf script -F +pid does".to_owned(),
            );
        }
        if self.other > 0 {
            notes.push(format!("{} lines that are neither calls nor branches were left out", self.other));
        }
    }
}

impl Thread {
    fn enter<W: Write>(&mut self, code: Code, level: usize, ns: u64, out: &mut Output<W>) -> io::Result<()> {
        self.open.push((code, level));
        out.entry(self.id, ns, code)
    }

    /// A function is left; calls inside it that are still open ended before.
    fn leave<W: Write>(&mut self, code: Code, ns: u64, out: &mut Output<W>) -> io::Result<()> {
        if let Some(place) = self.open.iter().rposition(|(open, _)| *open == code) {
            let left = self.open.len() - place - 1;
            if left > 0 {
                out.unwound_late(self.id, ns, left as u32)?;
            }
            self.open.truncate(place);
        }
        // Without its entry, it began before the trace did.
        out.exit(self.id, ns, code)
    }

    /// The trace begins, or goes on after the kernel ran.
    fn goes_on_in<W: Write>(&mut self, code: Code, ns: u64, out: &mut Output<W>) -> io::Result<()> {
        match self.open.iter().rposition(|(open, _)| *open == code) {
            Some(place) => {
                let left = self.open.len() - place - 1;
                if left > 0 {
                    self.open.truncate(place + 1);
                    out.unwound_late(self.id, ns, left as u32)?;
                }
                Ok(())
            }
            None => self.enter(code, 0, ns, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_their_parts() {
        let line = Line::of(
            b"my app 30/31 [001] 7.000000002:  1  branches:uH:   tr end  call   7ff a::f(int, b<c>)+0x3 (/lib/x y.so) =>    0 [unknown] ([unknown])",
        )
        .unwrap();
        assert_eq!((line.comm, line.pid, line.tid, line.ns), (&b"my app"[..], Some(30), 31, 7_000_000_002));
        let from =
            Place { address: 0x7ff, symbol: b"a::f(int, b<c>)", offset: Some(3), object: b"/lib/x y.so" };
        let to = Place { address: 0, symbol: b"[unknown]", offset: None, object: b"[unknown]" };
        assert_eq!(line.what, What::Branch(b"tr end  call", from, to));
        let line = Line::of(b"app 5 12.5:     (/bin/app       )       main").unwrap();
        let place = Place { symbol: b"main", object: b"/bin/app", ..Place::default() };
        assert_eq!(line.what, What::Indented { is_return: false, has_flags: false, level: 7, place });
        assert_eq!((line.pid, line.tid, line.ns), (None, 5, 12_500_000_000));
        assert_eq!(Line::of(b"app 5 [000] 1.5:  cbr:  44 freq: 4410 MHz").unwrap().what, What::Other);
        assert_eq!(Line::of(b"no line of perf"), None);
    }
}
