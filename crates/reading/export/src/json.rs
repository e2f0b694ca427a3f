//! JSON fragments.

use std::fmt::Write;

/// Appends `text` as a JSON string, in a form that also survives inside an HTML script and a JavaScript
/// source: `</`, `<!` and the line separators U+2028 and U+2029 are escaped, as are all control characters.
pub(crate) fn put_string(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| {
        matches!(c, '"' | '\\' | '<' | '\u{2028}' | '\u{2029}' | '\u{7f}'..='\u{9f}') || (c as u32) < 0x20
    }) {
        let (before, from) = rest.split_at(at);
        bytes.extend_from_slice(before.as_bytes());
        let mut characters = from.chars();
        match characters.next() {
            Some('"') => bytes.extend_from_slice(b"\\\""),
            Some('\\') => bytes.extend_from_slice(b"\\\\"),
            Some('\n') => bytes.extend_from_slice(b"\\n"),
            Some('\t') => bytes.extend_from_slice(b"\\t"),
            Some('<') if !characters.as_str().starts_with(['/', '!']) => bytes.push(b'<'),
            Some(other) => put_escape(bytes, other),
            None => {}
        }
        rest = characters.as_str();
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes.push(b'"');
}

fn put_escape(bytes: &mut Vec<u8>, character: char) {
    let mut text = String::with_capacity(6);
    // All such characters are below U+10000. Writing to a string can't fail.
    let _ = write!(text, "\\u{:04x}", character as u32);
    bytes.extend_from_slice(text.as_bytes());
}

#[inline]
pub(crate) fn put_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends nanoseconds as microseconds with three decimals: exact.
#[inline]
pub(crate) fn put_microseconds(bytes: &mut Vec<u8>, ns: u64) {
    put_number(bytes, ns / 1_000);
    let part = (ns % 1_000) as u16;
    let digit = |value: u16| b'0' + (value % 10) as u8;
    bytes.extend_from_slice(&[b'.', digit(part / 100), digit(part / 10), digit(part)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back_from_a_json_parser() {
        let all: String = (0..0x2100).filter_map(char::from_u32).collect();
        for text in
            ["", "a", "</script>", "<!--", "<", "a<b", "<<//", "\u{2028}\"\\\n\t\r\0\u{1b}\u{9b}😀", &all]
        {
            let mut bytes = Vec::new();
            put_string(&mut bytes, text);
            assert_eq!(serde_json::from_slice::<String>(&bytes).unwrap(), text);
            let json = String::from_utf8(bytes).unwrap();
            assert!(
                !json.contains("</")
                    && !json.contains("<!")
                    && !json.contains(['\u{2028}', '\u{1b}', '\u{9b}'])
            );
        }
    }

    #[test]
    fn microseconds_lose_no_digit() {
        for (ns, text) in
            [(0, "0.000"), (7, "0.007"), (1_234_567, "1234.567"), (u64::MAX, "18446744073709551.615")]
        {
            let mut bytes = Vec::new();
            put_microseconds(&mut bytes, ns);
            assert_eq!(String::from_utf8(bytes).unwrap(), text);
        }
    }
}
