// What is changed by the tests. It prints the address of `window`, does what its first argument says until a line or the
// end of its input comes, and says whether everything was right.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Seven bytes of three instructions are replaced.
uint64_t window(uint64_t);
// The distance of `functions` is before it.
__asm__(".text; .long functions - window; .globl window; .type window, @function; window:\n"
        "push %rbx; mov %rdi, %rbx; inc %rbx\n"
        "lea (%rbx,%rbx,2), %rax; xor %rdi, %rax; pop %rbx; ret\n"
        ".size window, .-window");
extern void _start(void);

static uint64_t expected(uint64_t x) { return ((x + 1) * 3) ^ x; }
static atomic_int ended, is_calm;
static _Atomic uint64_t calls, signals;

static void wrong(const char *what) {
    printf("wrong: %s\n", what);
    fflush(stdout);
    _exit(1);
}

static void line(void) {
    char c;
    while (read(0, &c, 1) == 1 && c != '\n') {}
}

// Functions that a borrowed thread calls. It must find everything as a function expects it.
static uint64_t call_me(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
    struct { uint16_t control, r0, status, r1, tags, r2[9]; } x87;
    uint32_t sse;
    uint64_t flags;
    _Alignas(16) volatile char aligned[16];
    __asm__ volatile("fnstenv %0; fldenv %0; stmxcsr %1; pushfq; pop %2" : "=m"(x87), "=m"(sse), "=r"(flags));
    if (x87.control != 0x37f || x87.tags != 0xffff) wrong("x87 in a function");
    if (sse != 0x1f80) wrong("vector control in a function");
    if (flags & 0x40500) wrong("flags in a function");
    __asm__ volatile("movaps %%xmm0, %0" : "=m"(aligned));
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, 0, &blocked);
    if (!sigismember(&blocked, SIGUSR2) || !sigismember(&blocked, SIGRTMIN + 3)) wrong("signals in a function");
    volatile char *deep = __builtin_alloca(600000);
    for (int i = 0; i < 600000; i += 4096) deep[i] = 1;
    __asm__ volatile("fninit; fldpi; fldpi; pcmpeqd %%xmm0, %%xmm0; pcmpeqd %%xmm1, %%xmm1; pcmpeqd %%xmm7, %%xmm7;"
                     "pcmpeqd %%xmm15, %%xmm15" ::: "xmm0", "xmm1", "xmm7", "xmm15");
    struct timespec soon = {0, 100000};
    for (int i = 0; i < 3; i++) getppid();
    nanosleep(&soon, 0);
    close(-1);
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f;
}
static uint64_t fail(uint64_t at) { errno = 99; return *(volatile uint64_t *)at; }
static atomic_int released;
static uint64_t wait_for_release(void) { while (!released) usleep(1000); return 1; }
static uint64_t end_the_program(void) { _exit(0); }
// Before the C library has begun.
static uint64_t plain(uint64_t a, uint64_t b) {
    long pid;
    __asm__ volatile("syscall" : "=a"(pid) : "a"(SYS_getpid) : "rcx", "r11", "memory");
    return pid > 0 ? a * b : 0;
}
const void *const functions[] = {call_me, fail, wait_for_release, end_the_program, plain, &released};

// Integers and vector registers, some of which stay in use across calls of `window`.
static void round_of_work(void) {
    uint64_t sum = 0, check = 0, count = 0;
    double a = 1, b = 1, pi;
    uint32_t rounding = 0x5f80, control, usual = 0x1f80;
    errno = 1234;
    for (uint64_t i = 0; i < 2000; i++, count++) {
        sum = sum * 31 + window(i);
        check = check * 31 + expected(i);
        a = a * 0.999 + (double)i;
        b = b * 0.999 + (double)i;
        __asm__ volatile("" : "+x"(a), "+x"(b));
    }
    calls += count;
    // Without calls they stay in vector registers. Other modes than the usual ones, too.
    __asm__ volatile("fldpi; ldmxcsr %0" :: "m"(rounding));
    for (int i = 0; i < 20000; i++) {
        a = a * 0.999 + i, b = b * 0.999 + i;
        __asm__ volatile("std; nop; nop; cld" : "+x"(a), "+x"(b));
    }
    __asm__ volatile("fstpl %0; stmxcsr %1; ldmxcsr %2" : "=m"(pi), "=m"(control) : "m"(usual));
    if (pi != 3.14159265358979323846 || (control & ~63u) != rounding) wrong("x87 or vector control");
    if (errno != 1234) wrong("errno");
    if (sum != check) wrong("integers");
    if (a != b) wrong("vectors");
}

static void *work(void *blocks) {
    if (blocks) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, 0);
    }
    while (!ended) {
        round_of_work();
        if (is_calm) usleep(500);
    }
    return 0;
}

