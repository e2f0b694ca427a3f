// A thread is cancelled in whose frames nothing cleans up, so nobody tells that they are left: destructors of its thread-local objects may not be called from
// where they stand, which says so.
//
// flags: -pthread
//| main
//|   cancels
//| --
//| waits~
//|   called
//|     leaf
//|   sleeps~
//|     released
//|       leaf
//
// With an argument, the thread is asked to end before its first traced call.
#include "tree.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static pthread_key_t key;
static sem_t ready, asked;

F void leaf(void) { HERE; }
F void called(void) {
    leaf();
    HERE;
}
F void released(void* unused) {
    (void)unused;
    leaf();
    HERE;
}
F void sleeps(void) {
    for (;;) pause();
}
UNTRACED static void wait_to_be_asked(void) {
    sem_post(&ready);
    sem_wait(&asked);
}
F void* waits(void* is_early) {
    pthread_setspecific(key, &key);
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    if (!is_early) wait_to_be_asked();
    called();
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    sleeps();
    HERE;
    return 0;
}
UNTRACED static void* waits_early(void* is_early) {
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    wait_to_be_asked();
    waits(is_early);
    HERE;
    return 0;
}
F void cancels(int is_early) {
    pthread_t thread;
    pthread_create(&thread, 0, is_early ? waits_early : waits, is_early ? &key : 0);
    sem_wait(&ready);
    pthread_cancel(thread);
    sem_post(&asked);
    pthread_join(thread, 0);
    HERE;
}
int main(int count, char** arguments) {
    (void)arguments;
    pthread_key_create(&key, released);
    cancels(count > 1);
    return 0;
}
