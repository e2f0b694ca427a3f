//! The functions that a query is about.

use crate::functions::{Function, FunctionNumber, Functions};

/// The functions that a query is about, found when they first occur.
pub struct Focus<'f> {
    is_meant: &'f dyn Fn(&Function) -> bool,
    /// By function number, for functions that occurred.
    known: Vec<Option<bool>>,
}

impl<'f> Focus<'f> {
    /// The functions for which `is_meant` returns true.
    #[must_use]
    pub fn new(is_meant: &'f dyn Fn(&Function) -> bool) -> Focus<'f> {
        Focus { is_meant, known: Vec::new() }
    }

    #[inline]
    pub(crate) fn has(&mut self, number: FunctionNumber, functions: &Functions) -> bool {
        match self.known.get(number as usize) {
            Some(Some(is_meant)) => *is_meant,
            _ => self.ask(number, functions),
        }
    }

    #[cold]
    fn ask(&mut self, number: FunctionNumber, functions: &Functions) -> bool {
        let is_meant = functions.get(number).is_some_and(self.is_meant);
        let index = number as usize;
        if self.known.len() <= index {
            self.known.resize(index + 1, None);
        }
        self.known[index] = Some(is_meant);
        is_meant
    }

    /// Whether any of them occurred.
    #[must_use]
    pub fn has_any(&self) -> bool {
        self.known.contains(&Some(true))
    }
}
