//! What a crash file says of its process: nobody else can, once it is dead.

use everycall_format::arena::ClockReading;
use everycall_format::crash::{COMMAND_MAX, CRASH_MAGIC, CRASH_OFFSET, CrashRecord};
use everycall_format::{Wire, until_nul};
use everycall_reader::ReadAt;

/// The process of a crash file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrashFacts {
    /// Its name, of 15 bytes at most.
    pub name: Vec<u8>,
    /// The words of its command line, as far as they were kept: about 1,900 bytes.
    pub command: Vec<Vec<u8>>,
    /// The kernel's id of the boot that it ran in, as `/proc/sys/kernel/random/boot_id` has it.
    pub boot: Vec<u8>,
    /// What the clocks said while it ran; at most two readings.
    pub latest: Vec<ClockReading>,
}

/// The record in an arena, if it has one.
pub(crate) fn read(bytes: &dyn ReadAt) -> Option<CrashFacts> {
    let mut buffer = [0; CrashRecord::SIZE + COMMAND_MAX];
    let count = bytes.read_full_at(CRASH_OFFSET, &mut buffer).ok()?;
    let record = CrashRecord::read(&buffer[..count]).filter(|record| record.magic == CRASH_MAGIC)?;
    let from = usize::try_from(record.record_size).ok().filter(|size| *size >= CrashRecord::SIZE)?;
    let words = buffer[..count].get(from..)?;
    let words = &words[..words.len().min(record.command_length as usize)];
    let words = words.strip_suffix(b"\0").unwrap_or(words);
    let command = words.split(|byte| *byte == 0).map(<[u8]>::to_vec);
    let mut latest: Vec<ClockReading> = record
        .latest
        .into_iter()
        .filter(|reading| reading.ticks != 0 && reading.monotonic_raw_ns != 0)
        .collect();
    latest.sort_unstable_by_key(|reading| reading.ticks);
    Some(CrashFacts {
        name: until_nul(&record.name).to_vec(),
        command: if words.is_empty() { vec![] } else { command.collect() },
        boot: until_nul(&record.boot).to_vec(),
        latest,
    })
}
