// Exceptions that are thrown or caught in functions without hooks, of the program and of libstdc++.
//
//| main
//|   reads()
//|     Buffer::underflow()!
//|       *throw std::runtime_error
//|     leaf()
//|   leaf()
//|   calls()
//|     callback()!
//|       throws()!
//|         *throw std::runtime_error
//|     *catch std::runtime_error
//|     leaf()
//|   leaf()
//|   cleans()
//|     callback()!
//|       throws()!
//|         *throw std::runtime_error
//|     Guard::~Guard()
//|     *catch std::runtime_error
//|     leaf()
//|   leaf()
//|   library_throws()
//|     converts()!
//|     *catch std::invalid_argument
//|     leaf()
//|   leaf()
//|   through_library()
//|     chosen(void const*, void const*)!
//|       throws()!
//|         *throw std::runtime_error
//|     *catch std::runtime_error
//|     leaf()
//|   leaf()
//|   again()
//|     callback()!
//|       throws()!
//|         *throw std::runtime_error
//|     *catch std::runtime_error
//|     leaf()
//|     callback()!
//|       throws()!
//|         *throw std::runtime_error
//|     *catch std::runtime_error
//|     leaf()
#include "tree.h"
#include <cstdlib>
#include <istream>
#include <mutex>
#include <stdexcept>
#include <streambuf>
#include <string>

static volatile int zero;

F void leaf() { HERE; }
F void throws() {
    if (zero == 0) throw std::runtime_error("thrown");
    HERE;
}
F void callback() {
    throws();
    HERE;
}
struct Buffer : std::streambuf {
    F int_type underflow() override {
        if (zero == 0) throw std::runtime_error("read");
        HERE;
        return 0;
    }
    UNTRACED Buffer() {}
    UNTRACED ~Buffer() {}
};
// operator>> catches it and sets badbit.
F void reads() {
    Buffer buffer;
    std::istream stream(&buffer);
    int number = 0;
    stream >> number;
    if (stream.bad()) leaf();
    HERE;
}
UNTRACED void catches(void (*work)()) {
    try {
        work();
    } catch (...) {
    }
    HERE;
}
F void calls() {
    catches(callback);
    leaf();
    HERE;
}
struct Guard {
    F ~Guard() { HERE; }
};
UNTRACED void guards(void (*work)()) {
    Guard guard;
    work();
    HERE;
}
UNTRACED void catches_guarded() {
    try {
        guards(callback);
    } catch (...) {
    }
    HERE;
}
F void cleans() {
    catches_guarded();
    leaf();
    HERE;
}
F void converts() {
    zero = std::stoi("no number");
    HERE;
}
F void library_throws() {
    try {
        converts();
    } catch (const std::exception&) {
        leaf();
    }
    HERE;
}
// Through the C library's frames.
F int chosen(const void*, const void*) {
    throws();
    HERE;
    return 0;
}
F void through_library() {
    int numbers[] = {3, 2, 1};
    try {
        std::qsort(numbers, 3, sizeof *numbers, chosen);
    } catch (const std::exception&) {
        leaf();
    }
    HERE;
}
F void again() {
    for (int i = 0; i < 2; i++) {
        catches(callback);
        leaf();
    }
    HERE;
}
int main() {
    reads();
    leaf();
    calls();
    leaf();
    cleans();
    leaf();
    library_throws();
    leaf();
    through_library();
    leaf();
    again();
}
