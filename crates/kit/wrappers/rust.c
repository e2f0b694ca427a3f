// Rust's panics: their start, and the frames that are entered to clean up or to catch.
//
// Rust's personality routine is in its standard library, which link-time optimisation joins with
// the program's code: no link could wrap it there. But it always calls two functions of the
// unwinder's library, in whichever code it ends up, and `_Unwind_SetGR` with the exception right
// before the frame is entered.
#include "landing_pads.h"

// The unwinder's part of an exception, the same in libgcc and LLVM's library.
struct exception {
    uint64_t class;
    void (*destroy)(int, void*);
    uint64_t first, second;
};
enum { RAX = 0 };

// "MOZ\0RUST", as a text in memory; older versions: as a number.
static inline int is_panic(const struct exception* exception) {
    return exception->class == 0x54535552005a4f4d || exception->class == 0x4d4f5a0052555354;
}

extern void __real__Unwind_SetGR(void*, int, uint64_t) EVERYCALL_WEAK;
EVERYCALL_WRAPPER void __wrap__Unwind_SetGR(void* context, int index, uint64_t value) {
    const struct exception* exception = (const struct exception*)value;
    if (index == RAX && exception && is_panic(exception) && _Unwind_GetCFA) {
        const uint64_t stack_pointer = _Unwind_GetCFA(context);
        // In the search for a handler, the unwinder has noted the stack pointer of the frame that
        // catches; libgcc subtracts one for frames of signal handlers.
        const int catches = exception->second == stack_pointer || exception->second + 1 == stack_pointer;
        everycall_tell_landing(catches ? EVERYCALL_CATCH : EVERYCALL_CLEANUP, stack_pointer,
                               catches ? "panic" : 0, everycall_function(context));
    }
    __real__Unwind_SetGR(context, index, value);
}

extern int __real__Unwind_RaiseException(struct exception*) EVERYCALL_WEAK;
EVERYCALL_WRAPPER int __wrap__Unwind_RaiseException(struct exception* exception) {
    if (is_panic(exception)) everycall_tell(EVERYCALL_THROW, EVERYCALL_HERE, "panic");
    return __real__Unwind_RaiseException(exception);
}
