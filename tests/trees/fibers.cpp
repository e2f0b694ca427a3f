// What may happen on a fiber's stack: exceptions, jumps, signals on it and beside it, tail calls; and stacks that begin anew.
//
//| main
//|   catches_outside
//|     leaf
//|     *throw int
//|     *catch int
//|     leaf
//|   catches_between
//|     leaf
//|   jumps_between
//|     leaf ×2
//|   signals
//|     leaf
//|   reused
//|     leaf ×2
//|   leaf
//| --
//| catches
//|   throws!
//|     *throw int
//|   *catch int
//|   leaf
//|   throws!
//|     *throw int
//|   *catch int
//|   leaf
//| is_left
//|   guarded!
//|     throws!
//|       *throw int
//|     Guard::~Guard()
//|       leaf ×2
//|   *catch int
//|   leaf
//| jumper!
//|   leaf ×2
//|   jumps_back!
//| is_interrupted
//|   on_stack
//|     leaf
//|   beside
//|     leaf
//|     on_stack
//|       leaf
//|   never_returns!
//|     leaf
//|   leaf
//| is_abandoned!
//|   waits!
//| second
//|   leaf
#include "tree.h"
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <exception>
#include <ucontext.h>

extern "C" {
constexpr unsigned SIZE = 65536;
static ucontext_t home, fiber;
static char stack[SIZE] __attribute__((aligned(16))), alternate[SIZE] __attribute__((aligned(16)));

F void leaf() { HERE; }
UNTRACED void begin(void (*entry)()) {
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = stack;
    fiber.uc_stack.ss_size = SIZE;
    fiber.uc_link = &home;
    makecontext(&fiber, entry, 0);
}
UNTRACED void go_on() { swapcontext(&home, &fiber); }
UNTRACED void suspend() { swapcontext(&fiber, &home); }

F void throws() { throw 1; }

// An exception that is caught on its stack, and one that is carried over to another.
static std::exception_ptr* carried;
F void catches() {
    try {
        throws();
    } catch (int) {
        leaf();
    }
    suspend();
    try {
        throws();
    } catch (int) {
        *carried = std::current_exception();
    }
    leaf();
    HERE;
}
F void catches_outside() {
    std::exception_ptr room;
    carried = &room;
    begin(catches);
    go_on();
    leaf();
    go_on();
    try {
        std::rethrow_exception(*carried);
    } catch (int) {
        leaf();
    }
    HERE;
}

// Suspended between what is thrown and what catches it: in a destructor.
struct Guard {
    F ~Guard() {
        leaf();
        suspend();
        leaf();
        HERE;
    }
};
F void guarded() {
    Guard guard;
    throws();
}
F void is_left() {
    try {
        guarded();
    } catch (int) {
        leaf();
    }
    HERE;
}
F void catches_between() {
    begin(is_left);
    go_on();
    leaf();
    go_on();
    HERE;
}

// A jump to another stack leaves no frame; one on the own stack does.
static jmp_buf at_home, on_fiber, within;
F void jumps_back() { longjmp(within, 1); }
F void jumper() {
    leaf();
    if (!setjmp(on_fiber)) longjmp(at_home, 1);
    leaf();
    if (!setjmp(within)) jumps_back();
    longjmp(at_home, 2);
}
F void jumps_between() {
    begin(jumper);
    volatile int times = 0;
    if (!setjmp(at_home)) setcontext(&fiber);
    leaf();
    times = times + 1;
    if (times == 1) longjmp(on_fiber, 1);
    HERE;
}

// Handlers run on the fiber's stack or on the thread's alternate one: they are calls of what they interrupted.
static sigjmp_buf out;
F void on_stack(int) {
    leaf();
    HERE;
}
F void beside(int) {
    leaf();
    std::raise(SIGUSR1);
    HERE;
}
F void never_returns(int) {
    leaf();
    siglongjmp(out, 1);
}
F void is_interrupted() {
    std::raise(SIGUSR1);
    std::raise(SIGUSR2);
    suspend();
    if (!sigsetjmp(out, 1)) std::raise(SIGHUP);
    leaf();
    HERE;
}
UNTRACED void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action;
    std::memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(signal, &action, nullptr);
}
F void signals() {
    stack_t which = {};
    which.ss_sp = alternate;
    which.ss_size = SIZE;
    sigaltstack(&which, nullptr);
    handle(SIGUSR1, on_stack, 0);
    handle(SIGUSR2, beside, SA_ONSTACK);
    handle(SIGHUP, never_returns, SA_ONSTACK);
    begin(is_interrupted);
    go_on();
    leaf();
    go_on();
    HERE;
}

// The stack of one that is never resumed, used for another.
F void waits() {
    suspend();
    HERE;
}
F void is_abandoned() {
    waits();
    HERE;
}
F void second() {
    leaf();
    HERE;
}
F void reused() {
    begin(is_abandoned);
    go_on();
    leaf();
    begin(second);
    go_on();
    leaf();
    HERE;
}
} // extern "C"
int main() {
    catches_outside();
    catches_between();
    jumps_between();
    signals();
    reused();
    leaf();
    return 0;
}
