// Exceptions in memory: their kinds, and the names of their types.
#ifndef EVERYCALL_WRAPPERS_EXCEPTIONS_H
#define EVERYCALL_WRAPPERS_EXCEPTIONS_H
#include <stdint.h>

// The unwinder's part of an exception, the same in libgcc and LLVM's library. If `first` isn't 0,
// the unwinding is forced.
struct exception {
    uint64_t class;
    void (*destroy)(int, void*);
    uint64_t first, second;
};

// "MOZ\0RUST", as a text in memory; older versions: as a number.
static inline int is_panic(const struct exception* exception) {
    return exception->class == 0x54535552005a4f4d || exception->class == 0x4d4f5a0052555354;
}

// Whether the frame that is entered with this stack pointer catches the exception. In the search
// for a handler, the unwinder has noted that of the frame that catches; libgcc subtracts one for
// frames of signal handlers.
static inline int catches(const struct exception* exception, uint64_t stack_pointer) {
    return exception->second == stack_pointer || exception->second + 1 == stack_pointer;
}

// A field of std::type_info, after its virtual table pointer. A name that begins with `*` is
// compared by address alone.
static inline const char* name_of_type(const void* type) {
    const char* name = type ? ((const char* const*)type)[1] : 0;
    return name && *name == '*' ? name + 1 : name;
}

// A header precedes each thrown object, with the same layout in libstdc++ and libc++abi: first the
// type, at the end the unwinder's part.
enum { UNWINDER_PART = 80, HEADER = 112 };
static const uint64_t LANGUAGE = 0x432b2b; // "C++", after the vendor's four letters
static const uint64_t GNU = 0x474e5543, LLVM = 0x434c4e47; // "GNUC", "CLNG"

static inline const char* name_of_exception(uint64_t class, const char* unwinder_part) {
    const char* header = unwinder_part - UNWINDER_PART;
    if ((class >> 8 & 0xffffff) != LANGUAGE) return 0;
    switch (class & 0xff) {
    case 0: return name_of_type(*(void* const*)header);
    // A dependent exception, as std::rethrow_exception makes: libstdc++ has the primary exception's
    // object in place of the type.
    case 1:
        if (class >> 32 == GNU) return name_of_type(*(void* const*)(*(const char* const*)header - HEADER));
        return class >> 32 == LLVM ? name_of_type(*(void* const*)header) : 0;
    default: return 0;
    }
}
#endif
