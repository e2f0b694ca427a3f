// Allocates by a random script, and knows what each function has allocated: prints "NAME CALLS" and
// sixteen numbers for each function at its end: bytes allocated, blocks allocated, bytes freed,
// blocks freed, in the calls themselves, and then with what they called, where recursion counts
// once.
//   allocating SEED STEPS [wait|kill|library]
// With "wait" it prints "ready" and waits for the end of its input before that; with "kill" it
// kills itself; with "library" it ends with the numbers of the allocator, which is in a library
// with a function for it.
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>
#include <pthread.h>
#include <unistd.h>

#if defined(__clang__)
#define UNTRACED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#else
#define UNTRACED __attribute__((no_instrument_function, noinline))
#endif
#define TRACED extern "C" __attribute__((noinline, used))

enum { FUNCTIONS = 8, NUMBERS = 4, DEEP = 60, KEPT = 64, THREADS = 3 };
struct Numbers {
    uint64_t calls, own[NUMBERS], total[NUMBERS];
};
static Numbers all[FUNCTIONS];

// A thread's open calls, as it knows them itself.
static thread_local int open_calls[DEEP + 8], depth;
static thread_local uint64_t state;
static thread_local jmp_buf *target;
static thread_local int catchers;
static thread_local void *kept[KEPT];
static thread_local char how[KEPT];
static thread_local int left;
// Blocks that any thread may free.
static void *shared[KEPT];
// The open calls at the last throw, and the bytes that libstdc++ puts before an exception.
static thread_local int throwing_calls[DEEP + 8], throwing_depth;
enum { BEFORE_EXCEPTION = 128 };

UNTRACED static uint64_t random_below(uint64_t end)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % end;
}

UNTRACED static void note_in(const int *calls, int depth, int number, uint64_t bytes)
{
    bool seen[FUNCTIONS] = {};
    if (depth > 0) {
        __atomic_fetch_add(&all[calls[depth - 1]].own[number], bytes, __ATOMIC_RELAXED);
        __atomic_fetch_add(&all[calls[depth - 1]].own[number + 1], 1, __ATOMIC_RELAXED);
    }
    for (int i = 0; i < depth; i++) {
        Numbers &of = all[calls[i]];
        if (!seen[calls[i]]) {
            __atomic_fetch_add(&of.total[number], bytes, __ATOMIC_RELAXED);
            __atomic_fetch_add(&of.total[number + 1], 1, __ATOMIC_RELAXED);
        }
        seen[calls[i]] = true;
    }
}
UNTRACED static void note(int number, uint64_t bytes)
{
    note_in(open_calls, depth, number, bytes);
}
enum { ALLOCATED = 0, FREED = 2 };

UNTRACED static int enter(int function)
{
    __atomic_fetch_add(&all[function].calls, 1, __ATOMIC_RELAXED);
    open_calls[depth++] = function;
    return depth;
}

enum { BY_FREE, BY_DELETE, BY_DELETE_ARRAY, BY_SIZED, BY_ALIGNED, BY_NOTHROW };

UNTRACED static void give_back(void *block, char how)
{
    if (!block)
        return;
    note(FREED, malloc_usable_size(block));
    switch (how) {
    case BY_DELETE: return operator delete(block);
    case BY_DELETE_ARRAY: return operator delete[](block);
    case BY_SIZED: return operator delete(block, size_t(40));
    case BY_ALIGNED: return operator delete(block, std::align_val_t(64));
    case BY_NOTHROW: return operator delete(block, std::nothrow);
    default: return free(block);
    }
}

UNTRACED static void allocate()
{
    int place = random_below(KEPT);
    give_back(kept[place], how[place]);
    size_t size = random_below(8) ? random_below(300) + 1 : random_below(300000);
    void *block = nullptr;
    how[place] = BY_FREE;
    switch (random_below(16)) {
    case 0: block = calloc(size, 1); break;
    case 1: block = realloc(nullptr, size); break;
    case 2: block = reallocarray(nullptr, size, 2); break;
    case 3: block = aligned_alloc(64, 64 * size); break;
    case 4: block = posix_memalign(&block, 128, size) ? nullptr : block; break;
    case 5: block = memalign(32, size); break;
    case 6: block = valloc(size); break;
    case 7: block = pvalloc(size); break;
    case 8: block = operator new(size), how[place] = BY_DELETE; break;
    case 9: block = operator new[](size), how[place] = BY_DELETE_ARRAY; break;
    case 10: block = operator new(40), how[place] = BY_SIZED; break;
    case 11: block = operator new(size, std::align_val_t(64)), how[place] = BY_ALIGNED; break;
    case 12: block = operator new(size, std::nothrow), how[place] = BY_NOTHROW; break;
    case 13: block = strndup("a text that the C library copies", size % 30); break;
    default: block = malloc(size);
    }
    kept[place] = block;
    note(ALLOCATED, malloc_usable_size(block));
}

UNTRACED static void reallocate()
{
    int place = random_below(KEPT);
    if (how[place] != BY_FREE)
        return;
    size_t size = random_below(2) ? random_below(2000) + 1 : random_below(100) + 1;
    size_t before = kept[place] ? malloc_usable_size(kept[place]) : 0;
    if (kept[place])
        note(FREED, before);
    kept[place] = random_below(2) ? realloc(kept[place], size) : reallocarray(kept[place], size, 3);
    note(ALLOCATED, malloc_usable_size(kept[place]));
}

