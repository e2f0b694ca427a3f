//! One page that holds everything: the same page as the server's, with its data inside.
//! `docs/design/viewer.md` has the form of the data.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

use everycall_analysis::{SymbolNames, TraceView};
use everycall_export::{
    Beginning, Filter, Names as _, Receiver, Source as _, ValuesNumber, pass, shown_values,
};
use everycall_timeline::{EndKind, Mark, MarkKind};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::answers::{self, LabelValue};
use crate::assets;
use crate::cell::bits;
use crate::counted;
use crate::file::{File, Input, lock};
use crate::library::Library;
use crate::packed::{put, zigzag};
use crate::read::{Numbers, kind_bits};

/// Marks of a track in the page.
const MARKS_MAX: usize = 1 << 16;

/// A call, as the page gets it.
struct Slice {
    from: u64,
    duration: u64,
    function: u32,
    depth: u32,
    bits: u8,
}

/// The calls of one track, in the order of their begins.
struct Track {
    id: u32,
    slices: Vec<Slice>,
}

/// Gathers the calls.
struct Gathering<'g, 'v> {
    file: &'g File,
    view: &'g TraceView<'g>,
    numbers: Numbers<'v>,
    tracks: Vec<Track>,
    /// Places of the open calls in the track's slices.
    open: Vec<usize>,
    labels: Vec<(u32, u64, u32, String, LabelValue)>,
}

impl Receiver for Gathering<'_, '_> {
    fn thread(&mut self, index: usize) {
        self.open.clear();
        self.tracks.push(Track { id: self.file.track_id(index), slices: Vec::new() });
    }

    fn begin(&mut self, call: &Beginning) {
        let function = self.numbers.of(call.location);
        let Some(track) = self.tracks.last_mut() else { return };
        let cut = if call.cut { bits::CUT_START } else { 0 };
        let tail = if call.by_tail { bits::BY_TAIL } else { 0 };
        let bits = cut | tail | if call.caller_unsure { bits::CALLER_UNSURE } else { 0 };
        let depth = self.open.len() as u32;
        self.open.push(track.slices.len());
        if let Some(arguments) = call.arguments {
            self.labels.extend(
                shown_values(self.view, arguments)
                    .into_iter()
                    .map(|(name, text)| (track.id, call.start_ns, depth, name, LabelValue::Text(text))),
            );
        }
        track.slices.push(Slice { from: call.start_ns, duration: 0, function, depth, bits });
    }

    fn returned(&mut self, result: ValuesNumber) {
        let (Some(track), Some(place)) = (self.tracks.last(), self.open.last()) else { return };
        let Some(slice) = track.slices.get(*place) else { return };
        self.labels.extend(
            shown_values(self.view, result)
                .into_iter()
                .map(|(name, text)| (track.id, slice.from, slice.depth, name, LabelValue::Text(text))),
        );
    }

    fn end(&mut self, end_ns: u64, how: EndKind) {
        let slices = self.tracks.last_mut().map(|track| &mut track.slices);
        let slice = self.open.pop().zip(slices).and_then(|(place, slices)| slices.get_mut(place));
        if let Some(slice) = slice {
            slice.duration = end_ns.saturating_sub(slice.from);
            slice.bits |= kind_bits(how);
        }
    }

    fn untraced(&mut self, name: &str, at_ns: u64, until_ns: u64) {
        let function = self.numbers.named(name);
        let Some(track) = self.tracks.last_mut() else { return };
        let (depth, duration) = (self.open.len() as u32, until_ns.saturating_sub(at_ns));
        track.slices.push(Slice {
            from: at_ns,
            duration,
            function,
            depth,
            bits: bits::AT_MOST | bits::UNTRACED,
        });
    }

    fn mark(&mut self, mark: &Mark) {
        let (Some(track), Some(place)) = (self.tracks.last(), self.open.last()) else { return };
        let Some(slice) = track.slices.get(*place).filter(|_| mark.kind == MarkKind::Label) else { return };
        let name = self.view.mark_name(mark.name).to_owned();
        self.labels.push((track.id, slice.from, slice.depth, name, LabelValue::Number(mark.value)));
    }
}

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
    let mut gathering = Gathering {
        file,
        view: &view,
        numbers: Numbers::new(&view, &library.functions),
        tracks: Vec::new(),
        open: Vec::new(),
        labels: Vec::new(),
    };
    pass(&view, &names, filter, &mut gathering)?;
    let Gathering { tracks, labels, .. } = gathering;
    let all_calls = counted::by_track(file, &view, &library.functions, filter);
    let (mut json, sources) = described(&library, file, &names, &tracks, labels, filter.bounds(&view))?;
    json["all_calls"] = json!(all_calls);
    let text = str::from_utf8(assets::ALONE).unwrap_or_default();
    let (before, behind) = text.split_once("<!--data-->").unwrap_or((text, ""));
    let mut out = Counted { out, bytes: 0 };
    out.write_all(before.as_bytes())?;
    out.write_all(b"<script type=\"application/octet-stream;base64\" id=\"data\">")?;
    let mut packed = GzEncoder::new(Base64::new(&mut out), Compression::default());
    packed.write_all(b"EVL1")?;
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
    tracks: &[Track],
    labels: Vec<(u32, u64, u32, String, LabelValue)>,
    (from, to): (u64, u64),
) -> io::Result<(Value, u64)> {
    let mut trace = answers::trace(library).map_err(io::Error::other)?;
    let used: BTreeSet<u32> =
        tracks.iter().flat_map(|track| &track.slices).map(|slice| slice.function).collect();
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
    let (mut marks, mut states) = (Vec::new(), BTreeMap::new());
    let is_shown = |thread: usize| tracks.iter().any(|track| track.id == file.track_id(thread));
    for thread in (0..file.threads.len()).filter(|thread| is_shown(*thread)) {
        let id = file.track_id(thread);
        marks.extend(
            answers::marks_of(library, file.index, thread, (from, to), MARKS_MAX)
                .map_err(io::Error::other)?,
        );
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
        "counters": counters.iter().map(counter).collect::<Vec<_>>(),
        "labels": labels,
    });
    Ok((json, count))
}

/// Begins, durations, functions, depths, and bits of the few that have some.
fn streams(slices: &[Slice]) -> [Vec<u8>; 5] {
    let mut streams: [Vec<u8>; 5] = Default::default();
    let [froms, durations, functions, depths, exceptions] = &mut streams;
    let (mut from, mut depth, mut exception) = (0, 0_i64, 0);
    for (index, slice) in slices.iter().enumerate() {
        put(froms, slice.from.saturating_sub(from));
        from = from.max(slice.from);
        put(durations, slice.duration);
        put(functions, slice.function.into());
        let difference = i64::from(slice.depth) - depth;
        put(depths, zigzag(difference.cast_unsigned()));
        depth = slice.depth.into();
        if slice.bits != 0 {
            put(exceptions, (index - exception) as u64);
            put(exceptions, slice.bits.into());
            exception = index;
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
