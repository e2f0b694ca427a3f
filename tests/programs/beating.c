// Calls beat() all the time, so that it notices what other processes ask of it; and for each byte
// of input work(), in two threads for long and in many for a short time. It counts both itself.
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static long beats, works;

__attribute__((noinline)) static void beat(void)
{
    beats++;
    __asm__ volatile("");
}

__attribute__((noinline)) static void work(void)
{
    __atomic_fetch_add(&works, 1, __ATOMIC_RELAXED);
}

static void *worker(void *times)
{
    for (intptr_t i = 0; i < (intptr_t)times; i++)
        work();
    return 0;
}

static void run(int threads, intptr_t times)
{
    pthread_t all[2];
    for (int i = 0; i < threads; i++)
        pthread_create(&all[i], 0, worker, (void *)times);
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], 0);
}

int main(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    run(1, 1000);
    puts("ready");
    fflush(stdout);
    for (;;) {
        beat();
        if (poll(&input, 1, 1) <= 0)
            continue;
        char byte;
        if (read(0, &byte, 1) <= 0)
            break;
        run(2, 50000);
        for (int i = 0; i < 20; i++)
            run(1, 100);
        puts("ready");
        fflush(stdout);
    }
    printf("beat %ld\nwork %ld\n", beats, works);
    return 0;
}
