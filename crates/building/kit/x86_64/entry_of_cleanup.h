// everycall_cleanup_landing, which calls everycall_cleans_up_at of cleanup_landing.c.
//
// Entered by glibc's jump, with the registers of the function that cleans up; its stack pointer and
// result of sigsetjmp stay. With the address pushed where that function goes on, this is a frame
// below it like any other.
__asm__(".pushsection .text.everycall_cleanup_landing,\"ax\",@progbits\n"
        ".p2align 4\n"
        ".globl everycall_cleanup_landing\n"
        ".hidden everycall_cleanup_landing\n"
        ".type everycall_cleanup_landing, @function\n"
        "everycall_cleanup_landing:\n"
        ".cfi_startproc\n"
        ".cfi_def_cfa %rsp, 0\n"
        ".cfi_undefined %rip\n"
        "    endbr64\n"
        "    movslq 68(%rbx), %rdx\n"
        "    leaq everycall_cleanup_landing(%rip), %rcx\n"
        "    addq %rcx, %rdx\n"
        "    movq 96(%rbx), %rbx\n"
        "    pushq %rdx\n"
        ".cfi_def_cfa_offset 8\n"
        ".cfi_offset %rip, -8\n"
        "    pushq %rax\n"
        ".cfi_def_cfa_offset 16\n"
        "    leaq 16(%rsp), %rdi\n"
        "    call everycall_cleans_up_at\n"
        "    popq %rax\n"
        ".cfi_def_cfa_offset 8\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size everycall_cleanup_landing, . - everycall_cleanup_landing\n"
        ".popsection\n");
