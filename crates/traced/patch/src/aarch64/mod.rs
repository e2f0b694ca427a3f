//! The bytes of sites on 64-bit Arm.
//!
//! ```text
//! nops     off  mov x9, x30 | nop
//!          on   mov x9, x30 | bl hook
//! ```
//!
//! The first word is there from the start and never changes. The second one is an aligned word that
//! is `nop` or `bl` before and after: one store, of instructions that may change while others
//! execute them. So a site goes from off to on, and from one hook to another, in one step.
//!
//! Other sites of other machines, XRay's among them, are refused.

use everycall_format::arch::{CALL_SIZE, SITE_SIZE};
use everycall_format::site::site_kind;

use crate::{OTHERS, Refusal, Step, Stores, Switch};

/// `mov x9, x30`.
const SAVE: u32 = 0xaa1e_03e9;
const NOP: u32 = 0xd503_201f;
/// `bl`, with a distance in words in its lower bits.
const CALL: u32 = 0x9400_0000;
const DISTANCE: u32 = 0x03ff_ffff;

/// Steps that a site takes at most, from any form to any other.
pub const STEPS_MAX: usize = 1;

/// Where the call is in a site.
const CALL_AT: usize = SITE_SIZE - CALL_SIZE;

/// A site, with the address that it has and the hook that it is to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    address: u64,
    /// Where the call is in it: a call that the compiler has left is nothing else, and never off.
    call_at: usize,
    call: u32,
    /// The calls of other hooks, which the site may call so far.
    others: [Option<u32>; OTHERS],
}

/// The call at `call` of `hook`, both addresses.
fn call_of(call: u64, hook: u64) -> Result<u32, Refusal> {
    let distance = hook.wrapping_sub(call).cast_signed();
    if !call.is_multiple_of(4) || distance % 4 != 0 {
        return Err(Refusal::Misplaced);
    }
    let words = distance / 4;
    if !(-(1 << 25)..1 << 25).contains(&words) {
        return Err(Refusal::OutOfReach);
    }
    Ok(CALL | words as u32 & DISTANCE)
}

impl Site {
    fn new(address: u64, call_at: usize, hook: u64) -> Result<Site, Refusal> {
        let call = call_of(address.wrapping_add(call_at as u64), hook)?;
        Ok(Site { address, call_at, call, others: [None; OTHERS] })
    }

    /// A site of mode `nops` and of this [`site_kind`].
    ///
    /// # Errors
    /// Where there is no such kind, the hook is too far away, or the address isn't one of code.
    pub fn of_nops(kind: u32, address: u64, hook: u64) -> Result<Site, Refusal> {
        match kind {
            site_kind::ENTRY | site_kind::EXIT | site_kind::TAIL_EXIT => Site::new(address, CALL_AT, hook),
            _ => Err(Refusal::UnknownKind),
        }
    }

    /// A call that the compiler has left, which is to call this hook.
    ///
    /// # Errors
    /// Where the hook is too far away, or the address isn't one of code.
    pub fn of_call(address: u64, hook: u64) -> Result<Site, Refusal> {
        Site::new(address, 0, hook)
    }

    /// Whether a call begins with this byte: compilers leave no calls that are looked for.
    #[must_use]
    pub fn is_call(_first: u8) -> bool {
        false
    }

    /// Whether a call, or what is there while its target changes, begins with this byte.
    #[must_use]
    pub fn may_be_call(_first: u8) -> bool {
        false
    }

    /// Where a call at `address` leads that is the last instruction of these bytes.
    #[must_use]
    pub fn call_target([.., a, b, c, d]: [u8; SITE_SIZE], address: u64) -> u64 {
        let word = u32::from_le_bytes([a, b, c, d]);
        let distance = i64::from((word << 6).cast_signed() >> 6) * 4;
        address.wrapping_add(CALL_AT as u64).wrapping_add_signed(distance)
    }

    /// Adds the hook `other`, which the site may call so far. At most [`OTHERS`] count, the first
    /// ones.
    ///
    /// # Errors
    /// Where that hook is too far away.
    pub fn instead_of(mut self, other: u64) -> Result<Site, Refusal> {
        let other = call_of(self.address.wrapping_add(self.call_at as u64), other)?;
        if let Some(free) = self.others.iter_mut().find(|place| place.is_none()) {
            *free = Some(other);
        }
        Ok(self)
    }

    /// An XRay sled.
    ///
    /// # Errors
    /// Always: they aren't switched on this machine.
    pub fn of_sled(_kind: u8, _address: u64, _hook: u64) -> Result<Site, Refusal> {
        Err(Refusal::UnknownKind)
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes of it.
    #[must_use]
    pub fn size(&self) -> usize {
        self.call_at + CALL_SIZE
    }

    /// The next step towards `to`, given the site's current [`Site::size`] bytes. `None` if it is
    /// done.
    ///
    /// # Errors
    /// Where the bytes aren't as expected.
    pub fn step(&self, now: &[u8], to: Switch, _stores: Stores) -> Result<Option<Step>, Refusal> {
        let word = |at: usize| Some(u32::from_le_bytes(*now.get(at..)?.first_chunk()?));
        let is_site = self.call_at == 0 || word(0) == Some(SAVE);
        let call = word(self.call_at).filter(|_| is_site).ok_or(Refusal::UnexpectedBytes)?;
        let goal = match to {
            Switch::Off if self.call_at != 0 => NOP,
            _ => self.call,
        };
        let is_ours = call == self.call || self.others.contains(&Some(call));
        match call {
            _ if call == goal => Ok(None),
            NOP if self.call_at != 0 => Ok(Some(Step::new(self.call_at, &goal.to_le_bytes(), true))),
            _ if is_ours => Ok(Some(Step::new(self.call_at, &goal.to_le_bytes(), true))),
            _ => Err(Refusal::UnexpectedBytes),
        }
    }
}

#[cfg(test)]
mod tests;
