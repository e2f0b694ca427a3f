// loop N: calls of an empty function.
#include "region.h"
#include <stdlib.h>

__attribute__((noinline)) static void empty(void) { __asm__ volatile(""); }

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    long n = atol(argv[1]);
    region_begin();
    for (long i = 0; i < n; i++) empty();
    region_end();
    return 0;
}
