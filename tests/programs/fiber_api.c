// A scheduler that tells of its fibers. Prints what each function of everycall.h about them returned.
#include "everycall.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL __attribute__((noinline))
enum { SIZE = 64 << 10 };

static void *home, *fiber;
void switch_stacks(void** from, void* to);
__asm__(".text\n.globl switch_stacks\n.type switch_stacks, @function\nswitch_stacks:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

static volatile int sum;
CALL void leaf(void) { sum++; }
CALL void large_frame(void) {
    volatile char buffer[20000];
    buffer[0] = 1;
    leaf();
    sum += buffer[0];
}
CALL void left_open(void) { leaf(); switch_stacks(&fiber, home); abort(); }
CALL void first(void) { large_frame(); left_open(); sum++; }
CALL void second(void) { printf("name %d\n", everycall_name_fiber("second one has a long name")); leaf(); left_open(); sum++; }

__attribute__((no_instrument_function)) static void begin(void* stack, void (*entry)(void)) {
    void** top = (void**)((char*)stack + SIZE);
    *--top = 0;
    *--top = (void*)entry;
    fiber = memset(top - 6, 0, 6 * sizeof *top);
    switch_stacks(&home, fiber);
}

CALL void stacks_of(char* stack, const char* where) {
    printf("%s %d\n", where, everycall_fiber(stack, SIZE, where));
    begin(stack, first);
    leaf();
    printf("again %d\n", everycall_fiber(stack, SIZE, 0));
    begin(stack, second);
    leaf();
    const int forgotten = everycall_forget_fiber(stack, SIZE);
    printf("forget %d %d\n", forgotten, everycall_forget_fiber(stack, SIZE));
    sum++;
}

int main(void) {
    char local[SIZE] __attribute__((aligned(16)));
    char* heap = (char*)aligned_alloc(16, SIZE);
    printf("thread %d, empty %d, null %d, unnamed %d\n", everycall_name_fiber("main"), everycall_fiber(heap, 0, 0),
           everycall_fiber(0, SIZE, 0), everycall_name_fiber(0));
    printf("own %d\n", everycall_fiber(local - 4096, sizeof local + 8192, "own"));
    stacks_of(heap, "heap");
    stacks_of(local, "local");
    return 0;
}
