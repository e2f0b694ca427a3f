/* Loads a library while the recorder is stopped. `late_names PLUGIN MILLISECONDS SIGNAL`: the recorder gets SIGNAL after that time.
   Prints how many milliseconds loading took. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int count, char **arguments)
{
    if (count < 4) return 2;
    pid_t recorder = getppid();
    kill(recorder, SIGSTOP);
    usleep(20000);
    if (fork() == 0) {
        usleep(atoi(arguments[2]) * 1000);
        kill(recorder, atoi(arguments[3]));
        _exit(0);
    }
    long begin = milliseconds();
    void *plugin = dlopen(arguments[1], RTLD_NOW);
    long took = milliseconds() - begin;
    if (!plugin) return 3;
    void (*plugged)(void) = (void (*)(void))dlsym(plugin, "plugged");
    if (!plugged) return 4;
    plugged();
    usleep(1500000);
    printf("%ld\n", took);
    return 0;
}
