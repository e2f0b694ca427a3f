//! Hooks of frames by id, and the descriptor of these frames.
#![allow(unsafe_code)] // The descriptor by its address, and the hooks' symbols.

use crate::descriptor::ModuleDescriptor;
use core::arch::global_asm;

global_asm!(
    "
    .section .bss.everycall_frames, \"aw\", @nobits
    .p2align 9
    .type   everycall_frames, @object
    .size   everycall_frames, {SIZE}
    .globl  everycall_frames
    .hidden everycall_frames
everycall_frames:
    .zero   {SIZE}
    .text
    ",
    SIZE = const size_of::<ModuleDescriptor>(),
);

#[cfg(any(feature = "executable", feature = "shared"))]
unsafe extern "C" {
    /// A call of the frame `id` begins on the calling thread.
    pub fn everycall_frame_enter(id: u64);
    /// It ends.
    pub fn everycall_frame_leave(id: u64);
}

unsafe extern "C" {
    static everycall_frames: ModuleDescriptor;
}

/// The descriptor of the process's frames by id. Their addresses are `id * STEP`.
#[must_use]
pub fn frames() -> &'static ModuleDescriptor {
    // SAFETY: zeroed bytes that hold only atomics.
    unsafe { &everycall_frames }
}

/// The hooks, as a part of those in `hooks.rs`, whose macros they use. The slow path records all
/// these frames.
#[cfg(any(feature = "executable", feature = "shared"))]
macro_rules! frames_asm {
    () => {
        "
    // Branches unless the frame whose id is in x9 is selected by the bits at x13, which has flags in
    // its lowest bits. All are selected if there are no bits; of an address that stands for an id
    // the slow path decides. Changes x10 and x11.
    .macro everycall_unless_frame_selected other
        and     x10, x13, #~3
        cbz     x10, 9f
        mov     x11, #{FRAME_IDS}
        cmp     x9, x11
        b.hs    9f
        lsr     x11, x9, #3
        ldrb    w10, [x10, x11]
        and     w11, w9, #7
        lsr     w10, w10, w11
        tbz     w10, #0, \\other
    9:
    .endm

    everycall_function everycall_frame_enter, body
        mov     x9, x0
        lsl     x0, x0, #{FRAME_SHIFT}
        mov     x1, xzr                                 // no call site
        adrp    x14, everycall_frames
        ldr     x13, [x14, #:lo12:everycall_frames + {ON}]
        cmp     x13, #1
        b.eq    1f
        b.hi    2f
        ldr     w10, [x14, #:lo12:everycall_frames + {ABI}]     // off, unless this is the first of all
        cbz     w10, 1f
        ret
    2:  everycall_unless_frame_selected 5f
        tbz     x13, #{COUNTS_BIT}, 1f
        ldr     x10, [x14, #:lo12:everycall_frames + {TIMES}]
        cbnz    x10, 1f
        everycall_load_control
        b       everycall_slow_count_frame_without_slot
    1:  everycall_point body
        everycall_load_own_control frame_entry
        b       everycall_slow_frame_entry_without_slot
    5:  ret
    everycall_function_end everycall_frame_enter

    everycall_function everycall_frame_leave, body
        mov     x9, x0
        lsl     x0, x0, #{FRAME_SHIFT}
        mov     x1, xzr
        adrp    x14, everycall_frames
        ldr     x13, [x14, #:lo12:everycall_frames + {ON}]
        cmp     x13, #1
        b.eq    1f
        b.lo    5f
        everycall_unless_frame_selected 5f
        tbz     x13, #{COUNTS_BIT}, 1f
        ldr     x10, [x14, #:lo12:everycall_frames + {TIMES}]
        cbz     x10, 5f                                 // counts need no exits
    1:  everycall_point body
        everycall_load_own_control frame_exit
        b       everycall_slow_frame_exit_without_slot
    5:  ret
    everycall_function_end everycall_frame_leave
        "
    };
}
#[cfg(any(feature = "executable", feature = "shared"))]
pub(super) use frames_asm;

/// Their ways into the slow path.
#[cfg(any(feature = "executable", feature = "shared"))]
macro_rules! frames_ways {
    () => {
        "
    everycall_slow_way frame_entry, {BODY} + {FRAME_FLAG}, body
    everycall_slow_way frame_exit, {EXIT} + {BODY} + {FRAME_FLAG}, body
    everycall_slow_way count_frame, {BODY} + {COUNT} + {FRAME_FLAG}, body
    everycall_elsewhere_way frame_entry, body
    everycall_elsewhere_way frame_exit, body
        "
    };
}
#[cfg(any(feature = "executable", feature = "shared"))]
pub(super) use frames_ways;
