//! Capture sets and their programs, as the traced side reads them from shared memory. Checksums
//! that are wrong are
//! repaired first.
#![no_main]

mod machine;

use everycall_capture::{Outcome, Program};
use everycall_format::capture::OUTPUT_MAX;
use everycall_format::capture_set::{CaptureSet, CaptureSetError};
use libfuzzer_sys::fuzz_target;

/// Where the header has the file's length and its two checksums.
const LENGTH: usize = 16;
const PAYLOAD_CHECKSUM: usize = 56;
const HEADER_CHECKSUM: usize = 60;
const HEADER: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    run(bytes, bytes);
    let _ = CaptureSet::parse(bytes, crc32fast::hash);
    let mut bytes = bytes.to_vec();
    if bytes.len() >= HEADER {
        let length = bytes.len() as u64;
        bytes[LENGTH..LENGTH + 8].copy_from_slice(&length.to_le_bytes());
        let payload = crc32fast::hash(&bytes[HEADER..]);
        bytes[PAYLOAD_CHECKSUM..HEADER_CHECKSUM].copy_from_slice(&payload.to_le_bytes());
        let header = crc32fast::hash(&bytes[..HEADER_CHECKSUM]);
        bytes[HEADER_CHECKSUM..HEADER].copy_from_slice(&header.to_le_bytes());
    }
    let set = match CaptureSet::parse(&bytes, crc32fast::hash) {
        Ok(set) => set,
        Err(CaptureSetError::NoSet | CaptureSetError::Version(_) | CaptureSetError::Damaged) => return,
    };
    let mut runs = 0;
    for module in set.modules() {
        let mut end = 0;
        for function in (0..module.functions).map_while(|number| set.function(&module, number)) {
            assert!(function.start >= end && function.start < function.end);
            end = function.end;
            for capture in
                [function.entry, function.exit].into_iter().filter_map(|number| set.capture(number))
            {
                assert_eq!(set.layout(&capture).len(), capture.layout_length as usize);
                runs += 1;
                if runs < 64 {
                    run(set.program(&capture), &bytes);
                }
            }
        }
    }
});

/// Runs a program if it is accepted: it ends, within the bounds that the check has promised.
fn run(program: &[u8], memory: &[u8]) {
    let Ok(program) = Program::check(program) else { return };
    assert!(program.output_max() <= OUTPUT_MAX);
    let mut output = [0xa5; OUTPUT_MAX + 8];
    let (outcome, met) = program.judge(&machine::Bytes(memory), &mut output[..program.output_max()]);
    assert!(output[program.output_max()..].iter().all(|byte| *byte == 0xa5));
    match outcome {
        Outcome::Captured(length) => assert!(length <= program.output_max()),
        Outcome::Rejected => assert!(program.may_reject()),
        Outcome::NoSpace => panic!("the output is as large as the check has said"),
    }
    let _ = met;
}
