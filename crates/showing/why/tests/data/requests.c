/* Requests: the 30th waits for a lock whose holder sleeps, the 17th and the 25th sort a longer list
   in quadratic time. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int is_held;
static volatile long sum;

NOINLINE static void compare(int a, int b)
{
    for (int digit = 0; digit < 100; digit++)
        sum += a ^ b ^ digit;
}

NOINLINE static void refill(void)
{
    const struct timespec while_it_sleeps = {0, 20000000};
    nanosleep(&while_it_sleeps, 0);
}

static void *refiller(void *unused)
{
    pthread_mutex_lock(&cache_lock);
    is_held = 1;
    refill();
    pthread_mutex_unlock(&cache_lock);
    return unused;
}

NOINLINE static void look_up(int id)
{
    pthread_mutex_lock(&cache_lock);
    sum += id;
    pthread_mutex_unlock(&cache_lock);
}

NOINLINE static void sort_items(int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            compare(i, j);
}

NOINLINE static void handle(int id, int items)
{
    look_up(id);
    sort_items(items);
}

int main(void)
{
    pthread_t thread;
    for (int id = 1; id <= 40; id++) {
        if (id == 30) {
            pthread_create(&thread, 0, refiller, 0);
            while (!is_held)
                usleep(100);
        }
        handle(id, id == 17 || id == 25 ? 60 : 8);
    }
    pthread_join(thread, 0);
    return sum == 42;
}
