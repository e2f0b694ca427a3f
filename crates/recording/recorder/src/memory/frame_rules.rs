//! Triggers in a fresh arena: their number, and what they say of frames by id.

use everycall_format::Wire;
use everycall_format::trigger::{CALLS_OFFSET, FrameRule, RULES, TriggerRule, places_of_texts, rule_at};

/// Triggers as a fresh arena gets them.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub count: u32,
    /// The bytes from the first rule up to the calls; nothing if no rule is about frames.
    pub of_frames: Vec<u8>,
}

impl Rules {
    /// All triggers, with what each one says of frames.
    pub fn of(rules: &[FrameRule<'_>]) -> Rules {
        Rules { count: rules.len().min(RULES as usize) as u32, of_frames: encoded(rules) }
    }
}

fn encoded(rules: &[FrameRule<'_>]) -> Vec<u8> {
    let rules = rules.get(..RULES as usize).unwrap_or(rules);
    if rules.iter().all(|rule| rule.pattern.is_empty()) {
        return Vec::new();
    }
    let mut bytes = vec![0; RULES as usize * TriggerRule::SIZE];
    let patterns = rules.iter().map(|rule| rule.pattern);
    for ((place, rule), (at, length)) in
        bytes.chunks_exact_mut(TriggerRule::SIZE).zip(rules).zip(places_of_texts(patterns))
    {
        let wire = TriggerRule {
            frames_threshold: rule.threshold,
            frames_flags: rule.flags,
            frames_at: at,
            frames_length: length,
            ..TriggerRule::default()
        };
        wire.write(place);
    }
    // In their order, without gaps.
    let patterns = rules.iter().map(|rule| rule.pattern);
    for (rule, (_, length)) in rules.iter().zip(places_of_texts(patterns)) {
        bytes.extend_from_slice(rule.pattern.get(..length.into()).unwrap_or_default());
    }
    debug_assert!(bytes.len() as u64 <= CALLS_OFFSET - rule_at(0));
    bytes
}

#[cfg(test)]
mod tests {
    use everycall_format::trigger::{FRAME_TEXTS_OFFSET, FRAME_TEXTS_SIZE, NEVER};

    use super::*;

    #[test]
    fn rules_and_their_patterns_are_where_the_runtime_looks() {
        let long = vec![b'x'; FRAME_TEXTS_SIZE as usize];
        let rules = [
            FrameRule { pattern: b"app.handle", threshold: 7, flags: 1 },
            FrameRule::default(),
            FrameRule { pattern: &long, threshold: 8, flags: 0 },
            FrameRule { pattern: b"f", threshold: NEVER, flags: 2 },
        ];
        let bytes = encoded(&rules);
        let rule = |index: u32| TriggerRule::read(&bytes[(rule_at(index) - rule_at(0)) as usize..]).unwrap();
        let texts = &bytes[(FRAME_TEXTS_OFFSET - rule_at(0)) as usize..];
        let text = |index: u32| {
            let (at, length) = (rule(index).frames_at as usize, rule(index).frames_length as usize);
            &texts[at..at + length]
        };
        assert_eq!((text(0), text(1), text(2), text(3)), (&b"app.handle"[..], &b""[..], &b""[..], &b"f"[..]));
        assert_eq!((rule(0).frames_threshold, rule(0).frames_flags, rule(3).frames_threshold), (7, 1, NEVER));
        assert!(encoded(&rules[1..2]).is_empty() && encoded(&[]).is_empty());
    }
}
