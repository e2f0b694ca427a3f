// Calls a function as often as it can, and others now and then, until it is told to go on; then calls all of them now and then.
//   budgeted [fork]
// "ready" is printed at the beginning of both phases. At the end of its input it prints how often it called each function.
// With "fork", a child does the same, and its parent waits.
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

// With FRAMES, the functions report themselves as frames by id.
enum { HOT = 1, COLD, RARE };
#ifdef FRAMES
#include "everycall.h"
#define ENTER(id) everycall_frame_enter(id)
#define LEAVE(id) everycall_frame_leave(id)
#define NAME(id, name) everycall_frame_name(id, name, "budgeted.lua", id)
#else
#define ENTER(id) (void)0
#define LEAVE(id) (void)0
#define NAME(id, name) (void)0
#endif

static unsigned long hot_calls, cold_calls, rare_calls;
static volatile unsigned long sum;

NOINLINE void hot(void) {
    ENTER(HOT);
    hot_calls++;
    sum += hot_calls & 7;
    LEAVE(HOT);
}
NOINLINE void cold(void) {
    ENTER(COLD);
    cold_calls++;
    sum += 3;
    __asm__ volatile("");
    LEAVE(COLD);
}
NOINLINE void rare(int calls) {
    ENTER(RARE);
    rare_calls++;
    for (int i = 0; i < calls; i++) hot();
    cold();
    __asm__ volatile("");
    LEAVE(RARE);
}

// Whether the input has something, or an end.
static __attribute__((no_instrument_function)) int is_told(int milliseconds) {
    struct pollfd input = {0, POLLIN, 0};
    return poll(&input, 1, milliseconds) > 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "fork") && fork() != 0) {
        int status = 0;
        wait(&status);
        return WEXITSTATUS(status);
    }
    char told;
    NAME(HOT, "hot");
    NAME(COLD, "cold");
    NAME(RARE, "rare");
    puts("ready");
    fflush(stdout);
    do rare(200000);
    while (!is_told(0));
    if (read(0, &told, 1) == 1) {
        puts("ready");
        fflush(stdout);
        while (!is_told(2)) rare(5);
    }
    unsigned long wanted = 3 * cold_calls;
    for (unsigned long i = 1; i <= hot_calls; i++) wanted += i & 7;
    printf("hot %lu\ncold %lu\nrare %lu\n%s\n", hot_calls, cold_calls, rare_calls, sum == wanted ? "right" : "wrong");
    return 0;
}
