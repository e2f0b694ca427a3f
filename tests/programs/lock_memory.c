// Locks all of its memory, under several limits, as a user without special rights, and says what came of it.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 128, PAGE = 4096, SMALL_MB = 200 };
static char own[PAGES * PAGE] __attribute__((aligned(PAGE)));

__attribute__((noinline)) void leaf(void) { __asm__ volatile("" : : : "memory"); }

// Megabytes, as /proc/self/status has them.
__attribute__((no_instrument_function)) static long status(const char *name) {
    char line[256];
    long kilobytes = -1024;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) sscanf(line + strlen(name), ": %ld", &kilobytes);
    if (file) fclose(file);
    return kilobytes / 1024;
}

__attribute__((no_instrument_function)) static int in_memory(char *first) {
    unsigned char there[PAGES];
    int count = 0;
    if (mincore(first, sizeof own, there)) return -1;
    for (int i = 0; i < PAGES; i++) count += there[i] & 1;
    return count == PAGES;
}

__attribute__((no_instrument_function)) static void lock(const char *name, int flags) {
    errno = 0;
    const int result = mlockall(flags);
    printf("%s: %d %s, small %d, in memory %d", name, result, result ? strerror(errno) : "", status("VmRSS") < SMALL_MB, in_memory(own));
    char *new = mmap(0, sizeof own, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf(", new %d\n", new == MAP_FAILED ? -1 : in_memory(new));
    munlockall();
    munmap(new, sizeof own);
    madvise(own, sizeof own, MADV_DONTNEED);
}

static void limit(unsigned long bytes) {
    struct rlimit limit;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (bytes > limit.rlim_max) bytes = limit.rlim_max;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_MEMLOCK, &limit);
}

int main(int count, char **arguments) {
    (void)arguments;
    leaf();
    struct rlimit most = {512 << 20, 512 << 20};
    setrlimit(RLIMIT_MEMLOCK, &most);
    if (count > 1) lock("with rights", MCL_CURRENT);
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2] = {{0}, {0}};
    if (syscall(SYS_capset, &header, rights)) return 2;
    lock("future", MCL_FUTURE);
    lock("on fault", MCL_CURRENT | MCL_ONFAULT);
    lock("current", MCL_CURRENT);
    fflush(stdout);
    // A child that makes no traced call.
    if (!fork()) {
        lock("child", MCL_CURRENT);
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    lock("both", MCL_CURRENT | MCL_FUTURE);
    lock("nothing", 0);
    lock("bad", MCL_CURRENT | 8);
    limit(64 << 10);
    lock("too much", MCL_CURRENT);
    limit(0);
    lock("not allowed", MCL_CURRENT);
    leaf();
    return 0;
}
