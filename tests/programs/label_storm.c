/* Threads that write labels as fast as they can, among calls, while signal handlers write others between any two of their instructions. */
#include <everycall.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#define COUNT 20000
#define NOINLINE __attribute__((noinline))

static const char *const names[] = {"a", "four", "seven c", "a name of twenty-five chars"};
static volatile int sink;
static uint64_t failures;
static volatile uint64_t handled;

NOINLINE void leaf(int n)
{
    sink = sink + n;
}

EVERYCALL_EXCLUDE static void handler(int signal)
{
    /* Only one thread handles signals. */
    failures += everycall_label("handled", handled) != 0;
    handled = handled + 1;
    leaf(signal);
}

NOINLINE EVERYCALL_FORCE static void *writes(void *name)
{
    uint64_t i;
    for (i = 0; i < COUNT; i++) {
        if (everycall_label((const char *)name, i) != 0)
            __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
        if (i % 3 == 0)
            leaf((int)i);
    }
    return 0;
}

int main(void)
{
    struct sigaction action;
    struct itimerval often = {{0, 30}, {0, 30}}, never = {{0, 0}, {0, 0}};
    pthread_t threads[3];
    sigset_t signals;
    int i;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigaction(SIGALRM, &action, 0);
    sigemptyset(&signals);
    sigaddset(&signals, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &signals, 0);
    for (i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, writes, (void *)names[i]);
    pthread_sigmask(SIG_UNBLOCK, &signals, 0);
    setitimer(ITIMER_REAL, &often, 0);
    writes((void *)names[3]);
    for (i = 0; i < 200000 && handled < 150; i++)
        everycall_label("more", 0);
    setitimer(ITIMER_REAL, &never, 0);
    pthread_sigmask(SIG_BLOCK, &signals, 0);
    for (i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    everycall_label("all handled", handled);
    return failures != 0;
}
