//! Functions of SQL that SQLite doesn't have.

use std::sync::Arc;

use everycall_export::parse_function;
use regex::Regex;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};

/// Adds `regexp(PATTERN, TEXT)`, which is `TEXT regexp PATTERN`, `percentile(VALUE, P)` and
/// `median(VALUE)`.
pub(crate) fn register(connection: &Connection) -> Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("regexp", 2, flags, regexp)?;
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

fn between(percent: f64, mut values: Vec<f64>) -> Option<f64> {
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
    fn percentiles_lie_between_values() {
        let of = |percent| between(percent, vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!([of(0.0), of(50.0), of(100.0), of(90.0)].map(Option::unwrap), [1.0, 2.5, 4.0, 3.7]);
        assert_eq!((between(99.0, vec![7.0]), between(50.0, vec![])), (Some(7.0), None));
    }
}
