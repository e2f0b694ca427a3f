//! Hooks that count how often each function is entered.
//!
//! ```text
//! counters | stubs            | trampolines
//! 8 bytes  | lock inc counter | ... call stub; first instructions; jmp back
//! each     | ret              | ... nop; last instructions; ret
//! ```
//!
//! One locked addition is exact with any number of threads and changes no register; flags are free
//! where hooks are called. Exits have no hook here: their calls become a `nop` of the same length.

use std::ops::Range;

use crate::analysis::Analysis;
use crate::error::RewriteError;
use crate::layout::PAGE;
use crate::plan::{HookLayout, Plan};

/// Bytes of each stub, padding included.
const STUB: u32 = 16;
/// Length of the addition, up to its end.
const ADD: u32 = 8;
/// Bytes of each counter.
const COUNTER: u64 = 8;
const INT3: u8 = 0xcc;

/// A plan whose hooks count. All places are relative to where the file is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountingPlan {
    /// Patches, islands, moves and functions are valid; `code` still calls hooks.
    pub plan: Plan,
    /// All of the region that is mapped at `plan.region`: stubs, then trampolines.
    pub region: Vec<u8>,
    /// Where the counters have to be mapped: one for each of `plan.functions`, in their order.
    pub counters: i64,
}

impl CountingPlan {
    /// Gives a plan hooks that count.
    ///
    /// # Errors
    /// Those of [`Plan::set_hooks`].
    pub fn of(mut plan: Plan) -> Result<Self, RewriteError> {
        let stubs = plan.functions.len() as u64 * u64::from(STUB);
        let reserved = u32::try_from(stubs.next_multiple_of(PAGE)).map_err(|_| RewriteError::TooLarge)?;
        let default = HookLayout::default();
        plan.set_hooks(HookLayout { reserved: reserved.max(default.reserved), ..default })?;
        let mut counting = Self { plan, region: Vec::new(), counters: 0 };
        counting.fill();
        Ok(counting)
    }

    /// Bytes that the counters take.
    pub fn counters_size(&self) -> u64 {
        (self.plan.functions.len() as u64 * COUNTER).next_multiple_of(PAGE).max(PAGE)
    }

    /// All addresses that region and counters take, from the module's address 0 on.
    pub fn range(&self) -> Range<i64> {
        let (region, end) = (self.plan.region, self.plan.region + self.plan.region_size() as i64);
        let counters_end = self.counters + self.counters_size() as i64;
        region.min(self.counters)..end.max(counters_end)
    }

    /// Moves region and counters, so that their addresses begin at `start`.
    ///
    /// # Errors
    /// Those of [`Plan::move_region`].
    pub fn move_to(&mut self, start: i64) -> Result<(), RewriteError> {
        let is_above = start > 0;
        let before = if is_above { 0 } else { self.counters_size() as i64 };
        let region = start.checked_add(before).ok_or(RewriteError::NoPlace)?;
        self.plan.move_region(region)?;
        self.fill();
        Ok(())
    }

    /// Gives the counters their place beside the region, and the region its bytes.
    fn fill(&mut self) {
        let (region, size) = (self.plan.region, self.plan.region_size() as i64);
        // On the side of the region where nothing else of the plan is.
        self.counters = if region > 0 { region + size } else { region - self.counters_size() as i64 };
        self.region = region_of(self);
    }
}

impl Analysis<'_> {
    /// A plan that counts the calls of functions that `is_wanted` accepts by their start and name.
    ///
    /// # Errors
    /// Those of [`Analysis::plan`].
    pub fn counting(&self, is_wanted: &dyn Fn(u64, &str) -> bool) -> Result<CountingPlan, RewriteError> {
        CountingPlan::of(self.plan(HookLayout::default(), is_wanted)?)
    }
}

/// The bytes of stubs and trampolines.
fn region_of(counting: &CountingPlan) -> Vec<u8> {
    let plan = &counting.plan;
    let reserved = plan.hooks.reserved as usize;
    let mut region = vec![INT3; reserved];
    for (stub, counter) in region.chunks_exact_mut(STUB as usize).zip(0..plan.functions.len() as i64) {
        let end = plan.region + counter * i64::from(STUB) + i64::from(ADD);
        let displacement = (counting.counters + counter * COUNTER as i64 - end) as i32;
        let [a, b, c, d] = displacement.to_le_bytes();
        // lock incq displacement(%rip); ret
        stub[..9].copy_from_slice(&[0xf0, 0x48, 0xff, 0x05, a, b, c, d, 0xc3]);
    }
    region.extend(plan.code_with_stubs(|function| function * STUB));
    region
}