// One thread's block for another's.
UNTRACED static void exchange()
{
    void *mine = malloc(random_below(500) + 1);
    note(ALLOCATED, malloc_usable_size(mine));
    give_back(__atomic_exchange_n(&shared[random_below(KEPT)], mine, __ATOMIC_ACQ_REL), BY_FREE);
}

UNTRACED static void free_one()
{
    int place = random_below(KEPT);
    give_back(kept[place], how[place]);
    kept[place] = nullptr;
    how[place] = BY_FREE;
}

UNTRACED static void fails()
{
    int *nothing = static_cast<int *>(malloc(SIZE_MAX / 2));
    if (nothing || posix_memalign(reinterpret_cast<void **>(&nothing), 3, 10) == 0)
        abort();
    free(nullptr);
}

UNTRACED static void throw_one()
{
    memcpy(throwing_calls, open_calls, sizeof open_calls);
    throwing_depth = depth;
    throw 1;
}
// How large its block is isn't known before.
UNTRACED static void caught(int *exception)
{
    size_t size = malloc_usable_size(reinterpret_cast<char *>(exception) - BEFORE_EXCEPTION);
    note_in(throwing_calls, throwing_depth, ALLOCATED, size);
    note(FREED, size);
}

typedef void Function(int);
extern Function *const functions[FUNCTIONS];

UNTRACED static void act(int self)
{
    for (int steps = random_below(5); steps >= 0 && left > 0; steps--) {
        left--;
        switch (random_below(15)) {
        case 0: case 1: case 2: allocate(); break;
        case 3: free_one(); break;
        case 4: reallocate(); break;
        case 5: exchange(); break;
        case 6: fails(); break;
        case 7:
            if (catchers > 0 && depth > 2)
                throw_one();
            break;
        case 8:
            if (target)
                longjmp(*target, 1);
            break;
        default:
            if (depth < DEEP)
                functions[random_below(FUNCTIONS)](self);
        }
    }
}

#define PLAIN(number)                           \
    TRACED void f##number(int)                  \
    {                                           \
        int own = enter(number);                \
        act(number);                            \
        depth = own - 1;                        \
    }
PLAIN(0)
PLAIN(1)
PLAIN(2)
PLAIN(3)
TRACED void f4(int)
{
    int own = enter(4);
    catchers++;
    try {
        act(4);
    } catch (int &exception) {
        depth = own;
        caught(&exception);
        allocate();
    }
    catchers--;
    allocate();
    depth = own - 1;
}
// It catches what it throws on, with cleanups in between.
struct Cleanup {
    int own;
    UNTRACED ~Cleanup()
    {
        depth = own;
        free_one();
    }
};
TRACED void f5(int)
{
    int own = enter(5);
    {
        Cleanup cleanup{own};
        act(5);
    }
    depth = own - 1;
}
TRACED void f6(int)
{
    volatile int own = enter(6);
    jmp_buf here, *volatile around = target;
    volatile int catching = catchers;
    target = &here;
    // No exception passes a jump's frames.
    catchers = 0;
    if (!setjmp(here))
        act(6);
    else
        depth = own, allocate();
    target = around;
    catchers = catching;
    depth = own - 1;
}
TRACED void f7(int)
{
    int own = enter(7);
    auto *around = target;
    // No jump passes a catcher's frames.
    target = nullptr;
    allocate();
    catchers++;
    try {
        act(7);
    } catch (int &exception) {
        depth = own;
        caught(&exception);
    }
    catchers--;
    target = around;
    depth = own - 1;
}
Function *const functions[FUNCTIONS] = {f0, f1, f2, f3, f4, f5, f6, f7};

UNTRACED static void *thread(void *seed)
{
    state = reinterpret_cast<uintptr_t>(seed);
    left = getenv("STEPS") ? atoi(getenv("STEPS")) : 20000;
    while (left > 0)
        functions[random_below(FUNCTIONS)](0);
    return nullptr;
}

extern "C" void print_allocator() __attribute__((weak));

int main(int count, char **arguments)
{
    uint64_t seed = count > 1 ? atoll(arguments[1]) : 1;
    setenv("STEPS", count > 2 ? arguments[2] : "20000", 1);
    const char *how = count > 3 ? arguments[3] : "";
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], nullptr, thread, reinterpret_cast<void *>(seed * 7919 + i));
    for (pthread_t &one : threads)
        pthread_join(one, nullptr);
    if (!strcmp(how, "wait")) {
        puts("ready");
        fflush(stdout);
        while (getchar() != EOF)
            ;
    }
    for (int i = 0; i < FUNCTIONS; i++) {
        printf("f%d %llu", i, (unsigned long long)all[i].calls);
        for (uint64_t number : all[i].own)
            printf(" %llu", (unsigned long long)number);
        for (uint64_t number : all[i].total)
            printf(" %llu", (unsigned long long)number);
        printf("\n");
    }
    fflush(stdout);
    if (!strcmp(how, "kill")) {
        raise(SIGKILL);
    } else if (!strcmp(how, "library")) {
        print_allocator();
        _exit(0);
    }
}
