//! Symbols and sources in a trace file, so that it needs none of its modules' files. Both follow
//! the recording, after its END, in chunks of their own.

use crate::wire::wire_struct;

/// No text, no function.
pub const NONE: u32 = u32::MAX;
/// Largest payload of one of these chunks that is written, in bytes.
pub const PAYLOAD_MAX: u64 = 32 << 20;

wire_struct! {
    /// Begins a [SYMBOLS](crate::ect::chunk::SYMBOLS) chunk. The module's path follows, then the
    /// body.
    pub struct SymbolsRecord [64] {
        /// Bytes of this record; the path follows.
        pub record_size: u32,
        /// Bytes of the path.
        pub path_length: u32,
        /// Bytes of the build id.
        pub build_id_length: u32,
        /// One of [`crate::ect::encoding`]: RAW or ZSTD.
        pub encoding: u32,
        /// Build id of the module, padded with zeros.
        pub build_id: [u8; 32],
        /// Bytes of the body, decoded.
        pub length: u64,
        /// Zero.
        pub reserved: u64,
    }
}

// The body: the arrays of texts' lengths (u32), then the texts' bytes, then these arrays, each with
// its header, in this order.

wire_struct! {
    /// A function.
    pub struct FunctionEntry [56] {
        /// First image address.
        pub start: u64,
        /// Bytes; 0 where unknown.
        pub size: u64,
        /// Text: its demangled name, without the suffix of a part.
        pub name: u32,
        /// Text: the linker's name; [`NONE`] if there is none.
        pub linkage_name: u32,
        /// Text: which part of a function it is; [`NONE`] for a whole one.
        pub part: u32,
        /// Index of the function that it is a part of; [`NONE`] if that isn't known.
        pub whole: u32,
        /// Text: the file that declares it; [`NONE`] if that isn't known.
        pub file: u32,
        /// The line of the declaration, from 1; 0 if it isn't known.
        pub line: u32,
        /// Names of the same code that aren't among the twins here.
        pub more_twins: u32,
        /// Calls inlined into it that aren't here.
        pub more_inlined: u32,
        /// A set of [`function_flags`].
        pub flags: u32,
        /// Its place among all functions of the module: this distinguishes functions of one name.
        pub place: u32,
    }
}

/// [`FunctionEntry::flags`].
pub mod function_flags {
    /// The source of the name: 0 a symbol, 1 DWARF, 2 a stub of the procedure linkage table, 3
    /// none, so the name is an offset.
    pub const NAME_SOURCE: u32 = 3;
    /// Several functions have its name, and it isn't known which of them it belongs to.
    pub const AMBIGUOUS: u32 = 4;
    /// A thunk without an entry hook.
    pub const BARE_THUNK: u32 = 8;
    /// Whether gcc compiled it is known.
    pub const COMPILER_KNOWN: u32 = 16;
    /// gcc compiled it.
    pub const BY_GCC: u32 = 32;
}

wire_struct! {
    /// The function that contains an address.
    pub struct AddressEntry [16] {
        /// Image address.
        pub address: u64,
        /// Index of the function.
        pub function: u32,
        /// Zero.
        pub reserved: u32,
    }
}

wire_struct! {
    /// How a function is left at an exit.
    pub struct LeaveEntry [16] {
        /// Image address of the exit.
        pub address: u64,
        /// One of [`leave`].
        pub kind: u32,
        /// Index of the function, or text with the linker's name of it.
        pub target: u32,
    }
}

/// [`LeaveEntry::kind`].
pub mod leave {
    /// By returning.
    pub const RETURN: u32 = 1;
    /// By a jump into a function of the module.
    pub const JUMP: u32 = 2;
    /// By a jump into the function of this linker name.
    pub const JUMP_BY_NAME: u32 = 3;
    /// By a jump to a computed address.
    pub const JUMP_ANYWHERE: u32 = 4;
}

wire_struct! {
    /// Another name of a function.
    pub struct TwinEntry [8] {
        /// Index of the function.
        pub function: u32,
        /// Text: the linker's name.
        pub name: u32,
    }
}

