// fibonacci N: recursive, through a pointer, so that no compiler makes something else of the recursion.
#include "region.h"
#include <stdlib.h>

static int fibonacci(int n);
static int (*volatile pointer)(int) = fibonacci;
static volatile int result;

static int fibonacci(int n) { return n < 2 ? n : pointer(n - 1) + pointer(n - 2); }

// Neighbours of different sizes: with them, another order of the functions is another place of each.
#define NEIGHBOUR(number, size) \
    __attribute__((used)) static void neighbour_##number(void) { __asm__ volatile(".skip " #size ", 0x90"); }
NEIGHBOUR(1, 16)
NEIGHBOUR(2, 32)
NEIGHBOUR(3, 48)
NEIGHBOUR(4, 64)
NEIGHBOUR(5, 80)
NEIGHBOUR(6, 16)
NEIGHBOUR(7, 112)
NEIGHBOUR(8, 144)

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    region_begin();
    result = pointer(atoi(argv[1]));
    region_end();
    return 0;
}
