// Functions whose own time goes into something that has no hooks: a library, the kernel, code that
// is inlined. Each goes on until it has used the processor for as long as its argument says.

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

// Of the library.
unsigned long digest(unsigned long seed, long rounds);

static volatile unsigned long result;

static long used_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

__attribute__((noinline)) void parse(long ms)
{
    for (long end = used_ms() + ms; used_ms() < end;)
        result = digest(result, 1000000);
}

static inline __attribute__((always_inline)) unsigned long mixes(unsigned long value, long rounds)
{
    while (rounds-- > 0)
        value = value * 6364136223846793005ul + 1442695040888963407ul;
    return value;
}

__attribute__((noinline)) void inlines(long ms)
{
    for (long end = used_ms() + ms; used_ms() < end;)
        result = mixes(result, 1000000);
}

__attribute__((noinline)) void faults(long ms)
{
    const long size = 8 << 20;
    for (long end = used_ms() + ms; used_ms() < end;) {
        char *pages = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED)
            exit(1);
        madvise(pages, size, MADV_NOHUGEPAGE);
        for (long at = 0; at < size; at += 4096)
            pages[at] = 1;
        munmap(pages, size);
    }
}

int main(int count, char **arguments)
{
    long ms = count > 1 ? atol(arguments[1]) : 300;
    parse(ms);
    inlines(ms);
    faults(ms);
    puts("done");
    return 0;
}
