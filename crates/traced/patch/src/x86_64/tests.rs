//! Every state of every site on every way between off and on, run by an independent disassembler
//! from wherever a thread may be.

extern crate std;

use super::*;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use std::collections::BTreeSet;
use std::vec::Vec;

const HOOK: u64 = 0x2000;

/// A site as compiled, and the bytes that may precede it in an aligned word.
fn all() -> Vec<(Site, Vec<u8>)> {
    let mut sites = Vec::new();
    for address in 0x1000..0x1010 {
        // Far, near, and the displacement that is the NOP's own rest.
        for hook in [HOOK, 0x7000_0000, address + 5 + 0x441f] {
            for kind in [site_kind::ENTRY, site_kind::EXIT, site_kind::TAIL_EXIT] {
                sites.push((Site::of_nops(kind, address, hook).unwrap(), NOP5.to_vec()));
            }
            sites.push((Site::of_nops(site_kind::RETURN, address, hook).unwrap(), RETURN5.to_vec()));
            if address % 2 == 0 {
                for kind in [sled_kind::ENTRY, sled_kind::TAIL_EXIT, sled_kind::ENTRY_LOG_ARGS] {
                    sites.push((Site::of_sled(kind, address, hook).unwrap(), SLED_JUMP.to_vec()));
                }
                sites.push((Site::of_sled(sled_kind::EXIT, address, hook).unwrap(), SLED_RET.to_vec()));
            }
        }
    }
    sites
}

/// The effect of a site on a thread that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Nothing, and leaves it at its end or by its `ret`.
    Passes,
    /// Calls the hook first.
    Calls,
}

impl Site {
    fn hook(&self) -> u64 {
        let call = if self.form == Form::Through { 3 } else { 0 };
        (self.address + call + 5).wrapping_add_signed(i32::from_le_bytes(self.displacement).into())
    }

    /// Runs the bytes from `place` on, and adds the places that the thread passes. Panics where it
    /// does anything that it must not.
    fn run(&self, bytes: &[u8], place: usize, places: &mut BTreeSet<usize>) -> Does {
        // A function's own `ret` follows the sites of mode `nops`.
        let mut text = bytes.to_vec();
        text.push(RET);
        let end = self.address + bytes.len() as u64;
        let mut does = Does::Passes;
        let mut at = self.address + place as u64;
        while at != end {
            places.insert((at - self.address) as usize);
            let offset = (at - self.address) as usize;
            let mut instruction = Instruction::default();
            let mut decoder = Decoder::with_ip(64, &text[offset..], at, DecoderOptions::NONE);
            decoder.decode_out(&mut instruction);
            let what = || std::format!("{self:x?} {bytes:02x?} at {offset}: {instruction:?}");
            assert!(!instruction.is_invalid(), "{}", what());
            at = match instruction.flow_control() {
                FlowControl::Next => {
                    let is_nop = instruction.mnemonic() == Mnemonic::Nop;
                    let is_test = instruction.code() == Code::Test_EAX_imm32
                        && instruction.op0_register() == Register::EAX;
                    assert!(is_nop || is_test, "{}", what());
                    instruction.next_ip()
                }
                FlowControl::UnconditionalBranch => instruction.near_branch_target(),
                FlowControl::Call => {
                    assert_eq!(instruction.near_branch_target(), self.hook(), "{}", what());
                    assert_eq!(does, Does::Passes, "{}", what());
                    does = Does::Calls;
                    instruction.next_ip()
                }
                FlowControl::Return => {
                    assert!(matches!(self.form, Form::Return | Form::Exit), "{}", what());
                    return does;
                }
                _ => panic!("{}", what()),
            };
            assert!((self.address..=end).contains(&at), "{}", what());
        }
        assert!(self.form != Form::Exit, "falls out of an exit: {self:x?} {bytes:02x?}");
        does
    }

    /// Runs them from everywhere that a thread may be.
    fn run_all(&self, bytes: &[u8], places: &mut BTreeSet<usize>) -> Does {
        for place in places.clone() {
            self.run(bytes, place, places);
        }
        self.run(bytes, 0, places)
    }
}

