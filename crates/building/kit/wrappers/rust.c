// Rust's panics: their start, and the frames that are entered to clean up or to catch.
//
// Rust's personality routine is in its standard library, which link-time optimisation joins with
// the program's code: no link could wrap it there. But it always calls two functions of the
// unwinder's library, in whichever code it ends up, and `_Unwind_SetGR` with the exception right
// before the frame is entered.
#include "exceptions.h"
#include "landing_pads.h"
#include "unwinder.h"

extern void __real__Unwind_SetGR(void*, int, uint64_t) EVERYCALL_WEAK;
EVERYCALL_WRAPPER void __wrap__Unwind_SetGR(void* context, int index, uint64_t value) {
    const struct exception* exception = (const struct exception*)value;
    if (index == RESULT_REGISTER && exception && is_panic(exception) && _Unwind_GetCFA) {
        const uint64_t stack_pointer = _Unwind_GetCFA(context);
        const int is_caught = catches(exception, stack_pointer);
        everycall_tell_landing(is_caught ? EVERYCALL_CATCH : EVERYCALL_CLEANUP, stack_pointer,
                               is_caught ? "panic" : 0, everycall_function(context));
    }
    __real__Unwind_SetGR(context, index, value);
}

extern int __real__Unwind_RaiseException(struct exception*) EVERYCALL_WEAK;
EVERYCALL_WRAPPER int __wrap__Unwind_RaiseException(struct exception* exception) {
    if (is_panic(exception)) everycall_tell(EVERYCALL_THROW, EVERYCALL_HERE, "panic");
    return __real__Unwind_RaiseException(exception);
}
