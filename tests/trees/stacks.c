// Small stacks, deep ones, and some that overflow into a handler on an alternate stack, by a little and by far.
//
// flags: -pthread
//| main
//|   small_threads
//|   deep_thread
//|   overflows
//|     forever! ↓*
//|       on_overflow!
//|         leaf
//|     leaf
//|   overflows_far
//|     forever_further! ↓*
//|       on_overflow!
//|         leaf
//|     leaf
//|   leaf
//| --
//| small
//|   leaf ×100
//| --
//| small
//|   leaf ×100
//| --
//| deep
//|   down ↓100000
//|     leaf
//|   leaf
#include "tree.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static sigjmp_buf back;
static char alternate[65536] __attribute__((aligned(16)));

F void leaf(void) { HERE; }
F void* small(void* unused) {
    for (int i = 0; i < 100; i++) leaf();
    return unused;
}
F void small_threads(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        pthread_create(&thread, &attributes, small, 0);
        pthread_join(thread, 0);
    }
}
F void down(int depth) {
    if (depth == 1)
        leaf();
    else
        down(depth - 1);
    HERE;
}
F void* deep(void* unused) {
    down(100000);
    leaf();
    return unused;
}
F void deep_thread(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 20);
    pthread_create(&thread, &attributes, deep, 0);
    pthread_join(thread, 0);
}
F void on_overflow(int signal) {
    leaf();
    if (signal) siglongjmp(back, 1);
    HERE;
}
F void forever(void) {
    char room[4096];
    __asm__ volatile("" : : "r"(room) : "memory");
    forever();
    HERE;
}
F void overflows(void) {
    struct rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_STACK, &limit);
    stack_t which = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&which, 0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_overflow;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &action, 0);
    if (!sigsetjmp(back, 1)) forever();
    leaf();
    HERE;
}
// Nothing is mapped where the stack pointer is.
F void forever_further(void) {
    char room[1 << 18];
    *(volatile char*)room = 1;
    __asm__ volatile("" : : "r"(room) : "memory");
    forever_further();
    HERE;
}
F void overflows_far(void) {
    if (!sigsetjmp(back, 1)) forever_further();
    leaf();
    HERE;
}
int main(void) {
    small_threads();
    deep_thread();
    overflows();
    overflows_far();
    leaf();
    return 0;
}
