// Reads the time-stamp counter between all its events, so that each event lies between two readings,
// and writes the readings to a file. Disturbs itself meanwhile.
//
// bracketed_calls FILE SEED EVENTS [DISTURBANCES]
//
// At random, once in DISTURBANCES readings, it sleeps for a millisecond, gets a signal whose handler
// computes as long, or reads a page that a thread provides two milliseconds later. Beside it, a
// process stops it and lets it go on, competes for its CPU,
// and sends it signals.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define UNTRACED __attribute__((no_instrument_function, noinline))
#define INLINE static inline __attribute__((always_inline, no_instrument_function))
#define CALLED static __attribute__((noinline, noclone))

static uint64_t* readings;
static size_t count, limit;
static uint64_t state;
static unsigned rarity;

INLINE uint64_t number(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

UNTRACED static void sleep_for(long nanoseconds) {
    struct timespec time = {0, nanoseconds};
    nanosleep(&time, NULL);
}

UNTRACED static void compute(uint64_t ticks) {
    uint64_t begin = __rdtsc();
    while (__rdtsc() - begin < ticks) {
    }
}

UNTRACED static void handler(int signal) {
    compute(signal == SIGUSR1 ? 3000000 : 100000);
}

// Pages whose faults wait for a thread; NULL where the kernel doesn't allow that.
enum { PAGES = 256, PAGE = 4096 };
static char* pages;
static size_t touched;
static int faults;

UNTRACED static void* provide(void* unused) {
    struct uffd_msg message;
    while (read(faults, &message, sizeof message) == sizeof message) {
        struct uffdio_zeropage zero = {{message.arg.pagefault.address & -(uint64_t)PAGE, PAGE}, 0, 0};
        sleep_for(2000000);
        ioctl(faults, UFFDIO_ZEROPAGE, &zero);
    }
    return unused;
}

UNTRACED static void begin_faults(void) {
    struct uffdio_api api = {UFFD_API, 0, 0};
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    char* all = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {{(uint64_t)all, PAGES * PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
    pthread_t thread;
    if (faults >= 0 && all != MAP_FAILED && ioctl(faults, UFFDIO_API, &api) == 0 &&
        ioctl(faults, UFFDIO_REGISTER, &range) == 0 && pthread_create(&thread, NULL, provide, NULL) == 0) {
        pages = all;
    }
}

UNTRACED static void fault(void) {
    if (touched % PAGES == 0) {
        madvise(pages, PAGES * PAGE, MADV_DONTNEED);
    }
    *(volatile char*)(pages + touched++ % PAGES * PAGE);
}

UNTRACED static void disturb(void) {
    switch (number() % (pages == NULL ? 2 : 3)) {
    case 0:
        sleep_for(1000000);
        break;
    case 1:
        raise(SIGUSR1);
        break;
    default:
        fault();
    }
}

INLINE void read_clock(void) {
    readings[count++] = __rdtsc();
    if (rarity != 0 && number() % rarity == 0) {
        disturb();
        readings[count - 1] |= 1ULL << 63; // told apart from chance
    }
}

CALLED void leaf(void) {
    read_clock();
}

CALLED int branch(int depth) {
    read_clock();
    while (depth > 0 && number() % 4 != 0) {
        if (number() % 8 == 0) {
            branch(depth - 1);
        } else {
            leaf();
        }
        read_clock();
    }
    return depth;
}

UNTRACED static void beside(pid_t other) {
    cpu_set_t processors;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CPU_ZERO(&processors);
    CPU_SET(sched_getcpu(), &processors);
    sched_setaffinity(other, sizeof processors, &processors);
    for (;;) {
        sleep_for(200000 + (long)(number() % 1000000));
        switch (number() % 3) {
        case 0:
            kill(other, SIGSTOP);
            sleep_for(2000000);
            kill(other, SIGCONT);
            break;
        case 1:
            kill(other, SIGUSR2);
            break;
        default:
            sched_setaffinity(0, sizeof processors, &processors);
            compute(3000000);
        }
    }
}

int main(int argc, char** argv) {
    if (argc < 4) {
        return 2;
    }
    state = strtoull(argv[2], NULL, 10) * 2 + 1;
    limit = strtoull(argv[3], NULL, 10);
    rarity = argc > 4 ? (unsigned)atoi(argv[4]) : 0;
    size_t size = (limit + (1 << 20)) * sizeof *readings;
    readings = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (readings == MAP_FAILED) {
        return 2;
    }
    memset(readings, 0, size);
    signal(SIGUSR1, handler);
    signal(SIGUSR2, handler);
    if (rarity != 0) {
        begin_faults();
    }
    pid_t torment = rarity == 0 ? 0 : fork();
    if (rarity != 0 && torment == 0) {
        beside(getppid());
    }
    while (count < limit) {
        read_clock();
        branch(6);
    }
    read_clock();
    if (torment != 0) {
        kill(torment, SIGKILL);
        waitpid(torment, NULL, 0);
    }
    if (touched > 0) {
        fprintf(stderr, "%zu faults\n", touched);
    }
    FILE* file = fopen(argv[1], "wb");
    if (file == NULL || fwrite(readings, sizeof *readings, count, file) != count || fclose(file) != 0) {
        return 2;
    }
    return 0;
}
