// A switch of stacks by hand, as Boost.Context has it: what a called function has to keep is saved on the stack that is left, and nothing
// else knows of it.
#ifndef SWITCH_H
#define SWITCH_H
#include "tree.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#ifdef __cplusplus
extern "C" {
#endif
// Keeps where this stack was left in `*from`, and goes on where `to` was.
void switch_stack(void** from, void* to);
void switch_begin(void);
#ifdef __cplusplus
}
#endif
__asm__(".pushsection .text\n"
        ".globl switch_stack\n"
        ".type switch_stack, @function\n"
        "switch_stack:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n"
        ".size switch_stack, . - switch_stack\n"
        ".globl switch_begin\n"
        ".type switch_begin, @function\n"
        "switch_begin:\n"
        "  mov %r12, %rdi\n"
        "  call *%r13\n"
        "  ud2\n"
        ".size switch_begin, . - switch_begin\n"
        ".popsection\n");

// A stack on which `entry(argument)` runs when it is switched to; `entry` never returns.
UNTRACED static void* fresh_stack(void* low, size_t size, void (*entry)(void*), void* argument) {
    uintptr_t* top = (uintptr_t*)((((uintptr_t)low + size) & ~(uintptr_t)15) - 16);
    *--top = (uintptr_t)switch_begin;
    *--top = 0; // rbp
    *--top = 0; // rbx
    *--top = (uintptr_t)argument;
    *--top = (uintptr_t)entry;
    *--top = 0;
    *--top = 0;
    return top;
}
// Memory for a stack.
UNTRACED static void* map_stack(size_t size) {
    void* low = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    return low == MAP_FAILED ? 0 : low;
}
#endif
