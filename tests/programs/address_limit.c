// Limits its address space, and says what it reads, and what can be allocated then: in the process
// itself, in a forked child, and in one that sets its own limit and executes another program.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB (1ul << 20)

__attribute__((noinline)) static void leaf(void) { __asm__ volatile("" : : : "memory"); }

static const char *fits(size_t size) {
    void *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return "no";
    munmap(memory, size);
    return "yes";
}

static void say(const char *when) {
    struct rlimit limit;
    leaf();
    getrlimit(RLIMIT_AS, &limit);
    void *memory = malloc(64 * MB);
    printf("%s: %lu %lu MB, malloc %s, 64 MB %s, 700 MB %s, 8 GB %s\n", when, (unsigned long)limit.rlim_cur / MB,
           (unsigned long)limit.rlim_max / MB, memory ? "yes" : "no", fits(64 * MB), fits(700 * MB), fits(8192 * MB));
    fflush(stdout);
    free(memory);
}

int main(int count, char **arguments) {
    if (count > 1) {
        // Whether there is a limit at all.
        struct rlimit limit;
        getrlimit(RLIMIT_AS, &limit);
        printf("executed: %s\n", limit.rlim_cur == RLIM_INFINITY ? "no limit" : "a limit");
        return 0;
    }
    say("none");
    struct rlimit limit = {512 * MB, 1024 * MB}, before;
    if (setrlimit(RLIMIT_AS, &limit)) perror("setrlimit");
    say("set");
    limit.rlim_cur = 600 * MB;
    if (prlimit(0, RLIMIT_AS, &limit, &before)) perror("prlimit");
    printf("before: %lu %lu MB\n", (unsigned long)before.rlim_cur / MB, (unsigned long)before.rlim_max / MB);
    say("raised");
    limit.rlim_max = 900 * MB;
    if (setrlimit(RLIMIT_AS, &limit)) perror("setrlimit");
    getrlimit(RLIMIT_AS, &limit);
    if (setrlimit(RLIMIT_AS, &limit)) perror("setrlimit");
    say("again");
    if (!fork()) {
        say("child");
        execl(arguments[0], arguments[0], "executed", (char *)0);
        _exit(1);
    }
    wait(0);
    // Others are as they were.
    getrlimit(RLIMIT_NOFILE, &limit);
    if (setrlimit(RLIMIT_NOFILE, &limit) || prlimit(0, RLIMIT_NOFILE, 0, &before)) perror("RLIMIT_NOFILE");
    printf("files: %d\n", limit.rlim_cur == before.rlim_cur && limit.rlim_max == before.rlim_max);
    if (setrlimit(RLIMIT_AS, 0) == 0) puts("nothing was read");
    return 0;
}
