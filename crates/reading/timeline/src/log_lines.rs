//! Log lines: each different one is kept once and numbered. Their formats' texts are read by
//! whoever knows the modules' files.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use everycall_format::log_line::stream;
use everycall_reader::log_line::{LogFormat, LogLine, format_address, log_payloads, output_line};
use everycall_reader::{Module, Recording};

use crate::slots::StepKind;
use everycall_calls::Location;
use everycall_calls::{MarkName, Stream};

/// Different lines that are kept.
const LINES_MAX: usize = 1 << 22;
/// The text of all further ones.
const FURTHER: &str = "(one of more log lines than are kept)";
/// In a key: no module is known to have the format.
const NO_MODULE: u32 = u32::MAX;

/// Where a module lay, and when.
#[derive(Clone, Debug)]
struct Place {
    process: usize,
    start: u64,
    end: u64,
    base: u64,
    loaded: u64,
    unloaded: u64,
    module: u32,
}

impl Place {
    fn of(module: &Module) -> Option<Place> {
        Some(Place {
            process: module.process,
            start: module.start,
            end: module.end,
            base: module.base,
            loaded: module.loaded_ticks,
            unloaded: module.unloaded_ticks.unwrap_or(u64::MAX),
            module: u32::try_from(module.same_file).ok().filter(|module| *module < Location::LOST_MODULE)?,
        })
        .filter(|_| module.is_complete())
    }

    fn holds(&self, process: usize, address: u64) -> bool {
        self.process == process && (self.start..self.end).contains(&address)
    }

    fn is_there(&self, ticks: u64) -> bool {
        self.loaded <= ticks && ticks < self.unloaded
    }
}

/// The index of a place.
#[derive(Debug, Default)]
struct Last(AtomicUsize);

impl Last {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, index: usize) {
        self.0.store(index, Ordering::Relaxed);
    }
}

impl Clone for Last {
    fn clone(&self) -> Last {
        Last(AtomicUsize::new(self.get()))
    }
}

/// The log lines of a trace.
#[derive(Clone, Debug, Default)]
pub struct LogLines {
    places: Vec<Place>,
    /// The place that was found last.
    last: Last,
    /// By a module's number and the payloads of a record, with the format's address in the module's
    /// image.
    numbers: HashMap<Box<[u32]>, u32>,
    /// The keys of `numbers`, by number.
    lines: Vec<Box<[u32]>>,
    count: u64,
}

impl LogLines {
    pub(crate) fn new(recording: &Recording) -> LogLines {
        LogLines { places: recording.modules.iter().filter_map(Place::of).collect(), ..LogLines::default() }
    }

    /// How many there are in the trace.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The text of a line. `format_at` reads the format at a place of a module, without its end.
    #[must_use]
    pub fn text(&self, name: MarkName, format_at: impl FnOnce(Location) -> Option<Vec<u8>>) -> String {
        let Some((module, payloads)) = self.lines.get(name.0 as usize).and_then(|line| line.split_first())
        else {
            return FURTHER.to_owned();
        };
        let line = LogLine::from_payloads(payloads);
        let read = match line.format {
            LogFormat::Address(image_address) if *module != NO_MODULE => {
                format_at(Location { module: *module, image_address })
            }
            _ => None,
        };
        line.text(read.as_deref())
    }

    /// Counts the line in the record that begins at `slot` of `words`.
    pub(crate) fn add(&mut self, words: &[u64], slot: u32, process: usize, ticks: u64) {
        self.count += 1;
        let key = self.key(words, slot, process, ticks);
        if self.lines.len() < LINES_MAX && !self.numbers.contains_key(&*key) {
            self.numbers.insert(key.clone().into(), self.lines.len() as u32);
            self.lines.push(key.into());
        }
    }

    /// The number of a line that was counted.
    pub(crate) fn number(&self, words: &[u64], slot: u32, process: usize, ticks: u64) -> MarkName {
        let key = self.key(words, slot, process, ticks);
        MarkName(self.numbers.get(&*key).copied().unwrap_or(LINES_MAX as u32))
    }

    /// The step of a line that was counted.
    pub(crate) fn step(&self, words: &[u64], slot: u32, process: usize, ticks: u64) -> StepKind {
        let name = self.number(words, slot, process, ticks);
        match output_line(words, slot) {
            None => StepKind::Log(name),
            Some((written, line)) => {
                let to = match written {
                    stream::STDOUT => Stream::Stdout,
                    stream::STDERR => Stream::Stderr,
                    stream::FILE => Stream::File,
                    other => Stream::Other(u8::try_from(other).unwrap_or(0)),
                };
                StepKind::Output(to, name, line)
            }
        }
    }

    fn key(&self, words: &[u64], slot: u32, process: usize, ticks: u64) -> Vec<u32> {
        let mut key = vec![NO_MODULE];
        key.extend(log_payloads(words, slot));
        if let [module, _, low, high, ..] = &mut key[..]
            && let Some(address) = format_address(words, slot)
            && let Some((found, image_address)) = self.module(process, address, ticks)
        {
            (*module, *low, *high) = (found, image_address as u32, (image_address >> 32) as u32);
        }
        key
    }

    /// The module that holds an address, and the address in its image. If none held it at that
    /// time, the last one that ever did.
    fn module(&self, process: usize, address: u64, ticks: u64) -> Option<(u32, u64)> {
        let located = |place: &Place| (place.module, address.wrapping_sub(place.base));
        if let Some(place) = self.places.get(self.last.get())
            && place.holds(process, address)
            && place.is_there(ticks)
        {
            return Some(located(place));
        }
        let holding = || self.places.iter().enumerate().filter(|(_, place)| place.holds(process, address));
        let (index, place) =
            holding().find(|(_, place)| place.is_there(ticks)).or_else(|| holding().next_back())?;
        self.last.set(index);
        Some(located(place))
    }
}
