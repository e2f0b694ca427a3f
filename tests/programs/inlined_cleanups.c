// A thread ends in a function that was inlined into another one; both have something to clean up.
#include <pthread.h>
#include "../trees/tree.h"
#define INLINED static inline __attribute__((always_inline))

F void inner_cleanup(int* i) {
    (void)i;
    HERE;
}
F void outer_cleanup(int* i) {
    (void)i;
    HERE;
}
F void ends() { pthread_exit(0); }
INLINED void holds(int* i) {
    __attribute__((cleanup(inner_cleanup))) int inner = *i;
    ends();
    *i = inner;
    HERE;
}
F void passes(int* i) {
    __attribute__((cleanup(outer_cleanup))) int outer = *i;
    holds(i);
    *i = outer;
    HERE;
}
static void* run(void* argument) {
    passes(argument);
    HERE;
    return argument;
}
int main() {
    int i = 1;
    pthread_t thread;
    pthread_create(&thread, 0, run, &i);
    pthread_join(thread, 0);
    return 0;
}
