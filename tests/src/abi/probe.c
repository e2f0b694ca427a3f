// Calls functions with hooks, all registers full of patterns, and compares every bit afterwards.
//
//     probe CALLS [clock]
//
// CALLS of each function under random circumstances; with "clock" then on until the upper half of the clock
// changes. Prints what differed; nothing did where the exit status is 0.
#define _GNU_SOURCE 1
#include <cpuid.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))
#ifdef __clang__
#define QUIET __attribute__((noinline, no_instrument_function, xray_never_instrument))
#else
#define QUIET __attribute__((noinline, no_instrument_function))
#endif

enum { REGISTERS = 15, STATE_SIZE = 16384, WORDS = 64, RSI = 4, RDI = 5 };
static const char *const names[REGISTERS] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8",
                                             "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

void probe_run(void), probe_inside(void), probe_return(void);
void hand_fentry(void), hand_fentry_tail(void), hand_cyg(void), hand_cyg_jump(void), hand_orphan(void);

void (*probe_target)(void);
unsigned long registers_before[REGISTERS], registers_inside[REGISTERS], registers_second[REGISTERS],
    registers_after[REGISTERS];
unsigned long stack_before, stack_after, flags, flags_inside, flags_after;
unsigned long words_before[WORDS], words_after[WORDS];
unsigned char state_home[STATE_SIZE] __attribute__((aligned(64))),
    state_before[STATE_SIZE] __attribute__((aligned(64))), state_inside[STATE_SIZE] __attribute__((aligned(64))),
    state_second[STATE_SIZE] __attribute__((aligned(64))), state_after[STATE_SIZE] __attribute__((aligned(64)));
unsigned state_mask; // Components for XSAVE; 0: no XSAVE.

// Components of the processor's state that are compared: first byte and size.
static struct {
    const char *name;
    unsigned offset, size;
} parts[10];
static unsigned part_count;

static unsigned long seed = 1, failures;

static inline __attribute__((always_inline, no_instrument_function)) unsigned long draw(void)
{
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return seed ^ (seed >> 29);
}

static QUIET void add_part(const char *name, unsigned offset, unsigned size)
{
    if (offset + size > STATE_SIZE)
        abort();
    parts[part_count].name = name;
    parts[part_count].offset = offset;
    parts[part_count++].size = size;
}

// Learns which registers there are.
static QUIET void learn(void)
{
    unsigned a, b, c, d;
    add_part("x87 control word", 0, 2);
    add_part("x87 status word", 2, 2);
    add_part("x87 tags", 4, 1);
    add_part("MXCSR", 24, 4);
    add_part("x87 registers", 32, 128);
    add_part("xmm", 160, 256);
    __cpuid(1, a, b, c, d);
    if (!(c & bit_OSXSAVE))
        return;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    state_mask = low & 0xe7; // x87, SSE, AVX, and of AVX-512: masks, upper halves of the lower, the upper registers.
    if ((state_mask & 0xe0) != 0xe0)
        state_mask &= 7;
    static const char *const component[] = {0, 0, "upper halves of ymm", 0, 0, "masks", "upper halves of zmm", "zmm16-31"};
    for (unsigned index = 2; index < 8; index++) {
        if (state_mask & 1u << index) {
            __cpuid_count(0xd, index, a, b, c, d);
            add_part(component[index], b, a);
        }
    }
}

// A state with something in every register. The floating-point registers hold numbers.
static QUIET void fill_state(unsigned char *state)
{
    static const unsigned short precisions[] = {0, 2, 3};
    memcpy(state, state_home, sizeof state_home);
    for (unsigned part = 4; part < part_count; part++)
        for (unsigned at = 0; at < parts[part].size; at += 8) {
            unsigned long bits = draw(); // All sizes are multiples of 8 bytes.
            memcpy(state + parts[part].offset + at, &bits, 8);
        }
    for (unsigned number = 0; number < 8; number++) {
        state[32 + 16 * number + 7] |= 0x80;
        memset(state + 32 + 16 * number + 10, 0, 6);
    }
    unsigned long bits = draw();
    unsigned short control = (unsigned short)(0x7f | precisions[bits % 3] << 8 | ((bits >> 4) & 3) << 10);
    unsigned mxcsr = 0x1f80 | ((bits >> 8) & 0xe07f);
    memcpy(state, &control, 2);
    memset(state + 2, 0, 2);
    state[4] = 0xff; // The whole x87 stack is in use.
    memcpy(state + 24, &mxcsr, 4);
    unsigned long present = state_mask;
    if (state_mask)
        memcpy(state + 512, &present, 8);
}

static QUIET void differ(const char *function, const char *where, const char *what)
{
    if (failures++ < 20)
        printf("%s: %s isn't what it was, %s\n", function, what, where);
}

