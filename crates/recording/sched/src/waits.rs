//! How threads wait, looked up once for each wait that lasts when the kernel's events are read: in
//! which system call (`/proc/PID/task/TID/syscall`), and in which way, where the events don't say
//! it (`stat` beside it). It needs no privileges beyond those of a program's parent.

use std::fs::File;
use std::io::Read;

use everycall_format::sched::{SchedEvent, kind, state};
use rustc_hash::FxHashMap;

/// Threads that are looked at in one turn: it takes some 10 us for each.
const MOST: usize = 64;

/// The threads that wait, as far as they weren't asked about.
#[derive(Debug, Default)]
pub struct Waits {
    /// By thread id: the event with which it began to wait, and, while they are checked, the same
    /// with the answers.
    threads: FxHashMap<u32, (SchedEvent, Option<SchedEvent>)>,
    /// By thread id: the newest event of which the others don't know yet.
    newest: FxHashMap<u32, SchedEvent>,
}

impl Waits {
    /// Takes note of an event. Those of a thread needn't come in order: it was on several CPUs.
    pub fn note(&mut self, event: &SchedEvent) {
        if matches!(event.kind, kind::LOST | kind::WAKEUPS_LOST) {
            // An event that ended a wait may be among those.
            self.threads.clear();
            self.newest.clear();
            return;
        }
        let newest = self.newest.entry(event.tid).or_insert(*event);
        if event.time >= newest.time {
            *newest = *event;
        }
    }

    /// Which threads wait now. There are many events of a thread for each time that this is asked.
    fn settle(&mut self) {
        for (tid, event) in self.newest.drain() {
            match (event.kind, event.state) {
                (kind::OFF, state::BLOCKED | state::SLEEPING | state::UNINTERRUPTIBLE) => {
                    self.threads.insert(tid, (event, None));
                }
                _ => {
                    self.threads.remove(&tid);
                }
            }
        }
    }

    /// Asks the kernel how threads wait. Returns whether there are answers. They count for threads
    /// of which no event comes that was before them.
    pub fn ask(&mut self) -> bool {
        self.settle();
        let first: Vec<(u32, SchedEvent)> =
            self.threads.iter().take(MOST).map(|(tid, (event, _))| (*tid, *event)).collect();
        let mut is_answered = false;
        for (tid, event) in first {
            // Of each wait, once.
            match answer(event) {
                Some(answer) => {
                    self.threads.insert(tid, (event, Some(answer)));
                    is_answered = true;
                }
                None => {
                    self.threads.remove(&tid);
                }
            }
        }
        is_answered
    }

    /// The events of those that still wait, with the answers.
    pub fn answered(&mut self) -> Vec<SchedEvent> {
        self.settle();
        let mut answered = Vec::new();
        self.threads.retain(|_, (_, answer)| {
            answered.extend(*answer);
            answer.is_none()
        });
        answered
    }
}

/// The event with what the kernel says of the thread now; `None` if that is no more.
fn answer(event: SchedEvent) -> Option<SchedEvent> {
    let call = call_of(event.pid, event.tid).and_then(|number| number.checked_add(1));
    let is_asked = event.state == state::BLOCKED;
    let way = is_asked.then(|| way_of(event.pid, event.tid)).flatten();
    let answer = SchedEvent { other: call.unwrap_or(0), state: way.unwrap_or(event.state), ..event };
    (answer != event).then_some(answer)
}

/// In which way a thread waits; `None` if it doesn't.
fn way_of(pid: u32, tid: u32) -> Option<u8> {
    match letter(&format!("/proc/{pid}/task/{tid}/stat"))? {
        b'S' => Some(state::SLEEPING),
        b'D' => Some(state::UNINTERRUPTIBLE),
        b'T' | b't' => Some(state::STOPPED),
        _ => None,
    }
}

/// The state of a thread, by its `stat`.
pub fn letter(stat: &str) -> Option<u8> {
    // The name before it may have any characters, 15 at most.
    let mut text = [0; 64];
    let length = File::open(stat).ok()?.read(&mut text).ok()?;
    let text = text.get(..length)?;
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    text.get(name_end + 2).copied()
}

/// The number of the system call in which a thread waits; `None` if it doesn't wait in one, or the
/// kernel doesn't say.
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

    /// A thread that waits for a futex until the test ends it.
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
        // If no event says in which way it waits, that is looked up as well.
        waits.note(&SchedEvent { state: state::BLOCKED, ..off });
        assert!(waits.ask());
        assert_eq!(waits.answered(), [futex]);
        assert!(!waits.ask() && waits.answered().is_empty(), "each wait once");
        // Meanwhile, it was woken, or that may have been lost.
        for meanwhile in [kind::WOKEN, kind::ON, kind::ENDED, kind::LOST] {
            waits.note(&off);
            assert!(waits.ask());
            waits.note(&SchedEvent { kind: meanwhile, state: 0, ..off });
            assert!(waits.answered().is_empty(), "{meanwhile}");
        }
        // Another CPU's events are read behind those of the one on which it runs now.
        waits.note(&SchedEvent { time: 6, kind: kind::ON, state: 0, ..off });
        waits.note(&off);
        assert!(!waits.ask());
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
        let (own, any) = (std::process::id(), SchedEvent { time: 10, state: state::BLOCKED, ..off });
        waits.note(&any);
        assert!(!waits.ask() && waits.threads.is_empty());
        assert_eq!(letter(&format!("/proc/{own}/task/{own}/statm")), None);
        assert_eq!(letter("/proc/thread-self/stat"), Some(b'R'));
    }
}
