/* Threads that name themselves and then wait, in a program that writes a title over its command line and goes to another folder.
   A forked process does so, too, with another title, and waits for its parent's end.
   `names FILE WORD..`: writes a snapshot of its own into FILE, prints "ready", and waits for the end of its standard input. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "everycall.h"

static pthread_barrier_t all, end;

static void *run(void *number)
{
    char name[16];
    snprintf(name, sizeof name, "waits %ld", (long)number);
    prctl(PR_SET_NAME, name, 0, 0, 0);
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&end);
    return 0;
}

static void entitle(int count, char **arguments, const char *title)
{
    char *last = arguments[count - 1] + strlen(arguments[count - 1]);
    memset(arguments[0], 0, (size_t)(last - arguments[0]));
    strcpy(arguments[0], title);
}

int main(int count, char **arguments)
{
    char file[4096], byte;
    int ready[2], over[2];
    if (pipe(ready) || pipe(over)) return 4;
    if (fork() == 0) {
        close(over[1]);
        entitle(count, arguments, "names: worker 1");
        _exit(write(ready[1], "", 1) != 1 || read(over[0], &byte, 1) != 0);
    }
    if (read(ready[0], &byte, 1) != 1) return 5;
    pthread_t threads[3];
    snprintf(file, sizeof file, "%s", arguments[1]);
    pthread_barrier_init(&all, 0, 4);
    pthread_barrier_init(&end, 0, 4);
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], 0, run, (void *)i);
    pthread_barrier_wait(&all);
    entitle(count, arguments, "title *:7394");
    if (chdir("/") || everycall_write_current(file)) return 3;
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    pthread_barrier_wait(&end);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    return 0;
}
