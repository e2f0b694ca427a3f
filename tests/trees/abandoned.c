// Another one's calls on the memory of a stack that is never gone on with, which nobody is told: those of the first have been left, which
// the stack pointers show; where these are frames', that the same function is called at the same place.
//
//| main
//|   abandons
//|     leaf ×2
//| --
//| reused!
//|   waits!
//|     leaf
//| reused
//|   leaf
#include "switch.h"

enum { SIZE = 65536 };
static void *home, *left;
static int times;

F void leaf(void) { HERE; }
F void waits(void) {
    leaf();
    switch_stack(&left, home);
    leaf();
    HERE;
}
F void reused(void) {
    if (times++ == 0)
        waits();
    else
        leaf();
    HERE;
}
UNTRACED void begin(void* unused) {
    (void)unused;
    reused();
    switch_stack(&left, home);
}
F void abandons(void) {
    void* low = map_stack(SIZE);
    for (int i = 0; i < 2; i++) {
        switch_stack(&home, fresh_stack(low, SIZE, begin, 0));
        leaf();
    }
    HERE;
}
int main(void) {
    abandons();
    return 0;
}
