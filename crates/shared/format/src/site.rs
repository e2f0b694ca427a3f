//! The lists of sites in traced objects, and the ELF notes that show what such an object contains.

use crate::wire::wire_struct;

/// Section with the sites of mode `nops`; a C identifier, so that linkers define
/// `__start_everycall_sites` and `__stop_everycall_sites`.
pub const SITES_SECTION: &str = "everycall_sites";
/// Section with clang's XRay sleds (`xray_instr_map`, version 2 entries).
pub const XRAY_SECTION: &str = "xray_instr_map";
/// ELF note section of objects that carry the runtime or the module part.
pub const NOTE_SECTION: &str = ".note.everycall";
/// Owner of that note.
pub const NOTE_OWNER: &str = "everycall";
/// Note type: the object carries the runtime itself. The descriptor is a u32 [`RUNTIME_ABI`].
pub const NOTE_RUNTIME: u32 = 1;
/// Note type: the object carries the module part only.
pub const NOTE_MODULE: u32 = 2;
/// Version of the table through which modules find the runtime of their process.
pub const RUNTIME_ABI: u32 = 8;

wire_struct! {
    /// A site of mode `nops`: [`SITE_SIZE`](crate::arch::SITE_SIZE) bytes, of which a part within
    /// one aligned word changes. Sites of kind [`site_kind::RETURN`] have no alignment.
    pub struct Site [12] {
        /// The site's address minus the address of this field.
        pub site: i32,
        /// The function's start address minus the address of this field.
        pub function: i32,
        /// One of [`site_kind`].
        pub kind: u32,
    }
}

/// The meaning of a [`Site`].
pub mod site_kind {
    /// The function was entered.
    pub const ENTRY: u32 = 0;
    /// The function is about to return.
    pub const EXIT: u32 = 1;
    /// The function is about to jump into another.
    pub const TAIL_EXIT: u32 = 2;
    /// The function is about to return, by a plain `ret` after the site. As compiled, the site
    /// itself begins with `ret`. Not every machine has it.
    pub const RETURN: u32 = 3;
}

wire_struct! {
    /// An entry of clang's `xray_fn_idx`: the sleds of one function. The function's id is the
    /// entry's number, from 1.
    pub struct XrayFunction [16] {
        /// The first sled's entry minus the address of this field.
        pub first: i64,
        /// The number of its sleds.
        pub count: u64,
    }
}

wire_struct! {
    /// One entry of clang's `xray_instr_map`, version 2.
    pub struct XraySled [32] {
        /// The sled's address minus the address of this field.
        pub sled: i64,
        /// The function's start address minus the address of this field.
        pub function: i64,
        /// One of [`sled_kind`].
        pub kind: u8,
        /// Not 0 if the source requests instrumentation always.
        pub always: u8,
        /// Version of the entry: 2.
        pub version: u8,
        /// Zero.
        pub padding: [u8; 13],
    }
}

/// The meaning of an [`XraySled`].
pub mod sled_kind {
    /// Function entry: `eb 09` and a 9-byte NOP.
    pub const ENTRY: u8 = 0;
    /// Function exit: `c3` and a 10-byte NOP.
    pub const EXIT: u8 = 1;
    /// Tail exit, before a jump: `eb 09` and a 9-byte NOP.
    pub const TAIL_EXIT: u8 = 2;
    /// Entry of a function whose first argument handlers get; the same bytes as [`ENTRY`].
    pub const ENTRY_LOG_ARGS: u8 = 3;
    /// Within a function: `eb 0f`, and code that calls `__xray_CustomEvent`.
    pub const CUSTOM_EVENT: u8 = 4;
    /// Within a function: `eb 14`, and code that calls `__xray_TypedEvent`.
    pub const TYPED_EVENT: u8 = 5;
}
