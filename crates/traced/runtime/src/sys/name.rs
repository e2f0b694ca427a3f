//! File names, built without allocating.

/// The most bytes of a file name, with the NUL.
pub(crate) const NAME_MAX: usize = 64;

/// A file name that is being built.
#[derive(Clone)]
pub(crate) struct Name {
    bytes: [u8; NAME_MAX],
    length: usize,
}

impl Name {
    /// An empty name.
    pub(crate) fn empty() -> Name {
        Name { bytes: [0; NAME_MAX], length: 0 }
    }

    /// Whether the name is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends text. The NUL at the end stays.
    pub(crate) fn put(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(place) = self.bytes.get_mut(self.length).filter(|_| self.length + 1 < NAME_MAX) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    pub(crate) fn put_number(&mut self, number: u32) {
        let mut unit = 1_000_000_000;
        while unit > 0 {
            if number >= unit || unit == 1 {
                self.put(&[b'0' + (number / unit % 10) as u8]);
            }
            unit /= 10;
        }
    }

    /// The name with its NUL.
    pub(crate) fn text(&self) -> &[u8] {
        self.bytes.get(..=self.length).unwrap_or(&[])
    }

    /// The name, padded with NULs.
    pub(crate) fn bytes(&self) -> [u8; NAME_MAX] {
        self.bytes
    }
}
