//! The bytes of a site, off and on.
//!
//! ```text
//! nops     off  0f 1f 44 00 00                        nop
//!          on   e8 hook                               call hook
//! nops, before a ret
//!          as compiled  c3 0f 1f 40 00 | c3           ret
//!          off  c3 hook... | c3                       ret
//!          on   e8 hook    | c3                       call hook, ret
//! XRay entry, tail exit (11 bytes)
//!          as compiled  eb 09 66 0f 1f 84 00 00 02 00 00     jmp +9 (costs a taken branch)
//!          off  0f 1f 84 e8 hook | 0f 1f 00                  nop (8 bytes) nop (3 bytes)
//!          on   0f 1f 00 | e8 hook | 0f 1f 00                nop (3 bytes) call hook, nop (3 bytes)
//! XRay exit (11 bytes)
//!          as compiled  c3 2e 66 0f 1f 84 00 00 02 00 00     ret
//!          off  c3 hook.... c3 ...                           ret
//!          on   e8 hook c3                                   call hook, ret
//! ```
//!
//! The off form of an entry is one instruction whose SIB byte is the call's opcode and whose
//! displacement is the call's, so off and on differ in one byte (the third), and a thread that was
//! stopped anywhere in one form finds whole instructions in the other. It uses no register, and
//! avoids the taken `jmp`, which costs up to 15 %. An exit's two forms differ in the first byte. A
//! missing displacement is written first, after a `ret`, where it is never executed. So exits may
//! lie anywhere; the other sites of mode `nops` lie in aligned 8-byte words.
//!
//! This crate only computes bytes. The caller decides where and when to write them.
#![no_std]

use everycall_format::site::{site_kind, sled_kind};

/// The first byte of a call with a 32-bit displacement.
const CALL: u8 = 0xe8;
const RET: u8 = 0xc3;
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
/// After its `ret`, a NOP that is never executed keeps disassemblers in step.
const RETURN5: [u8; 5] = [RET, 0x0f, 0x1f, 0x40, 0x00];
const NOP3: [u8; 3] = [0x0f, 0x1f, 0x00];
/// Third byte of the off form: with it, the first four bytes begin an 8-byte NOP.
const NOP8_THIRD: u8 = 0x84;
const SLED_JUMP: [u8; 11] = [0xeb, 0x09, 0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x02, 0x00, 0x00];
const SLED_RET: [u8; 11] = [0xc3, 0x2e, 0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x02, 0x00, 0x00];

/// Bytes of an XRay sled.
pub const SLED_SIZE: usize = 11;
/// Bytes of a site of mode `nops`.
pub const SITE_SIZE: usize = 5;

/// Whether a site calls its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// It costs nothing.
    Off,
    /// It calls.
    On,
}

/// Why a site was left unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It holds unexpected bytes.
    UnexpectedBytes,
    /// The hook is further away than a call reaches.
    OutOfReach,
    /// A kind of sled that isn't an entry or exit.
    UnknownKind,
}

/// The displacement of a call at `call` to `hook`, both addresses.
fn displacement(call: u64, hook: u64) -> Result<[u8; 4], Refusal> {
    let distance = hook.wrapping_sub(call.wrapping_add(5)).cast_signed();
    i32::try_from(distance).map(i32::to_le_bytes).map_err(|_| Refusal::OutOfReach)
}

/// The bytes for the site of mode `nops` and this [`site_kind`] at `address`, given its present
/// bytes.
///
/// # Errors
/// The bytes or the distance aren't as expected.
pub fn site_bytes(
    now: [u8; SITE_SIZE],
    kind: u32,
    address: u64,
    hook: u64,
    to: Switch,
) -> Result<[u8; SITE_SIZE], Refusal> {
    let [a, b, c, d] = displacement(address, hook)?;
    let call = [CALL, a, b, c, d];
    let (compiled, off) = match kind {
        site_kind::ENTRY | site_kind::EXIT | site_kind::TAIL_EXIT => (NOP5, NOP5),
        // A site that was never on stays unchanged, so its page stays shared with the file.
        site_kind::RETURN if now == RETURN5 => (RETURN5, RETURN5),
        site_kind::RETURN => (RETURN5, [RET, a, b, c, d]),
        _ => return Err(Refusal::UnknownKind),
    };
    if now != compiled && now != off && now != call {
        return Err(Refusal::UnexpectedBytes);
    }
    Ok(match to {
        Switch::Off => off,
        Switch::On => call,
    })
}

