//! The calls of a thread that are selected. [`Calls`](crate::Calls) asks here, so that each
//! condition is written once.
//!
//! A call is *selected* by what is known when it begins: its function, the labels and the place
//! that it or a call around it has, its depth, and that it begins within the window. Whether a
//! selected call is *shown* depends on how long it took, which is known when it ends:
//! [`Window::shows`].

use std::iter::Peekable;

/// The conditions on single calls, in the times of a source.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The first moment.
    pub since_ns: u64,
    /// The last moment.
    pub until_ns: u64,
    /// Shortest duration.
    pub min_duration_ns: u64,
    /// Largest number of levels.
    pub depth: usize,
    /// Whether only some calls with all of their callees are selected.
    pub selects: bool,
}

impl Default for Window {
    /// All calls.
    fn default() -> Window {
        Window { since_ns: 0, until_ns: u64::MAX, min_duration_ns: 0, depth: usize::MAX, selects: false }
    }
}

impl Window {
    /// Whether a selected call with these times is shown.
    #[must_use]
    #[inline]
    pub fn shows(&self, start_ns: u64, end_ns: u64) -> bool {
        self.overlaps(start_ns, end_ns) && end_ns.saturating_sub(start_ns) >= self.min_duration_ns
    }

    /// Whether some moment between these lies in the window.
    #[must_use]
    #[inline]
    pub fn overlaps(&self, start_ns: u64, end_ns: u64) -> bool {
        start_ns <= self.until_ns && end_ns >= self.since_ns
    }

    /// Whether a moment lies in the window.
    #[must_use]
    #[inline]
    pub fn has(&self, at_ns: u64) -> bool {
        (self.since_ns..=self.until_ns).contains(&at_ns)
    }

    /// Whether everything that has a time lies in it.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        (self.since_ns, self.until_ns) == (0, u64::MAX)
    }
}

/// Which of a thread's calls are selected, as they begin and end.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    window: Window,
    /// Number of open calls.
    open: usize,
    /// Number of begins so far.
    begins: u64,
    /// Positions of the calls that the filter chooses one by one; `None` if it doesn't.
    chosen: Option<Peekable<std::vec::IntoIter<u64>>>,
    /// Index of the outermost open call whose function matches the pattern.
    outermost_match: Option<usize>,
    /// Index of the outermost open call that is chosen.
    outermost_chosen: Option<usize>,
}

impl Selection {
    /// Before the first event of a thread. `chosen` are the positions of the calls that
    /// are chosen one by one; `None` if none are.
    pub(crate) fn new(window: Window, chosen: Option<Vec<u64>>) -> Selection {
        Selection {
            window,
            open: 0,
            begins: 0,
            chosen: chosen.map(|calls| calls.into_iter().peekable()),
            outermost_match: None,
            outermost_chosen: None,
        }
    }

    /// The conditions.
    #[inline]
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// A call begins; `matches` says whether its function matches the filter's pattern. Returns
    /// whether the call is selected.
    #[inline]
    pub(crate) fn begin(&mut self, matches: bool, start_ns: u64) -> bool {
        let index = self.open;
        self.open += 1;
        if self.window.selects {
            self.note_begin(matches, index);
        }
        self.is_in_tree(index) && start_ns <= self.window.until_ns
    }

    /// The innermost call ends.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.open = self.open.saturating_sub(1);
        if self.window.selects {
            let open = self.open;
            self.outermost_match = self.outermost_match.filter(|outermost| *outermost < open);
            self.outermost_chosen = self.outermost_chosen.filter(|outermost| *outermost < open);
        }
    }

    /// Whether something that isn't a call, and happens now, is selected, whatever its time.
    pub(crate) fn is_selected(&self) -> bool {
        !self.window.selects || self.outermost().is_some()
    }

    fn note_begin(&mut self, matches: bool, index: usize) {
        if matches && self.outermost_match.is_none() {
            self.outermost_match = Some(index);
        }
        let begins = self.begins;
        self.begins += 1;
        let is_chosen = self.chosen.as_mut().is_none_or(|calls| calls.next_if_eq(&begins).is_some());
        if is_chosen && self.outermost_chosen.is_none() {
            self.outermost_chosen = Some(index);
        }
    }

    /// Whether the call at this index is selected, apart from its time.
    #[inline]
    fn is_in_tree(&self, index: usize) -> bool {
        let depth = self.window.depth;
        match self.window.selects {
            true => self.outermost().is_some_and(|outermost| index - outermost < depth),
            false => index < depth,
        }
    }

    /// Index of the call with which a tree of selected calls begins.
    #[inline]
    fn outermost(&self) -> Option<usize> {
        self.outermost_match.zip(self.outermost_chosen).map(|(by_name, by_choice)| by_name.max(by_choice))
    }
}
