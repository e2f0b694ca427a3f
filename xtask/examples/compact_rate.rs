//! Puts all event words of a trace into compact form, or takes them out of it: what `cargo xtask
//! bench decode` measures.
//!
//! The CPU time of one pass, in ns, goes into the file that BENCH_REGION names. Prints the bytes of
//! each word.

use std::fs::File;

use everycall_compact::{decode, encode};
use everycall_reader::{Source, ThreadKey, TraceFile};
use rustix::time::{ClockId, clock_gettime};

/// Words of an events chunk.
const CHUNK_WORDS: usize = (1 << 20) / 8;
/// Passes that are measured together.
const PASSES: u32 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [what, path] = &arguments[..] else { return Err("usage: compact_rate encode|decode TRACE".into()) };
    let chunks = chunks(&TraceFile::open(File::open(path)?)?);
    let encoded: Vec<Vec<u8>> = chunks.iter().map(|words| encoded(words)).collect();
    for (words, bytes) in chunks.iter().zip(&encoded) {
        let mut back = Vec::new();
        decode(bytes, words.len(), &mut back)?;
        assert!(back == *words, "the words don't come back");
    }
    let begin = cpu_ns();
    for _ in 0..PASSES {
        for (words, bytes) in chunks.iter().zip(&encoded) {
            if what == "encode" {
                std::hint::black_box(self::encoded(words));
            } else {
                let mut back = Vec::with_capacity(words.len());
                decode(bytes, words.len(), &mut back)?;
                std::hint::black_box(&back);
            }
        }
    }
    let pass_ns = (cpu_ns() - begin) / u64::from(PASSES);
    if let Some(region) = std::env::var_os("BENCH_REGION") {
        std::fs::write(region, format!("{pass_ns}\n"))?;
    }
    let words: usize = chunks.iter().map(Vec::len).sum();
    let bytes: usize = encoded.iter().map(Vec::len).sum();
    println!(
        "{words} words of {:.2} bytes, {:.0} million/s",
        bytes as f64 / words as f64,
        words as f64 / pass_ns as f64 * 1e3
    );
    Ok(())
}

/// The words of each thread, as many together as there are in a chunk.
fn chunks(file: &TraceFile<'_>) -> Vec<Vec<u64>> {
    let mut chunks: Vec<Vec<u64>> = Vec::new();
    for (snapshot, facts) in file.recording().snapshots.iter().enumerate() {
        for thread in 0..facts.threads.len() {
            let mut segments = file.segments(ThreadKey { snapshot, thread });
            let mut words = Vec::new();
            let mut chunk = Vec::new();
            while let Some(segment) = segments.next_segment(&mut words) {
                if segment.is_ok() {
                    if chunk.len() + words.len() > CHUNK_WORDS {
                        chunks.push(std::mem::take(&mut chunk));
                    }
                    chunk.append(&mut words);
                }
            }
            chunks.push(chunk);
        }
    }
    chunks
}

fn encoded(words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(words, &mut bytes);
    bytes
}

fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
