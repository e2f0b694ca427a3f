//! Registers of a floating-point unit apart from the vector registers: there are none.

/// As the other architectures have them.
#[must_use]
pub fn top_two() -> [u64; 4] {
    [0; 4]
}
