//! Every state of every site, its steps, and what is refused.

extern crate std;

use super::*;
use everycall_format::site::sled_kind;
use std::vec::Vec;

const SITE: u64 = 0x55_0040_1000;

fn bytes(words: [u32; 2]) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Takes a step, and returns the words afterwards.
fn stepped(site: &Site, now: [u32; 2], to: Switch) -> Option<[u32; 2]> {
    let mut bytes = bytes(now);
    let step = site.step(&bytes, to, Stores::Words).unwrap()?;
    assert!(step.is_run && step.length == 4 && (site.address() + step.at as u64).is_multiple_of(4));
    bytes[step.at..step.at + step.length].copy_from_slice(step.text());
    assert_eq!(site.step(&bytes, to, Stores::Words), Ok(None), "one step is all");
    let (words, _) = bytes.as_chunks::<4>();
    Some([0, 1].map(|index: usize| u32::from_le_bytes(words[index])))
}

#[test]
fn one_word_changes_between_nop_and_call() {
    for hook in [SITE + 0x2000, SITE - 0x2000, SITE + 4 + (1 << 27) - 4, SITE + 4 - (1 << 27)] {
        for kind in [site_kind::ENTRY, site_kind::EXIT, site_kind::TAIL_EXIT] {
            let site = Site::of_nops(kind, SITE, hook).unwrap();
            assert_eq!(stepped(&site, [SAVE, NOP], Switch::Off), None);
            let on = stepped(&site, [SAVE, NOP], Switch::On).unwrap();
            assert_eq!((on[0], on[1] >> 26), (SAVE, 0b10_0101));
            let target = Site::call_target(bytes(on).try_into().unwrap(), SITE);
            assert_eq!(target, hook);
            assert_eq!(stepped(&site, on, Switch::On), None);
            assert_eq!(stepped(&site, on, Switch::Off), Some([SAVE, NOP]));
        }
    }
}

#[test]
fn hooks_replace_each_other_at_once() {
    let [first, second] = [SITE + 0x2000, SITE + 0x4000];
    let on = |hook| stepped(&Site::of_nops(0, SITE, hook).unwrap(), [SAVE, NOP], Switch::On).unwrap();
    let site = Site::of_nops(0, SITE, second).unwrap();
    assert_eq!(site.step(&bytes(on(first)), Switch::On, Stores::Words), Err(Refusal::UnexpectedBytes));
    let site = site.instead_of(first).unwrap();
    assert_eq!(stepped(&site, on(first), Switch::On), Some(on(second)));
    assert_eq!(stepped(&site, on(first), Switch::Off), Some([SAVE, NOP]));
    let call = Site::of_call(SITE + 4, second).and_then(|site| site.instead_of(first)).unwrap();
    let step = call.step(&on(first)[1].to_le_bytes(), Switch::Off, Stores::Words).unwrap().unwrap();
    assert_eq!(step.text(), on(second)[1].to_le_bytes(), "a call is never off");
}

#[test]
fn strangers_are_refused() {
    let site = Site::of_nops(0, SITE, SITE + 0x2000).unwrap();
    for words in [[NOP, NOP], [NOP, 0x9400_0800], [SAVE, 0xd65f_03c0], [SAVE, SAVE], [0, 0]] {
        for to in [Switch::Off, Switch::On] {
            let refused = site.step(&bytes(words), to, Stores::Words);
            assert_eq!(refused, Err(Refusal::UnexpectedBytes), "{words:x?}");
        }
    }
    assert_eq!(site.step(&[0; 3], Switch::On, Stores::Words), Err(Refusal::UnexpectedBytes));
    let far = |distance: u64| Site::of_nops(0, SITE, SITE.wrapping_add(4).wrapping_add(distance));
    assert_eq!(far(1 << 27), Err(Refusal::OutOfReach));
    assert_eq!(far((1_u64 << 27).wrapping_neg() - 4), Err(Refusal::OutOfReach));
    assert_eq!(far(2), Err(Refusal::Misplaced));
    assert_eq!(Site::of_nops(site_kind::RETURN, SITE, SITE), Err(Refusal::UnknownKind));
    assert_eq!(Site::of_sled(sled_kind::ENTRY, SITE, SITE), Err(Refusal::UnknownKind));
}
