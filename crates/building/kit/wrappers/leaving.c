// Functions by which calls are left, in programs that were built without everycall: the entries of
// these functions lead here (crates/patching/untouched/src/leaving.rs), where a link would have
// wrapped calls of them. Also the loader's function for debuggers (loading.rs) and the unwinder's
// search for unwind information (frames.h). Part of libeverycall.so.
#include "exceptions.h"
#include "frames.h"
#include "jumps.h"
#include "unwinder.h"

// The functions, as leaving.rs numbers them.
enum function {
    SET_REGISTER = 1, // _Unwind_SetGR(context, register, value)
    JUMP = 2,         // longjmp(buffer, value)
    THREAD_EXIT = 3,  // pthread_exit(result)
    CANCEL = 4,       // pthread_cancel(thread)
    THROW = 5,        // __cxa_throw(object, type, destroy)
    RETHROW = 6,      // std::rethrow_exception(pointer)
    LOADED = 7,       // _dl_debug_state()
    FIND_FRAME = 8,   // _Unwind_Find_FDE(address, bases)
};

// As in <link.h>.
struct link_map {
    void* others[3];
    struct link_map* next;
};
struct r_debug {
    int version;
    struct link_map* first;
    void* called;
    enum { CONSISTENT } state;
};

// leaving.rs and loading.rs write this before the code that leads here.
struct area {
    uint64_t mark[2];
    const void* leaving;
    union {
        struct {
            // Of the unwinder whose function is entered; 0 if it has none.
            uint64_t (*stack_pointer)(void* context);
            uint64_t (*function)(void* context);
        };
        // Of the loader whose function is entered.
        const struct r_debug* debug;
    };
};

// All personality routines call _Unwind_SetGR with the exception right before a frame is entered,
// to clean up or to catch. Some runtimes pass a number instead of an exception: they catch.
static inline void landing(void* context, uint64_t value, const struct area* area) {
    if (!area->stack_pointer) return;
    const uint64_t stack_pointer = area->stack_pointer(context);
    const uint64_t function = area->function ? area->function(context) : 0;
    if (!is_address(value) || value % 8 != 0)
        return everycall_tell_landing(EVERYCALL_CATCH, stack_pointer, 0, function);
    const struct exception* exception = (const struct exception*)value;
    if (exception->first) everycall_tell(EVERYCALL_THREAD_END, stack_pointer, "");
    if (exception->first || !catches(exception, stack_pointer))
        return everycall_tell_landing(EVERYCALL_CLEANUP, stack_pointer, 0, function);
    const char* name = is_panic(exception) ? "panic" : name_of_exception(exception->class, (const char*)exception);
    everycall_tell_landing(EVERYCALL_CATCH, stack_pointer, name, function);
}

// The signal mask that the jump is going to set is set before: handlers that this unblocks run, and
// may jump themselves, while the frames that this jump leaves still exist.
static inline void jump(const uint64_t* registers) {
    uint64_t stack_pointer = registers[STACK_POINTER], code = registers[CODE];
    if (!are_registers(stack_pointer, code)) {
        stack_pointer = unscrambled(stack_pointer), code = unscrambled(code);
        if (are_registers(stack_pointer, code) && (uint32_t)registers[MASK_WAS_SAVED] == 1) {
            set_signal_mask(registers[MASK]);
            // A handler may have changed the buffer.
            stack_pointer = unscrambled(registers[STACK_POINTER]), code = unscrambled(registers[CODE]);
        }
    }
    if (are_registers(stack_pointer, code)) everycall_tell(EVERYCALL_JUMP, stack_pointer, 0);
}

// The loader calls its function before and after it changes its list, and holds its lock. What is
// unloaded needs nothing.
static inline void loaded(const struct r_debug* debug) {
    static uint32_t known;
    if (debug->state != CONSISTENT) return;
    uint32_t count = 0;
    for (const struct link_map* one = debug->first; one; one = one->next) count++;
    const uint32_t before = known;
    known = count;
    if (count > before) everycall_tell(EVERYCALL_LOADED, 0, 0);
}

// `stack_pointer`: the caller's, before it called the function. The function isn't run if this
// returns its result.
__attribute__((visibility("hidden"), used)) const void* everycall_leaves(
    uint32_t function, const uint64_t arguments[3], uint64_t stack_pointer, const struct area* area) {
    switch (function) {
    case SET_REGISTER:
        if ((uint32_t)arguments[1] == RESULT_REGISTER) landing((void*)arguments[0], arguments[2], area);
        break;
    case JUMP: jump((const uint64_t*)arguments[0]); break;
    case LOADED: loaded(area->debug); break;
    case THREAD_EXIT: everycall_tell(EVERYCALL_THREAD_END, stack_pointer, 0); break;
    case CANCEL: everycall_tell(EVERYCALL_CANCEL, arguments[0], 0); break;
    case THROW: everycall_tell(EVERYCALL_THROW, stack_pointer, name_of_type((const void*)arguments[1])); break;
    case RETHROW: {
        const char* object = *(const char* const*)arguments[0];
        everycall_tell(EVERYCALL_THROW, stack_pointer, object ? name_of_type(*(void* const*)(object - HEADER)) : 0);
        break;
    }
    case FIND_FRAME: return find_frame(arguments[0], (struct bases*)arguments[1]);
    }
    return 0;
}

#include "entry_of_leaving.h"
