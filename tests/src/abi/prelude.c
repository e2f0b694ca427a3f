// Generated: functions of every argument and result class, and their callers.
#define _GNU_SOURCE 1
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline))
#define TARGET(name) __attribute__((target(name)))
#ifdef __clang__
#define QUIET __attribute__((noinline, no_instrument_function, xray_never_instrument))
#else
#define QUIET __attribute__((noinline, no_instrument_function))
#endif

typedef unsigned short ushort;
typedef unsigned long ulong;

static unsigned long seed = 1;
static unsigned long unknown_sum;
static unsigned long *sum = &unknown_sum;
static unsigned long wrong_errno, wrong_mxcsr, wrong_control, wrong_status, wrong_flags;

static inline __attribute__((always_inline, no_instrument_function)) unsigned long draw(void)
{
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return seed ^ (seed >> 29);
}

// Fills bytes with random bits.
static QUIET void give(void *to, unsigned long size)
{
    unsigned char *byte = (unsigned char *)to;
    for (unsigned long bits = 0, at = 0; at < size; at++, bits >>= 8) {
        if (at % 8 == 0)
            bits = draw();
        byte[at] = (unsigned char)bits;
    }
}

// A number of the 80-bit format: its leading bit is explicit.
static inline __attribute__((always_inline, no_instrument_function)) void give_extended(void *to, unsigned long size)
{
    give(to, size);
    ((unsigned char *)to)[7] |= 0x80;
}

static inline __attribute__((always_inline, no_instrument_function)) void give_truth(void *to, unsigned long size)
{
    give(to, size);
    *(unsigned char *)to &= 1;
}

// Takes bytes into the checksum.
static QUIET void take(const void *from, unsigned long size)
{
    const unsigned char *byte = (const unsigned char *)from;
    unsigned long total = *sum;
    for (unsigned long at = 0; at < size; at++)
        total = (total ^ byte[at]) * 1099511628211ul;
    *sum = total;
}

static inline __attribute__((always_inline, no_instrument_function)) void note(unsigned long index)
{
    *sum = (*sum ^ index) * 1099511628211ul;
}

static unsigned armed_mxcsr;
static unsigned short armed_control;
static int armed_errno;

// Sets errno, MXCSR and the x87 control word to something unusual: any rounding, any precision, denormals flushed or
// not, exceptions masked, some flagged.
static QUIET void arm(void)
{
    static const unsigned short precisions[] = {0, 2, 3};
    unsigned long bits = draw();
    armed_mxcsr = 0x1f80 | (bits & 0xe07f);
    armed_control = (unsigned short)(0x7f | precisions[(bits >> 16) % 3] << 8 | ((bits >> 20) & 3) << 10);
    armed_errno = 1 + (int)((bits >> 24) % 4000);
    __asm__ volatile("ldmxcsr %0" : : "m"(armed_mxcsr));
    __asm__ volatile("fldcw %0" : : "m"(armed_control));
    errno = armed_errno;
}

// Looks whether they are still so, the x87 stack is empty and the direction is upwards.
static QUIET void check(void)
{
    int error = errno;
    unsigned mxcsr;
    unsigned short control, status;
    const unsigned usual_mxcsr = 0x1f80;
    const unsigned short usual_control = 0x37f;
    unsigned long flags = __builtin_ia32_readeflags_u64();
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(control));
    __asm__ volatile("fnstsw %0" : "=m"(status));
    __asm__ volatile("ldmxcsr %0" : : "m"(usual_mxcsr));
    __asm__ volatile("fldcw %0" : : "m"(usual_control));
    wrong_errno += error != armed_errno;
    wrong_mxcsr += mxcsr != armed_mxcsr;
    wrong_control += control != armed_control;
    wrong_status += (status >> 11 & 7) != 0;
    wrong_flags += flags >> 10 & 1;
}

