// Calls of functions whose values may be recorded: ROUNDS rounds, in each of which each function is
// called 2,000 times in turn. Prints, for each round and function, its name and nanoseconds per
// call.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N __attribute__((noinline, noipa))
#define UNTRACED __attribute__((noinline, noipa, no_instrument_function, patchable_function_entry(0, 0)))

static volatile long sink;

UNTRACED void empty(int a, int b) { sink += a ^ b; }
N void plain(int a, int b) { sink += a ^ b; }
N void ints(int a, int b) { sink += a ^ b; }
N void kept(int a, int b) { sink += a ^ b; }
N void left(int a, int b) { sink += a ^ b; }
N void text(const char *s) { sink += s != NULL; }
N void heap(const char *s) { sink += s != NULL; }
N void literal(const char *s) { sink += s != NULL; }
N void other(const char *s) { sink += s != NULL; }
N int result(int a) {
    sink += a;
    return a;
}

UNTRACED static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 15;
    char stack[32] = "sixteen bytes ab";
    char *copied = strdup(stack);
    for (int round = 0; round < rounds; round++) {
#define TIMED(name, call)                                   \
    do {                                                    \
        double begin = now();                               \
        for (int i = 0; i < 2000; i++) call;                \
        printf("%s %.2f\n", name, (now() - begin) / 2000); \
    } while (0)
        TIMED("empty", empty(i, i + 1));
        TIMED("plain", plain(i, i + 1));
        TIMED("ints", ints(i, i + 1));
        TIMED("kept", kept(i, i + 1));
        TIMED("left", left(i, i + 1));
        TIMED("text", text(stack));
        TIMED("heap", heap(copied));
        TIMED("literal", literal("sixteen bytes ab"));
        TIMED("other", other(stack));
        TIMED("result", result(i));
    }
    free(copied);
    return 0;
}
