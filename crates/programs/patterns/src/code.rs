//! Facts about a function's instructions.

/// A function's code, as far as patterns need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Instructions, without those of the sites and without NOPs, which align loops.
    pub instructions: u32,
    /// Whether a jump leads backward within the function.
    pub has_loop: bool,
}
