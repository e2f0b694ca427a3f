// What a snapshot by a signal must not disturb.
//   signalled HOW CALLS
// Each line of standard input asks for something; it ends with the input. Lines that begin with "bad" say what was disturbed.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static long calls;
static sem_t ready;
static atomic_int own_handler, children_ended;

NOINLINE void leaf(void) { __asm__ volatile(""); }
NOINLINE void work(void) {
    for (long i = 0; i < calls; i++) leaf();
}

static void* busy(void* unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "busy");
    sem_post(&ready);
    for (;;) leaf();
    return 0;
}
NOINLINE void wait_for_ever(void) {
    for (;;) pause();
}
static void* blocked(void* unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "blocked");
    work();
    sem_post(&ready);
    wait_for_ever();
    return 0;
}
static void on_child(int number) {
    (void)number;
    children_ended++;
}
static void on_own(int number) {
    (void)number;
    own_handler++;
}

static int descriptors(void) {
    int count = 0;
    DIR* folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

int main(int count, char** arguments) {
    const char* how = arguments[1];
    calls = count > 2 ? atol(arguments[2]) : 100;
    sem_init(&ready, 0, 0);
    struct sigaction child = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &child, 0);
    // Adopts orphans, as the first process of a container does.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!strcmp(how, "own")) signal(SIGUSR2, on_own);
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    if (!strcmp(how, "threads")) {
        for (int i = 0; i < 20; i++) pthread_create(&thread, &small, blocked, 0);
        for (int i = 0; i < 2; i++) pthread_create(&thread, &small, busy, 0);
        for (int i = 0; i < 22; i++) sem_wait(&ready);
    }
    if (!strcmp(how, "large")) {
        // Much memory to copy, for whoever would copy it.
        size_t size = 256 << 20;
        char* memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(memory, 1, size);
    }
    work();
    int before = descriptors();
    puts("ready");
    fflush(stdout);
    if (!strcmp(how, "spin")) {
        // The longest times that anything takes from the thread, as many as there are signals.
        enum { SIGNALS = 20 };
        struct timespec now, last;
        double longest[SIGNALS] = {0};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &last);
        struct pollfd input = {0, POLLIN, 0};
        for (long i = 0;; i++) {
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
            double gap = (now.tv_sec - last.tv_sec) * 1e6 + (now.tv_nsec - last.tv_nsec) / 1e3;
            if (gap > longest[SIGNALS - 1]) {
                int place = SIGNALS - 1;
                for (; place && gap > longest[place - 1]; place--) longest[place] = longest[place - 1];
                longest[place] = gap;
            }
            if (i % 4096 == 0) {
                if (poll(&input, 1, 0) > 0) break;
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
            }
            last = now;
        }
        printf("%d signals: %.0f to %.0f us\n", SIGNALS, longest[SIGNALS - 1], longest[0]);
        return 0;
    }
    char line[16];
    ssize_t got;
    errno = 77;
    while ((got = read(0, line, sizeof line)) > 0) leaf();
    if (got < 0) printf("bad: read was interrupted: %d\n", errno);
    if (children_ended) printf("bad: %d SIGCHLD\n", children_ended);
    int status;
    pid_t pid = waitpid(-1, &status, __WALL | WNOHANG);
    if (pid != -1 || errno != ECHILD) printf("bad: child %d\n", pid);
    if (descriptors() != before) printf("bad: %d descriptors, not %d\n", descriptors(), before);
    if (own_handler) printf("own %d\n", own_handler);
    puts("done");
    return 0;
}