/// The bytes for the XRay sled at `address`, given its present bytes.
///
/// # Errors
/// The bytes, the kind or the distance aren't as expected.
pub fn sled_bytes(
    now: [u8; SLED_SIZE],
    kind: u8,
    address: u64,
    hook: u64,
    to: Switch,
) -> Result<[u8; SLED_SIZE], Refusal> {
    match kind {
        sled_kind::ENTRY | sled_kind::ENTRY_LOG_ARGS | sled_kind::TAIL_EXIT => {
            let [a, b, c, d] = displacement(address + 3, hook)?;
            let third = if to == Switch::On { NOP3[2] } else { NOP8_THIRD };
            let new = [NOP3[0], NOP3[1], third, CALL, a, b, c, d, NOP3[0], NOP3[1], NOP3[2]];
            let ours =
                [now[0], now[1], third, now[3], now[4], now[5], now[6], now[7], now[8], now[9], now[10]]
                    == new
                    && (now[2] == NOP3[2] || now[2] == NOP8_THIRD);
            if now == SLED_JUMP || ours { Ok(new) } else { Err(Refusal::UnexpectedBytes) }
        }
        sled_kind::EXIT => {
            let [a, b, c, d] = displacement(address, hook)?;
            let first = if to == Switch::On { CALL } else { RET };
            let rest = &SLED_RET[6..];
            let new = [first, a, b, c, d, RET, rest[0], rest[1], rest[2], rest[3], rest[4]];
            let ours = now[1..] == new[1..] && (now[0] == CALL || now[0] == RET);
            if now == SLED_RET || ours { Ok(new) } else { Err(Refusal::UnexpectedBytes) }
        }
        _ => Err(Refusal::UnknownKind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_switch_both_ways_and_refuse_strangers() {
        let (entry, from, to) = (site_kind::ENTRY, 0x1000, 0x2000);
        for (kind, off, other) in [
            (entry, NOP5, RETURN5),
            (site_kind::EXIT, NOP5, RETURN5),
            (site_kind::TAIL_EXIT, NOP5, RETURN5),
            (site_kind::RETURN, RETURN5, NOP5),
        ] {
            let on = site_bytes(off, kind, from, to, Switch::On).unwrap();
            assert_eq!(on, [0xe8, 0xfb, 0x0f, 0, 0]);
            let off_again = if kind == site_kind::RETURN { [0xc3, 0xfb, 0x0f, 0, 0] } else { off };
            assert_eq!(site_bytes(on, kind, from, to, Switch::Off), Ok(off_again));
            assert_eq!(site_bytes(off_again, kind, from, to, Switch::On), Ok(on));
            assert_eq!(site_bytes(off, kind, from, to, Switch::Off), Ok(off));
            for stranger in [[0x90; 5], other] {
                assert_eq!(site_bytes(stranger, kind, from, to, Switch::On), Err(Refusal::UnexpectedBytes));
            }
        }
        assert_eq!(site_bytes(NOP5, 4, from, to, Switch::On), Err(Refusal::UnknownKind));
        assert_eq!(site_bytes(NOP5, entry, from, 0x1_0000_0000, Switch::On), Err(Refusal::OutOfReach));
        assert!(site_bytes(NOP5, entry, 0x2000_0000, from, Switch::On).is_ok(), "backwards");
    }

    #[test]
    fn forms_of_a_sled_differ_in_one_byte() {
        for (kind, compiled, place) in [
            (sled_kind::ENTRY, SLED_JUMP, 2),
            (sled_kind::TAIL_EXIT, SLED_JUMP, 2),
            (sled_kind::EXIT, SLED_RET, 0),
        ] {
            let off = sled_bytes(compiled, kind, 0x1000, 0x2000, Switch::Off).unwrap();
            let on = sled_bytes(off, kind, 0x1000, 0x2000, Switch::On).unwrap();
            let differing: &[usize] =
                &(0..SLED_SIZE).filter(|&index| off[index] != on[index]).collect::<arrayless::Few>();
            assert_eq!(differing, [place]);
            assert_eq!(sled_bytes(on, kind, 0x1000, 0x2000, Switch::Off), Ok(off));
            assert_eq!(sled_bytes(compiled, kind, 0x1000, 0x2000, Switch::On), Ok(on));
            assert_eq!(
                sled_bytes([0x90; 11], kind, 0x1000, 0x2000, Switch::On),
                Err(Refusal::UnexpectedBytes)
            );
        }
        assert_eq!(sled_bytes(SLED_JUMP, 4, 0x1000, 0x2000, Switch::On), Err(Refusal::UnknownKind));
    }

    /// A list without an allocator.
    mod arrayless {
        #[derive(Default)]
        pub struct Few([usize; 4], usize);
        impl FromIterator<usize> for Few {
            fn from_iter<I: IntoIterator<Item = usize>>(items: I) -> Few {
                let mut few = Few::default();
                for item in items {
                    few.0[few.1] = item;
                    few.1 += 1;
                }
                few
            }
        }
        impl core::ops::Deref for Few {
            type Target = [usize];
            fn deref(&self) -> &[usize] {
                &self.0[..self.1]
            }
        }
    }
}
