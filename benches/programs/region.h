// The part of a program that is measured. region.c is never instrumented.
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
void region_begin(void);
// Writes the process's CPU time since region_begin, in ns, into the file named by $BENCH_REGION.
void region_end(void);
#ifdef __cplusplus
}
#endif
