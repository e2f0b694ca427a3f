//! Arenas on their way to processes.
//!
//! ```text
//! spares   in the hub, nobody's            -- a process takes one: its place is 0 -->
//! taken    on its way to somebody          -- it is claimed: `target_pid` is set  -->
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use everycall_format::hub::{SPARES, silence};

use crate::memory::arena::Arena;
use crate::memory::capacity::Capacity;
use crate::memory::frame_rules::Rules;
use crate::memory::hub::Hub;

/// Largest number of arenas that are taken and not yet claimed. Claiming takes some microseconds,
/// so there are few unless the hub was overwritten. Beyond this number, no new ones are made until
/// some are claimed or dropped.
const TAKEN_MAX: usize = 32 * SPARES;
/// An arena that isn't claimed within this time never will be: its process has ended, or the hub
/// was overwritten.
const CLAIM_TIME: Duration = Duration::from_secs(10);
/// Number of spare arenas if only one process is recorded.
const SPARES_ALONE: usize = 1;

/// The arenas for processes to come.
pub(super) struct Arenas {
    hub: Arc<Hub>,
    capacity: Capacity,
    rules: Rules,
    /// Number of spare arenas to keep.
    spares_wanted: usize,
    spares: [Option<Arc<Arena>>; SPARES],
    /// Each with the time when it was found to be taken.
    taken: Vec<(Arc<Arena>, Instant)>,
    /// Number of arenas that were taken and never claimed.
    dropped: u32,
}

impl Arenas {
    /// Puts the first arenas into the hub: if child processes aren't recorded, one for the first
    /// process.
    ///
    /// # Errors
    ///
    /// Not even one arena can be created.
    pub fn new(hub: Arc<Hub>, capacity: Capacity, follow: bool, rules: Rules) -> io::Result<Arenas> {
        let spares_wanted = if follow { SPARES } else { SPARES_ALONE };
        let spares = [const { None }; SPARES];
        let mut arenas =
            Arenas { hub, capacity, rules, spares_wanted, spares, taken: Vec::new(), dropped: 0 };
        arenas.refill()?;
        if !follow {
            arenas.spares_wanted = 0;
        }
        Ok(arenas)
    }

    /// Replaces the arenas that processes have taken. Returns those that were claimed since the
    /// last call.
    pub fn attend(&mut self) -> Vec<Arc<Arena>> {
        let now = Instant::now();
        let hub = Arc::clone(&self.hub);
        for (place, spare) in hub.page().spares().zip(&mut self.spares) {
            if place.load(Ordering::Acquire) == 0 {
                self.taken.extend(spare.take().map(|arena| (arena, now)));
            }
        }
        // Without a spare arena, new processes run untraced and are counted.
        if self.taken.len() < TAKEN_MAX {
            let _ = self.refill();
        }
        let is_claimed = |(arena, _): &mut (Arc<Arena>, Instant)| arena.header().target_pid != 0;
        let claimed = self.taken.extract_if(.., is_claimed).map(|(arena, _)| arena).collect();
        let before = self.taken.len();
        self.taken.retain(|(_, since)| now.saturating_duration_since(*since) < CLAIM_TIME);
        self.dropped = self.dropped.saturating_add((before - self.taken.len()) as u32);
        claimed
    }

    fn refill(&mut self) -> io::Result<()> {
        for (place, spare) in self.hub.page().spares().zip(&mut self.spares).take(self.spares_wanted) {
            if spare.is_none() {
                let arena = Arc::new(self.capacity.arena()?);
                arena.put_rules(&self.rules)?;
                place.store(arena.number(), Ordering::Release);
                *spare = Some(arena);
            }
        }
        Ok(())
    }

    /// Makes no new arenas: those in the hub are the last ones.
    pub fn stop(&mut self) {
        self.spares_wanted = 0;
    }

    /// Removes all arenas from the hub.
    pub fn close(&self) {
        let page = self.hub.page();
        page.follow().store(0, Ordering::Relaxed);
        page.silent().store(silence::OVER, Ordering::Relaxed);
        page.spares().for_each(|place| place.store(0, Ordering::Release));
    }

    /// Number of arenas that were taken and never claimed.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// The spare arena in the first place of the hub.
    #[cfg(test)]
    pub fn first_spare(&self) -> Option<Arc<Arena>> {
        self.spares[0].clone()
    }
}
