//! `record --log FILE[:TIME FORMAT]`: the lines that the program adds to a file while it is
//! recorded.
//!
//! Without a format, the file is looked at often while the program runs, and a line has the time at
//! which it was found. With one, lines are read at the end and have the times that they begin with.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use everycall_format::arena::ClockReading;
use everycall_io::say;
use everycall_machine::clock;
use everycall_recorder::{LogFile, LogFileLine};
use everycall_units::Several;
use jiff::Zoned;

use crate::arguments::LogChoice;
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::log_format::Reader;

/// How often files without a format are looked at.
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes of a line that are kept.
const LINE_MAX: usize = 672;
/// Bytes of a file that are read.
const FILE_MAX: u64 = 64 << 20;
/// Lines of a file that are kept.
const LINES_MAX: usize = 1 << 20;
/// Times in a file may be rounded by as much as this.
const ROUNDED: i128 = 1_000_000_000;

/// A file whose lines are recorded.
pub struct Logged {
    path: PathBuf,
    format: Option<String>,
    /// Where the program's first line begins, and in which file of that name.
    from: Place,
    begun: ClockReading,
    begun_at: Zoned,
    thread: Option<(Arc<AtomicBool>, JoinHandle<Lines>)>,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Which file: 0 if there is none.
    inode: u64,
    offset: u64,
    /// Lines before it.
    lines: u64,
}

/// The lines that were read.
#[derive(Debug, Default)]
struct Lines {
    /// The ticks are those at which a line was found.
    all: Vec<LogFileLine>,
    /// The beginning of a line whose end hasn't been written.
    rest: Vec<u8>,
    /// Bytes of such a line that aren't kept.
    cut: u64,
    /// Lines that aren't kept.
    more: u64,
    /// Why not everything could be read.
    problem: Option<String>,
}

/// Begins to watch the files before the program starts.
pub fn watch(choices: &[LogChoice]) -> Result<Vec<Logged>, Failure> {
    choices.iter().map(Logged::begin).collect()
}

impl Logged {
    fn begin(choice: &LogChoice) -> Result<Logged, Failure> {
        let LogChoice { path, format } = choice.clone();
        let shown = path.display().to_string();
        let refused = |why: String| Failure::new(exit_code::NOT_RECORDED, format!("--log {shown}: {why}"));
        let mut from = Place::default();
        match open(&path) {
            Ok(mut file) => {
                let facts = file.metadata().map_err(|error| refused(error.to_string()))?;
                from = Place { inode: facts.ino(), offset: facts.len(), lines: 0 };
                from.lines =
                    count_lines(&mut file, from.offset).map_err(|error| refused(error.to_string()))?;
            }
            // The program will make it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(refused(format!("can't be read: {error}; name the program's log file")));
            }
        }
        let mut logged =
            Logged { path, format, from, begun: clock::read(), begun_at: Zoned::now(), thread: None };
        if logged.format.is_none() {
            let (path, mut place) = (logged.path.clone(), from);
            let is_over = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&is_over);
            let look = move || {
                let mut lines = Lines::default();
                loop {
                    let is_last = seen.load(Ordering::Acquire);
                    lines.look(&path, &mut place, u64::MAX);
                    if is_last {
                        lines.end();
                        return lines;
                    }
                    std::thread::park_timeout(PAUSE);
                }
            };
            let thread = std::thread::Builder::new().name("log".to_owned()).spawn(look);
            let thread =
                thread.map_err(|error| refused(format!("no thread can be started for it: {error}")))?;
            logged.thread = Some((is_over, thread));
        }
        Ok(logged)
    }

    /// Its lines, when the program has ended.
    pub fn end(mut self) -> LogFile {
        let shown = self.path.display().to_string();
        let lines = match self.thread.take() {
            Some((is_over, thread)) => {
                is_over.store(true, Ordering::Release);
                thread.thread().unpark();
                thread.join().unwrap_or_default()
            }
            None => {
                let mut lines = Lines::default();
                lines.look(&self.path, &mut self.from, FILE_MAX);
                lines.end();
                lines
            }
        };
        if let Some(problem) = &lines.problem {
            say!("everycall: --log {shown}: {problem}");
        }
        if lines.more > 0 {
            let more = Several(lines.more, "line", "lines");
            say!("everycall: --log {shown}: {more} more are not in the trace; it takes {LINES_MAX}");
        }
        if lines.all.is_empty() && lines.problem.is_none() {
            say!("everycall: --log {shown}: the program wrote no lines into it");
        }
        let name = self.path.file_name().unwrap_or(self.path.as_os_str()).as_bytes().to_vec();
        let lines = match self.format.take() {
            Some(format) => self.placed(&shown, &format, lines.all),
            None => lines.all,
        };
        LogFile { name, lines }
    }

    /// The lines at their own times. One without a time belongs to the line before it.
    fn placed(&self, shown: &str, format: &str, mut lines: Vec<LogFileLine>) -> Vec<LogFileLine> {
        let ended = clock::read();
        let reader = Reader { format, begun: &self.begun_at };
        let (mut timeless, mut outside) = (0, 0);
        let mut last: Option<i128> = None;
        lines.retain_mut(|line| {
            let own = reader.time(&line.text, last);
            timeless += u64::from(own.is_none());
            last = own.or(last);
            let ticks = last.and_then(|time| ticks_at(time, &self.begun, &ended));
            outside += u64::from(last.is_some() && ticks.is_none());
            line.ticks = ticks.unwrap_or(0);
            ticks.is_some()
        });
        if last.is_none() && timeless > 0 {
            let several = Several(timeless, "line", "lines");
            say!(
                "everycall: --log {shown}: none of {several} begins with a time of the form {format:?}, so none is in the trace; \
                 without a format they are placed when they are found"
            );
        } else if timeless > 0 {
            let several = Several(timeless, "line", "lines");
            say!("everycall: --log {shown}: {several} begin with no time, and have that of the line before");
        }
        if outside > 0 {
            let several = Several(outside, "line", "lines");
            say!("everycall: --log {shown}: {several} have times outside of the recording, and are left out");
        }
        lines
    }
}

