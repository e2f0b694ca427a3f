// What the programs of the library share: every function is a call of its own at every level of optimisation.
#ifndef TREE_H
#define TREE_H
#if defined(__clang__)
#define F __attribute__((noinline))
#define UNTRACED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#elif defined(__aarch64__)
#define F __attribute__((noipa))
// gcc leaves room for patches in functions that aren't to be instrumented, too.
#define UNTRACED __attribute__((no_instrument_function, patchable_function_entry(0), noipa))
#else
#define F __attribute__((noipa))
#define UNTRACED __attribute__((no_instrument_function, noipa))
#endif
// Something happens here: no call before it is a tail call, no function with it is pure.
#define HERE __asm__ volatile("" ::: "memory")
#endif
