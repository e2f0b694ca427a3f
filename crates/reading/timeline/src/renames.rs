//! Renames of threads, as the kernel recorded them.

use std::collections::HashMap;

use everycall_format::sched::{NAMED, RENAME_PARTS, SchedEvent, kind};

/// A thread got another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// When, in the unit of the trace's times.
    pub at: u64,
    /// Its name before; empty if that isn't known. Bytes that are no UTF-8 are replaced.
    pub before: String,
    /// Its name since.
    pub name: String,
}

/// When a thread was renamed, and how; `None` where it ended.
type Step = (u64, Option<Rename>);

/// The renames of all threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renames {
    /// By process id and thread id, in order.
    threads: HashMap<(u32, u32), Vec<Step>>,
}

impl Renames {
    /// The renames in events, which are in order.
    pub(crate) fn new(events: &[SchedEvent], at: impl Fn(u64) -> u64) -> Renames {
        let mut renames = Renames::default();
        let mut begun: HashMap<u32, Vec<u8>> = HashMap::new();
        for event in events {
            if event.kind == kind::ENDED {
                let steps = renames.threads.get_mut(&(event.pid, event.tid));
                steps.into_iter().for_each(|steps| steps.push((at(event.time), None)));
            }
            if event.kind != kind::RENAMED {
                continue;
            }
            let bytes = begun.entry(event.tid).or_default();
            if event.state == 0 {
                bytes.clear();
            }
            // The first parts of one may have been overwritten.
            if bytes.len() != 4 * usize::from(event.state) {
                continue;
            }
            bytes.extend(event.other.to_le_bytes());
            if bytes.len() == 4 * RENAME_PARTS {
                let (before, name) = bytes.split_at(2 * RENAME_PARTS);
                let at = at(event.time);
                let rename = Rename { at, before: text(before), name: text(name) };
                let key = (event.pid, event.tid & !NAMED);
                renames.threads.entry(key).or_default().push((at, Some(rename)));
            }
        }
        renames
    }

    /// Those of a thread that bore this id from `from` on, after that.
    pub(crate) fn of(&self, pid: u32, tid: u32, from: u64) -> Vec<Rename> {
        let steps = self.threads.get(&(pid, tid)).map_or(&[][..], Vec::as_slice);
        let steps = steps.iter().filter(|(at, _)| *at > from);
        steps.map_while(|(_, rename)| rename.clone()).collect()
    }
}

fn text(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use everycall_format::sched::rename;

    use super::*;

    fn name(text: &str) -> [u8; 16] {
        let mut name = [0; 16];
        name[..text.len()].copy_from_slice(text.as_bytes());
        name
    }

    #[test]
    fn a_thread_has_those_of_its_life() {
        let event = |time, kind| SchedEvent { time, pid: 1, tid: 2, kind, ..SchedEvent::default() };
        let renamed = |time, before, after| rename(event(time, 0), name(before), name(after));
        let all = [
            // Its first parts are missing.
            renamed(5, "x", "y")[3..].to_vec(),
            renamed(10, "", "sixteen bytes !!").to_vec(),
            renamed(20, "sixteen bytes !!", "worker").to_vec(),
            vec![event(30, kind::ENDED)],
            renamed(40, "app", "other").to_vec(),
        ];
        let renames = Renames::new(&all.concat(), |time| 2 * time);
        let told = |from| {
            let all = renames.of(1, 2, from);
            all.iter().map(|one| format!("{} {}>{}", one.at, one.before, one.name)).collect::<Vec<_>>()
        };
        assert_eq!(told(0), ["20 >sixteen bytes !!", "40 sixteen bytes !!>worker"]);
        assert_eq!(told(20), ["40 sixteen bytes !!>worker"]);
        assert_eq!((told(60), told(80)), (vec!["80 app>other".to_owned()], vec![]));
        assert!(renames.of(1, 3, 0).is_empty());
    }
}
