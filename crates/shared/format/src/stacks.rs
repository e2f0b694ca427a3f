//! Sampled stacks: where threads were at moments that the kernel chose, as the recorder unwound
//! them. In the trace file, not in an arena: the traced process has no part in it.
//!
//! ```text
//! sample -> node -> frame -> file, or name
//!             |
//!           parent (its caller), and so on
//! ```

use crate::wire::wire_struct;

/// [`StacksRecord::flags`].
pub mod flags {
    /// Code of the kernel is sampled, too. Otherwise no sample was taken while a thread was there.
    pub const KERNEL: u32 = 1;
}

wire_struct! {
    /// Begins a STACKS chunk. Behind it are the text, the names, the files, the frames, the nodes,
    /// and the samples; text and names are padded to a multiple of 8. Each chunk has tables of its
    /// own.
    pub struct StacksRecord [96] {
        /// Bytes of this record.
        pub record_size: u32,
        /// A set of [`flags`].
        pub flags: u32,
        /// The clock of the samples: one of [`crate::sched::clock`].
        pub clock: u32,
        /// Samples that were wanted of each second in which a thread runs; 0 if there are none.
        pub rate: u32,
        /// Bytes of each file.
        pub file_size: u32,
        /// Bytes of each frame.
        pub frame_size: u32,
        /// Bytes of each node.
        pub node_size: u32,
        /// Bytes of each sample.
        pub sample_size: u32,
        /// Number of files.
        pub files: u32,
        /// Number of frames.
        pub frames: u32,
        /// Number of nodes.
        pub nodes: u32,
        /// Bytes of the text, which says what isn't sampled, and why.
        pub text_length: u32,
        /// Bytes of the names.
        pub names_length: u32,
        /// Bytes of a thread's stack that were copied for each sample.
        pub stack_bytes: u32,
        /// Number of samples.
        pub samples: u64,
        /// Samples that the kernel had no room for, since the chunk before.
        pub lost: u64,
        /// Samples that newer ones have replaced in the recorder's memory, since the chunk before.
        pub overwritten: u64,
        /// How often the kernel took fewer samples for a time, because they cost too much, since the
        /// chunk before.
        pub throttled: u64,
        /// Zero.
        pub reserved: u64,
    }
}

wire_struct! {
    /// A file whose code is in frames.
    pub struct StackFile [48] {
        /// Where its path is in the names.
        pub path: u32,
        /// Bytes of its path.
        pub path_length: u32,
        /// Bytes of its build id; 0 if it has none.
        pub build_id_length: u32,
        /// Zero.
        pub reserved: u32,
        /// Its build id, padded with zeros.
        pub build_id: [u8; 32],
    }
}

/// [`StackFrame::kind`].
pub mod frame_kind {
    /// Code of a file: the address is the file's own.
    pub const FILE: u32 = 1;
    /// Code of the kernel, by name.
    pub const KERNEL: u32 = 2;
    /// Code that no file contains; the address is the process's.
    pub const MEMORY: u32 = 3;
    /// Code that the kernel has put into each process, by name: the vDSO.
    pub const VDSO: u32 = 4;
}

wire_struct! {
    /// A place in code.
    pub struct StackFrame [24] {
        /// The instruction; of a caller, the last byte of the instruction that called.
        pub address: u64,
        /// One of [`frame_kind`].
        pub kind: u32,
        /// The file's place in the table, of code of files.
        pub file: u32,
        /// Where the function's name is in the names, of other code.
        pub name: u32,
        /// Bytes of the name; 0 if it isn't known.
        pub name_length: u32,
    }
}

/// [`StackNode::parent`] of outermost frames, and [`StackSample::node`] of samples without any.
pub const NO_NODE: u32 = u32::MAX;

wire_struct! {
    /// A stack: its innermost frame, and the stack of that frame's caller.
    pub struct StackNode [8] {
        /// The caller's node, which stands before this one, or [`NO_NODE`].
        pub parent: u32,
        /// The frame's place in the table.
        pub frame: u32,
    }
}

/// [`StackSample::flags`].
pub mod sample_flags {
    /// The stack was deeper than the copy of it: outer frames are missing.
    pub const CUT: u32 = 1;
    /// Some frames were found by frame pointers, as their code has no unwind information. Frames
    /// may be missing or wrong.
    pub const FRAME_POINTERS: u32 = 2;
    /// Outer frames are missing, as no caller was found for the last one.
    pub const STOPPED: u32 = 4;
}

wire_struct! {
    /// A sample.
    pub struct StackSample [24] {
        /// Its time, by the chunk's clock.
        pub time: u64,
        /// The thread's process id.
        pub pid: u32,
        /// The thread's id.
        pub tid: u32,
        /// Its stack, or [`NO_NODE`].
        pub node: u32,
        /// A set of [`sample_flags`].
        pub flags: u32,
    }
}
