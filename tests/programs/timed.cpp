// Times its own calls: prints "NAME CALLS INSIDE OUTSIDE" for each function at its end. Inside is the time from a call's first instruction to its
// last, outside that from before the call to after it, in nanoseconds, summed; calls within another call of the same function add to neither.
//   timed [wait]
// With "wait" it prints "ready" and waits for the end of its input before it goes on.
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <pthread.h>
#include <unistd.h>

#if defined(__clang__)
#define UNTRACED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#else
#define UNTRACED __attribute__((no_instrument_function, noinline))
#endif
#define TIMED extern "C" __attribute__((noinline, used))

enum { SPINS, CALLS_SPINS, RECURSIVE, CATCHES, SETS_JUMP, INTERRUPTED, HANDLER, IN_THREAD, FUNCTIONS };
static const char *const names[] = {"spins", "calls_spins", "recursive", "catches", "sets_jump", "interrupted", "handler", "in_thread"};
static uint64_t calls[FUNCTIONS], inside[FUNCTIONS], outside[FUNCTIONS];

UNTRACED static uint64_t now()
{
    timespec time;
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}
UNTRACED static void add(uint64_t *sums, int function, uint64_t ns)
{
    __atomic_fetch_add(&sums[function], ns, __ATOMIC_RELAXED);
}
UNTRACED static void until(uint64_t end)
{
    while (now() < end)
        ;
}

TIMED void spins(uint64_t ns)
{
    uint64_t start = now();
    add(calls, SPINS, 1);
    until(start + ns);
    add(inside, SPINS, now() - start);
}
UNTRACED static void call_spins(uint64_t ns)
{
    uint64_t start = now();
    spins(ns);
    add(outside, SPINS, now() - start);
}

TIMED void calls_spins(int times)
{
    uint64_t start = now();
    add(calls, CALLS_SPINS, 1);
    for (int i = 0; i < times; i++)
        call_spins(2000);
    add(inside, CALLS_SPINS, now() - start);
}

TIMED void recursive(int depth, bool is_outermost)
{
    uint64_t start = now();
    add(calls, RECURSIVE, 1);
    until(start + 1000);
    if (depth > 0)
        recursive(depth - 1, false);
    if (is_outermost)
        add(inside, RECURSIVE, now() - start);
}

TIMED void throws()
{
    throw 1;
}
TIMED void catches()
{
    uint64_t start = now();
    add(calls, CATCHES, 1);
    try {
        throws();
    } catch (int) {
        until(start + 3000);
    }
    add(inside, CATCHES, now() - start);
}

static jmp_buf place;
TIMED void jumps()
{
    longjmp(place, 1);
}
TIMED void sets_jump()
{
    volatile uint64_t start = now();
    add(calls, SETS_JUMP, 1);
    if (!setjmp(place))
        jumps();
    until(start + 3000);
    add(inside, SETS_JUMP, now() - start);
}

TIMED void handler(int)
{
    uint64_t start = now();
    add(calls, HANDLER, 1);
    until(start + 2000);
    add(inside, HANDLER, now() - start);
}
TIMED void interrupted()
{
    uint64_t start = now();
    add(calls, INTERRUPTED, 1);
    uint64_t before = now();
    raise(SIGUSR1);
    add(outside, HANDLER, now() - before);
    add(inside, INTERRUPTED, now() - start);
}

TIMED void in_thread()
{
    uint64_t start = now();
    add(calls, IN_THREAD, 1);
    for (int i = 0; i < 200; i++)
        calls_spins(3);
    add(inside, IN_THREAD, now() - start);
}

#define AROUND(function, call) \
    do { \
        uint64_t before = now(); \
        call; \
        add(outside, function, now() - before); \
    } while (0)

UNTRACED static void *thread(void *)
{
    AROUND(IN_THREAD, in_thread());
    return nullptr;
}

int main(int count, char **)
{
    signal(SIGUSR1, handler);
    for (int i = 0; i < 300; i++) {
        AROUND(CALLS_SPINS, calls_spins(i % 4));
        AROUND(RECURSIVE, recursive(i % 5, true));
        AROUND(CATCHES, catches());
        AROUND(SETS_JUMP, sets_jump());
        AROUND(INTERRUPTED, interrupted());
    }
    if (count > 1) {
        puts("ready");
        fflush(stdout);
        for (char byte; read(0, &byte, 1) > 0;)
            ;
    }
    pthread_t threads[3];
    for (pthread_t &one : threads)
        pthread_create(&one, nullptr, thread, nullptr);
    for (pthread_t &one : threads)
        pthread_join(one, nullptr);
    // Calls of it in threads, which nobody has timed from outside.
    outside[CALLS_SPINS] += outside[IN_THREAD];
    for (int i = 0; i < FUNCTIONS; i++)
        printf("%s %lu %lu %lu\n", names[i], calls[i], inside[i], outside[i]);
    return 0;
}
