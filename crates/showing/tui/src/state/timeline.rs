//! The window of time, and the rows of tracks in it.

use std::collections::HashSet;
use std::ops::Range;

use everycall_view::answers::Slice;

use crate::data::{Contents, Details, Mark, Place, State, Trace, Track, Window};

/// The selection: a call, or several that are narrower than a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selected {
    pub place: Place,
    pub function: Option<u32>,
    pub calls: u32,
}

/// A row of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Name, states and marks of a track, by its index.
    Head(usize),
    /// The calls of a track at a depth.
    Calls(usize, usize),
}

/// The timeline.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The tracks that are shown.
    pub tracks: Vec<Track>,
    pub from: u64,
    pub to: u64,
    /// When the trace ends.
    pub end: u64,
    /// Rows and columns of the lanes.
    pub height: usize,
    pub columns: usize,
    /// Number of the first row.
    pub top: usize,
    pub folded: HashSet<u32>,
    /// The last answer, and its window.
    pub shown: Option<(Window, Contents)>,
    pub selected: Option<Selected>,
    pub details: Option<Details>,
    /// The mark that was stepped to.
    pub mark: Option<Mark>,
    /// Whether the window is to be that of the whole trace, also when more of it is known.
    is_whole: bool,
    round: u64,
}

impl Timeline {
    /// All of the trace, until a key says otherwise.
    pub fn new() -> Timeline {
        Timeline { is_whole: true, ..Timeline::default() }
    }

    /// More is known of the trace.
    pub fn learn(&mut self, trace: &Trace, is_shown: impl Fn(&Track) -> bool) {
        self.tracks = trace.tracks.iter().filter(|track| is_shown(track)).cloned().collect();
        self.end = trace.duration_ns;
        self.round += 1;
        if self.is_whole {
            (self.from, self.to) = (0, self.end.max(1));
        }
        self.settle();
    }

    /// Rows of a track.
    fn rows(&self, track: &Track) -> usize {
        1 + if self.folded.contains(&track.id) { 0 } else { track.depth }
    }

    fn all_rows(&self) -> usize {
        self.tracks.iter().map(|track| self.rows(track)).sum()
    }

