//! Log lines: a format of `printf` and raw arguments, formatted here. Formats and arguments may be
//! anything.
//!
//! An argument is shown as its recorded type allows, whatever the conversion wants: nothing is read
//! beyond the record.

use std::fmt::Write;

use everycall_format::event::{Word, kind};
use everycall_format::log_line::{
    ARGUMENTS_MAX, COPIED_FORMAT, OUTPUT, TEXT_CUT, TEXT_NULL, argument, type_of,
};

/// The most that a width or a precision adds.
const WIDTH_MAX: usize = 256;
/// The longest text of a line, in bytes.
const LINE_MAX: usize = 8 << 10;

/// A log line, as its record holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// Its format.
    pub format: LogFormat,
    /// Its arguments.
    pub arguments: Vec<LogArgument>,
    /// It is output of the program: arguments behind the first three are its text.
    pub is_output: bool,
}

/// Where a line's format is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// At this address of the process.
    Address(u64),
    /// In the record, as it wasn't a literal.
    Copied(LogText),
}

/// A text in a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogText {
    /// Its bytes that are kept.
    pub bytes: Vec<u8>,
    /// It was longer.
    pub is_cut: bool,
    /// There was none: the pointer was null.
    pub is_null: bool,
}

/// An argument of a log line.
#[derive(Clone, Debug, PartialEq)]
pub enum LogArgument {
    /// An integer of at most 32 bits.
    Int32(u32),
    /// An integer of 64 bits.
    Int64(u64),
    /// A double.
    Double(f64),
    /// A pointer.
    Pointer(u64),
    /// A string.
    Text(LogText),
}

/// The payloads of the log record that begins at `slot` of `words`; none where there is no such
/// record.
pub fn log_payloads(words: &[u64], slot: u32) -> impl Iterator<Item = u32> {
    let mut record = words.get(slot as usize..).unwrap_or_default().iter().copied().map(Word::decode);
    let count = match record.next() {
        Some(Word::Record { kind: kind::LOG, count, .. }) => usize::from(count),
        _ => 0,
    };
    record.take(count).map_while(|word| match word {
        Word::Payload { payload, kind: kind::LOG, .. } => Some(payload),
        _ => None,
    })
}

/// The address of the format of the log record that begins at `slot` of `words`; `None` where the
/// record holds the format.
#[must_use]
pub fn format_address(words: &[u64], slot: u32) -> Option<u64> {
    let mut payloads = log_payloads(words, slot);
    let types = payloads.next()?;
    let (low, high) = (payloads.next()?, payloads.next()?);
    (types & COPIED_FORMAT == 0).then_some(u64::from(high) << 32 | u64::from(low))
}

/// Payloads that are left.
struct Payloads<'p>(&'p [u32]);

impl Payloads<'_> {
    fn next(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn wide(&mut self) -> Option<u64> {
        let low = self.next()?;
        Some(u64::from(self.next()?) << 32 | u64::from(low))
    }

    fn text(&mut self) -> Option<LogText> {
        let head = self.next()?;
        let length = (head & !(TEXT_CUT | TEXT_NULL)) as usize;
        let words = length.div_ceil(4).min(self.0.len());
        let (text, rest) = self.0.split_at_checked(words)?;
        self.0 = rest;
        let mut bytes: Vec<u8> = text.iter().flat_map(|four| four.to_le_bytes()).collect();
        let is_cut = head & TEXT_CUT != 0 || length > bytes.len();
        bytes.truncate(length);
        Some(LogText { bytes, is_cut, is_null: head & TEXT_NULL != 0 })
    }
}

impl LogLine {
    /// From a record's payloads. What is missing at the end isn't there.
    #[must_use]
    pub fn from_payloads(payloads: &[u32]) -> LogLine {
        let mut rest = Payloads(payloads);
        let types = rest.next().unwrap_or(0);
        let format = if types & COPIED_FORMAT == 0 {
            LogFormat::Address(rest.wide().unwrap_or(0))
        } else {
            LogFormat::Copied(rest.text().unwrap_or_default())
        };
        let arguments = (0..ARGUMENTS_MAX).map_while(|index| {
            Some(match type_of(types, index) {
                argument::INT32 => LogArgument::Int32(rest.next()?),
                argument::INT64 => LogArgument::Int64(rest.wide()?),
                argument::DOUBLE => LogArgument::Double(f64::from_bits(rest.wide()?)),
                argument::POINTER => LogArgument::Pointer(rest.wide()?),
                argument::TEXT => LogArgument::Text(rest.text()?),
                _ => return None,
            })
        });
        LogLine { arguments: arguments.collect(), format, is_output: types & OUTPUT != 0 }
    }

