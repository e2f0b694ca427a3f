//! The bytes of sites on x86-64.
//!
//! ```text
//! nops     off  0f 1f 44 00 00                        nop
//!          between  a9 xx xx xx xx                    test eax, imm32 (only flags, which are free here)
//!          on   e8 hook                               call hook
//! nops, before a ret
//!          as compiled  c3 0f 1f 40 00 | c3           ret
//!          off  c3 hook... | c3                       ret
//!          on   e8 hook    | c3                       call hook, ret
//! XRay entry, tail exit (11 bytes)
//!          as compiled  eb 09 66 0f 1f 84 00 00 02 00 00     jmp +9 (costs a taken branch)
//!          between      eb 09 84 e8 hook 0f 1f 00            jmp +9
//!          off  0f 1f 84 e8 hook | 0f 1f 00                  nop (8 bytes) nop (3 bytes)
//!          on   0f 1f 00 | e8 hook | 0f 1f 00                nop (3 bytes) call hook, nop (3 bytes)
//! XRay exit (11 bytes)
//!          as compiled  c3 2e 66 0f 1f 84 00 00 02 00 00     ret
//!          off  c3 hook.... c3 ...                           ret
//!          on   e8 hook c3                                   call hook, ret
//! XRay custom and typed event (2 bytes, before code that calls __xray_CustomEvent, __xray_TypedEvent)
//!          off, as compiled  eb 0f, eb 14                    jmp over that code
//!          on   eb 00                                        jmp to it
//! ```
//!
//! The off form of an XRay entry is one instruction whose SIB byte is the call's opcode and whose
//! displacement is the call's, so off and on differ in one byte (the third), and a thread that was
//! stopped anywhere in one form finds whole instructions in the other. It changes no register; a
//! `jmp` instead would cost up to 15 %. An exit's two forms differ in the first byte: if the
//! displacement isn't written yet, it is written first, behind a `ret`, where it is never executed.
//! So these sites may have any alignment.
//!
//! An event is switched by the jump's displacement: one byte again, where XRay itself writes two.
//!
//! A site of mode `nops` changes all its bytes. `test` has the length of both forms and takes any
//! operand: opcode, operand, opcode, one after the other, are three steps after each of which the
//! site is one harmless instruction of five bytes, with the same begin and end.

use everycall_format::arch::{SITE_SIZE, SLED_CALL, SLED_SIZE};
use everycall_format::site::{site_kind, sled_kind};

use crate::{OTHERS, Refusal, Step, Stores, Switch, is_in_word};

/// The first byte of a call with a 32-bit displacement.
const CALL: u8 = 0xe8;
const RET: u8 = 0xc3;
/// `test eax, imm32`.
const TEST: u8 = 0xa9;
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
/// Behind its `ret` is a NOP that is never executed, so that disassemblers stay in step.
const RETURN5: [u8; 5] = [RET, 0x0f, 0x1f, 0x40, 0x00];
const NOP3: [u8; 3] = [0x0f, 0x1f, 0x00];
/// Third byte of the off form: with it, the first four bytes begin an 8-byte NOP.
const NOP8_THIRD: u8 = 0x84;
const SLED_JUMP: [u8; 11] = [0xeb, 0x09, 0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x02, 0x00, 0x00];
const SLED_RET: [u8; 11] = [0xc3, 0x2e, 0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x02, 0x00, 0x00];

/// Bytes of the jump that an event's code begins with.
const EVENT_SIZE: usize = 2;
/// A jump with an 8-bit displacement.
const JUMP: u8 = 0xeb;
/// Steps that a site takes at most, from any form to any other.
pub const STEPS_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Mode `nops`.
    Nop,
    /// Mode `nops`, before a `ret`.
    Return,
    /// A sled that is run before any decision: an entry, or a tail exit.
    Through,
    /// A sled in the place of a `ret`.
    Exit,
    /// A jump over the code of an event, with this displacement.
    Event(u8),
    /// A call that the compiler has left: never off.
    Call,
}

