//! The frames of stacks, and their names.

use std::borrow::Cow;

use everycall_timeline::GapKind;

use crate::names::{FunctionId, Functions};
use crate::text;

/// A level of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Frame {
    /// A thread's name, by a number of the output.
    Thread(usize),
    Function(FunctionId),
    /// The stack was suspended.
    Suspended,
    /// Recording was off.
    NotRecorded,
    /// All calls that are nested more deeply.
    Deeper,
    /// Calls on paths that aren't kept apart.
    MorePaths,
}

impl Frame {
    /// The frame for a time in which nothing was recorded.
    pub(crate) fn of_gap(why: GapKind) -> Frame {
        if why == GapKind::Suspended { Frame::Suspended } else { Frame::NotRecorded }
    }

    /// Another for each frame. Memory is exhausted long before there are as many functions or
    /// threads.
    #[inline]
    pub(crate) fn number(self) -> u32 {
        match self {
            Frame::Suspended => 0,
            Frame::NotRecorded => 1,
            Frame::Deeper => 2,
            Frame::MorePaths => 3,
            Frame::Function(function) => (function.index() as u32).wrapping_mul(2).wrapping_add(4),
            Frame::Thread(index) => (index as u32).wrapping_mul(2).wrapping_add(5),
        }
    }

    /// The frame's name; threads have their names elsewhere.
    pub(crate) fn name<'f>(self, functions: &'f Functions<'_>) -> &'f str {
        match self {
            Frame::Thread(_) => "",
            Frame::Function(function) => &functions.get(function).name,
            Frame::Suspended => "(suspended)",
            Frame::NotRecorded => "(not recorded)",
            Frame::Deeper => text::DEEPER,
            Frame::MorePaths => MORE_PATHS,
        }
    }
}

/// Name of frames for calls on paths that aren't kept apart.
pub(crate) const MORE_PATHS: &str = "... more paths not shown";

/// A name in a format of lines: control characters, which could end the line or change a terminal,
/// are spelled out, and so is `separator`.
pub(crate) fn in_a_line(name: &str, separator: Option<char>) -> Cow<'_, str> {
    let is_refused = |c: char| c.is_control() || Some(c) == separator;
    if !name.contains(is_refused) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if Some(c) == separator {
            // Arrays of Rust, such as [u8; 4]: readers know no escape for it.
            text.push(':');
        } else if c.is_control() {
            text.extend(c.escape_unicode());
        } else {
            text.push(c);
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_line() {
        assert_eq!(in_a_line("f(int, char)", Some(';')), "f(int, char)");
        assert_eq!(in_a_line("<[u8; 4]>::f\n\u{1b}[31m", Some(';')), "<[u8: 4]>::f\\u{a}\\u{1b}[31m");
    }
}
