// A shared object: linked or loaded.
#include "library.h"
#include <stdexcept>

namespace shapes {
__attribute__((noinline)) int inner(int value) {
    __asm__ volatile("" : "+r"(value));
    return value + 1;
}
struct Counter {
    int total = 0;
    __attribute__((noinline)) void add(int value) { total += inner(value); }
};
static Counter at_load = [] {
    Counter counter;
    counter.add(1);
    return counter;
}();
} // namespace shapes

extern "C" __attribute__((noinline)) int library_work(int count) {
    shapes::Counter counter = shapes::at_load;
    for (int i = 0; i < count; i++) counter.add(i);
    return counter.total;
}
extern "C" __attribute__((noinline)) void library_throw(int depth) {
    if (depth == 0) throw std::runtime_error("thrown in the library");
    library_throw(depth - 1);
    __asm__ volatile("");
}