    /// The line's text. `read` is the format at its address, if it was read.
    #[must_use]
    pub fn text(&self, read: Option<&[u8]>) -> String {
        if self.is_output {
            return self.output();
        }
        let mut text = match (&self.format, read) {
            (LogFormat::Copied(copied), _) => {
                let mut text = formatted(&copied.bytes, &self.arguments);
                text.push_str(if copied.is_cut { "..." } else { "" });
                text
            }
            (LogFormat::Address(_), Some(read)) => formatted(read, &self.arguments),
            (LogFormat::Address(address), None) => {
                let mut text = format!("(format at {address:#x} is not available)");
                for argument in &self.arguments {
                    text.push(' ');
                    plain(&mut text, argument);
                }
                text
            }
        };
        if text.len() > LINE_MAX {
            let end = (0..=LINE_MAX).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
            text.push_str("...");
        }
        let end = text.trim_end_matches(['\n', '\r']).len();
        text.truncate(end);
        text
    }
}

impl LogLine {
    /// The text of a line of output.
    fn output(&self) -> String {
        let mut bytes = Vec::new();
        for argument in self.arguments.iter().skip(OUTPUT_HEAD) {
            if let LogArgument::Text(text) = argument {
                bytes.extend(&text.bytes);
            }
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(LogArgument::Int64(cut)) = self.arguments.get(2)
            && *cut > 0
        {
            let _ = write!(text, "... ({cut} more bytes)");
        }
        text
    }
}

/// Arguments of a line of output before its texts.
const OUTPUT_HEAD: usize = 3;

/// Which line of which stream the record that begins at `slot` of `words` is output of: one of
/// [`everycall_format::log_line::stream`], and the number of the line.
#[must_use]
pub fn output_line(words: &[u64], slot: u32) -> Option<(u32, u64)> {
    let mut payloads = log_payloads(words, slot);
    let types = payloads.next().filter(|types| types & OUTPUT != 0)?;
    let known = [argument::INT32, argument::INT64];
    if types & COPIED_FORMAT != 0 || (0..).zip(known).any(|(index, known)| type_of(types, index) != known) {
        return None;
    }
    // The format's address.
    let mut payloads = payloads.skip(2);
    let (stream, low, high) = (payloads.next()?, payloads.next()?, payloads.next()?);
    Some((stream, u64::from(high) << 32 | u64::from(low)))
}

/// A conversion of a format, as far as it was read.
#[derive(Clone, Copy, Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    /// Bits of an integer that count, as `h` and `hh` say.
    bits: u32,
    letter: u8,
}

fn formatted(format: &[u8], arguments: &[LogArgument]) -> String {
    let mut out = Vec::new();
    let mut arguments = arguments.iter();
    let mut rest = format;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let (before, conversion) = rest.split_at(at);
        out.extend_from_slice(before);
        let (length, converted) = convert(conversion, &mut arguments);
        match converted {
            Some(text) => out.extend_from_slice(&text),
            None => out.extend_from_slice(conversion.get(..length).unwrap_or(conversion)),
        }
        rest = conversion.get(length..).unwrap_or_default();
        if out.len() > LINE_MAX {
            break;
        }
    }
    out.extend_from_slice(rest);
    let mut text = String::from_utf8_lossy(&out).into_owned();
    let mut more = arguments.peekable();
    if more.peek().is_some() {
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
        text.push_str(" (more arguments:");
        for argument in more {
            text.push(' ');
            plain(&mut text, argument);
        }
        text.push(')');
    }
    text
}