wire_struct! {
    /// A call that was inlined into a function; those of one function are in their order.
    pub struct InlinedEntry [24] {
        /// Index of the function.
        pub function: u32,
        /// Inlined calls around it.
        pub level: u32,
        /// Text: the demangled name of the inlined function.
        pub name: u32,
        /// Text: the file with the call; [`NONE`] if it isn't known.
        pub file: u32,
        /// The line of the call, from 1; 0 if it isn't known.
        pub line: u32,
        /// Zero.
        pub reserved: u32,
    }
}

wire_struct! {
    /// The answer to a question about two places of code.
    pub struct AnswerEntry [24] {
        /// The first of them.
        pub first: u64,
        /// The second one.
        pub second: u64,
        /// One of [`question`].
        pub question: u32,
        /// 0 no, 1 yes, 2 unknown.
        pub answer: u32,
    }
}

/// [`AnswerEntry::question`].
pub mod question {
    /// Is code at the second address of the function that is entered at the first one?
    pub const SAME_FUNCTION: u32 = 1;
    /// Was code at the first address inlined from the function of the second index?
    pub const INLINED: u32 = 2;
    /// As [`INLINED`], apart from the innermost function that was inlined there.
    pub const INLINED_AROUND: u32 = 3;
    /// Does the function of the first index have the linker's name that is the second text?
    pub const CALLED: u32 = 4;
    /// May the function at the first address itself call the one that is entered at the second one?
    pub const MAY_CALL: u32 = 5;
}

wire_struct! {
    /// The constant, variable or task name at an address.
    pub struct DataEntry [16] {
        /// Image address.
        pub address: u64,
        /// Text: the constant's bytes, or the variable's name.
        pub text: u32,
        /// 1 a constant text, 2 a variable.
        pub kind: u32,
    }
}

/// [`DataEntry::kind`].
pub mod data {
    /// A C string that the program can't change.
    pub const CONSTANT: u32 = 1;
    /// A variable.
    pub const VARIABLE: u32 = 2;
    /// The name of tasks whose type is that of a function there.
    pub const TASK: u32 = 3;
    /// The source line of a place of code: path, colon and number.
    pub const LINE: u32 = 4;
}

wire_struct! {
    /// A source file's checksum and folder, from debugging information.
    pub struct CompiledEntry [32] {
        /// Text: its path.
        pub path: u32,
        /// Text: the folder that the compiler ran in; [`NONE`] if it isn't known.
        pub folder: u32,
        /// 1 if its checksum is known.
        pub has_md5: u32,
        /// Zero.
        pub reserved: u32,
        /// Its MD5 when it was compiled.
        pub md5: [u8; 16],
    }
}

wire_struct! {
    /// Begins a [SOURCES](crate::ect::chunk::SOURCES) chunk; the body follows: for each file a
    /// [`SourceEntry`], its path and its text.
    pub struct SourcesRecord [32] {
        /// Bytes of this record; the body follows.
        pub record_size: u32,
        /// One of [`crate::ect::encoding`]: RAW or ZSTD.
        pub encoding: u32,
        /// Bytes of the body, decoded.
        pub length: u64,
        /// Files.
        pub files: u32,
        /// Zero.
        pub reserved: [u32; 3],
    }
}

wire_struct! {
    /// A source file; its path and its text follow.
    pub struct SourceEntry [32] {
        /// Bytes of the path, as the compiler recorded it.
        pub path_length: u32,
        /// Bytes of the text, which is UTF-8.
        pub text_length: u32,
        /// A set of [`source_flags`].
        pub flags: u32,
        /// Zero.
        pub reserved: u32,
        /// MD5 of the file.
        pub md5: [u8; 16],
    }
}

/// [`SourceEntry::flags`].
pub mod source_flags {
    /// The file isn't UTF-8: invalid bytes are replacement characters in the text.
    pub const LOSSY: u32 = 1;
    /// The file was changed after the program was built.
    pub const NEWER: u32 = 2;
}
