// Calls of code that a just-in-time compiler would have made, as frames whose ids are addresses,
// with the names that compilers tell perf. Arguments say by which files: map, dump (jitdump), fork
// (a child calls its parent's and its own), ids (the map has ids in place of addresses), hooks (code
// with hooks of its own), slow, late, snapshot, abort, or what is wrong with the map.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "everycall.h"

#define NOINLINE __attribute__((noinline))
enum { CODE_SIZE = 64 };

void __cyg_profile_func_enter(void *function, void *caller) __attribute__((weak));
void __cyg_profile_func_exit(void *function, void *caller) __attribute__((weak));

static char *code;
static FILE *map, *dump;

NOINLINE void work(void) {
    __asm__ volatile("" ::: "memory");
}

NOINLINE void run(uint64_t address) {
    everycall_frame_enter(address);
    work();
    everycall_frame_leave(address);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static uint64_t at(int index) {
    return (uint64_t)code + index * CODE_SIZE;
}

static void in_map(uint64_t start, uint64_t size, const char *name) {
    if (map == NULL) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
        map = fopen(path, "w");
    }
    fprintf(map, "%llx %llx %s\n", (unsigned long long)start, (unsigned long long)size, name);
    fflush(map);
}

static void put(const void *bytes, size_t size) {
    fwrite(bytes, size, 1, dump);
}

static void put_record(uint32_t kind, uint32_t size) {
    uint64_t time = now();
    uint32_t head[2] = {kind, size + 16};
    put(head, sizeof head);
    put(&time, sizeof time);
}

static void begin_dump(void) {
    char path[64];
    // As LLVM and Python do, in a folder of its own.
    snprintf(path, sizeof path, "jitted/jit-%d.dump", (int)getpid());
    mkdir("jitted", 0700);
    dump = fopen(path, "w+");
    uint32_t head[6] = {0x4A695444, 1, 40, 62, 0, (uint32_t)getpid()};
    uint64_t rest[2] = {now(), 0};
    put(head, sizeof head);
    put(rest, sizeof rest);
    fflush(dump);
    // This is how perf hears of it.
    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0);
}

static void in_dump(uint64_t address, uint64_t index, const char *name, const char *file, uint32_t line) {
    if (file != NULL) {
        put_record(2, 16 + 16 + strlen(file) + 1);
        uint64_t head[3] = {address, 1, address};
        uint32_t place[2] = {line, 0};
        put(head, sizeof head);
        put(place, sizeof place);
        put(file, strlen(file) + 1);
    }
    put_record(0, 40 + strlen(name) + 1 + CODE_SIZE);
    uint32_t ids[2] = {(uint32_t)getpid(), (uint32_t)gettid()};
    uint64_t numbers[4] = {address, address, CODE_SIZE, index};
    put(ids, sizeof ids);
    put(numbers, sizeof numbers);
    put(name, strlen(name) + 1);
    put((void *)address, CODE_SIZE);
    fflush(dump);
}

static void moved_in_dump(uint64_t from, uint64_t to, uint64_t index) {
    put_record(1, 48);
    uint32_t ids[2] = {(uint32_t)getpid(), (uint32_t)gettid()};
    uint64_t numbers[5] = {to, from, to, CODE_SIZE, index};
    put(ids, sizeof ids);
    put(numbers, sizeof numbers);
    fflush(dump);
}

// Code that calls hooks itself, as of -finstrument-functions: outside of all modules.
static void run_hooked(uint64_t address) {
    if (__cyg_profile_func_enter) {
        __cyg_profile_func_enter((void *)address, NULL);
        work();
        __cyg_profile_func_exit((void *)address, NULL);
    }
}

int main(int argc, char **argv) {
    code = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "map") == 0) {
            in_map(at(0), CODE_SIZE, "old name");
            in_map(at(0), CODE_SIZE, "js:fib app.js:1");
            in_map(at(1), CODE_SIZE, "js:add app.js:9");
            run(at(0));
            run(at(1) + 8);
            run(at(2));  // without a name
        } else if (strcmp(argv[i], "dump") == 0) {
            begin_dump();
            in_dump(at(10), 1, "first", "/srv/first.lua", 7);
            run(at(10));
            usleep(20000);
            in_dump(at(10), 2, "second", NULL, 0);
            run(at(10));
            usleep(20000);
            moved_in_dump(at(10), at(11), 2);
            run(at(11));
            usleep(20000);
            in_dump(at(10), 3, "third", "/srv/third.lua", 9);
            run(at(10));
            usleep(300000);  // until the recorder has found the file
        } else if (strcmp(argv[i], "fork") == 0) {
            in_map(at(20), CODE_SIZE, "of the parent");
            if (fork() == 0) {
                fclose(map);
                map = NULL;
                run(at(20));
                in_map(at(21), CODE_SIZE, "of the child");
                run(at(21));
                _exit(0);
            }
            wait(NULL);
            run(at(20));
        } else if (strcmp(argv[i], "ids") == 0) {
            everycall_frame_name(5, "told", NULL, 0);
            in_map(5, 1, "not told");
            in_map(6, 2, "six or seven");
            run(5);
            run(7);
            run(8);  // without a name
        } else if (strcmp(argv[i], "hooks") == 0) {
            in_map(at(30), CODE_SIZE, "hooked");
            run_hooked(at(30));
        } else if (strcmp(argv[i], "function") == 0) {
            run((uint64_t)&work);  // a frame that is a function of the program
        } else if (strcmp(argv[i], "slow") == 0) {
            in_map(at(40), CODE_SIZE, "js:slow app.js:20");
            for (int call = 0; call < 3; call++) {
                everycall_frame_enter(at(40) + call);
                if (call == 1)
                    usleep(30000);
                everycall_frame_leave(at(40) + call);
            }
            in_map(at(40), CODE_SIZE, "js:next app.js:30");
            run(at(40));
        } else if (strcmp(argv[i], "late") == 0) {
            // The line is there before the call ends.
            everycall_frame_enter(at(50));
            in_map(at(50), CODE_SIZE, "js:late app.js:40");
            run(at(50));
            everycall_frame_leave(at(50));
        } else if (strcmp(argv[i], "snapshot") == 0) {
            everycall_snapshot snapshot;
            if (everycall_take_snapshot(&snapshot) != 0 || everycall_write_snapshot(snapshot, "own.ect") != 0)
                return 1;
            everycall_free_snapshot(snapshot);
        } else if (strcmp(argv[i], "abort") == 0) {
            abort();
        } else if (strcmp(argv[i], "wait") == 0) {
            puts("ready");
            fflush(stdout);
            getchar();
        } else {
            // What someone else may have put there.
            char path[64];
            snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
            if (strcmp(argv[i], "fifo") == 0)
                mkfifo(path, 0600);
            else if (strcmp(argv[i], "link") == 0)
                (void)!symlink("/etc/passwd", path);
            else if (strcmp(argv[i], "stranger") == 0)
                (void)!chown(path, 12345, -1);
            else if (strcmp(argv[i], "garbage") == 0)
                in_map(at(1), CODE_SIZE, "cut\nnot a line\nffffffffffffffff 10 behind the end\n12");
            run(at(0));
        }
    }
    return 0;
}
