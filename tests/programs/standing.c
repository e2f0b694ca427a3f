// Stands still or works until its standard input ends, for those who look at it from outside.
//   standing BLOCKED BUSY BRIEF CALLS
// BLOCKED threads make CALLS calls each and wait; BUSY threads work on, each with functions of its own;
// BRIEF threads live at a time, one after the other ends and another begins. "ready" is printed when all of that is so.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define OWN(n)                                              \
    NOINLINE void leaf##n(void) { __asm__ volatile(""); }   \
    NOINLINE void work##n(void) {                           \
        leaf##n();                                          \
        leaf##n();                                          \
        __asm__ volatile("");                               \
    }
OWN(0) OWN(1) OWN(2) OWN(3) OWN(4) OWN(5) OWN(6) OWN(7)
static void (*const work[8])(void) = {work0, work1, work2, work3, work4, work5, work6, work7};

static sem_t ready;
static long calls;

NOINLINE void wait_for_ever(void) {
    // Within the call, so that whoever looks then finds it open.
    sem_post(&ready);
    for (;;) pause();
}
NOINLINE void waiting_leaf(void) { __asm__ volatile(""); }

static void* blocked(void* unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "blocked");
    for (long i = 0; i < calls; i++) waiting_leaf();
    wait_for_ever();
    return 0;
}

static void* busy(void* number) {
    char name[16];
    snprintf(name, sizeof name, "busy-%ld", (long)number);
    pthread_setname_np(pthread_self(), name);
    // Names that are set after a thread's first call are seen a few calls later.
    for (int i = 0; i < 100; i++) work[(long)number % 8]();
    sem_post(&ready);
    for (;;) work[(long)number % 8]();
    return 0;
}

NOINLINE void brief_leaf(void) { __asm__ volatile(""); }
NOINLINE void brief_work(void) {
    for (int i = 0; i < 20; i++) brief_leaf();
}
static void* brief(void* unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "brief");
    brief_work();
    return 0;
}
static void* briefs(void* unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "briefs");
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, 0, brief, 0)) abort();
        pthread_join(thread, 0);
    }
    return 0;
}

int main(int count, char** arguments) {
    long numbers[4] = {1, 0, 0, 100};
    for (int i = 1; i < count && i <= 4; i++) numbers[i - 1] = atol(arguments[i]);
    calls = numbers[3];
    sem_init(&ready, 0, 0);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_t thread;
    for (long i = 0; i < numbers[0]; i++)
        if (pthread_create(&thread, &small, blocked, 0)) abort();
    for (long i = 0; i < numbers[1]; i++)
        if (pthread_create(&thread, &small, busy, (void*)i)) abort();
    for (long i = 0; i < numbers[2]; i++)
        if (pthread_create(&thread, &small, briefs, 0)) abort();
    for (long i = 0; i < numbers[0] + numbers[1]; i++) sem_wait(&ready);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {}
    _exit(0);
}
