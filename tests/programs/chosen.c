// Leaves functions out and takes them back by everycall.h, and selects functions by a file. It
// counts by itself which calls are to be recorded: "name calls" for each function.
//
//   chosen SELECTION OTHER
//
// SELECTION selects `blue`; OTHER is a selection of another program. Meanwhile threads and a signal
// handler switch other functions.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "everycall.h"

#define NOINLINE __attribute__((noinline))

enum { RED, GREEN, BLUE, COUNT };

static int is_on[COUNT] = {1, 1, 1};
static long recorded[COUNT];
static volatile int is_over;
static volatile long wrong;

NOINLINE long red(long n) { __asm__ volatile(""); return n + 1; }
NOINLINE long green(long n) { __asm__ volatile(""); return n + 2; }
NOINLINE long blue(long n) { __asm__ volatile(""); return red(n) + green(n); }
NOINLINE long work_one(long n) { __asm__ volatile(""); return n * 3; }
NOINLINE long work_two(long n) { __asm__ volatile(""); return work_one(n) + 1; }

static void steps(void) {
    for (long n = 0; n < 10; n++) {
        if (red(n) + green(n) + blue(n) != n * 4 + 6)
            wrong++;
        recorded[RED] += 2 * is_on[RED];
        recorded[GREEN] += 2 * is_on[GREEN];
        recorded[BLUE] += is_on[BLUE];
    }
}

static void expect(int is_so, const char *what, int result) {
    if (!is_so) {
        printf("%s: %d, %s\n", what, result, everycall_error(result));
        exit(1);
    }
}

// Others may be switching.
static int patiently(int is_enabling, const everycall_function *functions, size_t count, everycall_switched *switched) {
    int result;
    do
        result = (is_enabling ? everycall_enable_functions : everycall_disable_functions)(functions, count, switched);
    while (result == EVERYCALL_ERROR_BUSY);
    return result;
}

static int select_patiently(const char *path) {
    int result;
    do
        result = everycall_select_functions(path);
    while (result == EVERYCALL_ERROR_BUSY);
    return result;
}

static void *work(void *unused) {
    for (long n = 0; !is_over; n++)
        if (work_two(n) != n * 3 + 1)
            wrong++;
    return unused;
}

static void *toggle(void *unused) {
    everycall_function one = (everycall_function)work_one;
    for (long n = 0; !is_over; n++) {
        int result = n % 2 ? everycall_enable_functions(&one, 1, NULL) : everycall_disable_functions(&one, 1, NULL);
        if (result != 0 && result != EVERYCALL_ERROR_BUSY)
            wrong++;
    }
    return unused;
}

static void on_alarm(int number) {
    static int times;
    everycall_function two = (everycall_function)work_two;
    (void)number;
    if (times++ % 2)
        (void)everycall_enable_functions(&two, 1, NULL);
    else
        (void)everycall_disable_functions(&two, 1, NULL);
}

int main(int count, char **arguments) {
    pthread_t threads[2];
    everycall_switched switched;
    everycall_function functions[100];
    int result, i;
    struct itimerval every = {{0, 2000}, {0, 2000}};
    struct sigaction action;
    if (count != 3)
        return 2;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    pthread_create(&threads[0], NULL, work, NULL);
    pthread_create(&threads[1], NULL, toggle, NULL);

    steps();
    functions[0] = (everycall_function)red;
    result = patiently(0, functions, 1, &switched);
    expect(result == 0 && switched.functions == 1 && switched.not_switched == 0, "red goes off", result);
    is_on[RED] = 0;
    steps();

    // Any address within a function names it; and what is no traced function is passed over.
    functions[1] = (everycall_function)((char *)green + 3);
    functions[2] = (everycall_function)strtol;
    functions[3] = NULL;
    result = patiently(0, functions, 4, &switched);
    expect(result == 0 && switched.functions == 2, "green goes off", result);
    is_on[GREEN] = 0;
    steps();
    result = patiently(0, functions + 2, 2, &switched);
    expect(result == EVERYCALL_ERROR_NO_FUNCTION && switched.functions == 0, "no function", result);
    result = everycall_disable_functions(NULL, 1, NULL);
    expect(result == EVERYCALL_ERROR_ARGUMENT, "no list", result);

    // A child has its parent's functions.
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        memset(recorded, 0, sizeof recorded);
        steps();
        _exit(recorded[BLUE] == 10 && wrong == 0 ? 0 : 1);
    }
    waitpid(child, &result, 0);
    expect(result == 0, "child", result);
    recorded[BLUE] += 10;

    for (i = 0; i < 100; i++)
        functions[i] = (everycall_function)(i == 70 ? (void (*)(void))red : (void (*)(void))green);
    result = patiently(1, functions, 100, NULL);
    expect(result == 0, "both go on", result);
    is_on[RED] = is_on[GREEN] = 1;
    steps();

    result = select_patiently("/nowhere/selection.ecs");
    expect(result == EVERYCALL_ERROR_NO_SELECTION, "no file", result);
    result = select_patiently(arguments[0]);
    expect(result == EVERYCALL_ERROR_NO_SELECTION, "another kind of file", result);
    result = select_patiently(arguments[2]);
    expect(result == EVERYCALL_ERROR_NO_FUNCTION, "another program's selection", result);
    steps();
    result = select_patiently(arguments[1]);
    expect(result == 0, "a selection", result);
    is_on[RED] = is_on[GREEN] = 0;
    steps();
    // What is left out stays so, whatever selects it.
    functions[0] = (everycall_function)blue;
    result = patiently(0, functions, 1, &switched);
    expect(result == 0 && switched.functions == 1, "blue goes off", result);
    is_on[BLUE] = 0;
    steps();
    result = select_patiently(NULL);
    expect(result == 0, "all functions", result);
    is_on[RED] = is_on[GREEN] = 1;
    steps();

    is_over = 1;
    for (i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("red %ld\ngreen %ld\nblue %ld\n", recorded[RED], recorded[GREEN], recorded[BLUE]);
    return wrong != 0;
}
