/* Processes that make processes, in every way. What it prints doesn't depend on process ids. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

extern char** environ;
static volatile int sink;

NOINLINE int leaf(int value) { return sink = value + 1; }
NOINLINE int child_work(int times) {
    int sum = 0;
    for (int i = 0; i < times; i++) sum += leaf(i);
    return sum & 63;
}
NOINLINE int parent_work(int times) {
    int sum = 0;
    for (int i = 0; i < times; i++) sum += leaf(i);
    return sum & 63;
}
NOINLINE void* thread_work(void* unused) {
    leaf(1);
    return unused;
}
NOINLINE void* busy_thread(void* stop) {
    while (!*(volatile int*)stop) {
        leaf(2);
        usleep(20);
    }
    return 0;
}

static int end_of(pid_t child) {
    int status = 0;
    if (child < 0) return -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A child that opens calls on the way down and returns through its parent's. */
NOINLINE int nested(int levels) {
    if (levels) {
        sink = nested(levels - 1);
        return sink + 1;
    }
    pid_t child = fork();
    if (!child) return child_work(3);
    printf("nested child %d\n", end_of(child));
    return parent_work(2);
}

static void handler(int signal) {
    (void)signal;
    leaf(7);
    pid_t child = fork();
    if (!child) _exit(child_work(4));
    int status;
    waitpid(child, &status, 0);
    sink = WEXITSTATUS(status);
}

static char* painted;
static size_t* unused;
enum { PAINTED = 64 << 10 };

/* The child's first event is on a stack that may be hardly larger than a signal's frame. */
static void small_handler(int signal) {
    (void)signal;
    pid_t child = fork();
    if (!child) {
        leaf(1);
        while (painted[*unused] == 0x5a) ++*unused;
        _exit(0);
    }
    waitpid(child, 0, 0);
}

static void use_of_stack(void) {
    int protection = PROT_READ | PROT_WRITE;
    painted = mmap(0, PAINTED, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unused = mmap(0, 4096, protection, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(painted, 0x5a, PAINTED);
    stack_t stack = {.ss_sp = painted, .ss_size = PAINTED};
    struct sigaction action = {.sa_handler = small_handler, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, 0);
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    printf("%zu\n", PAINTED - *unused);
}

/* Bytes of private memory that can be written, and of the arena, as far as there is one. */
static size_t data_size(void) {
    size_t pages = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    if (fscanf(file, "%*u %*u %*u %*u %*u %zu", &pages) != 1) abort();
    fclose(file);
    return pages * 4096;
}
static size_t arena_size(void) {
    char line[4096];
    size_t size = 0;
    FILE* file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, file)) {
        size_t begin, end;
        if (strstr(line, "everycall-arena") && sscanf(line, "%zx-%zx", &begin, &end) == 2) size += end - begin;
    }
    fclose(file);
    return size;
}

