//! A thread before it was read in order: parts of it, read here and there. A large file has a
//! picture at once, in which calls are right and missing ones were not read yet.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::cell::{Cell, SEVERAL};
use crate::levels::Merger;
use everycall_answers::bits;

/// Files with fewer parts are read in order as fast.
pub(crate) const PARTS_MIN: usize = 64;
/// Cells of a part in each depth.
const CELLS: u64 = 8;
/// Bytes of all of them.
const BYTES_MAX: usize = 64 << 20;
/// Parts that a window asks for at once, and those of all windows.
const ASKED: usize = 64;
const ASKED_MAX: usize = 1024;
/// The longest time for which a step of reading is put off.
const PUT_OFF: Duration = Duration::from_millis(10);

/// The parts of a file that were read here and there.
pub(crate) struct Sketch {
    /// By thread, by part.
    threads: Vec<RwLock<BTreeMap<usize, Piece>>>,
    /// How many parts each thread has.
    parts: Vec<usize>,
    bytes: AtomicUsize,
    /// When threads' parts begin, as far as that was looked up.
    begins: Mutex<FxHashMap<(usize, usize), u64>>,
    /// Threads and parts that clients look at.
    asked: Mutex<VecDeque<(usize, usize)>>,
    /// Frames that are being answered.
    frames: AtomicUsize,
    is_over: AtomicBool,
}

/// A frame that is being answered.
pub(crate) struct Frame<'s>(&'s AtomicUsize);

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A part that was read.
pub(crate) struct Piece {
    pub from: u64,
    pub to: u64,
    /// Entries and exits.
    pub events: u64,
    /// Calls that are open in all of it.
    pub open: usize,
    /// All of its segments were read.
    pub is_whole: bool,
    /// With their depths, by depth and time.
    pub cells: Vec<(usize, Cell)>,
}

