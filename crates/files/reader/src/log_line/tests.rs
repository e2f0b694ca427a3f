use super::*;
use everycall_format::event::{payload_word, record_word};

fn line(arguments: &[LogArgument]) -> LogLine {
    LogLine { format: LogFormat::Address(0x4000), arguments: arguments.to_vec(), is_output: false }
}

fn text(format: &str, arguments: &[LogArgument]) -> String {
    line(arguments).text(Some(format.as_bytes()))
}

fn string(text: &str) -> LogArgument {
    LogArgument::Text(LogText { bytes: text.into(), ..LogText::default() })
}

use LogArgument::{Double, Int32, Int64, Pointer};

/// The text is that of glibc's `printf`.
#[test]
fn conversions_are_those_of_printf() {
    let minus = Int32(-5_i32 as u32);
    for (format, argument, wanted) in [
        ("<%d>", minus.clone(), "<-5>"),
        ("<%5d>", minus.clone(), "<   -5>"),
        ("<%-5d>", minus.clone(), "<-5   >"),
        ("<%05d>", minus.clone(), "<-0005>"),
        ("<%.3d>", minus.clone(), "<-005>"),
        ("<%6.3d>", minus.clone(), "<  -005>"),
        ("<%u>", minus.clone(), "<4294967291>"),
        ("<%hhd>", Int32(0x1ff), "<-1>"),
        ("<%hu>", Int32(0x1_ffff), "<65535>"),
        ("<%+i>", Int32(7), "<+7>"),
        ("<% d>", Int32(7), "< 7>"),
        ("<%.0d>", Int32(0), "<>"),
        ("<%ld>", Int64(u64::MAX), "<-1>"),
        ("<%lu>", Int64(u64::MAX), "<18446744073709551615>"),
        ("<%zu>", Int64(9), "<9>"),
        ("<%#x>", Int32(255), "<0xff>"),
        ("<%#010x>", Int32(255), "<0x000000ff>"),
        ("<%#x>", Int32(0), "<0>"),
        ("<%X>", Int32(255), "<FF>"),
        ("<%#o>", Int32(8), "<010>"),
        ("<%o>", Int32(8), "<10>"),
        ("<%c>", Int32(b'x'.into()), "<x>"),
        ("<%3c>", Int32(b'x'.into()), "<  x>"),
        ("<%p>", Pointer(0x1234), "<0x1234>"),
        ("<%p>", Pointer(0), "<(nil)>"),
        ("<%s>", string("abc"), "<abc>"),
        ("<%5s>", string("abc"), "<  abc>"),
        ("<%-5s>", string("abc"), "<abc  >"),
        ("<%.2s>", string("abc"), "<ab>"),
        ("<%f>", Double(1.5), "<1.500000>"),
        ("<%.0f>", Double(2.5), "<2>"),
        ("<%#.0f>", Double(2.5), "<2.>"),
        ("<%8.2f>", Double(-3.74159), "<   -3.74>"),
        ("<%08.2f>", Double(-3.74159), "<-0003.74>"),
        ("<%e>", Double(12345.678), "<1.234568e+04>"),
        ("<%.2E>", Double(0.00012), "<1.20E-04>"),
        ("<%g>", Double(0.0001), "<0.0001>"),
        ("<%g>", Double(0.00001), "<1e-05>"),
        ("<%g>", Double(100000.0), "<100000>"),
        ("<%g>", Double(1e6), "<1e+06>"),
        ("<%g>", Double(0.5), "<0.5>"),
        ("<%.3g>", Double(1234.0), "<1.23e+03>"),
        ("<%g>", Double(0.0), "<0>"),
        ("<%g>", Double(f64::INFINITY), "<inf>"),
        ("<%F>", Double(f64::NEG_INFINITY), "<-INF>"),
        ("<%5f>", Double(f64::NAN), "<  nan>"),
        ("<%a>", Double(1.0), "<0x1p+0>"),
        ("<%a>", Double(-0.5), "<-0x1p-1>"),
        ("<%a>", Double(3.75), "<0x1.ep+1>"),
    ] {
        assert_eq!(text(format, &[argument]), wanted, "{format}");
    }
    assert_eq!(text("100%% %d", &[Int32(1)]), "100% 1");
    assert_eq!(text("<%*d|%-*d>", &[Int32(4), Int32(1), Int32(3), Int32(2)]), "<   1|2  >");
    assert_eq!(text("<%*d>", &[Int32(-4_i32 as u32), Int32(1)]), "<1   >");
    assert_eq!(text("<%.*s>", &[Int32(2), string("abc")]), "<ab>");
    assert_eq!(text("a line\n", &[]), "a line");
}