/* A child may take all the memory that its limit leaves it. */
static void limited(void) {
    enum { TAKEN = 64 << 20, LEFT = 96 << 20 };
    parent_work(1);
    size_t arena = arena_size();
    rlim_t all = data_size() + (arena > LEFT ? arena : LEFT);
    struct rlimit limit = {all, all};
    setrlimit(RLIMIT_DATA, &limit);
    pid_t child = fork();
    if (!child) {
        child_work(1);
        void* taken = mmap(0, TAKEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        _exit(taken == MAP_FAILED ? 1 : child_work(2));
    }
    printf("limited %d\n", end_of(child));
}

static int lineage(int generations) {
    if (!generations) return child_work(1);
    leaf(generations);
    pid_t child = fork();
    if (!child) _exit(lineage(generations - 1));
    return end_of(child);
}

static void storm(int children) {
    enum { TOGETHER = 8 };
    int wrong = 0;
    pid_t running[TOGETHER] = {0};
    for (int i = 0; i < children + TOGETHER; i++) {
        pid_t* place = &running[i % TOGETHER];
        if (*place) wrong += end_of(*place) != 8;
        *place = 0;
        if (i >= children) continue;
        parent_work(1);
        *place = fork();
        if (!*place) _exit(child_work(4) + leaf(1) - 4);
    }
    printf("storm, %d wrong\n", wrong);
}

int main(int count, char** arguments) {
    setvbuf(stdout, 0, _IONBF, 0);
    const char* what = count > 1 ? arguments[1] : "";
    char* leaf_line[] = {arguments[0], "leaf", "one two", 0};
    if (!strcmp(what, "leaf")) {
        return child_work(5);
    } else if (!strcmp(what, "fork")) {
        pid_t child = fork();
        if (!child) {
            pthread_t thread;
            child_work(1000);
            pthread_create(&thread, 0, thread_work, 0);
            pthread_join(thread, 0);
            _exit(leaf(10));
        }
        parent_work(10);
        printf("fork %d\n", end_of(child));
    } else if (!strcmp(what, "raw")) {
        pid_t child = (pid_t)syscall(SYS_fork);
        if (!child) {
            child_work(2);
            syscall(SYS_exit_group, leaf(20));
        }
        printf("raw fork %d\n", end_of(child));
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (!child) syscall(SYS_exit_group, child_work(2) + leaf(30));
        printf("raw clone %d\n", end_of(child));
    } else if (!strcmp(what, "vfork")) {
        pid_t child = vfork();
        if (!child) {
            leaf(5);
            execv(arguments[0], leaf_line);
            _exit(99);
        }
        parent_work(2);
        printf("vfork %d\n", end_of(child));
    } else if (!strcmp(what, "spawn")) {
        pid_t child = -1;
        posix_spawn(&child, arguments[0], 0, 0, leaf_line, environ);
        parent_work(2);
        printf("spawn %d\n", end_of(child));
    } else if (!strcmp(what, "exec")) {
        parent_work(2);
        execv(arguments[0], leaf_line);
    } else if (!strcmp(what, "shell")) {
        char line[4096];
        snprintf(line, sizeof line, "%s leaf; %s leaf; exit 3", arguments[0], arguments[0]);
        parent_work(2);
        printf("system %d\n", WEXITSTATUS(system(line)));
    } else if (!strcmp(what, "daemon")) {
        int done[2];
        if (pipe(done)) return 1;
        pid_t child = fork();
        if (!child) {
            setsid();
            if (fork()) _exit(0);
            close(done[0]);
            child_work(6);
            if (count > 2) {
                close(done[1]);
                usleep(1500 * 1000);
                child_work(1);
            }
            _exit(0);
        }
        close(done[1]);
        char byte;
        printf("middle %d\n", end_of(child));
        printf("daemon %zd\n", read(done[0], &byte, 1));
        if (count > 2) usleep(300 * 1000);
    } else if (!strcmp(what, "late-daemon")) {
        /* Is silent until all that is traced has ended. */
        parent_work(1);
        if (fork()) return 0;
        usleep(700 * 1000);
        child_work(6);
        _exit(0);
    } else if (!strcmp(what, "nested")) {
        int result = nested(20);
        if (result == 20 + 6) _exit(child_work(1));
        printf("nested %d\n", result);
    } else if (!strcmp(what, "limited")) {
        limited();
    } else if (!strcmp(what, "lineage")) {
        printf("lineage %d\n", lineage(10));
    } else if (!strcmp(what, "threads")) {
        int stop = 0, right = 0;
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, busy_thread, &stop);
        for (int i = 0; i < 20; i++) {
            pid_t child = fork();
            if (!child) {
                /* The first event may be another thread's than the one that was forked. */
                pthread_t thread;
                pthread_create(&thread, 0, thread_work, 0);
                if (i % 2) pthread_join(thread, 0);
                int result = child_work(100);
                if (i % 2 == 0) pthread_join(thread, 0);
                _exit(result);
            }
            right += end_of(child) == (100 * 101 / 2 & 63);
        }
        stop = 1;
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
        printf("threads, %d right\n", right);
    } else if (!strcmp(what, "signal")) {
        signal(SIGUSR1, handler);
        for (int i = 0; i < 5; i++) {
            leaf(i);
            raise(SIGUSR1);
        }
        printf("signal %d\n", sink);
    } else if (!strcmp(what, "stack")) {
        use_of_stack();
    } else if (!strcmp(what, "storm")) {
        storm(atoi(arguments[2]));
    } else if (!strcmp(what, "late")) {
        /* Forks when its recorder may be gone. */
        usleep(500 * 1000);
        for (int i = 0; i < 40; i++) {
            pid_t child = fork();
            if (!child) _exit(child_work(2));
            sink = end_of(child);
        }
        FILE* file = fopen(arguments[2], "w");
        fprintf(file, "done %d\n", sink);
        fclose(file);
    }
    return leaf(0) - 1;
}
