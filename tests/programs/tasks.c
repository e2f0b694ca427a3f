/* Two tasks, whose steps a loop runs in turn: state machines, as compilers make them of coroutines. */
#include <everycall.h>
#include <stdio.h>

#define NOINLINE __attribute__((noinline))

static volatile int sum;

NOINLINE static void work(int n) { sum += n; }

/* Waits twice: each call goes on where the one before waited. */
NOINLINE static int reading(int *state)
{
    work(*state);
    return ++*state < 3;
}

/* Not a tail call, which would end this one first. */
NOINLINE static int fetching(int *state)
{
    int waits = reading(state);
    sum++;
    return waits;
}

NOINLINE static void step(int number, const char *name, int *state)
{
    /* What wakes the second one is known. */
    if (number == 2)
        everycall_task_step(2, (uint32_t)*state + 1, name);
    else
        everycall_task_begin((uint32_t)number, name);
    int waits = fetching(state);
    everycall_task_end((uint32_t)number, waits ? 2 : 0);
}

int main(void)
{
    int states[2] = {0, 0};
    for (int turn = 0; turn < 3; turn++) {
        step(1, "first", &states[0]);
        everycall_task_wake(2, (uint32_t)states[1] + 1, "second");
        step(2, "second", &states[1]);
    }
    puts(everycall_task_begin(3, NULL) == EVERYCALL_ERROR_ARGUMENT || !everycall_is_there() ? "there" : "wrong");
    return 0;
}
