// Steps through its own hooks, instruction by instruction, from a process that it forks, and lets a signal
// come after each one in turn.
//
//   step call    the handler makes traced calls and returns
//   step jump    the handler makes traced calls and leaves by siglongjmp
//   step kill N  SIGKILL after N instructions
//   step slow ADDRESS STRIDE [jump]   as call (or jump), within the slow path that begins at ADDRESS
//
// Prints "iterations N" and "signals N".
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#if defined(__clang__)
#define UNTRACED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#else
#define UNTRACED __attribute__((no_instrument_function, noinline))
#endif

struct shared {
    volatile int attached;
    volatile int done;
    volatile long signals;
};
static struct shared* shared;
static sigjmp_buf back;
static int jumps;

NOINLINE void handler_leaf(void) { __asm__ volatile(""); }
NOINLINE void handler(int signal) {
    (void)signal;
    handler_leaf();
    if (jumps) siglongjmp(back, 1);
}
NOINLINE void victim_leaf(void) { __asm__ volatile(""); }
NOINLINE int victim(int value, const char* text) {
    victim_leaf();
    __asm__ volatile("" : "+r"(value) : "r"(text));
    return value + 1;
}
NOINLINE void checkpoint_leaf(void) { __asm__ volatile(""); }
NOINLINE void checkpoint(void) {
    checkpoint_leaf();
    __asm__ volatile("");
}

UNTRACED static void check(long result, const char* what) {
    if (result < 0) {
        perror(what);
        _exit(3);
    }
}

// Waits for the parent's next stop; its signal, or -1 at its end.
UNTRACED static int stopped(pid_t parent) {
    int status;
    check(waitpid(parent, &status, __WALL), "waitpid");
    return WIFSTOPPED(status) ? WSTOPSIG(status) : -1;
}

// Goes on until a trap; other signals are delivered.
UNTRACED static int until_trap(pid_t parent, int with) {
    for (;;) {
        check(ptrace(PTRACE_CONT, parent, 0, (void*)(intptr_t)with), "cont");
        int signal = stopped(parent);
        if (signal == SIGTRAP || signal < 0) return signal;
        with = signal;
    }
}

UNTRACED static unsigned long long instruction(pid_t parent) {
    struct user_regs_struct registers;
    check(ptrace(PTRACE_GETREGS, parent, 0, &registers), "registers");
    return registers.rip;
}

// One step; false where the step ended in the closing int3.
UNTRACED static int step(pid_t parent) {
    unsigned long long at = instruction(parent);
    long word = ptrace(PTRACE_PEEKTEXT, parent, (void*)at, 0);
    if ((word & 0xff) == 0xcc) return 0;
    check(ptrace(PTRACE_SINGLESTEP, parent, 0, 0), "step");
    return stopped(parent) == SIGTRAP;
}

UNTRACED static void drive(pid_t parent, int kill_after, unsigned long long slow, int stride) {
    check(ptrace(PTRACE_SEIZE, parent, 0, 0), "seize");
    check(ptrace(PTRACE_INTERRUPT, parent, 0, 0), "interrupt");
    stopped(parent);
    shared->attached = 1;
    long original = 0;
    if (slow) {
        errno = 0;
        original = ptrace(PTRACE_PEEKTEXT, parent, (void*)slow, 0);
    }
    for (int after = kill_after >= 0 ? kill_after : 0;; after += stride) {
        if (until_trap(parent, 0) < 0) _exit(4); // the opening int3
        if (slow) {
            check(ptrace(PTRACE_POKETEXT, parent, (void*)slow, (void*)((original & ~0xffL) | 0xcc)), "poke");
            if (until_trap(parent, 0) < 0) _exit(4);
            check(ptrace(PTRACE_POKETEXT, parent, (void*)slow, (void*)original), "poke");
            struct user_regs_struct registers;
            check(ptrace(PTRACE_GETREGS, parent, 0, &registers), "registers");
            if (registers.rip != slow + 1) { // the closing int3: no slow path in this round
                after -= stride;
                check(ptrace(PTRACE_CONT, parent, 0, 0), "cont");
                stopped(parent);
                continue;
            }
            registers.rip = slow;
            check(ptrace(PTRACE_SETREGS, parent, 0, &registers), "registers");
        }
        int steps = 0;
        while (steps < after && step(parent)) steps++;
        if (kill_after >= 0 ? steps == kill_after : 0) {
            kill(parent, SIGKILL);
            _exit(0);
        }
        // In the slow path the interesting part is over once it is back among the program's own calls.
        int over = slow ? after > 6000 : steps < after;
        if (over) {
            shared->done = 1;
            if (kill_after >= 0) kill(parent, SIGKILL);
            until_trap(parent, 0);
            ptrace(PTRACE_DETACH, parent, 0, 0);
            _exit(0);
        }
        shared->signals++;
        if (until_trap(parent, kill_after >= 0 ? 0 : SIGUSR1) < 0) _exit(4); // the closing int3
    }
}

UNTRACED int main(int count, char** arguments) {
    const char* how = count > 1 ? arguments[1] : "call";
    int kill_after = !strcmp(how, "kill") ? atoi(arguments[2]) : -1;
    unsigned long long slow = !strcmp(how, "slow") ? strtoull(arguments[2], 0, 16) : 0;
    int stride = slow ? atoi(arguments[3]) : 1;
    jumps = !strcmp(arguments[count - 1], "jump");
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    pid_t parent = getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pid_t child = fork();
    if (!child) {
        drive(parent, kill_after, slow, stride);
        _exit(0);
    }
    while (!shared->attached) usleep(100);
    checkpoint(); // The thread's first event is another matter.
    volatile long iterations = 1;
    char text[] = "stepped through";
    while (!shared->done) {
        if (!sigsetjmp(back, 1)) {
            __asm__ volatile("int3");
            // Enough events to end a small segment where the slow path is the target.
            for (int i = 0; i < (slow ? 300 : 1); i++) victim(i, text);
        }
        __asm__ volatile("int3");
        checkpoint();
        iterations++;
    }
    int status;
    waitpid(child, &status, 0);
    printf("iterations %ld\nsignals %ld\n", iterations, shared->signals);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 9;
}
