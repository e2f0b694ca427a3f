// Very many fibers: many_fibers KIND COUNT.
//
// live: all are there at a time, and each runs twice. gone: one after the other; in the middle of its calls its stack is unmapped. idle: one
// after the other, and each has returned from all its calls; their stacks stay.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define EXCLUDED __attribute__((no_instrument_function, noinline))
#define CALL __attribute__((noinline, noclone))
enum { SIZE = 16 << 10 };

static void* home;
static volatile int sum;
void switch_stacks(void** from, void* to);
__asm__(".text\n.globl switch_stacks\n.type switch_stacks, @function\nswitch_stacks:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

static void** current;
CALL static void leaf(void) { sum++; }
CALL static void outer(void) { leaf(); switch_stacks(current, home); leaf(); sum++; }
EXCLUDED static void begin(void) {
    outer();
    switch_stacks(current, home);
    abort();
}

EXCLUDED static void* make(char* low) {
    void** top = (void**)(low + SIZE);
    *--top = 0;
    *--top = (void*)begin;
    return memset(top - 6, 0, 6 * sizeof *top);
}

EXCLUDED static void resume(void** fiber) {
    current = fiber;
    switch_stacks(&home, *fiber);
}

int main(int count, char** words) {
    if (count < 3) return 2;
    const int fibers = atoi(words[2]), are_live = !strcmp(words[1], "live"), are_gone = !strcmp(words[1], "gone");
    void** all = calloc(fibers, sizeof *all);
    // At an address of its own each, with a guard below.
    char* const place = mmap(0, (size_t)fibers * 2 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int turn = 0; turn <= are_live; turn++)
        for (int fiber = 0; fiber < fibers; fiber++) {
            char* low = place + (size_t)fiber * 2 * SIZE + SIZE;
            if (turn == 0) {
                mprotect(low, SIZE, PROT_READ | PROT_WRITE);
                all[fiber] = make(low);
            }
            resume(&all[fiber]);
            if (are_gone) munmap(low, SIZE);
            else if (!are_live) resume(&all[fiber]);
        }
    printf("%d\n", sum);
    return 0;
}
