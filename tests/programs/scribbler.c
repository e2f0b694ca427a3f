/* Overwrites the shared memory that it is recorded in, while its threads make calls and it forks.

   scribbler SEED MILLISECONDS

   What is overwritten, with what, how often, from when on and how the program ends follow from SEED. The places come from the arena's
   header as it was before; each process of the family scribbles over its own arena, and over the hub that all share. The program leads
   a process group of its own, so that it can be ended with all its children. It may well crash: its own hooks use this memory. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define QUIET __attribute__((no_instrument_function, noinline))

/* Fields of the arena's header (crates/shared/format/src/arena.rs), by their offsets. */
enum {
    ARENA_SIZE = 16, RING_SIZE = 24, SEGMENT_SIZE = 32, MODULES_OFFSET = 56, CHILDREN_OFFSET = 64, PATHS_OFFSET = 72,
    PATHS_SIZE = 80, THREADS_OFFSET = 88, OPEN_CALLS_OFFSET = 96, OPEN_CALL_STRIDE = 104, SEGMENT_TABLE_OFFSET = 112,
    SEGMENTS_OFFSET = 120, COUNTERS_OFFSET = 256, HOLDERS_OFFSET = 1024
};

struct area {
    uint64_t first, size;
};

enum {
    HEADER, COUNTS, HOLDERS, MODULES, CHILDREN, PATHS, TRIGGERS, SEGMENT_TABLE, THREADS, OPEN_CALLS, SEGMENTS, HUB, AREAS
};

static uint8_t *arena, *hub;
static struct area areas[AREAS];
static uint64_t state, end_ns;
static uint32_t targets;
static int pause_us, burst, style;
static volatile long sink;

QUIET static uint64_t random_below(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (state >> 11) % limit : 0;
}

QUIET static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

QUIET static uint64_t field(unsigned offset)
{
    uint64_t value;
    memcpy(&value, arena + offset, sizeof value);
    return value;
}

QUIET static void find(void)
{
    char line[4400];
    FILE *maps = fopen("/proc/self/maps", "r");
    uint64_t mapped = 0;
    arena = hub = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long first, end;
        char access[8];
        if (sscanf(line, "%lx-%lx %7s", &first, &end, access) != 3 || access[3] != 's')
            continue;
        if (strstr(line, "memfd:everycall-hub")) {
            hub = (uint8_t *)first;
            areas[HUB].size = end - first;
        } else if (strstr(line, "memfd:everycall-arena") || strstr(line, "/SYSV00000000") || strstr(line, ".arena")) {
            /* It may be mapped in several parts. */
            if (!arena && !memcmp((void *)first, "everycal", 8)) {
                arena = (uint8_t *)first;
                mapped = end;
            } else if (mapped == first) {
                mapped = end;
            }
        }
    }
    if (maps)
        fclose(maps);
    if (!arena)
        return;
    uint64_t size = mapped - (uint64_t)arena, paths_end = field(PATHS_OFFSET) + field(PATHS_SIZE);
    struct area own[AREAS] = {
        [HEADER] = {0, 520},
        [COUNTS] = {140, 380},
        [HOLDERS] = {HOLDERS_OFFSET, 29 * 32},
        [MODULES] = {field(MODULES_OFFSET), field(CHILDREN_OFFSET) - field(MODULES_OFFSET)},
        [CHILDREN] = {field(CHILDREN_OFFSET), field(PATHS_OFFSET) - field(CHILDREN_OFFSET)},
        [PATHS] = {field(PATHS_OFFSET), field(PATHS_SIZE)},
        [TRIGGERS] = {paths_end, field(SEGMENT_TABLE_OFFSET) - paths_end},
        [SEGMENT_TABLE] = {field(SEGMENT_TABLE_OFFSET), field(THREADS_OFFSET) - field(SEGMENT_TABLE_OFFSET)},
        [THREADS] = {field(THREADS_OFFSET), field(OPEN_CALLS_OFFSET) - field(THREADS_OFFSET)},
        [OPEN_CALLS] = {field(OPEN_CALLS_OFFSET), 8 * field(OPEN_CALL_STRIDE)},
        [SEGMENTS] = {field(SEGMENTS_OFFSET), 8 * field(RING_SIZE)},
        [HUB] = areas[HUB],
    };
    memcpy(areas, own, sizeof areas);
    for (int index = 0; index < HUB; index++) {
        if (areas[index].first >= size)
            areas[index].size = 0;
        else if (areas[index].size > size - areas[index].first)
            areas[index].size = size - areas[index].first;
    }
}

