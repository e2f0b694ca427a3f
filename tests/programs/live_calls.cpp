// A program that works until its standard input ends, with some slow calls, tail calls and exceptions, and knows about each.
//
//   live_calls SLOW_US THREADS [SEED [throw]]
//
// Prints "ready" when its threads run, and again for each line of input, when they have made ROUNDS more calls. At the end it prints "rate TICKS_PER_SECOND" and a line for each call of interest:
//
//   call NAME TID BEGIN FIRST LAST END       ticks: right before the call, first and last thing in it, right behind it
//   threw TYPE TID BEFORE AFTER OUTER        ticks: right before the throw, and where it was caught; OUTER is `first` of the call of
//                                            `risk` around it
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>
#include <x86intrin.h>

#if defined(__clang__)
#define UNTRACED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#else
#define UNTRACED __attribute__((no_instrument_function, noinline, patchable_function_entry(0, 0)))
#endif
#define TRACED __attribute__((noinline))
#define ROUNDS 400

namespace app {
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};
template <class T> struct Wrapped {
    T inside;
};
struct Rare {};
} // namespace app

static uint64_t ticks_per_second;
static long slow_us;
static std::atomic<bool> is_over;
static std::atomic<unsigned> rounds;
static volatile unsigned sink;

struct Own {
    uint64_t begin, first, last, end;
};

static UNTRACED uint64_t nanoseconds() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The counter and the clock at the same moment: of many tries the one that was interrupted least.
struct Both {
    uint64_t ticks, nanoseconds;
};

static UNTRACED Both read_both() {
    Both best = {0, 0};
    uint64_t least = UINT64_MAX;
    for (int count = 0; count < 1000; count++) {
        const uint64_t begin = __rdtsc(), now = nanoseconds(), took = __rdtsc() - begin;
        if (took < least) {
            least = took;
            best = {begin + took / 2, now};
        }
    }
    return best;
}

static UNTRACED void measure() {
    const Both first = read_both();
    usleep(50000);
    const Both last = read_both();
    ticks_per_second = (uint64_t)((double)(last.ticks - first.ticks) * 1e9 / (double)(last.nanoseconds - first.nanoseconds));
}

static UNTRACED void spin(uint64_t us) {
    const uint64_t begin = __rdtsc();
    while (__rdtsc() - begin < ticks_per_second / 1000000 * us) {
    }
}

extern "C" {
TRACED void leaf(unsigned value) { sink = sink + value; }

// Where a call spends its time.
enum Slow { NOWHERE, INSIDE, BEFORE_TAIL };

TRACED void handle(Slow slow, Own* own) {
    own->first = __rdtsc();
    leaf(1);
    if (slow != NOWHERE) spin((uint64_t)slow_us);
    leaf(2);
    own->last = __rdtsc();
}

TRACED void other(Slow slow, Own* own) {
    own->first = __rdtsc();
    leaf(3);
    if (slow != NOWHERE) spin((uint64_t)slow_us);
    own->last = __rdtsc();
}

TRACED void rest(Slow slow, Own* own) {
    leaf(4);
    if (slow == INSIDE) spin((uint64_t)slow_us);
    own->last = __rdtsc();
}

// Ends in a tail call, and has perhaps taken too long by then.
TRACED void handle_tail(Slow slow, Own* own) {
    own->first = __rdtsc();
    if (slow == BEFORE_TAIL) spin((uint64_t)slow_us);
    rest(slow, own);
}
}

struct Thrown {
    const char* type;
    uint64_t before, after, outer;
};

struct Journal {
    std::vector<std::pair<const char*, Own>> calls;
    std::vector<Thrown> throws;
};

UNTRACED static void* too_much() {
    // The library throws, which isn't traced.
    static volatile size_t most = ~(size_t)0 / 2 - 64;
    return ::operator new(most);
}

