// Starts many threads, which end at once.
#include <pthread.h>
#include <stdlib.h>

#define APART __attribute__((noinline, noclone))

APART int leaf(int n) {
    __asm__ volatile("");
    return n + 1;
}

APART int middle(int n) { return leaf(n) + 1; }

static void *run(void *unused) {
    middle(1);
    return unused;
}

int main(int count, char **arguments) {
    for (int n = count > 1 ? atoi(arguments[1]) : 1; n > 0; n -= 4) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, run, NULL);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    return 0;
}