/// The conversion at the beginning of `format`: its bytes, and what it becomes; `None` to show it
/// as it stands.
fn convert<'a>(
    format: &[u8],
    arguments: &mut (impl Iterator<Item = &'a LogArgument> + Clone),
) -> (usize, Option<Vec<u8>>) {
    let mut conversion = Conversion { bits: 64, ..Conversion::default() };
    let before = arguments.clone();
    let mut is_precision = false;
    for (index, byte) in format.iter().enumerate().skip(1) {
        match byte {
            b'-' if !is_precision => conversion.left = true,
            b'+' => conversion.plus = true,
            b' ' => conversion.space = true,
            b'#' => conversion.alternate = true,
            b'0' if conversion.width == 0 && !is_precision => conversion.zero = true,
            b'0'..=b'9' => {
                let number =
                    if is_precision { conversion.precision.get_or_insert(0) } else { &mut conversion.width };
                *number = (*number * 10 + usize::from(byte - b'0')).min(WIDTH_MAX);
            }
            b'.' => {
                is_precision = true;
                conversion.precision = Some(0);
            }
            b'*' => {
                let value = arguments.next().map_or(0, |argument| signed(argument, 32));
                let size = usize::try_from(value.unsigned_abs()).unwrap_or(WIDTH_MAX).min(WIDTH_MAX);
                if is_precision {
                    conversion.precision = (value >= 0).then_some(size);
                } else {
                    conversion.left |= value < 0;
                    conversion.width = size;
                }
            }
            b'h' => conversion.bits = if conversion.bits == 16 { 8 } else { 16 },
            b'\'' | b'I' | b'l' | b'q' | b'j' | b'z' | b't' | b'L' => {}
            b'%' => return (index + 1, Some(vec![b'%'])),
            // The error number isn't recorded, and arguments by number aren't understood.
            b'm' => return (index + 1, None),
            b'$' => {
                *arguments = before;
                return (index + 1, None);
            }
            letter @ (b'a'..=b'z' | b'A'..=b'Z') => {
                conversion.letter = *letter;
                let Some(argument) = arguments.next() else { return (index + 1, None) };
                return (index + 1, conversion.apply(argument));
            }
            _ => return (index, None),
        }
    }
    (format.len(), None)
}

/// An integer as a signed one of so many bits, of those that it has.
fn signed(argument: &LogArgument, bits: u32) -> i64 {
    let (value, has) = match argument {
        LogArgument::Int32(value) => (u64::from(*value), 32),
        LogArgument::Int64(value) | LogArgument::Pointer(value) => (*value, 64),
        LogArgument::Double(_) | LogArgument::Text(_) => (0, 64),
    };
    let unused = 64 - bits.min(has);
    (value << unused).cast_signed() >> unused
}

fn unsigned(argument: &LogArgument, bits: u32) -> u64 {
    let (value, has) = match argument {
        LogArgument::Int32(value) => (u64::from(*value), 32),
        LogArgument::Int64(value) | LogArgument::Pointer(value) => (*value, 64),
        LogArgument::Double(_) | LogArgument::Text(_) => (0, 64),
    };
    let unused = 64 - bits.min(has);
    value << unused >> unused
}

/// An argument that no conversion fits.
fn plain(text: &mut String, argument: &LogArgument) {
    // Writing to a string can't fail.
    let _ = match argument {
        LogArgument::Int32(value) => write!(text, "{}", value.cast_signed()),
        LogArgument::Int64(value) => write!(text, "{}", value.cast_signed()),
        LogArgument::Double(value) => write!(text, "{value}"),
        LogArgument::Pointer(value) => write!(text, "{value:#x}"),
        LogArgument::Text(LogText { is_null: true, .. }) => write!(text, "(null)"),
        LogArgument::Text(argument) => {
            let end = if argument.is_cut { "..." } else { "" };
            write!(text, "\"{}{end}\"", String::from_utf8_lossy(&argument.bytes))
        }
    };
}

impl Conversion {
    fn apply(self, argument: &LogArgument) -> Option<Vec<u8>> {
        let fitting = match (self.letter, argument) {
            (b'd' | b'i', LogArgument::Int32(_) | LogArgument::Int64(_)) => {
                let value = signed(argument, self.bits);
                self.integer(value < 0, &value.unsigned_abs().to_string(), "")
            }
            (b'u', LogArgument::Int32(_) | LogArgument::Int64(_)) => {
                self.integer(false, &unsigned(argument, self.bits).to_string(), "")
            }
            (b'x' | b'X' | b'o' | b'b', LogArgument::Int32(_) | LogArgument::Int64(_)) => {
                let value = unsigned(argument, self.bits);
                let (digits, prefix) = match self.letter {
                    b'x' => (format!("{value:x}"), "0x"),
                    b'X' => (format!("{value:X}"), "0X"),
                    b'b' => (format!("{value:b}"), "0b"),
                    _ => (format!("{value:o}"), "0"),
                };
                self.integer(false, &digits, if self.alternate && value != 0 { prefix } else { "" })
            }
            (b'c', LogArgument::Int32(value)) => self.padded(vec![*value as u8]),
            (b'p', LogArgument::Pointer(0)) => self.padded(b"(nil)".to_vec()),
            (b'p', LogArgument::Pointer(value)) => self.padded(format!("{value:#x}").into_bytes()),
            (b's', LogArgument::Text(text)) => {
                let mut bytes = if text.is_null { b"(null)".to_vec() } else { text.bytes.clone() };
                match self.precision {
                    // The kept bytes may end within a character.
                    Some(most) if most <= bytes.len() => bytes.truncate(most),
                    _ if text.is_cut => bytes.extend_from_slice(b"..."),
                    _ => {}
                }
                self.padded(bytes)
            }
            (b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A', LogArgument::Double(value)) => {
                self.double(*value)
            }
            // It would write to the program's memory.
            (b'n', _) => return None,
            _ => {
                let mut text = String::new();
                plain(&mut text, argument);
                text.into_bytes()
            }
        };
        Some(fitting)
    }

