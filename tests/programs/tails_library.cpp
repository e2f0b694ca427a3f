// What the program with tail calls calls by way of its linkage table.
#include <x86intrin.h>

#include "tails.h"

static volatile long sink;

extern "C" NOINLINE long library_traced(long us) {
    sink = finish(us);
    tails_last = __rdtsc();
    return sink;
}

extern "C" UNTRACED long library_untraced(long us) { return finish(us); }