/// Ticks at a real time, in nanoseconds since 1970, during the recording.
fn ticks_at(time: i128, begun: &ClockReading, ended: &ClockReading) -> Option<u64> {
    let (first, last) = (i128::from(begun.realtime_ns), i128::from(ended.realtime_ns));
    if time < first - ROUNDED || time > last + ROUNDED {
        return None;
    }
    let inside = time.clamp(first, last) - first;
    let ticks = i128::from(ended.ticks.saturating_sub(begun.ticks));
    u64::try_from(inside * ticks / (last - first).max(1)).ok()?.checked_add(begun.ticks)
}

/// Opens a log: a regular file. Nothing else is waited for or read from.
fn open(path: &Path) -> io::Result<File> {
    everycall_io::infile::open(path)
}

/// Lines in the first `length` bytes of a file.
fn count_lines(file: &mut File, length: u64) -> io::Result<u64> {
    let mut left = length;
    let mut lines = 0;
    let mut block = vec![0; 1 << 16];
    while left > 0 {
        let wanted = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = file.read(&mut block[..wanted])?;
        if count == 0 {
            break;
        }
        lines += block[..count].iter().filter(|byte| **byte == b'\n').count() as u64;
        left -= count as u64;
    }
    Ok(lines)
}

impl Lines {
    /// Reads what has been added behind `place`, up to `most` bytes.
    fn look(&mut self, path: &Path, place: &mut Place, most: u64) {
        match self.read(path, place, most) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.problem = Some(format!("can't be read: {error}")),
        }
    }

    fn read(&mut self, path: &Path, place: &mut Place, most: u64) -> io::Result<()> {
        // Without opening it, as this happens often.
        let facts = path.metadata()?;
        if !facts.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        if (facts.ino(), facts.len()) == (place.inode, place.offset) {
            return Ok(());
        }
        let mut file = open(path)?;
        let facts = file.metadata()?;
        if facts.ino() != place.inode || facts.len() < place.offset {
            // Another file of that name, or it was truncated.
            self.end();
            *place = Place { inode: facts.ino(), ..Place::default() };
        }
        let found = clock::ticks();
        file.seek(SeekFrom::Start(place.offset))?;
        let mut input = file.take(most.min(facts.len() - place.offset));
        let mut block = vec![0; 1 << 16];
        loop {
            let count = input.read(&mut block)?;
            if count == 0 {
                break;
            }
            place.offset += count as u64;
            self.add(&block[..count], found, &mut place.lines);
        }
        let left = facts.len().saturating_sub(place.offset);
        if left > 0 {
            self.problem =
                Some(format!("its last {left} bytes are not in the trace; at most {FILE_MAX} are read"));
        }
        Ok(())
    }

    fn add(&mut self, bytes: &[u8], ticks: u64, lines: &mut u64) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = LINE_MAX.saturating_sub(self.rest.len()).min(text.len());
            self.rest.extend(&text[..room]);
            self.cut += (text.len() - room) as u64;
            if text.len() < part.len() {
                *lines += 1;
                self.keep(ticks, *lines);
            }
        }
    }

    /// Keeps the line that has been read.
    fn keep(&mut self, ticks: u64, number: u64) {
        let mut text = std::mem::take(&mut self.rest);
        let cut = std::mem::take(&mut self.cut);
        if text.ends_with(b"\r") {
            text.pop();
        }
        if self.all.len() < LINES_MAX {
            self.all.push(LogFileLine { ticks, number, text, cut });
        } else {
            self.more += 1;
        }
    }

    /// Keeps the last line, if its end is missing.
    fn end(&mut self) {
        if !self.rest.is_empty() {
            let number = self.all.last().map_or(1, |line| line.number + 1);
            self.keep(clock::ticks(), number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_numbered() {
        let (mut lines, mut number) = (Lines::default(), 4);
        lines.add(b"one\r\ntw", 1, &mut number);
        lines.add(b"o\n\n", 2, &mut number);
        lines.add(&[b'x'; 1000], 3, &mut number);
        lines.end();
        let shown: Vec<_> = lines.all.iter().map(|line| (line.number, line.text.len(), line.cut)).collect();
        assert_eq!(shown, [(5, 3, 0), (6, 3, 0), (7, 0, 0), (8, LINE_MAX, 1000 - LINE_MAX as u64)]);
    }
}
