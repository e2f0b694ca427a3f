//! Libraries that a process loads later which has no recorder, as after `attach`: while somebody
//! attends to it, the loader's function for debuggers ([`crate::loading`]) asks for hooks, and waits.
//!
//! ```text
//! area, read and executed                     | requests, written by both
//! mark, place, old bytes, list, requests | code | process, asked, answered, beats, last state
//! ```
//!
//! The loader holds its lock meanwhile, so nothing is unloaded while its code is changed. The wait
//! ends when hooks are there, when nobody has attended for half a second, or after 10 s and more. A
//! forked child has these bytes, too, and doesn't ask: it isn't the process that they name.

use std::fs::{File, OpenOptions, read_to_string};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use everycall_inject::{Access, InjectError, Process, mappings};

use crate::changes::Lead;
use crate::loading::{Loader, SIZE, jump, lead_one};
use crate::own::marked;

/// An area begins with it.
const MARK: [u8; 16] = *b"everycall asks.\0";
const AREA: usize = 64;
/// Where the loader's function is changed, and what was there.
const PLACE_AT: usize = 16;
const OLD_AT: usize = 24;
/// The loader's list, and the page of requests: [`CODE`] reads both before itself.
const LIST_AT: usize = 48;
const REQUESTS_AT: usize = 56;
/// Of the page of requests. Numbers of four bytes.
const PROCESS: u64 = 0;
const ASKED: u64 = 4;
const ANSWERED: u64 = 8;
const BEATS: u64 = 12;
const PAGE: usize = 4096;
/// Longer than a thread of ours sleeps between two beats, on a machine that has much to do.
const SILENCE: Duration = Duration::from_millis(400);

/// What the loader's function leads to. It changes no register, and calls nothing of the process.
#[rustfmt::skip]
const CODE: [u8; 181] = [
    0x50, 0x51, 0x52, 0x53, 0x56, 0x57,             // push rax, rcx, rdx, rbx, rsi, rdi
    0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53, // push r8, r9, r10, r11
    0x48, 0x8b, 0x05, 0xdb, 0xff, 0xff, 0xff,       // mov rax, list
    0x8b, 0x40, 0x18,                               // mov eax, [rax + r_state]
    0x48, 0x8b, 0x15, 0xd9, 0xff, 0xff, 0xff,       // mov rdx, requests
    0x85, 0xc0, 0x74, 0x05,                         // if it is consistent: consistent
    0x89, 0x42, 0x10, 0xeb, 0x7e,                   // last = eax; out
    // consistent: only behind RT_ADD
    0x8b, 0x42, 0x10,                               // mov eax, last
    0xc7, 0x42, 0x10, 0x00, 0x00, 0x00, 0x00,       // last = 0
    0x83, 0xf8, 0x01, 0x75, 0x6f,                   // if eax != RT_ADD: out
    0xb8, 0x27, 0x00, 0x00, 0x00, 0x0f, 0x05,       // getpid
    0x3b, 0x02, 0x75, 0x64,                         // if it isn't the process: out
    0xbb, 0x01, 0x00, 0x00, 0x00,                   // mov ebx, 1
    0xf0, 0x0f, 0xc1, 0x5a, 0x04, 0xff, 0xc3,       // ebx = ++asked
    0x68, 0x80, 0x84, 0x1e, 0x00, 0x6a, 0x00,       // push 2 ms, as seconds and nanoseconds
    0x45, 0x31, 0xc0, 0x45, 0x31, 0xc9,             // r8d = r9d = 0
    0x44, 0x8b, 0x52, 0x0c,                         // mov r10d, beats
    // again:
    0x8b, 0x42, 0x08, 0x29, 0xd8, 0x79, 0x3c,       // if answered >= ebx: done
    0x8b, 0x42, 0x0c, 0x44, 0x39, 0xd0, 0x75, 0x14, // if beats != r10d: beats
    0x41, 0xff, 0xc1,                               // inc r9d
    0x41, 0x81, 0xf9, 0xfa, 0x00, 0x00, 0x00,       // 250 times without a beat
    0x72, 0x0e,                                     // fewer: sleep
    0xc7, 0x02, 0x00, 0x00, 0x00, 0x00, 0xeb, 0x20, // process = 0; done
    // beats:
    0x41, 0x89, 0xc2, 0x45, 0x31, 0xc9,             // r10d = eax; r9d = 0
    // sleep:
    0x41, 0xff, 0xc0,                               // inc r8d
    0x41, 0x81, 0xf8, 0x88, 0x13, 0x00, 0x00,       // 5,000 times
    0x73, 0x0e,                                     // or more: done
    0xb8, 0x23, 0x00, 0x00, 0x00,                   // nanosleep
    0x48, 0x89, 0xe7, 0x31, 0xf6, 0x0f, 0x05,
    0xeb, 0xbd,                                     // again
    // done:
    0x48, 0x83, 0xc4, 0x10,                         // pop the time
    // out:
    0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, // pop r11, r10, r9, r8
    0x5f, 0x5e, 0x5b, 0x5a, 0x59, 0x58,             // pop rdi, rsi, rbx, rdx, rcx, rax
    0xc3,
];

/// A process whose loader asks for hooks. Nobody attends any more when this is dropped.
pub struct Attended {
    /// That of the process, also if its number is used again.
    memory: File,
    requests: u64,
    /// The process's number, as it knows itself.
    number: u32,
    /// Where its loader's function is changed, and what is there.
    jump: (u64, Vec<u8>),
}