static void handler(int s) {
    int saved = errno;
    signals++;
    if (window((uint64_t)s) != expected((uint64_t)s)) wrong("in a handler");
    errno = saved;
}

static void trap(int s) { (void)s; wrong("a trap"); }

static pthread_t workers[4];
static void *storm(void *p) {
    (void)p;
    for (int i = 0; !ended; i++) {
        pthread_kill(workers[i % 3], i & 1 ? SIGRTMIN + 3 : SIGUSR2);
        usleep(200);
    }
    return 0;
}

static void busy(int is_stormy) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART}, t = {.sa_handler = trap}, now;
    sigaction(SIGUSR2, &a, 0), sigaction(SIGRTMIN + 3, &a, 0), sigaction(SIGTRAP, &t, 0);
    sigset_t trap_only, before, after;
    sigemptyset(&trap_only), sigaddset(&trap_only, SIGTRAP);
    pthread_sigmask(SIG_BLOCK, &trap_only, &before);
    pthread_sigmask(SIG_BLOCK, 0, &before);
    for (long i = 0; i < 4; i++) pthread_create(&workers[i], 0, work, i == 3 ? &ended : 0);
    pthread_t s;
    if (is_stormy) pthread_create(&s, 0, storm, 0);
    line();
    ended = 1;
    if (is_stormy) pthread_join(s, 0);
    for (int i = 0; i < 4; i++) pthread_join(workers[i], 0);
    pthread_sigmask(SIG_BLOCK, 0, &after);
    sigaction(SIGTRAP, 0, &now);
    if (memcmp(&before, &after, 8) || now.sa_handler != trap) wrong("signal state");
    if (is_stormy > 1 && !signals) wrong("no signals");
}

// Threads come and go.
static void *once(void *p) { round_of_work(); return p; }
static void births(void) {
    fcntl(0, F_SETFL, O_NONBLOCK);
    char c;
    while (read(0, &c, 1) < 0) {
        pthread_t t[2];
        for (int i = 0; i < 2; i++) if (pthread_create(&t[i], 0, once, 0)) wrong("a thread");
        for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    }
}

// The first thread alone.
static void alone(void) {
    fcntl(0, F_SETFL, O_NONBLOCK);
    char c;
    while (read(0, &c, 1) < 0) round_of_work();
}

static int ends[2], queue, semaphores, waits;
static uint32_t word;
static pid_t child;
static pthread_t first;
static void nothing(int s) { signals += (uint64_t)s; }
static void *release(void *p) {
    (void)p;
    line();
    ended = 1;
    if (write(ends[1], "x", 1) != 1) wrong("a pipe");
    // Who was interrupted and waits again has to see it.
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, FUTEX_WAKE, 1, 0, 0, 0);
    struct sembuf up = {0, 1, 0};
    semop(semaphores, &up, 1);
    struct { long kind; char text[1]; } m = {1, "x"};
    msgsnd(queue, &m, 1, 0);
    if (child) kill(child, SIGKILL);
    if (waits) pthread_kill(first, SIGUSR1);
    return 0;
}

