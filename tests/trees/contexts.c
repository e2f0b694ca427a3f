// makecontext and swapcontext, with stacks wherever a program may have them: each is a track of its own.
//
//| main
//|   generator
//|     leaf ×4
//|   leaf
//|   set_back
//|     left!
//|   preempts
//|     leaf ×2
//|   leaf
//|   round_robin
//|     leaf ×6
//|   leaf
//| --
//| counts
//|   step
//|     leaf
//|   step
//|     leaf
//|   step
//|     leaf
//| --
//| runs_on
//|   leaf
//|   on_signal
//|     leaf
//|   leaf
//| --
//| on_heap
//|   work
//|     leaf ×2
//|   work
//|     leaf ×2
//| --
//| on_mapping
//|   down ↓20
//|     work
//|       leaf ×2
//|   work
//|     leaf ×2
//| --
//| in_data
//|   work
//|     leaf ×2
//|   work
//|     leaf ×2
#include "tree.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { SIZE = 65536, PAGE = 4096 };
static ucontext_t home, contexts[3];
static char fixed[SIZE] __attribute__((aligned(16))), other[SIZE] __attribute__((aligned(16)));

F void leaf(void) { HERE; }
UNTRACED void begin(int number, void* stack, void (*entry)(void)) {
    ucontext_t* context = &contexts[number];
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = SIZE;
    context->uc_link = &home;
    makecontext(context, entry, 0);
}

F void step(void) {
    swapcontext(&contexts[0], &home);
    leaf();
    HERE;
}
F void counts(void) {
    for (int i = 0; i < 3; i++) step();
    HERE;
}
// It ends by uc_link.
F void generator(void) {
    begin(0, fixed, counts);
    for (int i = 0; i < 4; i++) {
        swapcontext(&home, &contexts[0]);
        leaf();
    }
    HERE;
}

// leaf, switched out, leaf
F void work(int number) {
    leaf();
    swapcontext(&contexts[number], &home);
    leaf();
    HERE;
}
F void on_heap(void) {
    work(0);
    work(0);
    HERE;
}
F void down(int depth) {
    if (depth == 1)
        work(1);
    else
        down(depth - 1);
    HERE;
}
F void on_mapping(void) {
    down(20);
    work(1);
    HERE;
}
F void in_data(void) {
    work(2);
    work(2);
    HERE;
}
F void round_robin(void) {
    char* heap = malloc(SIZE);
    char* mapping =
        mmap(0, SIZE + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    mprotect(mapping, PAGE, PROT_NONE);
    begin(0, heap, on_heap);
    begin(1, mapping + PAGE, on_mapping);
    begin(2, other, in_data);
    for (int round = 0; round < 3; round++)
        for (int number = 0; number < 3; number++) {
            swapcontext(&home, &contexts[number]);
            if (round < 2) leaf();
        }
    free(heap);
    munmap(mapping, SIZE + PAGE);
    HERE;
}

// On one stack, setcontext is a jump back.
static ucontext_t here;
F void left(void) {
    setcontext(&here);
    HERE;
}
F void set_back(void) {
    volatile int again = 0;
    getcontext(&here);
    if (again++ == 0) left();
    HERE;
}

// A handler of signals that switches away, and goes on later.
F void on_signal(int signal) {
    leaf();
    if (signal) swapcontext(&contexts[0], &home);
    HERE;
}
F void runs_on(void) {
    leaf();
    raise(SIGUSR1);
    leaf();
    HERE;
}
F void preempts(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, 0);
    char* stack = malloc(SIZE);
    begin(0, stack, runs_on);
    swapcontext(&home, &contexts[0]);
    leaf();
    swapcontext(&home, &contexts[0]);
    leaf();
    HERE;
}
int main(void) {
    generator();
    leaf();
    set_back();
    preempts();
    leaf();
    round_robin();
    leaf();
    return 0;
}
