//! Packets: the bytes that a CPU writes.
//!
//! Their layout: Intel's Software Developer's Manual, volume 3, "Trace Packets and Data Types".

/// The 16 bytes of a PSB packet, at which decoding can begin.
pub(crate) const PSB: [u8; 16] = [2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82];

/// An instruction pointer, as a packet has it: compressed by leaving out the upper bytes that are
/// those of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// How it is compressed: the upper three bits of the packet's first byte.
    pub compression: u8,
    /// The bytes that are there.
    pub payload: u64,
}

impl Ip {
    /// The whole pointer behind `last`, the one before; `None` if the packet has none.
    #[inline]
    #[must_use]
    pub fn after(self, last: u64) -> Option<u64> {
        Some(match self.compression {
            1 => last & !0xffff | self.payload,
            2 => last & !0xffff_ffff | self.payload,
            3 => ((self.payload << 16) as i64 >> 16) as u64,
            4 => last & !0xffff_ffff_ffff | self.payload,
            6 => self.payload,
            _ => return None,
        })
    }
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Nothing.
    Pad,
    /// The beginning of a synchronization point.
    Psb,
    /// Its end.
    PsbEnd,
    /// Conditional branches: whether each was taken, the first one in the highest bit; how many.
    Tnt(u64, u8),
    /// Where an indirect branch, a return or an interrupt led to.
    Tip(Ip),
    /// Tracing began here.
    TipPge(Ip),
    /// Tracing ended; where the branch led to, if that is known.
    TipPgd(Ip),
    /// The address of an event that no branch caused.
    Fup(Ip),
    /// The mode of execution: whether it is 64 bits wide.
    ModeExec {
        /// 64-bit mode.
        is_long: bool,
    },
    /// A transaction began or ended, or was aborted.
    ModeTsx {
        /// It was aborted: the next FUP and TIP lead to its handler.
        is_abort: bool,
    },
    /// The time-stamp counter.
    Tsc(u64),
    /// The crystal clock's counter, and by how much the time-stamp counter was ahead of its tick.
    Tma {
        /// Lower 16 bits of the crystal clock's counter.
        ctc: u16,
        /// Ticks of the time-stamp counter since that tick.
        fast: u16,
    },
    /// Eight bits of the crystal clock's counter.
    Mtc(u8),
    /// Core cycles since the last such packet.
    Cyc(u64),
    /// The ratio of the core's to the bus's frequency.
    Cbr(u8),
    /// Packets were lost here.
    Ovf,
    /// A filter ended tracing.
    TraceStop,
    /// Another address space: CR3.
    Pip(u64),
    /// Another virtual machine.
    Vmcs(u64),
    /// A value that the program wrote, and whether a FUP follows.
    PtWrite(u64, bool),
    /// The CPU's own notes.
    Mnt(u64),
    /// An event (interrupt, IRET and others) by its type and vector, and whether a FUP follows.
    Cfe {
        /// The kind of event.
        kind: u8,
        /// An interrupt's or exception's vector.
        vector: u8,
        /// A FUP follows.
        has_ip: bool,
    },
    /// Details of an event: their kind and value.
    Evd(u8, u64),
    /// The core's clock stopped, and whether a FUP follows.
    ExStop(bool),
    /// The program waits: hints of MWAIT.
    Mwait(u64),
    /// Entry into a power state.
    Pwre(u16),
    /// Exit from a power state.
    Pwrx(u64),
    /// A block of items begins; whether they have four bytes, not eight.
    Bbp(bool),
    /// An item of a block.
    Bip(u8, u64),
    /// The block's end, and whether a FUP follows.
    Bep(bool),
    /// A trigger fired, and whether a FUP follows.
    Trig(bool),
}

/// Why there is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// The bytes end within it.
    Truncated,
    /// These bytes are no packet.
    Unknown,
}

/// The state by which bytes become packets: within a block, one opcode has another meaning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packets {
    /// Bytes of an item, within a block.
    item: Option<u8>,
}

#[inline]
fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, PacketError> {
    let part: &[u8; N] = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(PacketError::Truncated)?;
    let mut whole = [0; 8];
    whole.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
    Ok(u64::from_le_bytes(whole))
}

