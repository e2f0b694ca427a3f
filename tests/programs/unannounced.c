/* Coroutines whose stacks are switched by code of the program's own that announces nothing. Their
   stacks are on the heap or, with an argument, in a local variable of main. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))
enum { COROUTINES = 4, STACK = 32768 };

typedef void *context;
__asm__(".text\n"
        ".globl switch_to\n"
        ".type switch_to,@function\n"
        "switch_to:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n"
        ".size switch_to, . - switch_to\n");
void switch_to(context *save, context to);

static context of_main, coroutine[COROUTINES];
static int is_done[COROUTINES], current, sum;

APART int leaf(int n) { __asm__ volatile(""); return n * 3; }

APART void yields(void) {
    switch_to(&coroutine[current], of_main);
    __asm__ volatile("");
}

APART int inner(int n) {
    int before = leaf(n);
    yields();
    return before + leaf(n + 1);
}

APART int outer(int n) {
    int total = 0;
    for (int i = 0; i < 5; i++)
        total += inner(n + i);
    __asm__ volatile("");
    return total;
}

APART void body(void) {
    sum += outer(current);
    is_done[current] = 1;
    yields();
    abort();
}

APART void resume(int number) {
    current = number;
    switch_to(&of_main, coroutine[number]);
    __asm__ volatile("");
}

int main(int words, char **unused) {
    char local[COROUTINES][STACK];
    for (int i = 0; i < COROUTINES; i++) {
        char *low = words > 1 ? local[i] : malloc(STACK);
        void **top = (void **)(((unsigned long)low + STACK - 64) & ~15UL);
        *--top = NULL;
        *--top = (void *)body;
        top -= 6;
        memset(top, 0, 6 * sizeof *top);
        coroutine[i] = top;
    }
    for (int left = COROUTINES; left > 0;) {
        left = 0;
        for (int i = 0; i < COROUTINES; i++) {
            if (is_done[i])
                continue;
            resume(i);
            left++;
        }
    }
    printf("%d\n", sum);
    (void)unused;
    return 0;
}
