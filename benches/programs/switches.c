// switches COUNT: two threads pass a byte to and fro, so that one of them waits whenever the other
// runs: 2 * COUNT times a thread is put on a CPU. switches 0 SECONDS: computes for about so long,
// and never waits.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static int to[2], fro[2];
static long count;

static void pass(int from, int into) {
    char byte;
    for (long i = 0; i < count; i++)
        if (read(from, &byte, 1) != 1 || write(into, &byte, 1) != 1) abort();
}

static void *other(void *unused) {
    pass(to[0], fro[1]);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    count = argc > 1 ? atol(argv[1]) : 0;
    if (count == 0) {
        long steps = argc > 2 ? atol(argv[2]) * 500000000 : 0;
        volatile unsigned long sum = 0;
        for (long i = 0; i < steps; i++) sum += i;
        return 0;
    }
    if (pipe(to) || pipe(fro)) return 1;
    if (pthread_create(&thread, 0, other, 0)) return 1;
    char byte = 'x';
    if (write(to[1], &byte, 1) != 1) return 1;
    for (long i = 0; i < count; i++) {
        if (read(fro[0], &byte, 1) != 1) return 1;
        if (i + 1 < count && write(to[1], &byte, 1) != 1) return 1;
    }
    pthread_join(thread, 0);
    return 0;
}