impl Packets {
    /// The packet at the beginning of these bytes, and its length.
    ///
    /// # Errors
    ///
    /// The bytes end within it, or are no packet.
    #[inline]
    pub fn next(&mut self, bytes: &[u8]) -> Result<(Packet, usize), PacketError> {
        let first = *bytes.first().ok_or(PacketError::Truncated)?;
        if first & 1 == 0 && first > 2 && self.item.is_none() {
            let count = 6 - first.leading_zeros() as u8;
            // The bits behind the stop bit.
            return Ok((Packet::Tnt(u64::from(first) << (63 - count), count), 1));
        }
        self.other(first, bytes)
    }

    fn other(&mut self, first: u8, bytes: &[u8]) -> Result<(Packet, usize), PacketError> {
        if let Some(size) = self.item
            && first & 7 == 4
        {
            let value = if size == 4 { number::<4>(bytes, 1)? } else { number::<8>(bytes, 1)? };
            return Ok((Packet::Bip(first >> 3, value), 1 + usize::from(size)));
        }
        let (packet, length) = match first {
            0 => (Packet::Pad, 1),
            2 => extended(bytes)?,
            _ if first & 1 == 0 => {
                self.item = None;
                return self.next(bytes);
            }
            _ if first & 3 == 3 => cycles(bytes)?,
            0x19 => (Packet::Tsc(number::<7>(bytes, 1)?), 8),
            0x59 => (Packet::Mtc(number::<1>(bytes, 1)? as u8), 2),
            0x99 => (mode(number::<1>(bytes, 1)? as u8)?, 2),
            0xd9 => {
                let flags = number::<1>(bytes, 1)?;
                let length = if flags & 0x40 != 0 { 5 } else { 3 };
                number::<1>(bytes, length - 1)?;
                (Packet::Trig(flags & 0x80 != 0), length)
            }
            _ => {
                let compression = first >> 5;
                let (payload, length) = match compression {
                    0 => (0, 1),
                    1 => (number::<2>(bytes, 1)?, 3),
                    2 => (number::<4>(bytes, 1)?, 5),
                    3 | 4 => (number::<6>(bytes, 1)?, 7),
                    6 => (number::<8>(bytes, 1)?, 9),
                    _ => return Err(PacketError::Unknown),
                };
                let ip = Ip { compression, payload };
                let packet = match first & 0x1f {
                    0x0d => Packet::Tip(ip),
                    0x11 => Packet::TipPge(ip),
                    0x01 => Packet::TipPgd(ip),
                    0x1d => Packet::Fup(ip),
                    _ => return Err(PacketError::Unknown),
                };
                (packet, length)
            }
        };
        match packet {
            Packet::Bbp(is_short) => self.item = Some(if is_short { 4 } else { 8 }),
            Packet::Psb | Packet::Bep(_) | Packet::Ovf | Packet::Tip(_) => self.item = None,
            Packet::TipPge(_) | Packet::TipPgd(_) => self.item = None,
            _ => {}
        }
        Ok((packet, length))
    }
}