impl Attended {
    /// Leads the loader's function to a request for hooks. Or says why that can't be.
    ///
    /// # Errors
    ///
    /// Somebody else attends to the process already, or it can't be changed.
    pub fn begin(process: &mut Process, patience: Duration) -> Result<Result<Attended, String>, InjectError> {
        let pid = process.pid();
        let area = match areas(process)?.into_iter().next() {
            Some(area) => area,
            None => match map_area(process, patience)? {
                Ok(area) => area,
                Err(why) => return Ok(Err(why)),
            },
        };
        let failed = |error| InjectError::System { what: "opening the process's memory", error };
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let patch = area.patch();
        let attended = Attended {
            memory: memory.map_err(failed)?,
            requests: area.requests,
            number: own_number(pid).unwrap_or(pid.cast_unsigned()),
            jump: (patch.at, patch.new.clone()),
        };
        if attended.get(PROCESS) == Some(attended.number) {
            let before = attended.get(BEATS);
            std::thread::sleep(SILENCE);
            if attended.get(BEATS) != before {
                return Err(InjectError::Refused(format!(
                    "another `everycall attach --stay` attends to process {pid}"
                )));
            }
        }
        // What was asked before has its hooks, or was given up.
        attended.answer(attended.get(ASKED).unwrap_or(0));
        attended.beat();
        if lead_one(process, patch, Lead::ToTrampolines, patience)? {
            Ok(Ok(attended))
        } else {
            Ok(Err("its loader can't be changed".to_owned()))
        }
    }

    /// Shows the process that somebody attends: more often than every half a second. Also while
    /// hooks are written, by another thread.
    pub fn beat(&self) {
        if let Some(beats) = self.get(BEATS) {
            self.put(BEATS, beats.wrapping_add(1));
            // A loader that waited too long has removed it.
            if self.get(PROCESS) == Some(0) {
                self.put(PROCESS, self.number);
            }
        }
    }

    /// The number of the last request; `None` if the process has ended, or executed another program.
    pub fn asked(&self) -> Option<u32> {
        self.get(ASKED)
    }

    /// The number of the last request that was answered.
    pub fn answered(&self) -> u32 {
        self.get(ANSWERED).unwrap_or(0)
    }

    /// Lets those go on that asked, up to request `number`.
    pub fn answer(&self, number: u32) {
        self.put(ANSWERED, number);
    }

    /// Whether the loader's function still leads there: not after `detach`.
    pub fn is_led(&self) -> bool {
        let mut bytes = [0; SIZE];
        let is_read = self.memory.read_exact_at(&mut bytes, self.jump.0).is_ok();
        is_read && bytes[..] == *self.jump.1
    }

    fn get(&self, place: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.memory.read_exact_at(&mut bytes, self.requests + place).ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    fn put(&self, place: u64, number: u32) {
        // A process that has ended needs nothing.
        let _ = self.memory.write_all_at(&number.to_le_bytes(), self.requests + place);
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.put(PROCESS, 0);
        if let Some(asked) = self.asked() {
            self.answer(asked);
        }
    }
}

/// Makes the loader's function what it was, if it leads to a request.
///
/// # Errors
///
/// The process can't be read or changed.
pub fn lead_loading_back(process: &mut Process, patience: Duration) -> Result<(), InjectError> {
    for area in areas(process)? {
        lead_one(process, area.patch(), Lead::Back, patience)?;
    }
    Ok(())
}

/// An area in a process.
struct Area {
    start: u64,
    place: u64,
    old: Vec<u8>,
    requests: u64,
}

impl Area {
    fn patch(&self) -> everycall_inject::Patch {
        jump(self.place, &self.old, self.start + AREA as u64)
    }
}

fn areas(process: &Process) -> Result<Vec<Area>, InjectError> {
    let maps = mappings(process.pid())?;
    let found = marked(process, &maps, &MARK, AREA).into_iter();
    let areas = found.filter_map(|(start, bytes)| {
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let old = bytes.get(OLD_AT..OLD_AT + SIZE)?.to_vec();
        Some(Area { start, place: number(PLACE_AT)?, old, requests: number(REQUESTS_AT)? })
    });
    Ok(areas.collect())
}

fn map_area(process: &mut Process, patience: Duration) -> Result<Result<Area, String>, InjectError> {
    let loader = match Loader::of(process, &mappings(process.pid())?) {
        Ok(loader) => loader,
        Err(why) => return Ok(Err(why)),
    };
    let module = loader.module.clone();
    let original = loader.jump_to(0);
    process
        .with_thread(patience, |thread| {
            let requests = thread.map_near(module.clone(), &[0; PAGE], Access::Write)?;
            let mut bytes = MARK.to_vec();
            bytes.extend(original.at.to_le_bytes());
            bytes.extend(&original.old);
            bytes.resize(LIST_AT, 0);
            bytes.extend(loader.list.to_le_bytes());
            bytes.extend(requests.to_le_bytes());
            bytes.extend(CODE);
            let start = thread.map_near(module, &bytes, Access::Execute)?;
            Ok(Area { start, place: original.at, old: original.old.clone(), requests })
        })
        .map(Ok)
}

/// A process's number in the innermost of its namespaces.
fn own_number(pid: i32) -> Option<u32> {
    let status = read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_reads_what_is_before_it() {
        // rip-relative, from behind the instruction.
        let reads = |at: usize| {
            let distance = i32::from_le_bytes(*CODE[at + 3..].first_chunk().unwrap());
            AREA.wrapping_add(at + 7).wrapping_add_signed(distance as isize)
        };
        assert_eq!([reads(0x0e), reads(0x18)], [LIST_AT, REQUESTS_AT]);
        assert_eq!(CODE.last(), Some(&0xc3));
        // As many bytes as the area's first part has room for.
        assert!(OLD_AT + SIZE <= LIST_AT && PLACE_AT == MARK.len());
    }
}
