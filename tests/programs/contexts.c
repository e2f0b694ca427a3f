// Fibers that take turns: contexts SWITCH MEMORY THREADS. Each runs the same calls, and gives way in the middle of them.
//
// SWITCH: ucontext (swapcontext), assembly (nobody tells of its stacks), jumps (_longjmp from stack to stack).
// MEMORY: static, heap, mapped (guards between them), local (variables of main).
// THREADS: who lets them run: main (1), or one thread after the other.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__clang__)
#define EXCLUDED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#define CALL __attribute__((noinline, xray_always_instrument))
#else
#define EXCLUDED __attribute__((no_instrument_function, noinline))
#define CALL __attribute__((noinline, noclone))
#endif

enum { FIBERS = 4, TURNS = 4, SIZE = 64 << 10 };

static char static_stacks[FIBERS][SIZE] __attribute__((aligned(16)));
static char* stacks[FIBERS];
static int switches_by; // 0 ucontext, 1 assembly, 2 jumps
static int are_done;

static ucontext_t fiber_contexts[FIBERS], home_context;
static jmp_buf fiber_jumps[FIBERS], home_jump;
static int has_begun[FIBERS];
static void *fiber_pointers[FIBERS], *home_pointer;

// Puts what calls keep on the stack, the stack pointer into *from, and goes on at `to`.
void switch_stacks(void** from, void* to);
__asm__(".text\n.globl switch_stacks\n.type switch_stacks, @function\nswitch_stacks:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

EXCLUDED static void give_way(int fiber) {
    if (switches_by == 0) swapcontext(&fiber_contexts[fiber], &home_context);
    if (switches_by == 1) switch_stacks(&fiber_pointers[fiber], home_pointer);
    if (switches_by == 2 && !_setjmp(fiber_jumps[fiber])) _longjmp(home_jump, 1);
}

static volatile int sum;
CALL static void leaf(int n) { sum += n; }
CALL static void yield(int fiber) { leaf(fiber); give_way(fiber); leaf(fiber); sum++; }
CALL static void step(int fiber) { leaf(fiber); yield(fiber); leaf(fiber); sum++; }
CALL static void run(int fiber) { for (int turn = 1; turn < TURNS; turn++) step(fiber); sum++; }

EXCLUDED static void fiber_main(int fiber) {
    run(fiber);
    are_done++;
    give_way(fiber);
    abort();
}

EXCLUDED static void begin_by_assembly(void) {
    register long fiber __asm__("rbx");
    __asm__ volatile("" : "=r"(fiber));
    fiber_main(fiber);
}

CALL static void resume(int fiber) {
    if (switches_by == 0) swapcontext(&home_context, &fiber_contexts[fiber]);
    if (switches_by == 1) switch_stacks(&home_pointer, fiber_pointers[fiber]);
    if (switches_by == 2 && !_setjmp(home_jump)) {
        if (has_begun[fiber]) _longjmp(fiber_jumps[fiber], 1);
        has_begun[fiber] = 1;
        setcontext(&fiber_contexts[fiber]);
    }
    sum++;
}

CALL static void* let_all_run(void* unused) {
    for (int fiber = 0; fiber < FIBERS; fiber++) resume(fiber);
    sum++;
    return unused;
}

EXCLUDED static void make(int fiber) {
    if (switches_by != 1) {
        getcontext(&fiber_contexts[fiber]);
        fiber_contexts[fiber].uc_stack.ss_sp = stacks[fiber];
        fiber_contexts[fiber].uc_stack.ss_size = SIZE;
        makecontext(&fiber_contexts[fiber], (void (*)(void))fiber_main, 1, fiber);
        return;
    }
    void** top = (void**)(stacks[fiber] + SIZE);
    *--top = 0;
    *--top = (void*)begin_by_assembly;
    for (int i = 0; i < 6; i++) *--top = i == 1 ? (void*)(long)fiber : 0; // the second one is rbx
    top[4] = (void*)(long)fiber;
    fiber_pointers[fiber] = top;
}

CALL static void all(int threads) {
    for (int fiber = 0; fiber < FIBERS; fiber++) make(fiber);
    for (int turn = 0; turn < TURNS; turn++) {
        pthread_t thread;
        if (threads == 1) {
            let_all_run(0);
        } else {
            pthread_create(&thread, 0, let_all_run, 0);
            pthread_join(thread, 0);
        }
    }
    sum++;
}

int main(int count, char** words) {
    if (count < 4) return 2;
    switches_by = !strcmp(words[1], "assembly") ? 1 : !strcmp(words[1], "jumps") ? 2 : 0;
    char local[FIBERS][SIZE] __attribute__((aligned(16)));
    for (int fiber = 0; fiber < FIBERS; fiber++) {
        if (!strcmp(words[2], "static")) stacks[fiber] = static_stacks[fiber];
        if (!strcmp(words[2], "heap")) stacks[fiber] = aligned_alloc(16, SIZE);
        if (!strcmp(words[2], "local")) stacks[fiber] = local[fiber];
        if (!strcmp(words[2], "mapped")) {
            stacks[fiber] = (char*)mmap(0, SIZE + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096;
            mprotect(stacks[fiber] - 4096, 4096, PROT_NONE);
        }
    }
    all(words[3][0] - '0');
    printf("%d of %d, %d\n", are_done, FIBERS, sum);
    return 0;
}
