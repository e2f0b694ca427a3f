// Writes down the arguments and results of its own calls, as everycall shows them.
//   values CALLS   calls each function so often, with other values each time
//   values CALLS s   the same, while a timer interrupts it; its handler calls a function, too
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __clang__
#define N __attribute__((noinline))
#else
#define N __attribute__((noinline, noipa))
#endif

struct point {
    int x;
    long y;
};

static volatile long sink;

N int two(int a, long b) {
    sink += a;
    return (int)(a ^ b);
}
N long text(const char *s, unsigned char c) {
    sink += c;
    return s != NULL;
}
N double floats(float a, double b) { return (double)a * 2 + b; }
N long many(long a, long b, long c, long d, long e, long f, long g, int h, const char *i) {
    sink += h + (i != NULL);
    return a + b + c + d + e + f + g;
}
N struct point make(int x, long y) {
    struct point made = {x + 1, y - 1};
    sink += x;
    return made;
}
N long double wide(int x) { return (long double)x / 2; }
N long handler_of(long n, double d) {
    sink += (long)d;
    return n * 2;
}
N long tail(long n) { return handler_of(n, 0.5); }

static uint64_t state = 88172645463325252;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static volatile sig_atomic_t handled;
static void on_timer(int number) {
    (void)number;
    int before = errno;
    handled++;
    if (handler_of(handled, 1.25) != handled * 2) abort();
    errno = before;
}

static void shown(const char *name, const char *text) { printf("%s %s\n", name, text); }

static void round_of(char *heap, char *none) {
    char line[512], stack[32];
    const char *literal = "a literal";
    int a = (int)next();
    long b = (long)next();
    sprintf(line, "a=%d, b=%ld", a, b);
    shown("two", line);
    int r = two(a, b);
    sprintf(line, "%d", r);
    shown("-two", line);

    sprintf(heap, "heap %d", a);
    sprintf(stack, "stack %d", a);
    memset(none - 3, 'z', 3);
    const char *texts[] = {heap, stack, literal, NULL, none, none - 3, (char *)16, (char *)0x8000000000000000};
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *s = texts[i];
        unsigned char c = (unsigned char)('a' + next() % 26);
        if (i == 3) sprintf(line, "s=null, c=%d", c);
        else if (i == 5) sprintf(line, "s=\"zzz\"<unreadable>, c=%d", c);
        else if (i > 3) sprintf(line, "s=<unreadable>, c=%d", c);
        else sprintf(line, "s=\"%s\", c=%d", s, c);
        shown("text", line);
        errno = 4711;
        long t = text(s, c);
        if (errno != 4711) abort();
        sprintf(line, "%ld", t);
        shown("-text", line);
    }

    float f = (float)(next() % 1000) + 0.25f;
    double d = (double)(next() % 100000) + 0.125;
    sprintf(line, "a=%.2f, b=%.3f", f, d);
    shown("floats", line);
    double e = floats(f, d);
    sprintf(line, "%.3f", e);
    shown("-floats", line);

    long v[7];
    for (int i = 0; i < 7; i++) v[i] = (long)(next() >> 8);
    sprintf(line, "a=%ld, b=%ld, c=%ld, d=%ld, e=%ld, f=%ld, g=%ld, h=%d, i=\"%s\"", v[0], v[1], v[2], v[3], v[4], v[5], v[6], a, stack);
    shown("many", line);
    long m = many(v[0], v[1], v[2], v[3], v[4], v[5], v[6], a, stack);
    sprintf(line, "%ld", m);
    shown("-many", line);

    sprintf(line, "x=%d, y=%ld", a / 2, b / 2);
    shown("make", line);
    struct point p = make(a / 2, b / 2);
    sprintf(line, "{x=%d, y=%ld}", p.x, p.y);
    shown("-make", line);

    int w = (int)(next() % 100000) * 2 + 1;
    sprintf(line, "x=%d", w);
    shown("wide", line);
    long double l = wide(w);
    sprintf(line, "%.1Lf", l);
    shown("-wide", line);

    long n = (long)(next() % 1000) + 1000000;
    sprintf(line, "n=%ld", n);
    shown("tail", line);
    if (tail(n) != n * 2) abort();
}

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 1;
    char *heap = malloc(64);
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    if (count > 2 && *words[2] == 's') {
        struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
        sigaction(SIGALRM, &action, NULL);
        struct itimerval every = {{0, 50}, {0, 50}};
        setitimer(ITIMER_REAL, &every, NULL);
    }
    for (int i = 0; i < rounds; i++) round_of(heap, pages + 4096);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    if (count > 2 && *words[2] == 'f') {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < rounds; i++) round_of(heap, pages + 4096);
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
    }
    printf("handled %d\n", (int)handled);
    return 0;
}
