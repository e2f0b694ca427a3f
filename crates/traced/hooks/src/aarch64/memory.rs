//! The memory functions that the compiler calls implicitly. The runtime has its own, under names
//! that are hidden in the finished object: the program may define traced ones, and the C library's
//! may not be initialised yet. They use no vector registers. Like all code of the slow path, they
//! have unwind information, because a profiler's signal handler may interrupt them.
#![allow(unsafe_code)] // Assembly.

core::arch::global_asm!(
    "
    .macro everycall_local name
    .globl  \\name
    .hidden \\name
    .type   \\name, %function
    .p2align 4
\\name:
    .cfi_startproc
    .endm

    .macro everycall_local_end name
    .cfi_endproc
    .size   \\name, . - \\name
    .endm

    .text
    // x0: to, x1: from, x2: bytes
    everycall_local memcpy
        mov     x3, x0
    1:  subs    x2, x2, #16
        b.lo    2f
        ldp     x4, x5, [x1], #16
        stp     x4, x5, [x3], #16
        b       1b
    2:  adds    x2, x2, #16
        b.eq    4f
    3:  ldrb    w4, [x1], #1
        strb    w4, [x3], #1
        subs    x2, x2, #1
        b.ne    3b
    4:  ret
    everycall_local_end memcpy

    everycall_local memmove
        sub     x3, x0, x1
        cmp     x3, x2
        b.hs    memcpy
        add     x3, x0, x2                          // overlapping upwards: from the end
        add     x1, x1, x2
    1:  subs    x2, x2, #16
        b.lo    2f
        ldp     x4, x5, [x1, #-16]!
        stp     x4, x5, [x3, #-16]!
        b       1b
    2:  adds    x2, x2, #16
        b.eq    4f
    3:  ldrb    w4, [x1, #-1]!
        strb    w4, [x3, #-1]!
        subs    x2, x2, #1
        b.ne    3b
    4:  ret
    everycall_local_end memmove

    // x0: to, w1: byte, x2: bytes
    everycall_local memset
        mov     x3, x0
        and     w1, w1, #255
        mov     x4, #0x0101010101010101
        mul     x4, x4, x1
    1:  subs    x2, x2, #16
        b.lo    2f
        stp     x4, x4, [x3], #16
        b       1b
    2:  adds    x2, x2, #16
        b.eq    4f
    3:  strb    w1, [x3], #1
        subs    x2, x2, #1
        b.ne    3b
    4:  ret
    everycall_local_end memset

    // x0, x1: bytes to compare, x2: how many
    .globl  bcmp
    .hidden bcmp
    .set    bcmp, memcmp
    everycall_local memcmp
        mov     x3, x0
        mov     w0, wzr
    1:  cbz     x2, 2f
        ldrb    w4, [x3], #1
        ldrb    w5, [x1], #1
        sub     x2, x2, #1
        subs    w0, w4, w5
        b.eq    1b
    2:  ret
    everycall_local_end memcmp

    // x0: text that ends with NUL
    everycall_local strlen
        mov     x1, x0
    1:  ldrb    w2, [x1], #1
        cbnz    w2, 1b
        sub     x0, x1, x0
        sub     x0, x0, #1
        ret
    everycall_local_end strlen
    "
);
