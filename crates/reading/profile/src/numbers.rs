//! Numbers that have names: each is in one list, from which it is added up, stored and printed.

/// Gives a type its list of numbers: names in machine-readable outputs, and fields.
macro_rules! named_numbers {
    ($type:ty { $($name:literal: $($field:ident).+,)+ }) => {
        impl $type {
            /// The names of the numbers in machine-readable outputs.
            pub const NAMES: [&'static str; [$($name),+].len()] = [$($name),+];

            /// All numbers, in the order of their names.
            #[must_use]
            pub fn numbers(&self) -> [u64; <$type>::NAMES.len()] {
                [$(self.$($field).+),+]
            }

            /// All numbers, in the order of their names, to be changed.
            pub fn numbers_mut(&mut self) -> [&mut u64; <$type>::NAMES.len()] {
                [$(&mut self.$($field).+),+]
            }
        }
    };
}

pub(crate) use named_numbers;
