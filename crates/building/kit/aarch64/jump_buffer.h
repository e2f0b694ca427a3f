// Registers in the buffers of setjmp.
#pragma once
#include <stdint.h>

// jmp_buf of 64-bit Arm: x19 to x30, a free word, sp, d8 to d15. glibc mangles x30 and sp with a
// value of its own; others keep them plain. An unknown layout is ignored: stack pointers show the
// jump at the next event.
enum { STACK_POINTER = 13, CODE = 11 };
// After the registers, glibc has a flag for a saved signal mask, then the mask; others differ.
enum { MASK_WAS_SAVED = 22, MASK = 23, WORDS = 39 };
struct jump_buffer {
    uint64_t words[WORDS];
};

// The C library tells its value by what it makes of a stack pointer that is known: the one at the
// call. No code goes on at that buffer.
extern int _setjmp(void*) __attribute__((weak, returns_twice));
static inline uint64_t pointer_guard(void) {
    struct jump_buffer buffer;
    uint64_t stack_pointer;
    if (!_setjmp) return 0;
    _setjmp(&buffer);
    __asm__ volatile("mov %0, sp" : "=r"(stack_pointer));
    return buffer.words[STACK_POINTER] ^ stack_pointer;
}

static inline uint64_t unscrambled(uint64_t value) { return value ^ pointer_guard(); }

// An address of user space that can hold code or a stack.
static inline int is_address(uint64_t value) { return value >= 4096 && value < (uint64_t)1 << 52; }

static inline int are_registers(uint64_t stack_pointer, uint64_t code) {
    return is_address(stack_pointer) && stack_pointer % 16 == 0 && is_address(code) && code % 4 == 0;
}

// Copies the words of a buffer, not by a call of memcpy.
static inline void copy_words(void* to, const void* from, uint64_t count) {
    volatile uint64_t* words = to;
    for (uint64_t index = 0; index < count; index++) words[index] = ((const uint64_t*)from)[index];
}
