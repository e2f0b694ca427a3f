//! What is the same for all slices of a function: written once in each sequence, and named by numbers in each slice.

use crate::names::{FunctionId, Functions};
use crate::protobuf::Message;
use crate::text;

use super::fields::{annotation, event, interned};
use super::put_entry;

/// Texts that one function may have.
const TEXTS_MAX: usize = 4;

/// The texts of functions that have occurred.
#[derive(Default)]
pub(super) struct DetailTexts {
    /// By function; none for those that weren't asked for yet.
    functions: Vec<Option<OfFunction>>,
    /// Names of annotations; their numbers are their places, from 1.
    keys: Vec<&'static str>,
}

struct OfFunction {
    texts: Vec<(u64, String)>,
    /// Fields of a slice's begin, encoded.
    annotations: Vec<u8>,
}

impl DetailTexts {
    /// What a slice's begin carries; nothing for functions that weren't written to any sequence.
    #[inline]
    pub(super) fn annotations(&self, what: Option<FunctionId>) -> &[u8] {
        match what.and_then(|function| self.functions.get(function.index())) {
            Some(Some(of)) => &of.annotations,
            _ => &[],
        }
    }

    /// Writes the texts of a function into interned data.
    pub(super) fn put_interned(&mut self, bytes: &mut Vec<u8>, id: FunctionId, functions: &Functions<'_>) {
        if self.functions.len() <= id.index() {
            self.functions.resize_with(id.index() + 1, || None);
        }
        if self.functions[id.index()].is_none() {
            self.functions[id.index()] = Some(self.learn(id, functions));
        }
        let Some(Some(of)) = self.functions.get(id.index()) else { return };
        for (place, (key, text)) in of.texts.iter().enumerate() {
            let name = self.keys.get(*key as usize - 1).copied().unwrap_or_default();
            put_entry(bytes, interned::ANNOTATION_NAME, *key, name);
            put_entry(bytes, interned::ANNOTATION_STRING, number(id, place), text);
        }
    }

    fn learn(&mut self, id: FunctionId, functions: &Functions<'_>) -> OfFunction {
        let mut texts = Vec::new();
        let mut annotations = Vec::new();
        for (key, text) in text::details(&functions.details(id)).into_iter().take(TEXTS_MAX) {
            let key = match self.keys.iter().position(|known| *known == key) {
                Some(place) => place + 1,
                None => {
                    self.keys.push(key);
                    self.keys.len()
                }
            } as u64;
            annotations.message(event::ANNOTATION, |fields| {
                fields.number(annotation::NAME_NUMBER, key);
                fields.number(annotation::STRING_NUMBER, number(id, texts.len()));
            });
            texts.push((key, text));
        }
        OfFunction { texts, annotations }
    }
}

/// Number of a text.
fn number(id: FunctionId, place: usize) -> u64 {
    (id.index() * TEXTS_MAX + place + 1) as u64
}
