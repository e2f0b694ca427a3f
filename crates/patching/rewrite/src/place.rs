//! The place of a finished plan's trampolines and hooks, which can be changed.
//!
//! Whoever applies a plan may find the memory taken that it asks for, by the region of a library
//! beside it. Instructions in trampolines have the same length wherever they are, so only
//! displacements between the region and the module change.

use std::ops::RangeInclusive;

use crate::error::RewriteError;
use crate::kinds::PatchKind;
use crate::layout::{MAX_REGION, PAGE};
use crate::plan::{HookLayout, Island, Patch, Plan};

const JUMP: u8 = 0xe9;
/// Bytes of a jump that reaches everything.
const JUMP_LENGTH: usize = 5;

/// The displacement at the start of `bytes`.
fn read(bytes: Option<&[u8]>) -> Option<i32> {
    bytes?.first_chunk().map(|bytes| i32::from_le_bytes(*bytes))
}

/// Adds to the displacement at the start of `bytes`. Whether it fits was checked before.
fn add(bytes: Option<&mut [u8]>, delta: i32) {
    if let Some(bytes) = bytes.and_then(<[u8]>::first_chunk_mut) {
        *bytes = i32::from_le_bytes(*bytes).wrapping_add(delta).to_le_bytes();
    }
}

/// The offsets of displacements in a patch's new bytes that lead to the region.
fn fields(patch: &Patch) -> impl Iterator<Item = usize> + use<> {
    let jump_at = |at: usize| {
        let is_whole = patch.new.len() >= at + JUMP_LENGTH;
        (is_whole && patch.new.get(at) == Some(&JUMP)).then_some(at + 1)
    };
    let found = match patch.kind {
        PatchKind::Displacement | PatchKind::Call => [Some(0), None],
        PatchKind::Copy | PatchKind::Slot => [jump_at(0), None],
        // In what was evicted, a second one is what another window's short jump leads to.
        PatchKind::Window => {
            let first = jump_at(0);
            [first, first.and_then(|_| jump_at(JUMP_LENGTH))]
        }
    };
    found.into_iter().flatten()
}

/// The least and greatest of some numbers, `None` if there are none.
fn bounds(values: impl Iterator<Item = i32>) -> Option<(i64, i64)> {
    values.map(i64::from).fold(None, |bounds, value| {
        let (low, high) = bounds.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

impl Plan {
    fn offset(&self, field: u32) -> Option<usize> {
        field.checked_sub(self.hooks.reserved).map(|offset| offset as usize)
    }

    /// Where the region can be, from the module's address 0 on, as far as displacements decide
    /// that. Addresses of the module and of islands among these are taken.
    ///
    /// Empty if there is no such place.
    pub fn reach(&self) -> RangeInclusive<i64> {
        const LEAST: i64 = i32::MIN as i64;
        const MOST: i64 = i32::MAX as i64;
        let (start, end) = (self.module.start as i64, self.module.end as i64);
        let size = self.region_size() as i64;
        // All of the region and all of the module reach each other.
        let mut low = end.saturating_add(LEAST + 1);
        let mut high = start.saturating_add(MOST - size);
        let to_region = self
            .patches
            .iter()
            .flat_map(|patch| fields(patch).filter_map(|field| read(patch.new.get(field..))));
        let islands = self.islands.iter().filter_map(|island| read(island.bytes.get(1..)));
        if let Some((least, most)) = bounds(to_region.chain(islands)) {
            low = low.max(self.region.saturating_add(LEAST - least));
            high = high.min(self.region.saturating_add(MOST - most));
        }
        let to_module = self.to_module.iter().filter_map(|&field| read(self.code.get(self.offset(field)?..)));
        if let Some((least, most)) = bounds(to_module) {
            low = low.max(self.region.saturating_add(most - MOST));
            high = high.min(self.region.saturating_add(least - LEAST));
        }
        low..=high
    }

    /// Moves the region to another distance from the module. Islands stay where they are.
    ///
    /// # Errors
    /// [`RewriteError::NoPlace`]; the plan is as before.
    pub fn move_region(&mut self, region: i64) -> Result<(), RewriteError> {
        if !self.is_free(region, self.region_size()) || !self.reach().contains(&region) {
            return Err(RewriteError::NoPlace);
        }
        // Both are within 2 GiB of the module: all sums above fit, this one modulo 2^32.
        let delta = region.wrapping_sub(self.region) as i32;
        for patch in &mut self.patches {
            fields(patch).for_each(|field| add(patch.new.get_mut(field..), delta));
        }
        self.islands.iter_mut().for_each(|island| add(island.bytes.get_mut(1..), delta));
        let reserved = self.hooks.reserved;
        for field in &self.to_module {
            let offset = field.checked_sub(reserved).map(|offset| offset as usize);
            add(offset.and_then(|offset| self.code.get_mut(offset..)), delta.wrapping_neg());
        }
        self.region = region;
        Ok(())
    }

    /// Whether the region may take these addresses, which are pages'.
    fn is_free(&self, region: i64, size: u64) -> bool {
        let Some(end) = region.checked_add_unsigned(size) else { return false };
        let is_beside = end <= self.module.start as i64 || region >= self.module.end as i64;
        let is_on_island =
            |island: &Island| island.at.saturating_add(JUMP_LENGTH as i64) > region && island.at < end;
        region % PAGE as i64 == 0 && is_beside && !self.islands.iter().any(is_on_island)
    }

    /// Changes where the hooks are, and how much is reserved for them. Trampolines stay where they
    /// are: the region begins earlier or later.
    ///
    /// # Errors
    /// [`RewriteError::NoPlace`] if the region's new begin isn't free or in reach, or if
    /// `reserved` isn't a number of whole pages; the plan is as before.
    pub fn set_hooks(&mut self, hooks: HookLayout) -> Result<(), RewriteError> {
        let size = u64::from(hooks.reserved) + self.code.len() as u64;
        let delta = i64::from(hooks.reserved) - i64::from(self.hooks.reserved);
        let region = self.region.checked_sub(delta).ok_or(RewriteError::NoPlace)?;
        let is_in_reach = region > (self.module.end as i64).saturating_add(i64::from(i32::MIN));
        if size > MAX_REGION as u64
            || u64::from(hooks.reserved) % PAGE != 0
            || !is_in_reach
            || !self.is_free(region, size.next_multiple_of(PAGE))
        {
            return Err(RewriteError::NoPlace);
        }
        // Sums are the new places: within the region, whose size was checked.
        let delta = delta as u32;
        let shift = |at: &mut u32| *at = at.wrapping_add(delta);
        self.moves.iter_mut().for_each(|one| shift(&mut one.to));
        self.rows.iter_mut().for_each(|row| shift(&mut row.at));
        self.to_module.iter_mut().for_each(shift);
        (self.region, self.hooks) = (region, hooks);
        for call in &mut self.calls {
            shift(&mut call.at);
            let displacement = hooks.of(call.kind).wrapping_sub(call.at.wrapping_add(JUMP_LENGTH as u32));
            let field = call.at.wrapping_sub(hooks.reserved) as usize + 1;
            if let Some(bytes) = self.code.get_mut(field..).and_then(<[u8]>::first_chunk_mut) {
                *bytes = displacement.to_le_bytes();
            }
        }
        Ok(())
    }
}
