//! One page that holds everything: the same page as the server's, with its data inside.
//! `docs/design/viewer.md` has the form of the data.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

use everycall_analysis::{SymbolNames, TraceView};
use everycall_answers::page::BEGIN;
use everycall_export::{Filter, Names as _};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::answers::{self, LabelValue};
use crate::assets;
use crate::counted;
use crate::file::{File, Input, lock};
use crate::gathered::{Slice, Track, gathered};
use crate::library::Library;
use crate::packed::{put, zigzag};

/// Marks of a track in the page.
const MARKS_MAX: usize = 1 << 16;

/// The contents of a page, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Calls.
    pub calls: u64,
    /// Source files.
    pub sources: u64,
    /// Bytes of the page.
    pub bytes: u64,
}

/// Writes a page with the calls of a file that pass `filter`.
///
/// # Errors
///
/// Those of `out`, and where the file can't be opened or no thread started.
pub fn write_page(input: Input, filter: &Filter, out: &mut dyn Write) -> io::Result<Written> {
    let options = input.names.clone();
    let library = Library::open(vec![input])?;
    let files = library.wait().map_err(io::Error::other)?;
    let Some(open) = files.first() else { return Ok(Written::default()) };
    let file = &open.file;
    let names = SymbolNames::new(&file.file, &file.trace, options);
    let view = TraceView::new(&file.trace, &names);
    let found = gathered(file, &view, &names, &library.functions, filter);
    let (tracks, labels, places) = (found.tracks, found.labels, found.places);
    let all_calls = counted::by_track(file, &view, &library.functions, filter);
    let (mut json, sources) =
        described(&library, file, &names, (&tracks, &places), labels, (filter, filter.bounds(&view)))?;
    json["all_calls"] = json!(all_calls);
    json["places"] = json!(places);
    let text = str::from_utf8(assets::ALONE).unwrap_or_default();
    let (before, behind) = text.split_once("<!--data-->").unwrap_or((text, ""));
    let mut out = Counted { out, bytes: 0 };
    out.write_all(before.as_bytes())?;
    out.write_all(b"<script type=\"application/octet-stream;base64\" id=\"answers\">")?;
    let mut answers = Base64::new(&mut out);
    answers.write_all(assets::ANSWERS)?;
    answers.finish()?;
    out.write_all(b"</script>\n<script type=\"application/octet-stream;base64\" id=\"data\">")?;
    let mut packed = GzEncoder::new(Base64::new(&mut out), Compression::default());
    packed.write_all(BEGIN)?;
    let json = json.to_string();
    packed.write_all(&length(json.len())?)?;
    packed.write_all(json.as_bytes())?;
    for track in &tracks {
        for stream in streams(&track.slices) {
            packed.write_all(&length(stream.len())?)?;
            packed.write_all(&stream)?;
        }
    }
    packed.finish()?.finish()?;
    out.write_all(b"</script>")?;
    out.write_all(behind.as_bytes())?;
    out.flush()?;
    let calls = tracks.iter().map(|track| track.slices.len() as u64).sum();
    Ok(Written { calls, sources, bytes: out.bytes })
}

fn length(length: usize) -> io::Result<[u8; 4]> {
    let too_large =
        |_| io::Error::other("this is more than a page can hold; choose a range with --since and --until");
    Ok(u32::try_from(length).map_err(too_large)?.to_le_bytes())
}

