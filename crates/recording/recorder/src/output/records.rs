//! The file's records about a recording and its processes.

use std::os::unix::ffi::OsStrExt;

use everycall_format::Wire;
use everycall_format::arena::{ArenaHeader, ClockReading};
use everycall_format::ect::{NO_PROCESS, ProcessRecord, SnapshotRecord, meta};
use everycall_format::{env, stamp};
use everycall_machine::host;
use everycall_tracefile::texts;

use crate::process::member::Member;
use crate::sys::launch::Launch;

/// A process's SNAPSHOT.
pub fn snapshot_record(
    member: &Member,
    header: &ArenaHeader,
    reason: u32,
    ticks: u64,
    threads: u32,
) -> SnapshotRecord {
    let layout = member.arena.layout();
    SnapshotRecord {
        snapshot: member.number,
        reason,
        pid: member.pid,
        threads,
        ticks,
        ring_size: layout.ring_size,
        segment_size: layout.segment_size,
        counters: header.counters,
    }
}

/// A process's PROCESS, without its command line.
pub fn process_record(member: &Member, ending: u32, end_ticks: u64) -> ProcessRecord {
    ProcessRecord {
        record_size: ProcessRecord::SIZE as u32,
        pid: member.pid,
        parent_pid: member.parent_pid,
        parent: member.parent.unwrap_or(NO_PROCESS),
        origin: member.origin,
        ending,
        start_ticks: member.start_ticks,
        end_ticks,
        name: member.name,
        command_length: member.title_or_command().len() as u32,
        machine: member.arena.header().machine,
    }
}

/// The events to which the program was to give stamps.
pub fn stamps_wanted(launch: &Launch) -> u32 {
    let told = launch.environment.iter().rev().find(|(name, _)| *name == env::CLOCK);
    let inherited = || std::env::var_os(env::CLOCK);
    let text = told.map(|(_, value)| value.clone()).or_else(inherited);
    text.and_then(|text| stamp::parse(text.as_bytes())).unwrap_or(stamp::EXACT)
}

/// The META payload.
pub fn meta(launch: &Launch, tool_version: &str) -> Vec<u8> {
    let mut fields = vec![(meta::TOOL_VERSION, tool_version.as_bytes().to_vec())];
    let words = std::iter::once(&launch.program).chain(&launch.arguments);
    fields.extend(words.map(|word| (meta::ARGUMENT, word.as_bytes().to_vec())));
    if let Ok(folder) = std::env::current_dir() {
        fields.push((meta::WORKING_FOLDER, folder.as_os_str().as_bytes().to_vec()));
    }
    fields.extend(host::describe());
    texts(fields.iter().map(|(key, text)| (*key, text.as_slice())))
}

/// Our readings, with the runtime's reading at its start, which lies within ours unless it was
/// overwritten.
pub fn with_start(ours: &[ClockReading], header: &ArenaHeader) -> Vec<ClockReading> {
    let mut all = ours.to_vec();
    let (first, last) = (ours.first(), ours.last());
    let within = first.map_or(0, |reading| reading.ticks)..=last.map_or(0, |reading| reading.ticks);
    if header.start.monotonic_raw_ns != 0 && within.contains(&header.start.ticks) {
        let place = all.partition_point(|reading| reading.ticks < header.start.ticks);
        let in_order = |index: Option<usize>, order: fn(u64, u64) -> bool| {
            index
                .and_then(|index| ours.get(index))
                .is_none_or(|reading| order(reading.monotonic_raw_ns, header.start.monotonic_raw_ns))
        };
        if in_order(place.checked_sub(1), |before, ours| before <= ours)
            && in_order(Some(place), |after, ours| after >= ours)
        {
            all.insert(place, header.start);
        }
    }
    all
}
