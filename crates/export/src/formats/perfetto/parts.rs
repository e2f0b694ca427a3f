//! Nested messages that several kinds of packets have in common.

use crate::formats::protobuf::Message;
use crate::labels::Labels;
use crate::source::{Process, Source};
use crate::text;

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

pub(super) fn put_labels(event: &mut Vec<u8>, labels: &Labels, source: &impl Source) {
    event.message(event::ANNOTATION, |annotation| {
        annotation.text(annotation::NAME, "label");
        for (name, values) in &labels.named {
            annotation.message(annotation::DICTIONARY, |entry| {
                entry.text(annotation::NAME, text::mark_name(source, *name));
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
