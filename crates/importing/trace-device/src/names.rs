//! Names of ids, which programs say by words: the id, then the text, eight bytes in a word, up to
//! and with the first byte that is zero.

use std::collections::BTreeMap;

/// Bytes that a name may have.
const NAME_MAX: usize = 1 << 12;

/// The names that the words of all threads say.
#[derive(Clone, Debug, Default)]
pub struct Names {
    known: BTreeMap<u64, Vec<u8>>,
    current: Option<(u64, Vec<u8>)>,
}

impl Names {
    /// A word of the current thread.
    pub fn word(&mut self, value: u64) {
        let Some((id, text)) = &mut self.current else {
            self.current = Some((value, Vec::new()));
            return;
        };
        let bytes = value.to_le_bytes();
        let end = bytes.iter().position(|byte| *byte == 0);
        text.extend(&bytes[..end.unwrap_or(bytes.len())]);
        if end.is_some() || text.len() >= NAME_MAX {
            let (id, text) = (*id, std::mem::take(text));
            self.known.insert(id, text);
            self.current = None;
        }
    }

    /// Another thread's words follow, or words are missing.
    pub fn cut(&mut self) {
        self.current = None;
    }

    /// The name that was said last of an id.
    #[must_use]
    pub fn of(&self, id: u64) -> Option<&[u8]> {
        self.known.get(&id).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length() {
        let mut names = Names::default();
        for (id, name) in [(1, ""), (2, "main"), (3, "abcdefgh"), (4, "a longer name")] {
            names.word(id);
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(name.len() / 8 * 8 + 8, 0);
            bytes.chunks(8).for_each(|word| names.word(u64::from_le_bytes(word.try_into().unwrap())));
            assert_eq!(names.of(id), Some(name.as_bytes()));
        }
        assert_eq!(names.of(5), None);
    }
}
