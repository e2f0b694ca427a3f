/* Labels, instants, spans, threads left out, tracing disabled: everycall.h, in C and in C++. */
#include <everycall.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

static volatile int sink;
static int failures;

EVERYCALL_EXCLUDE static void expect(int result, int wanted, const char *what)
{
    if (result != wanted) {
        printf("%s: %d, not %d: %s\n", what, result, wanted, everycall_error(result));
        failures++;
    }
}

#define OK(call) expect(call, 0, #call)

NOINLINE void leaf(int n)
{
    sink = sink + n;
}

EVERYCALL_EXCLUDE NOINLINE void excluded(int n)
{
    sink = sink + n;
}

NOINLINE EVERYCALL_FORCE int request(int id)
{
    OK(everycall_label("request", (uint64_t)id));
    leaf(id);
    OK(everycall_instant("half"));
    excluded(id);
    leaf(id);
    return id;
}

static jmp_buf landing;

NOINLINE void jumps(void)
{
    leaf(1);
    longjmp(landing, 1);
}

/* The frame of jumps() is gone when the label comes. */
NOINLINE void lands(void)
{
    if (setjmp(landing) == 0)
        jumps();
    else
        OK(everycall_label("landed", 1));
    leaf(2);
}

NOINLINE void in_gap(void)
{
    leaf(3);
}

NOINLINE void returns_in_gap(int how)
{
    leaf(4);
    if (how)
        OK(everycall_disable());
    else
        OK(everycall_leave_thread_out());
}

static void *waits(void *pipe_ends)
{
    (void)pipe_ends;
    request(100);
    OK(everycall_leave_thread_out());
    in_gap();
    OK(everycall_label("not seen", 1));
    return 0;
}

static void *never(void *nothing)
{
    (void)nothing;
    in_gap();
    return 0;
}

EVERYCALL_EXCLUDE static void *left_out_from_the_start(void *nothing)
{
    OK(everycall_leave_thread_out());
    never(nothing);
    OK(everycall_take_thread_back());
    request(200);
    return 0;
}

EVERYCALL_EXCLUDE static void run_thread(void *(*body)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, 0, body, 0) == 0)
        pthread_join(thread, 0);
}

NOINLINE void gaps(void)
{
    returns_in_gap(0);
    in_gap();
    OK(everycall_take_thread_back());
    leaf(5);
    returns_in_gap(1);
    in_gap();
    run_thread(never);
    OK(everycall_label("not seen", 2));
    OK(everycall_disable());
    OK(everycall_enable());
    leaf(6);
}

EVERYCALL_EXCLUDE static void sizes(void)
{
    int i;
    expect(everycall_set_ring_size(100000), EVERYCALL_ERROR_ARGUMENT, "odd size");
    expect(everycall_set_ring_size(32768), EVERYCALL_ERROR_ARGUMENT, "small size");
    expect(everycall_label(0, 1), EVERYCALL_ERROR_ARGUMENT, "no name");
    OK(everycall_set_ring_size(4u << 20));
    for (i = 0; i < 100000; i++)
        leaf(i);
}

static volatile int stop;

NOINLINE static void *calls_until_stopped(void *nothing)
{
    (void)nothing;
    while (!stop) {
        leaf(1);
        leaf(2);
    }
    return 0;
}

/* Tracing off and on again while threads make calls and come and go. */
EVERYCALL_EXCLUDE static void toggle(void)
{
    pthread_t threads[3];
    int i;
    for (i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, calls_until_stopped, 0);
    for (i = 0; i < 2000; i++) {
        OK(everycall_disable());
        if (i % 50 == 0)
            run_thread(never);
        OK(everycall_enable());
        if (i % 50 == 0)
            run_thread(never);
    }
    stop = 1;
    for (i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
}

int main(int argc, char **argv)
{
    uint64_t before = everycall_now();
    double rate = (double)everycall_ticks_per_second();
    if (argc > 1 && strcmp(argv[1], "off") == 0) {
        /* Off from the start, on, off, on: two of four calls. */
        in_gap();
        OK(everycall_enable());
        request(1);
        OK(everycall_disable());
        in_gap();
        OK(everycall_enable());
        request(2);
        puts("there");
        return failures;
    }
    if (!everycall_is_there()) {
        expect(everycall_label("x", 1), EVERYCALL_ERROR_NOT_TRACED, "label");
        expect(everycall_disable(), EVERYCALL_ERROR_NOT_TRACED, "disable");
        expect(everycall_set_ring_size(65536), EVERYCALL_ERROR_NOT_TRACED, "size");
        puts("not there");
        return failures + (everycall_now() != 0) + (rate != 1e9);
    }
    OK(everycall_span_begin("all"));
    OK(everycall_span_begin_value("part", 1));
    request(42);
    lands();
    OK(everycall_span_end_value("part", 1));
    gaps();
    run_thread(waits);
    run_thread(left_out_from_the_start);
    OK(everycall_span_end("all"));
    if (argc > 1 && strcmp(argv[1], "sizes") == 0)
        sizes();
    if (argc > 1 && strcmp(argv[1], "toggle") == 0)
        toggle();
    if (everycall_now() <= before || rate < 1e8 || rate > 1e10) {
        printf("clock: %f\n", rate);
        failures++;
    }
    puts("there");
    return failures;
}
