//! Parts of a file that are read before it was read in order, for its sketch.
//!
//! A part is read as if nothing else existed. Calls that are open in all of it are counted, and
//! their functions aren't known.

use std::ops::Range;

use everycall_analysis::{SymbolNames, TraceView};
use everycall_timeline::{Part, PartEvents, TimelineEvent};

use crate::cell::Cell;
use crate::context::Context;
use crate::file::{File, Open, SharedFunctions};
use crate::read::{Numbers, begin_bits, end_bits};
use crate::sketch::{Piece, Sketch};
use everycall_answers::bits;

/// Parts of a file that are read without being asked for: one for each pixel of a few tracks.
const PARTS_MAX: usize = 4096;
/// Parts that a window reads as they are.
const FINE_MAX: usize = 2;

/// A reader of parts.
struct Reader<'r, 'v> {
    view: &'r TraceView<'v>,
    names: &'r SymbolNames<'v>,
    numbers: &'r mut Numbers<'v>,
}

impl Reader<'_, '_> {
    /// Reads a part, or only its first segment, which stands for all of it.
    fn part(&mut self, thread: usize, part: usize, is_whole: bool) -> Option<Piece> {
        let part = self.view.part(thread, part..part + 1)?;
        let count = part.begins().len();
        let segments = if is_whole { count } else { 1 };
        let mut piece = self.segments(&part, 0..segments)?;
        piece.is_whole = segments == count;
        piece.events = piece.events.saturating_mul((count / segments) as u64);
        Some(piece.merged())
    }

    /// Reads the events in a window, with some of those around it.
    fn within(&mut self, thread: usize, parts: Range<usize>, (from, to): (u64, u64)) -> Option<Piece> {
        let part = self.view.part(thread, parts)?;
        let begins = part.begins();
        let first = begins.partition_point(|begin| *begin <= from).saturating_sub(1);
        let behind = begins.partition_point(|begin| *begin <= to);
        self.segments(&part, first..behind)
    }

    fn segments(&mut self, part: &Part<'_>, segments: Range<usize>) -> Option<Piece> {
        let PartEvents { mut events, depth } = part.events(segments)?;
        // Some that come late have another one's time; that changes no picture.
        events.without_late();
        let depth = depth as usize;
        let mut piece =
            Piece { from: u64::MAX, to: 0, events: 0, open: depth, is_whole: true, cells: Vec::new() };
        let mut open: Vec<Open> = Vec::new();
        // In each depth, calls end in the order of time.
        let mut by_depth: Vec<Vec<(usize, Cell)>> = Vec::new();
        let mut add = |level: usize, cell: Cell| {
            if by_depth.len() <= level {
                by_depth.resize_with(level + 1, Vec::new);
            }
            if let Some(cells) = by_depth.get_mut(level) {
                cells.push((depth + level, cell));
            }
        };
        for event in events {
            piece.from = piece.from.min(event.at_ns());
            piece.to = piece.to.max(event.at_ns());
            match event {
                TimelineEvent::Begin(begin) => {
                    piece.events += u64::from(!begin.cut);
                    let function = self.numbers.of(begin.location);
                    open.push(Open { function, from: begin.start_ns, bits: begin_bits(&begin) });
                }
                TimelineEvent::End(end) => {
                    let Some(call) = open.pop() else { continue };
                    let bits = call.bits | end_bits(&end);
                    piece.events += u64::from(bits & bits::CUT_END == 0);
                    let cell = Cell::call(call.from, end.end_ns, call.function, bits);
                    add(open.len(), cell);
                }
                TimelineEvent::Untraced(untraced) => {
                    let function = self.numbers.untraced(self.names, untraced.exit);
                    let cell = Cell::call(untraced.at_ns, untraced.until_ns, function, bits::AT_MOST);
                    add(open.len(), cell);
                }
                _ => {}
            }
        }
        piece.cells = by_depth.concat();
        (piece.from <= piece.to).then_some(piece)
    }
}

/// Reads parts here and there, those first that a client looks at, until the file was read in order
/// or there are enough.
pub(crate) fn draw(file: &File, functions: &SharedFunctions) {
    let Some(sketch) = &file.sketch else { return };
    let names = SymbolNames::new(&file.file, &file.trace, file.options.clone());
    let view = TraceView::new(&file.trace, &names);
    let mut numbers = Numbers::new(&view, functions);
    // First a little of each, then the rest.
    let order =
        |is_whole| order(sketch.parts()).take(PARTS_MAX).map(move |(thread, part)| (thread, part, is_whole));
    let mut first = order(false).take(sketch.parts().len());
    let mut order = order(false).chain(order(true));
    while !sketch.is_over() && !sketch.is_full() {
        let next = first.next().or_else(|| asked(sketch)).or_else(|| {
            sketch.put_off();
            order.next()
        });
        let Some((thread, part, is_whole)) = next else {
            std::thread::sleep(std::time::Duration::from_millis(20));
            continue;
        };
        if sketch.has(thread, part, is_whole) {
            continue;
        }
        let mut reader = Reader { view: &view, names: &names, numbers: &mut numbers };
        if let Some(piece) = reader.part(thread, part, is_whole) {
            sketch.add(thread, part, piece);
        }
    }
    if sketch.is_over() {
        sketch.end();
    }
}

