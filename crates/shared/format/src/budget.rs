//! The budget of a traced process: the CPU time that its tracing may take, as a share of what the
//! program takes without tracing.
//!
//! The runtime records each decision about the budget as an instant, in the ring of a thread of its
//! own, [`THREAD`]. The runtime has no symbols, so an instant names a function by its process and
//! its code offset ([`Function`]).

/// The name of the thread that keeps the budget.
pub const THREAD: &str = "everycall-limit";

/// All of the program's CPU time, in millionths.
pub const WHOLE: u32 = 1_000_000;

/// The values that a budget may have, for messages.
pub const ALLOWED: &str =
    "a share of the program's CPU time with a percent sign, above 0% and up to 100%, such as 3% or 0.5%";

/// Names of the runtime's instants.
pub mod instant {
    /// The budget, in millionths.
    pub const BUDGET: &str = "budget";
    /// The cost of an event by the measurement at the start, in picoseconds.
    pub const EVENT: &str = "budget: cost of an event, ps";
    /// The cost of tracing since the last look, in millionths of the program's CPU time. Written
    /// before functions go off.
    pub const COST: &str = "budget: cost, millionths";
    /// A function goes off: a [`Function`](super::Function) follows. The value is its calls per
    /// second of CPU time.
    pub const OFF: &str = "budget: off ";
    /// A function goes on again: it follows as in [`OFF`]. The value is its calls per second of CPU
    /// time when it went off.
    pub const ON: &str = "budget: on ";
    /// The sites of a function can't be switched: it follows as in [`OFF`]. The value is its calls
    /// per second of CPU time.
    pub const STUCK: &str = "budget: can't go off ";
    /// No more functions can go off, and tracing still costs more than the budget. The value is
    /// that cost, in millionths.
    pub const OUT_OF_REACH: &str = "budget: out of reach, cost in millionths";
}

/// Reads a budget, in millionths.
#[must_use]
pub fn parse(text: &[u8]) -> Option<u32> {
    let number = text.strip_suffix(b"%")?;
    let mut value = 0_u32;
    let mut decimals = None;
    let mut digits = 0;
    for byte in number {
        match byte {
            b'0'..=b'9' if decimals.is_none_or(|count| count < 4) => {
                value = value.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?;
                decimals = decimals.map(|count| count + 1);
                digits += 1;
            }
            b'.' if decimals.is_none() && digits > 0 => decimals = Some(0_u32),
            _ => return None,
        }
    }
    if digits == 0 || decimals == Some(0) {
        return None;
    }
    // A percent has 10,000 millionths.
    let value = value.checked_mul(10_u32.pow(4 - decimals.unwrap_or(0)))?;
    (1..=WHOLE).contains(&value).then_some(value)
}

/// A function of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The process, by its id.
    pub pid: u32,
    /// The code offset of its entries.
    pub code: u32,
}

impl Function {
    /// Parses what [`Name::new`] writes after an instant's name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Function> {
        let (pid, code) = text.split_once('+')?;
        Some(Function { pid: pid.parse().ok()?, code: u32::from_str_radix(code, 16).ok()? })
    }
}

/// The name of an instant about a function.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    bytes: [u8; 64],
    length: usize,
}

impl Name {
    /// One of [`instant`], followed by a function.
    #[must_use]
    pub fn new(what: &str, function: Function) -> Name {
        let mut name = Name { bytes: [0; 64], length: 0 };
        what.bytes().for_each(|byte| name.put(byte));
        name.number::<10>(function.pid);
        name.put(b'+');
        name.number::<16>(function.code);
        name
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&self.bytes)
    }

    fn put(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    fn number<const BASE: u32>(&mut self, number: u32) {
        // The last digit comes first, so the digits are written in reverse.
        let (mut digits, mut count, mut rest) = ([0_u8; 10], 0, number);
        for place in &mut digits {
            let digit = (rest % BASE) as u8;
            *place = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
            count += 1;
            rest /= BASE;
            if rest == 0 {
                break;
            }
        }
        digits.iter().take(count).rev().for_each(|digit| self.put(*digit));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::String;

    #[test]
    fn budgets_must_be_above_zero() {
        for (text, budget) in
            [("3%", 30_000), ("0.5%", 5_000), ("100%", 1_000_000), ("0.0001%", 1), ("12.25%", 122_500)]
        {
            assert_eq!(parse(text.as_bytes()), Some(budget), "{text}");
        }
        for text in [
            "",
            "%",
            "0%",
            "0.0%",
            "-1%",
            "abc",
            "300%",
            "100.0001%",
            "3",
            "3.%",
            ".5%",
            "1.00001%",
            "3 %",
            "1e1%",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn functions_come_back() {
        for (pid, code) in [(1, 0x1000), (4_194_304, 0x7eff_ffff), (u32::MAX, 0), (10, 16)] {
            let function = Function { pid, code };
            let name = Name::new(instant::STUCK, function);
            let text = String::from_utf8(name.bytes().to_vec()).unwrap();
            assert_eq!(text.strip_prefix(instant::STUCK).and_then(Function::parse), Some(function), "{text}");
        }
        assert_eq!(Function::parse("x+10"), None);
    }
}
