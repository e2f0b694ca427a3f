// Signal handlers on a stack that nobody has told of, below a large frame and the registers that the kernel saves: its calls are still this stack's.
//
//| main
//|   handler
//|     leaf
//| --
//| begins~
//|   large
//|     handler
//|       leaf
//|     leaf
//|   leaf
#include "switch.h"
#include <alloca.h>
#include <signal.h>

enum { SIZE = 1 << 16, FRAME = 5000 };
static void *left, *back;

F void leaf(void) { HERE; }
F void handler(int unused) {
    (void)unused;
    leaf();
    HERE;
}
F void large(size_t size) {
    char* frame = alloca(size);
    __asm__ volatile("" : : "r"(frame) : "memory");
    raise(SIGUSR1);
    leaf();
    HERE;
}
F void begins(void* unused) {
    (void)unused;
    large(FRAME);
    leaf();
    switch_stack(&left, back);
    HERE;
}
int main(void) {
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    // It doesn't end where its mapping does, which would show its bounds.
    char* low = map_stack(2 * SIZE);
    switch_stack(&back, fresh_stack(low, SIZE, begins, 0));
    return 0;
}
