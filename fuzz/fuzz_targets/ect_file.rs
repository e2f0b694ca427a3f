//! Trace files. Checksums are made right first, or chance would never get past them.
#![no_main]

mod pairing;

use everycall_reader::TraceFile;
use everycall_timeline::Trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    repair(&mut bytes);
    if let Ok(file) = TraceFile::open(&bytes[..]) {
        for module in 0..4 {
            let _ = file.copy_module_image(module, &mut std::io::sink());
            let _ = file.symbols(module, &mut (8 << 20));
        }
        let _ = file.sources(&mut (8 << 20));
        parts(&file);
        pairing::check(file);
    }
});

/// The parts of threads that can be read alone.
fn parts(file: &TraceFile<'_>) {
    let Ok(trace) = Trace::open_unread(file) else { return };
    for thread in 0..trace.threads().len() {
        for number in 0..trace.parts(thread) {
            let _ = trace.part_begin(thread, number);
            let part = trace.part(thread, None, number..number + 1);
            if let Some(read) = part.and_then(|part| part.events(0..part.begins().len())) {
                assert!(read.events.is_sorted_by_key(|event| event.at_ns()));
            }
        }
    }
}

/// Makes the checksums of everything that looks like a chunk right.
fn repair(bytes: &mut [u8]) {
    if let Some(header) = bytes.get_mut(..32) {
        let sum = crc32(&header[..28]);
        header[28..].copy_from_slice(&sum.to_le_bytes());
    }
    for at in (0..bytes.len().saturating_sub(31)).step_by(8) {
        if bytes[at..].starts_with(b"ECTc") {
            let mut length = [0; 8];
            length.copy_from_slice(&bytes[at + 16..at + 24]);
            let there = (bytes.len() - at - 32) as u64;
            let length = u64::from_le_bytes(length).min(there) as usize;
            let payload = crc32(&bytes[at + 32..at + 32 + length]);
            bytes[at + 24..at + 28].copy_from_slice(&payload.to_le_bytes());
            let header = crc32(&bytes[at..at + 28]);
            bytes[at + 28..at + 32].copy_from_slice(&header.to_le_bytes());
        }
    }
}

/// CRC-32 as zlib has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum, _| {
                if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 }
            },
        )
    })
}
