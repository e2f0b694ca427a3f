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
F void* waits(void* unused) {
    pthread_setspecific(key, &key);
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    sem_post(&ready);
    sem_wait(&asked);
    called();
    pthread_setcancelstate(old, &old);
    sleeps();
    HERE;
    return unused;
}
F void cancels(void) {
    pthread_t thread;
    pthread_create(&thread, 0, waits, 0);
    sem_wait(&ready);
    pthread_cancel(thread);
    sem_post(&asked);
    pthread_join(thread, 0);
    HERE;
}
int main(void) {
    pthread_key_create(&key, released);
    cancels();
    return 0;
}
