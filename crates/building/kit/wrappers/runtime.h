// The wrappers' interface to the process's runtime.
//
// Wrappers are linked into a traced object with options --wrap=FUNCTION. In that object, calls of
// FUNCTION go to the wrapper, and __real_FUNCTION is the function itself. Nothing is defined under
// the function's own name, so static links have no duplicates, and other objects of the process are
// not affected. Functions that a program may lack are weak.
#ifndef EVERYCALL_WRAPPERS_RUNTIME_H
#define EVERYCALL_WRAPPERS_RUNTIME_H
#include <stddef.h>
#include <stdint.h>

#define EVERYCALL_WEAK __attribute__((weak))
// Hidden, so that a shared object calls its own wrappers. GNU ld also wraps unversioned references
// of shared libraries on the command line (LLVM's C++ library's to __cxa_throw, Boost.Coroutine's
// to make_fcontext), and an executable may not hide a symbol to which a library refers. So wrappers
// are visible in executables. Those libraries still call the function itself.
#ifdef EVERYCALL_FOR_EXECUTABLES
#define EVERYCALL_WRAPPER
#define EVERYCALL_HIDDEN(name)
#else
#define EVERYCALL_WRAPPER __attribute__((visibility("hidden")))
#define EVERYCALL_HIDDEN(name) ".hidden " name "\n"
#endif

// As declared in crates/traced/hooks/src/descriptor.rs: `unwinding` follows ten pointers.
struct everycall_runtime {
    uint32_t abi;
    uint32_t size;
    void (*others[10])(void);
    void (*unwinding)(uint32_t what, uint64_t stack_pointer, const char* name);
    int32_t (*fiber)(uint32_t what, uint64_t low, uint64_t size, const char* name);
    int32_t (*lock_memory)(uint32_t flags);
    void (*landing)(uint32_t what, uint64_t stack_pointer, const char* name, uint64_t function);
    int32_t (*min_duration)(uint64_t nanoseconds);
    uint64_t (*xray)(uint32_t operation, void* object, uint64_t first, uint64_t second, uint64_t third);
    const uint32_t* off;
    int32_t (*quick_mark)(uint32_t what, const char* name, uint64_t value, uint64_t stack_pointer);
    void (*more[8])(void);
    void (*address_space)(uint32_t what, uint64_t* limits);
    void (*adopt)(void);
    void (*thrown)(uint64_t stack_pointer, const char* name, const char* text);
};
extern const struct everycall_runtime everycall_runtime_v1 EVERYCALL_WEAK;

enum everycall_unwinding {
    EVERYCALL_JUMP = 0,
    EVERYCALL_THROW = 7,
    EVERYCALL_CATCH = 8,
    EVERYCALL_CLEANUP = 9,
    EVERYCALL_THREAD_END = 10,
    EVERYCALL_HANDLED = 11,
    EVERYCALL_CLEANED = 13,
    EVERYCALL_CANCEL = 14,
    // The unwinder asks a frame whether it catches an exception of this type.
    EVERYCALL_RAISED = 15,
    // The loader has loaded libraries.
    EVERYCALL_LOADED = 16,
    // With EVERYCALL_CATCH or EVERYCALL_CLEANUP: calls that were inlined into the frame may end
    // without an exit event.
    EVERYCALL_UNTOLD_ENDS = 1 << 8,
    // With EVERYCALL_CATCH: their exit events are part of the cleanup.
    EVERYCALL_TOLD_ENDS = 1 << 9,
};

// Actions on a fiber's stack.
enum everycall_stack { EVERYCALL_STACK_TOLD = 0 };

// `stack_pointer`: that of the place where the program continues, or from which it threw; for
// EVERYCALL_CANCEL, the thread pointer of the thread that is to end.
static inline void everycall_tell(uint32_t what, uint64_t stack_pointer, const char* name) {
    const struct everycall_runtime* runtime = &everycall_runtime_v1;
    if (runtime && runtime->size >= offsetof(struct everycall_runtime, fiber)) runtime->unwinding(what, stack_pointer, name);
}

// As EVERYCALL_THROW, for an exception with a text (0 if it has none).
static inline void everycall_tell_throw(uint64_t stack_pointer, const char* name, const char* text) {
    const struct everycall_runtime* runtime = &everycall_runtime_v1;
    if (text && runtime && runtime->size >= offsetof(struct everycall_runtime, thrown) + sizeof runtime->thrown)
        runtime->thrown(stack_pointer, name, text);
    else
        everycall_tell(EVERYCALL_THROW, stack_pointer, name);
}

// The unwinder enters a frame of this function (0 if unknown), to clean up or to catch. `what`:
// EVERYCALL_CLEANUP or EVERYCALL_CATCH, with flags.
static inline void everycall_tell_landing(uint32_t what, uint64_t stack_pointer, const char* name, uint64_t function) {
    const struct everycall_runtime* runtime = &everycall_runtime_v1;
    if (runtime && runtime->size >= offsetof(struct everycall_runtime, landing) + sizeof runtime->landing)
        runtime->landing(what, stack_pointer, name, function);
    else
        everycall_tell(what & 0xff, stack_pointer, name ? name : (const char*)function);
}

// Registers a stack on which a new fiber is about to begin.
static inline void everycall_tell_stack(uint64_t low, uint64_t size) {
    const struct everycall_runtime* runtime = &everycall_runtime_v1;
    if (runtime && runtime->size >= offsetof(struct everycall_runtime, fiber) + sizeof runtime->fiber)
        runtime->fiber(EVERYCALL_STACK_TOLD, low, size, 0);
}

// EVERYCALL_HERE
#include "caller.h"
#endif