// The first thread is in one system call, which must return as if nothing had been.
static void blocked(const char *how) {
    struct timespec ts = {0, 300000000}, rest, begin, end;
    struct pollfd p;
    sigset_t usr1, none;
    char c;
    int r = 0, is_timed = 0;
    sigemptyset(&none), sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
    waits = !strcmp(how, "sigtimedwait") || !strcmp(how, "sigsuspend");
    if (waits) pthread_sigmask(SIG_BLOCK, &usr1, 0);
    struct sigaction a = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &a, 0);
    if (pipe(ends)) wrong("pipe");
    p = (struct pollfd){ends[0], POLLIN, 0};
    queue = msgget(IPC_PRIVATE, 0600), semaphores = semget(IPC_PRIVATE, 1, 0600);
    if (!strcmp(how, "wait") && !(child = fork())) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    int e = epoll_create1(0);
    struct epoll_event ev = {EPOLLIN, {0}};
    epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &ev);
    first = pthread_self();
    pthread_t t;
    pthread_create(&t, 0, release, 0);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (!strcmp(how, "nanosleep")) is_timed = 1, r = nanosleep(&ts, &rest);
    if (!strcmp(how, "poll-time")) is_timed = 1, r = poll(0, 0, 300);
    if (!strcmp(how, "futex-time")) {
        is_timed = 1, r = (int)syscall(SYS_futex, &word, FUTEX_WAIT, 0, &ts, 0, 0);
        r = r < 0 && errno == ETIMEDOUT ? 0 : -1;
    }
    if (!strcmp(how, "clock")) {
        struct timespec until = begin;
        until.tv_sec++;
        r = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0);
    }
    if (!strcmp(how, "poll")) r = poll(&p, 1, -1) - 1;
    if (!strcmp(how, "ppoll")) r = ppoll(&p, 1, 0, &none) - 1;
    if (!strcmp(how, "select")) {
        fd_set f;
        FD_ZERO(&f); FD_SET(ends[0], &f);
        r = select(ends[0] + 1, &f, 0, 0, 0) - 1;
    }
    if (!strcmp(how, "read")) r = (int)read(ends[0], &c, 1) - 1;
    if (!strcmp(how, "futex")) {
        r = (int)syscall(SYS_futex, &word, FUTEX_WAIT, 0, 0, 0, 0);
        if (r && errno == EAGAIN) r = 0;
    }
    if (!strcmp(how, "epoll")) r = epoll_wait(e, &ev, 1, -1) - 1;
    if (!strcmp(how, "epoll_pwait")) r = epoll_pwait(e, &ev, 1, -1, &none) - 1;
    if (!strcmp(how, "semop")) { struct sembuf down = {0, -1, 0}; r = semop(semaphores, &down, 1); }
    if (!strcmp(how, "msgrcv")) { struct { long k; char t[1]; } m; r = (int)msgrcv(queue, &m, 1, 0, 0) - 1; }
    if (!strcmp(how, "sigtimedwait")) r = sigwaitinfo(&usr1, 0) - SIGUSR1;
    if (!strcmp(how, "sigsuspend")) r = sigsuspend(&none) == -1 && errno == EINTR && signals ? 0 : -1;
    if (!strcmp(how, "wait")) r = waitpid(child, 0, 0) == child ? 0 : -1;
    int error = errno;
    clock_gettime(CLOCK_MONOTONIC, &end);
    double took = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    if (r) fprintf(stderr, "%s: %d, %s\n", how, r, strerror(error)), wrong(how);
    if (is_timed && took < 0.299) wrong("woke too early");
    if (!is_timed && strcmp(how, "clock") && !ended) wrong("woke before it was released");
    pthread_join(t, 0);
    msgctl(queue, IPC_RMID, 0), semctl(semaphores, 0, IPC_RMID);
}

static void *idle(void *p) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    for (;;) pause();
    return p;
}

static void in_handler(int s) { (void)s; line(); }

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    printf("%lx\n", (unsigned long)window);
    fflush(stdout);
    is_calm = !strcmp(mode, "storm") && argc == 2;
    if (!strcmp(mode, "busy") || !strcmp(mode, "storm")) busy(*mode == 's' ? argc - 1 : 0);
    else if (!strcmp(mode, "births")) births();
    else if (!strcmp(mode, "alone")) alone();
    else if (!strcmp(mode, "vfork")) {
        // The parent can't be stopped before the child ends, at the end of the input.
        if (!vfork()) line(), _exit(0);
    }
    else if (!strcmp(mode, "blocked")) blocked(argv[2]);
    else if (!strcmp(mode, "loop")) {
        // A debugger parks it; SIGUSR1 interrupts it there until a line comes.
        struct sigaction a = {.sa_handler = in_handler, .sa_flags = SA_RESTART};
        sigaction(SIGUSR1, &a, 0);
        if (argc > 2) {
            stack_t alt = {.ss_sp = malloc(65536), .ss_size = 65536};
            pthread_t t;
            pthread_create(&t, 0, idle, 0);
            sigaltstack(&alt, 0), a.sa_flags |= SA_ONSTACK;
            // SIGUSR2 interrupts the handler of SIGUSR1, on another stack.
            sigaction(strcmp(argv[2], "nested") ? SIGUSR1 : SIGUSR2, &a, 0);
        }
        fcntl(0, F_SETFL, 0);
        for (;;) {
            for (uint64_t i = 0; i < 1000; i++) if (window(i) != expected(i)) wrong("loop");
            struct pollfd p = {0, POLLIN, 0};
            if (poll(&p, 1, 0) == 1) break;
        }
        line();
    } else if (!strcmp(mode, "seccomp")) { prctl(PR_SET_SECCOMP, 1); line(); syscall(SYS_exit, 0); }
    else if (!strcmp(mode, "mdwe")) { if (prctl(65, 1, 0, 0, 0)) puts("none"), fflush(stdout); busy(0); }
    else if (!strcmp(mode, "undumpable")) { prctl(PR_SET_DUMPABLE, 0); puts("done"), fflush(stdout); line(); }
    else if (!strcmp(mode, "start")) {
        for (int i = 0; i < 3; i++) round_of_work();
        if (getauxval(AT_ENTRY) != (unsigned long)_start) puts("entry differs");
        for (int i = 2; i < argc; i++) puts(argv[i]);
        // What the tracer was told to map is counted by it.
    }
    puts("right");
    return 0;
}
