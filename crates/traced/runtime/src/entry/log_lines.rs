//! Log lines that the program writes through `everycall.h`. They are recorded unformatted: the
//! address of the format, and the raw arguments.
//!
//! If all arguments are numbers and pointers, the format isn't read. If some are pointers to
//! characters, only the format says which of them are strings, and how much of each may be read.
#![allow(unsafe_code)] // Called by the program, with its C strings.

use crate::entry::api::code;
use crate::features::calling::{WORDS_BEFORE, with_thread};
use crate::state::process::traced;
use crate::state::recording;
use crate::sys::errors::error;
use crate::sys::text;
use crate::threads::open_calls::Frame;
use crate::threads::quick_marks::{self, MarkResult};
use everycall_format::event::{RECORD_MAX_PAYLOAD, kind, payload_word, record_word};
use everycall_format::log_line::{
    ARGUMENTS_MAX, COPIED_FORMAT, FORMAT_MAX, TEXT_CUT, TEXT_MAX, TEXT_NULL, TYPE_BITS, argument,
    text_payloads, text_room, type_of, with_type,
};
use everycall_hooks::arch::frame::BODY_HOOK_BELOW;

/// The bits of the first argument's type.
const TYPE_MASK: u32 = (1 << TYPE_BITS) - 1;
/// The bits of all arguments' types.
const ALL_TYPES: u32 = (1 << (TYPE_BITS * ARGUMENTS_MAX as u32)) - 1;
/// Limit on the bytes of a format that are searched for conversions.
const LOOKED_AT: usize = 4096;

/// See [`everycall_hooks::RuntimeTable::log`].
///
/// # Safety
/// `format` is null or a C string. There are as many `arguments` as types. Each value of type
/// `TEXT` is what the format says: if the format converts it to a string, it is null or a C string.
pub(crate) unsafe extern "C" fn log(
    format: *const u8,
    types: u32,
    arguments: *const u64,
    pointer: u64,
) -> i32 {
    if format.is_null() {
        return error::ARGUMENT;
    }
    if recording::is_disabled() {
        return 0;
    }
    let stack_pointer = pointer.wrapping_sub(BODY_HOOK_BELOW);
    if let Some(arguments_payloads) = number_payloads(types)
        && traced().is_some()
    {
        let done =
            quick_marks::write_payloads(kind::LOG, 3 + arguments_payloads, stack_pointer, |payloads| {
                payloads.push(types);
                payloads.push(format as u64 as u32);
                payloads.push((format as u64 >> 32) as u32);
                let (mut rest, mut argument) = (types & ALL_TYPES, arguments);
                while rest != 0 {
                    // SAFETY: by contract.
                    let value = unsafe { *argument };
                    payloads.push(value as u32);
                    if rest & TYPE_MASK != argument::INT32 {
                        payloads.push((value >> 32) as u32);
                    }
                    argument = argument.wrapping_add(1);
                    rest >>= TYPE_BITS;
                }
            });
        if done == MarkResult::Yes {
            return 0;
        }
    }
    // SAFETY: by contract.
    unsafe { any(format, types, arguments, stack_pointer) }
}

/// Number of payloads of the arguments, if all are numbers and pointers and the format is a
/// literal.
#[inline(always)]
fn number_payloads(types: u32) -> Option<usize> {
    // The lowest bit of each type. An argument takes two payloads, an integer of 32 bits one.
    const EACH: u32 = 0o1_111_111_111;
    if types & COPIED_FORMAT != 0 {
        return None;
    }
    let (low, middle, high) = (types & EACH, types >> 1 & EACH, types >> 2 & EACH);
    let is_text = high & low;
    let is_int32 = low & !middle & !high;
    let is_any = low | middle | high;
    // No argument follows a missing one.
    let is_dense = is_any & EACH.wrapping_shl(TYPE_BITS * is_any.count_ones()) == 0;
    (is_text == 0 && is_dense).then(|| (2 * is_any.count_ones() - is_int32.count_ones()) as usize)
}

#[inline(never)]
unsafe fn any(format: *const u8, types: u32, arguments: *const u64, stack_pointer: u64) -> i32 {
    // SAFETY: by contract.
    let line = unsafe { Line::new(format, types, arguments) };
    if traced().is_some()
        && quick_marks::write_payloads(kind::LOG, line.count(), stack_pointer, |payloads| {
            line.put(|payload| payloads.push(payload))
        }) == MarkResult::Yes
    {
        return 0;
    }
    slow(&line, stack_pointer)
}