    /// The rows that are seen, from the top.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut first = 0;
        for (index, track) in self.tracks.iter().enumerate() {
            let rows = self.rows(track);
            let skipped = self.top.saturating_sub(first).min(rows);
            for row in skipped..rows {
                if lines.len() == self.height {
                    return lines;
                }
                lines.push(row.checked_sub(1).map_or(Line::Head(index), |depth| Line::Calls(index, depth)));
            }
            first += rows;
        }
        lines
    }

    fn settle(&mut self) {
        self.top = self.top.min(self.all_rows().saturating_sub(self.height.max(1)));
    }

    /// The lanes have so many rows and columns.
    pub fn resize(&mut self, height: usize, columns: usize) {
        (self.height, self.columns) = (height, columns);
        self.settle();
    }

    /// The window that is to be asked for.
    pub fn wanted(&self) -> Window {
        let mut tracks: Vec<(u32, Range<usize>)> = Vec::new();
        for line in self.lines() {
            let (index, depths) = match line {
                Line::Head(index) => (index, 0..0),
                Line::Calls(index, depth) => (index, depth..depth + 1),
            };
            let Some(track) = self.tracks.get(index) else { continue };
            match tracks.last_mut().filter(|(id, _)| *id == track.id) {
                Some((_, known)) if known.start == known.end => *known = depths,
                Some((_, known)) => known.end = depths.end,
                None => tracks.push((track.id, depths)),
            }
        }
        let pixels = self.columns.max(1) as u64;
        Window { from: self.from, to: self.to, pixels, tracks, round: self.round }
    }

    /// Scrolls by rows.
    pub fn scroll(&mut self, rows: isize) {
        self.top = self.top.saturating_add_signed(rows);
        self.settle();
    }

    /// Shows a window of this length around a moment that stays at the same column.
    fn around(&mut self, at: u64, length: u64) {
        let old = (self.to - self.from).max(1);
        let length = length.clamp((self.columns as u64).clamp(1, 20), self.end.max(1));
        let before = u128::from(at.saturating_sub(self.from)) * u128::from(length) / u128::from(old);
        self.show(at.saturating_sub(u64::try_from(before).unwrap_or(0)), length);
    }

    /// Shows a window, as far as it lies in the trace.
    fn show(&mut self, from: u64, length: u64) {
        let end = self.end.max(1);
        let length = length.clamp(1, end);
        self.from = from.min(end - length);
        self.to = self.from + length;
        self.is_whole = length == end;
    }

    /// Shows exactly this.
    pub fn show_window(&mut self, from: u64, to: u64) {
        self.show(from, to.saturating_sub(from));
        self.is_whole = false;
    }

    /// Shows everything.
    pub fn fit(&mut self) {
        self.show(0, u64::MAX);
    }

    /// Makes the window `numerator/denominator` times as long, around the selection or its middle.
    pub fn zoom(&mut self, numerator: u64, denominator: u64) {
        let length = self.to - self.from;
        let new = u128::from(length) * u128::from(numerator) / u128::from(denominator);
        let new = u64::try_from(new).unwrap_or(u64::MAX);
        let new = if numerator > denominator { new.max(length + 1) } else { new };
        let middle = self.from + length / 2;
        let selected = self.selected.map(|selected| selected.place);
        // The middle of the selection's visible part.
        let seen = selected.filter(|place| place.from <= self.to && place.to >= self.from);
        let at = seen.map_or(middle, |place| {
            let (from, to) = (place.from.max(self.from), place.to.min(self.to));
            from + (to - from) / 2
        });
        self.around(at, new);
    }

    /// Moves by parts of a tenth of the window.
    pub fn pan(&mut self, tenths: i64) {
        let length = self.to - self.from;
        let by = (length / 10).max(1).saturating_mul(tenths.unsigned_abs());
        let from = if tenths < 0 { self.from.saturating_sub(by) } else { self.from.saturating_add(by) };
        let was_whole = self.is_whole;
        self.show(from, length);
        self.is_whole &= was_whole;
    }

    /// Brings a moment into the middle.
    pub fn go_to(&mut self, at: u64) {
        let length = self.to - self.from;
        self.show(at.saturating_sub(length / 2), length);
        self.is_whole = false;
    }

    /// Selects a call and brings it into sight; `is_near` also makes it fill half of the window.
    pub fn select(&mut self, place: Place, function: Option<u32>, is_near: bool) {
        self.selected = Some(Selected { place, function, calls: 1 });
        self.mark = None;
        self.folded.remove(&place.track);
        let length = place.to.saturating_sub(place.from);
        let window = self.to - self.from;
        let is_narrow = length < window / (self.columns.max(1) as u64) * 3;
        if is_near || is_narrow {
            let wide = length.saturating_mul(2).max(self.columns as u64).max(1);
            self.show((place.from + length / 2).saturating_sub(wide / 2), wide);
        } else if place.from < self.from || place.from > self.to {
            self.show(place.from.saturating_sub(window / 4), window);
        }
        self.reveal(place.track, Some(place.depth));
    }

    /// Scrolls to a row of a track.
    pub fn reveal(&mut self, id: u32, depth: Option<usize>) {
        let before = self.tracks.iter().take_while(|track| track.id != id);
        let first: usize = before.map(|track| self.rows(track)).sum();
        let row = first + depth.map_or(0, |depth| depth + 1);
        let height = self.height.max(1);
        if row < self.top || row >= self.top + height {
            // With its callers above it.
            self.top = row.saturating_sub(height / 2).max(first.min(row.saturating_sub(height / 2)));
        }
        // The track may be deeper than is known yet.
        let all = self.all_rows().max(row + 1);
        self.top = self.top.min(all.saturating_sub(height));
    }

    /// The slices of a track in the window that was answered.
    pub fn slices(&self, id: u32) -> &[Slice] {
        let contents = self.shown.as_ref().map(|(_, contents)| contents);
        let found = contents.and_then(|contents| contents.slices.iter().find(|(track, _)| *track == id));
        found.map_or(&[], |(_, slices)| slices)
    }

    /// The states of a track in that window.
    pub fn states(&self, id: u32) -> &[State] {
        let contents = self.shown.as_ref().map(|(_, contents)| contents);
        let found = contents.and_then(|contents| contents.states.iter().find(|(track, _)| *track == id));
        found.map_or(&[], |(_, states)| states)
    }

    /// The marks in that window.
    pub fn marks(&self) -> &[Mark] {
        self.shown.as_ref().map_or(&[], |(_, contents)| contents.marks.as_slice())
    }

    fn take(&mut self, id: u32, slice: &Slice) {
        let place = Place { track: id, depth: slice.depth, from: slice.from, to: slice.to };
        self.selected = Some(Selected { place, function: slice.function, calls: slice.calls });
        self.mark = None;
        self.reveal(id, Some(slice.depth));
    }

    /// Selects the first call in sight, if nothing is selected.
    fn take_any(&mut self) -> bool {
        if self.selected.is_some() {
            return false;
        }
        let lines = self.lines();
        for line in lines {
            let Line::Calls(index, depth) = line else { continue };
            let Some(id) = self.tracks.get(index).map(|track| track.id) else { continue };
            let longest = self.slices(id).iter().filter(|slice| slice.depth == depth);
            if let Some(slice) = longest.max_by_key(|slice| slice.to - slice.from).copied() {
                self.take(id, &slice);
                return true;
            }
        }
        true
    }

    /// Selects the call before or behind the selected one, in its row.
    pub fn step(&mut self, is_forward: bool) {
        if self.take_any() {
            return;
        }
        let Some(Selected { place, .. }) = self.selected else { return };
        let mut row = self.slices(place.track).iter().filter(|slice| slice.depth == place.depth);
        let next = if is_forward {
            row.find(|slice| slice.from >= place.to && slice.from > place.from)
        } else {
            row.rfind(|slice| slice.from < place.from && slice.to <= place.from)
        };
        match next.copied() {
            Some(slice) => self.take(place.track, &slice),
            None => self.pan(if is_forward { 5 } else { -5 }),
        }
    }

    /// Selects the caller.
    pub fn outwards(&mut self) {
        if self.take_any() {
            return;
        }
        let Some(Selected { place, .. }) = self.selected else { return };
        let Some(depth) = place.depth.checked_sub(1) else { return };
        let is_around =
            |slice: &&Slice| slice.depth == depth && slice.from <= place.from && slice.to >= place.to;
        match self.slices(place.track).iter().find(is_around).copied() {
            Some(slice) => self.take(place.track, &slice),
            // It isn't in sight: it will be, and the next time it is there.
            None => self.reveal(place.track, Some(depth)),
        }
    }

    /// Selects the longest call that the selected one made.
    pub fn inwards(&mut self) {
        if self.take_any() {
            return;
        }
        let Some(Selected { place, .. }) = self.selected else { return };
        let depth = place.depth + 1;
        let is_within =
            |slice: &&Slice| slice.depth == depth && slice.from >= place.from && slice.to <= place.to;
        let within = self.slices(place.track).iter().filter(is_within);
        match within.max_by_key(|slice| slice.to - slice.from).copied() {
            Some(slice) => self.take(place.track, &slice),
            None if self.tracks.iter().any(|track| track.id == place.track && track.depth > depth) => {
                self.reveal(place.track, Some(depth));
            }
            None => {}
        }
    }

    /// Makes the selection fill the window.
    pub fn zoom_to_selected(&mut self) {
        if self.take_any() {
            return;
        }
        let Some(Selected { place, .. }) = self.selected else { return };
        let length = place.to - place.from;
        // A little more on both sides.
        let side = length / 20;
        self.show(place.from.saturating_sub(side), (length + 2 * side).max(self.columns.clamp(1, 20) as u64));
        self.is_whole = false;
        self.reveal(place.track, Some(place.depth));
    }

    /// Folds or unfolds the track of the selection, or the first one in sight.
    pub fn fold(&mut self) {
        let first = || match self.lines().first()? {
            Line::Head(index) | Line::Calls(index, _) => self.tracks.get(*index).map(|track| track.id),
        };
        let Some(id) = self.selected.map(|selected| selected.place.track).or_else(first) else { return };
        if !self.folded.remove(&id) {
            self.folded.insert(id);
            self.selected = None;
        }
        self.reveal(id, None);
        self.settle();
    }

    /// Folds all tracks, or unfolds them if all are folded.
    pub fn fold_all(&mut self) {
        if self.tracks.iter().all(|track| self.folded.contains(&track.id)) {
            self.folded.clear();
        } else {
            self.folded = self.tracks.iter().map(|track| track.id).collect();
            self.selected = None;
        }
        self.settle();
    }

    /// Goes to the next mark in sight of the tracks that are seen, or the one before.
    pub fn step_mark(&mut self, is_forward: bool) {
        let at = self.mark.as_ref().map(|mark| (mark.at, mark.track, mark.kind));
        let key = |mark: &&Mark| (mark.at, mark.track, mark.kind);
        let mut marks: Vec<&Mark> = self.marks().iter().filter(|mark| mark.kind != "off").collect();
        marks.sort_by_key(key);
        let next = match (at, is_forward) {
            (None, true) => marks.first(),
            (None, false) => marks.last(),
            (Some(at), true) => marks.iter().find(|mark| key(mark) > at),
            (Some(at), false) => marks.iter().rev().find(|mark| key(mark) < at),
        };
        match next.map(|mark| (*mark).clone()) {
            Some(mark) => {
                self.selected = None;
                self.reveal(mark.track, None);
                self.mark = Some(mark);
            }
            None => {
                self.mark = None;
                self.pan(if is_forward { 5 } else { -5 });
            }
        }
    }

    /// The column of a moment in the window; left and right of it are negative or beyond.
    pub fn column(&self, at: u64) -> i64 {
        let length = i128::from(self.to.saturating_sub(self.from).max(1));
        let offset = i128::from(at) - i128::from(self.from);
        let column = (offset * self.columns as i128).div_euclid(length);
        i64::try_from(column).unwrap_or(if column < 0 { i64::MIN } else { i64::MAX })
    }
}
