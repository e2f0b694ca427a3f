// Two threads in tight traced loops, each with a 10 kHz timer whose handler makes traced calls.
// Prints what was called how often.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
#define NOINLINE __attribute__((noinline))

static __thread volatile long handled;
static long target;

NOINLINE void handler_leaf(void) { __asm__ volatile(""); }
NOINLINE void handler(int signal) {
    (void)signal;
    handler_leaf();
    handler_leaf();
    handled++;
}
NOINLINE void loop_leaf(void) { __asm__ volatile(""); }
NOINLINE void loop_body(void) {
    loop_leaf();
    __asm__ volatile("");
}

static void* work(void* result) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer)) abort();
    struct itimerspec every = {{0, 100000}, {0, 100000}};
    long loops = 0;
    timer_settime(timer, 0, &every, 0);
    while (handled < target) {
        loop_body();
        loops++;
    }
    timer_delete(timer);
    ((long*)result)[0] = handled;
    ((long*)result)[1] = loops;
    return 0;
}

int main(int count, char** arguments) {
    target = count > 1 ? atol(arguments[1]) : 1000;
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGRTMIN, &action, 0);
    pthread_t threads[2];
    long results[2][2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, results[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    printf("handler %ld\n", results[0][0] + results[1][0]);
    printf("loop_body %ld\n", results[0][1] + results[1][1]);
    return 0;
}
