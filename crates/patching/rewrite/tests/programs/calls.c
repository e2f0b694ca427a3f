// Calls of many shapes: tables, tail calls, loops to an entry, recursion, functions of one instruction.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noinline, noclone))
#endif

static volatile unsigned long sink;

APART unsigned long nothing(void) { return 0; }
APART void empty(void) { __asm__ volatile(""); }
APART unsigned long identity(unsigned long x) { return x; }

APART unsigned long table(unsigned long x) {
    switch (x % 9) {
    case 0: return x * 3;
    case 1: return identity(x) + 7;
    case 2: sink = x; return 2;
    case 3: return x ^ 0x55;
    case 4: empty(); return 1;
    case 5: return x << 3;
    case 6: return x / 5;
    case 7: return nothing() + 4;
    default: return x;
    }
}

APART unsigned long fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

APART unsigned long jumps_to(unsigned long x) {
    sink = x;
    return table(x + 1); // a tail call
}
APART unsigned long jumps_if(unsigned long x) {
    if (x & 1) return table(x);
    return identity(x) + 1;
}
static unsigned long (*volatile pointer)(unsigned long) = identity;
APART unsigned long jumps_by_pointer(unsigned long x) { return pointer(x); }

APART unsigned long collatz(unsigned long x, unsigned long steps) {
    if (x == 1) return steps;
    return collatz(x & 1 ? 3 * x + 1 : x / 2, steps + 1); // a loop to the entry
}
APART size_t length(const char *s) {
    size_t n = 0;
    while (s[n]) n++;
    return n;
}
APART double area(double a, double b) { return a * b + 0.5; }
APART int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

APART unsigned long computed(const unsigned char *code) {
    static const void *const labels[] = {&&add, &&twice, &&end};
    unsigned long x = 1;
    goto *labels[*code];
add:
    x += *code + 3;
    goto *labels[*++code];
twice:
    x *= 2;
    goto *labels[*++code];
end:
    return x;
}

static jmp_buf back;
APART void leaves(int depth) {
    if (depth == 0) longjmp(back, 1);
    leaves(depth - 1);
    empty();
}

int main(void) {
    unsigned long sum = 0;
    for (unsigned long x = 0; x < 5000; x++)
        sum += table(x) + jumps_to(x) + jumps_if(x) + jumps_by_pointer(x) + collatz(x + 1, 0);
    int numbers[500];
    for (int k = 0; k < 500; k++) numbers[k] = (k * 7919) % 503;
    qsort(numbers, 500, sizeof *numbers, compare);
    for (int k = 0; k < 500; k++) sum = sum * 31 + (unsigned long)numbers[k];
    static const unsigned char code[] = {0, 1, 1, 0, 1, 2};
    for (int k = 0; k < 100; k++) {
        sum += computed(code) + length("some text") + (unsigned long)area(k, 2.5);
        if (!setjmp(back)) leaves(3);
    }
    printf("%lu %lu\n", sum, fibonacci(20));
    return 0;
}
