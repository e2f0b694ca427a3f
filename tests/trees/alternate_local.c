// Alternate stacks in local variables that end right below the frame that they lie in, and handlers that are left by jumps: the function that has the
// stack is called again deeper than the handler was.
//
// flags: -pthread
//| main
//|   joins
//|   leaf
//| --
//| runs
//|   in_frame
//|     jumps
//|       raises!
//|         jumping_handler!
//|           leaf
//|       leaf
//|     leaf
//|   deeper
//|     in_frame
//|       jumps
//|         raises!
//|           jumping_handler!
//|             leaf
//|         leaf
//|       leaf
//|     leaf
#include "tree.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>

enum { SIZE = 40000, DEEPER = 20000 };
static sigjmp_buf target;

F void leaf(void) { HERE; }
F void jumping_handler(int signal) {
    leaf();
    if (signal) siglongjmp(target, 1);
    HERE;
}
F void raises(void) {
    raise(SIGUSR1);
    HERE;
}
F void jumps(void) {
    if (sigsetjmp(target, 1) == 0) raises();
    leaf();
    HERE;
}
UNTRACED void alternate(void* stack) {
    stack_t which = {.ss_sp = stack, .ss_size = SIZE, .ss_flags = stack ? 0 : SS_DISABLE};
    sigaltstack(&which, 0);
}
F void in_frame(void) {
    char stack[SIZE];
    alternate(stack);
    jumps();
    leaf();
    alternate(0);
    HERE;
}
F void deeper(void) {
    char room[DEEPER];
    __asm__ volatile("" : : "r"(room) : "memory");
    in_frame();
    leaf();
    HERE;
}
F void* runs(void* unused) {
    in_frame();
    deeper();
    HERE;
    return unused;
}
F void joins(void) {
    pthread_t thread;
    pthread_create(&thread, 0, runs, 0);
    pthread_join(thread, 0);
    HERE;
}
int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = jumping_handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, 0);
    joins();
    leaf();
    return 0;
}
