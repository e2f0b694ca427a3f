// Jumps from one stack to an outer frame of another one: what was deeper there has been left, also where the same calls are made once more at the same
// depth, or fewer of them.
//
//| main
//|   jumped_into
//|     deeper! ↓3
//|     deeper ↓3
//|       leaf
//|     deeper! ↓3
//|     leaf
//|   leaf
//| --
//| begins~
//|   jumps_out~
//|     leaf
//| --
//| begins~
//|   jumps_out~
//|     leaf
#include "switch.h"
#include <setjmp.h>

enum { SIZE = 65536 };
static jmp_buf target;
static void* left;

F void leaf(void) { HERE; }
F void jumps_out(void) {
    leaf();
    longjmp(target, 1);
}
F void begins(void* unused) {
    (void)unused;
    jumps_out();
    HERE;
}
F void deeper(int levels, int switches) {
    if (levels > 0)
        deeper(levels - 1, switches);
    else if (switches)
        switch_stack(&left, fresh_stack(map_stack(SIZE), SIZE, begins, 0));
    else
        leaf();
    HERE;
}
F void jumped_into(void) {
    if (setjmp(target) == 0) deeper(2, 1);
    deeper(2, 0);
    if (setjmp(target) == 0) deeper(2, 1);
    leaf();
    HERE;
}
int main(void) {
    jumped_into();
    leaf();
    return 0;
}