static QUIET void compare(const char *function, const char *where, const unsigned long *wanted,
                          const unsigned long *found, const unsigned char *wanted_state,
                          const unsigned char *found_state, unsigned long found_flags)
{
    for (unsigned number = 0; number < REGISTERS; number++)
        if (wanted[number] != found[number])
            differ(function, where, names[number]);
    for (unsigned part = 0; part < part_count; part++)
        if (memcmp(wanted_state + parts[part].offset, found_state + parts[part].offset, parts[part].size) != 0)
            differ(function, where, parts[part].name);
    if ((flags ^ found_flags) & 0x400)
        differ(function, where, "direction flag");
}

// What the compiler instruments. Its functions themselves touch no register.
NOINLINE void made_plain(void)
{
    __asm__ volatile("call probe_inside" ::: "memory");
}

NOINLINE void made_tail_target(void)
{
    __asm__ volatile("" ::: "memory");
}

NOINLINE void made_tail(void)
{
    __asm__ volatile("call probe_inside" ::: "memory");
    made_tail_target();
}

static const struct {
    const char *name;
    void (*function)(void);
} targets[] = {
    {"__fentry__ and __return__", hand_fentry},
    {"__return__ before a jump", hand_fentry_tail},
    {"__cyg_profile", hand_cyg},
    {"__cyg_profile, exit by jump", hand_cyg_jump},
    {"exit without entry", hand_orphan},
#ifdef SITES
    {"a function's sites", made_plain},
    {"a function's sites, tail exit", made_tail},
#endif
};
enum { TARGETS = sizeof targets / sizeof *targets };

static QUIET void probe(unsigned index, int backwards)
{
    for (unsigned number = 0; number < REGISTERS; number++) {
        registers_before[number] = draw();
        registers_second[number] = draw();
    }
    registers_before[RDI] = registers_second[RDI] = (unsigned long)targets[index].function;
    registers_before[RSI] = registers_second[RSI] = (unsigned long)probe_return;
    for (unsigned number = 0; number < WORDS; number++)
        words_before[number] = draw();
    fill_state(state_before);
    fill_state(state_second);
    flags = 0x202 | (backwards ? 0x400 : 0);
    probe_target = targets[index].function;
    int error = errno = 1 + (int)(draw() >> 50);
    probe_run();
    if (errno != error)
        differ(targets[index].name, "after the call", "errno");
    compare(targets[index].name, "after the entry", registers_before, registers_inside, state_before, state_inside,
            flags_inside);
    compare(targets[index].name, "after the exit", registers_second, registers_after, state_second, state_after,
            flags_after);
    if (stack_before != stack_after)
        differ(targets[index].name, "after the exit", "rsp");
    if (memcmp(words_before, words_after, sizeof words_before) != 0)
        differ(targets[index].name, "after the exit", "the caller's stack");
}

static jmp_buf away;

NOINLINE void deep(int levels)
{
    volatile char room[300];
    room[levels] = 1;
    if (levels == 0)
        longjmp(away, 1);
    deep(levels - 1);
    room[levels] = 2;
}

// Leaves traced frames without their exits, below or above those that come next.
static QUIET void abandon(unsigned index, int backwards)
{
    if (setjmp(away) == 0)
        deep(20);
    probe(index, backwards);
}

static QUIET void *thread(void *index)
{
    probe((unsigned)(unsigned long)index, 0);
    return 0;
}

QUIET int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    unsigned long calls = strtoul(argv[1], 0, 10), done = 0;
    learn();
    // A state to begin with: saved by the first run, which is compared with nothing.
    probe_target = made_plain;
    memcpy(state_before + 24, &(unsigned){0x1f80}, 4);
    memcpy(state_before, &(unsigned short){0x37f}, 2);
    memcpy(state_second, state_before, sizeof state_before);
    flags = 0x202;
    probe_run();
    for (unsigned index = 0; index < TARGETS; index++) {
        for (unsigned number = 0; number < 8; number++) {
            pthread_t id;
            if (pthread_create(&id, 0, thread, (void *)(unsigned long)index) != 0)
                return 3;
            pthread_join(id, 0);
        }
    }
    for (unsigned long number = 0; number < calls * TARGETS; number++, done++) {
        unsigned long bits = draw() >> 20;
        if (bits % 32 == 0)
            abandon(number % TARGETS, bits >> 10 & 1);
        else
            probe(number % TARGETS, bits >> 10 & 1);
    }
    unsigned high = (unsigned)(__builtin_ia32_rdtsc() >> 32);
    while (argc > 2 && (unsigned)(__builtin_ia32_rdtsc() >> 32) == high)
        for (unsigned number = 0; number < 1000; number++, done++)
            probe(number % TARGETS, 0);
    printf("%lu calls, %lu differences, components %#x\n", done, failures, state_mask);
    return failures != 0;
}
