// make_fcontext and jump_fcontext of a library that wasn't made for this: several stacks in one mapping, and one that is used again and again.
//
// library: fcontext_library.c
//| main
//|   neighbours
//|     leaf ×6
//|   leaf
//|   used_again
//|     leaf ×4
//|   leaf
//| --
//| first
//|   yields
//|     leaf
//|   down ↓40
//|     leaf
//| --
//| second
//|   down ↓40
//|     leaf
//|   yields
//|     leaf
//| --
//| third
//|   yields
//|     leaf
//| --
//| again
//|   leaf
//|   yields
//|     leaf
//| again
//|   leaf
//|   yields
//|     leaf
#include "fcontext.h"
#include "tree.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { SIZE = 32768, COUNT = 3 };
static fcontext_t home, fibers[COUNT];

F void leaf(void) { HERE; }
F void yields(int mine) {
    transfer_t back = jump_fcontext(home, &fibers[mine]);
    home = back.from;
    leaf();
    HERE;
}
F void down(int depth) {
    char room[512];
    __asm__ volatile("" : : "r"(room) : "memory");
    if (depth == 1)
        leaf();
    else
        down(depth - 1);
    HERE;
}
F void first(void) {
    yields(0);
    down(40);
    HERE;
}
F void second(void) {
    down(40);
    yields(1);
    HERE;
}
F void third(void) {
    yields(2);
    HERE;
}
F void again(void) {
    leaf();
    yields(0);
    HERE;
}
// Of the three, and of one.
UNTRACED void run_first(transfer_t start) { home = start.from; first(); jump_fcontext(home, 0); }
UNTRACED void run_second(transfer_t start) { home = start.from; second(); jump_fcontext(home, 0); }
UNTRACED void run_third(transfer_t start) { home = start.from; third(); jump_fcontext(home, 0); }
UNTRACED void run_again(transfer_t start) { home = start.from; again(); jump_fcontext(home, 0); }

UNTRACED void go_on(int number) {
    transfer_t back = jump_fcontext(fibers[number], 0);
    fibers[number] = back.from;
}
F void neighbours(void) {
    char* low = mmap(0, COUNT * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void (*const runs[COUNT])(transfer_t) = {run_first, run_second, run_third};
    for (int i = 0; i < COUNT; i++) fibers[i] = make_fcontext(low + (i + 1) * SIZE, SIZE, runs[i]);
    for (int i = 0; i < 2 * COUNT; i++) {
        go_on(i % COUNT);
        leaf();
    }
    munmap(low, COUNT * SIZE);
    HERE;
}
F void used_again(void) {
    char* low = malloc(SIZE);
    for (int i = 0; i < 2; i++) {
        fibers[0] = make_fcontext(low + SIZE, SIZE, run_again);
        go_on(0);
        leaf();
        go_on(0);
        leaf();
    }
    free(low);
    HERE;
}
int main(void) {
    neighbours();
    leaf();
    used_again();
    leaf();
    return 0;
}
