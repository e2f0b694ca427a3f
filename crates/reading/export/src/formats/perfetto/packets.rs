//! Parts of packets.

use crate::formats::protobuf::Message;

use super::fields::packet;

/// The sequence for everything outside of threads.
pub(super) const SEQUENCE_PROCESS: u64 = 1;

/// Begins a message of less than 128 bytes. Returns the position of its content.
#[inline]
pub(super) fn open_small(bytes: &mut Vec<u8>, field: u32) -> usize {
    bytes.varint(u64::from(field) << 3 | 2);
    bytes.push(0);
    bytes.len()
}

#[inline]
pub(super) fn close_small(bytes: &mut [u8], start: usize) {
    let length = bytes.len() - start;
    debug_assert!(length < 0x80);
    bytes[start - 1] = length as u8;
}

/// Defines the number of a text.
pub(super) fn put_entry(interned: &mut Vec<u8>, field: u32, number: u64, text: &str) {
    interned.message(field, |entry| {
        entry.number(1, number);
        entry.text(2, text);
    });
}

pub(super) fn put_packet(bytes: &mut Vec<u8>, build: impl FnOnce(&mut Vec<u8>)) {
    bytes.message(packet::PACKET, build);
}
