// What names depend on: templates, inlined calls, exceptions, tail calls, a cold part, log lines, a
// library, threads.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "everycall.h"

static inline int square(int x) { return x * x; }

namespace app {
struct Values {
    std::vector<int> all;
    __attribute__((noinline)) void add(int i) { all.push_back(square(i)); }
};
template <typename T>
__attribute__((noinline)) T twice(T value) {
    return value + value;
}
}  // namespace app

__attribute__((noinline)) int deep(int n) {
    if (n == 0) throw std::runtime_error("deep");
    return deep(n - 1) + 1;
}
__attribute__((noinline)) int target(int n) {
    everycall_log("target %d of %s", n, "tail");
    return n + 1;
}
__attribute__((noinline)) int tail(int n) { return target(n * 2); }
__attribute__((noinline)) std::string name(const std::string& text) { return text + "!"; }

int main() {
    app::Values values;
    for (int i = 0; i < 40; i++) values.add(i);
    try {
        deep(5);
    } catch (const std::exception& error) {
        std::puts(error.what());
    }
    std::thread([] { tail(app::twice(3)); }).join();
    return tail(1) == 3 && name("a").size() == 2 ? 0 : 1;
}
