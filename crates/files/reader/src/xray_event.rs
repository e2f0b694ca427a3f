//! XRay's custom and typed events as text. Their data is the program's and may be anything.

use everycall_format::event::{Word, kind};
use everycall_format::xray_event::{DATA_MAX, Data};

/// Bytes of data that are shown.
const SHOWN: usize = 48;

/// The text of the event whose record begins at `slot` of `words`, with the beginning of its data:
/// `custom event "data"`, `typed event 7 "data"`, and the number of bytes where there are more.
/// Data that is no text is shown in hexadecimal numbers. `None` where there is no such record.
#[must_use]
pub fn xray_event_text(words: &[u64], slot: u32) -> Option<String> {
    let mut record = words.get(slot as usize..)?.iter().copied().map(Word::decode);
    let Some(Word::Record { kind: of, count, .. }) = record.next() else { return None };
    let mut payloads = record.take(count.into()).map_while(|word| match word {
        Word::Payload { payload, kind, .. } if kind == of => Some(payload),
        _ => None,
    });
    let mut text = match of {
        kind::XRAY_CUSTOM_EVENT => "custom event".to_owned(),
        kind::XRAY_TYPED_EVENT => format!("typed event {}", payloads.next()?),
        _ => return None,
    };
    let length = payloads.next()?;
    let data = Data::from_payloads(length, payloads.take(DATA_MAX / 4));
    let shown = data.bytes().get(..SHOWN).unwrap_or(data.bytes());
    // A character that is truncated at the end doesn't make the data binary.
    let readable = match std::str::from_utf8(shown) {
        Ok(readable) => Some(readable),
        Err(error) if error.error_len().is_none() && shown.len() < length as usize => {
            std::str::from_utf8(shown.get(..error.valid_up_to()).unwrap_or_default()).ok()
        }
        Err(_) => None,
    };
    // C strings are often passed with their end.
    let readable = readable.map(|readable| readable.strip_suffix('\0').unwrap_or(readable));
    match readable.filter(|readable| !readable.contains(char::is_control)) {
        Some("") => {}
        Some(readable) => text = format!("{text} \"{readable}\""),
        None => shown.iter().for_each(|byte| text += &format!(" {byte:02x}")),
    }
    if length as usize > shown.len() {
        text += &format!(" ({length} bytes)");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::xray_event::record;

    fn text(of_type: Option<u32>, length: u32, data: &[u8]) -> String {
        xray_event_text(record(1, of_type, length, data).words(), 0).unwrap()
    }

    #[test]
    fn data_is_shown_up_to_its_bound() {
        assert_eq!(text(None, 5, b"hello"), "custom event \"hello\"");
        assert_eq!(text(Some(7), 6, b"hello\0"), "typed event 7 \"hello\"");
        assert_eq!(text(None, 0, b""), "custom event");
        assert_eq!(text(None, 3, &[1, 0, 255]), "custom event 01 00 ff");
        assert_eq!(text(None, 3, b"a\nb"), "custom event 61 0a 62");
        let long = [b'x'; 100];
        assert_eq!(text(Some(0), 100, &long), format!("typed event 0 \"{}\" (100 bytes)", "x".repeat(48)));
        let cut = "é".repeat(40);
        assert_eq!(text(None, 80, cut.as_bytes()), format!("custom event \"{}\" (80 bytes)", "é".repeat(24)));
        let odd = format!("x{cut}");
        assert_eq!(
            text(None, 81, odd.as_bytes()),
            format!("custom event \"x{}\" (81 bytes)", "é".repeat(23))
        );
    }

    #[test]
    fn other_records_and_damaged_ones_have_no_text() {
        assert_eq!(xray_event_text(&[], 0), None);
        assert_eq!(xray_event_text(&[0x1234], 0), None);
        let label = everycall_format::label::record(1, 1, None, b"x");
        assert_eq!(xray_event_text(label.words(), 0), None);
        let event = record(1, Some(7), 6, b"hello\0");
        assert_eq!(xray_event_text(event.words(), 1), None, "within a record");
        assert_eq!(xray_event_text(&event.words()[..2], 0), None, "cut before its length");
        assert_eq!(xray_event_text(&event.words()[..3], 0).as_deref(), Some("typed event 7 (6 bytes)"));
    }
}
