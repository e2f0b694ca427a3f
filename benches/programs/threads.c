// What threads cost. Never instrumented itself; calls.c brings the loops.
//
//   threads create PAIRS        lines of: ns of creating and joining a thread, without and with a traced call in it;
//                               the same in CPU time
//   threads memory plain|traced KiB of resident memory for each of 1,000 threads that made a few calls and live
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 100, LIVE = 1000, CALLS = 3, STACK = 64 << 10 };

void plain_empty(void), traced_empty(void), plain_loop(long n), traced_loop(long n);

static void (*call)(void);
static void (*calls)(long);
static pthread_barrier_t done, looked;

static void *call_once(void *unused) {
    call();
    return unused;
}

static void *stay(void *unused) {
    calls(CALLS);
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&looked);
    return unused;
}

struct cost {
    double wall_ns, cpu_ns;
};

static double clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static struct cost batch(void (*function)(void)) {
    call = function;
    struct cost begin = {clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_PROCESS_CPUTIME_ID)};
    for (int i = 0; i < BATCH; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, call_once, 0)) abort();
        pthread_join(thread, 0);
    }
    struct cost end = {clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_PROCESS_CPUTIME_ID)};
    return (struct cost){(end.wall_ns - begin.wall_ns) / BATCH, (end.cpu_ns - begin.cpu_ns) / BATCH};
}

static long resident_kib(void) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "Rss: %ld", &kib) != 1) {}
    if (file) fclose(file);
    return kib;
}

static void memory(void) {
    pthread_t threads[LIVE];
    pthread_attr_t attributes;
    pthread_barrier_init(&done, 0, LIVE + 1);
    pthread_barrier_init(&looked, 0, LIVE + 1);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    calls(CALLS);
    long before = resident_kib();
    for (int i = 0; i < LIVE; i++)
        if (pthread_create(&threads[i], &attributes, stay, 0)) abort();
    pthread_barrier_wait(&done);
    printf("%.3f\n", (double)(resident_kib() - before) / LIVE);
    pthread_barrier_wait(&looked);
    for (int i = 0; i < LIVE; i++) pthread_join(threads[i], 0);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    if (!strcmp(argv[1], "memory")) {
        calls = strcmp(argv[2], "traced") ? plain_loop : traced_loop;
        memory();
        return 0;
    }
    for (int i = 0; i < atoi(argv[2]); i++) {
        struct cost plain, traced;
        if (i % 2) {
            traced = batch(traced_empty);
            plain = batch(plain_empty);
        } else {
            plain = batch(plain_empty);
            traced = batch(traced_empty);
        }
        printf("%.1f %.1f %.1f %.1f\n", plain.wall_ns, traced.wall_ns, plain.cpu_ns, traced.cpu_ns);
    }
    return 0;
}