impl Sketch {
    /// Of threads with so many parts; `None` if they are few.
    pub fn new(parts: Vec<usize>) -> Option<Sketch> {
        (parts.iter().sum::<usize>() >= PARTS_MIN).then(|| Sketch {
            threads: parts.iter().map(|_| RwLock::default()).collect(),
            parts,
            bytes: AtomicUsize::new(0),
            begins: Mutex::default(),
            asked: Mutex::default(),
            frames: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    /// The file was read in order: nothing of this is needed any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in &self.threads {
            thread.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Until the result is dropped, a frame is being answered.
    pub fn frame(&self) -> Frame<'_> {
        self.frames.fetch_add(1, Ordering::Relaxed);
        Frame(&self.frames)
    }

    /// Waits while frames are being answered, for a short time: before a step that isn't urgent.
    pub fn put_off(&self) {
        let begun = Instant::now();
        while self.frames.load(Ordering::Relaxed) > 0 && begun.elapsed() < PUT_OFF {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn pieces(&self, thread: usize) -> Option<RwLockReadGuard<'_, BTreeMap<usize, Piece>>> {
        Some(self.threads.get(thread)?.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn begins(&self) -> MutexGuard<'_, FxHashMap<(usize, usize), u64>> {
        self.begins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a part begins; `look` looks it up.
    pub fn begin(&self, thread: usize, part: usize, look: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let known = self.begins().get(&(thread, part)).copied();
        if known.is_some() {
            return known;
        }
        let begin = look()?;
        self.begins().insert((thread, part), begin);
        Some(begin)
    }

    /// How many events the file has, about.
    pub fn events(&self) -> u64 {
        let (mut events, mut read, mut parts) = (0, 0, 0);
        for thread in 0..self.threads.len() {
            let Some(pieces) = self.pieces(thread) else { continue };
            events += pieces.values().map(|piece| piece.events).sum::<u64>();
            read += pieces.len();
            parts += self.parts.get(thread).copied().unwrap_or(0);
        }
        (events as f64 / read.max(1) as f64 * parts as f64) as u64
    }

    /// The most calls that are known to be open at once.
    pub fn depth(&self, thread: usize) -> usize {
        let deepest = |piece: &Piece| piece.cells.last().map_or(piece.open, |(depth, _)| depth + 1);
        self.pieces(thread).and_then(|pieces| pieces.values().map(deepest).max()).unwrap_or(0)
    }

    /// Passes how many events there are between moments that are known: begin, end, events. Those
    /// between two parts that were read are about as many as in these.
    pub fn density(&self, thread: usize, mut out: impl FnMut(u64, u64, u64)) {
        let Some(pieces) = self.pieces(thread) else { return };
        let mut all = pieces.iter().peekable();
        while let Some((part, piece)) = all.next() {
            match all.peek() {
                Some((next, behind)) => {
                    out(piece.from, behind.from, piece.events.saturating_mul((*next - part) as u64));
                }
                None => out(piece.from, piece.to, piece.events),
            }
        }
    }

    /// Passes the cells of a window, by depth and time.
    pub fn cells(
        &self,
        thread: usize,
        depths: &Range<usize>,
        (from, to): (u64, u64),
        mut out: impl FnMut(usize, Cell),
    ) {
        let Some(pieces) = self.pieces(thread) else { return };
        let mut all = Vec::new();
        for piece in pieces.values().filter(|piece| piece.from <= to && piece.to >= from) {
            piece.cells_in(depths, from, to, &mut all);
        }
        all.sort_by_key(|(depth, cell)| (*depth, cell.from));
        all.into_iter().for_each(|(depth, cell)| out(depth, cell));
    }

    /// The parts of a thread that may lie in a window, as far as it is known when parts begin.
    pub fn parts_in(&self, thread: usize, from: u64, to: u64) -> Range<usize> {
        let count = self.parts.get(thread).copied().unwrap_or(0);
        let Some(pieces) = self.pieces(thread) else { return 0..0 };
        let first = pieces.iter().take_while(|(_, piece)| piece.from <= from).last();
        let behind = pieces.iter().find(|(_, piece)| piece.from > to);
        first.map_or(0, |(part, _)| *part)..behind.map_or(count, |(part, _)| *part)
    }

    /// Parts that lie in a window and weren't read are read before all others.
    pub fn ask(&self, thread: usize, parts: Range<usize>) {
        let Some(pieces) = self.pieces(thread) else { return };
        let all = parts.end.saturating_sub(parts.start).div_ceil(ASKED).max(1);
        let missing: Vec<usize> =
            parts.step_by(all).filter(|part| !pieces.get(part).is_some_and(|piece| piece.is_whole)).collect();
        drop(pieces);
        let mut asked = self.asked();
        for part in missing {
            if !asked.contains(&(thread, part)) {
                asked.push_back((thread, part));
            }
        }
        let too_many = asked.len().saturating_sub(ASKED_MAX);
        asked.drain(..too_many);
    }

    /// Whether a part was read; `is_whole`: all of its segments.
    pub fn has(&self, thread: usize, part: usize, is_whole: bool) -> bool {
        let pieces = self.pieces(thread);
        pieces.is_none_or(|pieces| pieces.get(&part).is_some_and(|piece| piece.is_whole >= is_whole))
    }

    /// Adds a part that was read.
    pub fn add(&self, thread: usize, part: usize, piece: Piece) {
        self.bytes.fetch_add(piece.bytes(), Ordering::Relaxed);
        if let Some(pieces) = self.threads.get(thread) {
            let before = pieces.write().unwrap_or_else(PoisonError::into_inner).insert(part, piece);
            self.bytes.fetch_sub(before.map_or(0, |piece| piece.bytes()), Ordering::Relaxed);
        }
    }

    fn asked(&self) -> MutexGuard<'_, VecDeque<(usize, usize)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread and the part that a client looks at first.
    pub fn next_asked(&self) -> Option<(usize, usize)> {
        self.asked().pop_front()
    }

    /// How many parts each thread has.
    pub fn parts(&self) -> &[usize] {
        &self.parts
    }

    /// Whether the file was read in order.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether no more parts are read without being asked for.
    pub fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > BYTES_MAX
    }
}

impl Piece {
    fn bytes(&self) -> usize {
        size_of::<Piece>() + self.cells.len() * size_of::<(usize, Cell)>()
    }

    /// Its cells in a window, and those of the calls that are open in all of it.
    pub fn cells_in(&self, depths: &Range<usize>, from: u64, to: u64, out: &mut Vec<(usize, Cell)>) {
        let unknown = Cell::call(self.from, self.to, SEVERAL, bits::CUT_START | bits::CUT_END);
        out.extend((depths.start..depths.end.min(self.open)).map(|depth| (depth, unknown)));
        let is_in =
            |(depth, cell): &&(usize, Cell)| depths.contains(depth) && cell.from <= to && cell.to() >= from;
        out.extend(self.cells.iter().filter(is_in));
    }

    /// With few cells.
    pub fn merged(self) -> Piece {
        let width = (self.to - self.from) / CELLS;
        let mut cells: Vec<(usize, Cell)> = Vec::new();
        let (mut merger, mut at) = (Merger::default(), 0);
        for (depth, cell) in self.cells {
            if depth != at {
                merger.finish(&mut |cell| cells.push((at, cell)));
                at = depth;
            }
            merger.add(cell, width, &mut |cell| cells.push((at, cell)));
        }
        merger.finish(&mut |cell| cells.push((at, cell)));
        cells.shrink_to_fit();
        Piece { cells, ..self }
    }
}
