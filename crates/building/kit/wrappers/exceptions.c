// C++ exceptions of the Itanium C++ ABI: throws, and entries of landing pads.
//
// Functions that every C++ library has are not weak here: otherwise, with --as-needed, an object
// that only cleans up would lose the library.
#include "exceptions.h"
#include "landing_pads.h"

// The virtual table of types with one base, which is at offset 0; the type's base follows its name.
extern void* const _ZTVN10__cxxabiv120__si_class_type_infoE[] EVERYCALL_WEAK;
// The functions what() of std::runtime_error and std::logic_error.
extern const char* _ZNKSt13runtime_error4whatEv(const void*) EVERYCALL_WEAK;
extern const char* _ZNKSt11logic_error4whatEv(const void*) EVERYCALL_WEAK;

static int is_named(const char* name, const char* wanted) {
    while (*name && *name == *wanted) name++, wanted++;
    return *name == *wanted;
}

// The text of a std::runtime_error or std::logic_error, or of a class that is derived from one
// alone and says nothing else: libstdc++ and libc++ have its address behind the virtual table
// pointer. No code of the program runs for this. 0 for all others.
static const char* text_of(const void* object, const void* type) {
    enum { TABLE_BEFORE = 2, WHAT = 2, TYPES_MAX = 16 };
    if (!object || !type) return 0;
    for (int depth = 0; depth < TYPES_MAX; depth++) {
        const char* name = name_of_type(type);
        if (!name) return 0;
        const int is_runtime_error = is_named(name, "St13runtime_error");
        if (is_runtime_error || is_named(name, "St11logic_error")) {
            const void* what = is_runtime_error ? (const void*)_ZNKSt13runtime_error4whatEv : (const void*)_ZNKSt11logic_error4whatEv;
            const void* const* table = *(const void* const* const*)object;
            return what && table[WHAT] == what ? ((const char* const*)object)[1] : 0;
        }
        const void* const* const fields = type;
        if (!_ZTVN10__cxxabiv120__si_class_type_infoE || fields[0] != _ZTVN10__cxxabiv120__si_class_type_infoE + TABLE_BEFORE) return 0;
        type = fields[2];
    }
    return 0;
}

extern void __real___cxa_throw(void*, void*, void (*)(void*)) __attribute__((noreturn));
EVERYCALL_WRAPPER __attribute__((noreturn)) void __wrap___cxa_throw(
    void* object, void* type, void (*destroy)(void*)) {
    everycall_tell_throw(EVERYCALL_HERE, name_of_type(type), text_of(object, type));
    __real___cxa_throw(object, type, destroy);
}

extern void* __cxa_current_exception_type(void) EVERYCALL_WEAK;
extern void __real___cxa_rethrow(void) __attribute__((noreturn));
EVERYCALL_WRAPPER __attribute__((noreturn)) void __wrap___cxa_rethrow(void) {
    everycall_tell(EVERYCALL_THROW, EVERYCALL_HERE,
                   name_of_type(__cxa_current_exception_type ? __cxa_current_exception_type() : 0));
    __real___cxa_rethrow();
}

// std::rethrow_exception(std::exception_ptr), of libstdc++ and of libc++. It takes a pointer to the
// exception_ptr, which is a pointer to the object.
#define RETHROW_EXCEPTION(name)                                                                     \
    extern void __real_##name(void*) EVERYCALL_WEAK __attribute__((noreturn));                      \
    EVERYCALL_WRAPPER __attribute__((noreturn)) void __wrap_##name(void* pointer) {                 \
        const char* object = *(const char**)pointer;                                                \
        everycall_tell(EVERYCALL_THROW, EVERYCALL_HERE, object ? name_of_type(*(void* const*)(object - HEADER)) : 0); \
        __real_##name(pointer);                                                                     \
    }
RETHROW_EXCEPTION(_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE)
RETHROW_EXCEPTION(_ZSt17rethrow_exceptionSt13exception_ptr)

extern void* __real___cxa_begin_catch(void*) EVERYCALL_WEAK;
static void landing_pad(int actions, uint64_t class, void* exception, void* context) {
    if (!(actions & HANDLER_FRAME)) return everycall_tell_cleanup(actions, context);
    if (!(actions & CLEANUP_PHASE) || !_Unwind_GetCFA) return;
    const uint64_t stack_pointer = _Unwind_GetCFA(context);
    // The beginning of a handler is reported only if that function is wrapped.
    const uint32_t ends = !&__real___cxa_begin_catch ? 0 : everycall_untold_ends() ? EVERYCALL_UNTOLD_ENDS : EVERYCALL_TOLD_ENDS;
    everycall_tell_landing(EVERYCALL_CATCH | ends, stack_pointer, name_of_exception(class, exception), everycall_function(context));
}

extern int __real___gxx_personality_v0(int, int, uint64_t, void*, void*);
EVERYCALL_WRAPPER int __wrap___gxx_personality_v0(
    int version, int actions, uint64_t class, void* exception, void* context) {
    // The wrappers above don't see what other libraries throw.
    if (actions & SEARCH_PHASE) everycall_tell(EVERYCALL_RAISED, 0, name_of_exception(class, exception));
    const int result = __real___gxx_personality_v0(version, actions, class, exception, context);
    if (result == INSTALL_CONTEXT) landing_pad(actions, class, exception, context);
    return result;
}

// A handler begins, after the cleanups of calls that were inlined around it. Such calls share the
// handler's frame, and some compilers (clang's -finstrument-functions) don't report that an
// exception leaves them.
EVERYCALL_WRAPPER void* __wrap___cxa_begin_catch(void* exception) {
    // The call's last byte.
    if (everycall_untold_ends()) everycall_tell(EVERYCALL_HANDLED, EVERYCALL_HERE, (const char*)__builtin_return_address(0) - 1);
    else everycall_tell(EVERYCALL_CLEANED, EVERYCALL_HERE, 0);
    return __real___cxa_begin_catch(exception);
}
