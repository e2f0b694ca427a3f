// Unwind information of the code that everycall maps into programs that were built without it.
#include "runtime.h"

// gdb's interface for code that a program makes: gdb looks for both names in each object. They are
// local, as programs may have others.
struct jit_code_entry {
    struct jit_code_entry *next, *previous;
    const void* image;
    uint64_t size;
};
struct jit_descriptor {
    uint32_t version, action;
    struct jit_code_entry *relevant, *first;
};
enum { JIT_REGISTERED = 1 };
struct jit_descriptor __jit_debug_descriptor = { .version = 1 };
__attribute__((noinline, used)) void __jit_debug_register_code(void) { __asm__ volatile("" ::: "memory"); }

// Addresses of code from the region's start on, and where their unwind information is from the
// image's start on.
struct frame {
    uint32_t start, end, information;
};
// As the unwinder has it.
struct bases {
    const void *text, *data, *function;
};

static struct region {
    struct jit_code_entry entry;
    uint64_t start, size;
    const struct frame* frames; // sorted
    uint64_t count;
} regions[512];
// Those that are complete.
static uint32_t known_regions;

// Called by a borrowed thread, one at a time (crates/patching/untouched/src/frames.rs). Regions
// stay.
__attribute__((used)) void everycall_frames(
    uint64_t start, uint64_t size, const void* image, uint64_t image_size, const struct frame* frames, uint64_t count) {
    const uint32_t number = known_regions;
    if (number == sizeof regions / sizeof *regions) return;
    struct region* region = &regions[number];
    struct jit_code_entry* next = __jit_debug_descriptor.first;
    *region = (struct region){ { next, 0, image, image_size }, start, size, frames, count };
    if (next) next->previous = &region->entry;
    __atomic_store_n(&known_regions, number + 1, __ATOMIC_RELEASE);
    __jit_debug_descriptor.action = JIT_REGISTERED;
    __jit_debug_descriptor.relevant = &region->entry;
    __atomic_store_n(&__jit_debug_descriptor.first, &region->entry, __ATOMIC_RELEASE);
    __jit_debug_register_code();
}

// Without locks, as handlers of signals unwind, too.
static inline const void* find_frame(uint64_t address, struct bases* bases) {
    const uint32_t count = __atomic_load_n(&known_regions, __ATOMIC_ACQUIRE);
    for (const struct region* region = regions; region < regions + count; region++) {
        if (address - region->start >= region->size) continue;
        const uint64_t offset = address - region->start;
        uint64_t low = 0, high = region->count;
        while (low < high) {
            const uint64_t middle = low + (high - low) / 2;
            if (region->frames[middle].end <= offset) low = middle + 1;
            else high = middle;
        }
        if (low == region->count || region->frames[low].start > offset) return 0;
        *bases = (struct bases){ 0, 0, (const void*)(region->start + region->frames[low].start) };
        return (const char*)region->entry.image + region->frames[low].information;
    }
    return 0;
}
