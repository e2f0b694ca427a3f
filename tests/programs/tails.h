// Shared by the program with tail calls and its library.
#pragma once
#include <stdint.h>

#define NOINLINE __attribute__((noinline))
#if defined(__clang__)
#define UNTRACED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#else
#define UNTRACED __attribute__((no_instrument_function, noinline, patchable_function_entry(0, 0)))
#endif

extern thread_local uint64_t tails_first, tails_last;

extern "C" {
long finish(long us);
long library_traced(long us);
long library_untraced(long us);
}
