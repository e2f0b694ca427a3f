//! Memory that counted calls have allocated and freed.

use everycall_format::memory::{MemoryCalls, MemoryRecord, NUMBERS, facts, whose};

use crate::dropped::offset_of;
use crate::model::{Memory, MemoryNumbers, MemoryOfCalls, MemoryOwner, Recording};
use crate::payload::{Array, TABLE_MAX};

/// Adds what the process with index `process` has allocated. `Err` says what is wrong with the
/// payload.
pub(crate) fn read_memory(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    let (record, array) = Array::behind::<MemoryRecord, MemoryCalls>(bytes)?;
    if recording.memory.len() >= TABLE_MAX {
        return Err("too many processes have counts");
    }
    let calls = array.iter::<MemoryCalls>().map(|calls| MemoryOfCalls {
        whose: match (calls.whose, offset_of(calls.code)) {
            (whose::THREAD, _) => MemoryOwner::Thread,
            (whose::FUNCTION, Some(code)) => MemoryOwner::Function(code, calls.ticks),
            _ => MemoryOwner::Others,
        },
        slot: calls.slot,
        own: numbers(calls.own),
        total: numbers(calls.total),
    });
    recording.memory.push(Memory {
        snapshot: record.snapshot,
        process,
        is_seen: record.facts & facts::SEEN != 0,
        has_sizes: record.facts & facts::NO_SIZES == 0,
        own_allocator: record.facts & facts::OWN_ALLOCATOR != 0,
        elsewhere: numbers(record.elsewhere),
        calls: calls.collect(),
    });
    array.is_whole()
}

fn numbers(words: [u64; NUMBERS]) -> MemoryNumbers {
    let [allocated, allocated_blocks, freed, freed_blocks] = words;
    MemoryNumbers { allocated, allocated_blocks, freed, freed_blocks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::Wire;
    use everycall_format::ect::ArrayHeader;

    #[test]
    fn what_is_cut_is_read_up_to_there() {
        let record = MemoryRecord { facts: facts::SEEN, elsewhere: [1, 2, 3, 4], ..Default::default() };
        let array = ArrayHeader { entry_size: MemoryCalls::SIZE as u32, count: 3 };
        let one = MemoryCalls { code: 0x1000, slot: 1, ticks: 5, own: [5, 6, 7, 8], ..Default::default() };
        let thread =
            MemoryCalls { slot: 1, total: [50, 6, 7, 8], whose: whose::THREAD, ..Default::default() };
        let lie = MemoryCalls { code: u32::MAX, ..Default::default() };
        let whole = [
            record.to_bytes().to_vec(),
            array.to_bytes().to_vec(),
            one.to_bytes().to_vec(),
            thread.to_bytes().to_vec(),
            lie.to_bytes().to_vec(),
        ]
        .concat();
        for end in 0..whole.len() {
            assert!(read_memory(&whole[..end], 0, &mut Recording::default()).is_err(), "{end}");
        }
        let mut recording = Recording::default();
        read_memory(&whole, 3, &mut recording).unwrap();
        let memory = &recording.memory[0];
        assert_eq!(
            (memory.process, memory.is_seen, memory.has_sizes, memory.own_allocator),
            (3, true, true, false)
        );
        assert_eq!(memory.elsewhere.freed_blocks, 4);
        let whose: Vec<_> = memory.calls.iter().map(|calls| (calls.whose, calls.own.freed)).collect();
        let expected =
            [(MemoryOwner::Function(0x1000, 5), 7), (MemoryOwner::Thread, 0), (MemoryOwner::Others, 0)];
        assert_eq!((whose, memory.calls[1].total.allocated), (expected.to_vec(), 50));
    }
}
