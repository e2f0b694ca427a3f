//! Hooks that are called from within a function's frame, in mode `finstrument`.

/// `__cyg_profile_func_enter(function, call site)` and `__cyg_profile_func_exit`, alike. They test
/// the module's `on`: 0 is off, 1 is on, and anything else is the address of the module's bits (see
/// `ModuleDescriptor::on`).
///
/// The frame may have grown since the entry, so an exit recognises the innermost open call by its
/// function. If its stack pointer is lower than the hook's, it belongs to a dead frame, unless the
/// function has released its frame and jumped here: then the hook's return address is the call
/// site.
macro_rules! body_asm {
    () => {
        "
    // Branches unless the function in x0 is selected by the bits at x13, which has flags in its
    // lowest bits. Of a function of another module the slow path decides. Changes x10 to x14.
    .macro everycall_unless_selected other
        and     x13, x13, #~7
        adrp    x14, everycall_module
        ldr     x11, [x14, #:lo12:everycall_module + {START}]
        ldr     x12, [x14, #:lo12:everycall_module + {SIZE}]
        sub     x11, x0, x11
        cmp     x11, x12
        b.hs    9f
        lsr     x12, x11, #3
        ldrb    w13, [x13, x12]
        and     w11, w11, #7
        lsr     w13, w13, w11
        tbz     w13, #0, \\other
    9:
    .endm

    everycall_function __cyg_profile_func_enter, body
        adrp    x14, everycall_module
        ldr     x13, [x14, #:lo12:everycall_module + {ON}]
        cmp     x13, #1
        b.ne    3f
    4:  everycall_prologue body_entry, body
        str     xzr, [x10, #{STAMP_DUE}]
        adrp    x14, everycall_module
        ldr     x13, [x14, #:lo12:everycall_module + {START}]
        ldr     x14, [x14, #:lo12:everycall_module + {SIZE}]
        sub     x13, x0, x13
        cmp     x13, x14
        b.hs    everycall_slow_body_entry               // a function of another module
        everycall_push lo, everycall_slow_body_entry_pushed
        everycall_write_entry_of 0, body, body
    3:  b.lo    5f
        tbnz    x13, #{COUNTS_BIT}, everycall_count_selected_body
        everycall_unless_selected 5f
        b       4b
    5:  ret
    everycall_function_end __cyg_profile_func_enter

    everycall_function __cyg_profile_func_exit, body
        adrp    x14, everycall_module
        ldr     x13, [x14, #:lo12:everycall_module + {ON}]
        cmp     x13, #1
        b.ne    3f
    4:  everycall_prologue body_exit, body
        str     xzr, [x10, #{STAMP_DUE}]
        ldr     x13, [x10, #{OPEN_TOP}]
        sub     x13, x13, #{CALL_SIZE}
        ldr     x14, [x13, #{CALL_POINTER}]
        cmp     x14, x15
        b.lo    6f
    7:  ldr     w14, [x13, #{CALL_WORD} + {UPPER_HALF}]
        sub     w14, w12, w14
        ldr     w15, [x10, #{FLOOR}]
        cmp     w14, w15
        b.hs    everycall_slow_judge_body_exit
    .Leverycall_keep_body_exit:
        adrp    x14, everycall_module
        ldr     w14, [x14, #:lo12:everycall_module + {BIAS_ENTRY}]
        sub     w14, w0, w14
        ldr     w15, [x13, #{CALL_WORD}]
        cmp     w14, w15
        b.ne    everycall_slow_body_exit_with_ticks
        orr     w14, w14, #{EXIT_BIT}
        orr     x14, x14, x12, lsl #32
        stlr    x14, [x11]
        stlr    xzr, [x13]
        str     x13, [x10, #{OPEN_TOP}]
        ret
    6:  cmp     x1, x30
        b.eq    7b
        b       everycall_slow_body_exit_with_ticks
    3:  b.lo    5f
        tbnz    x13, #{COUNTS_BIT}, everycall_counted_body_exit
        everycall_unless_selected 5f
        b       4b
    5:  ret
    everycall_function_end __cyg_profile_func_exit
    "
    };
}
pub(super) use body_asm;
