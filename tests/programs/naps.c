/* Two threads sleep 5 ms and compute 1 ms, in turn, until they are killed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) void naps(void)
{
    usleep(5000);
}

__attribute__((noinline)) void spins(void)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000000LL + now.tv_nsec - begin.tv_nsec < 1000000);
}

static void *works(void *unused)
{
    for (;;) {
        naps();
        spins();
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, works, NULL);
    puts("ready");
    fflush(stdout);
    works(NULL);
    return 0;
}
