// Nothing leads to everycall_cleanup_landing here (cancel_buffer.h): the name is defined, and no
// more.
__asm__(".pushsection .text.everycall_cleanup_landing,\"ax\",%progbits\n"
        ".p2align 4\n"
        ".globl everycall_cleanup_landing\n"
        ".hidden everycall_cleanup_landing\n"
        ".type everycall_cleanup_landing, %function\n"
        "everycall_cleanup_landing:\n"
        "    udf #0\n"
        ".size everycall_cleanup_landing, . - everycall_cleanup_landing\n"
        ".popsection\n");
