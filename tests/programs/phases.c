/* Phases in which a thread computes, sleeps, waits for another one, and is preempted. For each, it prints the
   thread's id, when it began and ended (nanoseconds of CLOCK_MONOTONIC_RAW), its CPU time, and how long the thread
   could have run and didn't, as the kernel counts them. With an argument, all of it happens so many times, with
   phases of a fifth of the time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((no_instrument_function)) static long long now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Of the calling thread. */
struct counts {
    long long raw, cpu, waited;
};

__attribute__((no_instrument_function)) static struct counts counts(void)
{
    char text[100] = "";
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    struct counts counts = {0, 0, 0};
    if (file >= 0 && read(file, text, sizeof text - 1) > 0)
        sscanf(text, "%*s %lld", &counts.waited);
    if (file >= 0)
        close(file);
    counts.cpu = now(CLOCK_THREAD_CPUTIME_ID);
    counts.raw = now(CLOCK_MONOTONIC_RAW);
    return counts;
}

__attribute__((no_instrument_function)) static void said(const char *name, struct counts begin)
{
    /* What is counted covers the whole time. */
    long long raw = now(CLOCK_MONOTONIC_RAW);
    struct counts end = counts();
    printf("%s %d %lld %lld %lld %lld\n", name, (int)syscall(SYS_gettid), begin.raw, raw, end.cpu - begin.cpu,
           end.waited - begin.waited);
}

#define PHASE(name, body)                                                                                    \
    __attribute__((noinline)) void name(void)                                                                \
    {                                                                                                        \
        struct counts begin = counts();                                                                      \
        body;                                                                                                \
        said(#name, begin);                                                                                  \
    }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static int ends[2];
/* Of a "millisecond". */
static long nanoseconds = 1000000;

__attribute__((no_instrument_function)) static void sleep_ms(int milliseconds)
{
    struct timespec time = {0, milliseconds * nanoseconds};
    while (nanosleep(&time, &time)) {
    }
}

/* By the thread's own CPU time: preemption makes it longer, and never less work. */
__attribute__((no_instrument_function)) static void spin_ms(int milliseconds)
{
    long long end = now(CLOCK_THREAD_CPUTIME_ID) + milliseconds * nanoseconds;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
}

PHASE(spins, spin_ms(5))
PHASE(sleeps, sleep_ms(20))
PHASE(waits_for_lock, (pthread_mutex_lock(&lock), pthread_mutex_unlock(&lock)))
PHASE(holds_lock, (pthread_mutex_lock(&lock), pthread_barrier_wait(&both), sleep_ms(30), pthread_mutex_unlock(&lock)))
char byte;
PHASE(waits_for_pipe, if (read(ends[0], &byte, 1) != 1) abort())
PHASE(fills_pipe, (pthread_barrier_wait(&both), sleep_ms(25), (void)!write(ends[1], "x", 1)))
PHASE(is_preempted, spin_ms(30))

__attribute__((no_instrument_function)) static void *other(void *unused)
{
    (void)unused;
    holds_lock();
    fills_pipe();
    return 0;
}

/* Another process on the CPU: threads of one's own would be traced, too. */
__attribute__((no_instrument_function)) static pid_t hog(void)
{
    pid_t child = fork();
    if (child == 0) {
        long long end = now(CLOCK_MONOTONIC_RAW) + 5000000000LL;
        while (now(CLOCK_MONOTONIC_RAW) < end) {
        }
        _exit(0);
    }
    return child;
}

__attribute__((no_instrument_function)) static void all(void)
{
    pthread_t thread;
    spins();
    sleeps();
    pthread_create(&thread, 0, other, 0);
    pthread_barrier_wait(&both);
    waits_for_lock();
    pthread_barrier_wait(&both);
    waits_for_pipe();
    pthread_join(thread, 0);
    cpu_set_t one, before;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_getaffinity(0, sizeof before, &before);
    sched_setaffinity(0, sizeof one, &one);
    pid_t child = hog();
    is_preempted();
    kill(child, 9);
    waitpid(child, 0, 0);
    sched_setaffinity(0, sizeof before, &before);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    if (argc > 1)
        nanoseconds /= 5;
    pthread_barrier_init(&both, 0, 2);
    if (pipe(ends))
        return 1;
    while (rounds-- > 0)
        all();
    return 0;
}
