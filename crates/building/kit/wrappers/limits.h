// setrlimit and functions like it, of the limit of address space: the runtime's own memory, most of
// which is only reserved, comes on top of what the program sets, and the program reads what it has
// set.
#include "runtime.h"

enum { ADDRESS_SPACE = 9, SET = 0, GOT = 1 };

#define EVERYCALL_GLUED_(prefix, name) prefix##name
#define EVERYCALL_GLUED(prefix, name) EVERYCALL_GLUED_(prefix, name)
#define EVERYCALL_WRAP EVERYCALL_GLUED(__wrap_, EVERYCALL_NAME)
#define EVERYCALL_REAL EVERYCALL_GLUED(__real_, EVERYCALL_NAME)

// Changes the soft and the hard limit.
static inline void tell(uint32_t what, uint64_t* limits) {
    const struct everycall_runtime* runtime = &everycall_runtime_v1;
    if (runtime && runtime->size >= offsetof(struct everycall_runtime, address_space) + sizeof runtime->address_space)
        runtime->address_space(what, limits);
}