#[test]
fn what_does_not_fit_is_shown_as_it_is() {
    assert_eq!(text("%d and %d", &[Int32(1)]), "1 and %d");
    assert_eq!(text("%d", &[Int32(1), Int32(2), string("x")]), "1 (more arguments: 2 \"x\")");
    assert_eq!(text("<%s> <%f>", &[Int32(1), Int64(2)]), "<1> <2>");
    assert_eq!(text("<%d>", &[string("x")]), "<\"x\">");
    assert_eq!(text("<%n>", &[Pointer(1)]), "<%n>");
    assert_eq!(text("<%m>", &[]), "<%m>");
    assert_eq!(text("%2$d %1$d", &[Int32(1), Int32(2)]), "%2$d %1$d (more arguments: 1 2)");
    assert_eq!(text("50% of", &[]), "50% of");
    assert_eq!(text("%", &[Int32(1)]), "% (more arguments: 1)");
    assert_eq!(text("%\u{e9}", &[]), "%\u{e9}");
    assert_eq!(line(&[Int32(1), string("x")]).text(None), "(format at 0x4000 is not available) 1 \"x\"");
    let cut = LogText { bytes: b"abc".to_vec(), is_cut: true, is_null: false };
    assert_eq!(text("<%s>", &[LogArgument::Text(cut)]), "<abc...>");
    assert_eq!(
        text("<%s>", &[LogArgument::Text(LogText { is_null: true, ..LogText::default() })]),
        "<(null)>"
    );
}

#[test]
fn sizes_are_bounded() {
    let wide = "%99999999999999999999d".repeat(10_000);
    let shown = text(&wide, &vec![Int32(1); 10]);
    assert!(shown.len() < 300_000, "{}", shown.len());
    let shown = text(&"%.999999999f".repeat(10), &vec![Double(f64::MAX); 10]);
    assert!(shown.len() <= LINE_MAX + 3, "{}", shown.len());
}

fn words(payloads: &[u32]) -> Vec<u64> {
    let first = record_word(1, kind::LOG, payloads.len() as u8, 0);
    let rest = payloads.iter().zip(1..).map(|(payload, index)| payload_word(*payload, kind::LOG, index));
    std::iter::once(first).chain(rest).collect()
}

#[test]
fn records_are_read_as_documented() {
    use everycall_format::log_line::argument::{DOUBLE, INT32, INT64, POINTER, TEXT};
    let types = INT32 | INT64 << 3 | DOUBLE << 6 | POINTER << 9 | TEXT << 12 | TEXT << 15;
    let half = 0.5_f64.to_bits();
    let payloads = [
        types,
        0x2000,
        0x1,
        7,
        8,
        1,
        half as u32,
        (half >> 32) as u32,
        16,
        0,
        5 | TEXT_CUT,
        0x6463_6261,
        0x65,
        TEXT_NULL,
    ];
    let words = words(&payloads);
    assert_eq!(format_address(&words, 0), Some(0x1_0000_2000));
    let read: Vec<u32> = log_payloads(&words, 0).collect();
    assert_eq!(read, payloads);
    let line = LogLine::from_payloads(&read);
    let cut = LogText { bytes: b"abcde".to_vec(), is_cut: true, is_null: false };
    let null = LogText { is_null: true, ..LogText::default() };
    assert_eq!(
        line.arguments,
        [
            Int32(7),
            Int64(0x1_0000_0008),
            Double(0.5),
            Pointer(16),
            LogArgument::Text(cut),
            LogArgument::Text(null)
        ]
    );
    // Any beginning of it is a line with fewer arguments.
    for length in 0..payloads.len() {
        let part = LogLine::from_payloads(&payloads[..length]);
        assert!(part.arguments.len() <= line.arguments.len());
        let _ = part.text(Some(b"%d %ld %g %p %s %s"));
    }
    let copied = LogLine::from_payloads(&[COPIED_FORMAT | INT32, 5, u32::from_le_bytes(*b"n=%d"), 10, 3]);
    assert_eq!(copied.text(None), "n=3");
}

#[test]
fn hostile_log_records_are_decoded_without_panic() {
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as u32
    };
    for _ in 0..20_000 {
        let payloads: Vec<u32> = (0..next() % 20).map(|_| next() << (next() % 32)).collect();
        let format: Vec<u8> =
            (0..next() % 40).map(|_| b"%*.0123456789lhzsdcpnfgeaxmX$ \xff"[next() as usize % 30]).collect();
        assert!(LogLine::from_payloads(&payloads).text(Some(&format)).len() <= LINE_MAX + 3);
    }
}

#[test]
fn output_is_shown_as_it_was_written() {
    let text =
        |bytes: &[u8]| LogArgument::Text(LogText { bytes: bytes.to_vec(), is_cut: false, is_null: false });
    let head = [LogArgument::Int32(1), LogArgument::Int64(7), LogArgument::Int64(3)];
    let arguments = [&head[..], &[text(b"100 %d caf\xc3"), text(b"\xa9")]].concat();
    let line = LogLine { format: LogFormat::Address(0), arguments, is_output: true };
    assert_eq!(line.text(Some(b"%d")), "100 %d caf\u{e9}... (3 more bytes)");
    // Without what should be there.
    for count in 0..=3 {
        let line =
            LogLine { format: LogFormat::Address(0), arguments: head[..count].to_vec(), is_output: true };
        assert_eq!(line.text(None), if count == 3 { "... (3 more bytes)" } else { "" });
    }
}
