// Tasks of tokio: their polls are steps, with marks of what wakes them.
//
// The functions through which tasks pass call __fentry__ as their first instruction
// (crates/building/compiler/src/rust/tokio.rs). Of these calls, and those of C code in mode fentry,
// the former follow an instruction that does nothing; which one, says what the function is. The
// argument or result of all of them is the task's header, whose address identifies the task until
// it is dropped.
#include "runtime.h"
#include "system_call.h"

enum class { WAKE = 0, BEGIN = 14, END = 15 };
// Before the address of the code by which readers name the task.
enum { CODE_NAME = 1 };

// Numbers are the process's: below are those of everycall::task, and an object shouldn't have
// another one's.
#ifdef EVERYCALL_FOR_EXECUTABLES
enum { FIRST_NUMBER = 10000000 };
static uint32_t first_number(void) { return FIRST_NUMBER; }
#else
enum { OBJECTS_NUMBERS = 1000000000, NUMBERS = 1000000 };
static uint32_t first_number(void) {
    return OBJECTS_NUMBERS + (uint32_t)((uint64_t)&first_number >> 12) % 1000 * NUMBERS;
}
#endif

// The names of tasks, which only readers of the program's file look at. Linkers that don't know that
// the section is to be kept keep what is referred to.
extern const char __start_everycall_tasks[] EVERYCALL_WEAK __attribute__((visibility("hidden")));
__attribute__((used)) static const char* const names = __start_everycall_tasks;

struct task {
    uint32_t number;
    // Steps that have begun, and the last one for which it was woken: of several wakes, the first
    // one counts.
    uint32_t begun, woken;
    uint8_t length;
    char name[15];
};

// Tasks by the addresses of their headers. A task is added by who makes or polls it, removed by
// who drops it, and looked up by who has a reference to it: so nobody does two of these with the
// same task at a time, and nothing waits.
enum { IN_BUCKET = 6, LEVELS = 6, FIRST_BITS = 10, MORE_BITS = 2 };
enum { FREE = 0, CLAIMED = 1 };
struct bucket {
    uint64_t headers[IN_BUCKET];
    struct task tasks[IN_BUCKET];
};
static struct bucket first_level[1 << FIRST_BITS];
// Each is four times as large as the one before, and there once that was too small.
static struct bucket* more_levels[LEVELS - 1];
static uint32_t added;
// Tasks that are there.
static uint32_t count;

static inline struct bucket* level(int number) {
    return number == 0 ? first_level : __atomic_load_n(&more_levels[number - 1], __ATOMIC_ACQUIRE);
}

static inline struct bucket* bucket_of(struct bucket* level, int number, uint64_t header) {
    return &level[header * 0x9e3779b97f4a7c15 >> (64 - FIRST_BITS - MORE_BITS * number)];
}

