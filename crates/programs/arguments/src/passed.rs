//! How values are passed, before registers are assigned.

/// How eight bytes of a value are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Nothing,
    Integer,
    Vector,
}

/// A number or pointer within a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scalar {
    pub offset: u64,
    /// At most 8 bytes, or 16 for an integer.
    pub size: u64,
    pub is_float: bool,
}

/// How a value is passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// In registers as far as there are any, else on the stack.
    Classes(Vec<Class>),
    /// Rust: each is an argument of its own.
    Scalars(Vec<Scalar>),
    /// On the stack, aligned.
    Memory(u64),
    /// Its address is passed as an integer.
    Reference,
    /// An empty class takes no register.
    Empty,
}
