// Uses a linked library, or loads the plugins that it is given.
#include "library.h"
#include <cstdio>
#include <dlfcn.h>
#include <exception>
#include <unistd.h>

__attribute__((noinline)) int host_leaf(int value) {
    __asm__ volatile("" : "+r"(value));
    return value + 1;
}
__attribute__((noinline)) int use(int (*work)(int), void (*thrower)(int)) {
    int result = host_leaf(work(10));
    try {
        thrower(3);
    } catch (const std::exception& error) {
        std::printf("caught: %s\n", error.what());
        result += host_leaf(100);
    }
    return result;
}
int main(int count, char** arguments) {
#ifdef LINKED
    std::printf("linked %d\n", use(library_work, library_throw));
#endif
    for (int i = 1; i < count; i++) {
        void* plugin = dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
        if (!plugin) {
            std::printf("%s\n", dlerror());
            return 1;
        }
        auto work = reinterpret_cast<int (*)(int)>(dlsym(plugin, "library_work"));
        auto thrower = reinterpret_cast<void (*)(int)>(dlsym(plugin, "library_throw"));
        std::printf("plugin %d\n", use(work, thrower));
        dlclose(plugin);
    }
}