/// A part that a client looks at: at first a little of it, and the rest when the others had their
/// turn.
fn asked(sketch: &Sketch) -> Option<(usize, usize, bool)> {
    let (thread, part) = sketch.next_asked()?;
    let is_whole = sketch.has(thread, part, false);
    if !is_whole {
        sketch.ask(thread, part..part + 1);
    }
    Some((thread, part, is_whole))
}

/// Parts of all threads, from coarse to fine.
fn order(parts: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let most = parts.iter().copied().max().unwrap_or(0).next_power_of_two();
    let whole = (0..parts.len()).filter(|thread| parts.get(*thread) > Some(&0)).map(|thread| (thread, 0));
    let steps = std::iter::successors(Some(most / 2), |step| Some(step / 2)).take_while(|step| *step > 0);
    let halves = steps.flat_map(move |step| {
        parts
            .iter()
            .enumerate()
            .flat_map(move |(thread, count)| (step..*count).step_by(2 * step).map(move |part| (thread, part)))
    });
    whole.chain(halves)
}

/// Passes the calls of a window that wasn't read in order yet, by depth and time.
pub(crate) fn window(
    context: &Context<'_>,
    thread: usize,
    depths: &Range<usize>,
    (from, to): (u64, u64),
    mut out: impl FnMut(usize, Cell),
) {
    let Some(sketch) = &context.file.sketch else { return };
    let mut parts = sketch.parts_in(thread, from, to);
    if parts.len() > FINE_MAX {
        parts = narrowed(context, sketch, thread, parts, (from, to));
    }
    if parts.len() > FINE_MAX {
        sketch.ask(thread, parts);
        return sketch.cells(thread, depths, (from, to), out);
    }
    let mut numbers = context.numbers.borrow_mut();
    let mut reader = Reader { view: context.view, names: context.names, numbers: &mut numbers };
    let mut all = Vec::new();
    if let Some(piece) = reader.within(thread, parts, (from, to)) {
        piece.cells_in(depths, from, to, &mut all);
    }
    all.into_iter().for_each(|(depth, cell)| out(depth, cell));
}

