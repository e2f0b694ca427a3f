//! callgrind's profile format, for KCachegrind, QCachegrind and callgrind_annotate: own time of
//! each function, and calls and time of each pair of caller and callee.
//!
//! <https://valgrind.org/docs/manual/cl-format.html>. A call of a function that is open already
//! counts as a call, but its time is that of the outermost one alone, so that inclusive times of
//! recursive functions are true.

use std::io;

use crate::driver::Export;
use crate::frames::{Frame, in_a_line};
use crate::json::put_number;
use crate::names::Functions;
use crate::pairs::Pairs;
use crate::portions::Portions;
use crate::source::Source;

/// Writes the functions, each with those that it called.
pub(crate) fn write<S: Source>(
    pairs: &Pairs,
    export: &Export<'_, S>,
    portions: &mut Portions<'_>,
) -> io::Result<()> {
    let command = export.source.processes().first().map_or("", |process| &process.name);
    let lost = export.summary.lost_events;
    let bytes = &mut portions.bytes;
    bytes.extend_from_slice(b"# callgrind format\nversion: 1\ncreator: everycall\ncmd: ");
    bytes.extend_from_slice(in_a_line(command, None).as_bytes());
    bytes.extend_from_slice(b"\ndesc: Trigger: Program termination\n");
    if lost > 0 {
        bytes.extend_from_slice(format!("desc: {lost} events are missing\n").as_bytes());
    }
    bytes.extend_from_slice(b"positions: line\nevents: Nanoseconds\nsummary: ");
    put_number(bytes, pairs.total_ns);
    bytes.push(b'\n');
    let functions = pairs.functions();
    for costs in functions {
        let bytes = &mut portions.bytes;
        bytes.push(b'\n');
        let line = put_place(bytes, costs.frame, &export.functions, ["ob", "fl", "fn"]);
        put_line(bytes, line, costs.own_ns);
        for pair in &costs.callees {
            let callee = functions[pair.callee].frame;
            let called = put_place(bytes, callee, &export.functions, ["cob", "cfi", "cfn"]);
            bytes.extend_from_slice(b"calls=");
            put_line(bytes, pair.calls, called);
            put_line(bytes, line, pair.inclusive_ns);
        }
        portions.spill()?;
    }
    Ok(())
}

/// Module, file and name of a function, under these keys; its line.
fn put_place(bytes: &mut Vec<u8>, frame: Frame, functions: &Functions<'_>, keys: [&str; 3]) -> u64 {
    let function = match frame {
        Frame::Function(id) => Some(functions.get(id)),
        _ => None,
    };
    let module = function.map_or("", |function| &function.module);
    let file = function.and_then(|function| function.file.as_deref()).unwrap_or_default();
    for (key, text) in keys.into_iter().zip([module, file, frame.name(functions)]) {
        bytes.extend_from_slice(key.as_bytes());
        bytes.push(b'=');
        // Without any text, readers take the one before.
        let text = if text.is_empty() { "???" } else { text };
        bytes.extend_from_slice(in_a_line(text, None).as_bytes());
        bytes.push(b'\n');
    }
    function.and_then(|function| function.line).unwrap_or(0).into()
}

/// Two numbers.
fn put_line(bytes: &mut Vec<u8>, first: u64, second: u64) {
    put_number(bytes, first);
    bytes.push(b' ');
    put_number(bytes, second);
    bytes.push(b'\n');
}