QUIET static uint64_t value(const uint8_t *base, const struct area *area)
{
    uint64_t other;
    switch (style ? style : (int)random_below(9) + 1) {
    case 1: return random_below(~0ull);
    case 2: return random_below(8);
    case 3: return 0;
    case 4: return ~0ull;
    case 5: return random_below(64) << 32 | random_below(64);
    case 6: return 1ull << random_below(64);
    case 7: return random_below(8192) << 32 | random_below(8192);
    case 8: return random_below(2) ? (uint64_t)getppid() : 1;
    default:
        /* What is right elsewhere. */
        memcpy(&other, base + area->first + random_below(area->size / 8) * 8, 8);
        return other;
    }
}

QUIET static void scribble(void)
{
    int target;
    do
        target = (int)random_below(AREAS);
    while (!(targets >> target & 1));
    const struct area *area = &areas[target];
    uint8_t *base = target == HUB ? hub : arena;
    /* What is used lies mostly in front. */
    uint64_t size = random_below(4) && area->size > 4096 ? 4096 : area->size;
    if (!base || size < 16)
        return;
    uint64_t at = area->first + random_below(size / 8) * 8;
    if (random_below(64) == 0) {
        /* A page of them, up to the area's end. */
        uint64_t page = at & ~4095ull, end = area->first + area->size;
        for (at = page < area->first ? area->first : page; at < page + 4096 && at + 8 <= end; at += 8) {
            uint64_t new = value(base, area);
            memcpy(base + at, &new, 8);
        }
    } else if (random_below(2)) {
        uint32_t new = (uint32_t)value(base, area);
        memcpy(base + at + 4 * random_below(2), &new, 4);
    } else {
        uint64_t new = value(base, area);
        memcpy(base + at, &new, 8);
    }
}

QUIET static void scribble_until(uint64_t until)
{
    while (now_ns() < until) {
        for (int count = 0; count < burst; count++)
            scribble();
        if (pause_us)
            usleep((useconds_t)pause_us);
    }
}

__attribute__((noinline)) void leaf(long x)
{
    sink = x;
}

__attribute__((noinline)) void tree(long depth)
{
    leaf(depth);
    if (depth > 0) {
        tree(depth - 1);
        tree(depth - 1);
    }
    __asm__ volatile("");
}

void *work(void *unused)
{
    while (now_ns() < end_ns) {
        tree(6);
        usleep(200);
    }
    return unused;
}

void *brief(void *unused)
{
    tree(3);
    return unused;
}

__attribute__((noinline)) void child(void)
{
    tree(4);
    find();
    scribble_until(now_ns() + 30000000);
    tree(4);
    _exit(0);
}

int main(int count, char **words)
{
    pthread_t thread;
    if (count < 3)
        return 2;
    uint64_t seed = strtoull(words[1], 0, 10), length = strtoull(words[2], 0, 10) * 1000000;
    setpgid(0, 0);
    state = (seed + 1) * 0x9e3779b97f4a7c15ull;
    for (int index = 0; index < 8; index++)
        random_below(2);
    end_ns = now_ns() + length;
    targets = random_below(4) ? 1u << random_below(AREAS) | 1u << random_below(AREAS) : (1u << AREAS) - 1;
    pause_us = (int[]){0, 50, 1000, 20000}[random_below(4)];
    burst = (int[]){1, 8, 64}[random_below(3)];
    style = random_below(2) ? 0 : (int)random_below(9) + 1;
    int ending = (int)random_below(4), forks = (int)random_below(3);
    uint64_t first = now_ns() + random_below(length);
    tree(5);
    find();
    for (int index = 0; index < 3; index++)
        pthread_create(&thread, 0, work, 0);
    while (now_ns() < first) {
        pthread_create(&thread, 0, brief, 0);
        pthread_join(thread, 0);
        usleep(2000);
    }
    while (now_ns() < end_ns) {
        scribble_until(now_ns() + 20000000);
        if (forks && fork() == 0)
            child();
        if (!random_below(4)) {
            pthread_create(&thread, 0, brief, 0);
            pthread_detach(thread);
        }
        while (waitpid(-1, 0, WNOHANG) > 0)
            ;
    }
    switch (ending) {
    case 0: kill(getpid(), SIGKILL); break;
    case 1: _exit(3);
    case 2: abort();
    }
    return 0;
}
