// libeverycall-memory.so: what the program allocates and frees is counted.
//
// `count --memory` preloads it. It defines the functions of allocators, calls the next ones in the
// dynamic linker's order (the C library's, or those of a library such as jemalloc), and tells the
// runtime how many bytes each block has.
//
//   bytes            what the allocator says of a block (malloc_usable_size), at both ends of its
//                    life: so all of a block that was allocated is freed. If the allocator doesn't
//                    say it: the bytes that were asked for, and none at the end
//   realloc          frees a block and allocates one, also where it stays in its place
//   new and delete   counted here only if they are in the same library as the next malloc, as those
//                    of jemalloc are; all others end in malloc and free, and are counted there
//
// Functions that call each other (reallocarray, realloc) count once: by `outermost`, the frame of
// the first of them. Frames are compared, so a handler that jumps out of one of them (which no C
// library allows) doesn't end the counting.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

#include "everycall.h"

#define EXPORTED __attribute__((visibility("default")))
#define RARE(condition) __builtin_expect(!!(condition), 0)
#define NEXT ((void*)-1l)

extern void abort(void) __attribute__((noreturn));
#pragma weak dladdr
#pragma weak dladdr1
#pragma weak dlerror

// hooks::memory_change, and format::memory::facts.
enum { ALLOCATED = 1, FREED = 2, SEEN = 1, NO_SIZES = 2, OWN_ALLOCATOR = 4 };
#define FACTS (1u << 31)
enum { NOT_WANTED = 2 };

// Every function: its result, how it is called here, the linker's name, its parameters.
#define FUNCTIONS(F)                                                                    \
    F(void*, malloc, "malloc", (size_t))                                                \
    F(void, free, "free", (void*))                                                      \
    F(void*, calloc, "calloc", (size_t, size_t))                                        \
    F(void*, realloc, "realloc", (void*, size_t))                                       \
    F(void*, reallocarray, "reallocarray", (void*, size_t, size_t))                     \
    F(int, posix_memalign, "posix_memalign", (void**, size_t, size_t))                  \
    F(void*, aligned_alloc, "aligned_alloc", (size_t, size_t))                          \
    F(void*, memalign, "memalign", (size_t, size_t))                                    \
    F(void*, valloc, "valloc", (size_t))                                                \
    F(void*, pvalloc, "pvalloc", (size_t))                                              \
    F(void, free_sized, "free_sized", (void*, size_t))                                  \
    F(void, free_aligned_sized, "free_aligned_sized", (void*, size_t, size_t))          \
    F(size_t, usable_size, "malloc_usable_size", (void*))                               \
    F(void*, new, "_Znwm", (size_t))                                                    \
    F(void*, new_array, "_Znam", (size_t))                                              \
    F(void*, new_nothrow, "_ZnwmRKSt9nothrow_t", (size_t, const void*))                 \
    F(void*, new_array_nothrow, "_ZnamRKSt9nothrow_t", (size_t, const void*))           \
    F(void*, new_aligned, "_ZnwmSt11align_val_t", (size_t, size_t))                     \
    F(void*, new_array_aligned, "_ZnamSt11align_val_t", (size_t, size_t))               \
    F(void*, new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", (size_t, size_t, const void*))       \
    F(void*, new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", (size_t, size_t, const void*)) \
    F(void, delete, "_ZdlPv", (void*))                                                  \
    F(void, delete_array, "_ZdaPv", (void*))                                            \
    F(void, delete_sized, "_ZdlPvm", (void*, size_t))                                   \
    F(void, delete_array_sized, "_ZdaPvm", (void*, size_t))                             \
    F(void, delete_nothrow, "_ZdlPvRKSt9nothrow_t", (void*, const void*))               \
    F(void, delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", (void*, const void*))         \
    F(void, delete_aligned, "_ZdlPvSt11align_val_t", (void*, size_t))                   \
    F(void, delete_array_aligned, "_ZdaPvSt11align_val_t", (void*, size_t))             \
    F(void, delete_sized_aligned, "_ZdlPvmSt11align_val_t", (void*, size_t, size_t))    \
    F(void, delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", (void*, size_t, size_t))                   \
    F(void, delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t", (void*, size_t, const void*))     \
    F(void, delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t", (void*, size_t, const void*))

