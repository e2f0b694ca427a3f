/* Each thread calls a function once, and then another one so often that the first one's events are overwritten in a
 * small ring. */
#include <pthread.h>

__attribute__((noinline)) void early(void)
{
    __asm__ volatile("");
}

__attribute__((noinline)) void leaf(void)
{
    __asm__ volatile("");
}

static void *work(void *unused)
{
    early();
    for (int i = 0; i < 100000; i++) {
        leaf();
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    work(0);
    return pthread_join(thread, 0);
}
