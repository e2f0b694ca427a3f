// The C part: every function's name begins with t_; those that don't return, with t_noreturn_; t_dead_ isn't reached
// from anywhere; t_cold_ has a seldom part.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline))

int t_result;

static int t_static(int x) { return x * 3 + t_result; }

NOINLINE int t_leaf(int x) { return x + 1; }

NOINLINE double t_varargs(int count, ...) {
    va_list list;
    va_start(list, count);
    double sum = 0;
    for (int i = 0; i < count; i++) sum += va_arg(list, double);
    va_end(list);
    return sum;
}

NOINLINE int t_switch(int x) {
    switch (x) {
    case 0: return t_leaf(4);
    case 1: return puts("one");
    case 2: return t_static(x) + 1;
    case 3: return t_leaf(x) * 2;
    case 4: return t_result;
    case 5: return -x;
    case 6: t_result = 9; return 3;
    default: return 0;
    }
}

NOINLINE int t_tail(int x) { return t_leaf(x + 2); }

int (*t_pointer)(int) = t_leaf;
NOINLINE int t_tail_indirect(int x) { return t_pointer(x); }

NOINLINE int t_cold_path(int x) {
    if (__builtin_expect(x > 1000, 0)) {
        puts("cold");
        fflush(stdout);
        return t_leaf(x) + t_leaf(x + 1);
    }
    return x;
}

static jmp_buf t_back;
__attribute__((noreturn)) NOINLINE void t_noreturn_jump(int x) { longjmp(t_back, x); }
NOINLINE int t_setjmp(int x) {
    int got = setjmp(t_back);
    if (got == 0) t_noreturn_jump(x);
    return got;
}

NOINLINE int t_nested(int x) {
#ifndef __clang__
    NOINLINE int t_inner(int y) { return x + y; }
    return t_inner(1) + t_inner(2);
#else
    return x + x + 3;
#endif
}

NOINLINE int t_inline_assembler(int x) {
    __asm__ volatile("push %%r10\n\tpop %%r10\n1:\tadd $1, %0\n\tjc 1b" : "+r"(x) : : "cc");
    return x;
}

NOINLINE int t_dead_function(int x) { return t_leaf(x) * 5; }

typedef int t_vector __attribute__((vector_size(32)));
NOINLINE int t_aligned(int x) {
    volatile t_vector v = { x, x, x, x };
    return t_leaf(v[1]) + v[2];
}

int t_plain(int x) {
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += t_switch(i);
    sum += (int)t_varargs(3, 1.0, 2.5, 0.5);
    sum += t_tail(x) + t_tail_indirect(x) + t_cold_path(x) + t_setjmp(7) + t_nested(x) + t_inline_assembler(x);
    return sum + t_static(x) + t_aligned(x);
}
