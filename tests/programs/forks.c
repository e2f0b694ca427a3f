// forks COUNT: forks COUNT children, eight at a time, while two threads work; each child makes 20 calls of its own. "ready" at the beginning, and for the
// first line of its input once more, when all have ended. The exit status is 0 where each child did what it should.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
enum { TOGETHER = 8 };

static volatile int stop, sink;

NOINLINE int child_leaf(int n) { return sink = n; }
NOINLINE int child_work(void) {
    int sum = 0;
    for (int i = 0; i < 19; i++) sum += child_leaf(i);
    return sum;
}

NOINLINE void parent_leaf(void) { __asm__ volatile(""); }
NOINLINE void parent_work(void) {
    for (int i = 0; i < 10; i++) parent_leaf();
}
NOINLINE void busy_leaf(void) { __asm__ volatile(""); }
NOINLINE void *busy(void *unused) {
    while (!stop) {
        for (int i = 0; i < 100; i++) busy_leaf();
        usleep(100);
    }
    return unused;
}

NOINLINE int family(int count) {
    pid_t running[TOGETHER] = {0};
    int wrong = 0;
    for (int i = 0; i < count + TOGETHER; i++) {
        pid_t *place = &running[i % TOGETHER];
        int status;
        if (*place) wrong += waitpid(*place, &status, 0) != *place || !WIFEXITED(status) || WEXITSTATUS(status) != 171;
        *place = 0;
        if (i >= count) continue;
        parent_work();
        *place = fork();
        if (*place == 0) {
            int sum = child_work();
            // So long that it can be asked for a snapshot.
            usleep(60000);
            _exit(sum);
        }
        if (*place < 0) abort();
    }
    return wrong;
}

int main(int argc, char **arguments) {
    int count = argc > 1 ? atoi(arguments[1]) : 1;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], 0, busy, 0)) abort();
    usleep(1000);
    puts("ready");
    fflush(stdout);
    char byte;
    if (read(0, &byte, 1) != 1) return 2;
    int wrong = family(count);
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) == 1) {}
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return wrong != 0;
}
