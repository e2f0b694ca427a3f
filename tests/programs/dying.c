// Makes calls and ends in the way that is asked for.
//   dying HOW CALLS [THREADS]
// THREADS more threads make CALLS calls each, and wait. Then the main thread makes CALLS calls, prints "ready" and ends.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static long calls;
static sem_t ready;

NOINLINE void leaf(void) { __asm__ volatile(""); }
NOINLINE void work(void) {
    for (long i = 0; i < calls; i++) leaf();
}
NOINLINE void child_leaf(void) { __asm__ volatile(""); }
NOINLINE void child_work(void) {
    for (long i = 0; i < calls; i++) child_leaf();
}
NOINLINE int endless(volatile char* above) {
    volatile char here[512];
    here[0] = *above;
    return endless(here) + here[0];
}
NOINLINE void die(const char* how) {
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "segv")) *(volatile int*)8 = 1;
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "_exit")) _exit(0);
    if (!strcmp(how, "quick_exit")) quick_exit(0);
    if (!strcmp(how, "exit")) exit(0);
    if (!strcmp(how, "overflow")) endless((char*)&how);
    if (!strcmp(how, "wait"))
        while (getchar() != EOF) {}
}

static void* thread(void* number) {
    char name[16];
    snprintf(name, sizeof name, "thread-%ld", (long)number);
    pthread_setname_np(pthread_self(), name);
    work();
    sem_post(&ready);
    for (;;) pause();
    return 0;
}

int main(int count, char** arguments) {
    const char* how = arguments[1];
    calls = atol(arguments[2]);
    long threads = count > 3 ? atol(arguments[3]) : 0;
    sem_init(&ready, 0, 0);
    for (long i = 0; i < threads; i++) {
        pthread_t id;
        if (pthread_create(&id, 0, thread, (void*)i)) abort();
    }
    for (long i = 0; i < threads; i++) sem_wait(&ready);
    work();
    if (!strncmp(how, "child-", 6)) {
        // The child dies, the parent ends well; or a grandchild does after its parent.
        pid_t child = fork();
        if (child == 0) {
            child_work();
            die(how + 6);
            exit(0);
        }
        waitpid(child, 0, 0);
        work();
        printf("%d\n", child);
        return 0;
    }
    if (!strcmp(how, "quiet-child")) {
        // A child that makes no traced call.
        pid_t child = fork();
        if (child == 0) exit(0);
        waitpid(child, 0, 0);
        return 0;
    }
    if (!strcmp(how, "spawn")) return system("true");
    puts("ready");
    fflush(stdout);
    die(how);
    return 0;
}
