// Registers in the buffers of setjmp.
#pragma once
#include <stdint.h>

// jmp_buf of x86-64: rbx, rbp, r12, r13, r14, r15, rsp, rip. glibc mangles rsp and rip with a value
// after the thread pointer; others keep them plain. An unknown layout is ignored: stack pointers
// show the jump at the next event.
enum { STACK_POINTER = 6, CODE = 7 };
// After the registers, glibc has a flag for a saved signal mask, then the mask; others differ.
enum { MASK_WAS_SAVED = 8, MASK = 9, WORDS = 25 };
struct jump_buffer {
    uint64_t words[WORDS];
};

static inline uint64_t pointer_guard(void) {
    uint64_t guard;
    __asm__("movq %%fs:0x30, %0" : "=r"(guard));
    return guard;
}

static inline uint64_t unscrambled(uint64_t value) { return (value >> 17 | value << 47) ^ pointer_guard(); }

static inline uint64_t scrambled(uint64_t value) {
    value ^= pointer_guard();
    return value << 17 | value >> 47;
}

// An address of user space that can hold code or a stack.
static inline int is_address(uint64_t value) { return value >= 4096 && value < (uint64_t)1 << 47; }

static inline int are_registers(uint64_t stack_pointer, uint64_t code) {
    return is_address(stack_pointer) && stack_pointer % 8 == 0 && is_address(code);
}

// Copies the words of a buffer, not by a call of memcpy.
static inline void copy_words(void* to, const void* from, uint64_t count) {
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
}

static inline int has_shadow_stack(void) {
    uint32_t features;
    __asm__("movl %%fs:0x48, %0" : "=r"(features));
    return (features & 2) != 0;
}
