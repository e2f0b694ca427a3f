/* Calls that wait, each for something known. Prints who held the lock each time, and every result:
   they are the same without `record --waits`.
     waits COUNT [cancel] */
#define _GNU_SOURCE
#include <errno.h>
#include <everycall.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int word, rounds, is_taken, may_end;
static volatile int turn = -1, is_ready;
static volatile long sum;

/* Lets the other thread try, until it waits for the mutex: glibc's lock is 2 then. */
static void until_contended(void)
{
    __atomic_store_n(&is_ready, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&queue_mutex.__data.__lock, __ATOMIC_RELAXED) != 2)
        sum++;
}

NOINLINE static void holds_a(void) { until_contended(); }
NOINLINE static void holds_b(void) { until_contended(); sum++; }
NOINLINE static void holds_c(void) { until_contended(); sum--; }

static void *holder(void *argument)
{
    static void (*const holds[3])(void) = {holds_a, holds_b, holds_c};
    const int number = *(int *)argument;
    for (int round = number; round < rounds; round += 3) {
        while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != round)
            sched_yield();
        pthread_mutex_lock(&queue_mutex);
        printf("held by %ld in holds_%c\n", syscall(SYS_gettid), "abc"[number]);
        holds[number]();
        pthread_mutex_unlock(&queue_mutex);
    }
    return 0;
}

NOINLINE static void waits_for_holders(void)
{
    pthread_t threads[3];
    int numbers[3] = {0, 1, 2};
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, holder, &numbers[i]);
    for (int round = 0; round < rounds; round++) {
        __atomic_store_n(&turn, round, __ATOMIC_RELEASE);
        while (!__atomic_load_n(&is_ready, __ATOMIC_ACQUIRE))
            sched_yield();
        is_ready = 0;
        pthread_mutex_lock(&queue_mutex);
        pthread_mutex_unlock(&queue_mutex);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
}

static void say(const char *what, long result)
{
    printf("%s %ld, errno %d\n", what, result, errno);
    errno = 0;
}

static void pause_a_little(void)
{
    const struct timespec time = {0, 3000000};
    nanosleep(&time, 0);
}

static long main_thread;
static int step;

/* Until the main thread sleeps in a step. */
static void until_it_waits(int number)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", main_thread);
    while (__atomic_load_n(&step, __ATOMIC_SEQ_CST) != number)
        sched_yield();
    do {
        int file = open(path, O_RDONLY);
        ssize_t length = syscall(SYS_read, file, text, sizeof text - 1);
        close(file);
        text[length > 0 ? length : 0] = 0;
    } while (!strstr(text, ") S "));
}

static void *wakes(void *pipe_end)
{
    until_it_waits(1);
    pthread_mutex_lock(&queue_mutex);
    is_ready = 1;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&queue_mutex);
    until_it_waits(2);
    sem_post(&semaphore);
    until_it_waits(3);
    __atomic_store_n(&may_end, 1, __ATOMIC_SEQ_CST);
    until_it_waits(4);
    if (write(*(int *)pipe_end, "xyz", 3) != 3)
        abort();
    until_it_waits(5);
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    return 0;
}

static void begins(int number) { __atomic_store_n(&step, number, __ATOMIC_SEQ_CST); }

static void *takes_table(void *unused)
{
    (void)unused;
    pthread_rwlock_wrlock(&table_lock);
    __atomic_store_n(&is_taken, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&may_end, __ATOMIC_SEQ_CST))
        pause_a_little();
    pthread_rwlock_unlock(&table_lock);
    return 0;
}

