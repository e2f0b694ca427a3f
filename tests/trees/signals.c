// Handlers on the normal and on an alternate stack (below and above the thread's own), nested, that never return, that end the
// thread.
//
// flags: -pthread
//| main
//|   on_own_stack
//|     raises
//|       handler
//|         leaf
//|     leaf
//|   on_alternate_stack
//|     raises
//|       handler
//|         leaf
//|     leaf
//|   nested
//|     raises
//|       nesting_handler
//|         raises
//|           handler
//|             leaf
//|         leaf
//|     leaf
//|   nested
//|     raises
//|       nesting_handler
//|         raises
//|           handler
//|             leaf
//|         leaf
//|     leaf
//|   jumps_out
//|     raises!
//|       jumping_handler!
//|     leaf
//|   leaf
//|   jumps_out
//|     raises!
//|       jumping_handler!
//|     leaf
//|   leaf
//|   jumps_out_above
//|     jumps_out
//|       raises!
//|         jumping_handler!
//|       leaf
//|     leaf
//|   leaf
//|   jumps_out_of_nested
//|     raises!
//|       nesting_jumping_handler!
//|         raises!
//|           jumping_handler!
//|     leaf
//|   leaf
//|   lets_through
//|     jumps_with_pending!
//|       handler
//|         leaf
//|     leaf
//|   lets_through
//|     jumps_with_pending
//|       jumping_in_handler!
//|       leaf
//|     leaf
//|   joins ×2
//| --
//| ended!
//|   raises!
//|     ending_handler!
//|       leaf
//| --
//| ended!
//|   raises!
//|     ending_handler!
//|       leaf
#include "tree.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>

static sigjmp_buf back, in;
static char below[65536] __attribute__((aligned(16)));

F void leaf(void) { HERE; }
F void raises(int signal) {
    raise(signal);
    HERE;
}
F void handler(int signal) {
    (void)signal;
    leaf();
    HERE;
}
F void nesting_handler(int signal) {
    (void)signal;
    raises(SIGUSR2);
    leaf();
    HERE;
}
F void jumping_handler(int signal) {
    if (signal) siglongjmp(back, 1);
    HERE;
}
F void nesting_jumping_handler(int signal) {
    (void)signal;
    raises(SIGUSR2);
    HERE;
}
F void ending_handler(int signal) {
    leaf();
    if (signal) pthread_exit(0);
    HERE;
}
UNTRACED void handle(int signal, void (*with)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = with;
    action.sa_flags = flags;
    sigaction(signal, &action, 0);
}
UNTRACED void alternate(void* stack, unsigned long size) {
    stack_t which = {.ss_sp = stack, .ss_size = size, .ss_flags = stack ? 0 : SS_DISABLE};
    sigaltstack(&which, 0);
}
F void on_own_stack(void) {
    handle(SIGUSR1, handler, 0);
    raises(SIGUSR1);
    leaf();
    HERE;
}
F void on_alternate_stack(void) {
    handle(SIGUSR1, handler, SA_ONSTACK);
    raises(SIGUSR1);
    leaf();
    HERE;
}
F void nested(int flags) {
    handle(SIGUSR1, nesting_handler, flags);
    handle(SIGUSR2, handler, flags);
    raises(SIGUSR1);
    leaf();
    HERE;
}
F void jumps_out(int flags) {
    handle(SIGUSR1, jumping_handler, flags);
    if (!sigsetjmp(back, 1)) raises(SIGUSR1);
    leaf();
    HERE;
}
// The alternate stack lies above the frames that are interrupted.
F void jumps_out_above(void) {
    char above[65536] __attribute__((aligned(16)));
    alternate(above, sizeof above);
    jumps_out(SA_ONSTACK);
    leaf();
    alternate(below, sizeof below);
    HERE;
}
F void jumps_out_of_nested(void) {
    handle(SIGUSR1, nesting_jumping_handler, SA_ONSTACK);
    handle(SIGUSR2, jumping_handler, 0);
    if (!sigsetjmp(back, 1)) raises(SIGUSR1);
    leaf();
    HERE;
}
F void jumping_in_handler(int signal) {
    if (signal) siglongjmp(in, 1);
    HERE;
}
// A signal waits that the jump lets through before it is made: the handler runs where the jump is called, and may jump itself.
F void jumps_with_pending(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    raise(SIGUSR1);
    errno = 77;
    if (!sigsetjmp(in, 0)) siglongjmp(back, 1);
    leaf();
    HERE;
}
F void lets_through(void (*with)(int)) {
    handle(SIGUSR1, with, SA_NODEFER);
    if (!sigsetjmp(back, 1)) jumps_with_pending();
    if (errno == 77) leaf();
    HERE;
}
F void* ended(void* unused) {
    char stack[65536] __attribute__((aligned(16)));
    if (unused) alternate(stack, sizeof stack);
    handle(SIGUSR1, ending_handler, unused ? SA_ONSTACK : 0);
    raises(SIGUSR1);
    return unused;
}
F void joins(void* with) {
    pthread_t thread;
    pthread_create(&thread, 0, ended, with);
    pthread_join(thread, 0);
}
int main(void) {
    on_own_stack();
    alternate(below, sizeof below);
    on_alternate_stack();
    nested(0);
    nested(SA_ONSTACK);
    jumps_out(0);
    leaf();
    jumps_out(SA_ONSTACK);
    leaf();
    jumps_out_above();
    leaf();
    jumps_out_of_nested();
    leaf();
    lets_through(handler);
    lets_through(jumping_in_handler);
    joins(0);
    joins(below);
    return 0;
}
