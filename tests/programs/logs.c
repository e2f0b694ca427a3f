/* Log lines and counters from everywhere that a program can write them; C and C++. The journal on standard output is what the C library's
 * printf makes of the same formats and arguments, behind the thread's number. */
#include <everycall.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define COUNT 3000

static uint64_t failures;
static volatile int sink;
static volatile int handled;

EVERYCALL_EXCLUDE static void failed(int result)
{
    if (result != 0)
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

EVERYCALL_EXCLUDE __attribute__((format(printf, 1, 2))) static void journal(const char *format, ...)
{
    char line[1024];
    int length = snprintf(line, sizeof line, "%ld ", (long)syscall(SYS_gettid));
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - 2 - (size_t)length, format, arguments);
    va_end(arguments);
    line[length++] = '\n';
    if (write(1, line, (size_t)length) != length)
        abort();
}

/* A line in both. */
#define BOTH(...)                          \
    do {                                   \
        failed(everycall_log(__VA_ARGS__)); \
        journal(__VA_ARGS__);              \
    } while (0)

enum colour { RED, GREEN };

NOINLINE void leaf(int n)
{
    sink = sink + n;
}

EVERYCALL_EXCLUDE __attribute__((constructor)) static void before_main(void)
{
    BOTH("before main, %d", 1);
}

NOINLINE EVERYCALL_FORCE static void conversions(void)
{
    char buffer[16] = "in an array";
    const char *constant = "constant";
    signed char tiny = -3;
    unsigned short small = 65535;
    float single = 0.1f;
    enum colour colour = GREEN;
    int evaluated = 0;
    BOTH("nothing but a text, 100%%");
    BOTH("%d %i %u %x %X %o %c", -1, 2, 3u, 255u, 255u, 8u, 'c');
    BOTH("%5d|%-5d|%05d|%+d|% d|%.3d", 1, 2, 3, 4, 5, 6);
    BOTH("%ld %lu %lx %zu %td", -1L, 18446744073709551615ul, 1ul << 40, sizeof buffer, (ptrdiff_t)-4);
    BOTH("%hhd %hu %d", tiny, small, colour);
    BOTH("%f %.2f %e %g %g %g %G", 1.5, 2.345, 12345.678, 1e-5, 100000.0, 1e20, 0.0001);
    BOTH("%08.3f|%-8.1f|%+.0f|%#.0f|%5.1f", 3.14159, 2.5, 7.0, 8.0, (double)single);
    BOTH("%Lf", (long double)0.25);
    BOTH("%s %s %s", "literal", buffer, constant);
    BOTH("%10s|%-10s|%.3s|%.*s|%*d", "right", "left", "cut off", 2, "abc", 6, 42);
    BOTH("%p %p %p", (void *)&sink, (void *)0, (const void *)buffer);
    BOTH("%s", "\303\251t\303\251 \360\237\230\200 \"quoted\" \\ <tag>");
    BOTH("%d %d %d %d %d %d %d %d %d %d", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    BOTH("%s%s%s%s%s%s%s%s%s%s", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j");
    /* Not a string: printf reads five bytes, and so may we. */
    {
        char unended[5] = {'h', 'e', 'l', 'l', 'o'};
        BOTH("%.5s", unended);
        BOTH("%.*s", 5, unended);
    }
    failed(everycall_log("%d", evaluated++));
    journal("%d", 0);
    if (evaluated != 1)
        failed(1);
}

NOINLINE static void made_at_run_time(void)
{
    char format[32];
    strcpy(format, "made: %d %s");
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#endif
    failed(everycall_log(format, 5, "x"));
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
    memset(format, '#', sizeof format - 1);
    journal("made: 5 x");
}

EVERYCALL_EXCLUDE static void handler(int signal)
{
    handled = handled + 1;
    BOTH("handler %d of signal %d, %s", handled, signal, "interrupting");
    failed(everycall_counter("handled", handled));
    leaf(signal);
}

EVERYCALL_EXCLUDE static void at_thread_end(void *number)
{
    BOTH("end of thread %d", *(int *)number);
}

static pthread_key_t key;

NOINLINE EVERYCALL_FORCE static void *writes(void *number)
{
    int i;
    pthread_setspecific(key, number);
    for (i = 0; i < COUNT; i++) {
        switch (i % 4) {
        case 0:
            BOTH("thread %d at %d", *(int *)number, i);
            break;
        case 1:
            BOTH("thread %d at %d: %s", *(int *)number, i, i % 8 == 1 ? "odd" : "a text that is a little longer");
            break;
        case 2:
            BOTH("thread %d: %g of %ld", *(int *)number, i / 8.0, (long)i << 33);
            break;
        default:
            failed(everycall_counter("steps", i - 100));
            failed(everycall_counter_double("share", i / 8.0));
        }
        if (i % 3 == 0)
            leaf(i);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct sigaction action;
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    pthread_t threads[2];
    static int numbers[] = {1, 2, 3};
    sigset_t signals;
    pid_t child;
    int i, status = 0;
    if (argc > 1 && strcmp(argv[1], "refused") == 0) {
        /* Neither is an error of printf, or needs to be shown as it would. */
        int written = 0;
        failed(everycall_log("written: %n", &written));
        failed(everycall_log("null: %s", (const char *)(argc > 99 ? "" : 0)));
        everycall_disable();
        failed(everycall_log("not seen %d", 1));
        failed(everycall_counter("not seen", 1));
        everycall_enable();
        everycall_leave_thread_out();
        failed(everycall_log("not seen %d", 2));
        failed(everycall_counter("not seen", 2));
        everycall_take_thread_back();
        {
            char long_text[300];
            memset(long_text, 'x', sizeof long_text - 1);
            long_text[sizeof long_text - 1] = 0;
            failed(everycall_log("%s|%s|%s|%s|%s|%s|%s|%s|%s|%s", long_text, long_text, long_text, long_text, long_text, long_text,
                                 long_text, long_text, long_text, long_text));
        }
        return failures != 0;
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART; /* of the journal's `write` */
    sigaction(SIGALRM, &action, 0);
    pthread_key_create(&key, at_thread_end);
    conversions();
    made_at_run_time();
    sigemptyset(&signals);
    sigaddset(&signals, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &signals, 0);
    for (i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, writes, &numbers[i]);
    pthread_sigmask(SIG_UNBLOCK, &signals, 0);
    setitimer(ITIMER_REAL, &often, 0);
    writes(&numbers[2]);
    for (i = 0; i < 200000 && handled < 20; i++)
        leaf(1);
    setitimer(ITIMER_REAL, &never, 0);
    pthread_sigmask(SIG_BLOCK, &signals, 0);
    for (i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    child = fork();
    if (child == 0) {
        BOTH("in the child of %ld: %s", (long)getppid(), argv[0]);
        _exit(failures != 0);
    }
    waitpid(child, &status, 0);
    BOTH("the child ended with %d", status);
    return failures != 0 || status != 0;
}
