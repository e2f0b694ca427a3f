// Calls of `handle_...`, half of which end in a tail call: into traced, untraced, virtual, PLT and ifunc targets. One in some takes long, in its
// own code or in what it jumps to, by the program's own clock.
//
//   tails CALLS ONE_IN SLOW_US SEED [THREADS]
//
// Prints "rate TICKS_PER_SECOND" and, for each call, "TID BEGIN FIRST LAST END KIND" in ticks: read right before the call, first and last
// thing in it or in what it jumps to, and right behind it; and the function's name.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include <vector>

#include "tails.h"

static long calls, one_in, slow_us;
static uint64_t ticks_per_second;
static volatile unsigned sink;

thread_local uint64_t tails_first, tails_last;

static UNTRACED uint64_t nanoseconds() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static UNTRACED void spin(uint64_t ticks) {
    uint64_t begin = __rdtsc();
    while (__rdtsc() - begin < ticks) {
    }
}

// The next seven functions are what calls jump to. All leave the time of their end.
extern "C" UNTRACED long finish(long us) {
    if (us > 0) {
        spin(ticks_per_second / 1000000 * (uint64_t)us);
    }
    tails_last = __rdtsc();
    return us;
}

NOINLINE void leaf(unsigned value) { sink += value; }

NOINLINE long traced_target(long us) {
    leaf(1);
    long result = finish(us);
    sink += result;
    tails_last = __rdtsc();
    return result;
}

// Calls traced code from what isn't traced.
UNTRACED long calling_target(long us) {
    leaf(2);
    leaf(3);
    finish(us);
    leaf(4);
    tails_last = __rdtsc();
    return us;
}

// Untraced code that jumps into traced code.
UNTRACED long jumping_target(long us) { return traced_target(us); }

struct Other {
    virtual ~Other() {}
    virtual long other(long us) { return us; }
};

struct Base {
    virtual ~Base() {}
    virtual long run(long us) = 0;
};

struct Traced : Base {
    NOINLINE long run(long us) override {
        leaf(5);
        long result = finish(us) + (long)(sink & 0);
        tails_last = __rdtsc();
        return result;
    }
};

struct Untraced : Base {
    UNTRACED long run(long us) override { return finish(us); }
};

// Called by way of a thunk.
struct Moved : Other, Base {
    NOINLINE long run(long us) override {
        leaf(6);
        long result = finish(us) + (long)(sink & 0);
        tails_last = __rdtsc();
        return result;
    }
};

static Base *volatile bases[] = {new Traced, new Untraced, new Moved};

static NOINLINE long chosen_traced(long us) { return traced_target(us); }
static UNTRACED long chosen_untraced(long us) { return finish(us); }

extern "C" {
UNTRACED long (*choose_traced())(long) { return chosen_traced; }
UNTRACED long (*choose_untraced())(long) { return chosen_untraced; }
__attribute__((ifunc("choose_traced"))) long indirect_traced(long);
__attribute__((ifunc("choose_untraced"))) long indirect_untraced(long);
}

// What is called. `before` and `after` are how long it takes before its jump and behind it.
#define HANDLE(name, jump)                                                                                             \
    NOINLINE long handle_##name(long before, long after) {                                                             \
        tails_first = __rdtsc();                                                                                       \
        leaf(7);                                                                                                       \
        finish(before);                                                                                                \
        return jump;                                                                                                   \
    }

HANDLE(traced, traced_target(after))
HANDLE(untraced, finish(after))
HANDLE(calling, calling_target(after))
HANDLE(jumping, jumping_target(after))
HANDLE(virtual_traced, bases[0]->run(after))
HANDLE(virtual_untraced, bases[1]->run(after))
HANDLE(virtual_moved, bases[2]->run(after))
HANDLE(plt_traced, library_traced(after))
HANDLE(plt_untraced, library_untraced(after))
HANDLE(ifunc_traced, indirect_traced(after))
HANDLE(ifunc_untraced, indirect_untraced(after))
// Tail calls of those that are followed, and of themselves.
HANDLE(chain, handle_traced(0, after))
HANDLE(long_chain, handle_chain(0, after))

