// The shared object of exceptions_shared.cpp.
#include "exceptions_shared.h"
#include "tree.h"

static volatile int zero;

extern "C" F void library_inner() {
    if (zero == 0) throw Shared{2};
    HERE;
}
extern "C" F void library_leaf() { HERE; }
void library_throws() {
    library_inner();
    HERE;
}
void library_catches(void (*work)()) {
    try {
        work();
    } catch (const Shared&) {
        library_leaf();
    }
    HERE;
}
struct Held {
    F Held() { HERE; }
    F ~Held() { HERE; }
};
void library_passes(void (*work)()) {
    Held held;
    work();
    HERE;
}
