//! Capture sets: which functions' values are copied, by which [programs](crate::capture), and what
//! the programs' items are. `record --args` writes such a set, and
//! [`EVERYCALL_ARGS`](crate::env::ARGS) names it.
//!
//! ```text
//! CaptureSetHeader
//! CaptureModule[modules]       files by their build ids
//! CaptureFunction[functions]   module by module, in the order of their addresses
//! CaptureEntry[captures]       programs with their layouts
//! bytes                        programs, layouts, paths
//! ```
//!
//! Layouts are the host's: the traced process copies them into its arena and doesn't read them.
//! Readers treat a set as untrusted input: [`CaptureSet::parse`] checks every number before it is
//! used. Programs have a check of their own.

use crate::wire::{Wire, wire_struct};

/// First bytes of a capture set.
pub const MAGIC: u64 = u64::from_le_bytes(*b"\x8feccap\r\n");
/// Version of the format.
pub const VERSION: u32 = 1;
/// Limit on the bytes of a set.
pub const SIZE_MAX: u64 = 64 << 20;
/// Limit on the modules of a set.
pub const MODULES_MAX: u32 = 4096;
/// Limit on the functions of a set.
pub const FUNCTIONS_MAX: u32 = 1 << 16;
/// Limit on the captures of a set.
pub const CAPTURES_MAX: u32 = 2 * FUNCTIONS_MAX;
/// Limit on the bytes of a layout.
pub const LAYOUT_MAX: u32 = 1 << 18;

wire_struct! {
    /// The first bytes of a set.
    pub struct CaptureSetHeader [64] {
        /// [`MAGIC`].
        pub magic: u64,
        /// [`VERSION`].
        pub version: u32,
        /// Bytes of this header.
        pub header_size: u32,
        /// Bytes of the file.
        pub file_length: u64,
        /// Modules.
        pub modules: u32,
        /// Functions.
        pub functions: u32,
        /// Captures.
        pub captures: u32,
        /// Bytes of programs, layouts and paths.
        pub bytes: u32,
        /// Zero.
        pub reserved: [u32; 4],
        /// CRC-32 of everything after the header.
        pub payload_checksum: u32,
        /// CRC-32 of the header before this field.
        pub header_checksum: u32,
    }
}

wire_struct! {
    /// A file with functions whose values are copied.
    pub struct CaptureModule [64] {
        /// Bytes of the build id.
        pub build_id_length: u32,
        /// Its first function.
        pub first_function: u32,
        /// Its functions.
        pub functions: u32,
        /// Where its path begins.
        pub path_offset: u32,
        /// Bytes of its path, as it was when the set was made.
        pub path_length: u32,
        /// Zero.
        pub reserved: [u32; 3],
        /// The build id that the linker put into the file.
        pub build_id: [u8; 32],
    }
}

wire_struct! {
    /// A function. Addresses are those in the file.
    pub struct CaptureFunction [32] {
        /// Its first address.
        pub start: u64,
        /// The address after it.
        pub end: u64,
        /// The number of the capture at its entry, plus 1; 0 if there is none.
        pub entry: u32,
        /// The number of the capture at its return, plus 1; 0 if there is none.
        pub exit: u32,
        /// Zero.
        pub reserved: u64,
    }
}

wire_struct! {
    /// A program with the layout of what it writes.
    pub struct CaptureEntry [32] {
        /// The id in the program and in events. Captures of the same layout share it.
        pub id: u32,
        /// Where the program begins, a multiple of 8.
        pub program_offset: u32,
        /// Bytes of the program.
        pub program_length: u32,
        /// Where the layout begins.
        pub layout_offset: u32,
        /// Bytes of the layout, at most [`LAYOUT_MAX`].
        pub layout_length: u32,
        /// Zero.
        pub reserved: [u32; 3],
    }
}

/// Why bytes aren't a valid set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureSetError {
    /// They aren't a set.
    NoSet,
    /// They are a set of another version.
    Version(u32),
    /// They were truncated or changed, or are inconsistent.
    Damaged,
}

