//! Arguments of a call: how long calls with the same value took.

use everycall_analysis::{Grouping, Key, Order, Profile, TraceView, ValueOf};
use everycall_export::{Filter, Source as _, value_text, without_parameters};
use everycall_timeline::ValuesNumber;

use crate::answer::ValueRow;

/// Most arguments that are looked at.
const VALUES_MAX: usize = 4;

/// The rows of the call's own values, argument by argument.
pub(crate) fn values(
    view: &TraceView<'_>,
    function: &str,
    arguments: Option<ValuesNumber>,
    tails: bool,
) -> Vec<ValueRow> {
    let Some(number) = arguments else { return Vec::new() };
    let named = view.values(number).into_iter().take(VALUES_MAX);
    named
        .filter_map(|(name, value)| {
            let value = value_text::text(&value);
            let of = ValueOf { function: without_parameters(function).to_owned(), value: name.clone() };
            let mut profile = Profile::by(Grouping::Value(of));
            if tails {
                profile = profile.with_tails();
            }
            profile.add_trace(view, &Filter::default());
            let rows = profile.rows(Order::Calls);
            let is_it = |key: &Key| matches!(key, Key::Value(text) if *text == value);
            let row = rows.iter().find(|row| is_it(row.key))?;
            Some(ValueRow {
                calls: row.sums.calls,
                min_ns: row.sums.times.min(),
                p50_ns: row.sums.times.percentile(5_000),
                values: rows.len() as u64,
                is_largest: is_largest(&value, rows.iter().map(|row| row.key)),
                name,
                value,
            })
        })
        .collect()
}

/// Whether a value is a number, and larger than all other ones, of which there are some.
fn is_largest<'k>(value: &str, keys: impl Iterator<Item = &'k Key>) -> bool {
    let Ok(number) = value.parse::<i128>() else { return false };
    let mut others = 0;
    for key in keys {
        let Key::Value(text) = key else { return false };
        match text.parse::<i128>() {
            Ok(other) if other > number => return false,
            Ok(other) => others += u32::from(other < number),
            Err(_) => return false,
        }
    }
    others > 0
}
