// Stacks that are switched by hand, of which nobody was told: pairs that hand over to each other, deep ones, threads that run on others'
// stacks only, stacks that go from thread to thread.
//
// flags: -pthread
// not in: untouched
//| main
//|   hands_over
//|     leaf
//|   leaf
//|   runs_deep
//|     leaf
//|   leaf
//|   migrates
//|     leaf
//|   leaf
//|   only_on_others
//|   leaf
//| --
//| ping
//|   turn
//|     leaf
//|   turn
//|     leaf
//|   turn
//|     leaf
//| --
//| pong
//|   turn
//|     leaf
//|   turn
//|     leaf
//| --
//| deep
//|   down ↓1000
//|     turn
//|       leaf
//|   leaf
//| --
//| travels
//|   part
//|     leaf ×2
//|   leaf
//| --
//| other_thread
//|   leaf ×2
//| --
//| alone
//|   leaf
#include "switch.h"
#include <pthread.h>

enum { SIZE = 65536, LARGE = 1 << 20 };
static void *home, *stacks[2];

F void leaf(void) { HERE; }

// What the stack's function was, and where it goes when that has returned.
struct Job {
    void (*run)(void);
    void** to;
};
UNTRACED void begin(void* argument) {
    struct Job* job = argument;
    void* left;
    job->run();
    switch_stack(&left, *job->to);
}

F void turn(int mine, void** to) {
    switch_stack(&stacks[mine], *to);
    leaf();
    HERE;
}
F void ping(void) {
    for (int i = 0; i < 3; i++) turn(0, &stacks[1]);
    HERE;
}
F void pong(void) {
    for (int i = 0; i < 2; i++) turn(1, &stacks[0]);
    HERE;
}
// main, ping, pong, ping, pong, ping: each from the other one.
F void hands_over(void) {
    struct Job jobs[2] = {{ping, &home}, {pong, &stacks[0]}};
    for (int i = 0; i < 2; i++) stacks[i] = fresh_stack(map_stack(SIZE), SIZE, begin, &jobs[i]);
    switch_stack(&home, stacks[0]);
    leaf();
    HERE;
}

F void down(int depth) {
    char room[512];
    __asm__ volatile("" : : "r"(room) : "memory");
    if (depth == 1)
        turn(0, &home);
    else
        down(depth - 1);
    HERE;
}
F void deep(void) {
    down(1000);
    leaf();
    HERE;
}
F void runs_deep(void) {
    struct Job job = {deep, &home};
    stacks[0] = fresh_stack(map_stack(LARGE), LARGE, begin, &job);
    switch_stack(&home, stacks[0]);
    leaf();
    switch_stack(&home, stacks[0]);
    HERE;
}

static void* other_home;
F void part(void) {
    leaf();
    switch_stack(&stacks[0], home);
    leaf();
    HERE;
}
F void travels(void) {
    part();
    leaf();
    HERE;
}
F void* other_thread(void* unused) {
    leaf();
    switch_stack(&other_home, stacks[0]);
    leaf();
    HERE;
    return unused;
}
// Begun here, finished by another thread.
F void migrates(void) {
    struct Job job = {travels, &other_home};
    stacks[0] = fresh_stack(map_stack(SIZE), SIZE, begin, &job);
    switch_stack(&home, stacks[0]);
    leaf();
    pthread_t thread;
    pthread_create(&thread, 0, other_thread, 0);
    pthread_join(thread, 0);
    HERE;
}

F void alone(void) {
    leaf();
    HERE;
}
UNTRACED void* no_calls_of_its_own(void* unused) {
    struct Job job = {alone, &other_home};
    switch_stack(&other_home, fresh_stack(map_stack(SIZE), SIZE, begin, &job));
    return unused;
}
F void only_on_others(void) {
    pthread_t thread;
    pthread_create(&thread, 0, no_calls_of_its_own, 0);
    pthread_join(thread, 0);
    HERE;
}
int main(void) {
    hands_over();
    leaf();
    runs_deep();
    leaf();
    migrates();
    leaf();
    only_on_others();
    leaf();
    return 0;
}