/// The bytes that others may see during a store that isn't whole.
fn torn(bytes: &[u8], step: &Step) -> Vec<Vec<u8>> {
    let subsets = 0..1_u32 << step.length;
    let written = |subset: u32| {
        let mut bytes = bytes.to_vec();
        for (index, byte) in step.text().iter().enumerate() {
            if subset >> index & 1 != 0 {
                bytes[step.at + index] = *byte;
            }
        }
        bytes
    };
    subsets.map(written).collect()
}

/// Goes all the way; how many steps it took. `seen` gets every state.
fn go(
    site: &Site,
    bytes: &mut [u8],
    to: Switch,
    stores: Stores,
    places: &mut BTreeSet<usize>,
    seen: &mut BTreeSet<Vec<u8>>,
) -> Result<usize, Refusal> {
    let mut steps = 0;
    while let Some(step) = site.step(bytes, to, stores)? {
        assert!(step.length > 0 && step.at + step.length <= site.size());
        if step.is_run {
            assert!(is_in_word(site.address() + step.at as u64, step.length), "{site:?} {step:?}");
            let is_compiled = bytes[0] == SLED_JUMP[0] && site.form == Form::Through;
            assert!(step.length == 1 || stores == Stores::Words || is_compiled, "{site:?} {step:?}");
        } else {
            for state in torn(bytes, &step) {
                site.run_all(&state, places);
            }
        }
        bytes[step.at..step.at + step.length].copy_from_slice(step.text());
        site.run_all(bytes, places);
        seen.insert(bytes.to_vec());
        steps += 1;
        assert!(steps <= STEPS_MAX);
    }
    let does = site.run_all(bytes, places);
    assert_eq!(does, if to == Switch::On { Does::Calls } else { Does::Passes });
    Ok(steps)
}

#[test]
fn every_patching_state_decodes_to_whole_instructions() {
    for (site, compiled) in all() {
        for stores in [Stores::Words, Stores::Bytes] {
            // Forms that a site may have, each with the places where threads may be.
            let mut seen = BTreeSet::from([compiled.clone()]);
            loop {
                let before = seen.clone();
                for start in &before {
                    for to in [Switch::On, Switch::Off, Switch::On] {
                        for turn in [false, true] {
                            // Wherever a thread may be in any form seen before: then back again.
                            let mut places = BTreeSet::from([0]);
                            let mut bytes = start.clone();
                            let other = if to == Switch::On { Switch::Off } else { Switch::On };
                            let ways = if turn { &[to, other][..] } else { &[to, other, to][..] };
                            for way in ways {
                                go(&site, &mut bytes, *way, stores, &mut places, &mut seen).unwrap();
                            }
                        }
                    }
                }
                if seen == before {
                    break;
                }
            }
            assert!(seen.len() <= 8, "{site:?}: {seen:02x?}");
        }
    }
}

#[test]
fn stores_of_words_need_one_step_and_others_three() {
    let site = Site::of_nops(site_kind::ENTRY, 0x1003, HOOK).unwrap();
    let crossing = Site::of_nops(site_kind::ENTRY, 0x1004, HOOK).unwrap();
    for (site, stores, expected) in
        [(site, Stores::Words, 1), (site, Stores::Bytes, 3), (crossing, Stores::Words, 3)]
    {
        let mut bytes = NOP5.to_vec();
        for to in [Switch::On, Switch::Off] {
            let mut places = BTreeSet::new();
            let steps = go(&site, &mut bytes, to, stores, &mut places, &mut BTreeSet::new()).unwrap();
            assert_eq!(steps, expected, "{site:?} {stores:?} {to:?}");
        }
        assert_eq!(bytes, NOP5, "off is as it was compiled");
    }
    for (site, compiled) in [
        (Site::of_sled(sled_kind::ENTRY, 0x1000, HOOK).unwrap(), SLED_JUMP),
        (Site::of_sled(sled_kind::EXIT, 0x1000, HOOK).unwrap(), SLED_RET),
    ] {
        let mut bytes = compiled.to_vec();
        let step = |bytes: &mut [u8], to| {
            go(&site, bytes, to, Stores::Bytes, &mut BTreeSet::new(), &mut BTreeSet::new()).unwrap()
        };
        assert_eq!(step(&mut bytes, Switch::On), 2);
        assert_eq!(step(&mut bytes, Switch::Off), 1);
        assert_eq!(step(&mut bytes, Switch::On), 1);
    }
}

