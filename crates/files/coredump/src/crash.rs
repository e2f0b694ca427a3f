//! A crash file's data on its process, the only source after the process has died.

use everycall_format::arena::ClockReading;
use everycall_format::crash::{Beginning, COMMAND_MAX, CRASH_MAGIC, CRASH_OFFSET, CrashRecord};
use everycall_format::{Wire, until_nul};
use everycall_reader::ReadAt;

/// The process of a crash file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrashFacts {
    /// Its name, of 15 bytes at most.
    pub name: Vec<u8>,
    /// The words of its command line, truncated after about 1,900 bytes.
    pub command: Vec<Vec<u8>>,
    /// The folder that it was started in; empty if that isn't known.
    pub folder: Vec<u8>,
    /// The kernel's id of the boot that it ran in, from `/proc/sys/kernel/random/boot_id`.
    pub boot: Vec<u8>,
    /// Clock readings from its lifetime; at most two.
    pub latest: Vec<ClockReading>,
}

/// The record in an arena, if it has one.
pub(crate) fn read(bytes: &dyn ReadAt) -> Option<CrashFacts> {
    let mut buffer = [0; CrashRecord::SIZE + COMMAND_MAX];
    let count = bytes.read_full_at(CRASH_OFFSET, &mut buffer).ok()?;
    let record = CrashRecord::read(&buffer[..count]).filter(|record| record.magic == CRASH_MAGIC)?;
    let beginning = Beginning::parse(&buffer[..count])?;
    let mut latest: Vec<ClockReading> = record
        .latest
        .into_iter()
        .filter(|reading| reading.ticks != 0 && reading.monotonic_raw_ns != 0)
        .collect();
    latest.sort_unstable_by_key(|reading| reading.ticks);
    Some(CrashFacts {
        name: until_nul(&record.name).to_vec(),
        command: beginning.words().map(<[u8]>::to_vec).collect(),
        folder: beginning.folder.to_vec(),
        boot: until_nul(&record.boot).to_vec(),
        latest,
    })
}
