//! How hooks enter the slow path.

/// The ways into it: they put `what` into w14, the address into x13, and the stack pointer that the
/// hook reports into x15; x11 is the slot or null.
macro_rules! ways_asm {
    () => {
        "
    .macro everycall_slow_way name, what, address
    .type   everycall_slow_\\name, @function
everycall_slow_\\name\\()_with_ticks:
        everycall_begin \\address
        str     w12, [x11, #{UPPER_HALF}]
        b       everycall_slow_\\name
everycall_slow_\\name\\()_without_slot:
        mov     x11, xzr
everycall_slow_\\name:
        everycall_point \\address
        .ifc \\address, body
        mov     x13, x0
        mov     x9, x30                                 // as a site's hook leaves it
        .else
        mov     x13, x30
        .endif
        mov     w14, #\\what
        b       everycall_slow_common
    .cfi_endproc
    .size   everycall_slow_\\name, . - everycall_slow_\\name
    .endm

    // An exit whose call took at least `floor` (0 if short calls are dropped). w14: ticks that it
    // took, x11: slot, x12: ticks. The slow path drops short calls.
    .macro everycall_judge_way name, address
    .type   everycall_slow_judge_\\name, @function
everycall_slow_judge_\\name:
        everycall_begin \\address
        ldr     w15, [x10, #{SHORT}]
        cmp     w14, w15
        b.lo    1f
        ldr     w15, [x10, #{TRIGGER_FLOOR}]
        cmp     w14, w15
        b.lo    .Leverycall_keep_\\name
    1:  b       everycall_slow_\\name\\()_with_ticks
    .cfi_endproc
    .size   everycall_slow_judge_\\name, . - everycall_slow_judge_\\name
    .endm

    // The stack pointer isn't within the block's bounds: the thread is excluded, or runs another
    // stack.
    .macro everycall_elsewhere_way name, address
    .type   everycall_elsewhere_\\name, @function
everycall_elsewhere_\\name:
        everycall_begin \\address
        ldr     w11, [x10, #{LEFT_OUT}]
        cmp     w11, #{AT_ONCE}
        b.ne    everycall_slow_\\name\\()_without_slot
        ldr     x11, [x10, #{STACK_END}]
        cmp     x15, x11
        b.lo    everycall_slow_\\name\\()_without_slot
        ldr     x11, [x10, #{STACK_HIGH}]
        cmp     x15, x11
        b.hs    everycall_slow_\\name\\()_without_slot
        everycall_epilogue \\address
    .cfi_endproc
    .size   everycall_elsewhere_\\name, . - everycall_elsewhere_\\name
    .endm

    .p2align 4
    everycall_slow_way entry, 0, caller
    everycall_slow_way exit, {EXIT}, caller
    everycall_slow_way body_entry, {BODY}, body
    everycall_slow_way body_exit, {EXIT} + {BODY}, body
    everycall_slow_way entry_pushed, {PUSHED}, caller
    everycall_slow_way body_entry_pushed, {BODY} + {PUSHED}, body
    everycall_slow_way count_entry, {COUNT}, caller
    everycall_slow_way count_body, {BODY} + {COUNT}, body

    everycall_judge_way exit, caller
    everycall_judge_way body_exit, body

    everycall_elsewhere_way entry, caller
    everycall_elsewhere_way exit, caller
    everycall_elsewhere_way body_entry, body
    everycall_elsewhere_way body_exit, body
    everycall_elsewhere_way count_entry, caller
    everycall_elsewhere_way count_body, body
    "
    };
}
pub(super) use ways_asm;

/// x10: control block or null, x11: slot or null, x13: address, w14: what, x15: stack pointer. A
/// thread that doesn't record returns at once.
///
/// All general registers are saved, as [`Registers`](super::jump::Registers) finds them. The
/// runtime is compiled without floating-point and vector instructions, so those registers are only
/// shown to it: restoring them would destroy the scalable registers around them.
macro_rules! slow_path_asm {
    () => {
        "
    .macro everycall_each_pair instruction
        \\instruction x0, x1, [sp, #{REGISTERS}]
        \\instruction x2, x3, [sp, #{REGISTERS} + 16]
        \\instruction x4, x5, [sp, #{REGISTERS} + 32]
        \\instruction x6, x7, [sp, #{REGISTERS} + 48]
        \\instruction x8, x9, [sp, #{REGISTERS} + 64]
        \\instruction x10, x11, [sp, #{REGISTERS} + 80]
        \\instruction x12, x13, [sp, #{REGISTERS} + 96]
        \\instruction x14, x15, [sp, #{REGISTERS} + 112]
        \\instruction x16, x17, [sp, #{REGISTERS} + 128]
        \\instruction x18, x19, [sp, #{REGISTERS} + 144]
        \\instruction x20, x21, [sp, #{REGISTERS} + 160]
        \\instruction x22, x23, [sp, #{REGISTERS} + 176]
        \\instruction x24, x25, [sp, #{REGISTERS} + 192]
        \\instruction x26, x27, [sp, #{REGISTERS} + 208]
        \\instruction x28, x29, [sp, #{REGISTERS} + 224]
    .endm

    .type   everycall_slow_common, @function
    .p2align 4
everycall_slow_common:
        everycall_begin caller
        cbz     x10, 1f
        ldr     x12, [x10, #{STACK_LOW}]
        cmp     x15, x12
        b.lo    1f
        ldr     x12, [x10, #{STACK_HIGH}]
        cmp     x15, x12
        b.hs    1f
        ldr     w12, [x10, #{STATE}]
        cmp     w12, #{OFF}
        b.eq    9f
    1:  sub     sp, sp, #{FRAME}
        .cfi_def_cfa_offset {FRAME}
        everycall_each_pair stp
        str     x30, [sp, #{REGISTERS} + 240]
        .cfi_offset x10, {REGISTERS} + 240 - {FRAME}
        .cfi_offset x30, {REGISTERS} + 72 - {FRAME}
        .cfi_offset x19, {REGISTERS} + 152 - {FRAME}
        .cfi_offset x20, {REGISTERS} + 160 - {FRAME}
        .cfi_offset x21, {REGISTERS} + 168 - {FRAME}
        .cfi_offset x22, {REGISTERS} + 176 - {FRAME}
        .cfi_offset x23, {REGISTERS} + 184 - {FRAME}
        .cfi_offset x24, {REGISTERS} + 192 - {FRAME}
        .cfi_offset x25, {REGISTERS} + 200 - {FRAME}
        .cfi_offset x26, {REGISTERS} + 208 - {FRAME}
        .cfi_offset x27, {REGISTERS} + 216 - {FRAME}
        .cfi_offset x28, {REGISTERS} + 224 - {FRAME}
        mov     x19, sp
        .cfi_def_cfa_register x19
        mov     x21, x10
        mov     w22, w14
        mov     x23, x11
        mov     x24, x13
        mov     x25, x15

        // Block signals: rt_sigprocmask(SIG_BLOCK, set, old, 8).
        mov     x8, #{SIGPROCMASK}
        mov     x0, xzr
        adrp    x1, everycall_blocked_signals
        add     x1, x1, #:lo12:everycall_blocked_signals
        mov     x2, sp
        mov     x3, #8
        svc     #0

        // Take a free stack of the process, because the thread's own may be small.
        adrp    x14, everycall_module
        ldr     x26, [x14, #:lo12:everycall_module + {SLOW_STACKS}]
        add     x27, x26, #{SLOW_STACKS_SIZE}
    2:  ldr     x28, [x26]
        cbz     x28, 4f
    3:  ldaxr   x28, [x26]
        stxr    w0, xzr, [x26]
        cbnz    w0, 3b
        cbnz    x28, 5f
    4:  add     x26, x26, #8
        cmp     x26, x27
        b.lo    2b
        mov     x28, xzr                                // none is free: stay
        mov     x1, sp
        b       6f
    5:  mov     x1, x28
    6:  and     x1, x1, #~15
        sub     x1, x1, #{SLOW_FRAME_SIZE}
        mov     sp, x1
    .arch_extension fp
        stp     q0, q1, [sp]
        stp     q2, q3, [sp, #32]
        stp     q4, q5, [sp, #64]
        stp     q6, q7, [sp, #96]
        stp     q8, q9, [sp, #128]
        stp     q10, q11, [sp, #160]
        stp     q12, q13, [sp, #192]
        stp     q14, q15, [sp, #224]
        str     x1, [x19, #{VECTORS_AT}]

        mov     w0, w22                                 // what
        mov     x1, x21                                 // control
        mov     x2, x23                                 // slot
        mov     x3, x24                                 // address
        mov     x4, x25                                 // the hook's stack pointer
        adrp    x5, everycall_module
        add     x5, x5, #:lo12:everycall_module
        ldr     x16, [x5, #{SLOW}]
        blr     x16

        // Back to the thread's own stack; then restore the signal mask. A pending signal arrives
        // right here.
        mov     sp, x19
        cbz     x28, 7f
        stlr    x28, [x26]                              // free again
    7:  mov     x8, #{SIGPROCMASK}
        mov     x0, #2
        mov     x1, sp
        mov     x2, xzr
        mov     x3, #8
        svc     #0
        everycall_each_pair ldp
        .cfi_restore x19
        .cfi_restore x20
        .cfi_restore x21
        .cfi_restore x22
        .cfi_restore x23
        .cfi_restore x24
        .cfi_restore x25
        .cfi_restore x26
        .cfi_restore x27
        .cfi_restore x28
        .cfi_def_cfa_register sp
        ldr     x30, [sp, #{REGISTERS} + 240]
        .cfi_register x10, x30
        .cfi_register x30, x9
        add     sp, sp, #{FRAME}
        .cfi_def_cfa_offset 0
    9:  everycall_epilogue caller
    .cfi_endproc
    .size   everycall_slow_common, . - everycall_slow_common

    .section .rodata.everycall_blocked_signals, \"a\", @progbits
    .p2align 3
everycall_blocked_signals:
    .quad   {BLOCKED_SIGNALS}
    .text
    "
    };
}
pub(super) use slow_path_asm;
