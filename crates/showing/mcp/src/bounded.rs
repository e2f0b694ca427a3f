//! JSON that is cut to a size, and says what is left out.

use serde_json::{Map, Value};

/// Longest text that stays whole where an answer is too large.
const TEXT_MAX: usize = 2000;

/// Cuts a value so that it has at most `most` bytes as text. Returns how many entries of which
/// lists were left out.
pub(crate) fn bounded(value: &mut Value, most: usize) -> Map<String, Value> {
    let mut left_out = Map::new();
    for _ in 0..200 {
        let size = value.to_string().len();
        if size <= most {
            break;
        }
        let Some((path, list)) = largest(value, String::new()) else {
            shorten(value, most.min(TEXT_MAX));
            break;
        };
        let keep = list.len() / 2;
        let more = list.len() - keep;
        list.truncate(keep);
        let before = left_out.get(&path).and_then(Value::as_u64).unwrap_or(0);
        left_out.insert(path, (before + more as u64).into());
    }
    left_out
}

/// The list with the most bytes, and its path.
fn largest(value: &mut Value, path: String) -> Option<(String, &mut Vec<Value>)> {
    let below =
        |path: &str, key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Array(list) if !list.is_empty() => {
            // A list with one large entry is cut within that.
            if list.len() == 1 {
                let inner = list.first().is_some_and(has_list);
                if inner {
                    return largest(list.first_mut()?, below(&path, "0"));
                }
            }
            Some((path, list))
        }
        Value::Object(object) => {
            let sizes = object.iter().filter(|(_, value)| has_list(value));
            let key = sizes.max_by_key(|(_, value)| value.to_string().len()).map(|(key, _)| key.clone())?;
            let inner = below(&path, &key);
            largest(object.get_mut(&key)?, inner)
        }
        _ => None,
    }
}

fn has_list(value: &Value) -> bool {
    match value {
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => object.values().any(has_list),
        _ => false,
    }
}

/// Cuts all texts.
fn shorten(value: &mut Value, most: usize) {
    match value {
        Value::String(text) => {
            if let Some((at, _)) = text.char_indices().nth(most) {
                text.truncate(at);
                text.push('…');
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| shorten(value, most / 10)),
        Value::Object(object) => object.values_mut().for_each(|value| shorten(value, most / 10)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_cut_until_it_fits() {
        let rows: Vec<Value> = (0..1000).map(|number| json!({ "name": format!("f{number}") })).collect();
        let mut value = json!({ "file": "a", "few": [1, 2], "of": { "rows": rows } });
        let left_out = bounded(&mut value, 2000);
        assert!(value.to_string().len() <= 2000);
        let kept = value["of"]["rows"].as_array().unwrap().len();
        assert_eq!((left_out["of.rows"].as_u64(), &value["few"]), (Some(1000 - kept as u64), &json!([1, 2])));
        let mut text = json!({ "text": "é".repeat(10_000) });
        assert!(bounded(&mut text, 1000).is_empty() && text.to_string().len() <= 1000);
        let mut whole = json!([1, 2, 3]);
        assert!(bounded(&mut whole, 100).is_empty());
        assert_eq!(whole, json!([1, 2, 3]));
    }
}
