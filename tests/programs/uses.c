/* Uses memory, the CPU and sleeps, in calls of known names, and says what the kernel counted of it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMORY (64UL << 20)
#define SLEEPS 200

static char *memory;

__attribute__((no_instrument_function)) static long long cpu_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

__attribute__((noinline)) void grows(size_t bytes)
{
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    memset(memory, 1, bytes);
}

__attribute__((noinline)) void sleeps(void)
{
    for (int i = 0; i < SLEEPS; i++)
        usleep(1500);
}

__attribute__((noinline)) void shrinks(size_t bytes)
{
    munmap(memory, bytes);
}

__attribute__((noinline)) void spins(void)
{
    long long end = cpu_time() + 60000000;
    while (cpu_time() < end)
        ;
}

static void say(const char *who)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%s %d %ld %ld %ld %ld %lld\n", who, (int)getpid(), usage.ru_minflt, usage.ru_majflt, usage.ru_nvcsw,
           usage.ru_nivcsw, cpu_time());
    fflush(stdout);
}

int main(int argc, char **argv)
{
    sleeps();
    grows(MEMORY);
    sleeps();
    shrinks(MEMORY);
    spins();
    sleeps();
    pid_t child = fork();
    if (child == 0) {
        spins();
        sleeps();
        say("child");
        sleeps();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    say("parent");
    if (argc > 1 && strcmp(argv[1], "killed") == 0)
        raise(SIGKILL);
    return 0;
}
