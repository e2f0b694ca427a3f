//! Where code is.

/// An address in a function, as its module states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// Index in the recording's modules, or [`Location::NO_MODULE`] or [`Location::LOST_MODULE`].
    /// One file has one index, however many processes run it: that of the first of them.
    pub module: u32,
    /// Address in the image (process address - base). For [`Location::NO_MODULE`] the process
    /// address, for [`Location::LOST_MODULE`] the code offset.
    pub image_address: u64,
}

impl Location {
    /// The code was outside all modules; the address is the process's.
    pub const NO_MODULE: u32 = u32::MAX;
    /// The trace doesn't say which module was there; the address is the code offset.
    pub const LOST_MODULE: u32 = u32::MAX - 1;

    /// Index in the recording's modules, where there is one.
    #[must_use]
    pub fn module_index(self) -> Option<usize> {
        (self.module < Location::LOST_MODULE).then_some(self.module as usize)
    }
}
