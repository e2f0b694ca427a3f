//! Pages without a server, as their own code reads them, beside `report`.

use std::collections::BTreeMap;
use std::io::Read as _;

use everycall_answers::page::Page;
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::common::Workplace;

/// The bytes of base64 text.
fn from_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{byte} is no digit"),
    };
    let digits: Vec<u8> = text.trim_end_matches('=').bytes().map(digit).collect();
    let bytes = |group: &[u8]| {
        let number = group.iter().fold(0_u32, |sum, digit| sum << 6 | u32::from(*digit));
        let number = number << (6 * (4 - group.len()));
        number.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(bytes).collect()
}

/// The rows of a table by function, without what a page doesn't have.
fn rows(table: &Value) -> BTreeMap<String, BTreeMap<String, Value>> {
    let left_out = ["states", "running", "runnable", "blocked", "off_cpu", "switches", "symbols"];
    let rows = table["rows"].as_array().unwrap().iter().map(|row| {
        let row = row.as_object().unwrap();
        let is_in = |key: &&String| *key != "function" && !left_out.iter().any(|word| key.contains(word));
        let kept: BTreeMap<String, Value> = row
            .iter()
            .filter(|(key, _)| is_in(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let key = format!("{} {} {} {}", row["name"], row["module"], row["file"], row["line"]);
        (key, kept)
    });
    rows.collect()
}

/// The numbers of a page of a trace are those of `report`, to the nanosecond.
pub fn has_the_numbers_of_report(here: &Workplace, file: &str, options: &str) {
    here.succeed(&format!("view --html page.html {options} {file}"));
    let page = String::from_utf8(here.read("page.html")).unwrap();
    let (_, data) = page.split_once(" id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&from_base64(data)[..]).read_to_end(&mut bytes).unwrap();
    let page = Page::read(bytes).unwrap();
    let table: Value = serde_json::from_str(&page.answer("report", "").unwrap().unwrap()).unwrap();
    let report = here.succeed(&format!("report -f json {options} {file}")).stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    let (page, report) = (rows(&table), rows(&report));
    assert!(!report.is_empty(), "{options}");
    assert_eq!(page, report, "{options}");
}
