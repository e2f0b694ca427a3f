//! Values of calls in traces: a layout as JSON, a zero byte, and a capture. Whatever they are, text
//! and JSON come out.
#![no_main]

use everycall_values::layout::Layout;
use everycall_values::{decode, text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let Some(layout) = Layout::of_bytes(&bytes[..end]) else { return };
    let capture = bytes.get(end + 1..).unwrap_or_default();
    assert_eq!(Layout::of_bytes(&layout.to_bytes()).as_ref(), Some(&layout));
    for length in [capture.len(), capture.len() / 2] {
        let values = decode(&layout, &capture[..length]);
        assert_eq!(values.len(), layout.items.len());
        let _ = text::arguments(&values);
        let json = text::json(&values);
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
    }
});
