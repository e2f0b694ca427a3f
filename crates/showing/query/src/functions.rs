//! Functions of SQL that SQLite doesn't have.

use std::sync::Arc;

use everycall_export::{parse_function, plain_name};
use regex::Regex;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::Value::{Integer, Null, Real, Text};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};
use serde_json::Value as Json;

/// Adds `regexp(PATTERN, TEXT)`, which is `TEXT regexp PATTERN`, `arg(ARGUMENTS, NAME)`,
/// `percentile(VALUE, P)` and `median(VALUE)`.
pub(crate) fn register(connection: &Connection) -> Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("regexp", 2, flags, regexp)?;
    connection.create_scalar_function("arg", 2, flags, arg)?;
    connection.create_aggregate_function("percentile", 2, flags, Percentile)?;
    connection.create_aggregate_function("median", 1, flags, Percentile)
}

fn regexp(context: &mut Context<'_>) -> Result<Option<bool>> {
    type Boxed = Box<dyn std::error::Error + Send + Sync>;
    let pattern: Arc<Regex> = context.get_or_create_aux(0, |pattern| -> Result<Regex, Boxed> {
        parse_function(pattern.as_str()?).map_err(|error| error.to_string().into())
    })?;
    Ok(match context.get_raw(1) {
        ValueRef::Text(text) => Some(pattern.is_match(&String::from_utf8_lossy(text))),
        _ => None,
    })
}

/// An argument of a call by its name, or a member of one, as users write it: `->` and `.` mean the
/// same. Null if the call has none of this name.
fn arg(context: &mut Context<'_>) -> Result<rusqlite::types::Value> {
    let (ValueRef::Text(arguments), ValueRef::Text(name)) = (context.get_raw(0), context.get_raw(1)) else {
        return Ok(rusqlite::types::Value::Null);
    };
    let arguments: Json = serde_json::from_slice(arguments).unwrap_or_default();
    Ok(named(&arguments, &plain_name(&String::from_utf8_lossy(name))).map_or(Null, as_sql))
}

/// The value with a name in an object, or in an object within it. The longest name counts:
/// `req->len` may have been recorded by itself.
fn named<'v>(value: &'v Json, name: &str) -> Option<&'v Json> {
    let members = value.as_object()?;
    let found = members.iter().filter_map(|(key, value)| {
        let key = plain_name(key);
        let rest = name.strip_prefix(key.as_str())?;
        let found = match rest.strip_prefix('.') {
            None if rest.is_empty() => value,
            None => return None,
            Some(rest) => named(value, rest)?,
        };
        Some((key.len(), found))
    });
    found.max_by_key(|(length, _)| *length).map(|(_, value)| value)
}

fn as_sql(value: &Json) -> rusqlite::types::Value {
    match value {
        Json::Null => Null,
        Json::Bool(value) => Integer(i64::from(*value)),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Integer(number),
            // SQLite has no larger integers.
            (None, Some(number)) => Text(number.to_string()),
            (None, None) => number.as_f64().map_or(Null, Real),
        },
        Json::String(text) => Text(text.clone()),
        Json::Array(_) | Json::Object(_) => Text(value.to_string()),
    }
}

/// The value below which so many percent of the values lie, between two values where it falls
/// between them: SQLite's own `percentile`, and DuckDB's `quantile_cont`.
struct Percentile;

struct Values {
    percent: f64,
    values: Vec<f64>,
}

impl Aggregate<Values, Option<f64>> for Percentile {
    fn init(&self, context: &mut Context<'_>) -> Result<Values> {
        let percent = if context.len() > 1 { context.get::<f64>(1)? } else { 50.0 };
        if !(0.0..=100.0).contains(&percent) {
            return Err(Error::UserFunctionError(
                "percentile takes a number from 0 to 100, such as 99.9".into(),
            ));
        }
        Ok(Values { percent, values: Vec::new() })
    }

    fn step(&self, context: &mut Context<'_>, all: &mut Values) -> Result<()> {
        let value = match context.get_raw(0) {
            ValueRef::Integer(value) => value as f64,
            ValueRef::Real(value) => value,
            _ => return Ok(()),
        };
        if all.values.len() == all.values.capacity() {
            let more = all.values.capacity().max(16);
            all.values.try_reserve(more).map_err(|error| Error::UserFunctionError(error.into()))?;
        }
        all.values.push(value);
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, all: Option<Values>) -> Result<Option<f64>> {
        Ok(all.and_then(|all| between(all.percent, all.values)))
    }
}

/// A percentile of values, in percent; `None` of none.
pub(crate) fn between(percent: f64, mut values: Vec<f64>) -> Option<f64> {
    let place = percent / 100.0 * (values.len().checked_sub(1)? as f64);
    let (below, part) = (place.floor() as usize, place.fract());
    let (_, low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    let high = above.iter().copied().min_by(f64::total_cmp).filter(|_| part > 0.0).unwrap_or(low);
    Some(low + (high - low) * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_names_that_users_write() {
        let arguments = serde_json::json!({
            "len": 42, "req->path": "/a", "req": {"path": "/b", "p": {"x": 1.5}}, "big": u64::MAX, "no": null,
        });
        let of = |name: &str| named(&arguments, &plain_name(name)).map(as_sql);
        assert_eq!(of("len"), Some(Integer(42)));
        assert_eq!(of("req.path"), Some(Text("/a".to_owned())));
        assert_eq!(of("req -> p . x"), Some(Real(1.5)));
        assert_eq!(of("req.p"), Some(Text("{\"x\":1.5}".to_owned())));
        assert_eq!(of("big"), Some(Text(u64::MAX.to_string())));
        assert_eq!((of("no"), of("length"), of("le"), of("req.q")), (Some(Null), None, None, None));
    }

    #[test]
    fn percentiles_lie_between_values() {
        let of = |percent| between(percent, vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!([of(0.0), of(50.0), of(100.0), of(90.0)].map(Option::unwrap), [1.0, 2.5, 4.0, 3.7]);
        assert_eq!((between(99.0, vec![7.0]), between(50.0, vec![])), (Some(7.0), None));
    }
}