/// The parts of a window, found by looking when some of them begin.
fn narrowed(
    context: &Context<'_>,
    sketch: &Sketch,
    thread: usize,
    parts: Range<usize>,
    (from, to): (u64, u64),
) -> Range<usize> {
    let begin = |part| sketch.begin(thread, part, || context.view.part_begin(thread, part));
    let begins_behind = |part: usize, at: u64| begin(part).is_none_or(|begin| begin > at);
    let search = |mut low: usize, mut high: usize, at: u64| {
        while low < high {
            let middle = low.midpoint(high);
            if begins_behind(middle, at) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    };
    let first = search(parts.start, parts.end, from).saturating_sub(1).max(parts.start);
    // Only whether it is a short one matters.
    let last = (first + FINE_MAX + 1).min(parts.end);
    if last < parts.end && !begins_behind(last - 1, to) {
        return parts;
    }
    first..search(first, last, to).max(first + 1).min(parts.end)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use everycall_reader::TraceFile;
    use everycall_synth::{Module, Process, Ring, Rng, Thread};

    use super::*;
    use crate::file::{Input, SharedInput};

    const START: u64 = 1 << 40;

    /// Two threads with calls by chance, in many chunks.
    fn large_file() -> Vec<u8> {
        const SEGMENT: usize = 512;
        let ring = || Ring::new(SEGMENT, 1 << 10, START);
        let start = 0x40_0000;
        let module = Module {
            base: start - 0x1000,
            start,
            end: start + 0x10_0000,
            code_start: 0x1000,
            ..Module::default()
        };
        let thread =
            |tid: u32| Thread { tid, name: format!("thread {tid}"), start_ticks: START, ring: ring() };
        let threads = vec![thread(1), thread(2)];
        let process =
            Process { modules: vec![module], threads, end_ticks: START + 4_000_000, ..Process::default() };
        let mut file = everycall_synth::File::begun(&process);
        for thread in 0..2 {
            let mut ring = ring();
            let (mut rng, mut now, mut open) = (Rng::new(thread), START, Vec::new());
            for event in 0..30_000 {
                now += 20 + rng.below(80);
                let deepest = 3 + (event / 1000) % 17;
                if open.is_empty() || open.len() < deepest && rng.one_in(2) {
                    let offset = 0x1000 + 64 * rng.below(50) as u32;
                    ring.enter(now, offset);
                    open.push(offset);
                } else if let Some(offset) = open.pop() {
                    ring.exit(now, offset + 16);
                }
            }
            for (number, segment) in ring.segments().enumerate() {
                file.events(thread as u32, number as u64, &[segment]);
            }
        }
        file.end()
    }

    /// The calls in a window whose begin and end are known.
    fn exact(cells: &[(usize, Cell)], from: u64, to: u64) -> Vec<(usize, Cell)> {
        let is_exact = |cell: &Cell| cell.count == 1 && cell.bits() & (bits::CUT_START | bits::CUT_END) == 0;
        let lies_in = |cell: &Cell| cell.from >= from && cell.to() <= to;
        cells.iter().copied().filter(|(_, cell)| is_exact(cell) && lies_in(cell)).collect()
    }

    #[test]
    fn what_is_shown_before_a_file_was_read_is_true() {
        let names = Default::default();
        let input =
            Input { path: "test.ect".to_owned(), file: TraceFile::open(large_file()).unwrap(), names };
        let (input, functions) = (SharedInput::new(input, Default::default()), SharedFunctions::default());
        let sketched = File::sketched(0, &input).unwrap().expect("it has many parts");
        let read = File::open(0, &input, Some(&sketched)).unwrap();
        assert!(read.sketch.is_some(), "it is shown until the file was read");
        crate::read::read(&read, &functions);
        assert_eq!(sketched.end_ns, read.end_ns);

        let names = SymbolNames::new(&sketched.file, &sketched.trace, sketched.options.clone());
        let view = TraceView::new(&sketched.trace, &names);
        let numbers = RefCell::new(Numbers::new(&view, &functions));
        let context = Context { file: &sketched, view: &view, names: &names, numbers };
        let mut rng = Rng::new(8);
        let mut found = 0;
        for _ in 0..200 {
            let thread = rng.below(2) as usize;
            let length = 100 + rng.below(20_000);
            let from = rng.below(read.end_ns - length);
            let to = from + length;
            let mut cells = Vec::new();
            window(&context, thread, &(0..100), (from, to), |depth, cell| cells.push((depth, cell)));
            let mut all = Vec::new();
            read.track(thread).unwrap().levels.cells(0, from, to, &mut |depth, cell| all.push((depth, cell)));
            // Calls within the window, each once, where they are.
            let (some, all) = (exact(&cells, from, to), exact(&all, from, to));
            assert!(some.iter().all(|cell| all.contains(cell)));
            assert_eq!(some.len(), all.len(), "{from} to {to} of thread {thread}");
            found += some.len();
        }
        assert!(found > 5_000, "{found}");

        // The whole, from the parts that are read in the background.
        let sketch = Arc::clone(sketched.sketch.as_ref().unwrap());
        let mut reader_numbers = context.numbers.borrow_mut();
        let mut reader = Reader { view: &view, names: &names, numbers: &mut reader_numbers };
        for (thread, part) in order(sketch.parts()).take(60) {
            let piece = reader.part(thread, part, false).expect("it can be read");
            sketch.add(thread, part, piece);
        }
        let about = sketch.events() as f64 / 60_000.0;
        assert!((0.9..1.1).contains(&about), "{about}");
        for thread in 0..2 {
            let mut cells = Vec::new();
            sketch.cells(thread, &(0..100), (0, u64::MAX), |depth, cell| cells.push((depth, cell)));
            assert!(cells.is_sorted_by_key(|(depth, cell)| (*depth, cell.from)));
            let known = read.track(thread).unwrap();
            for (depth, cell) in exact(&cells, 0, u64::MAX) {
                assert_eq!(known.levels.find(depth, cell.from).map(|known| known.to()), Some(cell.to()));
            }
            assert!(sketch.depth(thread) > 10 && sketch.depth(thread) <= known.depth);
            let mut density = 0;
            sketch.density(thread, |from, to, events| {
                assert!(from <= to);
                density += events;
            });
            assert!((25_000..35_000).contains(&density), "{density}");
        }
        sketch.end();
        assert_eq!(sketch.depth(0), 0);
    }

    #[test]
    fn a_little_of_all_that_is_asked_for_comes_before_the_rest() {
        let sketch = Sketch::new(vec![40, 40]).unwrap();
        (0..2).for_each(|thread| sketch.ask(thread, 0..40));
        let piece = |is_whole| Piece { from: 0, to: 0, events: 0, open: 0, is_whole, cells: Vec::new() };
        for is_whole in [false, true] {
            for count in 0..80 {
                let next = asked(&sketch).unwrap();
                assert_eq!(next, (count / 40, count % 40, is_whole));
                sketch.add(next.0, next.1, piece(is_whole));
            }
        }
        assert_eq!(asked(&sketch), None);
    }

    #[test]
    fn each_part_comes_once_and_coarse_ones_come_first() {
        let parts = [5, 0, 13, 1];
        let all: Vec<_> = order(&parts).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        let expected =
            parts.iter().enumerate().flat_map(|(thread, count)| (0..*count).map(move |part| (thread, part)));
        assert_eq!(sorted, expected.collect::<Vec<_>>());
        assert_eq!(all[..5], [(0, 0), (2, 0), (3, 0), (2, 8), (0, 4)]);
    }
}
