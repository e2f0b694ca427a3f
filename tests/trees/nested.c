// Stacks in local variables: when the function has returned, the memory is the outer stack's again.
// flags: -pthread
//
// Without the prefix, such stacks aren't known.
// not in: untouched
//| main
//|   has_stack
//|     leaf ×2
//|   down ↓100
//|     leaf
//|   leaves_open
//|     leaf
//|   down ↓100
//|     leaf
//|   jumps_out!
//|     leaf
//|   down ↓100
//|     leaf
//|   recurs
//|     leaf
//|     recurs
//|       leaf
//|       recurs
//|         leaf
//|         down ↓100
//|           leaf
//|       down ↓100
//|         leaf
//|     down ↓100
//|       leaf
//|   down ↓100
//|     leaf
//|   lends
//|   down ↓100
//|     leaf
//|   leaf
//|   holds_both
//|     leaf
//|   down ↓100
//|     leaf
//| --
//| work
//|   leaf ×2
//| --
//| work!
//|   leaf
//| --
//| work!
//|   leaf
//| --
//| work
//|   leaf ×2
//| --
//| work
//|   leaf ×2
//| --
//| work
//|   leaf ×2
//| --
//| borrows
//|   leaf
//| --
//| work
//|   leaf ×2
//| --
//| on_fiber
//|   has_stack
//|     leaf ×2
//|   down ↓100
//|     leaf
//| --
//| work
//|   leaf ×2
//| --
//| lends_to_home
//|   leaf
//| --
//| work
//|   leaf ×2
//| --
//| leaves_both!
//| --
//| work!
//|   leaf
#include "tree.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

enum { SIZE = 65536, CONTEXTS = 5 };
static ucontext_t homes[CONTEXTS], contexts[CONTEXTS];
static jmp_buf out;

F void leaf(void) { HERE; }
// Through the memory that functions before had.
F void down(int depth) {
    if (depth > 1)
        down(depth - 1);
    else
        leaf();
    HERE;
}
UNTRACED void begin(int number, void* stack, size_t size, void (*entry)(int)) {
    ucontext_t* context = &contexts[number];
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = size;
    context->uc_link = &homes[number];
    makecontext(context, (void (*)(void))entry, 1, number);
}
UNTRACED void go_on(int number) { swapcontext(&homes[number], &contexts[number]); }

// leaf, switched out, leaf
F void work(int number) {
    leaf();
    swapcontext(&contexts[number], &homes[number]);
    leaf();
    HERE;
}
F void has_stack(int number) {
    char stack[SIZE] __attribute__((aligned(16)));
    begin(number, stack, SIZE, work);
    go_on(number);
    leaf();
    go_on(number);
    leaf();
    HERE;
}
// Nobody goes on there any more.
F void leaves_open(void) {
    char stack[SIZE] __attribute__((aligned(16)));
    begin(0, stack, SIZE, work);
    go_on(0);
    leaf();
    HERE;
}
F void jumps_out(void) {
    char stack[SIZE] __attribute__((aligned(16)));
    begin(0, stack, SIZE, work);
    go_on(0);
    leaf();
    longjmp(out, 1);
    HERE;
}
// Those that lie further out go on.
F void recurs(int depth) {
    char stack[SIZE] __attribute__((aligned(16)));
    begin(depth, stack, SIZE, work);
    go_on(depth);
    leaf();
    if (depth > 1) recurs(depth - 1);
    down(100);
    go_on(depth);
    HERE;
}
// Another thread tells of a stack in this one's frame.
F void* borrows(void* stack) {
    begin(0, stack, SIZE, work);
    go_on(0);
    leaf();
    go_on(0);
    HERE;
    return stack;
}
F void lends(void) {
    char stack[SIZE] __attribute__((aligned(16)));
    pthread_t thread;
    pthread_create(&thread, 0, borrows, stack);
    pthread_join(thread, 0);
    HERE;
}
F void on_fiber(int number) {
    has_stack(number + 1);
    down(100);
    HERE;
}
// Another stack tells of one in this fiber's frame.
static void* lent;
F void lends_to_home(int number) {
    char stack[SIZE] __attribute__((aligned(16)));
    lent = stack;
    swapcontext(&contexts[number], &homes[number]);
    leaf();
    HERE;
}
// Both the fiber and the one in its frame are in that of a function that returns.
F void leaves_both(int number) {
    char stack[SIZE] __attribute__((aligned(16)));
    begin(number + 1, stack, SIZE, work);
    go_on(number + 1);
    swapcontext(&contexts[number], &homes[number]);
    HERE;
}
F void holds_both(void) {
    char stack[2 * SIZE] __attribute__((aligned(16)));
    begin(0, stack, sizeof stack, leaves_both);
    go_on(0);
    leaf();
    HERE;
}
int main(void) {
    has_stack(0);
    down(100);
    leaves_open();
    down(100);
    if (!setjmp(out)) jumps_out();
    down(100);
    recurs(3);
    down(100);
    lends();
    down(100);
    begin(0, malloc(4 * SIZE), 4 * SIZE, on_fiber);
    go_on(0);
    leaf();
    begin(2, malloc(4 * SIZE), 4 * SIZE, lends_to_home);
    go_on(2);
    begin(3, lent, SIZE, work);
    go_on(3);
    go_on(3);
    go_on(2);
    holds_both();
    down(100);
    return 0;
}
