# Hooks that do nothing but BREAK, for the test of the test.
        .text
        .globl  __fentry__, __return__, __cyg_profile_func_enter, __cyg_profile_func_exit
__fentry__:
__return__:
__cyg_profile_func_enter:
__cyg_profile_func_exit:
        BREAK
        ret
        .section .note.GNU-stack, "", @progbits
