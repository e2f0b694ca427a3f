//! `p99(handle) > +10%`: when a comparison fails.

use everycall_units::{parse_size, parse_time};

use everycall_profile::Order;

/// The limit that a number is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A relative change of the old number: 0.1 for 10 %.
    Part(f64),
    /// An absolute change, in nanoseconds, bytes, or calls and blocks.
    By(f64),
    /// The new number itself.
    Number(f64),
}

/// How it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is larger.
    Above,
    /// It is smaller.
    Below,
}

/// A condition on a function's number.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The text that the user wrote.
    pub text: String,
    /// Which number.
    pub number: Order,
    /// Which functions, as a pattern.
    pub function: String,
    /// How it is compared.
    pub relation: Relation,
    /// With what.
    pub limit: Limit,
}

/// The syntax of a condition, for messages.
pub const SYNTAX: &str = "write NUMBER(FUNCTION) > CHANGE, such as 'p99(handle) > +10%', 'calls(f) > +0%', 'own(f) < -5%' or \
                          'max(handle) > 20ms'; numbers are calls, total, own, avg, min, p50, p90, p99, p99.9, max and throws, and after \
                          `count --memory` allocated, own-allocated, blocks, own-blocks, freed and own-freed";

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    ///
    /// The text isn't a condition; the error is a sentence.
    pub fn parse(text: &str) -> Result<Condition, String> {
        let wrong = |what: &str| format!("`{text}`: {what}; {SYNTAX}");
        // Names may contain `<`, `>` and parentheses, so the limit is searched from the end.
        let at = text.rfind(") ").or_else(|| text.rfind(')')).ok_or_else(|| wrong("there is no function"))?;
        let (left, right) = text.split_at(at);
        let (number, function) = left.split_once('(').ok_or_else(|| wrong("there is no function"))?;
        let name = number.trim();
        let number = Order::parse(name).ok_or_else(|| wrong(&format!("there is no number called {name}")))?;
        let right = right[1..].trim();
        let (relation, limit) = match right.strip_prefix('>') {
            Some(limit) => (Relation::Above, limit),
            None => (Relation::Below, right.strip_prefix('<').ok_or_else(|| wrong("there is no > or <"))?),
        };
        let limit = limit.trim();
        let (sign, amount) = match (limit.strip_prefix('+'), limit.strip_prefix('-')) {
            (Some(amount), _) => (Some(1.0), amount),
            (_, Some(amount)) => (Some(-1.0), amount),
            _ => (None, limit),
        };
        let plain = |text: &str| {
            text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
        };
        let part = amount.strip_suffix('%').map(|part| plain(part).map(|part| part / 100.0));
        let limit = match (sign, part) {
            (_, Some(None)) => return Err(wrong("the percentage is no number")),
            (Some(sign), Some(Some(part))) => Limit::Part(sign * part),
            (None, Some(_)) => return Err(wrong("a change in percent has a + or -")),
            (sign, None) => {
                let amount = if number.is_time() {
                    parse_time(amount).ok().map(|ns| ns as f64)
                } else if number.is_bytes() {
                    parse_size(amount.as_bytes()).map(|bytes| bytes as f64)
                } else {
                    plain(amount)
                };
                let amount =
                    amount.ok_or_else(|| wrong("what it is compared with is no number, or has no unit"))?;
                sign.map_or(Limit::Number(amount), |sign| Limit::By(sign * amount))
            }
        };
        let function = function.trim().to_owned();
        if function.is_empty() {
            return Err(wrong("there is no function"));
        }
        Ok(Condition { text: text.to_owned(), number, function, relation, limit })
    }

    /// Whether it compares with the old number.
    #[must_use]
    pub fn is_about_change(&self) -> bool {
        !matches!(self.limit, Limit::Number(_))
    }

    /// Whether it is true for a number that was `old` and is `new`.
    #[must_use]
    pub fn holds(&self, old: f64, new: f64) -> bool {
        let (value, limit) = match self.limit {
            Limit::Part(part) => {
                let change = if old > 0.0 {
                    new / old - 1.0
                } else if new > 0.0 {
                    f64::INFINITY
                } else {
                    0.0
                };
                (change, part)
            }
            Limit::By(by) => (new - old, by),
            Limit::Number(number) => (new, number),
        };
        match self.relation {
            Relation::Above => value > limit,
            Relation::Below => value < limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_as_written() {
        let read = |text| Condition::parse(text).unwrap();
        let condition = read("p99(handle) > +10%");
        assert_eq!((condition.number, condition.function.as_str()), (Order::Percentile(9_900), "handle"));
        assert_eq!((condition.relation, condition.limit), (Relation::Above, Limit::Part(0.1)));
        assert_eq!(read("own(f)<-5%").limit, Limit::Part(-0.05));
        assert_eq!(read("max( ns::f(int) ) > 20ms").function, "ns::f(int)");
        assert_eq!(read("max(f) > 20ms").limit, Limit::Number(2e7));
        assert_eq!(read("avg(f) > +2us").limit, Limit::By(2_000.0));
        assert_eq!(
            read("calls(operator>(int, std::vector<int>)) > 7").function,
            "operator>(int, std::vector<int>)"
        );
        assert_eq!(read("calls(f) > +100").limit, Limit::By(100.0));
        for wrong in [
            "",
            "p99",
            "p98(f) > +1%",
            "p99(f)",
            "p99(f) > ",
            "p99(f) > 10%",
            "p99(f) > 5",
            "p99() > 1ms",
            "p99(f) = 1ms",
            "calls(f) > x%",
        ] {
            let error = Condition::parse(wrong).unwrap_err();
            assert!(error.contains("p99(handle) > +10%"), "{error}");
        }
    }

    #[test]
    fn conditions_hold_for_what_they_say() {
        let holds = |text, old, new| Condition::parse(text).unwrap().holds(old, new);
        assert!(holds("avg(f) > +10%", 100.0, 111.0) && !holds("avg(f) > +10%", 100.0, 109.0));
        assert!(holds("avg(f) < -10%", 100.0, 89.0) && !holds("avg(f) < -10%", 100.0, 95.0));
        assert!(holds("avg(f) > +10ns", 100.0, 111.0) && !holds("avg(f) > 1us", 5.0, 1_000.0));
        assert!(holds("calls(f) > +0%", 0.0, 1.0) && !holds("calls(f) > +0%", 0.0, 0.0));
    }
}
