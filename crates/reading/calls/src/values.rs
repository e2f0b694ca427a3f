//! Recorded values of calls.

use std::num::NonZeroU32;

/// Arguments or a result of a call: a number of the captures of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValuesNumber(NonZeroU32);

impl ValuesNumber {
    /// The number of the capture at this index.
    #[must_use]
    pub fn of_index(index: u32) -> Option<ValuesNumber> {
        index.checked_add(1).and_then(NonZeroU32::new).map(ValuesNumber)
    }

    /// The index of the capture.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}
