// Calls of every kind that a report has numbers for: long and short ones, direct and mutual recursion, exceptions, jumps, labels, tail calls, in
// threads. It counts its calls by itself and prints the counts: "name calls" for each function; and "throws COUNT", calls that an exception left.
//
//   reported THREADS ROUNDS
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "everycall.h"

#define NOINLINE extern "C" __attribute__((noinline))
#define FUNCTIONS(X) \
    X(leaf) X(work) X(countdown) X(even) X(odd) X(thrower) X(between) X(catcher) X(handle) X(respond) X(round_of) X(run) X(main)

enum Number {
#define X(name) NUMBER_##name,
    FUNCTIONS(X)
#undef X
    COUNT
};
static const char *const names[] = {
#define X(name) #name,
    FUNCTIONS(X)
#undef X
};
static std::atomic<uint64_t> counts[COUNT];
static std::atomic<uint64_t> throws;
#define CALLED(name) counts[NUMBER_##name].fetch_add(1, std::memory_order_relaxed)
static thread_local volatile unsigned sink;

NOINLINE unsigned leaf(unsigned x) {
    CALLED(leaf);
    return sink = x + 1;
}

NOINLINE unsigned work(unsigned steps) {
    CALLED(work);
    for (unsigned step = 0; step < steps; step++)
        sink = sink * 3 + step;
    return leaf(sink) + leaf(steps);
}

NOINLINE unsigned countdown(unsigned depth) {
    CALLED(countdown);
    sink = depth == 0 ? leaf(depth) : countdown(depth - 1);
    return sink;
}

NOINLINE unsigned odd(unsigned depth);
NOINLINE unsigned even(unsigned depth) {
    CALLED(even);
    sink = depth == 0 ? 1 : odd(depth - 1);
    return sink;
}
NOINLINE unsigned odd(unsigned depth) {
    CALLED(odd);
    sink = depth == 0 ? 0 : even(depth - 1);
    return sink;
}

NOINLINE void thrower(unsigned x) {
    CALLED(thrower);
    work(x);
    if (x % 3 == 0) {
        throws++;
        throw std::runtime_error("no");
    }
    sink = x;
}
NOINLINE void between(unsigned x) {
    CALLED(between);
    try {
        thrower(x);
    } catch (const std::logic_error &) {
        sink = x;
    } catch (...) {
        throws++;
        throw;
    }
    sink = x + 1;
}
NOINLINE void catcher(unsigned x) {
    CALLED(catcher);
    try {
        between(x);
    } catch (const std::exception &) {
        sink = x;
    }
    leaf(x);
}

NOINLINE unsigned respond(unsigned x) {
    CALLED(respond);
    return work(x * 10) + sink;
}
NOINLINE unsigned handle(unsigned x) {
    CALLED(handle);
    everycall_label("request", x % 4);
    work(x);
    return respond(x);
}

NOINLINE void round_of(unsigned x) {
    CALLED(round_of);
    work(x % 100 == 0 ? 40000 : 20 + x % 30);
    countdown(x % 7);
    even(x % 6);
    catcher(x);
    sink = handle(x % 50);
    sink = sink + 1;
}

NOINLINE void run(unsigned rounds) {
    CALLED(run);
    for (unsigned x = 0; x < rounds; x++)
        round_of(x);
    sink = 0;
}

int main(int, char **words) {
    CALLED(main);
    unsigned threads = std::atoi(words[1]), rounds = std::atoi(words[2]);
    std::vector<std::thread> all;
    for (unsigned thread = 0; thread < threads; thread++)
        all.emplace_back(run, rounds);
    for (auto &thread : all)
        thread.join();
    for (unsigned number = 0; number < COUNT; number++)
        std::printf("%s %llu\n", names[number], (unsigned long long)counts[number].load());
    std::printf("throws %llu\n", (unsigned long long)throws.load());
}