/// A set whose numbers were checked.
#[derive(Clone, Copy, Debug)]
pub struct CaptureSet<'a> {
    modules: &'a [u8],
    functions: &'a [u8],
    captures: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> CaptureSet<'a> {
    /// Parses a whole set. `checksum` returns the CRC-32 of bytes, as zlib's `crc32`.
    ///
    /// # Errors
    ///
    /// The bytes aren't a valid set.
    pub fn parse(
        bytes: &'a [u8],
        checksum: impl Fn(&[u8]) -> u32,
    ) -> Result<CaptureSet<'a>, CaptureSetError> {
        // The version comes first: another version may differ in everything else.
        let magic = bytes.get(..8).and_then(|magic| magic.try_into().ok()).map(u64::from_le_bytes);
        let version = bytes.get(8..12).and_then(|version| version.try_into().ok()).map(u32::from_le_bytes);
        match (magic, version) {
            (Some(MAGIC), Some(VERSION)) => {}
            (Some(MAGIC), Some(other)) => return Err(CaptureSetError::Version(other)),
            _ => return Err(CaptureSetError::NoSet),
        }
        Self::whole(bytes, checksum).filter(CaptureSet::makes_sense).ok_or(CaptureSetError::Damaged)
    }

    fn whole(bytes: &'a [u8], checksum: impl Fn(&[u8]) -> u32) -> Option<CaptureSet<'a>> {
        let header = CaptureSetHeader::read(bytes)?;
        let (head, payload) = bytes.split_at_checked(CaptureSetHeader::SIZE)?;
        let is_whole = header.header_size as usize == CaptureSetHeader::SIZE
            && header.file_length == bytes.len() as u64
            && header.file_length <= SIZE_MAX
            && checksum(head.get(..CaptureSetHeader::SIZE - size_of::<u32>())?) == header.header_checksum
            && checksum(payload) == header.payload_checksum
            && header.modules <= MODULES_MAX
            && header.functions <= FUNCTIONS_MAX
            && header.captures <= CAPTURES_MAX;
        if !is_whole {
            return None;
        }
        let (modules, rest) = payload.split_at_checked(header.modules as usize * CaptureModule::SIZE)?;
        let (functions, rest) = rest.split_at_checked(header.functions as usize * CaptureFunction::SIZE)?;
        let (captures, bytes) = rest.split_at_checked(header.captures as usize * CaptureEntry::SIZE)?;
        let set = CaptureSet { modules, functions, captures, bytes };
        (bytes.len() == header.bytes as usize).then_some(set)
    }

    fn makes_sense(&self) -> bool {
        let has = |offset: u32, length: u32| {
            offset.checked_add(length).is_some_and(|end| end as usize <= self.bytes.len())
        };
        let functions = (self.functions.len() / CaptureFunction::SIZE) as u32;
        let captures = (self.captures.len() / CaptureEntry::SIZE) as u32;
        let are_modules_right = self.modules().all(|module| {
            (1..=32).contains(&module.build_id_length)
                && module.first_function.checked_add(module.functions).is_some_and(|end| end <= functions)
                && has(module.path_offset, module.path_length)
                && self.are_in_order(&module)
        });
        let are_functions_right = self.all_functions().all(|function| {
            function.start < function.end && function.entry <= captures && function.exit <= captures
        });
        let are_captures_right = self.captures().all(|capture| {
            capture.program_offset.is_multiple_of(8)
                && has(capture.program_offset, capture.program_length)
                && has(capture.layout_offset, capture.layout_length)
                && capture.layout_length <= LAYOUT_MAX
        });
        are_modules_right && are_functions_right && are_captures_right
    }

    /// Whether a module's functions are ordered by address and apart.
    fn are_in_order(&self, module: &CaptureModule) -> bool {
        let mut end = 0;
        self.functions_of(module).all(|function| {
            let follows = function.start >= end;
            end = function.end;
            follows
        })
    }

    /// The modules.
    pub fn modules(&self) -> impl Iterator<Item = CaptureModule> + use<'a> {
        self.modules.chunks_exact(CaptureModule::SIZE).filter_map(CaptureModule::read)
    }

    fn all_functions(&self) -> impl Iterator<Item = CaptureFunction> + use<'a> {
        self.functions.chunks_exact(CaptureFunction::SIZE).filter_map(CaptureFunction::read)
    }

    /// The functions of a module, by address.
    pub fn functions_of(&self, module: &CaptureModule) -> impl Iterator<Item = CaptureFunction> + use<'a> {
        let begin = (module.first_function as usize).saturating_mul(CaptureFunction::SIZE);
        let size = (module.functions as usize).saturating_mul(CaptureFunction::SIZE);
        let functions = self.functions.get(begin..).and_then(|rest| rest.get(..size)).unwrap_or(&[]);
        functions.chunks_exact(CaptureFunction::SIZE).filter_map(CaptureFunction::read)
    }

    /// A function of a module by its number, from 0.
    #[must_use]
    pub fn function(&self, module: &CaptureModule, number: u32) -> Option<CaptureFunction> {
        let index = module.first_function.checked_add(number).filter(|_| number < module.functions)?;
        CaptureFunction::read(self.functions.get(index as usize * CaptureFunction::SIZE..)?)
    }

    /// The function of a module that begins at this address in the file.
    #[must_use]
    pub fn function_at(&self, module: &CaptureModule, start: u64) -> Option<CaptureFunction> {
        let (mut low, mut high) = (0, module.functions);
        while low < high {
            let middle = low.midpoint(high);
            let index = module.first_function.checked_add(middle)? as usize;
            let function = CaptureFunction::read(self.functions.get(index * CaptureFunction::SIZE..)?)?;
            match function.start.cmp(&start) {
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Equal => return Some(function),
                core::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// All captures, by number.
    pub fn captures(&self) -> impl Iterator<Item = CaptureEntry> + use<'a> {
        self.captures.chunks_exact(CaptureEntry::SIZE).filter_map(CaptureEntry::read)
    }

    /// The capture of [`CaptureFunction::entry`] or [`CaptureFunction::exit`]; `None` for 0.
    #[must_use]
    pub fn capture(&self, number: u32) -> Option<CaptureEntry> {
        let index = number.checked_sub(1)? as usize;
        CaptureEntry::read(self.captures.get(index.checked_mul(CaptureEntry::SIZE)?..)?)
    }

    /// The program of a capture, which is still to be checked.
    #[must_use]
    pub fn program(&self, capture: &CaptureEntry) -> &'a [u8] {
        self.part(capture.program_offset, capture.program_length)
    }

    /// The layout of a capture.
    #[must_use]
    pub fn layout(&self, capture: &CaptureEntry) -> &'a [u8] {
        self.part(capture.layout_offset, capture.layout_length)
    }

    /// The path of a module.
    #[must_use]
    pub fn path(&self, module: &CaptureModule) -> &'a [u8] {
        self.part(module.path_offset, module.path_length)
    }

    fn part(&self, offset: u32, length: u32) -> &'a [u8] {
        self.bytes.get(offset as usize..).and_then(|rest| rest.get(..length as usize)).unwrap_or(&[])
    }
}