enum number {
#define F(result, name, symbol, parameters) NUMBER_##name,
    FUNCTIONS(F)
#undef F
    COUNT
};

// Under the linker's names, so that the compiler doesn't take them for functions that it knows.
#define F(result, name, symbol, parameters)    \
    typedef result type_##name parameters;     \
    EXPORTED type_##name counted_##name __asm__(symbol);
FUNCTIONS(F)
#undef F

static const char* const NAMES[COUNT] = {
#define F(result, name, symbol, parameters) symbol,
    FUNCTIONS(F)
#undef F
};

// The next functions, and whether their blocks have a size.
static void* next[COUNT];
static char has_sizes[COUNT];
// Of the runtime, if there is one that counts memory.
static const volatile uint32_t* wanted;
// Whether the functions above were looked for.
static int is_ready;

#define INITIAL __attribute__((tls_model("initial-exec")))
// The frame of the outermost function of this library that runs in the thread and counts.
static __thread uintptr_t outermost INITIAL;
// The block that the thread has counted last.
static __thread const void* last_block INITIAL;
// Whether the thread looks up the next functions, which may allocate.
static __thread int looks_up INITIAL;

#define REAL(name) ((type_##name*)__atomic_load_n(&next[NUMBER_##name], __ATOMIC_RELAXED))

// Memory for the dynamic linker while it is asked for malloc. It is never reused.
enum { ALIGN = 16, EARLY_SIZE = 64 << 10 };
static _Alignas(ALIGN) char early[EARLY_SIZE];
static size_t early_used;

static int is_early(const void* block) { return (uintptr_t)block - (uintptr_t)early < EARLY_SIZE; }

static size_t early_size(const void* block) { return *(const size_t*)((const char*)block - ALIGN); }

