//! pprof's `profile.proto`, compressed by gzip as its readers expect: a sample for each call path,
//! with its calls and the nanoseconds spent on it and not on longer ones.
//!
//! Numbers of fields are those of `perftools.profiles.Profile` in
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>. Functions have their source
//! file and line. There are no addresses: pprof never needs the binaries.

use std::io::{self, Write};

use flate2::Compression;
use flate2::GzBuilder;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;

use super::protobuf::Message;
use crate::driver::Export;
use crate::frames::Frame;
use crate::names::Functions;
use crate::paths::Paths;
use crate::portions::Portions;
use crate::source::Source;

/// Fields of `Profile`.
mod profile {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Texts, each once; the first is empty.
#[derive(Default)]
struct Strings {
    numbers: FxHashMap<String, u64>,
    texts: Vec<String>,
}

impl Strings {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn value_type(&mut self, field: u32, kind: &str, unit: &str, message: &mut Vec<u8>) {
        let (kind, unit) = (self.number(kind), self.number(unit));
        message.message(field, |inner| {
            inner.number(1, kind);
            inner.number(2, unit);
        });
    }

    /// The function of a frame, and the location that stands for it.
    fn frame(
        &mut self,
        (frame, name): (Frame, &str),
        id: u64,
        functions: &Functions<'_>,
        message: &mut Vec<u8>,
    ) {
        let (mut symbol, mut file, mut line) = (0, 0, 0);
        let name = self.number(name);
        if let Frame::Function(function) = frame {
            let details = functions.details(function);
            symbol = details.symbol.or(details.full_name).map_or(0, |symbol| self.number(&symbol));
            let function = functions.get(function);
            file = function.file.as_deref().map_or(0, |file| self.number(file));
            line = u64::from(function.line.unwrap_or(0));
        }
        message.message(profile::FUNCTION, |inner| {
            inner.number(1, id);
            inner.number(2, name);
            inner.number(3, if symbol == 0 { name } else { symbol });
            inner.number(4, file);
            inner.number(5, line);
        });
        message.message(profile::LOCATION, |inner| {
            inner.number(1, id);
            inner.message(4, |inner| {
                inner.number(1, id);
                inner.number(2, line);
            });
        });
    }
}

/// Writes the profile.
pub(crate) fn write<S: Source>(
    paths: &Paths,
    export: &Export<'_, S>,
    portions: &mut Portions<'_>,
) -> io::Result<()> {
    let mut strings = Strings::default();
    strings.number("");
    let mut zip = GzBuilder::new().comment("everycall").write(Vec::new(), Compression::fast());
    let mut message = Vec::new();
    strings.value_type(profile::SAMPLE_TYPE, "calls", "count", &mut message);
    strings.value_type(profile::SAMPLE_TYPE, "wall", "nanoseconds", &mut message);
    strings.value_type(profile::PERIOD_TYPE, "wall", "nanoseconds", &mut message);
    message.number(profile::PERIOD, 1);
    let default = strings.number("wall");
    message.number(profile::DEFAULT_SAMPLE_TYPE, default);
    if let Some(ns) = export.source.origin_realtime_ns() {
        message.number(profile::TIME_NANOS, ns);
    }
    message.number(profile::DURATION_NANOS, export.source.end_ns());
    if paths.lost_events > 0 {
        let lost = format!("{} events are missing", paths.lost_events);
        let comment = strings.number(&lost);
        message.number(profile::COMMENT, comment);
    }
    let mut ids: FxHashMap<Frame, u64> = FxHashMap::default();
    let mut new = Vec::new();
    for path in paths.iter() {
        message.message(profile::SAMPLE, |sample| {
            let mut locations = Vec::new();
            for frame in paths.frames(path) {
                let next = ids.len() as u64 + 1;
                let id = *ids.entry(frame).or_insert_with(|| {
                    new.push((frame, next));
                    next
                });
                locations.varint(id);
            }
            sample.bytes(1, &locations);
            let mut values = Vec::new();
            values.varint(path.calls);
            values.varint(path.own_ns);
            sample.bytes(2, &values);
        });
        flow(&mut message, &mut zip, portions)?;
    }
    for (frame, id) in new {
        strings.frame((frame, paths.name(frame, &export.functions)), id, &export.functions, &mut message);
        flow(&mut message, &mut zip, portions)?;
    }
    for text in &strings.texts {
        message.text(profile::STRING_TABLE, text);
        flow(&mut message, &mut zip, portions)?;
    }
    zip.write_all(&message)?;
    let rest = zip.finish()?;
    portions.put(&rest);
    Ok(())
}

/// Compresses what is complete, and writes what is compressed, as soon as there is much of it.
fn flow(message: &mut Vec<u8>, zip: &mut GzEncoder<Vec<u8>>, portions: &mut Portions<'_>) -> io::Result<()> {
    const MUCH: usize = 64 << 10;
    if message.len() >= MUCH {
        zip.write_all(message)?;
        message.clear();
        portions.put(zip.get_ref());
        zip.get_mut().clear();
        portions.spill()?;
    }
    Ok(())
}
