/* Slow calls whose recorder gets no CPU for long. `kept_late MILLISECONDS`: the recorder is stopped for so long.
   One thread ends right after its slow call, and others begin and end behind it; another one goes on, and writes more than its ring holds. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static volatile int sink;

__attribute__((noinline)) void leaf(void) { sink++; }
__attribute__((noinline)) void ending(void) { leaf(); usleep(20000); leaf(); pthread_exit(0); }
__attribute__((noinline)) void staying(void) { leaf(); usleep(20000); leaf(); }

static void *end(void *none) { ending(); return none; }
static void *brief(void *none) { leaf(); return none; }
static void *stay(void *none)
{
    staying();
    /* Past the time for which everybody keeps what they have. */
    usleep(250000);
    for (int i = 0; i < 100000; i++) leaf();
    return none;
}

int main(int count, char **arguments)
{
    if (count < 2) return 2;
    pid_t recorder = getppid();
    /* It has named the functions by now. */
    leaf();
    kill(recorder, SIGSTOP);
    usleep(20000);
    if (fork() == 0) {
        usleep(atoi(arguments[1]) * 1000);
        kill(recorder, SIGCONT);
        _exit(0);
    }
    pthread_t thread, other;
    pthread_create(&other, 0, stay, 0);
    pthread_create(&thread, 0, end, 0);
    pthread_join(thread, 0);
    for (int i = 0; i < 50; i++) {
        pthread_create(&thread, 0, brief, 0);
        pthread_join(thread, 0);
        usleep(5000);
    }
    pthread_join(other, 0);
    /* Until the recorder has come. */
    usleep(atoi(arguments[1]) * 1000);
    return 0;
}
