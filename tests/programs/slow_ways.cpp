// Slow calls of every kind, one of each; each prints "NAME BEGIN FIRST LAST END", as the program `slow` does.
//
//   slow_ways PLUGIN [STAY_MS]
//
// `over_epoch` makes calls while the upper half of the counter changes, `asleep` makes none. `thrown` is left by an exception, and what
// is printed as its last and end is from before the throw and behind the catch. `in_child` is a forked child's. `plugged` is the plugin's.
// Each process ends STAY_MS after it has done all that.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

struct Own {
    uint64_t begin, first, last, end;
};
static volatile unsigned sink;

static void print(const char *name, const Own &own) {
    std::printf("%s %llu %llu %llu %llu\n", name, (unsigned long long)own.begin, (unsigned long long)own.first,
                (unsigned long long)own.last, (unsigned long long)own.end);
    std::fflush(stdout);
}

__attribute__((noinline)) void step() { sink += 1; }

// Until the upper half of the counter has changed, and a bit longer.
extern "C" __attribute__((noinline)) void over_epoch(Own *own) {
    own->first = __rdtsc();
    while (__rdtsc() >> 32 == own->first >> 32) {
        step();
        usleep(500);
    }
    step();
    usleep(3000);
    step();
    own->last = __rdtsc();
}

extern "C" __attribute__((noinline)) void asleep(Own *own) {
    own->first = __rdtsc();
    while (__rdtsc() >> 32 == own->first >> 32) {
        usleep(10000);
    }
    usleep(3000);
    own->last = __rdtsc();
}

extern "C" __attribute__((noinline)) void thrown(Own *own) {
    own->first = __rdtsc();
    usleep(5000);
    step();
    own->last = __rdtsc();
    throw 1;
}

extern "C" __attribute__((noinline)) void in_child(Own *own) {
    own->first = __rdtsc();
    step();
    usleep(5000);
    own->last = __rdtsc();
}

template <typename Call> static Own measured(Call call) {
    Own own;
    own.begin = __rdtsc();
    call(&own);
    own.end = __rdtsc();
    return own;
}

int main(int argc, char **argv) {
    const useconds_t stay = argc > 2 ? (useconds_t)std::atol(argv[2]) * 1000 : 0;
    print("over_epoch", measured(over_epoch));
    print("asleep", measured(asleep));
    print("thrown", measured([](Own *own) {
        try {
            thrown(own);
        } catch (int) {
            step();
        }
    }));
    if (pid_t child = fork(); child == 0) {
        step();
        print("in_child", measured(in_child));
        usleep(stay);
        _exit(0);
    } else {
        waitpid(child, nullptr, 0);
    }
    void *plugin = dlopen(argv[1], RTLD_NOW);
    auto plugged = reinterpret_cast<void (*)(Own *)>(dlsym(plugin, "plugged"));
    if (!plugged) {
        return 3;
    }
    print("plugged", measured(plugged));
    usleep(stay);
}