#[cold]
#[inline(never)]
fn slow(line: &Line, stack_pointer: u64) -> i32 {
    code(with_thread(|thread| {
        let count = line.count();
        let ticks = thread.prepare(WORDS_BEFORE + 1 + count);
        thread.drop_dead(ticks, Frame::Body(stack_pointer));
        let mut words = [0; 1 + RECORD_MAX_PAYLOAD];
        words[0] = record_word(ticks, kind::LOG, count as u8, 0);
        let mut index = 1;
        line.put(|payload| {
            if let Some(word) = words.get_mut(index).filter(|_| index <= count) {
                *word = payload_word(payload, kind::LOG, index as u8);
                index += 1;
            }
        });
        thread.ring.push(words.get(..=count).unwrap_or_default());
    }))
}

/// A log line, with the lengths of its texts.
struct Line {
    format: *const u8,
    types: u32,
    arguments: *const u64,
    /// The length of the format, if that is copied.
    format_length: Length,
    lengths: [Length; ARGUMENTS_MAX],
}

/// How much of a text is recorded.
#[derive(Clone, Copy, Default)]
struct Length {
    kept: u16,
    is_cut: bool,
}

impl Length {
    /// # Safety
    /// `text` is a string, or has `readable` bytes.
    unsafe fn of(text: *const u8, readable: usize, room: usize) -> Length {
        // One byte more shows whether the text is longer.
        // SAFETY: by contract.
        let found = unsafe { text::length_up_to(text, readable.min(room + 1)) };
        Length { kept: found.min(room) as u16, is_cut: found > room }
    }
}

impl Line {
    /// # Safety
    /// As [`log`].
    unsafe fn new(format: *const u8, types: u32, arguments: *const u64) -> Line {
        let mut line = Line {
            format,
            types,
            arguments,
            format_length: Length::default(),
            lengths: [Length::default(); ARGUMENTS_MAX],
        };
        if types & COPIED_FORMAT != 0 {
            // SAFETY: by contract.
            line.format_length = unsafe { Length::of(format, usize::MAX, FORMAT_MAX) };
        }
        let count = line.arguments();
        if (0..count).any(|index| type_of(types, index) == argument::TEXT) {
            // SAFETY: by contract.
            unsafe { line.measure(count) };
        }
        line
    }

    fn arguments(&self) -> usize {
        (0..ARGUMENTS_MAX).take_while(|index| type_of(self.types, *index) != argument::NONE).count()
    }

    fn value(&self, index: usize) -> u64 {
        // SAFETY: there are as many values as types, by the contract of `log`.
        unsafe { *self.arguments.wrapping_add(index) }
    }

    /// Decides which pointers to characters are strings, and how long these are. The others become
    /// pointers.
    ///
    /// # Safety
    /// As [`log`].
    unsafe fn measure(&mut self, count: usize) {
        let given = self.types;
        for index in 0..count {
            if type_of(given, index) == argument::TEXT {
                self.types = with_type(self.types, index, argument::POINTER);
            }
        }
        let mut used = self.head();
        let mut next = 0;
        let mut conversions = Conversions { rest: self.format, left: LOOKED_AT };
        // SAFETY: by contract.
        while let Some(conversion) = unsafe { conversions.next() } {
            let mut precision = conversion.precision;
            for _ in 0..conversion.stars {
                used += self.payloads(next);
                next += 1;
            }
            if conversion.has_star_precision && next > 0 {
                let value = self.value((next - 1).min(count.saturating_sub(1))) as i32;
                precision = usize::try_from(value).unwrap_or(usize::MAX);
            }
            if conversion.takes_none {
                continue;
            }
            if next >= count {
                return;
            }
            let text = self.value(next) as *const u8;
            if conversion.is_text && type_of(given, next) == argument::TEXT {
                self.types = with_type(self.types, next, argument::TEXT);
                if !text.is_null()
                    && let Some(length) = self.lengths.get_mut(next)
                {
                    let room = TEXT_MAX.min(text_room(used, count - next - 1));
                    // SAFETY: by contract: a string, or as many bytes as the precision says.
                    *length = unsafe { Length::of(text, precision, room) };
                }
            }
            used += self.payloads(next);
            next += 1;
        }
    }