/// Everything but the slices, and how many sources are in it.
fn described(
    library: &Arc<Library>,
    file: &File,
    names: &SymbolNames<'_>,
    (tracks, places): (&[Track], &[(u32, u8)]),
    labels: Vec<(u32, u64, u32, String, LabelValue)>,
    (filter, (from, to)): (&Filter, (u64, u64)),
) -> io::Result<(Value, u64)> {
    let mut trace = answers::trace(library).map_err(io::Error::other)?;
    let of_slice = |slice: &Slice| places.get(slice.place as usize).map(|(function, _)| *function);
    let used: BTreeSet<u32> = tracks.iter().flat_map(|track| &track.slices).filter_map(of_slice).collect();
    let (functions, files) = {
        let functions = lock(&library.functions);
        let of = |number: &u32| functions.get(*number)?.identity.file.clone();
        let files: BTreeSet<String> = used.iter().filter_map(of).collect();
        (functions.facts(0, functions.len()), files)
    };
    trace.functions = functions.len();
    let mut sources = serde_json::Map::new();
    for path in files {
        if let Some(text) = names.source(&path) {
            sources.insert(path, json!(text));
        }
    }
    let (mut marks, mut states, mut samples) = (Vec::new(), BTreeMap::new(), Vec::new());
    let is_shown = |thread: usize| tracks.iter().any(|track| track.id == file.track_id(thread));
    for thread in (0..file.threads.len()).filter(|thread| is_shown(*thread)) {
        let id = file.track_id(thread);
        marks.extend(
            answers::marks_of(library, file.index, thread, (from, to), MARKS_MAX)
                .map_err(io::Error::other)?,
        );
        if filter.shows_all_calls() {
            // None are merged. Where calls are hidden, they would be below others.
            samples.extend(answers::samples_of(file, thread, (from, to, u64::MAX)));
        }
        if let Some(rows) = answers::states_of(file, thread, (from, to, u64::MAX)) {
            states.insert(id, rows);
        }
    }
    let count = sources.len() as u64;
    let counters = answers::counters_of(file, (from, to.min(file.end_ns), 100_000));
    let counter = |counter: &answers::Counter| {
        let points: Vec<_> = counter.points.iter().map(|point| (point.at, point.last)).collect();
        json!({ "track": counter.track, "pid": counter.pid, "name": counter.name, "points": points })
    };
    let json = json!({
        "trace": trace,
        "functions": functions,
        "order": tracks.iter().map(|track| track.id).collect::<Vec<_>>(),
        "counts": tracks.iter().map(|track| track.slices.len()).collect::<Vec<_>>(),
        "sources": sources,
        "states": states,
        "marks": marks,
        "samples": samples,
        "counters": counters.iter().map(counter).collect::<Vec<_>>(),
        "labels": labels,
    });
    Ok((json, count))
}

/// Begins, durations, places, depths, bits of the few that have some, and the times of those that
/// the page doesn't have all of.
fn streams(slices: &[Slice]) -> [Vec<u8>; 6] {
    let mut streams: [Vec<u8>; 6] = Default::default();
    let [froms, durations, places, depths, exceptions, less] = &mut streams;
    let (mut from, mut depth, mut exception, mut lacking) = (0, 0_i64, 0, 0);
    for (index, slice) in slices.iter().enumerate() {
        put(froms, slice.from.saturating_sub(from));
        from = from.max(slice.from);
        put(durations, slice.duration);
        put(places, slice.place.into());
        let difference = i64::from(slice.depth) - depth;
        put(depths, zigzag(difference.cast_unsigned()));
        depth = slice.depth.into();
        if slice.bits != 0 {
            put(exceptions, (index - exception) as u64);
            put(exceptions, slice.bits.into());
            exception = index;
        }
        if let Some((inner_ns, suspended_ns)) = slice.less {
            put(less, (index - lacking) as u64);
            put(less, inner_ns);
            put(less, suspended_ns);
            lacking = index;
        }
    }
    streams
}

/// Counts bytes.
struct Counted<'o> {
    out: &'o mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes bytes as base64.
struct Base64<W> {
    out: W,
    /// Bytes that don't fill a group of three.
    left: Vec<u8>,
}

impl<W: Write> Base64<W> {
    fn new(out: W) -> Base64<W> {
        Base64 { out, left: Vec::new() }
    }

    fn put(&mut self, groups: &[u8]) -> io::Result<()> {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = Vec::with_capacity(groups.len() / 3 * 4 + 4);
        for group in groups.chunks(3) {
            let byte = |place: usize| u32::from(group.get(place).copied().unwrap_or(0));
            let number = byte(0) << 16 | byte(1) << 8 | byte(2);
            for digit in 0..4_usize {
                let value = number >> (18 - 6 * digit) & 63;
                let is_there = digit <= group.len();
                text.push(if is_there { DIGITS.get(value as usize).copied().unwrap_or(b'=') } else { b'=' });
            }
        }
        self.out.write_all(&text)
    }

    fn finish(mut self) -> io::Result<()> {
        let left = std::mem::take(&mut self.left);
        self.put(&left)
    }
}

impl<W: Write> Write for Base64<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left.extend_from_slice(bytes);
        let whole = self.left.len() / 3 * 3;
        let rest = self.left.split_off(whole);
        let groups = std::mem::replace(&mut self.left, rest);
        self.put(&groups)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_usual_one() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            let mut out = Vec::new();
            let mut base64 = Base64::new(&mut out);
            for byte in bytes.bytes() {
                base64.write_all(&[byte]).unwrap();
            }
            base64.finish().unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn numbers_are_leb128() {
        let mut out = Vec::new();
        for number in [0, 127, 128, 300, u64::MAX] {
            put(&mut out, number);
        }
        let last = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(out, [&[0, 0x7f, 0x80, 1, 0xac, 2][..], &last].concat());
    }
}
