//! The hooks of a process that counts calls and records nothing.

/// Nothing but the count is written, so a signal handler may count at any point. Each thread has its
/// own counts. The control block of the thread's own stack has their address, whichever stack the
/// thread runs: no other thread uses that block.
macro_rules! counts_asm {
    () => {
        "
    // Counts the function whose address is in this register.
    .macro everycall_count address, what, of
        adrp    x14, everycall_module
        ldr     x14, [x14, #:lo12:everycall_module + {PLACES}]
        ldr     w13, [x14, x\\address]                  // offset of its count
        everycall_load_home
        cbz     x10, 3f
        ldr     x10, [x10, #{SHORT_COUNTS}]             // 0: wiped, in a forked child
        cbz     x10, 3f
        cbz     w13, 3f
        add     x13, x13, x10
        everycall_count_at_13
        everycall_epilogue \\of
    3:  everycall_point \\of                            // the function's or the thread's first call
        everycall_load_control
        cbz     x10, everycall_slow_count_\\what\\()_without_slot
        ldr     x11, [x10, #{STACK_LOW}]
        cmp     x15, x11
        b.lo    everycall_elsewhere_count_\\what
        b       everycall_slow_count_\\what\\()_without_slot
    .endm

    everycall_function everycall_count_entry, caller
        everycall_count 30, entry, caller
    everycall_function_end everycall_count_entry

    // x13: the module's `on`.
    .type   everycall_count_selected_body, @function
    .p2align 4
everycall_count_selected_body:
        everycall_begin body
        cmp     x13, #{COUNT_ALL}
        b.eq    1f
        everycall_unless_selected 5f
    1:  adrp    x14, everycall_module
        ldr     x11, [x14, #:lo12:everycall_module + {TIMES}]
        cbnz    x11, 4f
        ldr     x11, [x14, #:lo12:everycall_module + {START}]
        ldr     x12, [x14, #:lo12:everycall_module + {SIZE}]
        sub     x11, x0, x11
        cmp     x11, x12
        b.hs    3f                                      // a function of another module
        everycall_count 0, body, body
    4:  everycall_point body
        everycall_load_own_control body_entry
        b       everycall_slow_body_entry_without_slot
    5:  ret
    everycall_function_end everycall_count_selected_body

    // Counts need no exits, times do. x13: the module's `on`.
    .type   everycall_counted_body_exit, @function
    .p2align 4
everycall_counted_body_exit:
        everycall_begin body
        adrp    x14, everycall_module
        ldr     x11, [x14, #:lo12:everycall_module + {TIMES}]
        cbz     x11, 5f
        cmp     x13, #{COUNT_ALL}
        b.eq    1f
        everycall_unless_selected 5f
    1:  everycall_point body
        everycall_load_own_control body_exit
        b       everycall_slow_body_exit_without_slot
    5:  ret
    everycall_function_end everycall_counted_body_exit
    "
    };
}
pub(super) use counts_asm;