/// A site, with the address that it has and the hook that it is to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    form: Form,
    address: u64,
    displacement: [u8; 4],
    /// Those of other hooks, which the site may call so far.
    others: [Option<[u8; 4]>; OTHERS],
}

/// The displacement of a call at `call` to `hook`, both addresses.
fn displacement(call: u64, hook: u64) -> Result<[u8; 4], Refusal> {
    let distance = hook.wrapping_sub(call.wrapping_add(5)).cast_signed();
    i32::try_from(distance).map(i32::to_le_bytes).map_err(|_| Refusal::OutOfReach)
}

impl Site {
    fn new(form: Form, address: u64, displacement: [u8; 4]) -> Site {
        Site { form, address, displacement, others: [None; OTHERS] }
    }

    /// A site of mode `nops` and of this [`site_kind`].
    ///
    /// # Errors
    /// Where there is no such kind, or the hook is too far away.
    pub fn of_nops(kind: u32, address: u64, hook: u64) -> Result<Site, Refusal> {
        let form = match kind {
            site_kind::ENTRY | site_kind::EXIT | site_kind::TAIL_EXIT => Form::Nop,
            site_kind::RETURN => Form::Return,
            _ => return Err(Refusal::UnknownKind),
        };
        Ok(Site::new(form, address, displacement(address, hook)?))
    }

    /// A call that the compiler has left, which is to call this hook.
    ///
    /// # Errors
    /// Where the hook is too far away.
    pub fn of_call(address: u64, hook: u64) -> Result<Site, Refusal> {
        Ok(Site::new(Form::Call, address, displacement(address, hook)?))
    }

    /// Whether a call begins with this byte.
    #[must_use]
    pub fn is_call(first: u8) -> bool {
        first == CALL
    }

    /// Whether a call, or what is there while its target changes, begins with this byte.
    #[must_use]
    pub fn may_be_call(first: u8) -> bool {
        first == CALL || first == TEST
    }

