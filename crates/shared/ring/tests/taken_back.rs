//! Words that a thread takes back while a reader copies them: in every order that the C11 memory
//! model allows, as far as loom models it, the words that a reader accepts are the beginning of
//! what the ring contained at one moment.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p everycall-ring --test taken_back`
//!
//! Hooks' stores are ordered on x86-64, so they are releases here. A reader copies twice, with a
//! fence in between, and accepts the words that are the same, up to the first difference
//! (`keep_settled` of `crates/files/tracefile`, and its likes in `crates/processes/live` and in the
//! runtime's snapshots).
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release, fence};

const WORDS: usize = 3;

/// A step of the thread: it writes a word at the end, or takes back the last ones. Words are never
/// equal, as they have their times.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u64),
    TakeBack(usize),
}
use Step::{TakeBack, Write};

/// Does the steps. The ring's contents after each store are passed to `then`.
fn write(steps: &[Step], mut store: impl FnMut(usize, u64), mut then: impl FnMut(&[u64; WORDS])) {
    let (mut held, mut next) = ([0; WORDS], 0);
    then(&held);
    for step in steps {
        match *step {
            Write(word) => {
                held[next] = word;
                store(next, word);
                next += 1;
                then(&held);
            }
            // The last word first, as the exit hook does it.
            TakeBack(count) => {
                for _ in 0..count {
                    next -= 1;
                    held[next] = 0;
                    store(next, 0);
                    then(&held);
                }
            }
        }
    }
}

fn check(steps: &'static [Step], keeps_settled: bool) {
    loom::model(move || {
        let words: Arc<[AtomicU64; WORDS]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let reader = loom::thread::spawn({
            let words = Arc::clone(&words);
            move || {
                let copy = || -> [u64; WORDS] { std::array::from_fn(|index| words[index].load(Acquire)) };
                let first = copy();
                fence(Acquire);
                let again = copy();
                let same = first.iter().zip(&again).take_while(|(one, other)| one == other).count();
                let kept = if keeps_settled { same } else { WORDS };
                let kept = first[..kept].iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
                (first, kept)
            }
        });
        write(steps, |index, word| words[index].store(word, Release), |_| ());
        let (copy, kept) = reader.join().unwrap();
        let mut was_so = false;
        write(steps, |_, _| (), |held| was_so |= held[..kept] == copy[..kept]);
        assert!(was_so, "{:?} of {steps:?}", &copy[..kept]);
    });
}

/// A call that is open calls one after the other: short ones are taken back, entry and exit.
const CALLS: [&[Step]; 4] = [
    &[Write(1), Write(2), TakeBack(1), Write(3), Write(4)],
    &[Write(1), Write(2), Write(3), TakeBack(2), Write(4), Write(5)],
    &[Write(1), Write(2), TakeBack(2), Write(3), Write(4)],
    &[Write(1), TakeBack(1), Write(2), Write(3), TakeBack(2), Write(4)],
];

#[test]
fn what_is_the_same_twice_was_there_at_once() {
    for steps in CALLS {
        check(steps, true);
    }
}

#[test]
#[should_panic]
fn one_copy_mixes_moments() {
    for steps in CALLS {
        check(steps, false);
    }
}
