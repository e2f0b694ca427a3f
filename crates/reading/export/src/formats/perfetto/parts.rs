//! Nested messages that several kinds of packets have in common.

use everycall_values::Value;
use everycall_values::text::text;

use crate::formats::protobuf::Message;
use crate::labels::Labels;
use crate::source::{Process, Source};
use crate::text as texts;
use crate::values;
use everycall_calls::CallValues;

use super::fields::{annotation, event, packet};
use super::packets::{SEQUENCE_PROCESS, put_packet};

/// The process tree, if there is more than one process.
pub(super) fn put_process_tree(bytes: &mut Vec<u8>, processes: &[Process]) {
    if processes.len() < 2 {
        return;
    }
    put_packet(bytes, |packet| {
        packet.number(packet::SEQUENCE, SEQUENCE_PROCESS);
        packet.message(packet::PROCESS_TREE, |tree| {
            for process in processes {
                tree.message(1, |entry| {
                    entry.number(1, process.pid.into());
                    entry.number(2, process.parent_pid.into());
                    process.command.iter().for_each(|word| entry.text(3, word));
                });
            }
        });
    });
}

pub(super) fn put_process(bytes: &mut Vec<u8>, pid: u32, name: &str, at_ns: u64) {
    put_packet(bytes, |packet| {
        packet.number(packet::TIMESTAMP, at_ns);
        packet.number(packet::SEQUENCE, SEQUENCE_PROCESS);
        packet.message(packet::TRACK, |track| {
            track.number(1, pid.into());
            track.message(3, |process| {
                process.number(1, pid.into());
                process.text(6, name);
            });
        });
    });
}

pub(super) fn put_clock(snapshot: &mut Vec<u8>, clock: u64, ns: u64, counts_on: bool) {
    snapshot.message(1, |entry| {
        entry.number(1, clock);
        entry.number(2, ns);
        if counts_on {
            entry.number(3, 1);
        }
    });
}

pub(super) fn put_number(event: &mut Vec<u8>, name: &str, value: u64) {
    event.message(event::ANNOTATION, |annotation| {
        annotation.text(annotation::NAME, name);
        annotation.number(annotation::UNSIGNED, value);
    });
}

pub(super) fn put_remarks<'t>(event: &mut Vec<u8>, remarks: impl Iterator<Item = &'t str>) {
    let remarks: Vec<_> = remarks.collect();
    if !remarks.is_empty() {
        put_text(event, "remark", &remarks.join(", "));
    }
}

/// The value of an annotation; an empty text if there is none.
pub(super) fn put_value(annotation: &mut Vec<u8>, value: Option<u64>) {
    match value {
        // Trace processors store signed numbers.
        Some(value) if i64::try_from(value).is_err() => {
            annotation.text(annotation::STRING, &value.to_string())
        }
        Some(value) => annotation.number(annotation::UNSIGNED, value),
        None => annotation.text(annotation::STRING, ""),
    }
}

/// Arguments and result of a call.
pub(super) fn put_call_values(event: &mut Vec<u8>, values: CallValues, source: &impl Source) {
    if let Some(arguments) = values.arguments {
        put_captured(event, event::ANNOTATION, "arguments", &Value::Struct(source.values(arguments)));
    }
    if let Some(result) = values.result {
        put_captured(event, event::ANNOTATION, "result", &values::result_value(source, result));
    }
}

/// An annotation, in the field `field` of what is around it, with a value of the program.
fn put_captured(bytes: &mut Vec<u8>, field: u32, name: &str, value: &Value) {
    bytes.message(field, |annotation| {
        if !name.is_empty() {
            annotation.text(annotation::NAME, name);
        }
        match value {
            Value::Integer(number) if i64::try_from(*number).is_ok() => {
                annotation.number(annotation::SIGNED, *number as u64);
            }
            Value::Bool(value) => annotation.number(annotation::SIGNED, u64::from(*value)),
            Value::Text { bytes, is_cut, .. } => {
                let more = if *is_cut { "..." } else { "" };
                annotation.text(annotation::STRING, &(String::from_utf8_lossy(bytes).into_owned() + more));
            }
            Value::Struct(members) if !members.is_empty() => {
                for (name, member) in members {
                    put_captured(annotation, annotation::DICTIONARY, name, member);
                }
            }
            other => annotation.text(annotation::STRING, &text(other)),
        }
    });
}

pub(super) fn put_labels(event: &mut Vec<u8>, labels: &Labels, source: &impl Source) {
    event.message(event::ANNOTATION, |annotation| {
        annotation.text(annotation::NAME, "label");
        for (name, values) in &labels.named {
            annotation.message(annotation::DICTIONARY, |entry| {
                entry.text(annotation::NAME, texts::mark_name(source, *name));
                match values[..] {
                    [value] => put_value(entry, value),
                    _ => values.iter().for_each(|value| {
                        entry.message(annotation::ARRAY, |item| put_value(item, *value));
                    }),
                }
            });
        }
    });
    if labels.more > 0 {
        put_number(event, "more_labels", labels.more);
    }
}

pub(super) fn put_text(event: &mut Vec<u8>, name: &str, value: &str) {
    event.message(event::ANNOTATION, |annotation| {
        annotation.text(annotation::NAME, name);
        annotation.text(annotation::STRING, value);
    });
}
