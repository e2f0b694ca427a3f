/* Calls its functions at each line of its input, while threads call others all the time and check
   what they return. Ends with the number of calls of each. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static atomic_int over;
static atomic_long wrong;

APART long red(long n) { __asm__ volatile(""); return n + 1; }
APART long green(long n) { __asm__ volatile(""); return n + 2; }
APART long blue(long n) { __asm__ volatile(""); return red(n) + green(n); }
APART long work_one(long n) { __asm__ volatile(""); return n * 3; }
APART long work_two(long n) { __asm__ volatile(""); return work_one(n) + 1; }

static void *work(void *unused) {
    for (long n = 0; !atomic_load_explicit(&over, memory_order_relaxed); n++) {
        if (work_two(n) != n * 3 + 1)
            atomic_fetch_add(&wrong, 1);
        // Some of the time: the rest is for those who switch.
        if (n % 10000 == 0)
            usleep(500);
    }
    return unused;
}

APART long step(long n) {
    __asm__ volatile("");
    return red(n) + green(n) + blue(n);
}

int main(int count, char **arguments) {
    int threads = count > 1 ? atoi(arguments[1]) : 0;
    pthread_t thread[16];
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, work, NULL);
    char line[64];
    long steps = 0;
    do {
        for (int i = 0; i < 10; i++, steps++)
            if (step(steps) != steps * 4 + 6)
                atomic_fetch_add(&wrong, 1);
        puts("ready");
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin));
    atomic_store(&over, 1);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    printf("%ld steps, %ld wrong\n", steps, atomic_load(&wrong));
    return 0;
}