fn extended(bytes: &[u8]) -> Result<(Packet, usize), PacketError> {
    let second = *bytes.get(1).ok_or(PacketError::Truncated)?;
    Ok(match second {
        0xa3 => {
            let bits = number::<6>(bytes, 2)?;
            if bits == 0 {
                return Err(PacketError::Unknown);
            }
            let count = 63 - bits.leading_zeros() as u8;
            // One bit more than there is without the stop bit can't be shifted at once.
            (Packet::Tnt(if count == 0 { 0 } else { bits << (64 - count) }, count), 8)
        }
        0x82 => {
            let found = bytes.get(..PSB.len());
            let found = found.ok_or(if PSB.starts_with(bytes) {
                PacketError::Truncated
            } else {
                PacketError::Unknown
            })?;
            if found != PSB {
                return Err(PacketError::Unknown);
            }
            (Packet::Psb, PSB.len())
        }
        0x23 => (Packet::PsbEnd, 2),
        0xf3 => (Packet::Ovf, 2),
        0x83 => (Packet::TraceStop, 2),
        0x43 => (Packet::Pip(number::<6>(bytes, 2)? >> 1 << 5), 8),
        0x03 => (Packet::Cbr(number::<2>(bytes, 2)? as u8), 4),
        0x73 => {
            let (ctc, fast) = (number::<2>(bytes, 2)? as u16, number::<2>(bytes, 5)? as u16 & 0x1ff);
            (Packet::Tma { ctc, fast }, 7)
        }
        0xc8 => (Packet::Vmcs(number::<5>(bytes, 2)? << 12), 7),
        0xc3 if bytes.len() < 3 => return Err(PacketError::Truncated),
        0xc3 if bytes.get(2) == Some(&0x88) => (Packet::Mnt(number::<8>(bytes, 3)?), 11),
        0x62 | 0xe2 => (Packet::ExStop(second & 0x80 != 0), 2),
        0xc2 => (Packet::Mwait(number::<8>(bytes, 2)?), 10),
        0x22 => (Packet::Pwre(number::<2>(bytes, 2)? as u16), 4),
        0xa2 => (Packet::Pwrx(number::<5>(bytes, 2)?), 7),
        0x63 => (Packet::Bbp(number::<1>(bytes, 2)? & 0x80 != 0), 3),
        0x33 | 0xb3 => (Packet::Bep(second & 0x80 != 0), 2),
        0x13 => {
            let [kind, vector] = (number::<2>(bytes, 2)? as u16).to_le_bytes();
            (Packet::Cfe { kind: kind & 0x1f, vector, has_ip: kind & 0x80 != 0 }, 4)
        }
        0x53 => (Packet::Evd(number::<1>(bytes, 2)? as u8 & 0x3f, number::<8>(bytes, 3)?), 11),
        _ if second & 0x1f == 0x12 => match second >> 5 & 3 {
            0 => (Packet::PtWrite(number::<4>(bytes, 2)?, second & 0x80 != 0), 6),
            1 => (Packet::PtWrite(number::<8>(bytes, 2)?, second & 0x80 != 0), 10),
            _ => return Err(PacketError::Unknown),
        },
        _ => return Err(PacketError::Unknown),
    })
}

fn mode(payload: u8) -> Result<Packet, PacketError> {
    match payload >> 5 {
        0 => Ok(Packet::ModeExec { is_long: payload & 1 != 0 }),
        1 => Ok(Packet::ModeTsx { is_abort: payload & 2 != 0 }),
        _ => Err(PacketError::Unknown),
    }
}

fn cycles(bytes: &[u8]) -> Result<(Packet, usize), PacketError> {
    let first = bytes.first().copied().unwrap_or_default();
    let mut value = u64::from(first >> 3);
    let (mut goes_on, mut shift, mut length) = (first & 4 != 0, 5, 1);
    while goes_on {
        if shift > 60 {
            return Err(PacketError::Unknown);
        }
        let byte = *bytes.get(length).ok_or(PacketError::Truncated)?;
        value |= u64::from(byte >> 1) << shift;
        goes_on = byte & 1 != 0;
        shift += 7;
        length += 1;
    }
    Ok((Packet::Cyc(value), length))
}

