//! Real words in compact form.

use everycall_compact::{decode, encode};
use everycall_reader::{Source, ThreadKey, TraceFile};

/// Puts the words of each of the trace's threads into compact form and back.
///
/// # Panics
/// Where they don't come back, or take more than three bytes each: most clocks and programs take
/// one.
pub(super) fn words_come_back(file: &TraceFile<'_>) {
    let recording = file.recording();
    for (snapshot, facts) in recording.snapshots.iter().enumerate() {
        for (thread, facts) in facts.threads.iter().enumerate() {
            let mut segments = file.segments(ThreadKey { snapshot, thread });
            let (mut words, mut segment) = (Vec::new(), Vec::new());
            while let Some(read) = segments.next_segment(&mut segment) {
                read.unwrap_or_else(|warning| panic!("thread {}: {warning}", facts.tid));
                words.append(&mut segment);
            }
            let mut bytes = Vec::new();
            encode(&words, &mut bytes);
            let mut back = Vec::new();
            decode(&bytes, words.len(), &mut back).expect("the words decode");
            assert!(back == words, "thread {}", facts.tid);
            // Short threads are all beginning.
            assert!(
                words.len() < 50_000 || bytes.len() < 3 * words.len(),
                "thread {}: {} words in {} bytes",
                facts.tid,
                words.len(),
                bytes.len()
            );
        }
    }
}
