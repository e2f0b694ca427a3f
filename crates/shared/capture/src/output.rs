//! The bytes of a capture, as they are written.

use everycall_format::capture::status;

/// The output so far, and where the current item began.
pub(crate) struct Output<'a> {
    bytes: &'a mut [u8],
    length: usize,
    item: Option<usize>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, length: 0, item: None }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Begins an item; `false` if the output is full.
    pub(crate) fn begin(&mut self, status: u8) -> bool {
        let start = self.length;
        let is_written = self.put(&[status]);
        self.item = is_written.then_some(start);
        is_written
    }

    /// Ends the current item without one that follows.
    pub(crate) fn leave_item(&mut self) {
        self.item = None;
    }

    /// Takes back what the current item has, if there is one.
    pub(crate) fn fail_item(&mut self) {
        let Some(start) = self.item.take() else { return };
        if let Some(first) = self.bytes.get_mut(start) {
            *first = status::UNREADABLE;
            self.length = start + 1;
        }
    }

    /// Appends bytes, or nothing if they don't fit.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> bool {
        let Some(place) = self.reserve(bytes.len()) else { return false };
        place.copy_from_slice(bytes);
        self.length += bytes.len();
        true
    }

    /// Writes over bytes of the output.
    pub(crate) fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }

    /// The next `size` bytes, which become part of the output by [`Self::keep`].
    pub(crate) fn reserve(&mut self, size: usize) -> Option<&mut [u8]> {
        self.bytes.get_mut(self.length..self.length.checked_add(size)?)
    }

    /// Makes `size` bytes that were reserved part of the output.
    pub(crate) fn keep(&mut self, size: usize) {
        self.length = self.length.saturating_add(size).min(self.bytes.len());
    }
}