    fn sign(self, is_negative: bool) -> &'static str {
        match (is_negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    fn integer(self, is_negative: bool, digits: &str, prefix: &str) -> Vec<u8> {
        let sign = if matches!(self.letter, b'd' | b'i') { self.sign(is_negative) } else { "" };
        let digits = if self.precision == Some(0) && digits == "0" { "" } else { digits };
        let least = match self.precision {
            Some(precision) => precision,
            None if self.zero && !self.left => self.width.saturating_sub(sign.len() + prefix.len()),
            None => 1,
        };
        // The prefix of octal numbers is a digit of theirs.
        let least = if prefix == "0" { least.max(digits.len() + 1) } else { least };
        let prefix = if prefix == "0" { "" } else { prefix };
        self.padded(format!("{sign}{prefix}{digits:0>least$}").into_bytes())
    }

    fn padded(self, mut bytes: Vec<u8>) -> Vec<u8> {
        let missing = self.width.saturating_sub(bytes.len());
        if self.left {
            bytes.extend(std::iter::repeat_n(b' ', missing));
        } else {
            bytes.splice(0..0, std::iter::repeat_n(b' ', missing));
        }
        bytes
    }

    fn double(self, value: f64) -> Vec<u8> {
        let sign = self.sign(value.is_sign_negative());
        let value = value.abs();
        let text = match (value.is_finite(), self.letter.to_ascii_lowercase()) {
            (false, _) => if value.is_nan() { "nan" } else { "inf" }.to_owned(),
            (_, b'f') => self.pointed(format!("{value:.*}", self.precision.unwrap_or(6))),
            (_, b'e') => self.exponential(value, self.precision.unwrap_or(6)),
            (_, b'g') => self.shortest(value),
            _ => self.hexadecimal(value),
        };
        let text = if self.letter.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text };
        if self.zero && !self.left && value.is_finite() {
            let (prefix, digits) = match text.get(..2) {
                Some(prefix @ ("0x" | "0X")) => (prefix, text.get(2..).unwrap_or_default()),
                _ => ("", &*text),
            };
            let least = self.width.saturating_sub(sign.len() + prefix.len());
            return format!("{sign}{prefix}{digits:0>least$}").into_bytes();
        }
        self.padded(format!("{sign}{text}").into_bytes())
    }

    fn pointed(self, text: String) -> String {
        if self.alternate && !text.contains('.') { text + "." } else { text }
    }

    fn exponential(self, value: f64, precision: usize) -> String {
        let text = format!("{value:.precision$e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        format!(
            "{}e{}{:02}",
            self.pointed(digits.to_owned()),
            if exponent < 0 { '-' } else { '+' },
            exponent.abs()
        )
    }

    fn shortest(self, value: f64) -> String {
        let precision = self.precision.unwrap_or(6).max(1);
        let rounded = format!("{value:.*e}", precision - 1);
        let exponent: i64 =
            rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
        let is_plain = exponent >= -4 && exponent < precision as i64;
        let text = if is_plain {
            let decimals = usize::try_from(precision as i64 - 1 - exponent).unwrap_or(0);
            format!("{value:.decimals$}")
        } else {
            Conversion { alternate: false, ..self }.exponential(value, precision - 1)
        };
        if self.alternate {
            return self.pointed(text);
        }
        let (digits, end) = match text.find('e') {
            Some(at) => text.split_at(at),
            None => (&*text, ""),
        };
        let digits =
            if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
        format!("{digits}{end}")
    }

    /// Digits are not rounded to a precision: that would hide bits.
    fn hexadecimal(self, value: f64) -> String {
        let bits = value.to_bits();
        let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7ff).cast_signed());
        let (first, exponent) = match (fraction, exponent) {
            (0, 0) => (0, 0),
            (_, 0) => (0, -1022),
            _ => (1, exponent - 1023),
        };
        let digits = format!("{fraction:013x}");
        let digits = digits.trim_end_matches('0');
        let point = if digits.is_empty() { "" } else { "." };
        format!("0x{first}{point}{digits}p{exponent:+}")
    }
}

#[cfg(test)]
mod tests;
