//! The control block, a slot, the open-call stack: how all hooks begin and end.

/// Macros for the other texts. After `everycall_prologue`: the control block in x10, the slot in
/// x11, the clock in x12, and the stack pointer that the hook reports in x15. x13 and x14 are free.
macro_rules! saving_asm {
    () => {
        "
    // The stack pointer that a hook of sites reports, and that of a hook in a body.
    .macro everycall_point address
        .ifc \\address, body
        mov     x15, sp
        .else
        sub     x15, sp, #{HOOK_BELOW}
        .endif
    .endm

    // Loads the control block into x10. Not this stack's? Nothing else of it may be touched.
    .macro everycall_load_own_control what
        everycall_load_control
        cbz     x10, everycall_slow_\\what\\()_without_slot
        ldp     x11, x12, [x10, #{STACK_LOW}]
        cmp     x15, x11
        ccmp    x15, x12, #2, hs                        // below the lower bound is as from the upper one on
        b.hs    everycall_elsewhere_\\what
    .endm

    .macro everycall_prologue what, address
        everycall_point \\address
        everycall_load_own_control \\what
        mrs     x12, cntvct_el0
    1:  ldxr    x11, [x10]                              // reserve: a signal in between makes the store fail
        add     x13, x11, #{WORD_SIZE}
        stxr    w14, x13, [x10]
        cbnz    w14, 1b
        ldr     x13, [x10, #{END}]
        cmp     x11, x13
        b.hs    everycall_slow_\\what\\()_without_slot
        ldr     w13, [x10, #{TICKS_HIGH}]               // after reserving: see the crate's head
        cmp     x13, x12, lsr #32
        b.ne    everycall_slow_\\what
    .endm

    // Continues behind the site, or behind the call.
    .macro everycall_epilogue address
        .ifc \\address, body
        ret
        .else
        mov     x10, x30
        .cfi_same_value x10
        mov     x30, x9
        .cfi_same_value x30
        ret     x10
        .cfi_register x10, x30
        .cfi_register x30, x9
        .endif
    .endm

    // Pushes an OpenCall except for its word, and branches if the frame below is dead. The stack
    // pointer is written before the top is raised, and again afterwards: a signal handler in between
    // may have written its own there. Handlers leave the top as they found it, unless they never
    // return. Afterwards x13 is the entry.
    .macro everycall_push dead, slow
        ldr     x13, [x10, #{OPEN_TOP}]
        str     x15, [x13, #{CALL_POINTER}]
        add     x14, x13, #{CALL_SIZE}
        str     x14, [x10, #{OPEN_TOP}]
        ldur    x14, [x13, #{CALL_POINTER} - {CALL_SIZE}]   // stack pointer of the entry below
        cmp     x14, x15
        b.\\dead \\slow
        str     x15, [x13, #{CALL_POINTER}]
        ldr     w14, [x10, #{TICKS_HIGH}]
        str     x14, [x13, #{CALL_TICKS_HIGH}]          // the stamp beside it is 0
    .endm

    // Writes the word of an entry whose address is in this register, and counts the call, which no
    // ring forgets. The control block is this stack's, as compared in the prologue, so no other
    // thread adds to its counts. In a forked child, it and the module's table are wiped. So the
    // address of the counts is read first: if it isn't 0 but the place is, the child was forked in
    // between, and the slow path is taken.
    .macro everycall_write_entry_of address, what, of
        adrp    x14, everycall_module
        ldr     w15, [x14, #:lo12:everycall_module + {BIAS_ENTRY}]
        sub     w15, w\\address, w15
        orr     x15, x15, x12, lsl #32
        stlr    x15, [x13]
        stlr    x15, [x11]
        ldr     x13, [x10, #{ALL_CALLS}]
        ldr     x14, [x14, #:lo12:everycall_module + {RECORDED_PLACES}]
        cbz     x14, 8f                                 // the module's calls aren't counted
        ldr     w14, [x14, x\\address]                  // offset of the function's count
        cbz     w14, everycall_slow_count_\\what\\()_without_slot
        add     x13, x13, x14
        everycall_count_at_13
    8:  everycall_epilogue \\of
    .endm

    // Adds 1 to the word at x13.
    .macro everycall_count_at_13
    2:  ldxr    x14, [x13]
        add     x14, x14, #1
        stxr    w15, x14, [x13]
        cbnz    w15, 2b
    .endm

    // A function of hooks, with what unwinders need: of a site's hook, x30 is the return address,
    // and x9 is the x30 of the function with the site. So the return address gets a column of its
    // own, that of x10.
    .macro everycall_begin address
    .cfi_startproc
        .ifc \\address, body
        .else
        .cfi_return_column x10
        .cfi_register x10, x30
        .cfi_register x30, x9
        .endif
    .endm

    // One that compilers call, maybe by an indirect branch, begins with a landing pad (`bti c`).
    .macro everycall_function name, address
    .globl  \\name
    .hidden \\name
    .type   \\name, @function
    .p2align 6
\\name:
        everycall_begin \\address
        .ifc \\address, body
        hint    #34
        .endif
    .endm

    .macro everycall_function_end name
    .cfi_endproc
    .size   \\name, . - \\name
    .endm
    "
    };
}
pub(super) use saving_asm;
