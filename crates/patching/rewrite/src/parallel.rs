//! Work on many items by all processors.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Chunks for each thread: how long items take differs.
const CHUNKS_PER_THREAD: usize = 8;
/// Fewer items aren't worth a chunk.
const MIN_CHUNK: usize = 64;

/// The results of `work` for the chunks of `items`, in their order. `work` also gets the index of
/// the chunk's first item. Where no thread can be started, the calling one does all of it.
pub(crate) fn chunks<T: Sync, R: Send>(items: &[T], work: impl Fn(usize, &[T]) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let size = (items.len() / (threads * CHUNKS_PER_THREAD)).max(MIN_CHUNK);
    let count = items.len().div_ceil(size);
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            let first = chunk.saturating_mul(size);
            let Some(rest) = items.get(first..).filter(|rest| !rest.is_empty()) else { return done };
            done.push((chunk, work(first, &rest[..size.min(rest.len())])));
        }
    };
    let mut done = std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads.min(count))
            .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, run).ok())
            .collect();
        let mut done = run();
        for helper in helpers {
            match helper.join() {
                Ok(theirs) => done.extend(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_by_key(|(chunk, _)| *chunk);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_order() {
        for length in [0, 1, 63, 64, 65, 10_000] {
            let items: Vec<usize> = (0..length).collect();
            let all = super::chunks(&items, |first, chunk| {
                assert_eq!(chunk[0], first);
                chunk.to_vec()
            });
            assert_eq!(all.concat(), items);
        }
    }
}
