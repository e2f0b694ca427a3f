//! The filter's conditions on single calls.

/// The conditions, with `last` resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) since_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) min_duration_ns: u64,
    pub(crate) depth: usize,
    /// Whether only some calls with all of their callees are shown.
    pub(crate) selects: bool,
}