#[test]
fn those_that_were_never_on_stay_as_they_are() {
    let site = Site::of_nops(site_kind::RETURN, 0x1000, HOOK).unwrap();
    assert_eq!(site.step(&RETURN5, Switch::Off, Stores::Words), Ok(None));
    let sled = Site::of_sled(sled_kind::EXIT, 0x1000, HOOK).unwrap();
    assert_eq!(sled.step(&SLED_RET, Switch::Off, Stores::Words), Ok(None));
}

#[test]
fn strangers_are_refused_at_every_byte() {
    for (site, compiled) in all() {
        for stores in [Stores::Words, Stores::Bytes] {
            let mut seen = BTreeSet::from([compiled.clone()]);
            for to in [Switch::On, Switch::Off, Switch::On] {
                let mut bytes = compiled.clone();
                go(&site, &mut bytes, to, stores, &mut BTreeSet::from([0]), &mut seen).unwrap();
            }
            for bytes in &seen {
                for place in 0..bytes.len() {
                    // A breakpoint.
                    let mut broken = bytes.clone();
                    broken[place] = 0xcc;
                    if seen.contains(&broken) {
                        continue;
                    }
                    for to in [Switch::On, Switch::Off] {
                        let step = site.step(&broken, to, stores);
                        assert_eq!(step, Err(Refusal::UnexpectedBytes), "{site:?} {broken:02x?}");
                    }
                }
            }
        }
        assert_eq!(
            site.step(&compiled[1..], Switch::On, Stores::Words),
            Err(Refusal::UnexpectedBytes),
            "too few bytes"
        );
    }
    assert_eq!(Site::of_nops(4, 0x1000, HOOK), Err(Refusal::UnknownKind));
    assert_eq!(Site::of_sled(6, 0x1000, HOOK), Err(Refusal::UnknownKind));
    assert_eq!(Site::of_nops(0, 0x1000, 0x1_0000_0000), Err(Refusal::OutOfReach));
    assert_eq!(Site::of_sled(0, 0x1000, 0x1_0000_0000), Err(Refusal::OutOfReach));
    assert!(Site::of_nops(0, 0x2000_0000, 0x1000).is_ok(), "backwards");
    // Two bytes of a sled change at once when it leaves its compiled form: they must not cross
    // words.
    let odd = Site::of_sled(sled_kind::ENTRY, 0x1007, HOOK).unwrap();
    let mut bytes = SLED_JUMP.to_vec();
    let way = go(&odd, &mut bytes, Switch::On, Stores::Words, &mut BTreeSet::from([0]), &mut BTreeSet::new());
    assert_eq!(way, Err(Refusal::Misplaced));
}

/// Each way is one store of one byte, after which the jump leads over the event's code or to it.
#[test]
fn events_are_jumped_over_or_not() {
    for (kind, over) in [(sled_kind::CUSTOM_EVENT, 0x0f), (sled_kind::TYPED_EVENT, 0x14)] {
        for address in [0x1000, 0x1007] {
            let site = Site::of_sled(kind, address, 0).unwrap();
            let mut bytes = [0xeb, over];
            for to in [Switch::Off, Switch::On, Switch::On, Switch::Off] {
                for stores in [Stores::Words, Stores::Bytes] {
                    if let Some(step) = site.step(&bytes, to, stores).unwrap() {
                        assert_eq!((step.at, step.length, step.is_run), (1, 1, true));
                        bytes[1] = step.text()[0];
                    }
                    let target = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE)
                        .decode()
                        .near_branch_target();
                    let wanted = if to == Switch::On { 0 } else { over };
                    assert_eq!(target, address + 2 + u64::from(wanted), "{to:?}");
                }
            }
            for strange in [[0x66, 0x90], [0xcc, over], [0xeb, 0x10], [0xeb, 0xcc]] {
                for to in [Switch::Off, Switch::On] {
                    assert_eq!(site.step(&strange, to, Stores::Words), Err(Refusal::UnexpectedBytes));
                }
            }
            assert_eq!(site.step(&[0xeb], Switch::On, Stores::Words), Err(Refusal::UnexpectedBytes));
        }
    }
}

