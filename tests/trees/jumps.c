// longjmp in all its forms, across many frames, the checked forms of _FORTIFY_SOURCE, and back into a recursion.
//
// flags: -D_FORTIFY_SOURCE=2 -Wno-cpp -pthread
//| main
//|   many_frames
//|     down! ↓9
//|     leaf
//|   leaf
//|   with_mask
//|     jumps_with_mask!
//|     leaf
//|   leaf
//|   underscore
//|     jumps_underscore!
//|     leaf
//|   leaf
//|   recursion ↓3
//|     recursion! ↓4
//|     leaf
//|   leaf
//|   twice
//|     jumper! ×3
//|     leaf
//|   leaf
//|   many_arguments
//|     jumps_with_arguments!
//|     takes_arguments
//|       leaf
//|   leaf
//|   within
//|     inner
//|       jumper!
//|       leaf
//|     jumper!
//|     leaf
//|   leaf
//|   joins
//| --
//| first_call!
//| second_call
//|   leaf
#include "tree.h"
#include <pthread.h>
#include <setjmp.h>

static jmp_buf back, outer;
static sigjmp_buf signal_back;
static volatile int zero, count;

F void leaf(void) { HERE; }
F void down(int depth) {
    if (depth == 0) longjmp(back, 1);
    down(depth - 1);
    HERE;
}
F void many_frames(void) {
    if (!setjmp(back)) down(8);
    leaf();
    HERE;
}
F void jumps_with_mask(void) {
    if (zero == 0) siglongjmp(signal_back, 1);
    HERE;
}
F void with_mask(void) {
    if (!sigsetjmp(signal_back, 1)) jumps_with_mask();
    leaf();
    HERE;
}
F void jumps_underscore(void) {
    if (zero == 0) _longjmp(back, 1);
    HERE;
}
F void underscore(void) {
    if (!_setjmp(back)) jumps_underscore();
    leaf();
    HERE;
}
F void recursion(int depth) {
    if (depth == 0) longjmp(back, 1);
    if (depth == 4) {
        if (!setjmp(back)) recursion(depth - 1);
        leaf();
    } else {
        recursion(depth - 1);
    }
    HERE;
}
F void jumper(jmp_buf* to) {
    if (zero == 0) longjmp(*to, 1);
    HERE;
}
F void twice(void) {
    count = 0;
    setjmp(back);
    if (++count < 4) jumper(&back);
    leaf();
    HERE;
}
// What is called afterwards lies deeper in the stack than the frame that was left.
F void takes_arguments(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l) {
    zero = a + b + c + d + e + f + g + h + i + j + k + l - 78;
    leaf();
    HERE;
}
F void jumps_with_arguments(int a, int b, int c, int d, int e, int f, int g, int h, int i) {
    if (a + b + c + d + e + f + g + h + i == 45) longjmp(back, 1);
    HERE;
}
F void many_arguments(void) {
    if (!setjmp(back)) jumps_with_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9);
    takes_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    HERE;
}
F void inner(void) {
    if (!setjmp(back)) jumper(&back);
    leaf();
    HERE;
}
F void within(void) {
    if (!setjmp(outer)) {
        inner();
        jumper(&outer);
    }
    leaf();
    HERE;
}
F void first_call(void) {
    if (zero == 0) longjmp(back, 1);
    HERE;
}
F void second_call(void) {
    leaf();
    HERE;
}
// The thread's first traced call is left.
UNTRACED void* starts(void* unused) {
    if (!setjmp(back)) first_call();
    second_call();
    HERE;
    return unused;
}
F void joins(void) {
    pthread_t thread;
    pthread_create(&thread, 0, starts, 0);
    pthread_join(thread, 0);
}
int main(void) {
    many_frames();
    leaf();
    with_mask();
    leaf();
    underscore();
    leaf();
    recursion(6);
    leaf();
    twice();
    leaf();
    many_arguments();
    leaf();
    within();
    leaf();
    joins();
    return 0;
}
