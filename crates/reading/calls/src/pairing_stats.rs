//! Counts of events that do not fit.

/// Counts of pairing, mostly of events that it could not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairingStats {
    /// Calls begun, including those truncated at the beginning.
    pub calls: u64,
    /// Orphan exits that the runtime recorded as ordinary exits.
    pub inferred_orphan_exits: u64,
    /// Calls whose exit is missing although they must have ended.
    pub exits_lost: u64,
    /// Calls left without an exit.
    pub unwound: u64,
    /// Orphan exits that the runtime recorded as such.
    pub orphan_exits: u64,
    /// Events that came too late to find their place in time.
    pub clamped: u64,
    /// Calls left without an exit whose entry and function are not in the trace.
    pub unnamed: u64,
    /// Calls beyond the depth limit of the output.
    pub too_deep: u64,
    /// Calls on which the events and the list of open calls contradict each other.
    pub open_call_disagreements: u64,
    /// Times that the depth written by the runtime differed from the depth counted here.
    pub depth_disagreements: u64,
    /// Ends of spans that had not begun.
    pub orphan_span_ends: u64,
    /// Spans that are not shown because too many were open.
    pub spans_too_many: u64,
    /// Exits of thunks, which have no entry: nothing is missing there.
    pub thunk_exits: u64,
}