/// The target of the call that a thread makes from the site's begin, if any: every step is a whole
/// instruction, and none has another effect.
fn called(site: &Site, bytes: &[u8]) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, bytes, site.address(), DecoderOptions::NONE);
    let mut called = None;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        match instruction.mnemonic() {
            Mnemonic::Call => called = Some(instruction.near_branch_target()),
            Mnemonic::Nop | Mnemonic::Test => {}
            Mnemonic::Ret => return called,
            other => panic!("{other:?} in {bytes:x?}"),
        }
    }
    called
}

#[test]
fn a_site_goes_from_one_hook_to_another() {
    const OTHER: u64 = 0x7000_0123;
    const THIRD: u64 = 0x7000_4567;
    for address in 0x1000..0x1010 {
        let mut sites = std::vec![
            (Site::of_nops(site_kind::TAIL_EXIT, address, HOOK).unwrap(), NOP5.to_vec()),
            (Site::of_call(address, HOOK).unwrap(), Vec::new()),
        ];
        if address % 2 == 0 {
            let sled = Site::of_sled(sled_kind::TAIL_EXIT, address, HOOK).unwrap();
            sites.push((sled, SLED_JUMP.to_vec()));
        }
        let exit = Site::of_sled(sled_kind::EXIT, address, HOOK).unwrap();
        sites.push((exit, SLED_RET.to_vec()));
        sites.push((Site::of_nops(site_kind::RETURN, address, HOOK).unwrap(), RETURN5.to_vec()));
        for (site, compiled) in sites {
            let is_call = compiled.is_empty();
            let bytes_of = |hook: u64| {
                let call = if site.form == Form::Through { 3 } else { 0 };
                let [a, b, c, d] = displacement(address + call, hook).unwrap();
                match site.form {
                    Form::Through => std::vec![0x0f, 0x1f, 0, CALL, a, b, c, d, 0x0f, 0x1f, 0],
                    Form::Exit => [&[CALL, a, b, c, d, RET], &SLED_RET[6..]].concat(),
                    _ => std::vec![CALL, a, b, c, d],
                }
            };
            let site = site.instead_of(THIRD).and_then(|site| site.instead_of(OTHER)).unwrap();
            for stores in [Stores::Words, Stores::Bytes] {
                let mut ways = std::vec![(bytes_of(OTHER), Switch::On)];
                if !is_call {
                    ways.push((compiled.clone(), Switch::On));
                    ways.push((bytes_of(OTHER), Switch::Off));
                }
                for (mut bytes, to) in ways {
                    let mut steps = 0;
                    while let Some(step) = site.step(&bytes, to, stores).unwrap() {
                        bytes[step.at..step.at + step.length].copy_from_slice(step.text());
                        if bytes[0] != 0xeb {
                            let hook = called(&site, &bytes);
                            assert!(
                                hook.is_none_or(|hook| [HOOK, OTHER].contains(&hook)),
                                "{hook:x?} {bytes:x?}"
                            );
                        }
                        steps += 1;
                        assert!(steps <= STEPS_MAX, "{site:?} {stores:?}");
                    }
                    let expected = if to == Switch::On { Some(HOOK) } else { None };
                    assert_eq!(called(&site, &bytes), expected, "{site:?} {bytes:x?}");
                }
                let foreign = bytes_of(0x1234_5678);
                assert_eq!(site.step(&foreign, Switch::On, stores), Err(Refusal::UnexpectedBytes));
            }
        }
    }
}
