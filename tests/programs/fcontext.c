// Fibers by Boost.Context's functions, on small stacks side by side, with frames that are larger than what lies between two of them
// would let anybody guess.
#include <stddef.h>
#include <stdio.h>

#define CALL __attribute__((noinline, noclone))
enum { FIBERS = 3, SIZE = 12 << 10 };

struct transfer { void* from; void* data; };
void* make_fcontext(void* top, size_t size, void (*entry)(struct transfer));
struct transfer jump_fcontext(void* to, void* data);

static char stacks[FIBERS][SIZE] __attribute__((aligned(16)));
static void* fibers[FIBERS];
static volatile int sum;

CALL static void leaf(void) { sum++; }
CALL static void large_frame(void) {
    volatile char buffer[9000];
    buffer[0] = 1;
    leaf();
    sum += buffer[0];
}

CALL static void entry(struct transfer transfer) {
    for (;;) {
        leaf();
        transfer = jump_fcontext(transfer.from, 0);
        large_frame();
    }
}

int main(void) {
    for (int fiber = FIBERS; fiber-- > 0;) fibers[fiber] = make_fcontext(stacks[fiber] + SIZE, SIZE, entry);
    for (int turn = 0; turn < 3; turn++)
        for (int fiber = FIBERS; fiber-- > 0;) fibers[fiber] = jump_fcontext(fibers[fiber], 0).from;
    printf("%d\n", sum);
    return 0;
}
