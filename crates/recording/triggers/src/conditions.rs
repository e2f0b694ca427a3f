//! The numbers of conditions on arguments and results: the traced process knows a condition by its
//! number, in the program that judges it and at the functions that the trigger names.

use std::fmt;

use everycall_format::capture::{CONDITIONS, REMEMBERED};
use everycall_format::trigger::site_flags;

use crate::trigger::{Condition, Trigger};

/// The numbers of a trigger's conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Of that on the arguments, which is judged when a call is entered.
    pub entry: Option<u32>,
    /// Of that on the result, which is judged when a call returns.
    pub result: Option<u32>,
}

impl Numbers {
    /// A bit for each of them.
    #[must_use]
    pub fn bits(self) -> u32 {
        site_flags::at_entry(self.flags()) | site_flags::at_return(self.flags())
    }

    /// The bits of the functions that the trigger names.
    pub(crate) fn flags(self) -> u32 {
        site_flags::with_conditions(self.entry, self.result)
    }
}

/// There are more conditions than the traced process can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooManyConditions {
    /// Conditions that have to be remembered until a call ends.
    Remembered,
    /// Conditions in all.
    All,
}

impl fmt::Display for TooManyConditions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remembered => write!(
                out,
                "more than {REMEMBERED} triggers have a condition on arguments that is remembered until the call \
                 ends (with a time, an exception or a result); leave some out, or record twice"
            ),
            Self::All => write!(out, "triggers have more than {CONDITIONS} conditions; leave some out"),
        }
    }
}

impl std::error::Error for TooManyConditions {}

/// The numbers of the triggers' conditions.
///
/// # Errors
///
/// There are too many.
pub fn numbers(triggers: &[Trigger]) -> Result<Vec<Numbers>, TooManyConditions> {
    numbers_beside(triggers, 0)
}

/// The numbers of the triggers' conditions in a process where others have conditions, too.
/// `taken`: a bit for each number that they have.
///
/// # Errors
///
/// There are too many.
pub fn numbers_beside(triggers: &[Trigger], taken: u32) -> Result<Vec<Numbers>, TooManyConditions> {
    let is_free = |number: &u32| taken & 1 << number == 0;
    let (mut remembered, mut others) =
        ((0..REMEMBERED).filter(is_free), (REMEMBERED..CONDITIONS).filter(is_free));
    let mut number_of = |trigger: &Trigger| {
        let entry = match (&trigger.when, &trigger.condition) {
            (None, _) => None,
            (Some(_), Condition::Entered(_)) => Some(others.next().ok_or(TooManyConditions::All)?),
            (Some(_), _) => Some(remembered.next().ok_or(TooManyConditions::Remembered)?),
        };
        let result = match trigger.condition {
            Condition::Returned(..) => Some(others.next().ok_or(TooManyConditions::All)?),
            _ => None,
        };
        Ok(Numbers { entry, result })
    };
    triggers.iter().map(&mut number_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_have_numbers_of_their_own() {
        let parsed =
            |texts: &[&str]| -> Vec<Trigger> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let all = parsed(&["f > 1ms", "f > 1ms if n > 3", "f entered if n > 3", "g returned < 0 if n == 1"]);
        let of = |entry, result| Numbers { entry, result };
        assert_eq!(
            numbers(&all),
            Ok(vec![of(None, None), of(Some(0), None), of(Some(3), None), of(Some(1), Some(4))])
        );
        assert_eq!(numbers(&parsed(&["f > 1ms if n > 3"; 4])), Err(TooManyConditions::Remembered));
        assert_eq!(numbers(&parsed(&["f entered if n > 3"; 30])), Err(TooManyConditions::All));
        let beside = numbers_beside(&all[1..], 1 << 0 | 1 << 4);
        let expected = vec![of(Some(1), None), of(Some(3), None), of(Some(2), Some(5))];
        assert_eq!(beside, Ok(expected));
        assert_eq!(numbers_beside(&all, 0b110), Err(TooManyConditions::Remembered));
        assert_eq!(site_flags::at_entry(of(Some(31), Some(4)).flags()), 1 << 31);
        assert_eq!(site_flags::at_return(of(Some(31), Some(4)).flags()), 1 << 4);
        assert_eq!(site_flags::at_entry(0) | site_flags::at_return(0), 0);
    }
}