    /// Payloads before the arguments.
    fn head(&self) -> usize {
        match self.types & COPIED_FORMAT {
            0 => 3,
            _ => 1 + text_payloads(self.format_length.kept.into()),
        }
    }

    /// Payloads of an argument.
    fn payloads(&self, index: usize) -> usize {
        match type_of(self.types, index) {
            argument::NONE => 0,
            argument::INT32 => 1,
            argument::TEXT => text_payloads(self.lengths.get(index).map_or(0, |length| length.kept.into())),
            _ => 2,
        }
    }

    /// All payloads.
    fn count(&self) -> usize {
        let arguments: usize = (0..self.arguments()).map(|index| self.payloads(index)).sum();
        (self.head() + arguments).min(RECORD_MAX_PAYLOAD)
    }

    #[inline]
    fn put(&self, mut put: impl FnMut(u32)) {
        put(self.types);
        if self.types & COPIED_FORMAT == 0 {
            put_wide(&mut put, self.format as u64);
        } else {
            put_text(&mut put, self.format, self.format_length);
        }
        for index in 0..self.arguments() {
            let value = self.value(index);
            match (type_of(self.types, index), self.lengths.get(index)) {
                (argument::INT32, _) => put(value as u32),
                (argument::TEXT, _) if value == 0 => put(TEXT_NULL),
                (argument::TEXT, Some(length)) => put_text(&mut put, value as *const u8, *length),
                _ => put_wide(&mut put, value),
            }
        }
    }
}

fn put_wide(put: &mut impl FnMut(u32), value: u64) {
    put(value as u32);
    put((value >> 32) as u32);
}

fn put_text(put: &mut impl FnMut(u32), text: *const u8, length: Length) {
    put(u32::from(length.kept) | if length.is_cut { TEXT_CUT } else { 0 });
    // SAFETY: this many bytes were read before.
    let bytes = unsafe { core::slice::from_raw_parts(text, length.kept.into()) };
    for part in bytes.chunks(4) {
        put(part.iter().rev().fold(0, |four, byte| four << 8 | u32::from(*byte)));
    }
}

/// An iterator over the conversions of a format.
struct Conversions {
    rest: *const u8,
    left: usize,
}

/// A conversion.
#[derive(Default)]
struct Conversion {
    /// It is `%s` of bytes.
    is_text: bool,
    /// It takes no argument of its own.
    takes_none: bool,
    /// Number of arguments that its width and precision take.
    stars: usize,
    /// The last of them is the precision.
    has_star_precision: bool,
    precision: usize,
}

impl Conversions {
    /// The next byte; 0 at the end, where it stays.
    ///
    /// # Safety
    /// The format is a C string.
    unsafe fn byte(&mut self) -> u8 {
        if self.left == 0 {
            return 0;
        }
        // SAFETY: by contract.
        let byte = unsafe { *self.rest };
        if byte == 0 {
            self.left = 0;
        } else {
            self.rest = self.rest.wrapping_add(1);
            self.left -= 1;
        }
        byte
    }

    /// # Safety
    /// As above.
    unsafe fn next(&mut self) -> Option<Conversion> {
        // SAFETY: by contract.
        unsafe {
            loop {
                match self.byte() {
                    0 => return None,
                    b'%' => break,
                    _ => {}
                }
            }
            let mut found = Conversion { precision: usize::MAX, ..Conversion::default() };
            let mut is_precision = false;
            let mut is_wide = false;
            loop {
                match self.byte() {
                    // Arguments by number, or an incomplete conversion: nothing is known of those
                    // that follow.
                    0 | b'$' => return None,
                    b'.' => {
                        is_precision = true;
                        found.precision = 0;
                    }
                    b'*' => {
                        found.stars += 1;
                        found.has_star_precision = is_precision;
                    }
                    digit @ b'0'..=b'9' if is_precision => {
                        found.precision =
                            found.precision.saturating_mul(10).saturating_add((digit - b'0').into());
                    }
                    b'0'..=b'9'
                    | b'-'
                    | b'+'
                    | b' '
                    | b'#'
                    | b'\''
                    | b'I'
                    | b'h'
                    | b'q'
                    | b'j'
                    | b'z'
                    | b't'
                    | b'L' => {}
                    b'l' => is_wide = true,
                    letter => {
                        found.is_text = letter == b's' && !is_wide;
                        found.takes_none = matches!(letter, b'%' | b'm');
                        return Some(found);
                    }
                }
            }
        }
    }
}
