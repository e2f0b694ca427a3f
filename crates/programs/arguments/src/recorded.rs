//! Conditions on values that were recorded, judged when a trace is read.

use everycall_values::{Value, plain_name};

use crate::error::ArgumentError;
use crate::syntax::{Expression, Node, Operator};

/// A condition on the recorded values of calls, such as `len > 4096 and path starts with "/api"`.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCondition {
    expression: Expression,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
enum Operand<'v> {
    Number(i128),
    Float(f64),
    Text(Vec<u8>),
    Null,
    Bool(bool),
    /// A value that was recorded and isn't one of these.
    Other(&'v Value),
}

impl RecordedCondition {
    /// Reads a condition.
    ///
    /// # Errors
    ///
    /// It isn't one, with the place of the mistake.
    pub fn parse(text: &str) -> Result<RecordedCondition, ArgumentError> {
        let expression = Expression::parse(text)?;
        let is_one =
            matches!(
                &expression.node,
                Node::Binary(operator, ..) if is_condition(*operator)
            ) || matches!(&expression.node, Node::Not(_) | Node::Name(_) | Node::Member(..) | Node::Result);
        if !is_one {
            return Err(ArgumentError::new(text, 0..text.len(), "this isn't a condition")
                .with_help("compare a value with something, as in len > 4096"));
        }
        Ok(RecordedCondition { expression })
    }

    /// Whether it is true of a call with these arguments and this result. What a call has no value
    /// for, and what can't be compared, is false.
    #[must_use]
    pub fn holds(&self, values: &[(String, Value)]) -> bool {
        truth(&self.expression, values).unwrap_or(false)
    }
}

fn is_condition(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Or
            | Operator::And
            | Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::LessEqual
            | Operator::Greater
            | Operator::GreaterEqual
            | Operator::Contains
            | Operator::StartsWith
    )
}

fn truth(it: &Expression, values: &[(String, Value)]) -> Option<bool> {
    match &it.node {
        Node::Not(inner) => truth(inner, values).map(|truth| !truth),
        // One side may decide although the other has no value.
        Node::Binary(Operator::And, left, right) => match (truth(left, values), truth(right, values)) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        },
        Node::Binary(Operator::Or, left, right) => match (truth(left, values), truth(right, values)) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        },
        Node::Binary(operator, left, right) if is_condition(*operator) => {
            compare(*operator, (left, right), values)
        }
        _ => match operand(it, values)? {
            Operand::Bool(value) => Some(value),
            Operand::Number(number) => Some(number != 0),
            Operand::Float(number) => Some(number != 0.0),
            Operand::Null => Some(false),
            Operand::Other(
                Value::Pointer(_) | Value::Function(_) | Value::CallSite(_) | Value::Named(..),
            ) => Some(true),
            Operand::Text(_) | Operand::Other(_) => None,
        },
    }
}

fn compare(
    operator: Operator,
    (left, right): (&Expression, &Expression),
    values: &[(String, Value)],
) -> Option<bool> {
    // Beside an enumeration, a name that isn't a value's is that of an enumerator.
    let enumerator = |it: &Expression, other: &Option<Operand<'_>>| match &it.node {
        Node::Name(name) if matches!(other, Some(Operand::Other(Value::Enum(..)))) => {
            Some(Operand::Text(name.as_bytes().to_vec()))
        }
        _ => None,
    };
    let (of_left, of_right) = (operand(left, values), operand(right, values));
    let (named_left, named_right) = (enumerator(left, &of_right), enumerator(right, &of_left));
    let (left_value, right_value) = (of_left.or(named_left)?, of_right.or(named_right)?);
    let (left_value, right_value) = (named_beside(&right_value, left_value), right_value);
    let (left_value, right_value) = (left_value.clone(), named_beside(&left_value, right_value));
    let order = match (&left_value, &right_value) {
        (Operand::Number(a), Operand::Number(b)) => Some(a.cmp(b)),
        (Operand::Number(a), Operand::Float(b)) => (*a as f64).partial_cmp(b),
        (Operand::Float(a), Operand::Number(b)) => a.partial_cmp(&(*b as f64)),
        (Operand::Float(a), Operand::Float(b)) => a.partial_cmp(b),
        (Operand::Bool(a), Operand::Bool(b)) => Some(a.cmp(b)),
        (Operand::Bool(a), Operand::Number(b)) => Some(i128::from(*a).cmp(b)),
        (Operand::Number(a), Operand::Bool(b)) => Some(a.cmp(&i128::from(*b))),
        (Operand::Text(a), Operand::Text(b)) => {
            return match operator {
                Operator::Contains => Some(b.is_empty() || a.windows(b.len()).any(|part| part == b)),
                Operator::StartsWith => Some(a.starts_with(b)),
                Operator::Equal => Some(a == b),
                Operator::NotEqual => Some(a != b),
                _ => None,
            };
        }
        (Operand::Null, Operand::Null) => Some(std::cmp::Ordering::Equal),
        (Operand::Null, _) | (_, Operand::Null) => {
            return match operator {
                Operator::Equal => Some(false),
                Operator::NotEqual => Some(true),
                _ => None,
            };
        }
        // An enumeration is compared by its name or by its number.
        (Operand::Other(Value::Enum(number, name)), other) => {
            return of_enum(operator, (*number, name.as_deref()), other, false);
        }
        (other, Operand::Other(Value::Enum(number, name))) => {
            return of_enum(operator, (*number, name.as_deref()), other, true);
        }
        _ => None,
    };
    let Some(order) = order else { return (operator == Operator::NotEqual).then_some(true) };
    by_order(operator, order)
}

