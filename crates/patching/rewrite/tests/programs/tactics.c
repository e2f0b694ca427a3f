// Calls each function of tactics.s and prints what it returns.
#include <stdio.h>

#define EACH(do) do(displaced) do(relative) do(counted) do(retargeted) do(padded) do(shortened) do(copied) do(evicted) do(punned) do(small) \
    do(returns) do(neighboured) do(neighbour) do(called)
#define DECLARE(name) unsigned name(unsigned long);
EACH(DECLARE)

int main(void) {
    unsigned long sum = 0;
    // `copied` counts up from what is in eax, and `evicted` and `punned` read edx.
#define RUN(name)                                                                             \
    for (unsigned long x = 0; x < 50; x++) {                                                  \
        unsigned long argument = x;                                                           \
        unsigned result;                                                                      \
        __asm__ volatile("xor %%eax, %%eax; mov $17, %%edx; call " #name                      \
                         : "=a"(result), "+D"(argument)                                       \
                         :                                                                    \
                         : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");    \
        sum = sum * 31 + result;                                                              \
    }                                                                                         \
    printf("%s %lu\n", #name, sum);
    EACH(RUN)
    return 0;
}