NOINLINE long handle_itself(long before, long after) {
    if (before < 5) {
        tails_first = __rdtsc();
        finish(0);
        return handle_itself(before + 5, after);
    }
    if (before < 100) {
        return handle_itself(before + 1, after);
    }
    return finish(after);
}

// No tail calls.
#define PLAIN(name)                                                                                                    \
    NOINLINE long handle_plain_##name(long before, long after) {                                                       \
        tails_first = __rdtsc();                                                                                       \
        leaf(8);                                                                                                       \
        finish(before);                                                                                                \
        long result = traced_target(after);                                                                            \
        sink += result;                                                                                                \
        tails_last = __rdtsc();                                                                                        \
        return result;                                                                                                 \
    }

PLAIN(a)
PLAIN(b)

struct Kind {
    const char *name;
    long (*handle)(long, long);
};

#define KIND(name)                                                                                                     \
    { "handle_" #name, handle_##name }

static const Kind TAILS[] = {
    KIND(traced),         KIND(untraced),     KIND(calling),      KIND(jumping),       KIND(virtual_traced), KIND(virtual_untraced),
    KIND(virtual_moved),  KIND(plt_traced),   KIND(plt_untraced), KIND(ifunc_traced),  KIND(ifunc_untraced), KIND(chain),
    KIND(long_chain),     KIND(itself),
};
static const Kind PLAINS[] = {KIND(plain_a), KIND(plain_b)};

struct Own {
    uint64_t begin, first, last, end;
    const char *name;
};

struct Thread {
    unsigned seed;
    pthread_t thread;
    int tid;
    std::vector<Own> own;
};

// Three places of calls: one for all, and one each.
static UNTRACED void call(Thread *thread, const Kind &kind, long before, long after, unsigned place) {
    Own own = {};
    own.name = kind.name;
    own.begin = __rdtsc();
    switch (place) {
    case 0:
        kind.handle(before, after);
        own.end = __rdtsc();
        own.last = tails_last;
        break;
    case 1:
        kind.handle(before, after);
        own.end = __rdtsc();
        own.last = tails_last;
        leaf(9);
        break;
    default:
        kind.handle(before, after);
        own.end = __rdtsc();
        own.last = tails_last;
        finish(0);
        break;
    }
    own.first = tails_first;
    thread->own.push_back(own);
}

static UNTRACED void *run(void *argument) {
    Thread *thread = (Thread *)argument;
    thread->tid = gettid();
    unsigned seed = thread->seed;
    for (long count = 0; count < calls; count++) {
        unsigned value = (unsigned)rand_r(&seed);
        const Kind &kind = value & 1 ? TAILS[(value >> 1) % (sizeof TAILS / sizeof *TAILS)] : PLAINS[(value >> 1) & 1];
        bool is_slow = rand_r(&seed) % one_in == 0;
        bool is_before = rand_r(&seed) % 4 == 0 && kind.handle != handle_itself;
        long before = is_slow && is_before ? slow_us : 0, after = is_slow && !is_before ? slow_us : 0;
        call(thread, kind, before, after, (unsigned)rand_r(&seed) % 3);
    }
    return nullptr;
}

UNTRACED int main(int count, char **arguments) {
    if (count < 5) {
        return 2;
    }
    calls = atol(arguments[1]);
    one_in = atol(arguments[2]);
    slow_us = atol(arguments[3]);
    unsigned seed = (unsigned)atol(arguments[4]);
    uint64_t ns = nanoseconds(), ticks = __rdtsc();
    while (nanoseconds() - ns < 100000000) {
    }
    ticks_per_second = (uint64_t)((double)(__rdtsc() - ticks) * 1e9 / (double)(nanoseconds() - ns));
    printf("rate %lu\n", ticks_per_second);
    std::vector<Thread> threads((size_t)(count > 5 ? atol(arguments[5]) : 1));
    for (Thread &thread : threads) {
        thread.seed = seed++;
        pthread_create(&thread.thread, nullptr, run, &thread);
    }
    for (Thread &thread : threads) {
        pthread_join(thread.thread, nullptr);
        for (const Own &own : thread.own) {
            printf("%d %lu %lu %lu %lu %s\n", thread.tid, own.begin, own.first, own.last, own.end, own.name);
        }
    }
    return 0;
}
