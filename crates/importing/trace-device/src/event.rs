//! The events that the device records.

/// The name in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The address of the instruction itself.
    Code(u64),
    /// A number that the program chose: the value of a register.
    Id(u64),
}

impl Place {
    pub(crate) fn value(self) -> u64 {
        match self {
            Place::Code(value) | Place::Id(value) => value,
        }
    }
}

/// An event of one thread. `stack` is the stack pointer: calls that lie below it have ended,
/// however their frames were left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call began.
    Enter {
        /// The function.
        place: Place,
        /// Stack pointer.
        stack: u64,
    },
    /// A function returned.
    Leave {
        /// As at its entry.
        stack: u64,
    },
    /// A function jumped into another, which returns in its place.
    LeaveByJump {
        /// As at its entry.
        stack: u64,
    },
    /// A call that the program named by a number ended.
    LeaveId {
        /// As at its entry.
        stack: u64,
    },
    /// A number that the program says: names of ids, see [`Names`](crate::Names).
    Word {
        /// The number.
        value: u64,
    },
    /// The buffer was full.
    Lost {
        /// Events that are missing here.
        count: u64,
    },
}

/// An event with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Nanoseconds, a multiple of [`Parameters::unit_ns`](crate::Parameters::unit_ns).
    pub at_ns: u64,
    /// The event.
    pub event: Event,
}
