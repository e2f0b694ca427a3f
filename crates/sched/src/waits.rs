//! In which system call threads wait: `/proc/PID/task/TID/syscall`, read once for each wait that
//! goes on when the kernel's events are read. It needs no privileges beyond those of a program's
//! parent.

use std::fs::File;
use std::io::Read;

use everycall_format::sched::{SchedEvent, kind, state};
use rustc_hash::FxHashMap;

/// Threads that are looked at in one turn: it takes some 10 us for each.
const MOST: usize = 64;

/// The threads that wait, as far as it isn't known in which call.
#[derive(Debug, Default)]
pub struct Waits {
    /// By thread id: the event with which it began to wait, and, while they are checked, the number
    /// of its call.
    threads: FxHashMap<u32, (SchedEvent, Option<u32>)>,
}

impl Waits {
    /// Takes note of an event.
    pub fn note(&mut self, event: &SchedEvent) {
        match (event.kind, event.state) {
            (kind::OFF, state::BLOCKED | state::SLEEPING | state::UNINTERRUPTIBLE) => {
                self.threads.insert(event.tid, (*event, None));
            }
            // An event that ended a wait may be among those that were lost.
            (kind::LOST | kind::WAKEUPS_LOST, _) => self.threads.clear(),
            _ => {
                self.threads.remove(&event.tid);
            }
        }
    }

    /// Asks the kernel in which calls threads wait. Returns whether there are answers. They count
    /// for threads of which no event comes that was before them.
    pub fn ask(&mut self) -> bool {
        let first: Vec<(u32, SchedEvent)> =
            self.threads.iter().take(MOST).map(|(tid, (event, _))| (*tid, *event)).collect();
        let mut is_answered = false;
        for (tid, event) in first {
            // Of each wait, once.
            match call_of(event.pid, tid) {
                Some(number) => {
                    self.threads.insert(tid, (event, Some(number)));
                    is_answered = true;
                }
                None => {
                    self.threads.remove(&tid);
                }
            }
        }
        is_answered
    }

    /// The events of those that still wait, with the call.
    pub fn answered(&mut self) -> Vec<SchedEvent> {
        let mut answered = Vec::new();
        self.threads.retain(|_, (event, number)| {
            let other = number.and_then(|number| number.checked_add(1));
            answered.extend(other.map(|other| SchedEvent { other, ..*event }));
            number.is_none()
        });
        answered
    }
}

/// The number of the system call in which a thread waits; `None` if it doesn't wait in one, or the
/// kernel doesn't tell.
pub fn call_of(pid: u32, tid: u32) -> Option<u32> {
    let mut text = [0; 256];
    let length = File::open(format!("/proc/{pid}/task/{tid}/syscall")).ok()?.read(&mut text).ok()?;
    number(text.get(..length)?)
}

/// The first word, which is `running` for a thread that doesn't wait, and -1 for one that waits
/// elsewhere, as for a page.
fn number(text: &[u8]) -> Option<u32> {
    str::from_utf8(text).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::WaitingThread;

    #[test]
    fn what_the_kernel_says() {
        let said =
            [&b"202 0x7ffd 0x80 0x0 0x0 0x0 0x0 0x7ffe 0x7f1d\n"[..], b"running\n", b"-1 0x1 0x2\n", b""];
        assert_eq!(said.map(number), [Some(202), None, None, None]);
    }

    /// A thread that waits for a futex, until it is told to end.
    #[test]
    fn a_wait_has_its_call_unless_it_has_ended() {
        let thread = WaitingThread::start();
        let (pid, tid) = (std::process::id(), thread.tid);
        let off = SchedEvent {
            time: 5,
            pid,
            tid,
            kind: kind::OFF,
            state: state::SLEEPING,
            ..SchedEvent::default()
        };
        let mut waits = Waits::default();
        while call_of(pid, tid).is_none() {
            std::thread::yield_now();
        }
        waits.note(&off);
        assert!(waits.ask());
        let futex = SchedEvent { other: 202 + 1, ..off };
        assert_eq!(waits.answered(), [futex]);
        assert!(!waits.ask() && waits.answered().is_empty(), "each wait once");
        // Meanwhile, it was woken, or that may have been lost.
        for meanwhile in [kind::WOKEN, kind::ON, kind::ENDED, kind::LOST] {
            waits.note(&off);
            assert!(waits.ask());
            waits.note(&SchedEvent { kind: meanwhile, state: 0, ..off });
            assert!(waits.answered().is_empty(), "{meanwhile}");
        }
        // It waits again: that is another wait.
        waits.note(&off);
        assert!(waits.ask());
        waits.note(&SchedEvent { time: 9, ..off });
        assert!(waits.answered().is_empty());
        assert!(waits.ask());
        assert_eq!(waits.answered(), [SchedEvent { time: 9, ..futex }]);
        // It could run on.
        waits.note(&SchedEvent { state: state::RUNNABLE, ..off });
        assert!(!waits.ask());
        thread.end();
        waits.note(&off);
        assert!(!waits.ask() && waits.threads.is_empty());
    }
}
