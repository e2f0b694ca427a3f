// Hooks that keep every register and the flags, and hand an address to oracle_hook(address, is_exit).

        .text

// State at each hook: 0(%rsp) is the address behind the hook call, all else belongs to the traced function.
.macro HOOK name, is_exit
        .globl  \name
        .hidden \name
        .type   \name, @function
        .p2align 4
\name:
        pushfq
        cld
        push    %rbp
        mov     %rsp, %rbp
        push    %rax
        push    %rcx
        push    %rdx
        push    %rsi
        push    %rdi
        push    %r8
        push    %r9
        push    %r10
        push    %r11
        mov     16(%rbp), %rdi
        mov     $\is_exit, %esi
        and     $-16, %rsp
        call    oracle_hook
        lea     -72(%rbp), %rsp
        pop     %r11
        pop     %r10
        pop     %r9
        pop     %r8
        pop     %rdi
        pop     %rsi
        pop     %rdx
        pop     %rcx
        pop     %rax
        pop     %rbp
        popfq
        ret
        .size   \name, . - \name
.endm

        HOOK __fentry__, 0
        HOOK __return__, 1
        HOOK oracle_site_entry, 0
        HOOK oracle_site_exit, 1

// Members of std::string that exist only inlined, and whose addresses clang 19 passes to `__cyg_profile` hooks all the
// same. Nothing calls them.
.macro INLINED name
        .weak   \name
        .hidden \name
        .type   \name, @function
\name:
        ud2
        .size   \name, . - \name
.endm

        INLINED _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE17_M_use_local_dataEv
        INLINED _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE17_M_init_local_bufEv
        INLINED _ZNSaIcE8allocateEm
        INLINED _ZNSaIcE10deallocateEPcm

        .section .note.GNU-stack, "", @progbits
