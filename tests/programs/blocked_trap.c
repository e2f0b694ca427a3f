// A trap that the program has blocked waits until the program asks for it, whatever is called meanwhile.
//
//   blocked_trap           one that ends the program
//   blocked_trap handled   one with a handler, that blocks it as well
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

enum { MANY = 400000 };

static volatile int depth, deepest, raised;
static jmp_buf back;

__attribute__((noinline)) void leaf(void) { __asm__ volatile("" : : : "memory"); }
__attribute__((noinline)) void jump(void) { longjmp(back, 1); }

// Calls that need the slow path: of a thread, frames that are left, ends of segments.
__attribute__((noinline)) void work(int count) {
    if (!setjmp(back)) jump();
    for (int i = 0; i < count; i++) leaf();
}

void on_trap(int signal) {
    if (++depth > deepest) deepest = depth;
    if (!raised++) raise(signal);
    work(0);
    depth--;
}

static void *thread(void *nothing) {
    leaf();
    return nothing;
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) {
        signal(SIGTRAP, on_trap);
        raise(SIGTRAP);
    }
    const int handled = deepest;
    sigset_t traps;
    sigemptyset(&traps);
    sigaddset(&traps, SIGTRAP);
    sigprocmask(SIG_BLOCK, &traps, 0);
    raise(SIGTRAP);
    pthread_t other;
    if (pthread_create(&other, 0, thread, 0) || pthread_join(other, 0)) return 2;
    work(MANY);
    int got = 0;
    sigwait(&traps, &got);
    printf("handlers %d, then %d, got %d\n", handled, deepest, got);
    return 0;
}
