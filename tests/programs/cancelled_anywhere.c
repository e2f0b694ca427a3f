// Threads that are cancelled asynchronously, at any instruction of traced functions and of their hooks. Cleanup handlers see the
// variables of the function that pushed them. Arguments: how many threads.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct work {
    long first, second, cleaned;
    volatile long began;
};
static volatile long sink;

__attribute__((noinline)) long leaf(long n) {
    sink = n;
    return n + 1;
}
__attribute__((noinline)) long saves(long n) {
    long a = leaf(n), b = leaf(a), c = leaf(b), d = leaf(c), e = leaf(d);
    return a + b + c + d + e + leaf(a + b + c + d + e);
}
__attribute__((noinline)) long early(long n) {
    if (n & 1) return n;
    return saves(n) + leaf(n);
}
__attribute__((noinline)) long jumps(long n) {
    long a = leaf(n), b = leaf(a);
    return early(a + b);
}
static void clean(void *data) {
    struct work *work = data;
    if (work->first == 0x1234 && work->second == 0x5678) work->cleaned++;
}
__attribute__((noinline)) static long cleaned(struct work *work, long n) {
    long result = 0;
    pthread_cleanup_push(clean, work);
    work->began = 1;
    for (;; n++) result += jumps(n) + early(n + 1);
    pthread_cleanup_pop(1);
    return result;
}
static void *run(void *data) {
    int old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    return (void *)cleaned(data, 1);
}

int main(int count, char **words) {
    long threads = count > 1 ? atol(words[1]) : 1000, wrong = 0;
    unsigned seed = 1;
    for (long i = 0; i < threads; i++) {
        struct work work = {0x1234, 0x5678, 0, 0};
        pthread_t thread;
        void *result = NULL;
        if (pthread_create(&thread, NULL, run, &work)) return 3;
        while (!work.began) sched_yield();
        seed = seed * 1103515245 + 12345;
        for (volatile unsigned spin = (seed >> 16) % 3000; spin; spin--) {}
        pthread_cancel(thread);
        pthread_join(thread, &result);
        wrong += result != PTHREAD_CANCELED || work.cleaned != 1;
    }
    printf("%ld threads, %ld wrong\n", threads, wrong);
    return wrong != 0;
}
