//! Field numbers, as in `protos/perfetto/trace` of Perfetto's sources, which never change.

/// Fields of `Trace` and `TracePacket`.
pub(super) mod packet {
    pub(in crate::formats::perfetto) const PACKET: u32 = 1;
    pub(in crate::formats::perfetto) const PROCESS_TREE: u32 = 2;
    pub(in crate::formats::perfetto) const CLOCK_SNAPSHOT: u32 = 6;
    pub(in crate::formats::perfetto) const TIMESTAMP: u32 = 8;
    pub(in crate::formats::perfetto) const SEQUENCE: u32 = 10;
    pub(in crate::formats::perfetto) const TRACK_EVENT: u32 = 11;
    pub(in crate::formats::perfetto) const INTERNED: u32 = 12;
    pub(in crate::formats::perfetto) const SEQUENCE_FLAGS: u32 = 13;
    pub(in crate::formats::perfetto) const DEFAULTS: u32 = 59;
    pub(in crate::formats::perfetto) const TRACK: u32 = 60;
    /// Value of `SEQUENCE_FLAGS`: interned numbers are reset.
    pub(in crate::formats::perfetto) const STATE_CLEARED: u64 = 1;
}

/// Fields of `TrackEvent`, and values of its type.
pub(super) mod event {
    pub(in crate::formats::perfetto) const ANNOTATION: u32 = 4;
    pub(in crate::formats::perfetto) const TYPE: u32 = 9;
    pub(in crate::formats::perfetto) const NAME_NUMBER: u32 = 10;
    pub(in crate::formats::perfetto) const TRACK: u32 = 11;
    pub(in crate::formats::perfetto) const CATEGORY: u32 = 22;
    pub(in crate::formats::perfetto) const NAME: u32 = 23;
    pub(in crate::formats::perfetto) const FLOW: u32 = 47;
    pub(in crate::formats::perfetto) const VALUE: u32 = 30;
    pub(in crate::formats::perfetto) const REAL_VALUE: u32 = 44;
    pub(in crate::formats::perfetto) const BEGIN: u64 = 1;
    pub(in crate::formats::perfetto) const END: u64 = 2;
    pub(in crate::formats::perfetto) const INSTANT: u64 = 3;
    pub(in crate::formats::perfetto) const COUNTER: u64 = 4;
}

/// Fields of `DebugAnnotation`.
pub(super) mod annotation {
    pub(in crate::formats::perfetto) const NAME_NUMBER: u32 = 1;
    pub(in crate::formats::perfetto) const UNSIGNED: u32 = 3;
    pub(in crate::formats::perfetto) const SIGNED: u32 = 4;
    pub(in crate::formats::perfetto) const STRING: u32 = 6;
    pub(in crate::formats::perfetto) const NAME: u32 = 10;
    pub(in crate::formats::perfetto) const DICTIONARY: u32 = 11;
    pub(in crate::formats::perfetto) const ARRAY: u32 = 12;
    pub(in crate::formats::perfetto) const STRING_NUMBER: u32 = 17;
}

/// Fields of `InternedData`, whose entries are pairs of number and text.
pub(super) mod interned {
    pub(in crate::formats::perfetto) const EVENT_NAME: u32 = 2;
    pub(in crate::formats::perfetto) const ANNOTATION_NAME: u32 = 3;
    pub(in crate::formats::perfetto) const KERNEL_SYMBOL: u32 = 26;
    pub(in crate::formats::perfetto) const ANNOTATION_STRING: u32 = 29;
}
