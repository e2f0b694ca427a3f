// What nobody tells the tracer, and the same told. `unsure left|told`: frames are left by a jump that isn't wrapped, or by one that is. `unsure WHAT
// told|untold`: a stack is gone on with, WHAT being `call` (its function calls another one), `return` (it returns), `deeper` (another stack has
// begun in its memory, whose first call is another function, deeper in the stack).
#include "../trees/switch.h"
#include "everycall.h"
#include <setjmp.h>
#include <string.h>

enum { SIZE = 65536, SPACE = 2048 };
static void *home, *left, *low;
static int is_told, returns;
static jmp_buf target;
static void* builtin_target[5];

F void leaf(void) { HERE; }
F void other(void) {
    leaf();
    HERE;
}
F void jumps(void) {
    leaf();
    if (is_told) longjmp(target, 1);
    __builtin_longjmp(builtin_target, 1);
}
F void between(void) {
    jumps();
    HERE;
}
F void catches_told(void) {
    if (setjmp(target) == 0) between();
    leaf();
    HERE;
}
F void catches(void) {
    if (__builtin_setjmp(builtin_target) == 0) between();
    leaf();
    HERE;
}
F void waits(void) {
    leaf();
    switch_stack(&left, home);
    if (!returns) leaf();
    HERE;
}
F void outer(void) {
    waits();
    leaf();
    HERE;
}
UNTRACED static void begin(void* unused) {
    (void)unused;
    outer();
    switch_stack(&left, home);
}
UNTRACED static void begin_deeper(void* unused) {
    char space[SPACE];
    memset(space, 0, sizeof space);
    __asm__ volatile("" : : "r"(space) : "memory");
    (void)unused;
    other();
    switch_stack(&left, home);
}
UNTRACED static void fresh(void (*entry)(void*)) {
    if (is_told) everycall_fiber(low, SIZE, 0);
    left = fresh_stack(low, SIZE, entry, 0);
}
F void runs(void) {
    switch_stack(&home, left);
    leaf();
    HERE;
}
int main(int count, char** words) {
    const char* what = count > 1 ? words[1] : "";
    is_told = strcmp(words[count - 1], "told") == 0;
    if (strcmp(what, "left") == 0) catches();
    if (strcmp(what, "told") == 0) catches_told();
    if (count < 3) return 0;
    returns = strcmp(what, "return") == 0;
    low = map_stack(SIZE);
    fresh(begin);
    runs();
    if (strcmp(what, "deeper") == 0) fresh(begin_deeper);
    runs();
    return 0;
}
