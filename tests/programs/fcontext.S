// make_fcontext and jump_fcontext, with the calling convention of Boost.Context.
    .text
    .globl  make_fcontext
    .type   make_fcontext, @function
make_fcontext:                          // (top, size, entry)
    andq    $-16, %rdi
    leaq    -64(%rdi), %rax
    movq    %rdx, 48(%rax)
    ret
    .size   make_fcontext, . - make_fcontext

    .globl  jump_fcontext
    .type   jump_fcontext, @function
jump_fcontext:                          // (to, data) -> {from, data}
    pushq   %rbp
    pushq   %rbx
    pushq   %r15
    pushq   %r14
    pushq   %r13
    pushq   %r12
    movq    %rsp, %rax
    movq    %rdi, %rsp
    popq    %r12
    popq    %r13
    popq    %r14
    popq    %r15
    popq    %rbx
    popq    %rbp
    popq    %r8
    movq    %rsi, %rdx
    movq    %rax, %rdi
    jmp     *%r8
    .size   jump_fcontext, . - jump_fcontext
    .section .note.GNU-stack, "", @progbits
