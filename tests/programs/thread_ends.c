// Threads that end deep in a recursion, by pthread_exit and by cancellation, and clean up on the way out: C's cleanup
// handlers, which the C library gets to by a jump of its own.
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>
#include "../trees/tree.h"

static sem_t ready;
static volatile int sum;

F void leaf(void) { HERE; }
// Its frame is larger than those that are gone, so hooks in it lie deeper in the stack.
F void cleanup(void* argument) {
    volatile char room[4096];
    room[0] = 1;
    sum += *(int*)argument * room[0];
    leaf();
    HERE;
}
F void exits(void) { pthread_exit(0); }
F void waits(void) {
    sem_post(&ready);
    for (;;) pause();
}
F void deep(int left, void (*last)(void)) {
    if (left) deep(left - 1, last);
    else last();
    HERE;
}
// Registers that the handler needs again, from before the call.
F void inner(int depth, void (*last)(void)) {
    int value = depth + 1, other = depth * 3;
    pthread_cleanup_push(cleanup, &value);
    leaf();
    deep(depth, last);
    pthread_cleanup_pop(1);
    sum += other;
    HERE;
}
F void outer(int depth, void (*last)(void)) {
    int value = depth + 100;
    pthread_cleanup_push(cleanup, &value);
    // This one is popped, and runs.
    pthread_cleanup_push(cleanup, &value);
    leaf();
    pthread_cleanup_pop(1);
    inner(depth, last);
    pthread_cleanup_pop(0);
    HERE;
}
static void* run_exits(void* argument) {
    outer(*(int*)argument, exits);
    HERE;
    return argument;
}
static void* run_waits(void* argument) {
    outer(*(int*)argument, waits);
    HERE;
    return argument;
}
int main(void) {
    int depth = 3;
    sem_init(&ready, 0, 0);
    pthread_t thread;
    pthread_create(&thread, 0, run_exits, &depth);
    pthread_join(thread, 0);
    pthread_create(&thread, 0, run_waits, &depth);
    sem_wait(&ready);
    pthread_cancel(thread);
    pthread_join(thread, 0);
    return sum == 2 * (103 + 4 + 103) ? 0 : 1;
}
