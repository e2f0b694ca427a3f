//! The kinds of chunks that this version knows. One that isn't here is skipped and counted.

use everycall_format::ect::chunk;

/// One line for each kind: its variant, its number's constant in [`chunk`], and its contents for
/// people; plural.
macro_rules! kinds {
    ($($variant:ident = $number:ident, $name:literal;)*) => {
        /// A kind of chunk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($variant,)*
        }

        impl Kind {
            /// The kind with a number.
            pub fn of(number: u32) -> Option<Kind> {
                match number {
                    $(chunk::$number => Some(Kind::$variant),)*
                    _ => None,
                }
            }

            /// Its contents, for people; plural.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$variant => $name,)*
                }
            }
        }
    };
}

kinds! {
    Meta = META, "texts about the recording";
    Clock = CLOCK, "clock readings";
    Modules = MODULES, "modules";
    ModuleImage = MODULE_IMAGE, "bytes of a module's file";
    Snapshot = SNAPSHOT, "facts of a snapshot";
    Thread = THREAD, "facts of a thread";
    Events = EVENTS, "events";
    Children = CHILDREN, "children";
    ProcessEnd = PROCESS_END, "facts of the process's end";
    Process = PROCESS, "facts of a process";
    Triggers = TRIGGERS, "triggers";
    Kept = KEPT, "facts of a kept call";
    Dropped = DROPPED, "counts of dropped calls";
    Counts = COUNTS, "counts of calls";
    AllCalls = ALL_CALLS, "counts of all calls";
    ValueCounts = VALUE_COUNTS, "counts of values";
    Times = TIMES, "times of calls";
    Memory = MEMORY, "allocations of calls";
    FrameNames = FRAME_NAMES, "names of frames by id";
    CodeNames = CODE_NAMES, "names of code of just-in-time compilers";
    CodeFile = CODE_FILE, "a file with names of code of just-in-time compilers";
    Stamps = STAMPS, "which events have a time of their own";
    Calibration = CALIBRATION, "what hooks cost";
    Sched = SCHED, "scheduling events";
    Stacks = STACKS, "samples of stacks";
    Session = SESSION, "what a session asked for";
    Symbols = SYMBOLS, "what is known of a module's functions";
    Sources = SOURCES, "source files";
    End = END, "last facts";
}

/// Contents of a kind with a number, for people; plural.
pub(crate) fn name_of(number: u32) -> &'static str {
    Kind::of(number).map_or("contents of an unknown chunk", Kind::name)
}