NOINLINE static void waits_for_everything(void)
{
    pthread_t thread, writer;
    int ends[2], old = errno;
    char text[8];
    errno = 0;
    everycall_name_object(&semaphore, "the queue's room");
    say("sem_init", sem_init(&semaphore, 0, 0));
    say("pipe", pipe(ends));
    pthread_create(&writer, 0, takes_table, 0);
    while (!__atomic_load_n(&is_taken, __ATOMIC_SEQ_CST))
        sched_yield();
    main_thread = syscall(SYS_gettid);
    pthread_create(&thread, 0, wakes, &ends[1]);
    pthread_mutex_lock(&queue_mutex);
    begins(1);
    while (!is_ready)
        say("pthread_cond_wait", pthread_cond_wait(&condition, &queue_mutex));
    pthread_mutex_unlock(&queue_mutex);
    begins(2);
    say("sem_wait", sem_wait(&semaphore));
    begins(3);
    say("pthread_rwlock_rdlock", pthread_rwlock_rdlock(&table_lock));
    say("pthread_rwlock_unlock", pthread_rwlock_unlock(&table_lock));
    struct pollfd polled = {ends[0], POLLIN, 0};
    begins(4);
    say("poll", poll(&polled, 1, -1));
    say("read", read(ends[0], text, sizeof text));
    begins(5);
    while (!__atomic_load_n(&word, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
    errno = 0;
    say("pthread_join", pthread_join(thread, 0));
    say("pthread_join", pthread_join(writer, 0));
    errno = old;
}

/* What a first attempt must not change. */
NOINLINE static void locks_of_every_kind(void)
{
    static const int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    const struct timespec past = {1, 0};
    for (int i = 0; i < 4; i++) {
        pthread_mutex_t mutex;
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_settype(&attributes, kinds[i]);
        pthread_mutex_init(&mutex, &attributes);
        say("lock", pthread_mutex_lock(&mutex));
        if (kinds[i] == PTHREAD_MUTEX_RECURSIVE || kinds[i] == PTHREAD_MUTEX_ERRORCHECK)
            say("lock again", pthread_mutex_lock(&mutex));
        else
            say("timedlock", pthread_mutex_timedlock(&mutex, &past));
        say("unlock", pthread_mutex_unlock(&mutex));
    }
    say("sem_timedwait", sem_timedwait(&semaphore, &past));
    say("read", read(-1, 0, 1));
    say("connect", connect(-1, 0, 0));
    say("waitpid", waitpid(-1, 0, 0));
    say("epoll_wait", epoll_wait(-1, 0, 1, 0));
    say("syscall", syscall(SYS_close, -1));
    say("futex", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0));
    say("nanosleep", nanosleep(&(struct timespec){0, -1}, 0));
    say("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, -1}, 0));
}

NOINLINE static void connects(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    char text[8];
    say("bind", bind(listener, (struct sockaddr *)&address, length));
    say("listen", listen(listener, 1));
    getsockname(listener, (struct sockaddr *)&address, &length);
    pid_t child = fork();
    if (child == 0) {
        int accepted = accept(listener, 0, 0);
        pause_a_little();
        _exit(send(accepted, "reply", 5, 0) == 5 ? 0 : 1);
    }
    say("connect", connect(client, (struct sockaddr *)&address, length));
    say("recv", recv(client, text, sizeof text, 0));
    int status = -1;
    waitpid(child, &status, 0);
    say("child", status);
}

static void cleans(void *count) { ++*(int *)count; }

static void *cancelled(void *count)
{
    pthread_mutex_lock(&queue_mutex);
    pthread_cleanup_push(cleans, count);
    for (;;)
        pthread_cond_wait(&condition, &queue_mutex);
    pthread_cleanup_pop(1);
    return 0;
}

NOINLINE static void cancels(void)
{
    static int cleaned;
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *result = 0;
        pthread_create(&thread, 0, cancelled, &cleaned);
        pause_a_little();
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED)
            abort();
        pthread_mutex_unlock(&queue_mutex);
    }
    say("cleaned", cleaned);
}

int main(int count, char **arguments)
{
    rounds = count > 1 ? atoi(arguments[1]) : 0;
    errno = 0;
    waits_for_holders();
    is_ready = 0;
    waits_for_everything();
    locks_of_every_kind();
    connects();
    cancels();
    fflush(stdout);
    return 0;
}
