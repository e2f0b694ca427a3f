//! The attributes that all slices of a function have in common: written once in each sequence, and
//! referred to by numbers in each slice.

use crate::filtered::Tail;
use crate::formats::protobuf::Message;
use crate::names::{FunctionId, Functions};
use crate::text;

use super::fields::{annotation, event, interned};
use super::packets::{close_small, open_small, put_entry};

/// Largest number of texts per function.
const TEXTS_MAX: usize = 5;
/// Index of its name among them, for calls that it jumps to.
const TEXT_NAME: usize = TEXTS_MAX - 1;
/// Number of the remark that a call ends in a tail call; numbers of functions' texts follow.
const TEXT_JUMPED: u64 = 1;
/// Names of annotations; their numbers are their positions, from 1.
const KEYS: [&str; 7] = [
    "remark",
    "tail_call_of",
    "possible_tail_call_of",
    "symbol",
    "same_code_as",
    "inlined_not_timed",
    "full_name",
];
const KEY_REMARK: u64 = 1;
const KEY_TAIL: u64 = 2;
const KEY_PERHAPS: u64 = 3;

/// The texts of functions that have occurred.
#[derive(Default)]
pub(super) struct DetailTexts {
    /// By function; `None` for functions that weren't looked up yet.
    functions: Vec<Option<OfFunction>>,
    /// The last sequence that defined the texts for jumps.
    jumps_in: u64,
    /// By function: the last sequence that defined its name as that of a call that jumped.
    jumpers_in: Vec<u64>,
}

struct OfFunction {
    texts: Vec<(u64, String)>,
    /// Fields of a slice's begin, encoded.
    annotations: Vec<u8>,
}

impl DetailTexts {
    /// The attributes of a slice's begin; empty for functions that weren't written to any sequence.
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
            self.functions[id.index()] = Some(Self::learn(id, functions));
        }
        let Some(Some(of)) = self.functions.get(id.index()) else { return };
        for (place, (key, text)) in of.texts.iter().enumerate() {
            put_key(bytes, *key);
            put_entry(bytes, interned::ANNOTATION_STRING, number(id, place), text);
        }
    }

    /// Writes the texts for a jump out of this function into interned data, unless the sequence has
    /// them.
    pub(super) fn put_jumps(
        &mut self,
        bytes: &mut Vec<u8>,
        sequence: u64,
        of: FunctionId,
        functions: &Functions<'_>,
    ) {
        self.put_jumped(bytes, sequence);
        if self.jumpers_in.len() <= of.index() {
            self.jumpers_in.resize(of.index() + 1, 0);
        }
        if std::mem::replace(&mut self.jumpers_in[of.index()], sequence) != sequence {
            let name = functions.get(of).slice_name();
            put_entry(bytes, interned::ANNOTATION_STRING, number(of, TEXT_NAME), &name);
        }
    }

    /// Writes the texts for jumps into interned data, unless the sequence has them.
    #[inline]
    pub(super) fn put_jumped(&mut self, bytes: &mut Vec<u8>, sequence: u64) {
        if std::mem::replace(&mut self.jumps_in, sequence) != sequence {
            [KEY_REMARK, KEY_TAIL, KEY_PERHAPS].into_iter().for_each(|key| put_key(bytes, key));
            put_entry(bytes, interned::ANNOTATION_STRING, TEXT_JUMPED, text::JUMPED);
        }
    }

    fn learn(id: FunctionId, functions: &Functions<'_>) -> OfFunction {
        let mut texts = Vec::new();
        let mut annotations = Vec::new();
        for (key, text) in text::details(&functions.details(id)).into_iter().take(TEXT_NAME) {
            let Some(place) = KEYS.iter().position(|known| *known == key) else { continue };
            let key = place as u64 + 1;
            put_annotation(&mut annotations, key, number(id, texts.len()));
            texts.push((key, text));
        }
        OfFunction { texts, annotations }
    }
}

/// Number of a text.
fn number(id: FunctionId, place: usize) -> u64 {
    TEXT_JUMPED + 1 + (id.index() * TEXTS_MAX + place) as u64
}

fn put_key(bytes: &mut Vec<u8>, key: u64) {
    put_entry(bytes, interned::ANNOTATION_NAME, key, KEYS[key as usize - 1]);
}

/// The annotation of a call that a jump made.
#[inline]
pub(super) fn put_tail(bytes: &mut Vec<u8>, tail: Tail) {
    put_annotation(bytes, if tail.is_sure { KEY_TAIL } else { KEY_PERHAPS }, number(tail.of, TEXT_NAME));
}

/// The annotation of a call that ended by a jump.
#[inline]
pub(super) fn put_jumped(bytes: &mut Vec<u8>) {
    put_annotation(bytes, KEY_REMARK, TEXT_JUMPED);
}

/// An annotation of two numbers.
#[inline]
fn put_annotation(bytes: &mut Vec<u8>, key: u64, string: u64) {
    let start = open_small(bytes, event::ANNOTATION);
    bytes.number(annotation::NAME_NUMBER, key);
    bytes.number(annotation::STRING_NUMBER, string);
    close_small(bytes, start);
}