fn by_order(operator: Operator, order: std::cmp::Ordering) -> Option<bool> {
    Some(match operator {
        Operator::Equal => order.is_eq(),
        Operator::NotEqual => order.is_ne(),
        Operator::Less => order.is_lt(),
        Operator::LessEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        Operator::GreaterEqual => order.is_ge(),
        _ => return None,
    })
}

/// An address with a name is that name beside a text, and a number otherwise.
fn named_beside<'v>(other: &Operand<'v>, it: Operand<'v>) -> Operand<'v> {
    match (it, other) {
        (Operand::Other(Value::Named(_, name)), Operand::Text(_)) => Operand::Text(name.as_bytes().to_vec()),
        (Operand::Other(Value::Named(address, _)), _) => Operand::Number(i128::from(*address)),
        (it, _) => it,
    }
}

fn of_enum(
    operator: Operator,
    (number, name): (i128, Option<&str>),
    other: &Operand<'_>,
    is_right: bool,
) -> Option<bool> {
    match other {
        Operand::Text(text) => {
            // With the names of its scopes or without them.
            let own = |name: &str| name.rsplit("::").next().unwrap_or_default().as_bytes().to_vec();
            let is_it = name.is_some_and(|name| name.as_bytes() == text || own(name) == *text);
            match operator {
                Operator::Equal => Some(is_it),
                Operator::NotEqual => Some(!is_it),
                _ => None,
            }
        }
        Operand::Number(of) => {
            let order = number.cmp(of);
            by_order(operator, if is_right { order.reverse() } else { order })
        }
        _ => None,
    }
}

fn operand<'v>(it: &Expression, values: &'v [(String, Value)]) -> Option<Operand<'v>> {
    match &it.node {
        Node::Number(number) => return Some(Operand::Number(*number)),
        Node::Float(number) => return Some(Operand::Float(*number)),
        Node::Text(text) => return Some(Operand::Text(text.clone())),
        Node::Null => return Some(Operand::Null),
        Node::Bool(value) => return Some(Operand::Bool(*value)),
        Node::Negative(inner) => {
            return match operand(inner, values)? {
                Operand::Number(number) => number.checked_neg().map(Operand::Number),
                Operand::Float(number) => Some(Operand::Float(-number)),
                _ => None,
            };
        }
        Node::Binary(operator, left, right) => {
            return calculate(*operator, operand(left, values)?, operand(right, values)?);
        }
        _ => {}
    }
    Some(match value_of(it, values)? {
        Value::Integer(number) => Operand::Number(*number),
        Value::Large(number) => {
            i128::try_from(*number).map_or(Operand::Float(*number as f64), Operand::Number)
        }
        Value::Bool(value) => Operand::Bool(*value),
        Value::Char(code) => Operand::Number(i128::from(*code)),
        Value::Float(number) => Operand::Float(*number),
        Value::Float32(number) => Operand::Float(f64::from(*number)),
        Value::Text { bytes, .. } => Operand::Text(bytes.clone()),
        Value::Null | Value::None => Operand::Null,
        Value::Pointer(address) | Value::Function(address) | Value::CallSite(address) => {
            Operand::Number(i128::from(*address))
        }
        Value::Duration(seconds, nanoseconds) => {
            Operand::Number(i128::from(*seconds) * 1_000_000_000 + i128::from(*nanoseconds))
        }
        // There is no value.
        Value::Unreadable | Value::Missing(_) | Value::Damaged | Value::Opaque => return None,
        other => Operand::Other(other),
    })
}

