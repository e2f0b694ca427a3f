// A sampling profiler as a library to preload: walks the stack 10,000 times a second of CPU time by backtrace() and by libgcc's
// unwinder, in a signal handler, and says at the end which walks didn't get to where the thread began.
// Each thread has a timer of its own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_long walks, broken;
static uintptr_t entry;
static _Atomic uintptr_t examples[8][4];

static void sample(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    void *frames[512];
    int depth = backtrace(frames, 512);
    atomic_fetch_add(&walks, 1);
    uintptr_t last = depth > 0 ? (uintptr_t)frames[depth - 1] : 0;
    // The program's first instructions (behind them stand those of its end, which have no unwind information), or
    // the C library's of a thread.
    int is_whole = depth == 512 || (last > entry && last < entry + 256);
    if (!is_whole) {
        Dl_info where;
        is_whole = dladdr((void *)last, &where) && where.dli_fname && strstr(where.dli_fname, "libc.so");
    }
    if (is_whole) return;
    long number = atomic_fetch_add(&broken, 1);
    for (int i = 0; number < 8 && i < 4; i++) examples[number][i] = depth > i ? (uintptr_t)frames[depth - 1 - i] : 0;
}

static void start(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return;
    struct itimerspec often = {{0, 100000}, {0, 100000}};
    timer_settime(timer, 0, &often, NULL);
}

struct begin {
    void *(*function)(void *);
    void *argument;
};
static void *begun(void *data) {
    struct begin begin = *(struct begin *)data;
    free(data);
    start();
    return begin.function(begin.argument);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    struct begin *begin = malloc(sizeof *begin);
    if (!begin) return real(thread, attributes, function, argument);
    *begin = (struct begin){function, argument};
    return real(thread, attributes, begun, begin);
}

__attribute__((constructor)) static void begin(void) {
    void *frames[4];
    backtrace(frames, 4); // loads the unwinder
    entry = getauxval(AT_ENTRY);
    struct sigaction action = {.sa_sigaction = sample, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    start();
}
__attribute__((destructor)) static void end(void) {
    signal(SIGPROF, SIG_IGN);
    const char *path = getenv("PROFILER_OUT");
    FILE *out = path ? fopen(path, "w") : NULL;
    if (!out) return;
    fprintf(out, "%ld %ld\n", walks, broken);
    for (int i = 0; i < 8 && i < broken; i++)
        fprintf(out, "%#lx %#lx %#lx %#lx, entry %#lx\n", examples[i][0], examples[i][1], examples[i][2], examples[i][3], entry);
    fclose(out);
}