static void* allocate_early(size_t size) {
    const size_t room = EARLY_SIZE - ALIGN;
    const size_t taken = (size + 2 * ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (size > room || taken > EARLY_SIZE) return 0;
    const size_t at = __atomic_fetch_add(&early_used, taken, __ATOMIC_RELAXED);
    if (at > EARLY_SIZE - taken) return 0;
    *(size_t*)(early + at) = size;
    return early + at + ALIGN;
}

static void* fails(void) {
    errno = ENOMEM;
    return 0;
}

static const void* object_of(const void* function) {
    Dl_info info;
    return function && dladdr && dladdr(function, &info) ? info.dli_fbase : 0;
}

// Whether another object's malloc comes before this one.
static int has_own_allocator(void) {
    Dl_info info;
    void* symbol = 0;
    const void* first = dlsym(0, "malloc");
    // A program that isn't position-independent may have an address for it, and no definition.
    if (dladdr1 && dladdr1(first, &info, &symbol, RTLD_DL_SYMENT) && symbol) {
        if (((const ElfW(Sym)*)symbol)->st_shndx == SHN_UNDEF) return 0;
    }
    return object_of(first) != object_of((const void*)fails);
}

// Whether the program has a sanitizer. Its allocator is to be the first, and can't be asked before
// it has begun: then nothing is counted.
static int has_sanitizer(void) {
    static const char* const symbols[] = {"__asan_init", "__hwasan_init", "__lsan_init", "__msan_init", "__tsan_init"};
    for (size_t at = 0; at < sizeof symbols / sizeof *symbols; at++) {
        if (dlsym(0, symbols[at])) return 1;
    }
    return 0;
}

static __attribute__((noinline, cold)) void look_up(void) {
    const int error = errno;
    looks_up = 1;
    for (int number = 0; number < COUNT; number++) {
        __atomic_store_n(&next[number], dlsym(NEXT, NAMES[number]), __ATOMIC_RELAXED);
    }
    const void* of_sizes = object_of(next[NUMBER_usable_size]);
    for (int number = 0; number < COUNT; number++) {
        has_sizes[number] = of_sizes && object_of(next[number]) == of_sizes;
    }
    const int has_runtime = &everycall_runtime_v1 && EVERYCALL_HAS_(memory_wanted);
    if (has_runtime && !has_sanitizer()) wanted = everycall_runtime_v1.memory_wanted;
    uint32_t facts = SEEN | (has_sizes[NUMBER_malloc] ? 0 : NO_SIZES);
    if (has_own_allocator()) facts |= OWN_ALLOCATOR;
    if (wanted) everycall_runtime_v1.memory(FACTS | facts, 0, 0, 0);
    // Nobody else shall find the errors of these searches.
    if (dlerror) dlerror();
    looks_up = 0;
    __atomic_store_n(&is_ready, 1, __ATOMIC_RELEASE);
    errno = error;
}

// Whether the next functions are known. Not while they are looked up.
static inline int are_known(void) {
    if (RARE(!__atomic_load_n(&is_ready, __ATOMIC_ACQUIRE))) {
        if (looks_up) return 0;
        look_up();
    }
    return 1;
}

__attribute__((constructor)) static void begin(void) { are_known(); }

// Whether a function with this frame counts: the process counts memory, and no function around it
// does.
static inline int counts(const void* frame) {
    return wanted && *wanted != NOT_WANTED && !*everycall_runtime_v1.off && (uintptr_t)frame >= outermost;
}

// What the allocator allocates to answer (tcmalloc does, once) isn't counted: its size would be
// asked for, too.
static inline size_t size_of(enum number number, void* block, size_t asked, const void* frame) {
    if (!has_sizes[number]) return asked;
    const uintptr_t around = outermost;
    outermost = (uintptr_t)frame;
    const size_t size = REAL(usable_size)(block);
    outermost = around;
    return size;
}

#define FRAME __builtin_frame_address(0)
#define TELL(what, allocated, freed) \
    everycall_runtime_v1.memory(what, allocated, freed, (uint64_t)(uintptr_t)FRAME)

// Whether a function isn't of the allocator, but the C library's beside another one: then it has
// called functions of the allocator, if it is of use at all, and these count.
static inline int is_beside(enum number number) { return !has_sizes[number] && has_sizes[NUMBER_malloc]; }

// A function calls the next one.
static inline void begin_call(enum number number, const void* frame) {
    last_block = 0;
    if (!is_beside(number)) outermost = (uintptr_t)frame;
}

// A block was allocated, at the request of so many bytes.
static inline void tell_of(enum number number, void* block, size_t asked, void* frame) {
    last_block = block;
    everycall_runtime_v1.memory(ALLOCATED, size_of(number, block, asked, frame), 0, (uint64_t)(uintptr_t)frame);
}

// A function that returns a block of `asked` bytes.
#define ALLOCATES(name, parameters, arguments, asked, unknown)                          \
    EXPORTED void* counted_##name parameters {                                          \
        if (RARE(!are_known())) return unknown;                                         \
        if (RARE(!REAL(name))) return fails();                                          \
        if (!counts(FRAME)) return REAL(name) arguments;                                \
        begin_call(NUMBER_##name, FRAME);                                               \
        void* block = REAL(name) arguments;                                             \
        outermost = 0;                                                                  \
        if (block && block != last_block) tell_of(NUMBER_##name, block, asked, FRAME);  \
        return block;                                                                   \
    }

ALLOCATES(malloc, (size_t size), (size), size, allocate_early(size))
ALLOCATES(aligned_alloc, (size_t align, size_t size), (align, size), size, fails())
ALLOCATES(memalign, (size_t align, size_t size), (align, size), size, fails())
ALLOCATES(valloc, (size_t size), (size), size, fails())
ALLOCATES(pvalloc, (size_t size), (size), size, fails())
// The memory for early blocks is zero, and never used twice.
ALLOCATES(calloc, (size_t count, size_t size), (count, size), count * size,
          size && count > EARLY_SIZE / size ? 0 : allocate_early(count * size))

EXPORTED int counted_posix_memalign(void** place, size_t align, size_t size) {
    if (RARE(!are_known() || !REAL(posix_memalign))) return ENOMEM;
    if (!counts(FRAME)) return REAL(posix_memalign)(place, align, size);
    begin_call(NUMBER_posix_memalign, FRAME);
    const int error = REAL(posix_memalign)(place, align, size);
    outermost = 0;
    if (!error && *place && *place != last_block) tell_of(NUMBER_posix_memalign, *place, size, FRAME);
    return error;
}

// A block of the early memory gets a usual one in its place.
static void* replace_early(void* block, size_t size) {
    char* to = counted_malloc(size);
    const size_t kept = early_size(block) < size ? early_size(block) : size;
    for (size_t at = 0; to && at < kept; at++) ((volatile char*)to)[at] = ((const char*)block)[at];
    return to;
}

// A function that returns a block of `asked` bytes in place of `block`.
#define REALLOCATES(name, parameters, arguments, asked)                                     \
    EXPORTED void* counted_##name parameters {                                              \
        if (RARE(is_early(block))) return replace_early(block, asked);                      \
        if (RARE(!are_known())) return allocate_early(asked);                               \
        if (RARE(!REAL(name))) return fails();                                              \
        if (!counts(FRAME) || is_beside(NUMBER_##name)) return REAL(name) arguments;        \
        const size_t before = block ? size_of(NUMBER_##name, block, 0, FRAME) : 0;                 \
        const uint32_t freed = block ? FREED : 0;                                           \
        begin_call(NUMBER_##name, FRAME);                                                   \
        void* result = REAL(name) arguments;                                                \
        outermost = 0;                                                                      \
        if (result) {                                                                       \
            last_block = result;                                                            \
            TELL(ALLOCATED | freed, size_of(NUMBER_##name, result, asked, FRAME), before);         \
        } else if (block && (asked) == 0) {                                                 \
            TELL(FREED, 0, before);                                                         \
        }                                                                                   \
        return result;                                                                      \
    }

REALLOCATES(realloc, (void* block, size_t size), (block, size), size)
REALLOCATES(reallocarray, (void* block, size_t count, size_t size), (block, count, size), count* size)

// A function that frees a block. If it isn't there, `otherwise` does the same. If `is_elsewhere`,
// the block is counted where that function passes it on.
#define FREES(name, parameters, arguments, otherwise, is_elsewhere)                         \
    EXPORTED void counted_##name parameters {                                               \
        if (RARE(is_early(block) || !are_known())) return;                                  \
        if (RARE(!REAL(name))) return otherwise;                                            \
        if (!block || (is_elsewhere) || !counts(FRAME)) return REAL(name) arguments;        \
        const size_t freed = size_of(NUMBER_##name, block, 0, FRAME);                              \
        outermost = (uintptr_t)FRAME;                                                       \
        REAL(name) arguments;                                                               \
        outermost = 0;                                                                      \
        TELL(FREED, 0, freed);                                                              \
    }

FREES(free, (void* block), (block), (void)0, is_beside(NUMBER_free))
FREES(free_sized, (void* block, size_t size), (block, size), counted_free(block), is_beside(NUMBER_free_sized))
FREES(free_aligned_sized, (void* block, size_t align, size_t size), (block, align, size), counted_free(block),
      is_beside(NUMBER_free_aligned_sized))

// C++. Operators in one library with malloc may not call it as a function of that name. If they do,
// it has counted the block. They may run the program's new_handler, and throw, so they aren't
// outermost meanwhile.
//
// A library that was loaded by dlopen may bind to these although no C++ library is known here
// (RTLD_LOCAL). Then malloc and free do what every C++ library does, and if there is no memory, the
// operator that the caller would have found.
static __attribute__((noinline, cold)) void* of_caller(enum number number, const void* caller) {
    Dl_info info;
    if (!dladdr || !dladdr(caller, &info) || !info.dli_fname) return 0;
    void* object = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void* found = object ? dlsym(object, NAMES[number]) : 0;
    // The caller stays loaded as long as it runs.
    if (object) dlclose(object);
    return object_of(found) == object_of((const void*)fails) ? 0 : found;
}

static inline size_t at_least_one(size_t size) { return size ? size : 1; }

static void* allocate_aligned(size_t size, size_t align) {
    void* block = 0;
    const size_t least = align < sizeof(void*) ? sizeof(void*) : align;
    return counted_posix_memalign(&block, least, at_least_one(size)) ? 0 : block;
}

#define NEW(name, parameters, arguments, plain, failure)                                           \
    EXPORTED void* counted_##name parameters {                                                     \
        type_##name* function = are_known() ? REAL(name) : 0;                                      \
        if (RARE(!function)) {                                                                     \
            void* block = plain;                                                                   \
            if (block) return block;                                                               \
            function = (type_##name*)of_caller(NUMBER_##name, __builtin_return_address(0));        \
            if (!function) failure;                                                                \
            return function arguments;                                                             \
        }                                                                                          \
        if (!has_sizes[NUMBER_##name] || !counts(FRAME)) return function arguments;                \
        last_block = 0;                                                                            \
        void* block = function arguments;                                                          \
        if (block && block != last_block) tell_of(NUMBER_##name, block, size, FRAME);              \
        return block;                                                                              \
    }

NEW(new, (size_t size), (size), counted_malloc(at_least_one(size)), abort())
NEW(new_array, (size_t size), (size), counted_malloc(at_least_one(size)), abort())
NEW(new_nothrow, (size_t size, const void* tag), (size, tag), counted_malloc(at_least_one(size)), return 0)
NEW(new_array_nothrow, (size_t size, const void* tag), (size, tag), counted_malloc(at_least_one(size)), return 0)
NEW(new_aligned, (size_t size, size_t align), (size, align), allocate_aligned(size, align), abort())
NEW(new_array_aligned, (size_t size, size_t align), (size, align), allocate_aligned(size, align), abort())
NEW(new_aligned_nothrow, (size_t size, size_t align, const void* tag), (size, align, tag),
    allocate_aligned(size, align), return 0)
NEW(new_array_aligned_nothrow, (size_t size, size_t align, const void* tag), (size, align, tag),
    allocate_aligned(size, align), return 0)

// Deletes that end in free in another library are passed on.
#define DELETES(name, parameters, arguments) \
    FREES(name, parameters, arguments, counted_free(block), !has_sizes[NUMBER_##name])

DELETES(delete, (void* block), (block))
DELETES(delete_array, (void* block), (block))
DELETES(delete_sized, (void* block, size_t size), (block, size))
DELETES(delete_array_sized, (void* block, size_t size), (block, size))
DELETES(delete_nothrow, (void* block, const void* tag), (block, tag))
DELETES(delete_array_nothrow, (void* block, const void* tag), (block, tag))
DELETES(delete_aligned, (void* block, size_t align), (block, align))
DELETES(delete_array_aligned, (void* block, size_t align), (block, align))
DELETES(delete_sized_aligned, (void* block, size_t size, size_t align), (block, size, align))
DELETES(delete_array_sized_aligned, (void* block, size_t size, size_t align), (block, size, align))
DELETES(delete_aligned_nothrow, (void* block, size_t align, const void* tag), (block, align, tag))
DELETES(delete_array_aligned_nothrow, (void* block, size_t align, const void* tag), (block, align, tag))