static struct bucket* add_level(int number) {
    enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22 };
    const long size = sizeof(struct bucket) << (FIRST_BITS + MORE_BITS * number);
    const long mapped = system_call(CALL_MMAP, 0, size, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
    if (mapped < 0 && mapped > -4096) return 0;
    struct bucket *made = (struct bucket*)mapped, *there = 0;
    if (__atomic_compare_exchange_n(&more_levels[number - 1], &there, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return made;
    system_call(CALL_MUNMAP, mapped, size, 0, 0, 0, 0);
    return there;
}

// The place of a task among the headers of its bucket; null if it isn't known.
static uint64_t* find(uint64_t header, struct task** task) {
    for (int number = 0; number < LEVELS; number++) {
        struct bucket* levels = level(number);
        if (!levels) break;
        struct bucket* bucket = bucket_of(levels, number, header);
        for (int at = 0; at < IN_BUCKET; at++) {
            if (__atomic_load_n(&bucket->headers[at], __ATOMIC_ACQUIRE) == header) {
                *task = &bucket->tasks[at];
                return &bucket->headers[at];
            }
        }
    }
    return 0;
}

static void name(struct task* task, uint64_t function) {
    int digits = 1;
    while (digits < 14 && function >> (4 * digits)) digits++;
    task->name[0] = CODE_NAME;
    for (int at = digits; at > 0; at--, function >>= 4) task->name[at] = "0123456789abcdef"[function & 15];
    task->length = (uint8_t)(1 + digits);
}

static void begin(struct task* task, uint64_t function) {
    task->number = first_number() + __atomic_fetch_add(&added, 1, __ATOMIC_RELAXED);
    task->begun = task->woken = 0;
    name(task, function);
}

// Adds a task; null if there is no room. `function` is an instance for its type.
static struct task* add(uint64_t header, uint64_t function) {
    for (int number = 0; number < LEVELS; number++) {
        struct bucket* levels = level(number);
        if (!levels) levels = add_level(number);
        if (!levels) break;
        struct bucket* bucket = bucket_of(levels, number, header);
        for (int at = 0; at < IN_BUCKET; at++) {
            uint64_t* place = &bucket->headers[at];
            uint64_t is = FREE;
            if (__atomic_load_n(place, __ATOMIC_RELAXED) != FREE || !__atomic_compare_exchange_n(place, &is, CLAIMED, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
            struct task* task = &bucket->tasks[at];
            begin(task, function);
            __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
            __atomic_store_n(place, header, __ATOMIC_RELEASE);
            return task;
        }
    }
    return 0;
}

// The runtime, while it records.
static inline const struct everycall_runtime* recording(void) {
    const struct everycall_runtime* runtime = &everycall_runtime_v1;
    const int has_marks = runtime && runtime->size >= offsetof(struct everycall_runtime, quick_mark) + sizeof runtime->quick_mark;
    return has_marks && !__atomic_load_n(runtime->off, __ATOMIC_RELAXED) ? runtime : 0;
}

static inline void mark(const struct everycall_runtime* runtime, enum class class, const struct task* task, uint32_t step) {
    const uint64_t value = (uint64_t)step << 32 | task->number;
    const uint32_t length = task->length + 1;
    runtime->quick_mark(class | length << 8, task->name, value, (uint64_t)__builtin_frame_address(0));
}

static void wake(const struct everycall_runtime* runtime, struct task* task) {
    const uint32_t next = __atomic_load_n(&task->begun, __ATOMIC_ACQUIRE) + 1;
    uint32_t woken = __atomic_load_n(&task->woken, __ATOMIC_RELAXED);
    while (woken < next) {
        if (__atomic_compare_exchange_n(&task->woken, &woken, next, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            mark(runtime, WAKE, task, next);
            return;
        }
    }
}

// Cell::new has made a task, which is scheduled next. Its memory begins with the header.
__attribute__((used)) static void task_is_made(uint64_t header, uint64_t function) {
    const struct everycall_runtime* runtime = recording();
    if (!runtime) return;
    struct task* task;
    // Another one had the memory, and its drop was missed.
    if (find(header, &task)) begin(task, function);
    else task = add(header, function);
    if (task) wake(runtime, task);
}

// A poll begins. Returns the task's number, which may be dropped within the poll; 0: it isn't
// recorded.
__attribute__((used)) static uint64_t poll_begins(uint64_t header, uint64_t function) {
    const struct everycall_runtime* runtime = recording();
    if (!runtime) return 0;
    struct task* task;
    if (!find(header, &task)) task = add(header, function);
    if (!task) return 0;
    const uint32_t step = __atomic_add_fetch(&task->begun, 1, __ATOMIC_ACQ_REL);
    mark(runtime, BEGIN, task, step);
    return task->number;
}

__attribute__((used)) static void poll_ends(uint64_t number) {
    const struct everycall_runtime* runtime = recording();
    if (!number || !runtime) return;
    const struct task task = {.number = (uint32_t)number};
    mark(runtime, END, &task, 0);
}

__attribute__((used)) static void task_is_woken(uint64_t header) {
    const struct everycall_runtime* runtime = recording();
    struct task* task;
    if (runtime && find(header, &task)) wake(runtime, task);
}

__attribute__((used)) static void task_is_dropped(uint64_t header) {
    if (__atomic_load_n(&count, __ATOMIC_RELAXED) == 0) return;
    struct task* task;
    uint64_t* place = find(header, &task);
    if (!place) return;
    __atomic_store_n(place, FREE, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&count, 1, __ATOMIC_RELAXED);
}

#include "entry_of_task.h"
