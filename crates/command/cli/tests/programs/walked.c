// Calls, and a handler of signals that walks the stack (argument `ticks`); says at its end whether
// many signals came in other code than the program's own, and how many walks were wrong.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
#include <unwind.h>
#define N __attribute__((noinline, noclone))
#define KEEP(x) __asm__ volatile("" : "+r"(x))
N int inner(int x) { KEEP(x); return x * 3 + 1; }
N int branches(int x) { if (x & 1) return inner(x) + 2; if (x & 2) return inner(x + 5); return x ^ 5; }
N int saves(int a, int b, int c) { int x = inner(a), y = branches(b), z = inner(c); KEEP(x); return x + y * z + a + b + c; }
N int outer(int x) { int volatile local[8] = { x }; return saves(x, x + 1, local[0]) + branches(x + 2); }
volatile int is_over;
int main(int count, char **words);
static const struct { void *start; const char *name; } functions[] = {
    { inner, "inner" }, { branches, "branches" }, { saves, "saves" }, { outer, "outer" }, { main, "main" } };
enum { COUNT = sizeof functions / sizeof *functions };
extern char etext, __executable_start;
// The function with this address; -1 in other files and in no file.
static int function_at(char *address) {
    int best = -1;
    if (address < &__executable_start || address >= &etext) return -1;
    for (int i = 0; i < COUNT; i++)
        if ((char *)functions[i].start <= address && (best < 0 || functions[i].start > functions[best].start)) best = i;
    return best;
}
static volatile long samples, elsewhere, wrong;
struct walk { int is_begun, last, is_wrong, is_whole; };
static int may_call(int caller, int callee) {
    static const char calls[COUNT][COUNT] = { [1] = { 1 }, [2] = { 1, 1 }, [3] = { 0, 1, 1 }, [4] = { 0, 0, 0, 1 } };
    return calls[caller][callee];
}
static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *data) {
    struct walk *walk = data;
    int before = 0;
    char *at = (char *)_Unwind_GetIPInfo(context, &before);
    walk->is_begun |= before;
    int function = function_at(at - !before);
    // The handler's own frames, and what has called main.
    if (function < 0 || !walk->is_begun || walk->is_whole) return _URC_NO_REASON;
    // A tail call's caller isn't there.
    if (walk->last >= 0 && !may_call(function, walk->last)) walk->is_wrong = 1;
    walk->last = function;
    if (function == COUNT - 1) walk->is_whole = 1;
    return _URC_NO_REASON;
}
static void tick(int signal, siginfo_t *info, void *data) {
    char *at = (char *)((ucontext_t *)data)->uc_mcontext.gregs[REG_RIP];
    struct walk walk = { .last = -1 };
    _Unwind_Backtrace(frame, &walk);
    samples++;
    if (function_at(at) < 0) elsewhere++;
    if (walk.is_wrong || !walk.is_whole) wrong++;
}
static void *sleeps(void *data) {
    sigset_t ticks;
    sigemptyset(&ticks), sigaddset(&ticks, SIGPROF);
    pthread_sigmask(SIG_BLOCK, &ticks, 0);
    for (;;) pause();
    return data;
}
int main(int count, char **words) {
    long all = 0;
    pthread_t sleeping;
    // A thread at a system call, at which a library can be loaded.
    pthread_create(&sleeping, 0, sleeps, 0);
    if (count == 1) puts("begun"), fflush(stdout);
    if (count > 1) {
        struct sigaction action = { .sa_sigaction = tick, .sa_flags = SA_SIGINFO };
        sigaction(SIGPROF, &action, 0);
        struct itimerval often = { { 0, 1000 }, { 0, 1000 } };
        setitimer(ITIMER_PROF, &often, 0);
    }
    for (int i = 0; !is_over && samples < 400; i++) all += outer(i);
    struct itimerval never = { 0 };
    setitimer(ITIMER_PROF, &never, 0);
    printf("%s elsewhere, %ld wrong\n", elsewhere > 20 ? "many" : "few", wrong);
    return all == 1;
}