TRACED void fling(unsigned kind, Thrown* thrown) {
    leaf(kind);
    thrown->before = __rdtsc();
    switch (kind) {
    case 0: throw app::Error("own");
    case 1: throw app::Wrapped<int>{1};
    case 2: throw 7;
    case 3: sink = sink + (unsigned)(uintptr_t)too_much(); break;
    case 4: throw app::Rare();
    default: throw std::out_of_range("far");
    }
}

static const char* const TYPES[] = {"app::Error", "app::Wrapped<int>", "int", "std::bad_alloc", "app::Rare", "std::out_of_range"};

TRACED void inner(unsigned kind, Thrown* thrown) {
    std::string cleaned = "cleaned up, as this doesn't fit into the object itself";
    leaf((unsigned)cleaned.size());
    fling(kind, thrown);
}

// Catches, or lets its caller catch.
TRACED void risk(unsigned kind, bool catches, Thrown* thrown) {
    thrown->outer = __rdtsc();
    leaf(5);
    if (!catches) return inner(kind, thrown);
    try {
        inner(kind, thrown);
    } catch (...) {
        thrown->after = __rdtsc();
    }
    leaf(6);
}

TRACED void attempt(unsigned kind, bool catches, Journal* journal) {
    Thrown thrown = {TYPES[kind], 0, 0, 0};
    try {
        risk(kind, catches, &thrown);
    } catch (...) {
        thrown.after = __rdtsc();
    }
    journal->throws.push_back(thrown);
}

TRACED void serve(uint64_t state, Journal* journal, bool throws) {
    for (unsigned count = 0; !is_over.load(std::memory_order_relaxed) && journal->calls.size() < 200000; count++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const Slow slow = state >> 20 & 1 ? state >> 21 & 1 ? BEFORE_TAIL : INSIDE : NOWHERE;
        Own own;
        void (*const ways[])(Slow, Own*) = {handle, other, handle_tail};
        static const char* const names[] = {"handle", "other", "handle_tail"};
        const unsigned way = (unsigned)(state >> 24) % 3;
        own.begin = __rdtsc();
        ways[way](slow, &own);
        own.end = __rdtsc();
        if (own.end - own.begin > ticks_per_second / 2000000 * (uint64_t)slow_us) journal->calls.push_back({names[way], own});
        if (throws && (state >> 30 & 3) == 0) {
            const unsigned kind = (unsigned)(state >> 34) % 5;
            attempt(kind == 4 && (state >> 40 & 15) ? 5 : kind, state >> 50 & 1, journal);
        }
        rounds++;
        usleep(500);
    }
}

TRACED void work(uint64_t seed, bool throws) {
    Journal* journal = new Journal;
    journal->calls.reserve(200000);
    journal->throws.reserve(200000);
    serve(seed * 0x9e3779b97f4a7c15u + 1, journal, throws);
    static std::atomic_flag printing;
    while (printing.test_and_set()) usleep(100);
    for (const auto& [name, own] : journal->calls)
        printf("call %s %d %llu %llu %llu %llu\n", name, gettid(), (unsigned long long)own.begin, (unsigned long long)own.first,
               (unsigned long long)own.last, (unsigned long long)own.end);
    for (const Thrown& one : journal->throws)
        printf("threw %s %d %llu %llu %llu\n", one.type, gettid(), (unsigned long long)one.before, (unsigned long long)one.after,
               (unsigned long long)one.outer);
    printing.clear();
}

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    slow_us = atol(argv[1]);
    const int threads = atoi(argv[2]);
    const uint64_t seed = argc > 3 ? (uint64_t)atol(argv[3]) : 1;
    const bool throws = argc > 4;
    measure();
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads; thread++) all.emplace_back(work, seed + (uint64_t)thread, throws);
    char byte;
    do {
        printf("ready\n");
        fflush(stdout);
        if (read(0, &byte, 1) <= 0) break;
        for (const unsigned begin = rounds; rounds - begin < ROUNDS;) usleep(1000);
    } while (true);
    printf("rate %llu\n", (unsigned long long)ticks_per_second);
    is_over = true;
    for (auto& thread : all) thread.join();
    return 0;
}