fn calculate<'v>(operator: Operator, left: Operand<'v>, right: Operand<'v>) -> Option<Operand<'v>> {
    let (Operand::Number(a), Operand::Number(b)) = (left, right) else { return None };
    let shift = u32::try_from(b).ok().filter(|bits| *bits < 64);
    Some(Operand::Number(match operator {
        Operator::Add => a.checked_add(b)?,
        Operator::Subtract => a.checked_sub(b)?,
        Operator::Multiply => a.checked_mul(b)?,
        Operator::Divide => a.checked_div(b)?,
        Operator::Rest => a.checked_rem(b)?,
        Operator::BitAnd => a & b,
        Operator::BitOr => a | b,
        Operator::BitXor => a ^ b,
        Operator::ShiftLeft => a.checked_shl(shift?)?,
        Operator::ShiftRight => a.checked_shr(shift?)?,
        _ => return None,
    }))
}

/// The recorded value of an expression: recorded as such, or a member of one that was.
fn value_of<'v>(it: &Expression, values: &'v [(String, Value)]) -> Option<&'v Value> {
    let name = if let Node::Result = it.node { "returned".to_owned() } else { plain_name(&it.text) };
    if let Some((_, value)) = values.iter().find(|(known, _)| plain_name(known) == name) {
        return Some(value);
    }
    let (object, member) = match &it.node {
        Node::Member(object, member) => (object, member),
        Node::Follow(inner) => return value_of(inner, values),
        Node::Index(object, index) => {
            let Value::Array(elements, _) = value_of(object, values)? else { return None };
            let Operand::Number(index) = operand(index, values)? else { return None };
            return elements.get(usize::try_from(index).ok()?);
        }
        _ => return None,
    };
    match value_of(object, values)? {
        Value::Struct(members) | Value::Case(_, members) => {
            members.iter().find(|(name, _)| name == member).map(|(_, value)| value)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_values::layout::Missing;

    fn values() -> Vec<(String, Value)> {
        let text = |text: &str| Value::Text {
            bytes: text.as_bytes().to_vec(),
            length: text.len() as u32,
            is_cut: false,
            is_unreadable: false,
        };
        [
            ("path", text("/api/users")),
            ("len", Value::Integer(4097)),
            ("req->method", text("POST")),
            ("mode", Value::Enum(2, Some("Mode::WRITE".to_owned()))),
            ("at", Value::Struct(vec![("x".to_owned(), Value::Float(1.5))])),
            ("p", Value::Null),
            ("q", Value::Pointer(0x10)),
            ("hook", Value::Named(0x4010, "on_close".to_owned())),
            ("gone", Value::Missing(Missing::OptimisedOut)),
            ("all", Value::Array(vec![Value::Integer(7), Value::Integer(8)], 2)),
            ("ok", Value::Bool(true)),
            ("returned", Value::Integer(-1)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    #[test]
    fn recorded_values_are_judged() {
        for (text, expected) in [
            ("len > 4096", true),
            ("len > 4097", false),
            ("len == 4097 and path starts with \"/api\"", true),
            ("path contains \"user\"", true),
            ("path == \"/api\"", false),
            ("req->method == \"POST\"", true),
            ("req.method != \"GET\"", true),
            ("mode == WRITE", true),
            ("mode == READ", false),
            ("mode >= 2 and 3 > mode", true),
            ("at.x < 2", true),
            ("at.x == 1.5", true),
            ("p == null and q != null", true),
            ("returned < 0", true),
            ("returned == -1", true),
            ("len % 2 == 1", true),
            ("all[1] == 8", true),
            ("all[2] == 8", false),
            ("hook == \"on_close\"", true),
            ("hook starts with \"on_\" and hook != null", true),
            ("\"on_open\" == hook", false),
            ("hook == 0x4010", true),
            ("ok", true),
            ("not ok", false),
            // No value: neither it nor its opposite is true, unless another part decides.
            ("gone == 1", false),
            ("gone != 1", false),
            ("unknown != 1", false),
            ("READ != mode", true),
            ("not (gone == 1)", false),
            ("unknown > 1", false),
            ("gone == 1 or len > 1", true),
            ("len / 0 == 1", false),
            ("path > 3", false),
        ] {
            let condition = RecordedCondition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(condition.holds(&values()), expected, "{text}");
        }
        for text in ["", "len >", "len + 1", "7", "path starts \"x\""] {
            assert!(RecordedCondition::parse(text).is_err(), "{text}");
        }
    }
}