    /// Where such a call at `address` leads.
    #[must_use]
    pub fn call_target([_, a, b, c, d]: [u8; SITE_SIZE], address: u64) -> u64 {
        address.wrapping_add(SITE_SIZE as u64).wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into())
    }

    /// Adds the hook `other`, which the site may call so far. At most [`OTHERS`] count, the first
    /// ones.
    ///
    /// # Errors
    /// Where that hook is too far away.
    pub fn instead_of(mut self, other: u64) -> Result<Site, Refusal> {
        let call = if self.form == Form::Through { SLED_CALL } else { 0 };
        let other = displacement(self.address.wrapping_add(call as u64), other)?;
        if let Some(free) = self.others.iter_mut().find(|place| place.is_none()) {
            *free = Some(other);
        }
        Ok(self)
    }

    fn may_call(&self, operand: [u8; 4]) -> bool {
        operand == self.displacement || self.others.contains(&Some(operand))
    }

    /// An XRay sled of this [`sled_kind`].
    ///
    /// # Errors
    /// Where there is no such kind, or the hook is too far away.
    pub fn of_sled(kind: u8, address: u64, hook: u64) -> Result<Site, Refusal> {
        let (form, call) = match kind {
            sled_kind::ENTRY | sled_kind::ENTRY_LOG_ARGS | sled_kind::TAIL_EXIT => (Form::Through, SLED_CALL),
            sled_kind::EXIT => (Form::Exit, 0),
            // They call no hook of ours.
            sled_kind::CUSTOM_EVENT => {
                return Ok(Site::new(Form::Event(0x0f), address, [0; 4]));
            }
            sled_kind::TYPED_EVENT => {
                return Ok(Site::new(Form::Event(0x14), address, [0; 4]));
            }
            _ => return Err(Refusal::UnknownKind),
        };
        Ok(Site::new(form, address, displacement(address.wrapping_add(call as u64), hook)?))
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes of it.
    #[must_use]
    pub fn size(&self) -> usize {
        match self.form {
            Form::Nop | Form::Return | Form::Call => SITE_SIZE,
            Form::Through | Form::Exit => SLED_SIZE,
            Form::Event(_) => EVENT_SIZE,
        }
    }

    /// The next step towards `to`, given the site's current [`Site::size`] bytes. `None` if it is
    /// done.
    ///
    /// # Errors
    /// Where the bytes or their place aren't as expected.
    pub fn step(&self, now: &[u8], to: Switch, stores: Stores) -> Result<Option<Step>, Refusal> {
        if let Form::Event(over) = self.form {
            return step_event(now, over, to);
        }
        match (self.form, now.first_chunk::<SITE_SIZE>(), now.first_chunk::<SLED_SIZE>()) {
            (Form::Nop, Some(now), _) => self.step_nop(*now, to, stores),
            (Form::Return, Some(now), _) => self.step_return(*now, to),
            (Form::Through, _, Some(now)) => self.step_through(now, to),
            (Form::Exit, _, Some(now)) => self.step_exit(now, to),
            (Form::Call, Some(now), _) => self.step_call(*now, stores),
            _ => Err(Refusal::UnexpectedBytes),
        }
    }

    fn step_nop(&self, now: [u8; 5], to: Switch, stores: Stores) -> Result<Option<Step>, Refusal> {
        let [a, b, c, d] = self.displacement;
        let call = [CALL, a, b, c, d];
        let goal = match to {
            Switch::Off => NOP5,
            Switch::On => call,
        };
        if now == goal {
            return Ok(None);
        }
        let [head, operand @ ..] = now;
        let is_ours = self.may_call(operand);
        let is_between = head == TEST && (is_ours || operand == NOP5[1..]);
        if !is_between && now != NOP5 && !(head == CALL && is_ours) {
            return Err(Refusal::UnexpectedBytes);
        }
        Ok(Some(self.step_five(now, goal, stores)))
    }

    /// Turns a call of one hook into one of another. In between, it calls neither.
    fn step_call(&self, now: [u8; 5], stores: Stores) -> Result<Option<Step>, Refusal> {
        let [a, b, c, d] = self.displacement;
        let goal = [CALL, a, b, c, d];
        let [head, operand @ ..] = now;
        let is_ours = self.may_call(operand);
        match head {
            _ if now == goal => Ok(None),
            CALL | TEST if is_ours => Ok(Some(self.step_five(now, goal, stores))),
            _ => Err(Refusal::UnexpectedBytes),
        }
    }

    /// The next step from five bytes to five others.
    fn step_five(&self, now: [u8; 5], goal: [u8; 5], stores: Stores) -> Step {
        let [head, operand @ ..] = now;
        if stores == Stores::Words && is_in_word(self.address, SITE_SIZE) {
            Step::new(0, &goal, true)
        } else if head != TEST {
            Step::new(0, &[TEST], true)
        } else if operand != goal[1..] {
            // Any operand will do, also half of each.
            Step::new(1, &goal[1..], false)
        } else {
            Step::new(0, &goal[..1], true)
        }
    }

    fn step_return(&self, now: [u8; 5], to: Switch) -> Result<Option<Step>, Refusal> {
        let [head, rest @ ..] = now;
        let is_ours = self.may_call(rest);
        match (head, to) {
            // One that was never on stays as it is: its page stays the file's.
            (RET, Switch::Off) if now == RETURN5 || is_ours => Ok(None),
            (RET, Switch::On) if rest == self.displacement => Ok(Some(Step::new(0, &[CALL], true))),
            (RET, Switch::On) if now == RETURN5 || is_ours => {
                Ok(Some(Step::new(1, &self.displacement, false)))
            }
            (CALL, Switch::On) if rest == self.displacement => Ok(None),
            // From one hook to another: in between, it calls neither.
            (CALL, _) if is_ours => Ok(Some(Step::new(0, &[RET], true))),
            _ => Err(Refusal::UnexpectedBytes),
        }
    }

    fn step_through(&self, now: &[u8; SLED_SIZE], to: Switch) -> Result<Option<Step>, Refusal> {
        let [a, b, c, d] = self.displacement;
        let third = if to == Switch::On { NOP3[2] } else { NOP8_THIRD };
        let rest = [CALL, a, b, c, d, NOP3[0], NOP3[1], NOP3[2]];
        let [first, second, there, behind @ ..] = *now;
        let is_third = there == NOP3[2] || there == NOP8_THIRD;
        let whole = || {
            let [e, f, g, h, i, j, k, l] = rest;
            Step::new(2, &[third, e, f, g, h, i, j, k, l], false)
        };
        if *now == SLED_JUMP {
            return Ok(Some(whole()));
        }
        let is_others = self.others.iter().flatten().any(|[a, b, c, d]| {
            behind == [CALL, *a, *b, *c, *d, NOP3[0], NOP3[1], NOP3[2]] && behind != rest
        });
        if is_others && is_third {
            return match ([first, second], there) {
                ([0xeb, 0x09], _) => Ok(Some(whole())),
                // In between, it calls no hook.
                ([0x0f, 0x1f], there) if there == NOP3[2] => Ok(Some(Step::new(2, &[NOP8_THIRD], true))),
                ([0x0f, 0x1f], _) if to == Switch::Off => Ok(None),
                // Any operand of a NOP will do.
                ([0x0f, 0x1f], _) => Ok(Some(Step::new(4, &self.displacement, false))),
                _ => Err(Refusal::UnexpectedBytes),
            };
        }
        if behind != rest || !is_third {
            return Err(Refusal::UnexpectedBytes);
        }
        match [first, second] {
            [0x0f, 0x1f] if there == third => Ok(None),
            [0x0f, 0x1f] => Ok(Some(Step::new(2, &[third], true))),
            // Bytes behind the jump are never executed.
            [0xeb, 0x09] if there != third => Ok(Some(Step::new(2, &[third], false))),
            [0xeb, 0x09] if is_in_word(self.address, 2) => Ok(Some(Step::new(0, &NOP3[..2], true))),
            [0xeb, 0x09] => Err(Refusal::Misplaced),
            _ => Err(Refusal::UnexpectedBytes),
        }
    }

    fn step_exit(&self, now: &[u8; SLED_SIZE], to: Switch) -> Result<Option<Step>, Refusal> {
        let [a, b, c, d] = self.displacement;
        let body = [a, b, c, d, RET];
        let [head, e, f, g, h, ret, rest @ ..] = *now;
        let is_sled = ret == RET && rest == SLED_RET[6..];
        let is_goal = is_sled && [e, f, g, h] == self.displacement;
        let is_ours = is_sled && self.may_call([e, f, g, h]);
        match (head, to) {
            // One that was never on stays as it is.
            (RET, Switch::Off) if *now == SLED_RET || is_ours => Ok(None),
            (RET, Switch::On) if is_goal => Ok(Some(Step::new(0, &[CALL], true))),
            (RET, Switch::On) if *now == SLED_RET || is_ours => Ok(Some(Step::new(1, &body, false))),
            (CALL, Switch::On) if is_goal => Ok(None),
            // From one hook to another: in between, it calls neither.
            (CALL, _) if is_ours => Ok(Some(Step::new(0, &[RET], true))),
            _ => Err(Refusal::UnexpectedBytes),
        }
    }
}

fn step_event(now: &[u8], over: u8, to: Switch) -> Result<Option<Step>, Refusal> {
    let goal = if to == Switch::On { 0 } else { over };
    match now {
        [JUMP, there] if *there == goal => Ok(None),
        [JUMP, there] if *there == 0 || *there == over => Ok(Some(Step::new(1, &[goal], true))),
        _ => Err(Refusal::UnexpectedBytes),
    }
}

#[cfg(test)]
mod tests;
