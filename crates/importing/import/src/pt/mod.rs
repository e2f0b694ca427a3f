//! perf's own file with a trace of Intel PT.
//!
//! ```text
//! file       perf's records: what was mapped, forked, switched; where the trace lies
//! inflate    records that perf has compressed
//! space      the files that were mapped, their code and functions
//! generated  code of just-in-time compilers, by the files that they left
//! world      processes and threads: who ran where and when, with which code
//! pieces     the trace of a CPU, cut at synchronization points
//! decode     a piece as branches, by itself
//! pool       threads that decode pieces
//! merge      the branches of all CPUs, in the order of their times, as calls of threads
//! ```
//!
//! Pieces are cut and decoded without regard to what is decoded elsewhere, so the result is the
//! same with any number of threads.

mod decode;
mod file;
mod generated;
mod inflate;
mod merge;
mod pieces;
mod pool;
mod space;
mod world;

use std::io::Write;

use self::file::PerfFile;
pub(crate) use self::file::{MAGIC, MAGIC_SWAPPED};
use self::generated::Generated;
use self::merge::{Merger, Queue};
use self::pieces::Source;
use self::pool::with_pool;
use self::world::World;
use crate::error::ImportError;
use crate::input::{ImportOptions, Input};
use crate::output::Output;

/// Bytes of all pieces that are in memory, about.
const PIECES_BYTES: usize = 16 << 20;
/// Bytes of a piece, at least and at most.
const PIECE_BYTES: (usize, usize) = (4 << 10, 32 << 10);

/// Reads perf's file.
pub(crate) fn read<W: Write>(
    input: &mut impl Input,
    options: &ImportOptions,
    out: &mut Output<W>,
) -> Result<(), ImportError> {
    let mut file = PerfFile::read(input)?;
    let generated = Generated::new(options.folder.clone(), options.written);
    let world = World::new(&mut file, generated);
    let size = PIECES_BYTES / file.streams.len().max(1);
    let size = size.clamp(PIECE_BYTES.0, PIECE_BYTES.1);
    let queues: Vec<Queue> =
        file.streams.into_values().map(|stream| Queue::new(Source::new(stream, size))).collect();
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let count = queues.len();
    let mut merger = Merger::new(&world, queues, out);
    with_pool(threads, count, &world, |pool| merger.run(input, pool))?;
    if merger.counts.shown == 0 {
        return Err(ImportError::Version(match world.notes().first() {
            Some(note) => format!("has no call that could be decoded: {note}"),
            None => "has no call that could be decoded".to_owned(),
        }));
    }
    merger.finish(file.notes);
    out.facts.command = file.command;
    Ok(())
}
