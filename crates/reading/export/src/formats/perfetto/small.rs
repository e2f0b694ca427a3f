//! Packets of calls, which nearly all are: about a dozen bytes each.
//!
//! They are built as one number, which is stored at once: a vector checks its capacity and stores
//! its length at each byte, which takes longer than all else.

use super::fields::{event, packet};
use crate::formats::protobuf::Message;

/// Bytes of a packet that are stored at once.
const MOST: u32 = 16;
/// Kinds of fields.
const LENGTH: u32 = 2;
const NUMBER: u32 = 0;

/// The byte before a field's content.
const fn tag(field: u32, kind: u32) -> u8 {
    assert!(field < 16, "takes two bytes");
    (field << 3 | kind) as u8
}

/// Some bytes, the first one lowest.
#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    bytes: u128,
    length: u32,
}

impl Bytes {
    fn of(slice: &[u8]) -> Option<Bytes> {
        let mut bytes = [0; MOST as usize];
        bytes.get_mut(..slice.len())?.copy_from_slice(slice);
        Some(Bytes { bytes: u128::from_le_bytes(bytes), length: slice.len() as u32 })
    }

    /// A number of less than 2^28: seven bits in each byte, without a branch for each.
    #[inline]
    fn varint(value: u64) -> Bytes {
        let spread =
            value & 0x7f | (value & 0x3f80) << 1 | (value & 0x1f_c000) << 2 | (value & 0xfe0_0000) << 3;
        let more = (63 - (spread | 1).leading_zeros()) / 8;
        let bytes = spread | 0x8080_8080 & ((1 << (8 * more)) - 1);
        Bytes { bytes: bytes.into(), length: more + 1 }
    }

    /// Both, if they fit.
    #[inline]
    fn then(self, next: Bytes) -> Option<Bytes> {
        let length = self.length + next.length;
        let room = self.length < MOST && length <= MOST;
        room.then(|| Bytes { bytes: self.bytes | next.bytes << (8 * self.length), length })
    }

    #[inline]
    fn append_to(self, output: &mut Vec<u8>) {
        let end = output.len() + self.length as usize;
        output.extend_from_slice(&self.bytes.to_le_bytes());
        output.truncate(end);
    }
}

/// The common parts of packets of calls in a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Calls {
    /// Behind the time: the sequence, and the event up to its name's number.
    begin: Bytes,
    /// All of that for an end.
    end: Bytes,
}

/// Numbers from here on aren't for such packets.
const LARGE: u64 = 1 << 28;
/// Where the event's length is, counted from the end of [`Calls::begin`].
const EVENT_LENGTH_AT: u32 = 4;

impl Calls {
    /// Of the sequence that has this field; `None` if its number is too large.
    pub(super) fn new(sequence: u64) -> Option<Calls> {
        let mut begin = Vec::new();
        begin.number(packet::SEQUENCE, sequence);
        let mut end = begin.clone();
        begin.extend_from_slice(&[
            tag(packet::TRACK_EVENT, LENGTH),
            // The bytes that follow here, to which those of the number are added.
            3,
            tag(event::TYPE, NUMBER),
            event::BEGIN as u8,
            tag(event::NAME_NUMBER, NUMBER),
        ]);
        end.bytes(packet::TRACK_EVENT, &[tag(event::TYPE, NUMBER), event::END as u8]);
        Some(Calls { begin: Bytes::of(&begin)?, end: Bytes::of(&end)? })
    }

    /// Appends the packet of a slice that begins so long after the packet before. `false` if it is
    /// too large.
    #[inline]
    pub(super) fn put_begin(
        &self,
        output: &mut Vec<u8>,
        delta_ns: u64,
        name: u64,
        annotations: &[u8],
    ) -> bool {
        if name >= LARGE || self.begin.length < EVENT_LENGTH_AT {
            return false;
        }
        let number = Bytes::varint(name);
        let more = number.length + annotations.len() as u32;
        let Some(mut event) = self.begin.then(number) else { return false };
        event.bytes += u128::from(more) << (8 * (self.begin.length - EVENT_LENGTH_AT));
        let is_put = put(output, delta_ns, event, annotations.len() as u32);
        if is_put && !annotations.is_empty() {
            output.extend_from_slice(annotations);
        }
        is_put
    }

    /// Appends the packet of a slice that ends.
    #[inline]
    pub(super) fn put_end(&self, output: &mut Vec<u8>, delta_ns: u64) -> bool {
        self.end.length > 0 && put(output, delta_ns, self.end, 0)
    }
}

/// Appends a packet, of which so many bytes follow.
#[inline]
fn put(output: &mut Vec<u8>, delta_ns: u64, rest: Bytes, more: u32) -> bool {
    if delta_ns >= LARGE || more >= 0x60 {
        return false;
    }
    let time = Bytes::varint(delta_ns);
    let length = 1 + time.length + rest.length + more;
    let head = u32::from_le_bytes([
        const { tag(packet::PACKET, LENGTH) },
        length as u8,
        const { tag(packet::TIMESTAMP, NUMBER) },
        0,
    ]);
    let head = Bytes { bytes: u128::from(head) | time.bytes << 24, length: 3 + time.length };
    let Some(whole) = head.then(rest) else { return false };
    whole.append_to(output);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_as_field_by_field() {
        let mut values: Vec<u64> = (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit]).collect();
        values.push(u64::MAX);
        let mut count = 0;
        for delta_ns in &values {
            for number in values.iter().take_while(|value| **value < 1 << 32) {
                for (sequence, annotations) in [(2, &[][..]), (2, &[7; 90]), (300, &[7; 8]), (70_000, &[])] {
                    let packet = |event: &dyn Fn(&mut Vec<u8>)| {
                        let mut bytes = Vec::new();
                        bytes.message(packet::PACKET, |packet| {
                            packet.number(packet::TIMESTAMP, *delta_ns);
                            packet.number(packet::SEQUENCE, sequence);
                            packet.message(packet::TRACK_EVENT, event);
                        });
                        bytes
                    };
                    let begin = packet(&|event| {
                        event.number(event::TYPE, event::BEGIN);
                        event.number(event::NAME_NUMBER, *number);
                        event.extend_from_slice(annotations);
                    });
                    let end = packet(&|event| event.number(event::TYPE, event::END));
                    let calls = Calls::new(sequence).unwrap();
                    let mut output = vec![1, 2, 3];
                    let is_put = calls.put_begin(&mut output, *delta_ns, *number, annotations);
                    assert_eq!(&output[3..], if is_put { &begin[..] } else { &[] });
                    output.truncate(3);
                    count += usize::from(is_put);
                    let is_put = calls.put_end(&mut output, *delta_ns);
                    assert_eq!(&output[3..], if is_put { &end[..] } else { &[] });
                    count += usize::from(is_put);
                    // Most calls are put so.
                    assert!(is_put || *delta_ns >= 1 << 21);
                }
            }
        }
        assert!(count > 10_000, "{count}");
    }
}
