// Runs commands in turn and tells what each run cost.
//
//   rounds ROUNDS SCRATCH COMMAND... [::: COMMAND...]...
//
// A command may begin with NAME=VALUE. The order changes from round to round. Standard output of the commands is
// thrown away; their standard error goes into SCRATCH.err and is shown if one fails. A program that measures a part of
// itself (region.h) finds SCRATCH in $BENCH_REGION and writes there.
//
// One line per run: command's number, wall ns, CPU ns (with all that it waited for), peak KiB of the largest process, CPU ns of the
// region or -1.
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COMMANDS_MAX = 16, VARIABLES_MAX = 4096 };

extern char **environ;

struct command {
    char **arguments;
    char **environment;
};

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static long ns(struct timeval time) { return time.tv_sec * 1000000000L + time.tv_usec * 1000L; }

static int is_variable(const char *word) {
    const char *equals = strchr(word, '=');
    return equals && equals != word && strcspn(word, "/-=") == (size_t)(equals - word);
}

static char **environment_with(char **own, int own_count, char *region) {
    char **all = calloc(VARIABLES_MAX, sizeof *all);
    if (!all) abort();
    int count = 0;
    while (count < own_count) all[count] = own[count], count++;
    all[count++] = region;
    // The first of two values is the one that getenv finds.
    for (char **variable = environ; *variable && count < VARIABLES_MAX - 1; variable++) all[count++] = *variable;
    return all;
}

static long region_ns(const char *path) {
    long result = -1;
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%ld", &result) != 1) result = -1;
    if (file) fclose(file);
    unlink(path);
    return result;
}

static void fail(const char *errors, char **arguments, const char *what, int number) {
    char text[4096];
    FILE *file = fopen(errors, "r");
    for (size_t size; file && (size = fread(text, 1, sizeof text, file));) fwrite(text, 1, size, stderr);
    fprintf(stderr, "%s: %s %d\n", arguments[0], what, number);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int rounds = atoi(argv[1]);
    char *scratch = argv[2], *region, *errors;
    if (asprintf(&region, "BENCH_REGION=%s", scratch) < 0 || asprintf(&errors, "%s.err", scratch) < 0) abort();
    unlink(scratch);

    struct command commands[COMMANDS_MAX];
    int count = 0;
    for (int i = 3; i < argc && count < COMMANDS_MAX; i++) {
        char **own = &argv[i];
        int own_count = 0;
        while (i < argc && is_variable(argv[i])) own_count++, i++;
        commands[count].environment = environment_with(own, own_count, region);
        commands[count++].arguments = &argv[i];
        while (i < argc && strcmp(argv[i], ":::")) i++;
        if (i < argc) argv[i] = 0;
    }

    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++) {
            int which = (i + round) % count;
            char **arguments = commands[which].arguments;
            pid_t child;
            int status;
            struct rusage usage;
            long begin = now_ns();
            int failed = posix_spawnp(&child, arguments[0], &files, 0, arguments, commands[which].environment);
            if (failed) fail(errors, arguments, "can't be started, error", failed);
            if (wait4(child, &status, 0, &usage) != child) abort();
            long wall = now_ns() - begin;
            if (status) fail(errors, arguments, "wait status", status);
            printf("%d %ld %ld %ld %ld\n", which, wall, ns(usage.ru_utime) + ns(usage.ru_stime), usage.ru_maxrss, region_ns(scratch));
            fflush(stdout);
        }
    }
    unlink(errors);
    return 0;
}
