/*
 * Tracing is switched off and on while two threads make calls whose results they check. What else happens meanwhile, the first argument says;
 * the second one is how often.
 */
#define _GNU_SOURCE
#include <everycall.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

#define NOINLINE __attribute__((noinline)) EVERYCALL_FORCE

static volatile int stop;
static volatile long sink;

NOINLINE long leaf(long n)
{
    __asm__ volatile("");
    return n * 3 + 1;
}

/* Exits before a ret, at the end of a loop, and in tail calls. */
NOINLINE long sum(long n)
{
    long total = 0, i;
    for (i = 0; i < n; i++)
        total += leaf(i);
    return total;
}

NOINLINE long tail(long n)
{
    sink = n;
    return n > 5 ? leaf(n - 5) : sum(n);
}

NOINLINE double mixed(double x, int n, ...)
{
    __builtin_va_list list;
    double total = x;
    __builtin_va_start(list, n);
    while (n-- > 0)
        total += __builtin_va_arg(list, double);
    __builtin_va_end(list);
    return total;
}

NOINLINE int check(long n)
{
    long k = n % 16, expected = 3 * (k * (k - 1) / 2) + k;
    if (sum(k) != expected)
        return 1;
    if (tail(20) != 46 || tail(3) != 12)
        return 2;
    if (mixed(0.5, 3, 1.0, 2.0, (double)k) != 3.5 + (double)k)
        return 3;
    return 0;
}

NOINLINE void *calls(void *count)
{
    long n = 0;
    while (!stop) {
        int wrong = check(n);
        if (wrong != 0) {
            printf("wrong result %d in call %ld\n", wrong, n);
            exit(1);
        }
        *(volatile long *)count = ++n;
    }
    return 0;
}

EVERYCALL_EXCLUDE static void ok(int result, const char *what)
{
    if (result != 0) {
        printf("%s: %d: %s\n", what, result, everycall_error(result));
        exit(1);
    }
}

EVERYCALL_EXCLUDE static void toggle(long times)
{
    long i;
    for (i = 0; i < times; i++) {
        ok(everycall_disable(), "disable");
        ok(everycall_enable(), "enable");
    }
}

/* A thread that makes calls comes and goes, and switches, too. */
EVERYCALL_EXCLUDE static void *toggles(void *times)
{
    toggle(*(long *)times);
    return 0;
}

/* A child that was forked at any moment of a switch has its functions whole, and can switch. */
EVERYCALL_EXCLUDE static void child(void)
{
    int i;
    for (i = 0; i < 3; i++) {
        if (check(i) != 0)
            _exit(1);
        if (everycall_disable() != 0 || check(i) != 0 || everycall_enable() != 0)
            _exit(2);
    }
    _exit(0);
}

EVERYCALL_EXCLUDE static void forks(long times)
{
    pthread_t thread;
    long i;
    pthread_create(&thread, 0, toggles, &times);
    for (i = 0; i < 100; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            child();
        waitpid(pid, &status, 0);
        if (status != 0) {
            printf("child %ld: status %x\n", i, status);
            exit(1);
        }
    }
    pthread_join(thread, 0);
}

/* The bytes at a function's entry: as they are off, and on. */
EVERYCALL_EXCLUDE static void show_entry(void)
{
    volatile unsigned char *code = (volatile unsigned char *)leaf;
    printf("%02x %02x %02x, ", code[0], code[1], code[2]);
}

NOINLINE void unseen(void)
{
    sink++;
}

static volatile int phase;

/* Makes calls in each of three phases. The second one it knows nothing of: tracing is off then. */
NOINLINE void *in_phases(void *nothing)
{
    int i;
    for (i = 0; i < 3; i++) {
        while (phase < 2 * i)
            sched_yield();
        if (i == 1)
            unseen();
        else
            mixed(1.0, 0);
        phase = 2 * i + 1;
    }
    return nothing;
}

EVERYCALL_EXCLUDE static void phases(void)
{
    pthread_t thread;
    show_entry();
    pthread_create(&thread, 0, in_phases, 0);
    while (phase < 1)
        sched_yield();
    ok(everycall_disable(), "disable");
    show_entry();
    phase = 2;
    while (phase < 3)
        sched_yield();
    ok(everycall_enable(), "enable");
    show_entry();
    phase = 4;
    pthread_join(thread, 0);
    puts("fine");
}

EVERYCALL_EXCLUDE static void filter(unsigned action)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof program / sizeof program[0], program};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0) {
        puts("no filters here");
        exit(77);
    }
}

EVERYCALL_EXCLUDE int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "plain";
    long times = argc > 2 ? atol(argv[2]) : 1000;
    volatile long counts[2] = {0, 0};
    pthread_t threads[2];
    int i;
    if (strcmp(how, "under-mdwe") == 0 || strcmp(how, "under-filter") == 0) {
        /* Hardened from its start. */
        if (how[6] == 'f')
            filter(SECCOMP_RET_ERRNO | EPERM);
        else if (prctl(PR_SET_MDWE, 1, 0, 0, 0) != 0)
            return 77;
        argv[1] = "plain";
        execv("/proc/self/exe", argv);
    }
    if (strcmp(how, "mdwe") == 0 && prctl(PR_SET_MDWE, 1, 0, 0, 0) != 0)
        return 77;
    if (strcmp(how, "filter-refuses") == 0)
        filter(SECCOMP_RET_ERRNO | EPERM);
    if (strcmp(how, "filter-kills") == 0)
        filter(SECCOMP_RET_KILL_PROCESS);
    if (strcmp(how, "phases") == 0) {
        phases();
        return 0;
    }
    for (i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, calls, (void *)&counts[i]);
    while (counts[0] == 0 || counts[1] == 0)
        sched_yield();
    if (strcmp(how, "forks") == 0)
        forks(times);
    else if (strcmp(how, "both") == 0) {
        /* Two that switch at the same time. */
        pthread_t thread;
        pthread_create(&thread, 0, toggles, &times);
        toggle(times);
        pthread_join(thread, 0);
        /* Whoever was last has the last word. */
        ok(everycall_disable(), "disable");
        ok(everycall_enable(), "enable");
    } else if (strcmp(how, "endless") == 0) {
        puts("toggling");
        fflush(stdout);
        for (;;)
            toggle(times);
    } else
        toggle(times);
    /* On again: these calls are in the trace. */
    for (i = 0; i < 3; i++)
        mixed(1.0, 0);
    stop = 1;
    for (i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    printf("fine after %ld calls\n", counts[0] + counts[1]);
    return 0;
}
