// Handlers on alternate stacks that lie above what they interrupted, left by jumps of which nobody tells: in an outer frame's local variable, in a thread-local one,
// and where the handler's call is the only one that is open.
//
// flags: -pthread
//| main
//|   in_frame
//|     jumps_out
//|       raises!
//|         jumping_handler!
//|           leaf
//|       leaf
//|       raises
//|         handler
//|           leaf
//|         leaf
//|       leaf
//|     leaf
//|   leaf
//|   joins
//|   leaf
//| --
//| jumping_handler!
//|   leaf
//| leaf
//| jumps_out
//|   raises!
//|     jumping_handler!
//|       leaf
//|   leaf
//|   raises
//|     handler
//|       leaf
//|     leaf
//|   leaf
#include "tree.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { SIZE = 65536 };
static void* target[5];
static __thread char stack_of_thread[SIZE] __attribute__((aligned(16)));

F void leaf(void) { HERE; }
// Its frame is larger than the others', so that what lies in it is deeper than what is called instead.
F void raises(int is_rest) {
    char room[512];
    __asm__ volatile("" : : "r"(room) : "memory");
    raise(SIGUSR1);
    if (is_rest) leaf();
    HERE;
}
F void handler(int signal) {
    (void)signal;
    leaf();
    HERE;
}
F void jumping_handler(int signal) {
    leaf();
    if (signal) __builtin_longjmp(target, 1);
    HERE;
}
UNTRACED void handle(void (*with)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = with;
    action.sa_flags = SA_ONSTACK | SA_NODEFER;
    sigaction(SIGUSR1, &action, 0);
}
UNTRACED void alternate(void* stack) {
    stack_t which = {.ss_sp = stack, .ss_size = SIZE, .ss_flags = stack ? 0 : SS_DISABLE};
    sigaltstack(&which, 0);
}
F void jumps_out(void) {
    handle(jumping_handler);
    if (__builtin_setjmp(target) == 0) raises(0);
    leaf();
    handle(handler);
    raises(1);
    leaf();
    HERE;
}
F void in_frame(void) {
    char above[SIZE] __attribute__((aligned(16)));
    alternate(above);
    jumps_out();
    leaf();
    alternate(0);
    HERE;
}
UNTRACED void* runs(void* unused) {
    alternate(stack_of_thread);
    handle(jumping_handler);
    if (__builtin_setjmp(target) == 0) raise(SIGUSR1);
    leaf();
    jumps_out();
    alternate(0);
    return unused;
}
F void joins(void) {
    pthread_t thread;
    pthread_create(&thread, 0, runs, 0);
    pthread_join(thread, 0);
    HERE;
}
int main(void) {
    in_frame();
    leaf();
    joins();
    leaf();
    return 0;
}
