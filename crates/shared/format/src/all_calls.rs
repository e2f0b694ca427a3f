//! Counts of all calls that are recorded, for each function and thread slot, in the arena. A ring
//! forgets its oldest calls; these counts stay.
//!
//! ```text
//! all_calls_offset of the arena's header
//!   for each thread slot u64[functions]    place 0 belongs to no function
//! ```
//!
//! Functions have the same places as in [`crate::dropped`], from their first call on; those that
//! find no free place share [`crate::dropped::OTHERS`]. A hook adds to its own slot's
//! count when it has written a call's entry, by one instruction. A call that is
//! [dropped](crate::dropped) later stays counted here, and is counted there, too. A slot's next
//! thread continues the same counts. Only used parts take memory.
//!
//! In a process that only counts, these counts are 0: see [`crate::dropped::counting`].
