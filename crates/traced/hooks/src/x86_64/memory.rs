//! The memory functions that the compiler calls implicitly. The runtime has its own, under names
//! that are hidden in the finished object: the program may define traced ones, and the C library's
//! may not be initialised yet. Like all code of the slow path, they have unwind information,
//! because a profiler's signal handler may interrupt them.
#![allow(unsafe_code)] // Assembly.

core::arch::global_asm!(
    "
    .macro everycall_local name
    .globl  \\name
    .hidden \\name
    .type   \\name, @function
    .p2align 4
\\name:
    .cfi_startproc
    .endm

    .macro everycall_local_end name
    .cfi_endproc
    .size   \\name, . - \\name
    .endm

    .text
    # rdi: to, rsi: from, rdx: bytes
    everycall_local memcpy
        movq    %rdi, %rax
        movq    %rdx, %rcx
        rep movsb
        ret
    everycall_local_end memcpy

    everycall_local memmove
        movq    %rdi, %rax
        movq    %rdx, %rcx
        movq    %rdi, %r8
        subq    %rsi, %r8
        cmpq    %rdx, %r8
        jb      1f
        rep movsb
        ret
    1:  leaq    -1(%rdi,%rdx), %rdi                 # overlapping upwards: from the end
        leaq    -1(%rsi,%rdx), %rsi
        std
        rep movsb
        cld
        ret
    everycall_local_end memmove

    # rdi: to, esi: byte, rdx: bytes
    everycall_local memset
        movq    %rdi, %r8
        movl    %esi, %eax
        movq    %rdx, %rcx
        rep stosb
        movq    %r8, %rax
        ret
    everycall_local_end memset

    # rdi, rsi: bytes to compare, rdx: how many
    .globl  bcmp
    .hidden bcmp
    .set    bcmp, memcmp
    everycall_local memcmp
        xorl    %ecx, %ecx
    1:  cmpq    %rdx, %rcx
        je      2f
        movzbl  (%rdi,%rcx), %eax
        movzbl  (%rsi,%rcx), %r8d
        incq    %rcx
        subl    %r8d, %eax
        je      1b
        ret
    2:  xorl    %eax, %eax
        ret
    everycall_local_end memcmp

    # rdi: text that ends with NUL
    everycall_local strlen
        xorl    %eax, %eax
    1:  cmpb    $0, (%rdi,%rax)
        je      2f
        incq    %rax
        jmp     1b
    2:  ret
    everycall_local_end strlen
    ",
    options(att_syntax)
);
