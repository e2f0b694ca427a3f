// Where functions of tasks enter: their calls of __fentry__ lead here. Calls task_is_woken,
// task_is_dropped, task_is_made, poll_begins and poll_ends of tokio.c.
// %r11 is free at a function's entry. Of what it might hold otherwise, nothing is read.
//
// A poll is made from here: its frame is called by ours, which takes the place of the call of
// __fentry__ and so has to return to the caller. What makes a task may have arguments on the stack,
// of which it gets copies.
#define FUNCTION(name) "    .type   " name ", @function\n" name ":\n    .cfi_startproc\n"
#define END(name) "    .cfi_endproc\n    .size   " name ", . - " name "\n"
#define TELL(name, tell)                                                                           \
    FUNCTION(name)                                                                                 \
    "    pushq   %rdi\n"                                                                           \
    "    .cfi_adjust_cfa_offset 8\n"                                                               \
    "    subq    $8, %rsp\n"                                                                       \
    "    .cfi_adjust_cfa_offset 8\n"                                                               \
    "    call    " tell "\n"                                                                       \
    "    addq    $8, %rsp\n"                                                                       \
    "    .cfi_adjust_cfa_offset -8\n"                                                              \
    "    popq    %rdi\n"                                                                           \
    "    .cfi_adjust_cfa_offset -8\n"                                                              \
    "    ret\n"                                                                                    \
    END(name)
__asm__(
    "    .text\n"
    "    .globl  __wrap___fentry__\n"
    EVERYCALL_HIDDEN("__wrap___fentry__")
    FUNCTION("__wrap___fentry__")
    "    movq    (%rsp), %r11\n"
    // Bytes before the call: 0f 1f 40 08; .. 0f 1f 44 00 08; 0f 1f 80 00 02 00 00.
    "    cmpl    $0x08401f0f, -9(%r11)\n"
    "    je      everycall_tokio_poll\n"
    "    cmpl    $0x0800441f, -9(%r11)\n"
    "    je      2f\n"
    "    cmpl    $0x00000200, -9(%r11)\n"
    "    je      3f\n"
    "1:  jmp     *__real___fentry__@GOTPCREL(%rip)\n"
    "2:  cmpw    $0x0f90, -11(%r11)\n"
    "    je      everycall_tokio_wake\n"
    "    cmpw    $0x0f66, -11(%r11)\n"
    "    je      everycall_tokio_new\n"
    "    jmp     1b\n"
    "3:  cmpl    $0x00801f0f, -12(%r11)\n"
    "    je      everycall_tokio_drop\n"
    "    jmp     1b\n"
    END("__wrap___fentry__")
    TELL("everycall_tokio_wake", "task_is_woken")
    TELL("everycall_tokio_drop", "task_is_dropped")
    FUNCTION("everycall_tokio_poll")
    "    .cfi_def_cfa_offset 16\n"
    // The processor expects that the call of __fentry__ returns: once now, instead of in all
    // functions further out. gdb takes a plain `ret` for the function's end.
    "    leaq    1f(%rip), %rax\n"
    "    pushq   %rax\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    rep ret\n"
    "1:\n"
    "    .cfi_adjust_cfa_offset -8\n"
    "    pushq   %rdi\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    subq    $8, %rsp\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    leaq    -9(%r11), %rsi\n"
    "    call    poll_begins\n"
    "    movq    8(%rsp), %rdi\n"
    "    movq    %rax, 8(%rsp)\n"
    "    call    *16(%rsp)\n"
    "    movq    8(%rsp), %rdi\n"
    "    call    poll_ends\n"
    "    addq    $24, %rsp\n"
    "    .cfi_adjust_cfa_offset -24\n"
    "    ret\n"
    END("everycall_tokio_poll")
    FUNCTION("everycall_tokio_new")
    "    .cfi_def_cfa_offset 16\n"
    "    .rept   8\n"
    "    pushq   72(%rsp)\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    .endr\n"
    "    call    *64(%rsp)\n"
    "    movq    %rax, (%rsp)\n"
    "    movq    %rdx, 8(%rsp)\n"
    "    movq    %rax, %rdi\n"
    "    movq    64(%rsp), %rsi\n"
    "    subq    $11, %rsi\n"
    "    call    task_is_made\n"
    "    movq    (%rsp), %rax\n"
    "    movq    8(%rsp), %rdx\n"
    "    addq    $72, %rsp\n"
    "    .cfi_adjust_cfa_offset -72\n"
    "    ret\n"
    END("everycall_tokio_new"));
