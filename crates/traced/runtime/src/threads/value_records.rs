//! Records of values, written before the word of their event.

use crate::state::captures::IN_WORD;
use crate::threads::thread::Thread;
use crate::threads::values::Values;
use everycall_format::arena::counter;
use everycall_format::event::{kind, payload_word, record_word, values};

impl Thread<'_> {
    /// Words that the values take which are to be written.
    pub(crate) fn value_words(&self) -> usize {
        self.values.get().map_or(0, Values::words)
    }

    /// Writes the values that belong to the event whose word comes next.
    pub(crate) fn write_values(&self, ticks: u64) {
        let Some(values) = self.values.take() else { return };
        let detail = if values.is_exit { values::RESULT } else { values::ARGUMENTS };
        let count = (values.words() - 1) as u8;
        self.ring.push(&[
            record_word(ticks, kind::VALUES, count, detail),
            payload_word(values.id, kind::VALUES, 1),
            payload_word(values.bytes().len() as u32, kind::VALUES, 2),
        ]);
        for (index, part) in (3..).zip(values.bytes().chunks(IN_WORD)) {
            let mut word = [0; IN_WORD];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.ring.push(&[payload_word(u32::from_le_bytes(word), kind::VALUES, index)]);
        }
    }

    /// Counts values that weren't written though the event was.
    pub(crate) fn lose_values(&self) {
        if self.values.take().is_some() {
            self.process.arena().count(counter::VALUES_LOST, 1);
        }
    }
}
