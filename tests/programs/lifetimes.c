// Code at the edges of a process's and a thread's life. Each part prints what it did, so that the output can be
// compared with that of the program without hooks; traced functions have names that tests look for.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

NOINLINE int leaf(int value) {
    __asm__ volatile("" : "+r"(value));
    return value + 1;
}

// Before main.
static int before;
#if !defined(NO_IFUNC)
NOINLINE int resolved(int value) { return leaf(value); }
NOINLINE int (*resolve_it(void))(int) {
    before += 1;
    return resolved;
}
int by_ifunc(int value) __attribute__((ifunc("resolve_it")));
#else
NOINLINE int by_ifunc(int value) { return leaf(value); }
#endif
__attribute__((constructor(101))) void early_constructor(void) { before += leaf(10); }
__attribute__((constructor)) void constructor(void) { before += leaf(100); }
#if !defined(NO_PREINIT)
NOINLINE void preinit(void) { before += leaf(1000); }
__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(void) = preinit;
#endif

// After main.
NOINLINE void at_exit(void) { leaf(1); }
__attribute__((destructor)) void destructor(void) { leaf(2); }

// Ends of threads.
static pthread_key_t key;
NOINLINE void key_destructor(void* value) {
    (void)value;
    leaf(3);
}
NOINLINE void deep_exit(int depth) {
    if (depth) {
        deep_exit(depth - 1);
        leaf(4);
    } else {
        pthread_exit((void*)7);
    }
}
NOINLINE void* exiting_thread(void* name) {
    pthread_setname_np(pthread_self(), name);
    pthread_setspecific(key, name);
    for (int i = 0; i < 80; i++) leaf(9);
    deep_exit(5);
    return 0;
}
static volatile int rounds;
NOINLINE void* cancelled_thread(void* name) {
    prctl(PR_SET_NAME, name);
    for (;;) {
        leaf(5);
        rounds++;
        usleep(100);
    }
    return 0;
}
NOINLINE void* busy_cancelled_thread(void* barrier) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    pthread_barrier_wait(barrier);
    for (;;) leaf(6);
    return 0;
}
NOINLINE void* short_thread(void* value) { return (void*)(long)leaf((int)(long)value); }
NOINLINE int c11_thread(void* value) { return leaf(*(int*)value); }


int main(int count, char** arguments) {
    const char* what = count > 1 ? arguments[1] : "life";
    setvbuf(stdout, 0, _IOLBF, 0);
    atexit(at_exit);
    printf("before %d, ifunc %d\n", before, by_ifunc(20));
    if (!strcmp(what, "life")) {
        pthread_key_create(&key, key_destructor);
        pthread_t thread;
        void* result;
        pthread_create(&thread, 0, exiting_thread, "exiting");
        pthread_join(thread, &result);
        printf("pthread_exit %ld\n", (long)result);
        pthread_create(&thread, 0, cancelled_thread, "cancelled");
        while (rounds < 80) usleep(1000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("cancelled %d\n", result == PTHREAD_CANCELED);
        for (int i = 0; i < 20; i++) {
            pthread_barrier_t barrier;
            pthread_barrier_init(&barrier, 0, 2);
            pthread_create(&thread, 0, busy_cancelled_thread, &barrier);
            pthread_barrier_wait(&barrier);
            usleep(100 * i);
            pthread_cancel(thread);
            pthread_join(thread, &result);
            if (result != PTHREAD_CANCELED) printf("not cancelled\n");
        }
        thrd_t c11;
        int argument = 41, c11_result;
        thrd_create(&c11, c11_thread, &argument);
        thrd_join(c11, &c11_result);
        printf("c11 %d\n", c11_result);
    } else if (!strcmp(what, "storm")) {
        long sum = 0;
        int total = atoi(arguments[2]);
        for (int i = 0; i < total; i += 8) {
            pthread_t threads[8];
            for (int k = 0; k < 8; k++) pthread_create(&threads[k], 0, short_thread, (void*)(long)(i + k));
            for (int k = 0; k < 8; k++) {
                void* result;
                pthread_join(threads[k], &result);
                sum += (long)result;
            }
        }
        printf("sum %ld\n", sum);
    } else if (!strcmp(what, "end")) {
        leaf(30);
        if (!strcmp(arguments[2], "_exit")) _exit(leaf(40));
        if (!strcmp(arguments[2], "abort")) abort();
        if (!strcmp(arguments[2], "segv")) *(volatile int*)8 = leaf(50);
        if (!strcmp(arguments[2], "kill")) kill(getpid(), leaf(SIGKILL - 1));
        if (!strcmp(arguments[2], "main_thread_exits")) pthread_exit(0);
        if (!strcmp(arguments[2], "descriptors")) {
            for (int fd = 3; fd < 1000; fd++) close(fd);
            leaf(60);
        }
    }
    return 0;
}