/// Where the next PSB packet begins.
#[must_use]
pub fn find_psb(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, &PSB)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut bytes: &[u8]) -> Vec<Packet> {
        let mut packets = Packets::default();
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let (packet, length) = packets.next(bytes).unwrap();
            found.push(packet);
            bytes = &bytes[length..];
        }
        found
    }

    #[test]
    fn branches_stand_in_order() {
        // Stop bit, then taken, not taken, taken.
        assert_eq!(all(&[0b0001_1010]), [Packet::Tnt(0b101 << 61, 3)]);
        assert_eq!(all(&[0b1000_0000]), [Packet::Tnt(0, 6)]);
        assert_eq!(all(&[0b0000_0110]), [Packet::Tnt(1 << 63, 1)]);
        assert_eq!(all(&[2, 0xa3, 0b110, 0, 0, 0, 0, 0]), [Packet::Tnt(0b10 << 62, 2)]);
        assert_eq!(all(&[2, 0xa3, 1, 0, 0, 0, 0, 0x80]), [Packet::Tnt(1 << 17, 47)]);
    }

    #[test]
    fn pointers_are_completed_by_the_last_one() {
        let ip = |compression, payload| Ip { compression, payload }.after(0x7f11_2233_4455_6677);
        assert_eq!(ip(0, 0), None);
        assert_eq!(ip(1, 0xabcd), Some(0x7f11_2233_4455_abcd));
        assert_eq!(ip(2, 0xabcd), Some(0x7f11_2233_0000_abcd));
        assert_eq!(ip(3, 0x8000_0000_0001), Some(0xffff_8000_0000_0001));
        assert_eq!(ip(3, 0x7000_0000_0001), Some(0x7000_0000_0001));
        assert_eq!(ip(4, 0x7000_0000_0001), Some(0x7f11_7000_0000_0001));
        assert_eq!(ip(6, 5), Some(5));
    }

    #[test]
    fn every_kind_of_packet_is_known_and_truncated_ones_are_noticed() {
        let mut kinds: Vec<(Vec<u8>, Packet)> = vec![
            (vec![0], Packet::Pad),
            (PSB.to_vec(), Packet::Psb),
            (vec![2, 0x23], Packet::PsbEnd),
            (vec![2, 0xf3], Packet::Ovf),
            (vec![2, 0x83], Packet::TraceStop),
            (vec![0x0d], Packet::Tip(Ip { compression: 0, payload: 0 })),
            (vec![0x2d, 1, 2], Packet::Tip(Ip { compression: 1, payload: 0x201 })),
            (vec![0x51, 1, 2, 3, 4], Packet::TipPge(Ip { compression: 2, payload: 0x0403_0201 })),
            (vec![0x61, 1, 0, 0, 0, 0, 0], Packet::TipPgd(Ip { compression: 3, payload: 1 })),
            (vec![0xdd, 1, 0, 0, 0, 0, 0, 0, 1], Packet::Fup(Ip { compression: 6, payload: 1 << 56 | 1 })),
            (vec![0x99, 1], Packet::ModeExec { is_long: true }),
            (vec![0x99, 0x22], Packet::ModeTsx { is_abort: true }),
            (vec![0x19, 1, 0, 0, 0, 0, 0, 2], Packet::Tsc(2 << 48 | 1)),
            (vec![2, 0x73, 1, 2, 0, 3, 1], Packet::Tma { ctc: 0x201, fast: 0x103 }),
            (vec![0x59, 7], Packet::Mtc(7)),
            (vec![0x0b], Packet::Cyc(1)),
            (vec![0x0f, 3, 2], Packet::Cyc(1 | 1 << 5 | 1 << 12)),
            (vec![2, 3, 9, 0], Packet::Cbr(9)),
            (vec![2, 0x43, 2, 0, 0, 0, 0, 0], Packet::Pip(32)),
            (vec![2, 0xc8, 1, 0, 0, 0, 0], Packet::Vmcs(4096)),
            (vec![2, 0x12, 1, 0, 0, 0], Packet::PtWrite(1, false)),
            (vec![2, 0xb2, 1, 0, 0, 0, 0, 0, 0, 0], Packet::PtWrite(1, true)),
            (vec![2, 0xc3, 0x88, 1, 0, 0, 0, 0, 0, 0, 0], Packet::Mnt(1)),
            (vec![2, 0x13, 0x81, 14], Packet::Cfe { kind: 1, vector: 14, has_ip: true }),
            (vec![2, 0x53, 0, 1, 0, 0, 0, 0, 0, 0, 0], Packet::Evd(0, 1)),
            (vec![2, 0xe2], Packet::ExStop(true)),
            (vec![2, 0xc2, 1, 0, 0, 0, 0, 0, 0, 0], Packet::Mwait(1)),
            (vec![2, 0x22, 1, 0], Packet::Pwre(1)),
            (vec![2, 0xa2, 1, 0, 0, 0, 0], Packet::Pwrx(1)),
            (vec![0xd9, 0, 0], Packet::Trig(false)),
        ];
        kinds.push((vec![2, 0x63, 0x80], Packet::Bbp(true)));
        kinds.push((vec![0x0c, 1, 0, 0, 0], Packet::Bip(1, 1)));
        kinds.push((vec![2, 0xb3], Packet::Bep(true)));
        let mut packets = Packets::default();
        for (bytes, packet) in &kinds {
            for length in 0..bytes.len() {
                let cut = { packets }.next(&bytes[..length]);
                assert_eq!(cut, Err(PacketError::Truncated), "{packet:?} of {length} bytes");
            }
            assert_eq!(packets.next(bytes), Ok((*packet, bytes.len())));
        }
    }
}
