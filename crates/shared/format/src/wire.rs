//! Plain structures with a fixed little-endian layout. They are read and written field by field, so
//! neither side needs `unsafe` or depends on the host's layout.

/// Bytes of a page, to which the parts of shared memory are aligned.
pub const PAGE: u64 = 4096;

/// A field of a [`Wire`] structure.
pub trait Field: Copy {
    /// Bytes that the field takes.
    const SIZE: usize;
    /// Reads the field from exactly [`Field::SIZE`] little-endian bytes.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the field into exactly [`Field::SIZE`] little-endian bytes.
    fn put(self, bytes: &mut [u8]);
}

macro_rules! integer_field {
    ($($t:ty),*) => {$(
        impl Field for $t {
            const SIZE: usize = size_of::<$t>();
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$t>()];
                raw.copy_from_slice(bytes);
                <$t>::from_le_bytes(raw)
            }
            #[inline]
            fn put(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
integer_field!(u8, u16, u32, u64, i32, i64);

impl<T: Field + Default, const N: usize> Field for [T; N] {
    const SIZE: usize = T::SIZE * N;
    fn get(bytes: &[u8]) -> Self {
        let mut all = [T::default(); N];
        for (value, raw) in all.iter_mut().zip(bytes.chunks_exact(T::SIZE)) {
            *value = T::get(raw);
        }
        all
    }
    fn put(self, bytes: &mut [u8]) {
        for (value, raw) in self.into_iter().zip(bytes.chunks_exact_mut(T::SIZE)) {
            value.put(raw);
        }
    }
}

/// A structure with a fixed layout: its fields in order, without padding, little endian.
pub trait Wire: Sized + Copy {
    /// Bytes that the structure takes.
    const SIZE: usize;
    /// `[u8; SIZE]`.
    type Bytes: AsRef<[u8]> + IntoIterator<Item = u8>;
    /// Reads the structure from the first [`Wire::SIZE`] bytes; `None` if there are fewer.
    fn read(bytes: &[u8]) -> Option<Self>;
    /// Writes the structure into the first [`Wire::SIZE`] bytes.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    fn write(&self, bytes: &mut [u8]);
    /// The structure's bytes.
    fn to_bytes(&self) -> Self::Bytes;
}

/// Declares `repr(C)` structures without padding together with their [`Wire`] form. The size in
/// brackets is asserted: changing it is changing the format.
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident [$size:literal] { $($(#[$fmeta:meta])* pub $field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty,)* }

        impl $crate::Wire for $name {
            const SIZE: usize = $size;
            type Bytes = [u8; $size];
            #[inline]
            fn read(bytes: &[u8]) -> Option<Self> {
                let mut rest = bytes.get(..$size)?;
                $(
                    let (head, tail) = rest.split_at(<$ty as $crate::Field>::SIZE);
                    let $field = <$ty as $crate::Field>::get(head);
                    rest = tail;
                )*
                let _ = rest;
                Some($name { $($field),* })
            }
            #[inline]
            fn write(&self, bytes: &mut [u8]) {
                let mut rest = &mut bytes[..$size];
                $(
                    let (head, tail) = rest.split_at_mut(<$ty as $crate::Field>::SIZE);
                    $crate::Field::put(self.$field, head);
                    rest = tail;
                )*
                let _ = rest;
            }
            #[inline]
            fn to_bytes(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                $crate::Wire::write(self, &mut bytes);
                bytes
            }
        }

        impl $crate::Field for $name {
            const SIZE: usize = $size;
            fn get(bytes: &[u8]) -> Self {
                <$name as $crate::Wire>::read(bytes).unwrap_or_default()
            }
            fn put(self, bytes: &mut [u8]) {
                $crate::Wire::write(&self, bytes);
            }
        }

        // The sum of the fields' sizes and the size in memory are the declared size.
        const _: () = assert!($size == 0 $(+ <$ty as $crate::Field>::SIZE)*);
        const _: () = assert!($size == size_of::<$name>());

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: <$ty as $crate::Field>::get(&[0; <$ty as $crate::Field>::SIZE]),)* }
            }
        }
    };
}
pub(crate) use wire_struct;

#[cfg(test)]
mod tests {
    use super::*;

    wire_struct! {
        /// A sample.
        pub struct Sample [24] {
            /// First.
            pub a: u64,
            /// Second.
            pub b: u32,
            /// Third.
            pub c: [u8; 4],
            /// Fourth.
            pub d: [u32; 2],
        }
    }

    #[test]
    fn round_trip_and_short_input() {
        let sample = Sample { a: 0x0102_0304_0506_0708, b: 9, c: *b"abcd", d: [7, u32::MAX] };
        let bytes = sample.to_bytes();
        assert_eq!(bytes[0], 8, "little endian");
        assert_eq!(Sample::read(&bytes), Some(sample));
        assert_eq!(Sample::read(&bytes[..23]), None);
    }
}
