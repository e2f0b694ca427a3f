// Jumps that leave functions which were inlined into the one that is jumped to: modes that report inlined calls have these at the same stack pointer.
#include "../trees/tree.h"
#include <setjmp.h>

static jmp_buf target;

F void leaf(void) { HERE; }
F void first(void) { HERE; }
F void second(void) { HERE; }
static inline __attribute__((always_inline)) void fails(void) {
    second();
    longjmp(target, 1);
}
static inline __attribute__((always_inline)) int tries(int fail) {
    first();
    if (fail) fails();
    leaf();
    return fail;
}
F void lands(void) {
    for (volatile int i = 0; i < 2; i = i + 1)
        if (setjmp(target) == 0) tries(1);
    leaf();
    tries(0);
    HERE;
}
int main(void) {
    lands();
    leaf();
    return 0;
}
