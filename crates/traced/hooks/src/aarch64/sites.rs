//! The hooks of sites at entries and exits.

/// Entry, exit, tail exit. A site leads to a hook only while it is on, so these test nothing else.
macro_rules! sites_asm {
    () => {
        "
    .text
    everycall_function everycall_entry, caller
        everycall_prologue entry, caller
        everycall_push ls, everycall_slow_entry_pushed
        everycall_write_entry_of 30, entry, caller
    everycall_function_end everycall_entry

    // Called before a function returns, or before a tail call that no trigger follows.
    everycall_function everycall_exit, caller
        everycall_prologue exit, caller
        ldr     x13, [x10, #{OPEN_TOP}]
        sub     x13, x13, #{CALL_SIZE}
        ldr     x14, [x13, #{CALL_POINTER}]             // is it the innermost open call's frame?
        cmp     x14, x15
        b.ne    everycall_slow_exit_with_ticks
        ldr     w14, [x13, #{CALL_WORD} + {UPPER_HALF}]
        sub     w14, w12, w14                           // ticks that the call took
        ldr     w15, [x10, #{FLOOR}]
        cmp     w14, w15
        b.hs    everycall_slow_judge_exit
    .Leverycall_keep_exit:
        adrp    x14, everycall_module
        ldr     w15, [x14, #:lo12:everycall_module + {BIAS_EXIT}]
        sub     w15, w30, w15
        orr     x15, x15, x12, lsl #32
        stlr    x15, [x11]
        stlr    xzr, [x13]                              // after the event's word
        str     x13, [x10, #{OPEN_TOP}]
        everycall_epilogue caller
    everycall_function_end everycall_exit

    // Tail exit of an armed function: always takes the slow path.
    everycall_function everycall_tail_exit, caller
        everycall_prologue exit, caller
        b       everycall_slow_exit_with_ticks
    everycall_function_end everycall_tail_exit

    // Entries and exits of which the slow path does everything: calls are timed, or values copied.
    everycall_function everycall_slow_entry_hook, caller
        everycall_point caller
        everycall_load_own_control entry
        b       everycall_slow_entry_without_slot
    everycall_function_end everycall_slow_entry_hook

    everycall_function everycall_slow_exit_hook, caller
        everycall_point caller
        everycall_load_own_control exit
        b       everycall_slow_exit_without_slot
    everycall_function_end everycall_slow_exit_hook
    "
    };
}
pub(super) use sites_asm;
