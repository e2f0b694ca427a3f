// Puts itself under a filter of system calls when it has begun, then goes on with threads.
//   seccomp refuse   what the runtime asks for at a thread's begin fails
//   seccomp list     whatever isn't needed by the C library's threads, or named in
//   docs/reference/system-calls.md for ours, kills seccomp trap N   the Nth of what fails in the
//   first case traps, and the program's own handler answers that it isn't permitted
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { THREADS = 4, CALLS = 50000 };

__attribute__((noinline)) long leaf(long v) {
    __asm__ volatile("" : "+r"(v));
    return v + 1;
}

static void *work(void *sum) {
    for (int i = 0; i < CALLS; i++) *(long *)sum = leaf(*(long *)sum);
    return 0;
}

static const int refused[] = {SYS_gettid, SYS_prctl, SYS_tgkill, SYS_sigaltstack, SYS_madvise, SYS_clock_gettime};
static const int listed[] = {
    // The C library's, for threads and output.
    SYS_rt_sigaction, SYS_write, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_rseq, SYS_futex,
    SYS_brk, SYS_newfstatat, SYS_exit, SYS_exit_group, SYS_rt_sigprocmask, SYS_madvise, SYS_getrandom, SYS_prlimit64,
    // Ours.
    SYS_gettid, SYS_prctl, SYS_sigaltstack, SYS_tgkill, SYS_clock_gettime};

static void on_trapped(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    leaf(0);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
}

static int filter(const int *calls, int count, unsigned found, unsigned otherwise) {
    struct sock_filter code[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    int length = 1;
    for (int i = 0; i < count; i++) {
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, found);
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    struct sock_fprog program = {length, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    leaf(0);
    struct sigaction trapped = {.sa_sigaction = on_trapped, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &trapped, 0);
    int failed = 1;
    if (!strcmp(arguments[1], "refuse"))
        failed = filter(refused, sizeof refused / sizeof *refused, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ALLOW);
    else if (!strcmp(arguments[1], "list"))
        failed = filter(listed, sizeof listed / sizeof *listed, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
    else if (count == 3)
        failed = filter(&refused[atoi(arguments[2])], 1, SECCOMP_RET_TRAP, SECCOMP_RET_ALLOW);
    if (failed) return 3;
    long sums[THREADS] = {0}, sum = 0;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], 0, work, &sums[i])) return 4;
    work(&sum);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_join(threads[i], 0)) return 5;
        sum += sums[i];
    }
    printf("%ld\n", sum);
    return 0;
}
