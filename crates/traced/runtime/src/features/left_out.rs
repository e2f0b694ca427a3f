//! Functions that the program itself leaves out, by their addresses, and the selection that it
//! chooses by itself.
#![allow(unsafe_code)] // The program's list of addresses.

use crate::features::loaded_modules::{self, ADDRESSES_MAX, Marked, Refused};
use crate::features::{marks, pause, site_set};
use crate::state::off_ranges;
use crate::state::process::Process;
use crate::state::selection::{self, Selection};
use crate::sys::errors::error;
use everycall_format::arena::counter;
use everycall_hooks::Switched;

/// Leaves the functions that contain these addresses out, or takes them back. Returns what was
/// found.
///
/// # Safety
/// `addresses` is the begin of `count` readable addresses.
pub(crate) unsafe fn switch(
    process: &'static Process,
    addresses: *const u64,
    count: usize,
    is_off: bool,
) -> Result<Switched, i32> {
    let mut all = Switched::default();
    let mut done = 0;
    while done < count {
        let mut batch = [0; ADDRESSES_MAX];
        let length = batch.len().min(count - done);
        for (index, place) in batch.iter_mut().enumerate().take(length) {
            // SAFETY: by contract.
            *place = unsafe { *addresses.wrapping_add(done + index) };
        }
        let batch = batch.get(..length).unwrap_or(&[]);
        let reason = (marks::LEFT_OUT, &off_ranges::LEFT_OUT);
        let Marked { functions, sites, counts } = loaded_modules::mark_addresses(
            process, batch, is_off, reason,
        )
        .map_err(|refused| match refused {
            Refused::Busy => error::BUSY,
            Refused::NoMemory => error::NO_MEMORY,
            Refused::NoRoom => error::NO_ROOM,
        })?;
        all.functions += functions;
        all.sites += sites;
        all.not_switched += counts.wrong();
        done += length;
    }
    if all.functions == 0 { Err(error::NO_FUNCTION) } else { Ok(all) }
}

/// Records the functions of the selection in the file at `path`, or all functions without a path.
pub(crate) fn select(process: &'static Process, path: Option<&[u8]>) -> Result<(), i32> {
    let new = path.map(site_set::selection_at).transpose()?;
    let Ok(lock) = loaded_modules::lock_patiently(process) else {
        new.inspect(|new| Selection::discard(new));
        return Err(error::BUSY);
    };
    if let Some(new) = new.filter(|new| !loaded_modules::has_module_of(new)) {
        Selection::discard(new);
        return Err(error::NO_FUNCTION);
    }
    selection::set_base(new);
    drop(lock);
    process.arena().count(counter::SELECTIONS, 1);
    loaded_modules::request();
    pause::update(process);
    loaded_modules::follow_to_end(process);
    Ok(())
}
